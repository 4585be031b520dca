# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators, choice, conversion of types."""

import numpy as np

from cases.kit import (
    ALL,
    F32,
    FEW,
    FLOATS,
    INF,
    NAN,
    NEWEST,
    NUMBERS,
    PAIRS,
    SIGNED,
    SPECIALS,
    UNSIGNED,
    D,
    K,
    P,
    R,
    V,
    binary,
    case,
    unary,
)

# ---- element-wise, one input ----
for name in ("Sin", "Cos", "Tanh", "Erf", "Floor", "Ceil", "Round", "Sign", "Softsign", "Softplus", "HardSwish"):
    unary(name, types=NUMBERS if name == "Sign" else FLOATS, specials=name not in ("Sin", "Cos", "Sign"))
unary("Exp", opsets=(6, NEWEST))
unary("Sqrt", opsets=(6, NEWEST))
unary("Log", source=P)
unary("Reciprocal", opsets=(6, NEWEST))
unary("Sigmoid", opsets=(6, NEWEST))
unary("Abs", types=NUMBERS, opsets=(6, NEWEST))
unary("Neg", types=FLOATS + SIGNED, opsets=(6, NEWEST))
unary("Relu", types=FLOATS + SIGNED, opsets=(6, 13, NEWEST))
unary("HardSigmoid", opsets=(6, NEWEST))
unary("HardSigmoid", specials=False, alpha=0.3, beta=0.4)
unary("LeakyRelu", opsets=(6, NEWEST), alpha=0.2)
unary("Elu", specials=False, alpha=1.5)
unary("Selu", specials=False)
unary("Celu", types=F32, opsets=(12,), specials=False, alpha=1.5)
unary("ThresholdedRelu", specials=False, alpha=0.7)
for name in ("Acos", "Asin", "Atan", "Tan", "Sinh", "Cosh", "Asinh", "Atanh"):
    unary(name, source=lambda shape: R(shape, -0.9, 0.9), types=("float", "double", "float16"), specials=False)
unary("Gelu", opsets=(20,), specials=False)
unary("Gelu", types=FLOATS[:3], opsets=(20,), specials=False, approximate="tanh")
unary("Mish", opsets=(18,), specials=False)
unary("Identity", types=ALL, opsets=(1, 13, NEWEST))
case("IsNaN", [V(SPECIALS)], FLOATS, (9, 13, NEWEST))
case("IsInf", [V(SPECIALS)], FLOATS, (10, 20))
case("IsInf", [V(SPECIALS)], FLOATS, (20,), detect_negative=0)
case("IsInf", [V(SPECIALS)], FLOATS, (20,), detect_positive=0)
unary("Not", types=("bool",), specials=False)
for name in ("BitwiseNot",):
    unary(name, types=SIGNED + UNSIGNED, specials=False)

# ---- element-wise, two inputs ----
for name in ("Add", "Sub", "Mul"):
    binary(name, opsets=(7, 13, NEWEST))
binary("Div", right=P, opsets=(7, 13, NEWEST))
case("Div", [V([7, -7, 7, -7, 6]), V([2, 2, -2, -2, 3])], SIGNED + ("float",), note="truncates")
case("Div", [V([1.0, -1.0, 0.0, INF]), V([0.0, 0.0, 0.0, INF])], ("float", "double", "float16"))
binary("Mod", left=P, right=P, types=SIGNED + UNSIGNED, opsets=(10, 13))
case("Mod", [V([7, -7, 7, -7, 6]), V([3, 3, -3, -3, 3])], SIGNED, note="sign of the divisor")
case("Mod", [V([7, -7, 7, -7, 6]), V([3, 3, -3, -3, 3])], SIGNED + ("float", "double"), fmod=1)
for a, b in PAIRS:
    if np.broadcast_shapes(a, b) == a:  # the slope is broadcast to the input, not the input to the slope
        case("PRelu", [R(a), R(b)], FLOATS if a == (33, 65) else F32, (9, 16))
case("PRelu", [R((2, 3, 4, 5)), R((3, 1, 1))], (*FLOATS, "int32", "int64", "uint32", "uint64"), (7, 9, 16))
for name in ("And", "Or", "Xor"):
    binary(name, types=("bool",))
binary("Equal", types=ALL, opsets=(7, 11, 13, 19))
for name in ("Less", "Greater"):
    binary(name, types=NUMBERS, opsets=(7, 9, 13))
for name in ("LessOrEqual", "GreaterOrEqual"):
    binary(name, types=NUMBERS, opsets=(12, 16))
for name in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
    case(name, [V(SPECIALS), V([1.0])], ("float", "double", "float16"), note="special")
for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    binary(name, types=SIGNED + UNSIGNED, opsets=(18,))
for name in ("Max", "Min"):
    binary(name, types=NUMBERS, opsets=(8, 12, 13))
    case(name, [R((2, 3))], FEW, (8, 13), note="one input")
    case(name, [R((2, 1, 4)), R((3, 1)), R((4,)), R(())], FEW, (8, 13), note="four inputs")
    case(name, [V([NAN, 1, NAN, INF, -INF]), V([1, NAN, NAN, 2, 2])], ("float", "double", "float16"), note="NaN stays")
