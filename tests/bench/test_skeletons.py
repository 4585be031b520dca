# SPDX-License-Identifier: Apache-2.0
"""Skeletons of models are small, and models again when they are filled."""

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from bench_kit import ROOT
from onnx import TensorProto, helper, numpy_helper

SMALL = 20 << 10  # bytes


def constants(kind):
    random = np.random.default_rng(5)
    return {"w": (random.standard_normal((64, 64)) * 0.5 + 2).astype(kind),
            "v": (np.abs(random.standard_normal((64, 64))) + 0.25).astype(kind),
            "b": random.standard_normal(64).astype(kind),
            "mask": np.tril(np.ones((64, 64), kind)), "sizes": np.array([-1, 64], np.int64)}


def model(kind):
    """y = (x w + b) / sqrt(v) * mask, of which one constant is a node's and another in a branch."""
    values = {name: numpy_helper.from_array(x, name) for name, x in constants(kind).items()}
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    half = helper.make_graph([helper.make_node("Mul", ["t", "mask"], ["a"])], "half",
                             [], [helper.make_tensor_value_info("a", to, None)], [values.pop("mask")])
    same = helper.make_graph([helper.make_node("Identity", ["t"], ["c"])], "same", [],
                             [helper.make_tensor_value_info("c", to, None)])
    nodes = [helper.make_node("Constant", [], ["v"], value=values.pop("v")), helper.make_node("Sqrt", ["v"], ["s"]),
             helper.make_node("Reshape", ["x", "sizes"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["p"]),
             helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Div", ["q", "s"], ["t"]),
             helper.make_node("If", ["yes"], ["y"], then_branch=half, else_branch=same)]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", to, [64, 64]),
                                             helper.make_tensor_value_info("yes", TensorProto.BOOL, [])],
                              [helper.make_tensor_value_info("y", to, None)], list(values.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(folder, target, *words):
    subprocess.run([sys.executable, str(ROOT / "bench" / "skeletons.py"), str(folder), str(target), *words], check=True)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_filled_skeleton_runs(kind, tmp_path):
    full, bare, filled, again = (tmp_path / word for word in ("full", "bare", "filled", "again"))
    full.mkdir()
    made = model(kind)
    onnx.save(made, full / "net.onnx")
    np.savez(full / "net.npz", x=np.ones((64, 64), kind), yes=np.array(True))
    run(full, bare)
    run(bare, filled, "--fill")
    run(bare, again, "--fill")
    assert (bare / "net.onnx").stat().st_size < SMALL < (filled / "net.onnx").stat().st_size
    assert (filled / "net.onnx").read_bytes() == (again / "net.onnx").read_bytes()
    with np.load(filled / "net.npz") as feed:
        (y,) = ort.InferenceSession(filled / "net.onnx", providers=["CPUExecutionProvider"]).run(None, dict(feed))
    assert np.isfinite(y).all() and y.astype(float).std() > 0
    graph = onnx.load(filled / "net.onnx").graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    values["v"] = numpy_helper.to_array(graph.node[0].attribute[0].t)
    branches = [tensor for branch in graph.node[-1].attribute for tensor in branch.g.initializer]
    values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in branches}
    for name, x in constants(kind).items():
        if name in ("w", "v"):  # other numbers of the same mean
            assert values[name].dtype == kind and values[name].shape == x.shape and (values[name] != x).any()
            np.testing.assert_allclose(values[name].mean(dtype=float), x.mean(dtype=float), rtol=0.1)
            assert values[name].min() >= x.min() and values[name].max() <= x.max()
        else:
            np.testing.assert_array_equal(values[name], x)
