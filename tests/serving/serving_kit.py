# SPDX-License-Identifier: Apache-2.0
"""Tiny models that the tests of serving share."""

import numpy as np
import onnx_kit
from onnx_kit import Node


def affine(factor, offset=0, source="x", target="y"):
    """y = factor x + offset, for rows of four."""
    nodes = [Node("Mul", [source, "factor"], ["t"], "scale"), Node("Add", ["t", "offset"], [target], "shift")]
    constants = {"factor": np.full(1, factor, np.float32), "offset": np.full(1, offset, np.float32)}
    return onnx_kit.model(nodes, {source: ["n", 4]}, {target: ["n", 4]}, constants)


def pair():
    """The sum and the difference of two."""
    nodes = [Node("Add", ["x", "z"], ["sum"], "sum"), Node("Sub", ["x", "z"], ["difference"], "difference")]
    return onnx_kit.model(nodes, {"x": ["n", 4], "z": ["n", 4]}, {"sum": ["n", 4], "difference": ["n", 4]})


def fixed():
    """y = x + 1 for two rows, no more and no less."""
    return onnx_kit.add_one((2, 4))
