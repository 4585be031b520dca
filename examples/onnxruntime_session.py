#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A session on the pool: where its nodes run, and outputs that stay on the device and feed the next run.

Runs anywhere; without a GPU on the emulated device. Needs the packages onnxruntime and onnx.
"""

import millpond
import millpond.onnxruntime as mort
import numpy as np
from onnx import TensorProto, helper


def make_model():
    """y = softmax(relu(x))"""
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 1000]) for name in "xy"]
    graph = helper.make_graph(nodes, "example", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def main():
    session = mort.session(make_model())
    print(f"on {mort.devices()[0].name}: {mort.placement(session).counts}")

    x = np.random.default_rng(0).standard_normal((64, 1000), np.float32)
    first = mort.run(session, {"x": x})["y"]  # a DeviceArray: the output stays on the device
    second = mort.run(session, {"x": first})["y"]  # no copy

    pool = millpond.Pool(client="example")
    block = pool.alloc(second.nbytes)  # memory of our own for the output
    target = mort.as_ortvalue(block, dtype="float32", shape=second.shape)
    mort.run(session, {"x": first}, {"y": target})

    assert np.array_equal(mort.as_array(target).numpy(), second.numpy())
    print({share["name"]: share["requested"] for share in pool.clients()})


if __name__ == "__main__":
    main()
