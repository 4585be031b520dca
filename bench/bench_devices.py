#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times batches on one device and shared out over several: millpond.onnxruntime.session(model, devices=...).

    bench_devices.py [--devices all] [--rows 64,256] [--repeats 20] [--width 4096] [--layers 8] [--out FILE] [MODEL]

MODEL is a file whose inputs are float32 and have a batch; by default a net of products and activations is made, of
--layers layers of --width. Reports the median time of a run with arrays of the host, by number of devices, and how many
times as many rows a second that is as one device does. On the emulated device all share the processor's cores, so that
only the overhead shows.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import machine  # noqa: E402  (beside this file)
import millpond.onnxruntime as mort  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402


def net(width, layers):
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        weight = (rng.standard_normal((width, width)) / width).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        out = "y" if i == layers - 1 else f"a{i}"
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"p{i}"]), helper.make_node("Relu", [f"p{i}"], [out])]
        last = out
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width])] for name in "xy"]
    graph = helper.make_graph(nodes, "net", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def feed(inputs, batch, rows):
    rng = np.random.default_rng(1)
    shapes = {one.name: [rows if dim == batch else dim if isinstance(dim, int) else 1 for dim in one.shape]
              for one in inputs}  # fmt: skip
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def timed(run, feeds, repeats):
    for _ in range(3):
        run(None, feeds)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(None, feeds)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", default="all", help='"all", or names separated by commas')
    parser.add_argument("--rows", default="64,256,1024")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--out", type=Path, help="write JSON there")
    parser.add_argument("model", nargs="?", metavar="MODEL")
    args = parser.parse_args()
    model = args.model or net(args.width, args.layers)
    found = mort.devices() if args.devices == "all" else args.devices.split(",")
    rows = []
    for count in range(1, len(found) + 1):
        with mort.session(model, devices=found[:count]) as session:
            for batch in map(int, args.rows.split(",")):
                took = timed(session.run, feed(session.get_inputs(), session.batch, batch), args.repeats)
                rows.append({"devices": count, "rows": batch, "ms": round(took, 3)})
                base = next(row["ms"] for row in rows if row["rows"] == batch)
                print(f"{count} devices, {batch:6d} rows: {took:9.3f} ms, {base / took:5.2f} x", flush=True)
    if args.out:
        about = {"when": machine.now(), "commit": machine.commit(), "cpu": machine.cpu(), "runtime": ort.__version__,
                 "devices": [each.name for each in mort.devices()], "environment": machine.environment()}  # fmt: skip
        args.out.write_text(json.dumps({**about, "results": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
