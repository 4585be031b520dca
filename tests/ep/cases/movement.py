# SPDX-License-Identifier: Apache-2.0
"""Operators that move, pick or make elements."""

import itertools

import numpy as np
from onnx import TensorProto, helper

from cases.kit import ALL, F32, FEW, FLOATS, NEWEST, SPECIALS, D, K, R, V, case

# ---- shapes and copies ----
for shape in ((2, 3, 4), (), (0, 2), (1, 1, 1, 1, 1, 1, 1, 2)):
    case("Shape", [R(shape)], FEW, (1, 13, 19))
case("Shape", [R((2, 3, 4, 5))], F32, (15, 19), start=1, end=-1)
case("Shape", [R((2, 3, 4, 5))], F32, (15, 19), start=-2)
case("Size", [R((2, 3, 4))], FEW, (1, 13, 19))
case("Reshape", [R((2, 3, 4)), K([4, 6])], ALL, (5, 13, 14, 19))
case("Reshape", [R((2, 3, 4)), D([0, -1])], FEW, runs=[[R((5, 2, 4)), D([0, -1])], [R((2, 3, 4)), D([12, 2])]])
case("Reshape", [R((0, 3)), K([3, 0])], FEW, (14, NEWEST), allowzero=1)
case("Reshape", [R((1,)), K(np.zeros(0, np.int64))], FEW, note="to a scalar")
case("Reshape", [R(()), K([1, 1])], FEW)
for axis in (0, 1, 2, -1, 3):
    case("Flatten", [R((2, 3, 4))], ALL if axis == 1 else FEW, (*([9] if axis >= 0 else []), 11, 13, NEWEST), axis=axis)
case("Flatten", [R((2, 0, 4))], FEW)
for axes in ([0], [-1], [0, 2, -1]):
    case("Unsqueeze", [R((2, 3)), K(axes)], ALL if axes == [0] else FEW, (13, NEWEST))
    case("Unsqueeze", [R((2, 3))], F32, (11,), axes=axes)
case("Unsqueeze", [R(()), K([0])], FEW)
case("Squeeze", [R((1, 2, 1, 3)), K([0, -2])], ALL, (13, NEWEST))
case("Squeeze", [R((1, 2, 1, 3))], FEW, (1, 11, 13, NEWEST), note="all")
case("Squeeze", [R((1, 2, 1, 3))], F32, (1, 11), axes=[2])
case("Squeeze", [R((1, 0, 1)), K([0])], FEW)
for permutation in itertools.permutations(range(3)):
    case("Transpose", [R((2, 3, 4))], FEW, (1, 13, NEWEST), perm=list(permutation))
case("Transpose", [R((3, 5))], ALL, (1, 13, NEWEST))
case("Transpose", [R((65, 33))], ALL)
case("Transpose", [R((2, 3, 4, 5))], ALL, perm=[0, 2, 1, 3], runs=[[R((1, 7, 2, 3))], [R((2, 3, 4, 5))]])
case("Transpose", [R((2, 3, 4, 5))], FEW, perm=[0, 3, 1, 2])
case("Transpose", [R((2, 3, 4, 5))], FEW, perm=[0, 1, 3, 2])
case("Transpose", [R((2, 1, 3, 1, 2, 2, 1, 2))], FEW, perm=[7, 0, 5, 2, 3, 6, 1, 4])
case("Transpose", [R(())], FEW)
case("Transpose", [R((2, 0, 3))], FEW, perm=[2, 1, 0])
for axis in (0, 1, -1):
    case("Concat", [R((2, 3, 4)), R((2, 3, 4))], ALL if axis == 0 else FEW, (4, 11, 13), axis=axis)
