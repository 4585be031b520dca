# SPDX-License-Identifier: Apache-2.0
"""Operators that put tensors into larger ones, take parts of them, or see them as something else."""

import itertools

import numpy as np

from cases.kit import ALL, F32, FEW, FLOATS, D, K, R, V, case

WIDTHS = ("uint8", "float16", "float", "double")  # what is moved is told by its size alone
IEEE = ("float", "float16", "double")

# ---- Pad ----
RANK_8 = [R((3, 3, 2, 2, 2, 2, 2, 3)), K([1, 0, 1, 0, 1, 0, 1, 1] * 2)]
for mode in ("constant", "edge", "reflect", "wrap"):
    opsets = {"constant": (11, 13, 18, 25), "wrap": (19, 25)}.get(mode, (11, 18, 25))
    kinds = [t for t in ALL if t != "bfloat16"] if mode == "constant" else WIDTHS
    case("Pad", [R((3, 4)), K([1, 2, 2, 1])], kinds, opsets, mode=mode)
    case("Pad", [R((2, 3, 4, 5)), K([0, 0, 1, 2, 0, 0, 2, 1])], WIDTHS, opsets[-1:], mode=mode, note="images")
    case("Pad", [R((2, 3, 8, 8)), K([0, 1, 0, 0, 0, 1, 0, 0])], WIDTHS, opsets[-1:], mode=mode, note="long runs")
    case("Pad", [R((2, 3, 16)), K([0, 0, 8, 0, 0, 8])], WIDTHS, opsets[-1:], mode=mode, note="wide units")
    case("Pad", [R((6, 7)), K([-2, 1, 1, -3])], WIDTHS, opsets[-1:], mode=mode, note="crops and pads")
    case("Pad", [R((6, 8)), K([-1, -2, -3, 0])], FEW, opsets[-1:], mode=mode, note="crops")
    case("Pad", RANK_8, FEW, opsets[-1:], mode=mode, note="rank 8")
    case("Pad", [R((4, 5, 6)), D([1, 2, 0, 1]), None, D([0, -1], "int32")], FEW, opsets[-1:], mode=mode, note="axes",
         runs=[[R((5, 4, 3)), D([2, 0, 1, 2]), None, D([1, 0], "int32")]])
    case("Pad", [R((5,)), K([0, 0])], FEW, opsets[-1:], mode=mode, note="nothing")
    if mode != "wrap":  # of which the CPU provider knows less
        case("Pad", [R((0, 4)), K([0, 1, 0, 1])], F32, opsets[-1:], mode=mode, note="empty")
        case("Pad", [R((3, 4))], IEEE, (2,), mode=mode, pads=[1, 2, 2, 1])
case("Pad", [R((3, 4)), K([1, 0, 0, 2]), V(7)], WIDTHS + ("int64", "int8"), (11, 25), note="value")
case("Pad", [R((3, 4)), K([1, 0, 0, 2]), V(1)], ("bool",), (13, 25), note="value")
case("Pad", [R((2, 16)), K([1, 16, 0, 16]), V(3)], WIDTHS, (25,), note="value in wide units")
case("Pad", [R((3, 4))], IEEE, (2,), pads=[1, 2, 0, 1], value=-1.5)
case("Pad", [R((0, 4)), K([1, 0, 2, 1]), V(2)], FEW, (25,), note="only border")
case("Pad", [R((3, 4)), K([1, 0, 0, 2]), V(7)], IEEE, (1,), domain="com.microsoft")

# ---- Tile ----
case("Tile", [R((2, 3, 4)), K([3, 1, 2])], WIDTHS, (6, 13))
case("Tile", [R((4, 16)), K([5, 1])], WIDTHS, note="long runs")
case("Tile", [R((2, 3, 144)), K([1, 6, 1])], WIDTHS, note="rows of words")
case("Tile", [R((1, 1, 1)), K([2, 3, 4])], FEW, note="one element")
case("Tile", [R(()), K(np.zeros(0, np.int64))], FEW, note="scalar")
case("Tile", [R((0, 3)), K([2, 2])], FEW)
case("Tile", [R((2, 1, 3, 2, 2, 1, 2, 3)), K([2, 2, 1, 2, 3, 2, 2, 2])], WIDTHS, note="rank 8")
case("Tile", [R((2, 3)), D([1, 2])], FEW, runs=[[R((2, 3)), D([3, 1])], [R((4, 1)), D([1, 5])]])

