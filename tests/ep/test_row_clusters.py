# SPDX-License-Identifier: Apache-2.0
"""Reductions along rows with what is before and behind, as one kernel, beside ONNX Runtime's CPU provider."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import provider
import pytest
from onnx import helper, numpy_helper

HERE = Path(__file__).resolve().parent
ROWS, COLUMNS = 6, (7, 12, 32, 33, 100, 768, 1025, 5000)
# With what results may differ by from sums in another order, relative to the largest terms, which are near 1.
TYPES = {"f32": (np.float32, 2e-5), "f64": (np.float64, 1e-11)}
# Nodes, "output = Operator inputs attributes"; x is [2, ROWS, columns], v [columns], r [2, ROWS].
WAYS = {
    "softmax": "a = Mul x v; m = ReduceMax a last; d = Sub a m; e = Exp d; s = ReduceSum e last; y = Div e s",
    "softmax_node": "a = Mul x v; b = Softmax a axis=-1; y = Sub b v",
    "log_softmax": "a = Neg x; b = LogSoftmax a axis=-1; y = Mul b v",
    "layer_norm": "m = ReduceMean x last; d = Sub x m; q = Mul d d; c = ReduceMean q last; e = Add c tiny; s = Sqrt e; "
                  "n = Div d s; o = Mul n v; p = Sigmoid o; y = Mul o p",
    "rms_norm": "q = Mul x x; m = ReduceMean q last; e = Add m tiny; s = Sqrt e; i = Reciprocal s; n = Mul x i; "
                "t = Tanh n; y = Mul t v",
    "l2": "l = ReduceL2 x last; c = Max l tiny; y = Div x c",
    "l1": "a = Abs x; l = ReduceL1 a last; c = Add l tiny; y = Div a c",
    "sum_square": "a = Tanh x; l = ReduceSumSquare a last; n = Neg l; y = Exp n",
    "log_sum": "a = Exp x; l = ReduceLogSum a last; y = Sub x l",
    "loss": "a = Mul x v; l = ReduceLogSumExp a last keepdims=0; y = Sub l r",
    "variance": "m = ReduceMean x last; d = Sub x m; q = Mul d d; y = ReduceMean q last keepdims=0",
    "spread": "b = ReduceMax x last; c = ReduceMin x last; d = Sub b c; e = Sub x c; y = Div e d",
    "product": "a = Sigmoid x; t = Add a half; p = ReduceProd t last; y = Neg p",
    "two_axes": "m = ReduceMean x both; d = Sub x m; a = Abs d; s = ReduceSum a both keepdims=0; y = Sqrt s",
    "square": "w = Softmax v axis=0; a = Mul x w; y = ReduceSum a last keepdims=0",  # w and y may be equally large
    "all": "a = Mul x x; y = ReduceMean a keepdims=0",
}


def node(line):
    output, _, op, *inputs = line.split()
    given = dict(word.split("=") for word in inputs if "=" in word)
    names = [word for word in inputs if "=" not in word]
    return helper.make_node(op, names, [output], **{key: int(value) for key, value in given.items()})


def model(way, kind):
    dtype = TYPES[kind][0]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node(line) for line in WAYS[way].split(";")]
    inputs = [helper.make_tensor_value_info(name, element, dims)
              for name, dims in (("x", [2, ROWS, "n"]), ("v", ["n"]), ("r", [2, ROWS]))]
    lists = {"last": np.array([-1]), "both": np.array([1, 2]), "tiny": dtype(1e-3), "half": dtype(0.5)}
    outputs = [helper.make_tensor_value_info("y", element, None)]
    graph = helper.make_graph(nodes, way, inputs, outputs, [numpy_helper.from_array(np.asarray(value), name)
                                                             for name, value in lists.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def feed(kind, columns):
    rng = np.random.default_rng(columns)
    dtype = TYPES[kind][0]
    return {"x": rng.standard_normal((2, ROWS, columns)).astype(dtype), "v": rng.standard_normal(columns).astype(dtype),
            "r": rng.standard_normal((2, ROWS)).astype(dtype)}


def sessions(made):
    options = provider.session_options()  # ONNX Runtime 1.30 fuses doubles to what it has no kernel for
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return (provider.session(made, provider_options={"fusion": "1"}),
            ort.InferenceSession(made, options, providers=[provider.CPU]))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("way", WAYS)
def test_rows(way, kind):
    ours, cpu = sessions(model(way, kind))
    for columns in COLUMNS:
        given = feed(kind, columns)
        want = cpu.run(None, given)[0]
        got = ours.run(None, given)[0]
        bound = TYPES[kind][1]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound)
        np.testing.assert_array_equal(ours.run(None, given)[0], got)


@pytest.mark.parametrize("way", ["softmax_node", "log_softmax", "spread", "l2", "loss"])
def test_odd_values(way):
    """Node by node is what they are compared with: the CPU provider's extremes lose NaN in some shapes. What both sum
    and exponentiate is float in another order: some hundred roundings of 6e-8."""
    made = model(way, "f32")
    ours, alone = (provider.session(made, provider_options={"fusion": fusion}) for fusion in ("1", "0"))
    for columns in COLUMNS:
        given = feed("f32", columns)
        given["v"][:] = np.abs(given["v"]) + 0.5
        given["x"][0, 0, columns // 2] = np.nan
        given["x"][0, 1, columns // 3] = np.inf
        given["x"][1, 2, columns - 1] = -np.inf
        given["x"][1, 3] = -np.inf
        np.testing.assert_allclose(ours.run(None, given)[0], alone.run(None, given)[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("words", ["", "-row_cluster"])
def test_one_kernel_has_them(words):
    env = {**os.environ, "MILLPOND_PASSES": words, "MILLPOND_LOG": "debug",
           "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "demo"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(": row=1 x0=f32") == (0 if words else 1), done.stderr


if __name__ == "__main__":
    ort.set_default_logger_severity(0)
    sessions(model("softmax", "f32"))[0].run(None, feed("f32", 100))
