#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A session whose runs are captured into graphs: one for each size of batch, and what a run costs with and without.

Runs anywhere; without a GPU on the emulated device. Needs the packages onnxruntime and onnx.
"""

import time

import millpond.onnxruntime as mort
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

STEPS, WIDTH = 100, 64


def make_model():
    """y = x + 1 + 1 ...: many small nodes, which cost more to launch than to run"""
    names = ["x"] + [f"t{i}" for i in range(STEPS - 1)] + ["y"]
    nodes = [helper.make_node("Add", [a, "one"], [b]) for a, b in zip(names, names[1:], strict=False)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDTH]) for name in "xy"]
    one = numpy_helper.from_array(np.ones(WIDTH, np.float32), "one")
    graph = helper.make_graph(nodes, "example", ends[:1], ends[1:], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


class Batch:
    """Inputs and outputs at fixed addresses, and the graph that reads and writes there."""

    def __init__(self, session, rows, graph):
        empty = np.zeros((rows, WIDTH), np.float32)
        self.x, self.y = (ort.OrtValue.ortvalue_from_numpy(empty, "cuda", 0) for _ in range(2))
        self.session, self.binding, self.options = session, session.io_binding(), ort.RunOptions()
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_output("y", self.y)
        self.options.add_run_config_entry("gpu_graph_id", str(graph))

    def launch(self):
        self.session.run_with_iobinding(self.binding, self.options)

    def run(self, x):
        self.x.update_inplace(x)  # the same memory, with new contents
        self.launch()
        return self.y.numpy()


def milliseconds(batch):
    times = []
    for _ in range(50):
        start = time.perf_counter()
        batch.launch()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)[len(times) // 2]


def main():
    session = mort.session(make_model(), options={"enable_cuda_graph": True})
    for rows in (1, 8):
        batch = Batch(session, rows, graph=rows)  # one graph for each shape
        for value in range(5):  # the first run captures, the others launch
            x = np.full((rows, WIDTH), value, np.float32)
            assert np.array_equal(batch.run(x), x + STEPS)
        nodes = Batch(session, rows, graph=-1)  # never captured
        print(f"{rows} rows: {milliseconds(batch):.3f} ms with a graph, {milliseconds(nodes):.3f} ms node by node")


if __name__ == "__main__":
    main()