for name in ("Sum", "Mean"):
    case(name, [R((2, 3))], FLOATS, (8, 13), note="one input")
    case(name, [R((2, 1, 4)), R((3, 1)), R((4,)), R(())], FLOATS, (8, 13), note="four inputs")
binary("Pow", left=P, right=lambda shape: R(shape, 0, 3), types=("float", "float16", "double", "int32", "int64"),
       opsets=(7, 12, 13, 15))
case("Pow", [R((3, 4)), K(np.array(2.0), "float")], FLOATS, (12, 15), note="square")
case("Pow", [P((3, 4)), K(np.array([0.5, -1.0, 3.0, 1.5]), "float")], FLOATS, (15,))
case("Pow", [R((3, 4)), D([2, 3, 0, 1], "int64")], ("float", "double", "int32"), (15,), note="integer exponent")
# One exponent for all, of packs and what is left behind them.
BASES = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 2.0, -8.0, 0.25, -0.3] * 7
for exponent in (2.0, 3.0, 0.5, -1.0, 0.0, 1.0, 1.7, -2.5, -3.0, 5.0, INF, -INF, NAN):
    case("Pow", [V(BASES), K(np.array(exponent), "float")], FLOATS, (15,), note=f"by {exponent}")
for exponent in (0, 1, 2, 3, -1, -2):
    case("Pow", [V(BASES), K(np.array([exponent]), "int64")], FLOATS, (15,), note=f"by {exponent}")
case("Pow", [V([0.0, -0.0, INF, -INF, NAN, 2.0, -8.0]), V([0.0, -1.0, 0.0, 3.0, 0.0, -2.0, 3.0])], ("float", "double"))

# ---- choice and range ----
case("Where", [D([[True], [False]], "bool"), R((2, 3)), R((3,))], ALL, (9, 16))
case("Where", [D(True, "bool"), R((2, 3)), R(())], FEW, (16,))
case("Where", [D(np.zeros((0, 3), bool), "bool"), R((1, 3)), R((3,))], FEW, (16,))
case("Where", [D([[[True]], [[False]]], "bool"), R((1, 3, 1)), R((1, 1, 4))], FEW, (16,), note="three ways")
case("Where", [D([[[[[[[[True, False]]]]]]]], "bool"), R((2, 1, 1, 1, 1, 1, 3, 1)), R((2,))], FEW, (16,))
case("Clip", [R((3, 5))], ("float",), (6,), min=-1.0, max=0.5)
case("Clip", [R((3, 5))], ("float",), (6,))
for bounds in ([V(-1.0), V(2.0)], [V(-1.0)], [None, V(1.0)], []):
    case("Clip", [R((3, 5)), *bounds], FLOATS + SIGNED, (11, 12, 13))
case("Clip", [P((3, 5), 0, 9), V(2), V(5)], UNSIGNED, (12, 13))
case("Clip", [V([NAN, INF, -INF, 0.0]), V(-1.0), V(1.0)], ("float", "double", "float16"))
case("Clip", [R((0,)), V(-1.0), V(1.0)], FEW)
case("Clip", [R((4,)), V(1.0), V(-1.0)], ("float",), note="bounds crossed")
for start, limit, delta in ((0, 5, 1), (2, 11, 3), (10, 0, -2), (3, 3, 1), (5, 0, 1), (0, 4000, 1)):
    case("Range", [V(start), V(limit), V(delta)], ("int64", "int32", "float", "double", "int16"), (11,))
case("Range", [V(0.5), V(2.0), V(0.25)], ("float", "double"), (11,))

# ---- types ----
CAST_TYPES = tuple(name for name in ALL if name != "bfloat16")
for target in (*CAST_TYPES, "bfloat16"):
    opsets = (9, 13, 19) if target != "bfloat16" else (13, 19)
    case("Cast", [P((3, 5), 0, 9)], (*CAST_TYPES, "bfloat16"), opsets, to=target)
    if target in ("int32", "int64", "int8", "int16", "float", "float16", "double", "bool", "bfloat16"):
        case("Cast", [R((2, 4, 1))], ("float", "double", "float16", "int32", "int64"), to=target, note="signed")
    case("Cast", [R((0, 3))], F32, to=target, note="empty")
    case("Cast", [R(())], F32, to=target, note="scalar") if target not in UNSIGNED else None
case("Cast", [V([NAN, INF, -INF, 1e-8, 65504.0, 65519.9, 65520.0, 5.96e-8, 2.98e-8, 6.1e-5])], ("float", "double"),
     to="float16", note="edges of half")
case("Cast", [V([NAN, INF, -INF, 1.00390625, 1.01171875, 3.3895e38, 1e-40, -0.0])], ("float", "double"), to="bfloat16",
     note="edges of bfloat16")
case("Cast", [V([2.9, -2.9, 0.5, -0.5, 100.7])], ("float", "double", "float16"), to="int32", note="towards zero")
case("Cast", [V([0.0, -0.0, NAN, 0.1, INF])], ("float", "double", "float16"), to="bool", note="zero or not")
case("CastLike", [R((2, 3)), D([1], "int32")], ("float", "double", "int64"), (19,))
