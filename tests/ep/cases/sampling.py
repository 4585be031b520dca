# SPDX-License-Identifier: Apache-2.0
"""Resampling of images."""

import itertools

import numpy as np

from cases.kit import F32, FLOATS, D, K, P, R, case

# ---- sampling ----
SAMPLED = ("float", "float16", "double")
GRID = R((2, 4, 5, 2), -1.4, 1.4)
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (0, 1):
            attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
            case("GridSample", [R((2, 3, 5, 7)), GRID], F32, (16,), slack=32, **attrs)
            attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
            case("GridSample", [R((2, 3, 5, 7)), GRID], F32, (20, 22), slack=32, **attrs)
            if mode != "bicubic":
                case("GridSample", [R((2, 3, 4, 5, 6)), R((2, 2, 3, 4, 3), -1.4, 1.4)], F32, (20,), slack=32, **attrs)
case("GridSample", [R((2, 3, 5, 7)), GRID], SAMPLED, (16, 20, 22), slack=32)
case("GridSample", [R((2, 3, 5, 7)), R((2, 4, 5, 2), -40, 40)], F32, slack=32, padding_mode="reflection", note="far")
case("GridSample", [R((1, 2, 1, 1)), R((1, 3, 3, 2), -1.4, 1.4)], F32, slack=32, padding_mode="border", note="a pixel")
for mode in ("linear", "nearest", "cubic"):  # groups of channels, whole and not
    case("GridSample", [R((2, 9, 5, 7)), GRID], SAMPLED, (20,), slack=32, mode=mode, padding_mode="reflection")
case("GridSample", [R((0, 3, 5, 7)), R((0, 4, 5, 2))], F32, note="empty batch")
case("GridSample", [R((1, 2, 4, 3)), R((1, 3, 2, 2), -1, 1)], F32, slack=32, runs=[[R((2, 1, 3, 3)), GRID]])
case("GridSample", [R((2, 3, 5, 7)), GRID], F32, (1,), domain="com.microsoft", note="in test_nhwc.py")

# ---- resize ----
NO_ROI = K(np.zeros(0), "float")  # opset 11 asks for the input though it is not used
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
for coordinates, rounding in itertools.product(COORDINATES, ROUNDINGS):
    case("Resize", [R((1, 2, 4, 5)), NO_ROI, K([1.0, 1.0, 2.0, 1.6], "float")], F32, (11, 13, 18, 19), mode="nearest",
         coordinate_transformation_mode=coordinates, nearest_mode=rounding)
for coordinates in COORDINATES:
    for scales in ([1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 0.6, 1.5]):
        case("Resize", [R((1, 2, 4, 5)), NO_ROI, K(scales, "float")], F32, (11, 13, 18, 19), mode="linear", slack=8,
             coordinate_transformation_mode=coordinates)
case("Resize", [R((1, 2, 4, 5)), None, None, K([1, 2, 7, 9])], FLOATS, (13, 18, 19), mode="linear", slack=8)
RESIZED = ("float", "float16", "int32", "uint8", "int8")
case("Resize", [R((1, 2, 4, 5)), None, None, K([1, 2, 8, 10])], RESIZED, mode="nearest")
SECOND = [R((1, 2, 3, 3)), None, None, D([1, 2, 6, 4])]
case("Resize", [R((1, 2, 4, 5)), None, None, D([1, 2, 8, 10])], F32, mode="nearest", runs=[SECOND])
case("Resize", [R((1, 2, 4, 5)), K([1.0, 1.0, 2.0, 2.0], "float")], F32, (10,), mode="nearest")
case("Resize", [R((1, 2, 6)), None, K([1.0, 1.0, 0.5], "float")], F32, mode="nearest", note="1-D")
case("Resize", [R((1, 2, 4, 5)), NO_ROI, K([1.0, 1.0, 2.0, 2.0], "float")], F32, mode="cubic", slack=8)
case("Upsample", [R((1, 2, 4, 5)), K([1.0, 1.0, 2.0, 3.0], "float")], F32, (9,), mode="nearest")
for policy in ("not_larger", "not_smaller"):
    case("Resize", [R((1, 2, 4, 5)), None, None, K([9, 8])], F32, (18, 19), mode="linear", slack=8, axes=[2, 3],
         keep_aspect_ratio_policy=policy)
for transform in ("half_pixel_symmetric", "align_corners", "pytorch_half_pixel", "asymmetric"):
    case("Resize", [R((1, 2, 4, 5)), None, K([1.0, 1.0, 0.8, 1.7], "float")], F32, (19,), mode="cubic", slack=8,
         exclude_outside=1, cubic_coeff_a=-0.5, coordinate_transformation_mode=transform)
    case("Resize", [R((3, 4, 5)), None, K([1.4, 0.8, 1.7], "float")], (*F32, "int32", "uint8"), (19,), mode="linear",
         slack=8, coordinate_transformation_mode=transform)
REGION = K([0.0, 0.0, 0.2, -0.1, 1.0, 1.0, 0.7, 1.2], "float")
for mode in ("nearest", "linear", "cubic"):
    case("Resize", [R((1, 2, 4, 5)), REGION, None, K([1, 2, 7, 3])], F32, (13, 19), mode=mode, slack=8,
         coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.5)
SMOOTHED = (((1, 2, 9, 7), [1.0, 1.0, 0.4, 0.55]), ((1, 2, 4, 5), [1.0, 1.0, 1.5, 0.6]), ((9, 8), [0.3, 1.0]))
for mode, (shape, scales), outside in itertools.product(("linear", "cubic"), SMOOTHED, (0, 1)):
    case("Resize", [P(shape), None, K(scales, "float")], (*F32, "int32", "uint8"), (18, 19), mode=mode, slack=8,
         antialias=1, exclude_outside=outside)
# Lines of whole runs, of runs and a rest, and of less than one; along the last axis, and with something kept behind it.
LINES = (((2, 3, 5, 4), [1.0, 1.0, 2.0, 2.0]), ((1, 2, 3, 7), [1.0, 1.0, 1.5, 1.4]), ((2, 3, 4), [1.0, 1.0, 2.0]),
         ((3, 2, 4, 1), [1.0, 1.0, 2.0, 3.0]), ((2, 3, 4, 8), [1.0, 2.0, 1.5, 1.0]), ((2, 5, 8), [1.0, 1.6, 1.0]),
         ((2, 4, 3, 3), [1.0, 0.5, 2.0, 1.0]), ((1, 2, 3, 4, 5), [1.0, 1.0, 2.0, 1.5, 1.6]))
for shape, scales in LINES:
    case("Resize", [R(shape), None, K(scales, "float")], (*FLOATS, "int32", "uint8", "int8"), (13, 19), mode="nearest",
         coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    if len(shape) < 5:  # the CPU provider blends no more
        case("Resize", [R(shape), None, K(scales, "float")], F32, (13, 19), mode="linear", slack=8)
case("Resize", [R((2, 3, 6, 9)), None, K([1.0, 1.0, 2.0, 2.0], "float")], F32, (13, 19), mode="cubic", slack=8)
case("Resize", [R((2, 1, 3, 1, 4, 2)), None, K([1.5, 1.0, 2.0, 1.0, 0.5, 2.0], "float")], F32, (13, 19), note="rank 6",
     mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
case("Upsample", [R((1, 2, 4, 5))], (*F32, "int32", "uint8"), (7,), mode="linear", slack=8, scales=[1.0, 1.0, 2.0, 1.5])