# ---- Concat and Split: one launch for many parts ----
for axis, sizes in ((0, (3, 1, 4)), (1, (2, 5, 1)), (2, (4, 8, 4)), (-1, (3, 5, 7))):
    shapes = [tuple(size if d == axis % 3 else 4 for d in range(3)) for size in sizes]
    case("Concat", [R(shape) for shape in shapes], WIDTHS, axis=axis)
    total = tuple(sum(sizes) if d == axis % 3 else 4 for d in range(3))
    case("Split", [R(total), K(sizes)], WIDTHS, outputs=3, axis=axis)
case("Concat", [R((2, i % 5, 4)) for i in range(70)], FEW, axis=1, note="more than one launch takes")
case("Split", [R((2, 70, 3)), K([1] * 70)], FEW, outputs=70, axis=1, note="more than one launch takes")
case("Split", [R((3, 9)), K([4, 0, 5])], FEW, outputs=3, axis=1, runs=[[R((1, 9)), K([4, 0, 5])]])

# ---- the old ones ----
for start, end in (([1, 0], [3, 4]), ([-2, 1], [100, -1])):
    case("DynamicSlice", [R((4, 5)), K(start), K(end)], [t for t in ALL if t != "bfloat16"], (1,))
    case("DynamicSlice", [R((4, 5, 6)), K(start, "int32"), K(end, "int32"), K([2, 0], "int32")], F32, (1,))
case("Crop", [R((2, 3, 8, 9))], IEEE, (1,), border=[1, 2, 3, 0])
case("Crop", [R((2, 3, 8, 9))], IEEE, (1,), border=[2, 1, 0, 0], scale=[4, 5])
case("ImageScaler", [R((2, 3, 4, 5))], IEEE, (1,), scale=0.5, bias=[0.25, -1.0, 2.0])
case("ImageScaler", [R((2, 600, 2, 1))], F32, (1,), scale=2.0, bias=[i / 8 for i in range(600)])
case("Reshape", [R((2, 3, 4))], IEEE, (1,), shape=[4, -1])
case("Reshape", [R((2, 3, 4))], F32, (1,), shape=[0, 12])

# ---- bits, blocks ----
for name, target in (("float", 6), ("int32", 1), ("double", 7), ("uint8", 3), ("float16", 5), ("uint64", 11)):
    case("BitCast", [R((3, 5))], (name,), (26,), to=["", "float", "", "int8", "", "int16", "int32", "int64", "", "", "",
                                                    "double"][target])
case("Col2Im", [R((1, 5, 5)), K([5, 5]), K([1, 5])], FLOATS, (18,))
case("Col2Im", [R((2, 3 * 6, 9)), K([5, 5]), K([2, 3])], F32, (18,), dilations=[2, 1], strides=[1, 1])
case("Col2Im", [R((1, 2 * 9, 16)), K([4, 4]), K([3, 3])], FLOATS, (18,), pads=[1, 1, 1, 1])
case("Col2Im", [R((1, 2 * 9, 4)), K([5, 5]), K([3, 3])], F32, (18,), pads=[0, 1, 0, 1], strides=[2, 3])
case("Col2Im", [R((1, 3, 4)), K([6]), K([3])], F32, (18,), note="one dimension")
case("Col2Im", [R((1, 8, 8)), K([3, 3, 3]), K([2, 2, 2])], F32, (18,), note="three dimensions")
for batch, mode in itertools.product((1, 3), ("linear", "circular")):
    first = [2] * batch if mode == "linear" else [4, 7, 0][:batch]
    case("TensorScatter", [R((batch, 2, 6, 4)), R((batch, 2, 3, 4)), D(first)], ALL, (24,), mode=mode)
FLOAT8 = ("float8e4m3fn", "float8e5m2")
case("Pad", [R((3, 4)), K([1, 2, 2, 1])], FLOAT8, (25,), mode="edge", note="stored types")
case("TensorScatter", [R((2, 2, 6, 4)), R((2, 2, 3, 4)), D([1, 3])], FLOAT8, (24,), note="stored types")