case("Concat", [R((2, 3)), R((2, 0)), R((2, 5))], FEW, axis=1, runs=[[R((1, 1)), R((1, 4)), R((1, 0))]])
case("Concat", [R((3,))], FEW, axis=0, note="one input")
case("Concat", [R((1, i + 1, 2)) for i in range(20)], FEW, axis=1, note="many inputs")
case("Expand", [R((3, 1)), K([2, 1, 6])], ALL, (8, 13))
case("Expand", [R((3, 1)), K([3, 4])], FEW)
case("Expand", [R((2, 3, 4)), D([1])], FEW, note="smaller shape")
case("Expand", [R(()), K([2, 2])], FEW)
case("Expand", [R((1, 3)), K([0, 3])], FEW)
case("Expand", [R((2, 1, 2, 1, 1, 1, 1, 3)), K([2, 2, 2, 1, 2, 1, 2, 3])], FEW)
case("Tile", [R((2, 3)), K([2, 3])], ALL, (6, 13))
case("Tile", [R((2, 3)), K([1, 0])], FEW)
case("Tile", [R((1, 2, 1, 3)), D([3, 1, 2, 1])], FEW)
for starts, ends, axes, steps in (
    ([1], [3], [0], [1]),
    ([-3], [-1], [-1], [1]),
    ([0], [1 << 62], [1], [2]),
    ([5], [-(1 << 62)], [1], [-1]),
    ([-1], [-7], [1], [-2]),
    ([0, 1], [2, 100], [0, 2], [1, 1]),
    ([3], [1], [1], [1]),
    ([1, 0, 2], [4, 5, 0], [0, 1, 2], [2, 3, -1]),
):
    inputs = [R((4, 6, 5)), K(starts), K(ends), K(axes), K(steps)]
    case("Slice", inputs, ALL if starts == [1] else FEW, (10, 11, 13))
FIRST, SECOND = [R((4, 6)), D([1, 2]), D([3, 6])], [R((5, 8)), D([0, 1]), D([2, 4])]
case("Slice", FIRST, FEW, runs=[SECOND, FIRST])
case("Slice", [R((4, 6)), K([1], "int32"), K([3], "int32"), K([1], "int32")], FEW)
case("Slice", [R((4, 6))], F32, (1,), starts=[1], ends=[-1], axes=[1])
for end in (-(2**63), -5, 0):
    case("Slice", [R((3, 0, 2)), K([-1]), K([end]), K([1]), K([-1])], FEW, note="x[::-1] of nothing")
case("Slice", [R((2, 3, 2, 3, 2, 2, 2, 4)), K([0, 3]), K([1, 0]), K([0, 7]), K([1, -1])], FEW)
case("Split", [R((6, 4)), K([1, 2, 3])], ALL, (13, 18), outputs=3, axis=0)
case("Split", [R((4, 6))], FEW, (18,), outputs=3, axis=-1, num_outputs=3)
case("Split", [R((4, 7))], FEW, (18,), outputs=3, axis=1, num_outputs=3, note="last is smaller")
case("Split", [R((4, 6))], F32, (2, 11), outputs=2, axis=1, split=[2, 4])
case("Split", [R((4, 6))], F32, (2, 11, 13), outputs=2, axis=1)
case("Split", [R((3, 5)), K([0, 5])], FEW, outputs=2, axis=1)
for mode in ("constant", "edge", "reflect"):
    case("Pad", [R((3, 4)), K([1, 2, 0, 1])], ALL if mode == "constant" else FEW, (11, 13, 18, 19), mode=mode)
    case("Pad", [R((2, 3, 4)), K([0, 1, 2, 0, 1, 3])], F32, mode=mode)
case("Pad", [R((3, 4)), K([1, 0, 0, 2]), V(7)], FEW, note="value")
case("Pad", [R((3, 4)), K([-1, 0, 0, -1])], FEW, note="crops")
case("Pad", [R((3, 4, 5)), K([1, 2]), None, K([1])], FEW, (18, 19), note="axes")
case("Pad", [R((3, 4))], F32, (2,), mode="constant", pads=[1, 2, 0, 1], value=1.5)
case("Pad", [R((0, 4)), K([1, 0, 1, 0])], F32)

