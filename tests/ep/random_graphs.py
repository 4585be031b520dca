#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random graphs on our EP against ONNX Runtime's CPU EP: orders, aliases and memory reuse that no model has.

random_graphs.py FIRST LAST     tries the seeds FIRST to LAST; exit status 1 and the seed at the first difference
"""

import sys

import numpy as np
import onnxruntime as ort
import provider
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 18, 9
BATCHES = (3, 5, 1, 3)  # the first dimension of the inputs in successive runs of a session
WIDTHS = (1, 4, 7)
NODES_MIN, NODES_MAX = 8, 30
UNARY = ("Relu", "Sigmoid", "Tanh", "Sin", "Cos", "Neg", "Abs", "Erf")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCE = ("Sum", "Mean", "Max", "Min", "L1", "L2", "LogSumExp")


class Builder:
    """Grows a graph over values of shape [n, a, b]; n is not known before a run."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.values = [], [], {}
        for name in ("x0", "x1"):
            self.values[name] = (int(self.random.choice(WIDTHS[1:])), int(self.random.choice(WIDTHS[1:])))
        self.inputs = dict(self.values)

    def pick(self, among):
        return among[int(self.random.integers(len(among)))]

    def any_value(self):
        """Recent values are taken more often, so that chains grow long."""
        names = list(self.values)
        return self.pick(names[-4:] if self.random.random() < 0.7 else names)

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def emit(self, op, inputs, shape, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        for name in names:
            self.values[name] = shape
        return names

    def unary(self, x, a, b):
        self.emit(self.pick(UNARY), [x], (a, b))

    def binary(self, x, a, b):
        fitting = [y for y, (c, d) in self.values.items() if c in (a, 1) and d in (b, 1)]
        pair = [x, self.pick(fitting)]
        self.emit(self.pick(BINARY), pair if self.random.random() < 0.5 else pair[::-1], (a, b))

    def reduce(self, x, a, b):
        axes = self.pick([[1], [2], [2], [-1], [1, 2]])
        shape = (1 if 1 in axes else a, b if axes == [1] else 1)
        axes = [x, self.weight(np.array(axes))]
        if self.random.random() < 0.3:  # dimensions go, and come back
            [dropped] = self.emit(f"Reduce{self.pick(REDUCE)}", axes, None, keepdims=0)
            [dropped], made = self.emit("Tanh", [dropped], None), dropped
            del self.values[dropped], self.values[made]
            self.emit("Unsqueeze", [dropped, axes[1]], shape)
        else:
            self.emit(f"Reduce{self.pick(REDUCE)}", axes, shape, keepdims=1)

    def norm(self, x, a, b):
        axes, tiny = self.weight(np.array(self.pick([[2], [1, 2]]))), self.weight(np.float32(0.1))
        [mean] = self.emit("ReduceMean", [x, axes], None)
        [off] = self.emit("Sub", [x, mean], (a, b))
        [square] = self.emit("Mul", [off, off], (a, b))
        [variance] = self.emit("ReduceMean", [square, axes], None)
        [moved] = self.emit("Add", [variance, tiny], None)
        [root] = self.emit("Sqrt", [moved], None)
        for name in (mean, variance, moved, root):
            del self.values[name]
        self.emit("Div", [off, root], (a, b))

    def product(self, x, a, b):
        width = self.pick(WIDTHS)
        weight = self.random.standard_normal((b, width)).astype(np.float32) / np.float32(b**0.5)
        self.emit("MatMul", [x, self.weight(weight)], (a, width))

    def transpose(self, x, a, b):
        self.emit("Transpose", [x], (b, a), perm=[0, 2, 1])

    def softmax(self, x, a, b):
        self.emit("Softmax", [x], (a, b), axis=self.pick([1, 2, -1]))

    def reshape(self, x, a, b):
        self.emit("Reshape", [x, self.weight(np.array([0, b, a]))], (b, a))

    def concat(self, x, a, b):
        partners = [y for y, shape in self.values.items() if shape[0] == a]
        y = self.pick(partners)
        if b + self.values[y][1] <= 16:
            self.emit("Concat", [x, y], (a, b + self.values[y][1]), axis=2)

    def cut(self, x, a, b):
        if b > 1:
            end = int(self.random.integers(1, b))
            bounds = [self.weight(np.array([value])) for value in (0, end, 2)]
            self.emit("Slice", [x, *bounds], (a, end))

    def split(self, x, a, b):
        if b % 2 == 0:
            self.emit("Split", [x], (a, b // 2), outputs=2, axis=2, num_outputs=2)

    def gather(self, x, a, b):
        rows = self.random.integers(-a, a, int(self.random.integers(1, 5)))
        self.emit("Gather", [x, self.weight(rows)], (len(rows), b), axis=1)

    def where(self, x, a, b):
        [mask] = self.emit("Greater", [x, self.weight(np.float32(0))], None)
        del self.values[mask]
        fitting = [y for y, shape in self.values.items() if shape == (a, b)]
        self.emit("Where", [mask, x, self.pick(fitting)], (a, b))

    def grow(self):
        steps = (self.unary, self.binary, self.binary, self.reduce, self.norm, self.product, self.transpose)
        steps += (self.softmax, self.reshape, self.concat, self.cut, self.split, self.gather, self.where)
        for _ in range(int(self.random.integers(NODES_MIN, NODES_MAX))):
            x = self.any_value()
            self.pick(steps)(x, *self.values[x])

    def model(self):
        self.grow()
        used = {name for node in self.nodes for name in node.input}
        made = [name for name in self.values if name not in self.inputs]
        outputs = [name for name in made if name not in used or self.random.random() < 0.15]
        info = helper.make_tensor_value_info
        ends = [
            [info(name, TensorProto.FLOAT, ["n", *self.values[name]]) for name in names]
            for names in (self.inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, "random", *ends, self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()

    def feed(self, batch):
        return {
            name: self.random.standard_normal((batch, *shape)).astype(np.float32) for name, shape in self.inputs.items()
        }


def compare(seed):
    """None, or how the outputs of the graph of this seed differ."""
    builder = Builder(seed)
    model = builder.model()
    cpu = ort.InferenceSession(model, provider.session_options(threads=1, log_level=4), providers=[provider.CPU])
    ours = provider.session(
        model, provider_options={"use_tf32": "0"}, options=provider.session_options(threads=1, log_level=3)
    )
    names = [output.name for output in cpu.get_outputs()]
    for batch in BATCHES:
        feed = builder.feed(batch)
        pairs = zip(names, ours.run(names, feed), cpu.run(names, feed), strict=True)
        for name, result, want in pairs:
            if result.shape != want.shape or not np.allclose(result, want, 1e-4, 1e-4):
                gap = np.abs(result - want).max() if result.shape == want.shape else f"{result.shape}, not {want.shape}"
                return f"seed {seed}, batch {batch}, output {name}: off by {gap}"
    return None


def main():
    first, last = map(int, sys.argv[1:3])
    for seed in range(first, last + 1):
        fault = compare(seed)
        if fault:
            sys.exit(fault)


if __name__ == "__main__":
    main()
