#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times sessions that are made, and shapes that come for the first time: islands beside node by node.

    bench_shapes.py [--only TEXT] [--lengths 24,56,72,88,104,120] [--repeats 5] [--bert] [--out FILE]

Subjects are the encoders of the corpus whose inputs are tokens (minilm) and, with --bert, BERT-base with random weights
in float16 (torch and transformers must be there). `session_ms` is the median time of making a session, kernels being
in the cache. `new_ms` is what the first run of a length takes beyond its fourth, the median over the lengths: planning,
choosing kernels and algorithms of the libraries' products. The results go to bench/results/shapes-NAME.json.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import fetch_models  # noqa: E402
import machine  # noqa: E402
import nets  # noqa: E402
import provider  # noqa: E402

WAYS = {"nodes": {"fusion": "0"}, "islands": {}}


def bert(folder):
    """BERT-base whose tokens may be as many as one likes."""
    import torch

    net, given = nets.encoder("Bert")
    path = Path(folder, "bert.onnx")
    axes = {"ids": {1: "n"}, "mask": {1: "n"}, "y": {1: "n"}}
    torch.onnx.export(net.eval().half(), tuple(given), str(path), dynamo=False, input_names=["ids", "mask"],
                      output_names=["y"], dynamic_axes=axes)
    return str(path)


def feed_of(session, length):
    inputs = session.get_inputs()
    return {one.name: np.ones((1, length), np.int64) for one in inputs}


def timed(run):
    began = time.perf_counter()
    result = run()
    return (time.perf_counter() - began) * 1e3, result


def row_of(model, way, lengths, repeats):
    made = [timed(lambda: provider.session(model, provider_options=WAYS[way])) for _ in range(repeats + 1)]
    session = made[-1][1]
    session.run(None, feed_of(session, 16))
    beyond = []
    for length in lengths:
        times = [timed(lambda n=length: session.run(None, feed_of(session, n)))[0] for _ in range(4)]
        beyond.append(times[0] - times[-1])
    return {"way": way, "session_ms": round(statistics.median(ms for ms, _ in made[1:]), 2),
            "new_ms": round(statistics.median(beyond), 2), "new_most_ms": round(max(beyond), 2)}


def subjects(only, folder, with_bert):
    path = fetch_models.default_dir() / "models" / "minilm_l6_int8w.onnx"
    if only in "minilm" and path.exists():
        yield "minilm", str(path)
    if with_bert:
        yield "bert_f16", bert(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only subjects of the corpus whose name holds this")
    parser.add_argument("--lengths", default="24,56,72,88,104,120", help="tokens of the runs, each new")
    parser.add_argument("--repeats", type=int, default=5, help="sessions made of each")
    parser.add_argument("--bert", action="store_true", help="BERT-base, too")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    given = parser.parse_args()
    device = provider.register()[0]
    result = {**bench_models.setting(device), "command": machine.command("bench/bench_shapes.py"), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in subjects(given.only, folder, given.bert):
            for way in WAYS:
                row = {"model": name, **row_of(model, way, list(map(int, given.lengths.split(","))), given.repeats)}
                result["rows"].append(row)
                print(row, flush=True)
    if not result["rows"]:
        sys.exit("bench_shapes: nothing to measure; fetch the models, or give --bert")
    machine.save(result, f"shapes-{machine.file_name(result['device'])}", given.out)


if __name__ == "__main__":
    main()
