#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ratios beside a peer, both measured in one run on one machine, with the most that bench/gates.tsv allows.

    bench/gate.py [--build build/dev] [--seconds 0.3] [--repeats 5] [--peer FOLDER]   measures, then judges
    bench/gate.py [--pool FILE] [--in-tree FILE]                                      judges results that there are

A ratio is our time over the peer's, so less is better; of a figure where more is better it is turned round. Kinds:
`models`, chains and layers here beside ONNX Runtime's CPU provider, in turn; `pool`, rows of bench_pool.py beside one
of its allocators; `in-tree`, rows of bench_in_tree.py (measured with --peer, the folder of an onnxruntime-gpu) or their
geometric mean. Each gate is for an emulated device or for a GPU. A gate that is missed, or for which a run of its kind
has no figure, is a sentence on stderr; the exit status is 1 where there is one. Times on their own are no gates: they
would be those of a machine.
"""

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("bench", "demo", "tests/models", "tests/ep", "tools")]

from pool_table import METRICS  # noqa: E402  (beside this file)

GATES = ROOT / "bench/gates.tsv"
KINDS = ("models", "pool", "in-tree")
MEAN = "geometric mean"


@dataclass(frozen=True)
class Gate:
    kind: str
    device: str  # emulated or gpu
    peer: str
    subject: str
    most: float

    @property
    def key(self):
        return self.kind, self.device, self.peer, self.subject


def read_gates(path=GATES):
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t")
        gates = [Gate(row["kind"], row["device"], row["peer"], row["subject"], float(row["most"])) for row in rows]
    for gate in gates:
        if gate.kind not in KINDS or gate.device not in ("emulated", "gpu") or not gate.most > 0:
            sys.exit(f"gate: {path.name} has a row that is no gate: {gate}")
    return gates


# ---- figures: {(kind, device, peer, subject): ratio} ----


def device_word(emulated):
    return "emulated" if emulated else "gpu"


def pool_figures(result):
    """Of a file of bench_pool.py. A figure that is marked is no measure."""
    found = {}
    for row in result["rows"]:
        ours = row["values"].get("millpond")
        for peer, values in row["values"].items():
            if ours is None or peer == "millpond" or {"millpond", peer} & set(row["marks"]):
                continue
            above, below = (values, ours) if METRICS[row["metric"]][2] else (ours, values)
            if below[0] > 0:
                subject = f"{row['case']}, {row['row']}, {row['metric']}"
                found["pool", device_word(result["emulated"]), peer, subject] = above[0] / below[0]
    return found


def in_tree_figures(result):
    """Of a file of bench_in_tree.py: each row beside the peer's best way, and the mean of all rows."""
    device = device_word(result["emulated"])
    ratios = {f"{row['model']}, {row['label']}".removesuffix(", "): row["ratio"]
              for row in result["rows"] if "ratio" in row}
    if ratios:
        ratios[MEAN] = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    return {("in-tree", device, "in-tree", subject): ratio for subject, ratio in ratios.items()}


def layers(width=256, rows=64, count=4):
    """Products with a bias and a Relu each."""
    import numpy as np
    import small_models
    from onnx import helper

    generator = np.random.default_rng(3)
    nodes, weights = [], {}
    for i in range(count):
        weights[f"w{i}"] = (generator.standard_normal((width, width)) / 16).astype(np.float32)
        weights[f"b{i}"] = generator.standard_normal(width).astype(np.float32)
        last, out = f"x{i}" if i else "x", f"x{i + 1}" if i + 1 < count else "y"
        nodes += [helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"g{i}"]),
                  helper.make_node("Relu", [f"g{i}"], [out])]
    model = small_models.model(nodes, {"x": [rows, width]}, {"y": [rows, width]}, weights)
    return model, {"x": generator.standard_normal((rows, width)).astype(np.float32)}


def model_figures(seconds, repeats):
    """Ours and the CPU provider in turn; of each the least of its medians."""
    import bench_models
    import fetch_models
    import provider

    device = device_word(provider.is_emulated(provider.register()[0]))
    subjects = [(name, model, inputs) for name, model, pairs in
                bench_models.subjects(fetch_models.default_dir(), "add_chain") for _, inputs in pairs]
    subjects.append(("layers", *layers()))
    found = {}
    for name, model, inputs in subjects:
        session, cpu = provider.session(model), provider.session(model, provider.CPU)
        binding, _ = bench_models.bound(session, inputs)
        runs = (lambda on=session, to=binding: on.run_with_iobinding(to),
                lambda on=cpu, given=inputs: on.run(None, given))
        ms = [min(times) for times in zip(*(
            [bench_models.median_ms(run, seconds)[0] for run in runs] for _ in range(repeats)), strict=True)]
        found["models", device, "cpu", name] = ms[0] / ms[1]
    return found


def result_of(script, *options):
    """What a benchmark writes, measured now."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "result.json"
        done = subprocess.run([sys.executable, ROOT / "bench" / script, *map(str, options), "--out", target],
                              stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"gate: {script} ended with {done.returncode}; what it wrote is above")
        return json.loads(target.read_text(encoding="utf-8"))


def measure(args, gates):
    found = model_figures(args.seconds, args.repeats)
    device = next(iter(found))[1]
    cases = {gate.subject.partition(",")[0] for gate in gates if gate.kind == "pool" and gate.device == device}
    if cases:
        found |= pool_figures(result_of(
            "bench_pool.py", "--build", args.build, "--stage", "host" if device == "emulated" else "cuda",
            "--repeats", args.repeats, "--cases", ",".join(sorted(cases)), "--no-python"))
    if args.peer:
        found |= in_tree_figures(result_of("bench_in_tree.py", "--peer", args.peer))
    return found


# ---- judging ----


def judge(gates, figures):
    """(a line for each gate that was looked at, a sentence for each that was missed)."""
    looked_at = {key[:2] for key in figures}
    lines, missed = [], []
    for gate in gates:
        if (gate.kind, gate.device) not in looked_at:
            continue
        ratio = figures.get(gate.key)
        where = f"{gate.kind}, {gate.subject}, beside {gate.peer}"
        if ratio is None:
            missed.append(f"{where}: this run has no figure for it; correct the row of the table, or see why it failed")
        elif ratio > gate.most:
            missed.append(f"{where}: {ratio:.3g} times the peer's time, and {gate.most:g} is the most")
        lines.append(f"{'-' if ratio is None else format(ratio, '.3g'):>8}  of {gate.most:<6g}  {where}")
    return lines, missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/dev", help="build folder")
    parser.add_argument("--gates", type=Path, default=GATES, help="another table")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each figure of a model")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--peer", help="folder with the package onnxruntime of onnxruntime-gpu")
    parser.add_argument("--pool", type=Path, help="a file of bench_pool.py; nothing is measured")
    parser.add_argument("--in-tree", type=Path, help="a file of bench_in_tree.py; nothing is measured")
    args = parser.parse_args()
    gates, figures = read_gates(args.gates), {}
    for path, of in ((args.pool, pool_figures), (args.in_tree, in_tree_figures)):
        if path is not None:
            figures |= of(json.loads(path.read_text(encoding="utf-8")))
    lines, missed = judge(gates, figures or measure(args, gates))
    print("\n".join([*lines, f"{len(lines) - len(missed)} of {len(lines)} gates are kept"]))
    for sentence in missed:
        print(f"gate: {sentence}", file=sys.stderr)
    if not lines:
        sys.exit("gate: no gate of the table is for what was measured")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
