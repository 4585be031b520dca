# SPDX-License-Identifier: Apache-2.0
"""Normalisation: rows, channels, groups; with a second input added; by a norm."""

from cases.kit import F32, FLOATS, NEWEST, P, R, V, case

NARROW = ("float", "float16", "bfloat16")
MS = "com.microsoft"

# ---- LayerNormalization and its kin ----
SHAPES = [((3, 4, 5), -1), ((2, 3, 4, 5), 2), ((3, 1040), -1), ((5, 96), -1), ((2, 20000), 1), ((300, 7), 1)]
SHAPES += [((64,), 0), ((3, 4, 5), 0)]
for shape, axis in SHAPES:
    tail = shape[axis:] if axis else shape
    types = FLOATS if axis == 2 else ("float", "float16")
    case("LayerNormalization", [R(shape), R(tail), R(tail)], types, (17,), slack=8, axis=axis)
    case("LayerNormalization", [R(shape), R(tail)], F32, (1, 17), outputs=3, slack=8, axis=axis, note="statistics")
    case("RMSNormalization", [R(shape), R(tail)], FLOATS, (23,), slack=8, axis=axis)
    case("SimplifiedLayerNormalization", [R(shape), R(tail)], ("float", "float16", "double"), (1,), slack=8, axis=axis)
case("LayerNormalization", [R((2, 3, 4)), R((4,)), R((1, 4))], F32, (17,), slack=4, axis=1, note="repeated scale")
case("LayerNormalization", [R((0, 4)), R((4,))], F32, (17,))
case("LayerNormalization", [R((3, 33), 999, 1001), R((33,)), R((33,))], F32, (17,), slack=200, note="far from zero")
case("LayerNormalization", [R((2, 33001), 999, 1001), R((33001,)), R((33001,))], F32, (17,), slack=200,
     note="far from zero, several blocks a row")
for columns, kind in ((768, "float"), (1536, "float16"), (3000, "float")):
    case("LayerNormalization", [R((700, columns)), R((columns,)), R((columns,))], (kind,), (17,), slack=8,
         note="many rows, each of several warps")
for rows, columns in ((700, 37), (70, 513), (1200, 1001), (40, 5003), (3, 12289)):
    given = [R((rows, columns)), R((columns,)), R((columns,))]
    case("LayerNormalization", given, ("float", "float16"), (17,), slack=8, note="rows that begin anywhere")
    case("LayerNormalization", given, F32, (17,), outputs=3, slack=8, note="statistics of rows that begin anywhere")
    case("RMSNormalization", given[:2], NARROW, (23,), slack=8, note="rows that begin anywhere")
for name, inputs in (("SkipLayerNormalization", 4), ("SkipSimplifiedLayerNormalization", 3)):
    for hidden in (64, 100, 1027):
        sizes = [(2, 5, hidden), (2, 5, hidden), *[(hidden,)] * 3]
        for count in range(3, inputs + 2):
            case(name, [R(s) for s in sizes[:count]], NARROW, (1,), slack=8, domain=MS)
    case(name, [R((2, 5, 64)), R((1, 5, 64)), R((64,))], F32, (1,), slack=8, domain=MS, note="skip is repeated")
    case(name, [R((2, 5, 64)), R((5, 64)), R((64,))], F32, (1,), slack=8, domain=MS, note="skip is repeated")
    case(name, [R((10, 64)), R((10, 64)), R((64,))], F32, (1,), slack=8, domain=MS, epsilon=0.1)

# ---- channels and groups ----
for shape in ((2, 3, 4, 5), (1, 3, 7), (1, 3, 150, 160), (3, 3, 2, 2, 2), (2, 3, 70, 70), (5, 3, 7, 7), (2, 3, 31, 31)):
    case("InstanceNormalization", [R(shape), R((3,)), R((3,))], FLOATS, (6, 22) if len(shape) == 4 else (6,), slack=8)
case("InstanceNormalization", [R((0, 3, 4)), R((3,)), R((3,))], F32)
for shape in ((2, 6, 4, 5), (1, 6, 7), (2, 6)):
    case("GroupNormalization", [R(shape), R((6,)), R((6,))], NARROW, (21,), slack=8, num_groups=3)
    case("GroupNormalization", [R(shape), R((6,)), R((6,))], ("double",), (21,), slack=8, num_groups=3, stash_type=11)
    case("GroupNormalization", [R(shape), R((6,)), R((6,))], F32, (21,), slack=8, num_groups=6, epsilon=0.01)
case("GroupNormalization", [R((2, 6, 4, 5)), R((3,)), R((3,))], F32, (18,), slack=8, num_groups=3)
for axes in ([0, 2, 3], [1], [2, 3], [0], [0, 1, 2, 3], [-1], [0, 3]):
    types = FLOATS if axes == [0, 2, 3] else F32
    case("MeanVarianceNormalization", [R((2, 3, 4, 5))], types, (9, 13), slack=8, axes=axes)
case("MeanVarianceNormalization", [R((2, 3, 4, 5))], F32, slack=8)

# ---- LpNormalization ----
for p in (1, 2):
    for axis in (0, 1, -1):
        case("LpNormalization", [R((3, 4, 5))], FLOATS, (1, 22), slack=4, p=p, axis=axis)
    case("LpNormalization", [R((2, 3000))], ("float", "double"), (1,), slack=8, p=p)
    case("LpNormalization", [V([[0.0, 0.0], [3.0, -4.0]])], F32, (1, 22), p=p, note="zeros")
    for shape in ((5, 64), (3, 1024), (700, 256), (4, 1001), (2, 9, 33), (2, 20000), (600, 8)):
        case("LpNormalization", [R(shape)], FLOATS, (NEWEST,), slack=8, p=p, note="lanes")
    for value in (10.0 ** (-36 / p), 10.0 ** (36 / p), float("inf"), float("nan")):
        row = [value, -value / 2, 0.0, value / 4]
        case("LpNormalization", [V([row, [1.0, 2.0, 3.0, 4.0]])], ("float", "double"), (NEWEST,), slack=4, p=p,
             note="far")
case("LpNormalization", [P((600, 3, 40))], F32, (1, NEWEST), axis=1, slack=4, note="lanes")

# ---- Softmax in every way that lanes share rows ----
for name in ("Softmax", "LogSoftmax"):
    for columns in (1, 3, 16, 40, 100, 128, 600, 1024, 4100, 40000):
        case(name, [R((3, columns))], ("float", "float16", "double"), slack=4)
    case(name, [R((40, 5, 60))], F32, axis=1, slack=4, note="rows side by side")
    case(name, [R((700, 8))], F32, slack=4, note="many short rows")
    for columns in (400, 1000):
        case(name, [R((700, columns))], F32, slack=4, note="many rows, each of several warps")
