# SPDX-License-Identifier: Apache-2.0
"""Tensors of more than 2^31 elements: what overflows 32 bits shows in elements picked from the result.

Inputs repeat a pattern, so that every element of a result follows from its place. The elements picked are the first and
the last, those around 2^31 and others at random. On a device without memory for that, the emulated one among them, the
same cases run with fewer elements.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
import provider
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.alone
EDGE = 2**31
NEEDED = 48 << 30  # bytes of a device for the largest case
PICKED = 4096
PERIOD = 1021  # a prime
I64 = np.int64
PATTERNS = {
    "f16": (np.random.default_rng(3).integers(-32, 32, PERIOD) / 8).astype(np.float16),
    "i8": np.random.default_rng(4).integers(-50, 50, PERIOD).astype(np.int8),
    "u8": np.random.default_rng(5).integers(0, 200, PERIOD).astype(np.uint8),
    "bool": np.random.default_rng(6).integers(0, 2, PERIOD).astype(np.bool_),
}


@dataclass(frozen=True)
class Big:
    """An input that repeats a pattern over a shape of `n` elements and some more."""

    kind: str
    tail: tuple  # dimensions behind the first
    part: int = 1  # of the elements, one in so many

    def shape(self, n):
        return (n // self.part // math.prod(self.tail) + 3, *self.tail)

    def at(self, n, *place):
        """The elements at a place: an array for each dimension."""
        pattern = PATTERNS[self.kind]
        return pattern[np.ravel_multi_index(place, self.shape(n)) % len(pattern)]

    def row(self, n, *place):
        """Rows of the last dimension at places of the others, in float64."""
        columns = np.arange(self.tail[-1])
        return self.at(n, *(p[:, np.newaxis] for p in place), columns[np.newaxis, :]).astype(np.float64)


@dataclass(frozen=True)
class Case:
    op: str
    inputs: list  # of Big, arrays, functions of the number of elements that give one, and None
    want: Any  # of (n, inputs, place of the elements picked)
    attrs: dict = field(default_factory=dict)
    outputs: int = 1
    output: int = 0  # which one is looked at
    exact: bool = True
    note: str = ""


ROWS, ODD, IMAGE = (1536,), (1003,), (16, 64, 64)
A, B, BITS, SIGNED, BYTES = Big("f16", ROWS), Big("f16", ODD), Big("bool", ROWS), Big("i8", ROWS), Big("u8", ODD)
PICTURE, SHORT, SMALL = Big("f16", IMAGE), Big("f16", (96,)), Big("u8", (4, 64, 64), part=4)
BIAS, ODD_BIAS = (np.arange(1536) % 16 / 4).astype(np.float16), (np.arange(1003) % 16 / 4).astype(np.float16)
ONES, HALF = np.ones(1536, np.float16), np.float16(0.5)
SCALE = (1 + np.arange(16) % 4).astype(np.float16)
LENGTHS = np.array([1, 2, 3, 4, 5, 6, 7, 3], I64)


def ints(*values):
    return np.array(values, I64)


def same(made):
    """`made` of the elements of the first input at the place itself."""
    return lambda n, x, p: made(x[0].at(n, *p))


def moved(place):
    """The elements of the first input at another place."""
    return lambda n, x, p: x[0].at(n, *place(*p))


def in_row(made):
    """What `made` makes of the row that an element picked is in, at its place."""
    return lambda n, x, p: np.take_along_axis(made(x[0].row(n, *p[:-1])), p[-1][:, np.newaxis], -1)[:, 0]


def of_row(made):
    """What `made` makes of a row, as the one element that is left of it."""
    return lambda n, x, p: made(x[0].row(n, *p))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normal(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def far(n):
    """Rows: the last, the first and one between."""
    return ints(-1, 0, A.shape(n)[0] // 2)


def far_columns(n):
    return np.repeat(far(n)[:, np.newaxis], 1536, axis=1)


def spots(n):
    return np.stack([far(n), ints(3, -1, 700)], -1)


def gathered(n, x, p):
    return x[0].at(n, far(n)[p[0]] % A.shape(n)[0], p[1])


def middle_largest(n, x, p):
    return x[0].at(n, p[0][:, np.newaxis], np.arange(64), p[1][:, np.newaxis]).max(-1)


def pooled(n, x, p):
    return np.max([x[0].at(n, p[0], p[1], p[2] * 2 + i, p[3] * 2 + j) for i in (0, 1) for j in (0, 1)], 0)


def true_places(n, x, p):
    """Of NonZero: the dimension p[0] of the place of the true value number p[1]."""
    found = np.flatnonzero(PATTERNS["bool"])
    place = p[1] // len(found) * PERIOD + found[p[1] % len(found)]
    return np.where(p[0] == 0, place // 1536, place % 1536)


def factor(n):
    return np.resize(PATTERNS["f16"], (n // 4096 + 3, 8))


def product(n, x, p):
    return np.where(p[1] < 8, factor(n)[p[0], p[1] % 8], 0)


CASES = [
    Case("Neg", [SIGNED], same(np.negative)),
    Case("Relu", [A], same(lambda x: np.maximum(x, 0))),
    Case("Not", [BITS], same(np.logical_not)),
    Case("Cast", [BYTES], same(lambda x: x.astype(np.float16)), {"to": TensorProto.FLOAT16}),
    Case("Add", [A, A], same(lambda x: x * 2)),
    Case("Add", [A, BIAS], lambda n, x, p: x[0].at(n, *p) + BIAS[p[1]], note="row"),
    Case("Add", [B, ODD_BIAS], lambda n, x, p: x[0].at(n, *p) + ODD_BIAS[p[1]], note="odd row"),
    Case("Mul", [A, HALF], same(lambda x: x / 2), note="scalar"),
    Case("Equal", [SIGNED, np.int8(7)], same(lambda x: x == 7)),
    Case("Where", [BITS, A, HALF], lambda n, x, p: np.where(x[0].at(n, *p), x[1].at(n, *p), HALF)),
    Case("Clip", [B, np.float16(-1), np.float16(1)], same(lambda x: x.clip(-1, 1))),
    Case("Pow", [A, np.float16(2)], same(np.square)),
    Case("PRelu", [PICTURE, SCALE.reshape(16, 1, 1)],
         lambda n, x, p: np.where(x[0].at(n, *p) < 0, x[0].at(n, *p) * SCALE[p[1]], x[0].at(n, *p))),
    Case("BatchNormalization", [PICTURE, SCALE, SCALE, SCALE * 0, SCALE * 0 + 1],
         lambda n, x, p: x[0].at(n, *p) * SCALE[p[1]] + SCALE[p[1]], {"epsilon": 0.0}, exact=False),
    Case("DequantizeLinear", [BYTES, HALF, np.uint8(100)], same(lambda x: (x.astype(float) - 100) / 2)),
    Case("QuantizeLinear", [A, HALF, np.uint8(100)], same(lambda x: np.rint(x.astype(float) * 2) + 100)),
    Case("Trilu", [SIGNED], lambda n, x, p: np.where(p[0] >= p[1], x[0].at(n, *p), 0), {"upper": 0}),
    Case("ReduceMax", [SIGNED, ints(1)], of_row(lambda x: x.max(-1)), {"keepdims": 0}),
    Case("ReduceMax", [Big("i8", (64, 8)), ints(1)], middle_largest, {"keepdims": 0}, note="middle"),
    Case("ReduceMin", [SIGNED], lambda n, x, p: PATTERNS["i8"].min(), {"keepdims": 0}, note="all"),
    Case("ReduceMean", [SHORT, ints(1)], of_row(lambda x: x.mean(-1)), {"keepdims": 0}, exact=False),
    Case("ArgMax", [SIGNED], of_row(lambda x: x.argmax(-1)), {"axis": 1, "keepdims": 0}),
    Case("Softmax", [A], in_row(softmax), {"axis": -1}, exact=False),
    Case("Softmax", [B], in_row(softmax), {"axis": -1}, exact=False, note="odd rows"),
    Case("LayerNormalization", [A, ONES, BIAS], lambda n, x, p: in_row(normal)(n, x, p) + BIAS[p[1]], {"axis": -1},
         exact=False),
    Case("CumSum", [SHORT, np.array(1, I64)], in_row(lambda x: x.cumsum(-1)), exact=False),
    Case("TopK", [SHORT, ints(2)], in_row(lambda x: -np.sort(-x)), {"axis": 1}, outputs=2),
    Case("Transpose", [A], moved(lambda i, j: (j, i)), {"perm": [1, 0]}),
    Case("Transpose", [Big("i8", ODD)], moved(lambda i, j: (j, i)), {"perm": [1, 0]}, note="bytes"),
    Case("Transpose", [PICTURE], moved(lambda b, h, w, c: (b, c, h, w)), {"perm": [0, 2, 3, 1]}, note="channels last"),
    Case("Transpose", [PICTURE], moved(lambda b, h, c, w: (b, c, h, w)), {"perm": [0, 2, 1, 3]}, note="heads"),
    Case("Concat", [Big("i8", ODD, part=2)] * 2, moved(lambda i, j: (i, j % 1003)), {"axis": 1}),
    Case("Split", [SIGNED], moved(lambda i, j: (i, j + 512)), {"axis": 1, "num_outputs": 3}, outputs=3, output=1),
    Case("Slice", [SIGNED, ints(1530), ints(-2000), ints(1), ints(-1)], moved(lambda i, j: (i, 1530 - j))),
    Case("Expand", [ODD_BIAS, lambda n: ints(n // 1003 + 3, 1003)], lambda n, x, p: ODD_BIAS[p[1]]),
    Case("Tile", [BIAS[np.newaxis], lambda n: ints(n // 12288 + 3, 8)], lambda n, x, p: BIAS[p[1] % 1536]),
    Case("Pad", [BYTES, ints(0, 5, 0, 6)], lambda n, x, p: np.where(
        (p[1] >= 5) & (p[1] < 1008), x[0].at(n, p[0], (p[1] - 5) % 1003), 0)),
    Case("Pad", [BYTES, ints(1, 5, 0, 6)], moved(
        lambda i, j: (np.abs(i - 1), 1002 - np.abs(1002 - np.abs(j - 5)))), {"mode": "reflect"}, note="reflected"),
    Case("Gather", [A, far], gathered),
    Case("GatherElements", [A, far_columns], gathered),
    Case("GatherND", [A, spots], lambda n, x, p: x[0].at(
        n, far(n)[p[0]] % A.shape(n)[0], ints(3, 1535, 700)[p[0]])),
    Case("ScatterND", [SIGNED, lambda n: far(n)[:, np.newaxis], np.full((3, 1536), 77, np.int8)],
         lambda n, x, p: np.where(np.isin(p[0], far(n) % A.shape(n)[0]), 77, x[0].at(n, *p))),
    Case("OneHot", [lambda n: np.arange(n // 256 + 3) % 256, np.array(256, I64), np.array([1, 9], np.int8)],
         lambda n, x, p: np.where(p[0] % 256 == p[1], 9, 1)),
    Case("ConstantOfShape", [lambda n: ints(n // 8 + 3, 8)], lambda n, x, p: 5,
         {"value": numpy_helper.from_array(np.array([5], np.int8))}),
    Case("ReverseSequence", [Big("i8", (8, 64)), LENGTHS], moved(
        lambda t, b, c: (np.where(t < LENGTHS[b], LENGTHS[b] - 1 - t, t), b, c)), {"batch_axis": 1, "time_axis": 0}),
    Case("DepthToSpace", [PICTURE], moved(
        lambda b, c, h, w: (b, (h % 2 * 2 + w % 2) * 4 + c, h // 2, w // 2)), {"blocksize": 2}),
    Case("SpaceToDepth", [PICTURE], moved(
        lambda b, c, h, w: (b, c % 16, h * 2 + c // 32, w * 2 + c // 16 % 2)), {"blocksize": 2}),
    Case("MaxPool", [PICTURE], pooled, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("Resize", [SMALL, None, np.array([1, 1, 2, 2], np.float32)], moved(
        lambda b, c, h, w: (b, c, h // 2, w // 2)),
         {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    Case("MatMul", [factor, np.eye(8, 4096, dtype=np.float16)], product),
    Case("NonZero", [BITS], true_places),
]


@pytest.fixture(scope="module")
def elements():
    device = provider.register()[0]
    free, _ = provider.memory_info()
    return EDGE if not provider.is_emulated(device) and free >= NEEDED else 1 << 17


def model_of(case, values):
    """(model, its inputs): the node, and an operator behind it that picks elements of its output.

    Large values are inputs, others constants.
    """
    outputs = [f"y{i}" for i in range(case.outputs)]
    given = {f"x{i}": value for i, value in enumerate(values) if value is not None}
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(values)]
    large = {name: value for name, value in given.items() if value.size > 1 << 16}
    wanted = outputs[case.output]
    nodes = [helper.make_node(case.op, names, outputs, **case.attrs),
             helper.make_node("Shape", [wanted], ["shape"]),
             helper.make_node("Reshape", [wanted, "all"], ["flat"]),
             helper.make_node("Gather", ["flat", "places"], ["picked"])]
    constants = [numpy_helper.from_array(value, name) for name, value in given.items() if name not in large]
    constants.append(numpy_helper.from_array(ints(-1), "all"))
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
              for name, value in large.items()]
    inputs.append(helper.make_tensor_value_info("places", TensorProto.INT64, ["n"]))
    results = [helper.make_empty_tensor_value_info(name) for name in ("shape", "picked")]
    graph = helper.make_graph(nodes, "large", inputs, results, constants)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), large


def values_of(case, n):
    for x in case.inputs:
        if isinstance(x, Big):
            yield np.resize(PATTERNS[x.kind], x.shape(n))
        else:
            yield np.asarray(x(n)) if callable(x) else x if x is None else np.asarray(x)


def places_in(count):
    """The first elements, the last, those around 2^31, and others at random."""
    near = np.arange(-40, 40)
    places = np.concatenate([near, near + EDGE, near + count, np.random.default_rng(8).integers(0, count, PICKED)])
    return np.unique(places[(places >= 0) & (places < count)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.note}".strip("-").replace(" ", "-"))
def test_beyond_32_bits(case, elements, tally):
    tally(f"cases with tensors of more than {elements} elements")
    model, large = model_of(case, list(values_of(case, elements)))
    options = provider.session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = provider.session(model, options=options)
    assert provider.NAME in {ep for ep, op, _ in provider.assigned_nodes(session) if op == case.op}
    binding = session.io_binding()
    for name, value in large.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value, "cuda", 0))
    shape = None
    for _ in range(2):
        places = ints(0) if shape is None else places_in(math.prod(shape))
        binding.bind_cpu_input("places", places)
        for name in ("shape", "picked"):
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        shape, picked = binding.copy_outputs_to_cpu()
    where = np.unravel_index(places, tuple(shape)) if len(shape) else (places,)
    want = np.broadcast_to(np.asarray(case.want(elements, case.inputs, where)), picked.shape)
    limit = 0 if case.exact else 2e-3
    np.testing.assert_allclose(picked.astype(np.float64), want.astype(np.float64), rtol=limit, atol=limit)
