# SPDX-License-Identifier: Apache-2.0
"""Tiny ONNX models, written without the package onnx, which not every machine has."""

import struct
from dataclasses import dataclass, field

import numpy as np

FLOAT, UINT8, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE, BFLOAT16 = 1, 2, 6, 7, 8, 9, 10, 11, 16
TYPES = {"float32": FLOAT, "uint8": UINT8, "int32": INT32, "int64": INT64, "bool": BOOL, "float16": FLOAT16,
         "float64": DOUBLE, "bfloat16": BFLOAT16}
IR_VERSION, OPSET = 9, 18


@dataclass
class Node:
    operator: str
    inputs: list
    outputs: list
    name: str = ""
    domain: str = ""
    attributes: dict = field(default_factory=dict)  # ints, floats, lists of them, bytes of graphs, arrays


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(key, value):
    return varint(key << 3) + varint(value)


def block(key, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(key << 3 | 2) + varint(len(data)) + data


def attribute(name, value):
    head = block(1, name)
    if isinstance(value, float):
        return head + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, np.ndarray):
        return head + block(5, tensor_bytes("", value)) + number(20, 4)
    if isinstance(value, bytes):
        return head + block(6, value) + number(20, 5)
    if isinstance(value, int):
        return head + number(3, value) + number(20, 2)
    if all(isinstance(each, float) for each in value):
        return head + b"".join(varint(7 << 3 | 5) + struct.pack("<f", each) for each in value) + number(20, 6)
    return head + b"".join(number(8, each) for each in value) + number(20, 7)


def node_bytes(node):
    return (b"".join(block(1, name) for name in node.inputs) + b"".join(block(2, name) for name in node.outputs)
            + block(3, node.name) + block(4, node.operator) + block(7, node.domain)
            + b"".join(block(5, attribute(*item)) for item in node.attributes.items()))


def value_bytes(name, kind, shape):
    sizes = b"".join(block(1, number(1, size) if isinstance(size, int) else block(2, size)) for size in shape)
    return block(1, name) + block(2, block(1, number(1, kind) + block(2, sizes)))


def tensor_bytes(name, array):
    array = np.asarray(array)
    sizes = b"".join(number(1, size) for size in array.shape)
    return sizes + number(2, TYPES[array.dtype.name]) + block(8, name) + block(9, array.tobytes())


def graph_bytes(nodes, inputs, outputs, constants=()):
    """`inputs` and `outputs` are {name: (type, shape)}; a shape alone is of floats."""
    def typed(item):
        name, given = item
        kind, shape = given if isinstance(given, tuple) else (FLOAT, given)
        return value_bytes(name, kind, shape)

    return (b"".join(block(1, node_bytes(node)) for node in nodes) + block(2, "small")
            + b"".join(block(5, tensor_bytes(*item)) for item in dict(constants).items())
            + b"".join(block(11, typed(item)) for item in inputs.items())
            + b"".join(block(12, typed(item)) for item in outputs.items()))


def model(nodes, inputs, outputs, constants=(), opset=OPSET, domains=()):
    opsets = block(8, block(1, "") + number(2, opset))
    opsets += b"".join(block(8, block(1, domain) + number(2, 1)) for domain in domains)
    return number(1, IR_VERSION) + block(7, graph_bytes(nodes, inputs, outputs, constants)) + opsets


# ---- models that several tests use ----


def add_one(shape=(4,)):
    """y = x + 1"""
    node = Node("Add", ["x", "one"], ["y"], "add")
    return model([node], {"x": list(shape)}, {"y": list(shape)}, {"one": np.ones(1, np.float32)})


def relay(kind, shape=(4,)):
    """y = x and once more, for types that no arithmetic is for."""
    nodes = [Node("Reshape", ["x", "flat"], ["t"], "flatten"), Node("Expand", ["t", "size"], ["y"], "expand")]
    count = int(np.prod(shape))
    constants = {"flat": np.array([count]), "size": np.array([1, count])}
    return model(nodes, {"x": (kind, shape)}, {"y": (kind, [1, count])}, constants)


def mixed():
    """On the device but for LinearRegressor, which no GPU provider has."""
    generator = np.random.default_rng(7)
    constants = {"w": generator.standard_normal((16, 8)).astype(np.float32)}
    nodes = [Node("MatMul", ["x", "w"], ["h"], "product"), Node("Softmax", ["h"], ["p"], "softmax"),
             Node("LinearRegressor", ["q"], ["d"], "regression", "ai.onnx.ml",
                  {"coefficients": [0.5, -1.5, 2.0, 1.0]}),
             Node("Add", ["p", "d"], ["y"], "sum")]
    return model(nodes, {"x": ["n", 16], "q": [1, 4]}, {"y": ["n", 8]}, constants, domains=["ai.onnx.ml"])


def mixed_feed(rows, seed=0):
    generator = np.random.default_rng(seed)
    return {"x": generator.standard_normal((rows, 16)).astype(np.float32),
            "q": generator.standard_normal((1, 4)).astype(np.float32)}
