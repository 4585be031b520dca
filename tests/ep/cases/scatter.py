# SPDX-License-Identifier: Apache-2.0
"""Operators that gather and scatter by indices."""

import numpy as np

from cases.kit import ALL, F32, FEW, NUMBERS, D, K, R, case

WIDTHS = ("uint8", "float16", "float", "double")  # what is moved is told by its size alone


def indices(shape, limit, seed=0, kind="int64"):
    """Indices below `limit` that are all different along the first axis, some of them negative."""
    generator = np.random.default_rng(seed)
    columns = [generator.permutation(limit)[: shape[0]] for _ in range(int(np.prod(shape[1:])))]
    values = np.stack(columns, axis=1).reshape(shape)
    return D(np.where(generator.random(shape) < 0.3, values - limit, values), kind)


# ---- gather ----
case("GatherElements", [R((3, 4)), D([[0, 2, 1, 0], [2, -1, 0, 1]], "int32")], FEW, (11, 13), axis=0)
case("GatherElements", [R((5, 7, 3)), D(np.arange(2 * 9 * 3).reshape(2, 9, 3) % 7)], WIDTHS, axis=1, note="part of x")
case("GatherElements", [R((4, 6, 5, 2)), D(np.arange(240).reshape(4, 6, 5, 2) % 4 - 2)], WIDTHS, axis=0)
case("GatherElements", [R((2, 1, 3, 1, 2, 1, 2, 4)), D(np.ones((2, 1, 3, 1, 2, 1, 2, 6), np.int64))], FEW, axis=7)
case("GatherElements", [R((2, 33, 96)), D(np.arange(2 * 33 * 260).reshape(2, 33, 260) * 31 % 192 - 96)], WIDTHS, axis=2,
     note="long rows")
case("Gather", [R((2, 33, 96)), D(np.arange(260) * 31 % 192 - 96)], WIDTHS, axis=2, note="long rows")
case("GatherElements", [R((3, 4)), D(np.zeros((0, 4), np.int64))], FEW, axis=0)
case("GatherElements", [R((6,)), D([5, -6, 0])], FEW, runs=[[R((2,)), D([1, -1, 0])]])
case("GatherND", [R((6, 5, 64)), D([[5, 0], [-1, -5], [2, 3]])], WIDTHS, (11, 12, 13), note="long slices")
case("GatherND", [R((2, 3, 4, 5)), D(np.arange(12).reshape(2, 3, 2) % 4)], WIDTHS, (12, 13), batch_dims=1)
case("GatherND", [R((2, 3, 4, 5)), D(np.arange(6).reshape(2, 3, 1) % 4)], FEW, (12, 13), batch_dims=2)
case("GatherND", [R((3, 4, 5)), D(np.array([[2, 3, 4], [0, -1, -5]]))], FEW, note="single elements")

# ---- scatter: indices do not repeat, as the result is not told otherwise ----
case("Scatter", [R((5, 3)), indices((2, 3), 5), R((2, 3))], [t for t in ALL if t != "bfloat16"], (9,), axis=0)
case("Scatter", [R((5, 3)), D([[0, 2]]), R((1, 2))], F32, (9,), axis=1)
for axis, shape in ((0, (4, 6)), (1, (6, 4)), (-1, (2, 3, 5))):
    where = np.moveaxis(indices((shape[axis], *np.delete(shape, axis)), shape[axis]).values, 0, axis)
    case("ScatterElements", [R(shape), D(where), R(shape)], FEW, (11, 13, 16, 18), axis=axis)
case("ScatterElements", [R((7, 9)), indices((3, 9), 7, 1, "int32"), R((3, 9))], WIDTHS, (18,))
case("ScatterElements", [R((2, 3)), D(np.zeros((0, 3), np.int64)), R((0, 3))], FEW, (18,), note="nothing")
RANK_8 = (2, 2, 1, 3, 1, 2, 1, 2)
case("ScatterElements", [R((6, *RANK_8[1:])), indices(RANK_8, 6), R(RANK_8)], FEW, (18,))
case("ScatterND", [R((5, 4, 16)), D([[4, 1], [-5, 0], [2, -1]]), R((3, 16))], WIDTHS, (11, 13, 16, 18))
case("ScatterND", [R((3, 4)), D([[2, 3], [0, -4]]), R((2,))], FEW, (13, 18), note="single elements")
case("ScatterND", [R((6,)), D(np.zeros((0, 1), np.int64)), R((0,))], FEW, (18,), note="nothing")
case("ScatterND", [R((4, 3)), D([[[0], [2]], [[1], [3]]]), R((2, 2, 3))], FEW, (18,), note="indices of rank 3",
     runs=[[R((6, 3)), D([[[5], [2]], [[1], [0]]]), R((2, 2, 3))]])

