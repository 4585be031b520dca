#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrays of CuPy, Numba and PyTorch into a session and out of it, without a copy, all in memory of one pool.

Uses those of the three libraries that are installed, and needs a GPU. Needs the packages onnxruntime and onnx.
"""

import importlib.util

import millpond
import millpond.onnxruntime as mort
import numpy as np
from onnx import TensorProto, helper

ROWS = 1000


def make_model():
    """y = 2 x"""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "example", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def with_cupy(session, host):
    import cupy
    import millpond.cupy

    millpond.cupy.install()
    y = mort.run(session, {"x": cupy.asarray(host)})["y"]
    return cupy.asnumpy(cupy.asarray(y))  # cupy.asarray shares the memory, asnumpy copies it to the host


def with_numba(session, host):
    import millpond.numba
    from numba import cuda

    millpond.numba.use()
    x, y = cuda.to_device(host), cuda.device_array_like(host)
    mort.run(session, {"x": x}, {"y": y})  # into an array of Numba's
    return y.copy_to_host()


def with_torch(session, host):
    import millpond.torch
    import torch

    millpond.torch.install()
    y = torch.from_dlpack(mort.run(session, {"x": torch.from_numpy(host).cuda()})["y"])
    return y.cpu().numpy()


def main():
    try:
        pool = millpond.Pool("cuda:0", client="example")
    except millpond.Error as error:
        print(f"no GPU here: {error}")
        return
    session = mort.session(make_model())
    host = np.arange(ROWS, dtype=np.float32)
    for name, use in (("numba", with_numba), ("cupy", with_cupy), ("torch", with_torch)):
        if importlib.util.find_spec(name) is not None:
            assert (use(session, host) == 2 * host).all()
    print({share["name"]: share["allocs"] for share in pool.clients()})


if __name__ == "__main__":
    main()
