#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ray Serve: two models on one pool in each replica, by handle and by HTTP, one of them replaced while it serves.

Runs anywhere; without a GPU on the emulated device. Needs the packages ray[serve], onnxruntime and onnx.
"""

import json
import os
import tempfile
import urllib.request

import millpond
import millpond.ray_serve
import numpy as np
import ray
from onnx import TensorProto, helper, save
from ray import serve

app = serve.deployment(millpond.ray_serve.Predictor).bind()  # what ray_serve.yaml names


def make_model(factor, path):
    """y = factor x"""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in "xy"]
    constant = helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "factor"], ["y"])], "example", ends[:1], ends[1:],
                              [constant])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def main():
    gpus = 0 if millpond.Pool().is_emulated else 0.5
    ray.init(include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        models = {f"times_{n}": make_model(n, os.path.join(folder, f"{n}.onnx")) for n in (2, 3)}
        deployment = serve.deployment(
            millpond.ray_serve.Predictor, num_replicas=1, max_ongoing_requests=32, max_queued_requests=128,
            ray_actor_options={"num_cpus": 0.5, "num_gpus": gpus}, user_config={"models": models})
        handle = serve.run(deployment.bind(), route_prefix="/")

        x = np.ones((2, 4), np.float32)
        print(handle.infer.remote("times_3", {"x": x}).result()["y"][0])

        body = {"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": x.ravel().tolist()}]}
        request = urllib.request.Request("http://127.0.0.1:8000/v2/models/times_2/infer", json.dumps(body).encode())
        print(json.load(urllib.request.urlopen(request))["outputs"][0]["data"])

        models["times_2"] = make_model(20, os.path.join(folder, "20.onnx"))
        handle = serve.run(deployment.options(user_config={"models": models}).bind(), route_prefix="/")
        print(handle.infer.remote("times_2", {"x": x}).result()["y"][0])
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
