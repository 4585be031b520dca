# SPDX-License-Identifier: Apache-2.0
"""Unique in every form, and determinants."""

from cases.kit import ALL, F32, INF, R, V, case

UNIQUE = tuple(t for t in ALL if t != "bfloat16")
KNOWN = ("float", "double", "int64", "int8", "bool")
for ordered in (0, 1):
    case("Unique", [R((3, 4), -3, 3)], UNIQUE, (11,), outputs=4, sorted=ordered)
    case("Unique", [R((5000,), -40, 40)], KNOWN, (11,), outputs=4, sorted=ordered, note="several tiles")
    case("Unique", [V([0.0, -0.0, INF, 1.0, -INF, 1.0, -0.0])], ("float", "double"), (11,), outputs=4, sorted=ordered)
    for axis in (0, 1, -1):
        case("Unique", [R((6, 5, 3), 0, 1)], ("int64", "int8"), (11,), outputs=4, sorted=ordered, axis=axis)
    case("Unique", [V([[1, 2], [0, 1], [1, 2], [0, 0], [0, 1]])], KNOWN[:4], (11,), outputs=4, sorted=ordered, axis=0)
    case("Unique", [R((1100, 2), 0, 5)], ("int64",), (11,), outputs=4, sorted=ordered, axis=0, note="a long network")
    case("Unique", [R((1, 70), 0, 5)], ("int64",), (11,), outputs=4, sorted=ordered, axis=1, note="single elements")
case("Unique", [R((7,), -2, 2)], ("int64",), (11,), runs=[[R((50,), -9, 9)], [R((1,))]])
case("Unique", [R((0,))], F32, (11,), outputs=4)

for shape in ((3, 3), (1, 1), (2, 5, 5), (0, 3, 3), (2, 1, 4, 4)):
    case("Det", [R(shape)], ("float", "double", "float16"), (11, 22), slack=8)
case("Det", [R((20, 20))], F32, slack=64)
case("Det", [V([[0.0, 1.0], [1.0, 0.0]])], F32, note="swapped")
case("Det", [V([[1.0, 2.0], [2.0, 4.0]])], F32, note="singular")
