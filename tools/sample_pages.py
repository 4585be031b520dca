#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes one of each page that Millpond makes for a browser, so that it can be looked at: a trace, and what
`millpond explain` and `millpond profile` draw.

    sample_pages.py FOLDER

Needs the package millpond of a build, ONNX Runtime and onnx.
"""

import subprocess
import sys
from pathlib import Path

SHAPE = [64, 1000]


def make_model(path):
    """y = softmax(relu(x))"""
    import onnx
    from onnx import helper

    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SHAPE) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "example", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: sample_pages.py FOLDER")
    import millpond
    import millpond.onnxruntime as mort
    import numpy as np

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model.onnx"
    make_model(model)
    pool = millpond.Pool(client="example")
    pool.trace(10000)
    session = mort.session(str(model))
    kept = [mort.run(session, {"x": np.zeros(SHAPE, np.float32)})["y"], pool.alloc(1 << 20)]
    pool.write_trace(folder / "trace.html")
    del kept
    for command in ("explain", "profile"):
        subprocess.run([sys.executable, "-m", "millpond", command, model, "--html", folder / f"{command}.html"],
                       check=True, stdout=subprocess.DEVNULL)
    print(f"sample_pages: {folder}")


if __name__ == "__main__":
    main()
