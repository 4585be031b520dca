# SPDX-License-Identifier: Apache-2.0
"""One row a case: an operator, its inputs and attributes, the element types and opsets it is tried with.

Inputs: R random, P random and positive, V given values (all of the row's element type); D a graph input and K a
constant of a fixed type (int64 unless said); None an input left out. The newest opset of a row is tried with every
type that is registered, older ones with the first. `runs` are further input sets for the same session. What a row
expects comes from ONNX Runtime's CPU provider, or from `reference`: a function of inputs and attributes, giving a list.
"""

from dataclasses import dataclass, field

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
    reference: object = None
    absent: tuple = ()  # outputs that the model leaves out
    known: dict = field(default_factory=dict, init=False, repr=False)  # what op_model has found out about it

    def input_sets(self):
        return [self.inputs, *self.runs]

    def output_names(self):
        return ["" if i in self.absent else f"y{i}" for i in range(self.outputs)]


CASES = []


def case(op, inputs, types=FLOATS, opsets=(NEWEST,), outputs=1, runs=(), slack=1.0, domain="", note="", reference=None,
         absent=(), **attrs):
    CASES.append(Case(op, list(inputs), tuple(types), attrs, tuple(opsets), outputs, list(runs), slack, domain, note,
                      reference, tuple(absent)))


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
