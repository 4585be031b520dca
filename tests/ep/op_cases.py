# SPDX-License-Identifier: Apache-2.0
"""One row a case: an operator, its inputs and attributes, the element types and opsets it is tried with.

Inputs: R random, P random and positive, V given values (all of the row's element type); D a graph input and K a
constant of a fixed type (int64 unless said); None an input left out. The newest opset of a row is tried with every
type that is registered, older ones with the first. `runs` are further input sets for the same session.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper

FLOATS = ("float", "float16", "bfloat16", "double")
SIGNED = ("int32", "int64", "int8", "int16")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
NUMBERS = FLOATS + SIGNED + UNSIGNED
ALL = NUMBERS + ("bool",)
F32 = ("float",)
FEW = ("float", "int64")
NEWEST = 21
NAN, INF = float("nan"), float("inf")
SPECIALS = [NAN, INF, -INF, -0.0, 0.0, 1.0, -1.0, 0.5, -2.5, 1e-40, 60000.0, -60000.0]


@dataclass(frozen=True)
class R:
    shape: tuple
    low: float = -3
    high: float = 3


@dataclass(frozen=True)
class P:
    shape: tuple
    low: float = 0.5
    high: float = 4


@dataclass(frozen=True)
class V:
    values: object
    shape: tuple = None


@dataclass(frozen=True)
class K:
    values: object
    type: str = "int64"


@dataclass(frozen=True)
class D:
    values: object
    type: str = "int64"


@dataclass
class Case:
    op: str
    inputs: list
    types: tuple = FLOATS
    attrs: dict = field(default_factory=dict)
    opsets: tuple = (NEWEST,)
    outputs: int = 1
    runs: list = field(default_factory=list)
    slack: float = 1.0  # factor on the tolerance, for long sums
    domain: str = ""
    note: str = ""

    def input_sets(self):
        return [self.inputs, *self.runs]


CASES = []


def case(op, inputs, types=FLOATS, opsets=(NEWEST,), outputs=1, runs=(), slack=1.0, domain="", note="", **attrs):
    CASES.append(Case(op, list(inputs), tuple(types), attrs, tuple(opsets), outputs, list(runs), slack, domain, note))


# Shapes of two operands: equal, scalars, trailing, inner, both ways, empty, rank 8, odd and long.
PAIRS = [
    ((2, 3), (2, 3)),
    ((), ()),
    ((), (3,)),
    ((4,), ()),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (3, 1)),
    ((1, 3, 1, 5), (2, 1, 4, 1)),
    ((0, 3), (1, 3)),
    ((2, 0), ()),
    ((5, 1), (1, 7)),
    ((2, 1, 2, 1, 2, 1, 2, 3), (1, 2, 1, 2, 1, 2, 1, 1)),
    ((2, 3, 2, 1, 1, 2, 1, 2), (2, 3, 2, 1, 1, 2, 1, 2)),
    ((1027,), (1027,)),
    ((33, 65), (65,)),
]
SHAPES = [(2, 3), (), (0,), (4, 0, 2), (1027,), (2, 1, 3, 1, 2, 1, 2, 2)]


def binary(op, left=R, right=R, types=NUMBERS, opsets=(NEWEST,)):
    """Every type on one broadcast in both directions, the other shapes on few types."""
    case(op, [left((2, 3, 1)), right((3, 4))], types, opsets)
    for a, b in PAIRS:
        case(op, [left(a), right(b)], [t for t in FEW if t in types] or types[:1])
    again = [[left((5, 3)), right((3,))], [left((1, 3)), right((1,))], [left((2, 3)), right((3,))]]
    case(op, [left((2, 3)), right((3,))], types[:1], runs=again, note="shapes change")


def unary(op, source=R, types=FLOATS, opsets=(NEWEST,), specials=True, **attrs):
    case(op, [source((3, 5))], types, opsets, runs=[[source((7, 2))], [source((3, 5))]], **attrs)
    for shape in SHAPES:
        case(op, [source(shape)], types[:1], **attrs)
    if specials:
        case(op, [V(SPECIALS)], [t for t in types if t in ("float", "float16", "double")], note="special", **attrs)


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
unary("Gelu", opsets=(20,), specials=False, approximate="tanh")
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

# ---- reductions ----
REDUCED_BY = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
REDUCED = ("float", "float16", "bfloat16", "double", "int32", "int64", "int8", "uint8")
for name in map("Reduce{}".format, REDUCED_BY):
    source = {"ReduceLogSum": P, "ReduceProd": lambda shape: R(shape, 0.9, 1.1)}.get(name, R)
    old = 11 if name == "ReduceSum" else 13
    new = (13, NEWEST) if name == "ReduceSum" else (18, NEWEST)
    for axes, keep in (([1], 1), ([-1], 0), ([0], 1), ([0, 2], 0), ([0, 1, 2], 1), ([1, 2], 1)):
        case(name, [source((3, 4, 5)), K(axes)], REDUCED if axes == [1] else FEW, new, keepdims=keep, slack=2)
        case(name, [source((3, 4, 5))], F32, (1, old), axes=axes, keepdims=keep)
    case(name, [source((3, 4, 5))], FEW, (old, *new), note="all")
    case(name, [source((3, 4)), K(np.zeros(0, np.int64))], FEW, new, noop_with_empty_axes=1)
    case(name, [source((2, 3, 2, 1, 2, 1, 2, 2)), K([1, 3, 4, 7])], F32, new)
    long, short = [source((4, 1025)), K([1])], [source((2, 33)), K([1])]
    case(name, long, F32, new, slack=8, runs=[short, long])
    case(name, [source((1025, 4)), K([0])], F32, new, slack=8)
    case(name, [source(())], F32, new, note="scalar")
for name in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
    case(name, [R((3, 0)), K([0])], F32, note="empty kept")
case("ReduceSum", [R((3, 0)), K([1])], F32, note="empty sum")
case("ReduceProd", [R((3, 0)), K([1])], F32, note="empty product")
case("ReduceMax", [V([[NAN, 1], [2, 3]]), K([1])], F32, note="NaN")
for name in ("Softmax", "LogSoftmax"):
    for axis in (-1, 0, 1):
        case(name, [R((3, 4, 5))], FLOATS if axis == -1 else F32, (13,), axis=axis, slack=2)
        case(name, [R((3, 4, 5))], F32, (1, 11), axis=axis % 3, slack=2, note="flattens")
    case(name, [R((2, 1025))], ("float", "float16"), slack=2, runs=[[R((3, 7))], [R((2, 1025))]])
    case(name, [V([[1000.0, 1001.0], [-1000.0, -1000.0]])], ("float", "double"), note="large")
    case(name, [R((0, 3))], F32)
    case(name, [V([[-INF, 0.0, 1.0]])], F32, note="masked")
case("LayerNormalization", [R((3, 4, 5)), R((5,)), R((5,))], FLOATS, (17,), slack=4)
case("LayerNormalization", [R((3, 4, 5)), R((5,))], F32, (17,), slack=4, note="no bias")
case("LayerNormalization", [R((3, 4, 5)), R((4, 5)), R((4, 5))], F32, (17,), axis=1, epsilon=1e-3, slack=4)
case("LayerNormalization", [R((3, 4, 5)), R((5,)), R((5,))], F32, (17,), outputs=3, slack=4, note="mean and deviation")
case("LayerNormalization", [R((2, 1030)), R((1030,)), R((1030,))], ("float", "float16"), (17,), slack=8)

# ---- matrix products ----
for a, b in (
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 4), (2, 4, 5)),
    ((2, 4), (3, 2, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((65, 33), (33, 70)),
    ((1, 128), (128, 1)),
    ((2, 1, 2, 1, 1, 1, 3, 4), (1, 2, 1, 1, 2, 1, 4, 2)),
):
    types = (*FLOATS, "int32", "int64", "uint32", "uint64") if a == (3, 4) else ("float", "double")
    case("MatMul", [R(a), R(b)], types, (1, 9, 13), slack=4)
case("MatMul", [R((3, 4)), R((4, 5))], F32, slack=4, runs=[[R((7, 4)), R((4, 2))], [R((1, 6)), R((6, 3))]])
for trans_a, trans_b in itertools.product((0, 1), repeat=2):
    a, b = ((4, 3) if trans_a else (3, 4)), ((5, 4) if trans_b else (4, 5))
    for bias in ([], [R((5,))], [R((3, 5))], [R((3, 1))], [R(())], [R((1, 5))]):
        attrs = {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 2.0}
        case("Gemm", [R(a), R(b), *bias], FLOATS if not bias else F32, (11, 13), slack=4, **attrs)
    case("Gemm", [R(a), R(b), R((5,))], F32, (7, 9, 13), slack=4, transA=trans_a, transB=trans_b)
case("Gemm", [R((0, 4)), R((4, 5)), R((5,))], F32)
case("Gemm", [R((3, 4)), R((4, 5)), R((5,))], F32, slack=4, runs=[[R((8, 4)), R((4, 2)), R((2,))]])

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

# ---- convolution and pooling ----
NARROW = ("float", "float16", "bfloat16", "double")
case("Conv", [R((1, 3, 8)), R((4, 3, 3))], NARROW, (1, 11, 22), slack=4)
case("Conv", [R((2, 3, 7, 9)), R((4, 3, 3, 3)), R((4,))], NARROW, (1, 11, 22), slack=4)
for attrs in (
    {"strides": [2, 2]},
    {"pads": [1, 1, 1, 1]},
    {"pads": [0, 1, 2, 0]},
    {"pads": [2, 0, 1, 3], "strides": [2, 3]},
    {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID"},
    {"kernel_shape": [3, 3], "strides": [1, 2], "dilations": [1, 2]},
):
    case("Conv", [R((1, 4, 9, 10)), R((6, 4, 3, 3)), R((6,))], F32, slack=4, **attrs)
    case("Conv", [R((1, 4, 9, 10)), R((4, 1, 3, 3)), R((4,))], F32, slack=4, group=4, **attrs)
case("Conv", [R((1, 4, 9, 10)), R((8, 2, 1, 1))], F32, slack=4, group=2)
case("Conv", [R((2, 6, 5, 5)), R((6, 1, 5, 5))], NARROW, slack=4, group=6, pads=[2, 2, 2, 2])
case("Conv", [R((1, 8, 6, 6)), R((16, 8, 1, 1)), R((16,))], NARROW, slack=4, note="1x1")
case("Conv", [R((1, 2, 4, 5, 6)), R((3, 2, 2, 3, 2)), R((3,))], ("float", "double"), slack=4, pads=[0, 1, 0, 1, 0, 1])
case("Conv", [R((0, 3, 8, 8)), R((4, 3, 3, 3))], F32, note="empty batch")
FIRST, SECOND = [R((1, 3, 8, 8)), R((4, 3, 3, 3))], [R((2, 3, 12, 5)), R((4, 3, 3, 3))]
case("Conv", FIRST, F32, slack=4, runs=[SECOND, FIRST])
case("ConvTranspose", [R((1, 3, 5)), R((3, 4, 3))], F32, (1, 11, 22), slack=4)
case("ConvTranspose", [R((2, 3, 4, 5)), R((3, 4, 3, 3)), R((4,))], NARROW, (1, 11, 22), slack=4)
for attrs in (
    {"strides": [2, 2]},
    {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]},
    {"strides": [3, 2], "output_shape": [12, 10]},
    {"dilations": [2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
):
    case("ConvTranspose", [R((1, 4, 4, 5)), R((4, 2, 3, 3)), R((2,))], F32, slack=4, **attrs)
case("ConvTranspose", [R((1, 4, 4, 5)), R((4, 2, 2, 2)), R((4,))], F32, slack=4, group=2, strides=[2, 2])
POOLS = (
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [2, 3], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0]},
    {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 2], "auto_pad": "VALID"},
)
for attrs in POOLS:
    case("MaxPool", [R((2, 3, 7, 8))], NARROW if len(attrs) == 1 else F32, (10, 11, 12, 22), **attrs)
    case("AveragePool", [R((2, 3, 7, 8))], NARROW if len(attrs) == 1 else F32, (10, 11, 19, 22), **attrs)
    case("AveragePool", [R((2, 3, 7, 8))], F32, (11, 19, 22), count_include_pad=1, **attrs)
case("MaxPool", [R((1, 2, 9, 9))], F32, (10, 12, 22), kernel_shape=[3, 3], dilations=[2, 2])
case("MaxPool", [R((1, 2, 6, 6))], F32, (8, 12), outputs=2, kernel_shape=[2, 2], strides=[2, 2], note="indices")
case("MaxPool", [R((1, 2, 9))], F32, (1, 8, 12), kernel_shape=[3])
case("MaxPool", [R((1, 2, 4, 5, 6))], F32, (8, 12), kernel_shape=[2, 2, 2])
case("MaxPool", [R((1, 2, 7, 8))], F32, kernel_shape=[2, 2], runs=[[R((3, 2, 4, 4))], [R((1, 2, 7, 8))]])
case("AveragePool", [R((1, 2, 9))], F32, (7, 11), kernel_shape=[3])
case("AveragePool", [R((1, 2, 4, 5, 6))], F32, (11,), kernel_shape=[2, 2, 2])
case("MaxPool", [R((2, 3, 5, 6))], F32, (8, 12, 22), outputs=2, kernel_shape=[3, 2], pads=[1, 1, 1, 0], note="indices")
case("MaxPool", [R((2, 3, 3, 4, 5))], F32, (12, 22), outputs=2, kernel_shape=[2, 2, 3], strides=[1, 2, 2])

# ---- a factor for each channel, and channels that are moved ----
SCALE, SHIFT, MEAN, VARIANCE = R((3,)), R((3,)), R((3,)), P((3,))
PER_CHANNEL = [SCALE, SHIFT, MEAN, VARIANCE]
case("BatchNormalization", [R((2, 3, 4, 5)), *PER_CHANNEL], FLOATS, (7, 9, 14, 15), slack=4)
for shape in ((2, 3, 7), (4, 3), (1, 3, 2, 3, 4), (0, 3, 4), (3, 3, 33, 31)):
    case("BatchNormalization", [R(shape), *PER_CHANNEL], F32, slack=4, epsilon=0.01, momentum=0.5)
case("BatchNormalization", [R((5,)), R((1,)), R((1,)), R((1,)), P((1,))], F32, (15,), slack=4, note="one dimension")
WIDE_CHANNELS = [D([0.5, -2.0, 3.0], "float"), D([1.0, 0.25, 0.0], "float"), D([0.1, 2.0, -1.0], "float")]
case("BatchNormalization", [R((2, 3, 4)), *WIDE_CHANNELS, D([1.0, 0.5, 4.0], "float")], ("float16", "bfloat16"), (15,),
     slack=4, note="statistics in float")
case("BatchNormalization", [R((2, 3, 4)), *PER_CHANNEL], F32, slack=4, runs=[[R((1, 3, 9)), *PER_CHANNEL]])
for shape in ((2, 3, 4, 5), (4, 3), (2, 3, 33, 31)):
    case("BatchNormalization", [R(shape), *PER_CHANNEL], F32, (14, 15), outputs=3, slack=8, training_mode=1,
         momentum=0.8, epsilon=0.01)
case("LRN", [R((2, 7, 4, 5))], FLOATS, (1, 13), slack=4, size=3)
for attrs in ({"size": 1}, {"size": 5, "alpha": 0.5}, {"size": 9, "alpha": 0.3, "beta": 0.4, "bias": 2.0}):
    case("LRN", [R((1, 7, 3, 5))], F32, (1, 13), slack=4, **attrs)
case("LRN", [R((0, 3, 4, 4))], F32, size=3)
MOVED = [t for t in ALL if t != "bfloat16"]
case("DepthToSpace", [R((2, 12, 3, 5))], MOVED, (1, 11, 13), blocksize=2)
case("DepthToSpace", [R((1, 18, 2, 3))], ("float", "uint8", "double"), (11, 13), blocksize=3, mode="CRD")
case("DepthToSpace", [R((2, 3, 4, 5))], F32, blocksize=1)
case("DepthToSpace", [R((0, 4, 4, 5))], F32, blocksize=2)
case("SpaceToDepth", [R((2, 3, 4, 6))], MOVED, (1, 13), blocksize=2)
case("SpaceToDepth", [R((1, 2, 6, 9))], F32, (1, 13), blocksize=3, runs=[[R((2, 1, 3, 3))]])

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
case("GridSample", [R((0, 3, 5, 7)), R((0, 4, 5, 2))], F32, note="empty batch")
case("GridSample", [R((1, 2, 4, 3)), R((1, 3, 2, 2), -1, 1)], F32, slack=32, runs=[[R((2, 1, 3, 3)), GRID]])
case("GridSample", [R((2, 3, 5, 7)), GRID], F32, (1,), domain="com.microsoft", note="in test_nhwc.py")
for name in ("GlobalAveragePool", "GlobalMaxPool"):
    case(name, [R((2, 3, 5, 6))], NARROW, (1, 22), slack=2)
    case(name, [R((2, 3, 7))], F32)
    case(name, [R((1, 2, 3, 4, 5))], F32)
case("BatchNormalization", [R((2, 3, 4, 5)), P((3,)), R((3,)), R((3,)), P((3,))], FLOATS, (9, 14, 15), slack=4)
case("InstanceNormalization", [R((2, 3, 4, 5)), P((3,)), R((3,))], FLOATS, (6,), slack=4)

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
case("Resize", [R((2, 1, 3, 1, 4, 2)), None, K([1.5, 1.0, 2.0, 1.0, 0.5, 2.0], "float")], F32, (13, 19), note="rank 6",
     mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
case("Upsample", [R((1, 2, 4, 5))], (*F32, "int32", "uint8"), (7,), mode="linear", slack=8, scales=[1.0, 1.0, 2.0, 1.5])
case("MaxPool", [R((1, 2, 5, 6))], ("int8", "uint8"), (12, 22), kernel_shape=[2, 3], pads=[1, 1, 0, 1])
case("MaxPool", [R((2, 2, 5, 6))], F32, (8, 22), outputs=2, kernel_shape=[2, 3], storage_order=1, note="column major")
case("MaxPool", [R((1, 2, 3, 5))], F32, (10, 22), kernel_shape=[4, 2], strides=[2, 3], ceil_mode=1, note="one window")
case("AveragePool", [R((1, 2, 9, 9))], FLOATS, (7, 22), kernel_shape=[9, 9], note="whole input")
case("AveragePool", [R((1, 2, 9, 9))], F32, (19, 22), kernel_shape=[3, 2], dilations=[2, 3], count_include_pad=1,
     pads=[1, 1, 2, 0], strides=[2, 2], ceil_mode=1)
