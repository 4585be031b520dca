# SPDX-License-Identifier: Apache-2.0
"""Tensors of more dimensions than kernels walk: those that behave alike are merged, what is left is walked in parts.
What cannot be merged is left to the CPU provider or, where the rank is not known before the run, refused in a sentence.
"""

import numpy as np
import onnxruntime as ort
import provider
import pytest
import tolerance
from onnx import TensorProto, helper, numpy_helper

OPSET = 18


def numbers(*shape):
    return (np.arange(np.prod(shape, dtype=np.int64)) % 251 - 100).astype(np.float32).reshape(shape)


def ints(*values):
    return np.array(values, np.int64)


def indices(shape, most):
    return (np.arange(np.prod(shape, dtype=np.int64)) * 7 % (2 * most) - most).astype(np.int64).reshape(shape)


TWOS = (2,) * 9
FEW = (2, 1, 3, 1, 2, 2, 1, 2, 3, 2)  # rank 10
ALTERNATE = ((2, 1) * 6, (1, 2) * 6)  # no two neighbours behave alike
SHUFFLED = (5, 0, 11, 3, 8, 1, 10, 6, 2, 9, 4, 7)


class Case:
    """One node; inputs behind the first `fed` are constants of the model."""

    def __init__(self, op, *inputs, fed=None, outputs=1, **attributes):
        self.op, self.inputs, self.outputs, self.attributes = op, inputs, outputs, attributes
        self.fed = len(inputs) if fed is None else fed

    def model(self, rank_known):
        names = [f"x{i}" for i in range(len(self.inputs))]
        kinds = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in self.inputs]
        given = [
            helper.make_tensor_value_info(name, kind, x.shape if rank_known else None)
            for name, kind, x in list(zip(names, kinds, self.inputs, strict=True))[: self.fed]
        ]
        constants = [numpy_helper.from_array(x, n) for n, x in list(zip(names, self.inputs, strict=True))[self.fed :]]
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, results, "tested", **self.attributes)
        kind = {"NonZero": TensorProto.INT64, "ArgMax": TensorProto.INT64}.get(self.op, kinds[self.op == "Where"])
        out = [helper.make_tensor_value_info(name, kind, None) for name in results]
        graph = helper.make_graph([node], "rank", given, out, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def feeds(self):
        return {f"x{i}": x for i, x in enumerate(self.inputs[: self.fed])}

    def wanted(self):
        return ort.InferenceSession(self.model(False), providers=[provider.CPU]).run(None, self.feeds())


MERGED = {
    "add": Case("Add", numbers(*ALTERNATE[0]), numbers(*ALTERNATE[1])),
    "add_16": Case("Add", numbers(*(2, 1) * 8), numbers(*(1, 2) * 8)),
    "where": Case("Where", numbers(*TWOS) > 0, numbers(*(1, 2) * 4, 1), numbers(2)),
    "relu": Case("Relu", numbers(*FEW)),
    "turned": Case("Transpose", numbers(*TWOS)),
    "transpose_shuffled": Case("Transpose", numbers(2, 3, 1, 2, 2, 3, 2, 1, 2, 2, 2, 3), perm=SHUFFLED),
    "transpose_16": Case("Transpose", numbers(*(2,) * 16), perm=tuple(range(15, -1, -1))),
    "expand": Case("Expand", numbers(*ALTERNATE[0]), ints(*(2,) * 12), fed=1),
    "slice": Case(
        "Slice", numbers(*(3,) * 9), ints(*(2,) * 9), ints(*(-9,) * 9), ints(*range(9)), ints(*(-2,) * 9), fed=1
    ),
    "pad": Case("Pad", numbers(*FEW), ints(*(1, 0) * 10), fed=1),
    "pad_everywhere": Case("Pad", numbers(*(1, 2) * 5), ints(*(1,) * 10, *(0,) * 10), np.float32([7]), fed=1),
    "pad_reflected": Case("Pad", numbers(*(2, 3) * 5), ints(*(1, 0) * 10), fed=1, mode="reflect"),
    "tile": Case("Tile", numbers(*(2, 1, 3) * 3), ints(*(2, 1, 1) * 3), fed=1),
    "tile_everywhere": Case("Tile", numbers(*(2, 1, 1) * 3), ints(*(2,) * 9), fed=1),
    "concat": Case("Concat", numbers(*FEW), numbers(*FEW), axis=7),
    "split": Case("Split", numbers(*FEW), ints(1, 2), fed=1, outputs=2, axis=8),
    "reduce": Case("ReduceSum", numbers(*(2,) * 16), ints(*range(0, 16, 2)), fed=1),
    "reduce_all": Case("ReduceMax", numbers(*FEW)),
    "arg_max": Case("ArgMax", numbers(*FEW), axis=4),
    "softmax": Case("Softmax", numbers(*FEW), axis=4),
    "layer_norm": Case("LayerNormalization", numbers(*FEW), np.float32([[1, 2], [3, 4], [5, 6]]), axis=8),
    "cumsum": Case("CumSum", numbers(*FEW), np.array(5, np.int32), fed=1),
    "gather": Case("Gather", numbers(*FEW), indices((2, 1, 2), 3), axis=2),
    "gather_elements": Case("GatherElements", numbers(*FEW), indices(FEW, 2), axis=4),
    "gather_nd": Case("GatherND", numbers(*FEW), indices((2, 2, 3), 1), batch_dims=1),
    "scatter_elements": Case(
        "ScatterElements", numbers(*FEW), indices(FEW[:4] + (1,) + FEW[5:], 2), numbers(*FEW[:4], 1, *FEW[5:]), axis=4
    ),
    "scatter_nd": Case("ScatterND", numbers(*TWOS), ints([0, 1, 0], [1, 1, 0]), numbers(2, *TWOS[3:])),
    "matmul": Case("MatMul", numbers(*ALTERNATE[0], 3, 4), numbers(*ALTERNATE[1], 4, 2)),
    "einsum": Case("Einsum", numbers(*TWOS, 3), numbers(*TWOS, 3, 2), equation="...j,...jk->...k"),
    "trilu": Case("Trilu", numbers(*TWOS, 3, 4)),
    "reshape": Case("Reshape", numbers(*FEW), ints(*(1, 2) * 4, -1, 1, 3, 1, 1), fed=1),
    "squeeze": Case("Squeeze", numbers(*FEW)),
    "unsqueeze": Case("Unsqueeze", numbers(*FEW), ints(0, 3, 11), fed=1),
    "flatten": Case("Flatten", numbers(*FEW), axis=6),
}


def session_of(case, rank_known):
    options = provider.session_options(threads=1, log_level=4)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = provider.session(case.model(rank_known), provider_options={"use_tf32": "0"}, options=options)
    return session, {node: ep for ep, _, node in provider.assigned_nodes(session)}["tested"]


@pytest.mark.parametrize("rank_known", [True, False], ids=["known", "dynamic"])
@pytest.mark.parametrize("name", MERGED)
def test_dimensions_are_merged(name, rank_known):
    case = MERGED[name]
    session, owner = session_of(case, rank_known)
    assert owner == provider.NAME
    for got, want in zip(session.run(None, case.feeds()), case.wanted(), strict=True):
        np.testing.assert_allclose(got, want, **tolerance.FLOAT32)


REFUSED = {
    "nonzero": (Case("NonZero", numbers(*TWOS)), "X has rank 9; ranks up to 8 are supported here"),
    "gather_nd": (
        Case("GatherND", numbers(*TWOS, 2), indices((3, 9), 2)),
        "an index of 9 parts; up to 8 are supported",
    ),
    "gather_elements": (
        Case("GatherElements", numbers(*(3,) * 10), indices((2,) * 10, 3), axis=4),
        "10 dimensions are left when those that behave alike are merged",
    ),
    "rank_17": (
        Case("Add", numbers(*(1,) * 15, 2, 1), numbers(3)),
        "input .* has rank 17; ranks up to 16 are supported",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_merged(name):
    case, sentence = REFUSED[name]
    session, owner = session_of(case, True)
    assert owner == provider.CPU
    np.testing.assert_array_equal(session.run(None, case.feeds())[0], case.wanted()[0])
    session, owner = session_of(case, False)
    assert owner == provider.NAME
    with pytest.raises(Exception, match=sentence):
        session.run(None, case.feeds())


def test_resize_is_left_to_others_where_its_rank_is_known():
    """Where it is not, axes that stay as they are do not count."""
    scales = np.ones(9, np.float32)
    scales[[3, 7]] = 2
    case = Case("Resize", numbers(*TWOS), np.float32([]), scales, fed=1, mode="nearest")
    assert session_of(case, True)[1] == provider.CPU
    session, owner = session_of(case, False)
    assert owner == provider.NAME
    want = numbers(*TWOS).repeat(2, axis=3).repeat(2, axis=7)
    np.testing.assert_array_equal(session.run(None, case.feeds())[0], want)
