# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators that came late or that ONNX has given up, and those on bits."""

from cases.kit import F32, FLOATS, SIGNED, UNSIGNED, D, P, R, V, case, unary

IEEE = ("float", "float16", "double")
# The CPU provider puts some doubles through float; tests/op/activation_test.c has these.
SHORT = ("float", "float16")
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 30.0, -30.0, float("inf"), -float("inf"), float("nan")]

# ---- trigonometric and hyperbolic; the ends of their domains and beyond ----
for name in ("Asin", "Acos", "Atanh"):
    unary(name, source=lambda shape: R(shape, -0.95, 0.95), opsets=(9, 22), specials=False)
for name in ("Atan", "Asinh", "Sinh", "Cosh"):
    unary(name, opsets=(9, 22), specials=False)
unary("Acosh", source=lambda shape: R(shape, 1, 9), opsets=(9, 22), specials=False)
unary("Tan", source=lambda shape: R(shape, -1.4, 1.4), opsets=(7, 22), specials=False)
for name in ("Asin", "Acos", "Atan", "Acosh", "Atanh", "Asinh"):
    case(name, [V(EDGES)], ("float", "double"), (9,), note="edges")

# ---- activations ----
unary("Celu", types=F32, opsets=(12,), specials=False, alpha=0.7)
case("Celu", [V([-1e4, 1e4, 0.0, -0.0, 88.0, -88.0])], F32, (12,), alpha=2.0, note="far out")
unary("Mish", opsets=(18, 22), specials=False)
unary("Swish", opsets=(24,), specials=False)
unary("Swish", opsets=(24,), specials=False, alpha=-0.5)
unary("ThresholdedRelu", types=IEEE, opsets=(1, 10, 22), specials=False, alpha=0.4)
unary("Shrink", types=SHORT, opsets=(9,), specials=False)
unary("Shrink", types=SHORT, opsets=(9,), lambd=1.5, bias=0.5)
case("Shrink", [R((3, 7), -9, 9)], SIGNED, (9,), lambd=2.5, bias=1.0)
case("Shrink", [R((3, 7), 0, 9)], UNSIGNED, (9,), lambd=3.5, bias=2.0)
for name in ("Affine", "ScaledTanh", "ParametricSoftplus"):
    unary(name, types=IEEE, opsets=(1,), specials=False, alpha=1.25, beta=0.75)
unary("Scale", types=F32, opsets=(1,), specials=False, scale=-1.5)
unary("Gelu", opsets=(20,), approximate="none", specials=False)
case("Gelu", [V([-40.0, -5.0, -0.0, 0.0, 5.0, 40.0])], IEEE, (20,), note="far out")
case("Gelu", [V([-40.0, -5.0, -0.0, 0.0, 5.0, 40.0])], SHORT, (20,), approximate="tanh", note="far out")

# ---- ONNX Runtime's own; the CPU provider has them in float ----
MS = {"opsets": (1,), "domain": "com.microsoft"}
for shape in ((3, 5), (2, 3, 64), (0, 4), (7,)):
    kinds = FLOATS if shape == (3, 5) else F32
    short = [t for t in kinds if t != "double"]
    case("Gelu", [R(shape)], kinds, **MS)
    case("QuickGelu", [R(shape)], kinds, **MS)
    case("QuickGelu", [R(shape)], F32, alpha=0.9, **MS)
    case("FastGelu", [R(shape)], short, **MS)
    case("FastGelu", [R(shape), R(shape[-1:])], short, note="bias", **MS)
    case("BiasGelu", [R(shape), R(shape[-1:])], kinds, **MS)

# ---- any number of inputs of one shape, as the first versions have them ----
for name in ("Max", "Min", "Sum", "Mean"):
    case(name, [R((2, 3)), R((2, 3)), R((2, 3))], IEEE, (6,))

# ---- bits ----
for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    case(name, [D([-1, 0, 85, -128, 127, 3], "int8"), D([[1], [-86]], "int8")], F32, (18,), note="signs")
case("BitwiseNot", [D([-1, 0, 85, -(2**63), 2**63 - 1])], F32, (18,), note="ends")
for direction in ("LEFT", "RIGHT"):
    for kind, bits in (("uint8", 8), ("uint32", 32), ("uint64", 64)):
        ends = D([1, 3, 2**bits - 1, 2 ** (bits - 1)], kind)
        case("BitShift", [ends, D([bits - 1, 1, 4, 0], kind)], F32, (11,), direction=direction, note=kind)
    case("BitShift", [R((2, 3, 1)), P((3, 4), 1, 5)], ("uint8", "uint32", "uint64"), (11,), direction=direction)
