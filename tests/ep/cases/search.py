# SPDX-License-Identifier: Apache-2.0
"""What searches, sorts and scans along an axis."""

from cases.kit import F32, FLOATS, INF, NAN, NEWEST, NUMBERS, K, R, V, case

# ---- where the best element is ----
BITS = ("double", "float16", "int32", "int64", "int8", "uint8")
for name in ("ArgMax", "ArgMin"):
    for axis in (0, 1, -1):
        case(name, [R((3, 4, 5), -40, 40)], NUMBERS if axis == 1 else F32, (1, 11, 12, 13), axis=axis)
        case(name, [R((3, 4, 5), -2, 2)], ("int32",), (11, 13), axis=axis, keepdims=0, note="ties")
        case(name, [R((3, 4, 5), -2, 2)], ("int32", "float"), (12, 13), axis=axis, select_last_index=1, note="ties")
    case(name, [R((2, 70001))], BITS, axis=1, note="several blocks a row")
    case(name, [R((1, 70001, 2), -2, 2)], ("int32",), axis=1, select_last_index=1, note="last, several blocks")
    for last in (0, 1):
        case(name, [R((300, 37), -9, 9)], BITS, axis=1, select_last_index=last, note="part of a warp a row")
        case(name, [R((1100, 1003), -9, 9)], ("float", "float16", "int8"), axis=1, select_last_index=last,
             note="a warp a row, which begins anywhere")
        case(name, [R((3, 70001), -9, 9)], ("float", "float16", "int8"), axis=1, select_last_index=last,
             note="several blocks a row, ties")
    case(name, [R((2, 1, 2, 1, 3, 1, 2, 4))], F32, axis=4)
    case(name, [R((40, 3, 50))], F32, axis=1, note="lanes")
    case(name, [R((0, 3))], F32, axis=1)
    odd = ([1, NAN, 3, 2], [NAN, 1, 3, 2], [3, NAN, 1, NAN], [NAN] * 4, [-INF, -INF, NAN, -INF], [0.0, -0.0] * 2)
    for values in odd:
        case(name, [V([values])], ("float", "double", "float16"), axis=1, note="special")
        case(name, [V([values])], F32, axis=1, select_last_index=1, note="special, last")

# ---- Hardmax ----
for axis in (0, 1, -1):
    case("Hardmax", [R((3, 4, 5))], FLOATS, (13,), axis=axis)
    case("Hardmax", [R((3, 4, 5))], F32, (1, 11), axis=axis % 3, note="flattens")
case("Hardmax", [V([[1.0, 2.0, 2.0], [3.0, 3.0, 0.0]])], F32, note="ties")
case("Hardmax", [R((0, 3))], F32)

# ---- the first k ----
for largest in (0, 1):
    for axis in (-1, 0, 1):
        case("TopK", [R((5, 4, 7), -40, 40), K([2])], NUMBERS, (11, NEWEST), outputs=2, axis=axis, largest=largest)
    case("TopK", [R((3, 50), -3, 3), K([50])], ("int32", "int64", "int8", "uint8"), (11, NEWEST), outputs=2,
         largest=largest, note="ties, whole axis")
    case("TopK", [R((2, 3000), -100, 100), K([7])], ("float", "double", "int64", "int8"), (11,), outputs=2,
         largest=largest, note="selected")
    case("TopK", [R((2, 3000), -100, 100), K([2500])], ("float", "int32", "int64", "uint8", "int16"), (11,), outputs=2,
         largest=largest, note="selected and sorted")
    case("TopK", [R((2, 5000, 2), -100, 100), K([5000])], ("float", "int32"), (11,), outputs=2, axis=1,
         largest=largest, note="sorted whole")
    for k in (6000, 40001):
        case("TopK", [R((2, 40001), -100, 100), K([k])], ("float", "float16", "double", "uint8", "int64"), (11,),
             outputs=2, largest=largest, note="sorted by digits")
    case("TopK", [V([[INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.0]]), K([7])], ("float", "double"), (11,), outputs=2,
         largest=largest, note="special")
    for k, columns in ((1, 300), (3, 4099), (10, 20001), (16, 1000), (64, 5001), (120, 9001), (250, 5000)):
        case("TopK", [R((3, columns), -100, 100), K([k])], ("float", "float16", "double", "int8", "int64"), (11,),
             outputs=2, largest=largest, note="few of many")
    for k, columns in ((1000, 40001), (600, 2049), (2500, 20000)):
        case("TopK", [R((2, columns), -100, 100), K([k])], ("float", "float16", "double", "int8", "int64"), (11,),
             outputs=2, largest=largest, note="many of many")
    case("TopK", [V([([3.0, 1.0, -INF, INF, -0.0, 0.0, 2.0] * 60), ([-INF] * 420), ([INF] * 420)]), K([100])],
         ("float", "double", "float16"), (11,), outputs=2, largest=largest, note="special, few of many")
case("TopK", [R((3, 40000)), K([5])], F32, (11,), outputs=2, note="several blocks a row")
case("TopK", [R((3, 0, 2)), K([0])], F32, (11,), outputs=2, axis=1)
case("TopK", [R((3, 4)), K([0])], F32, (11,), outputs=2)
for axis in (0, 1, -1):
    case("TopK", [R((3, 4, 5))], FLOATS, (1,), outputs=2, axis=axis, k=3)
    case("TopK", [R((3, 4, 5)), K([2])], FLOATS, (10,), outputs=2, axis=axis)

# ---- running sums and products ----
SCANNED = (*FLOATS, "int32", "int64", "uint32", "uint64")
for exclusive in (0, 1):
    for reverse in (0, 1):
        both = {"exclusive": exclusive, "reverse": reverse}
        for axis in (0, 1, -1):
            case("CumSum", [R((3, 4, 5)), K(axis)], SCANNED, (11, 14), slack=4, **both)
        case("CumSum", [R((2, 1100)), K([1], "int32")], SCANNED, (14,), slack=8, **both)
        case("CumSum", [R((1, 40001)), K([1])], ("float", "double", "int64"), (14,), slack=64, note="pieces", **both)
        case("CumSum", [R((3, 1104)), K([1])], ("float", "float16", "double", "int32"), (14,), slack=16, note="packs",
             **both)
        case("CumSum", [R((2, 32768)), K([1])], ("float", "int64"), (14,), slack=64, note="pieces of packs", **both)
        case("CumSum", [R((13, 3000)), K([0])], ("float", "int32"), (14,), slack=4, note="a lane a row", **both)
        case("CumSum", [R((1, 20001, 2)), K([1])], ("double", "int32"), (14,), slack=64, note="pieces apart", **both)
        case("CumProd", [R((3, 4, 5), 0.8, 1.2), K(1)], SCANNED, (26,), slack=4, **both)
        case("CumProd", [R((2, 1100), 0.99, 1.01), K(-1)], ("float", "double"), (26,), slack=64, **both)
case("CumSum", [R((0, 3)), K(1)], F32)
case("CumSum", [R((6000, 20)), K(0)], F32, slack=64, note="a lane a column")
