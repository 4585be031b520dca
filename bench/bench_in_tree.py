#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times trained models and chains of small nodes here and on the CUDA provider of onnxruntime-gpu, in turn.

    bench/bench_in_tree.py --peer FOLDER [--only TEXT] [--seconds 1] [--repeats 2] [--name NAME]

FOLDER holds the package onnxruntime of an onnxruntime-gpu wheel. Each side is measured in processes of its own, one
after the other, `repeats` times; a figure is the least of its medians. Inputs and outputs are bound on the device.
Both round the factors of float products to TF32, their common default. `relative` is the norm of the difference from
the CPU provider. The results go to bench/results/in-tree-NAME.json.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import fetch_models  # noqa: E402
import machine  # noqa: E402
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402

PEER = "CUDAExecutionProvider"
SIDES = ("millpond", "in-tree")


def session_on(side, model, graph):
    options = {"enable_cuda_graph": "1"} if graph else {}
    if side == "millpond":
        return provider.session(model, provider_options=options)
    return ort.InferenceSession(model, provider.session_options(), providers=[(PEER, options), provider.CPU])


def measure(side, model, inputs, graph, seconds, expected):
    session = session_on(side, model, graph)
    binding, outputs = bench_models.bound(session, inputs)
    ms, _ = bench_models.median_ms(lambda: session.run_with_iobinding(binding), seconds)
    results = [output.numpy() for output in outputs]
    return {"ms": round(ms, 4), "relative": float(f"{bench_models.relative_norm(results, expected):.3e}")}


def child(args):
    """Measures one side; prints JSON as its last line."""
    if args.side == "in-tree" and PEER not in ort.get_available_providers():
        sys.exit(f"bench_in_tree: the onnxruntime in {args.peer} has no {PEER}; give the folder of an onnxruntime-gpu")
    found = bench_models.subjects(fetch_models.default_dir(), args.only)
    subjects = [(name, model, list(pairs)) for name, model, pairs in found]
    rows = []
    # Graphs last: a capture that fails leaves the peer's process without a working stream.
    for graph, (name, model, pairs) in itertools.product((False, True), subjects):
        reference = ort.InferenceSession(model, providers=[provider.CPU])
        for label, inputs in pairs:
            row = {"model": name, "label": label, "graph": graph}
            try:
                row |= measure(args.side, model, inputs, graph, args.seconds, reference.run(None, inputs))
            except Exception as error:  # what cannot be captured is a row, too
                row["error"] = " ".join(str(error).split())[-160:]
            rows.append(row)
            print(f"# {args.side} {row}", file=sys.stderr, flush=True)
    print(json.dumps({"onnxruntime": ort.__version__, "rows": rows}))


def run_side(args, side):
    env = dict(os.environ)
    if side == "in-tree":
        env["PYTHONPATH"] = os.pathsep.join([args.peer, *filter(None, [env.get("PYTHONPATH")])])
    command = [sys.executable, __file__, "--side", side, "--peer", args.peer, "--only", args.only,
               "--seconds", str(args.seconds)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def merged(rows, found, side):
    """Takes each figure of a side that is less than what is there."""
    for row in found["rows"]:
        key = row["model"], row["label"], row["graph"]
        kept = rows.setdefault(key, {"model": key[0], "label": key[1], "graph": key[2]})
        if side not in kept or row.get("ms", 0) < kept[side].get("ms", 0):
            kept[side] = {key: row[key] for key in ("ms", "relative", "error") if key in row}


def show(row):
    ours, theirs = (row[side] for side in SIDES)
    if "ms" in ours and "ms" in theirs:
        row["ratio"] = round(ours["ms"] / theirs["ms"], 3)
    figures = [f"{x['ms']:9.3f} {x['relative']:.0e}" if "ms" in x else f"{'-':>15s}" for x in (ours, theirs)]
    how = "graph" if row["graph"] else "plain"
    print(f"{row['model']:20s} {row['label']:24s} {how} {'  '.join(figures)}  {row.get('ratio', '')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="folder with the package onnxruntime of onnxruntime-gpu")
    parser.add_argument("--only", default="", help="only subjects whose name holds this; several with commas between")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each figure")
    parser.add_argument("--repeats", type=int, default=2, help="turns of each side")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return child(args)
    device = provider.register()[0]
    result = {**bench_models.setting(device), "command": machine.command("bench/bench_in_tree.py")}
    rows = {}
    for _ in range(args.repeats):
        for side in SIDES:
            found = run_side(args, side)
            merged(rows, found, side)
            if side == "in-tree":
                result["peer"] = f"onnxruntime-gpu {found['onnxruntime']}"
    print(f"{result['device']}: ms here and with {result['peer']}, each with its difference from the CPU; the ratio")
    for row in rows.values():
        show(row)
    result["rows"] = list(rows.values())
    target = args.out or ROOT / "bench/results" / f"in-tree-{args.name or machine.file_name(result['device'])}.json"
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {target}")
    return None


if __name__ == "__main__":
    main()
