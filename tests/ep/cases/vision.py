# SPDX-License-Identifier: Apache-2.0
"""Regions of images, boxes, moved windows, grids."""

import numpy as np

from cases.kit import F32, D, K, P, R, V, case

FLOATS = ("float", "double", "float16")
generator = np.random.default_rng(5)

# ---- regions ----
ROIS = V([[0.0, 0.0, 6.5, 5.0], [1.25, 2.5, 7.5, 8.0], [-3.0, -2.0, 2.0, 12.0], [4.0, 4.0, 4.0, 4.0]])
BATCH = D([0, 1, 1, 0])
for mode in ("avg", "max"):
    case("RoiAlign", [R((2, 3, 8, 9)), ROIS, BATCH], FLOATS, (10, 16), slack=8, mode=mode, output_height=3,
         output_width=2, sampling_ratio=2, spatial_scale=0.75)
    for opset, attrs in ((10, {}), (16, {}), (16, {"coordinate_transformation_mode": "output_half_pixel"})):
        case("RoiAlign", [R((2, 3, 8, 9)), ROIS, BATCH], F32, (opset,), slack=8, mode=mode, output_height=2,
             output_width=3, **attrs, note="as many samples as pixels")
case("RoiAlign", [R((1, 2, 5, 5)), V(np.zeros((0, 4))), D(np.zeros(0, np.int64))], F32, (16,), note="no region")
case("RoiAlign", [R((1, 1, 1, 1)), V([[0.0, 0.0, 1.0, 1.0]]), D([0])], F32, (16,), slack=8, output_height=4,
     output_width=4, note="a pixel")
BOXES = V([[0.0, 1, 1, 6, 5], [1, 0, 2, 8, 7], [1, -4, -4, 3, 20], [0, 5, 5, 5, 5]])
case("MaxRoiPool", [R((2, 3, 8, 9)), BOXES], F32, (1,), pooled_shape=[3, 2])
case("MaxRoiPool", [R((2, 3, 8, 9)), BOXES], F32, (1,), pooled_shape=[2, 4], spatial_scale=0.6)

# ---- boxes ----
corner = generator.uniform(0, 10, (2, 60, 2))
CORNERS = np.concatenate([corner, corner + generator.uniform(0.5, 5, (2, 60, 2))], axis=2)
SCORES = generator.uniform(0, 1, (2, 3, 60)).round(2)  # some are equal
LIMITS = [K([7]), K([0.4], "float"), K([0.3], "float")]
case("NonMaxSuppression", [D(CORNERS, "float"), D(SCORES, "float"), *LIMITS], F32, (10, 11))
case("NonMaxSuppression", [D(CORNERS, "float"), D(SCORES, "float"), K([100]), K([0.5], "float")], F32, (11,))
case("NonMaxSuppression", [D(CORNERS, "float"), D(SCORES - 0.5, "float"), K([100])], F32, (11,), note="disjoint only")
case("NonMaxSuppression", [D(CORNERS, "float"), D(SCORES, "float")], F32, (11,), note="none wanted")
case("NonMaxSuppression", [D(CORNERS, "float"), D(SCORES, "float"), K([5]), K([0.5], "float"), K([2.0], "float")], F32,
     (11,), note="none good enough")
case("NonMaxSuppression", [D(CORNERS[:, :, [2, 1, 0, 3]], "float"), D(SCORES, "float"), *LIMITS], F32, (11,),
     note="corners in another order")
case("NonMaxSuppression", [D(CORNERS, "float"), D(SCORES, "float"), *LIMITS], F32, (11,), center_point_box=1)
case("NonMaxSuppression", [D(np.zeros((1, 0, 4)), "float"), D(np.zeros((1, 2, 0)), "float"), *LIMITS], F32, (11,))
many = generator.uniform(0, 100, (1, 3000, 2))
MANY = [D(np.concatenate([many, many + 4], axis=2), "float"), D(generator.uniform(-1, 1, (1, 2, 3000)), "float")]
case("NonMaxSuppression", [*MANY, K([3000]), K([0.1], "float")], F32, (11,), note="thousands")
for count in (17, 64, 65, 128, 300):  # sorted first, 64 at a time; some scores are alike, some are none
    low = generator.uniform(0, 30, (2, count, 2))
    some = np.round(generator.uniform(-1, 1, (2, 3, count)), 1)
    boxes, some = D(np.concatenate([low, low + 9], axis=2), "float"), D(some, "float")
    none = D(np.where(np.arange(count) % 5 == 0, np.nan, some.values), "float")
    for most in (17, count):
        case("NonMaxSuppression", [boxes, none, K([most]), K([0.2], "float"), K([-0.3], "float")], F32, (11,),
             note=f"{most} of {count}")
    case("NonMaxSuppression", [boxes, some, K([count]), K([0.3], "float")], F32, (11,), center_point_box=1,
         note=f"{count} about centres")

# ---- windows ----
for attrs, (out_h, out_w) in (
    ({}, (5, 6)),
    ({"pads": [1, 1, 1, 1]}, (7, 8)),
    ({"pads": [0, 1, 1, 0], "strides": [2, 2], "dilations": [1, 2]}, (3, 3)),
):
    taps = {"kernel_shape": [3, 3], **attrs}
    offset = R((2, 18, out_h, out_w), -1.5, 1.5)
    case("DeformConv", [R((2, 4, 7, 8)), R((6, 4, 3, 3)), offset], ("float", "double"), (19, 22), slack=8, **taps)
    case("DeformConv", [R((2, 4, 7, 8)), R((6, 4, 3, 3)), offset, R((6,)), P((2, 9, out_h, out_w), 0, 1)], F32,
         (19, 22), slack=8, **taps)
case("DeformConv", [R((3, 4, 7, 8)), R((6, 2, 3, 3)), R((3, 36, 5, 6), -2, 2), R((6,)), P((3, 18, 5, 6), 0, 1)],
     F32, (19, 22), slack=8, group=2, offset_group=2)
case("DeformConv", [R((1, 2, 5, 5)), R((3, 2, 2, 2)), R((1, 8, 4, 4), -40, 40)], F32, (19,), slack=8, note="far")
case("DeformConv", [R((0, 2, 5, 5)), R((3, 2, 2, 2)), R((0, 8, 4, 4))], F32, (19,), note="empty batch")
PLACES = D([[[[5, 7], [13, 15]]]])
case("MaxUnpool", [R((1, 1, 2, 2)), PLACES], FLOATS, (9, 11, 22), kernel_shape=[2, 2], strides=[2, 2])
case("MaxUnpool", [R((1, 1, 2, 2)), PLACES, K([1, 1, 5, 5])], F32, (9, 11, 22), kernel_shape=[2, 2], strides=[2, 2])
case("MaxUnpool", [R((2, 2, 3)), D(np.arange(0, 24, 2).reshape(2, 2, 3))], F32, (11,), kernel_shape=[2], strides=[2])

# ---- grids ----
for corners in (0, 1):
    case("AffineGrid", [R((2, 2, 3)), K([2, 3, 4, 5])], FLOATS, (20,), slack=8, align_corners=corners)
    case("AffineGrid", [R((2, 3, 4)), D([2, 1, 3, 4, 5])], F32, (20,), slack=8, align_corners=corners)
case("AffineGrid", [R((1, 2, 3)), K([1, 1, 1, 1])], F32, (20,), slack=8, align_corners=1, note="a point")