# ---- scatter with a reduction: many updates meet in one place. The values are multiples of 1/4, whose sums and
# products are exact in every order and type. ----
REDUCED = [t for t in NUMBERS if t != "float16"]  # which the CPU provider leaves out
FOURTHS = {"add": [0.25, -0.5, 1.0, 2.0], "mul": [1.0, -1.0, 2.0, 0.5]}
FOURTHS |= {"max": [0.5, -3.0, 2.0], "min": [0.5, -3.0, 2.0]}


def given(shape, values):
    return D(np.resize(np.asarray(values), shape), "float")


for reduction, values in FOURTHS.items():
    opsets = (16, 18) if reduction in ("add", "mul") else (18,)
    case("ScatterElements", [R((3, 4), 1, 3), D(np.zeros((2, 4), np.int64)), R((2, 4), 1, 3)], REDUCED, opsets,
         axis=0, reduction=reduction)
    thirds = D(np.arange(24).reshape(2, 12) % 3)
    case("ScatterElements", [given((2, 3), [1, 2, 4]), thirds, given((2, 12), values)], F32, opsets,
         axis=1, reduction=reduction, note="exact")
    case("ScatterND", [R((3, 4), 1, 3), D([[1], [1], [-1]]), R((3, 4), 1, 3)], REDUCED, opsets, reduction=reduction)
    case("ScatterND", [given((5, 2), [1, 2]), D(np.arange(20).reshape(20, 1) % 5), given((20, 2), values)], F32, opsets,
         reduction=reduction, note="exact")
case("ScatterND", [D([10, -20, 30], "int8"), D(np.zeros((9, 1), np.int64)), D([15] * 9, "int8")], F32, (18,),
     reduction="add", note="wraps around")
for reduction in ("add", "mul"):
    case("ScatterND", [R((3, 4)), D([[1], [2], [1]]), R((3, 4))], ("bool",), (18,), reduction=reduction)

# ---- one in depth, diagonals, sequences ----
for kind, depth in (("int32", "float"), ("int64", "int64"), ("int64", "int32"), ("float", "float")):
    case("OneHot", [D([0, 3, -1, 7, -9, 2], kind), K([5], depth), R((2,))], F32, (9, 11), note=f"depth in {depth}")
case("OneHot", [D([[1, 2], [0, -3]]), K([3]), R((2,))], ("float", "int64", "int32"), (9, 11), axis=0)
case("OneHot", [D([[1, 2], [0, -3]]), K(4), R((2,))], FEW, (11,), axis=1, runs=[[D([[3], [1], [-2]]), K(4), R((2,))]])
case("OneHot", [D([[1, 2, 9], [0, -3, -12]]), K([11]), R((2,))], ("float", "int64", "uint8"), (11,), note="rows")
case("OneHot", [D(np.zeros((0, 2), np.int64)), K([3]), R((2,))], FEW, (11,), note="empty")
for shape in ((3, 5), (5, 3), (1, 1), (4, 0), (2, 3, 4, 4)):
    for k in (0, 1, -2, 9, -9):
        for upper in (0, 1):
            case("Trilu", [R(shape), K(np.array(k))], ALL if (shape, k) == ((3, 5), 1) else FEW, (14,), upper=upper)
case("Trilu", [R((2, 3, 4))], F32, (14,), note="no k")
for upper in (0, 1):
    case("Trilu", [R((2, 9, 16)), K(np.array(-2))], WIDTHS, (14,), upper=upper, note="runs")
    case("Trilu", [R((2, 5, 13)), K(np.array(3))], WIDTHS, (14,), upper=upper, note="runs over rows")
case("Trilu", [R((2, 3, 4)), K(np.array(-1))], FEW, (1,), domain="com.microsoft", upper=0)
for k in (0, 2, -1, 7):
    case("EyeLike", [R((3, 5))], ALL if k == 2 else F32, (9, 22), k=k)
for number in (1, 6, 7, 11, 13):  # float, int32, int64, double, uint64: what the CPU provider can give
    case("EyeLike", [R((4, 2))], ("float", "int32"), (9, 22), dtype=number, k=-1)
case("EyeLike", [R((0, 3))], F32, (22,))
TURNED = [t for t in ALL if t != "bfloat16"]
case("ReverseSequence", [R((5, 3, 4)), D([5, 2, 1])], TURNED, (10,))
case("ReverseSequence", [R((3, 5)), D([0, 3, 5])], WIDTHS, (10,), batch_axis=0, time_axis=1)
case("ReverseSequence", [R((2, 6, 2, 4)), D([6, 4])], WIDTHS, (10,), batch_axis=0, time_axis=1)
case("ReverseSequence", [R((0, 2)), D([0, 0])], F32, (10,))
