# SPDX-License-Identifier: Apache-2.0
"""Models for the tests of `millpond shard`: an encoder's layer with attention of several kinds, and those that
tests/genai has."""

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/genai")]

import tiny_models  # noqa: E402

HOST = {"MILLPOND_DEVICE": "host"}
BATCH, STEPS, HIDDEN, HEADS, INNER = 2, 7, 32, 4, 48
ARCHITECTURES = {each.name: each for each in tiny_models.ARCHITECTURES}


def model_of(nodes, weights, inputs, outputs):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "encoder", [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def weights_of(seed=5, **shapes):
    random = np.random.default_rng(seed)
    return {name: (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
            for name, shape in shapes.items()}


def encoder(kind):
    """A layer: attention by ONNX Runtime's operators or by plain ones, then two products as Gemm or MatMul."""
    node = helper.make_node
    weights = weights_of(q=(HIDDEN, HIDDEN), k=(HIDDEN, HIDDEN), v=(HIDDEN, HIDDEN), qkv=(HIDDEN, 3 * HIDDEN),
                         qkv_bias=(3 * HIDDEN,), o=(HIDDEN, HIDDEN), o_bias=(HIDDEN,), up=(INNER, HIDDEN),
                         up_bias=(INNER,), down=(HIDDEN, INNER), down_bias=(HIDDEN,), norm=(HIDDEN,))
    weights["rows"] = np.array([-1, HIDDEN])
    weights["five"] = np.array([0, 0, 3, HEADS, HIDDEN // HEADS])
    weights["three"] = np.array([0, 0, HIDDEN])
    weights |= {name: np.array(i) for i, name in enumerate(("first", "second", "third"))}
    ms = {"domain": "com.microsoft"}
    attention = {
        "heads": [
            *(node("MatMul", ["x", name], [f"{name}_x"], f"{name}_proj") for name in "qkv"),
            node("MultiHeadAttention", ["q_x", "k_x", "v_x", "qkv_bias"], ["mixed"], "mha", num_heads=HEADS, **ms)],
        "projected": [
            node("Attention", ["x", "qkv", "qkv_bias"], ["mixed"], "attention", num_heads=HEADS, **ms)],
        "plain": [
            node("MatMul", ["x", "qkv"], ["qkv_0"], "qkv_proj"), node("Add", ["qkv_0", "qkv_bias"], ["qkv_1"]),
            node("Reshape", ["qkv_1", "five"], ["qkv_2"]),
            node("Transpose", ["qkv_2"], ["qkv_3"], perm=[2, 0, 3, 1, 4]),
            *(node("Gather", ["qkv_3", which], [name], axis=0)
              for which, name in zip(("first", "second", "third"), ("qh", "kh", "vh"), strict=True)),
            node("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["qh", "kt"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=-1), node("MatMul", ["shares", "vh"], ["mixed_0"]),
            node("Transpose", ["mixed_0"], ["mixed_1"], perm=[0, 2, 1, 3]),
            node("Reshape", ["mixed_1", "three"], ["mixed"])],
    }[kind]
    nodes = [
        *attention, node("MatMul", ["mixed", "o"], ["o_0"], "o_proj"), node("Add", ["o_0", "o_bias"], ["o_1"]),
        node("Add", ["x", "o_1"], ["r"]), node("LayerNormalization", ["r", "norm"], ["n"]),
        node("Reshape", ["n", "rows"], ["flat"]), node("Gemm", ["flat", "up", "up_bias"], ["u"], "up", transB=1),
        node("Gelu", ["u"], ["g"]), node("Gemm", ["g", "down", "down_bias"], ["y"], "down", transB=1)]
    return model_of(nodes, weights, {"x": ["batch", "seq", HIDDEN]}, {"y": None})


def decoder(folder, name, int4=False):
    """Writes a decoder as onnxruntime-genai's builder does; gives its path."""
    folder = tiny_models.write(folder, ARCHITECTURES[name], "float16" if int4 else "float32", int4, not int4)
    return folder / "model.onnx"
