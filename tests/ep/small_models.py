# SPDX-License-Identifier: Apache-2.0
"""Tiny models for the tests of the provider itself."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 18, 9


def model(nodes, inputs, outputs, constants=(), opset=OPSET):
    """Bytes of a float model; `inputs` and `outputs` are {name: shape}."""
    info = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()]
        for values in (inputs, outputs)
    ]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()]
    graph = helper.make_graph(nodes, "small", *info, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()


def add_chain(length, count=4):
    """y = x + 1 + 1 ..., `length` times; each Add has a one of its own so that none can be merged away."""
    nodes, last = [], "x"
    for i in range(length):
        out = "y" if i == length - 1 else f"t{i}"
        nodes.append(helper.make_node("Add", [last, "one"], [out], name=f"add{i}"))
        last = out
    return model(nodes, {"x": [count]}, {"y": [count]}, {"one": np.ones(count, np.float32)})


def mixed():
    """MatMul, a bias, a softmax and an operator that no GPU provider has."""
    generator = np.random.default_rng(7)
    weights = {
        "w": generator.standard_normal((16, 8)).astype(np.float32),
        "b": generator.standard_normal(8).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Add", ["h", "b"], ["s"], name="bias"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax", axis=-1),
        helper.make_node(
            "LinearRegressor", ["q"], ["d"], name="regression", domain="ai.onnx.ml", coefficients=[0.5, -1.5, 2.0, 1.0]
        ),
        helper.make_node("Add", ["p", "d"], ["y"], name="sum"),
    ]
    return model(nodes, {"x": ["n", 16], "q": [1, 4]}, {"y": ["n", 8]}, weights)


def mixed_feed(rows, seed=0):
    generator = np.random.default_rng(seed)
    return {
        "x": generator.standard_normal((rows, 16)).astype(np.float32),
        "q": generator.standard_normal((1, 4)).astype(np.float32),
    }