# ---- indexing ----
case("Gather", [R((5, 4)), D([0, 4, 2])], ALL, (1, 11, 13))
case("Gather", [R((5, 4)), D([[0, -1], [-5, 2]])], FEW, axis=0)
case("Gather", [R((5, 4, 3)), D([[0, 3], [1, -4]], "int32")], FEW, axis=1)
case("Gather", [R((5, 4)), D(1)], FEW, axis=-1, note="scalar index")
case("Gather", [R((5, 4)), D(np.zeros((2, 0), np.int64))], FEW, note="no index")
case("Gather", [R((5, 0)), D([1, 2])], FEW)
case("Gather", [R((5,)), D([[[1]], [[2]]])], FEW)
case("Gather", [R((100, 64)), D([[7, 99, 0], [1, 1, 50]])], F32, runs=[[R((3, 64)), D([[0, 1, 2]])]])
case("GatherElements", [R((3, 4)), D([[0, 2, 1, 0], [2, 2, 2, -1]])], ALL, (11, 13), axis=0)
case("GatherElements", [R((3, 4, 2)), D(np.array([[[1], [-2]]]))], FEW, axis=-1)
case("GatherND", [R((3, 4, 5)), D([[0, 1], [2, -1]])], ALL, (11, 12, 13))
case("GatherND", [R((3, 4)), D([[[0, 1]], [[2, 3]]])], FEW)
case("GatherND", [R((2, 3, 4)), D([[1], [0]])], FEW, (12, 13), batch_dims=1)
case("GatherND", [R((2, 3)), D(np.zeros((0, 2), np.int64))], FEW)
case("ScatterElements", [R((3, 4)), D([[0, 2, 1, 0]]), R((1, 4))], ALL, (11, 13, 18), axis=0)
case("ScatterND", [R((4, 5)), D([[1], [3]]), R((2, 5))], ALL, (11, 13, 18))
case("ArgMax", [R((3, 5))], FEW, (11, 12, 13), axis=1)
case("ArgMax", [R((3, 5))], FEW, (11, 12, 13), axis=0, keepdims=0)
case("ArgMin", [R((3, 5))], FEW, (11, 12, 13), axis=-1)
case("CumSum", [R((3, 5)), K(np.array(1))], ("float", "double", "int32", "int64"), (11, 14))
case("CumSum", [R((3, 5)), K(np.array(-2))], ("float",), exclusive=1, reverse=1)
case("Trilu", [R((3, 5)), K(np.array(1))], FEW, (14,), upper=0)
case("ConstantOfShape", [K([2, 3])], ("int64",), (9,))
case("ConstantOfShape", [D([0, 3])], ("int64",), (9,))

# ---- constants ----
case("ConstantOfShape", [D([2, 3])], F32, (9, 20, 21), runs=[[D([0, 5])], [D([7])], [D(np.zeros(0, np.int64))]])
for kind in ALL:
    value = helper.make_tensor("value", getattr(TensorProto, kind.upper()), [1], [-2.5 if kind in FLOATS else 1])
    case("ConstantOfShape", [D([3, 1, 5])], (kind,), (20,), value=value)
for kind, number in (("int64", -2**40 + 3), ("int64", -1), ("double", 0.1), ("uint64", 2**63 + 1), ("int16", -2)):
    value = helper.make_tensor("value", getattr(TensorProto, kind.upper()), [1], [number])
    case("ConstantOfShape", [D([1027])], (kind,), (9,), value=value)

# ---- outputs whose sizes depend on data ----
SPARSE = [[0, 1, 0, 3], [5, 0, 0, 0], [0, 7, 8, 0]]
FOUND = ("bool", "uint8", "int32", "int64", "float16", "float")
case("NonZero", [V(SPARSE)], FOUND, (9, 13), runs=[[V([[0, 2], [0, 0]])], [V([[0, 0]])], [V([[1], [0]])]])
case("NonZero", [V(SPECIALS)], ("float", "float16"), note="special")
for shape in ((), (0,), (4, 0, 2), (9000,), (2, 1, 3, 1, 2, 1, 2, 2)):
    case("NonZero", [D(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3, "float")], F32)
PICKED = D([True, False, True, True], "bool")
case("Compress", [R((4, 3)), PICKED], [t for t in ALL if t != "bfloat16"], (9, 11), axis=0)
for attrs in ({}, {"axis": 0}, {"axis": -1}, {"axis": 1}):
    case("Compress", [R((4, 5, 4)), PICKED], FEW, **attrs)
case("Compress", [R((2, 3)), D([True, False, False, True, True, True], "bool")], F32, note="all of the elements")
case("Compress", [R((5, 2)), D([False] * 5, "bool")], F32, axis=0, note="nothing")
case("Compress", [R((0, 2)), D(np.zeros(0, bool), "bool")], F32, axis=0)
case("Compress", [R((9000, 16)), D(np.arange(9000) % 7 == 0, "bool")], F32, axis=0)
