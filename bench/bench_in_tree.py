#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times models here, by default options, and on the CUDA provider of onnxruntime-gpu, by each of its ways, in turn.

    bench/bench_in_tree.py --peer FOLDER [--only TEXT] [--nets FOLDER] [--singles [TABLE]] [--calls bound] [--repeats 2]

FOLDER holds the package onnxruntime of an onnxruntime-gpu wheel. Its ways are ordinary runs, graphs, and channels last.
Each side is measured in processes of its own, one after the other, `repeats` times; a figure is the least of its
medians. Inputs and outputs are bound on the device; with `--calls arrays` they are NumPy's, with `threads` those of
four threads that share the session, whose figure is the time by the runs of all; with `sizes` they are arrays of all
the sizes of a subject in turn, whose first runs are `new_ms`. Both round the factors of float products to TF32, their
common default. `relative` is the norm of the difference from the CPU provider, whose own time is there, too; `first_s`
is from the session's creation to its first result, kernels of earlier models and turns being in the cache. The subjects
are those of bench_models.py and, with --nets, the networks of nets.py in that folder, made where they are missing; with
--singles single operators instead: those of singles_operators.py and singles_contrib.py or, with `--singles shapes`,
`kinds` or `contrib`, of singles_shapes.py, singles_kinds.py or singles_contrib_more.py. The results go to
bench/results/in-tree-NAME.json, where NAME begins with the table, the types and the calls, if they are not the usual
ones; `ratio` is the time here by the least of the peer's, `new_ratio` that of sizes that are new.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import fetch_models  # noqa: E402
import machine  # noqa: E402
import nets  # noqa: E402
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402
import singles  # noqa: E402

PEER = "CUDAExecutionProvider"
# Graphs last: a capture that fails leaves the peer's process without a working stream.
SIDES = {
    "millpond": {"default": {}},
    "in-tree": {"plain": {}, "nhwc": {"prefer_nhwc": "1"}, "graph": {"enable_cuda_graph": "1"}},
}
FIGURES = ("ms", "new_ms", "first_s", "relative", "error")
THREADS = 4  # that share a session


def session_on(side, model, options):
    if side == "millpond":
        return provider.session(model, provider_options=options)
    return ort.InferenceSession(model, provider.session_options(), providers=[(PEER, options), provider.CPU])


def bound_run(session, inputs):
    """A run with values on the device, and what reads its results; one has come to its end."""
    binding, outputs = bench_models.bound(session, inputs)
    return lambda: session.run_with_iobinding(binding), lambda: [output.numpy() for output in outputs]


def array_run(session, inputs):
    def run():
        return session.run(None, inputs)

    run()
    return run, run


def threads_ms(run, seconds):
    """The time by the runs that threads side by side come to, after a warm-up."""
    def count(end):
        runs = 0
        while time.perf_counter() < end:
            run()
            runs += 1
        return runs

    with ThreadPoolExecutor(THREADS) as pool:
        for duration in (seconds / 2, seconds):
            began = time.perf_counter()
            runs = sum(pool.map(count, [began + duration] * THREADS))
            ms = (time.perf_counter() - began) * 1e3 / max(runs, 1)
    return ms


def measure(side, model, inputs, options, args, expected):
    started = time.perf_counter()
    session = session_on(side, model, options)
    run, results = (bound_run if args.calls == "bound" else array_run)(session, inputs)
    first_s = time.perf_counter() - started
    ms = threads_ms(run, args.seconds) if args.calls == "threads" else bench_models.median_ms(run, args.seconds)[0]
    found = {"ms": round(ms, 4), "first_s": round(first_s, 3)}
    if expected is not None:
        found["relative"] = float(f"{bench_models.relative_norm(results(), expected):.3e}")
    return found


def measure_sizes(side, model, feeds, options):
    """Runs of many sizes, each of them new to the session, and then in the same order again."""
    session = session_on(side, model, options)
    session.run(None, feeds[0])
    times = []
    for _ in range(4):
        started = time.perf_counter()
        for feed in feeds[1:]:
            session.run(None, feed)
        times.append((time.perf_counter() - started) * 1e3 / (len(feeds) - 1))
    return {"ms": round(statistics.median(times[1:]), 4), "new_ms": round(times[0], 4)}


class Reference:
    """The CPU provider's results and time for each subject, found once; none where it is not asked."""

    def __init__(self, seconds, is_asked):
        self.seconds, self.is_asked, self.found = seconds, is_asked, {}

    def of(self, name, label, model, inputs, timed):
        if not self.is_asked:
            return None, None
        if (name, label) not in self.found:
            session = ort.InferenceSession(model, providers=[provider.CPU])
            results = session.run(None, inputs)
            ms = bench_models.median_ms(lambda: session.run(None, inputs), self.seconds)[0] if timed else None
            self.found[name, label] = results, ms
        return self.found[name, label]


def child(args):
    """Measures one side, from the row `--begin` on; prints each row as a line of JSON, what it is of before."""
    if args.side == "in-tree" and PEER not in ort.get_available_providers():
        sys.exit(f"bench_in_tree: the onnxruntime in {args.peer} has no {PEER}; give the folder of an onnxruntime-gpu")
    found = (singles.subjects(args.singles, args.only, args.kinds.split(",")) if args.singles else
             bench_models.subjects(fetch_models.default_dir(), args.only))
    if args.nets:
        found = itertools.chain(found, nets.subjects(args.nets, args.only))
    if args.calls == "sizes":
        found = ((name, model, [("", [feed for _, feed in pairs])])
                 for name, model, pairs in nets.subjects(args.nets, args.only, many=True))
    subjects = [(name, model, label, inputs) for name, model, pairs in found for label, inputs in pairs]
    reference = Reference(args.seconds / 4, not args.no_cpu)
    ways = [(way, options) for way, options in SIDES[args.side].items() if not args.ways or way in args.ways.split(",")]
    print(json.dumps({"onnxruntime": ort.__version__}))
    for (way, options), (name, model, label, inputs) in itertools.islice(itertools.product(ways, subjects), args.begin,
                                                                         None):
        row = {"model": name, "label": label, "way": way}
        print(json.dumps({"begins": row}), flush=True)
        try:
            if args.calls == "sizes":
                row |= measure_sizes(args.side, model, inputs, options)
            else:
                expected, cpu_ms = reference.of(name, label, model, inputs, args.side == "millpond")
                row |= {"cpu_ms": cpu_ms} if cpu_ms else {}
                row |= measure(args.side, model, inputs, options, args, expected)
        except Exception as error:  # what cannot be captured is a row, too
            row["error"] = " ".join(str(error).split())[-160:]
        print(json.dumps({"row": row}), flush=True)
        print(f"# {args.side} {row}", file=sys.stderr, flush=True)


def run_part(command, env):
    """What a process of one side has measured: {"onnxruntime": version, "rows": [...]}, and whether it came to its end.
    Where it died, the row that it died of is the last."""
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
    found, begun = {"rows": []}, None
    for line in map(json.loads, filter(lambda text: text.startswith("{"), done.stdout.splitlines())):
        begun = line.get("begins", begun)
        if "row" in line:
            found["rows"].append(line["row"])
            begun = None
        found |= {"onnxruntime": line["onnxruntime"]} if "onnxruntime" in line else {}
    if done.returncode != 0 and begun is None:
        raise subprocess.CalledProcessError(done.returncode, command)
    if begun is not None:
        found["rows"].append(begun | {"error": f"the process died with status {done.returncode}"})
        print(f"# {found['rows'][-1]}", file=sys.stderr)
    return found, begun is None


def run_side(args, side):
    env = dict(os.environ)
    if side == "in-tree":
        env["PYTHONPATH"] = os.pathsep.join([args.peer, *filter(None, [env.get("PYTHONPATH")])])
    command = [sys.executable, __file__, "--side", side, "--peer", args.peer, "--only", args.only,
               "--seconds", str(args.seconds), *(["--nets", args.nets] if args.nets else []),
               "--ways", args.ways, "--calls", args.calls, "--kinds", args.kinds,
               *(["--singles", args.singles] if args.singles else []), *(["--no-cpu"] if args.no_cpu else [])]
    rows, ended = [], False
    while not ended:  # a provider may take its process with it; the others behind it are measured all the same
        found, ended = run_part([*command, "--begin", str(len(rows))], env)
        rows += found["rows"]
    return {**found, "rows": rows}


def merged(rows, found):
    """Takes each figure that is less than what is there."""
    for row in found["rows"]:
        kept = rows.setdefault((row["model"], row["label"]), {"model": row["model"], "label": row["label"]})
        if "cpu_ms" in row:
            kept["cpu_ms"] = round(min(row["cpu_ms"], kept.get("cpu_ms", math.inf)), 4)
        figures = {key: row[key] for key in FIGURES if key in row}
        before = kept.setdefault(row["way"], figures)
        if figures.get("ms", math.inf) < before.get("ms", math.inf):
            kept[row["way"]] = figures


def judge(row):
    """Adds the peer's best way, and the ratio of ours to it."""
    times = {way: row[way]["ms"] for way in SIDES["in-tree"] if "ms" in row.get(way, {})}
    if times:
        row["best"] = min(times, key=times.get)
        if "ms" in row.get("default", {}):
            for key, figure in (("ratio", "ms"), ("new_ratio", "new_ms")):
                if figure in row["default"]:
                    row[key] = float(f"{row['default'][figure] / row[row['best']][figure]:.3g}")


def show(row):
    ways = [row.get(way, {}) for side in SIDES.values() for way in side]
    figures = [f"{way['ms']:9.3f}" if "ms" in way else f"{'-':>9s}" for way in ways]
    cpu = f"{row['cpu_ms']:9.3f}" if "cpu_ms" in row else f"{'-':>9s}"
    ratios = " ".join(str(row[key]) for key in ("ratio", "new_ratio") if key in row)
    print(f"{row['model']:20s} {row['label']:24s} {' '.join(figures)} {cpu}  {ratios}")


def mean(rows):
    """The geometric mean of the ratios."""
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    return round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3) if ratios else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="folder with the package onnxruntime of onnxruntime-gpu")
    parser.add_argument("--only", default="", help="only subjects whose name holds this; several with commas between")
    parser.add_argument("--nets", help="folder of the networks of nets.py, which are measured, too")
    parser.add_argument("--singles", nargs="?", const="operators", choices=singles.TABLES,
                        help="a table of single operators, and no models")
    parser.add_argument("--kinds", default="f32,f16",
                        help="types of single operators; also bf16, with --no-cpu: the CPU provider has few of it")
    parser.add_argument("--no-cpu", action="store_true", help="do not run them on the CPU provider")
    parser.add_argument("--calls", default="bound", choices=("bound", "arrays", "threads", "sizes"),
                        help="how sessions are run")
    parser.add_argument("--ways", default="", help="only these ways; several with commas between")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each figure")
    parser.add_argument("--repeats", type=int, default=2, help="turns of each side")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return child(args)
    if args.calls == "sizes" and not args.nets:
        parser.error("--calls sizes needs --nets")
    if args.nets:
        nets.make_all(args.nets, args.only)
    device = provider.register()[0]
    result = {**bench_models.setting(device), "command": machine.command("bench/bench_in_tree.py")}
    rows = {}
    for _ in range(args.repeats):
        for side in SIDES:
            found = run_side(args, side)
            merged(rows, found)
            if side == "in-tree":
                result["peer"] = f"onnxruntime-gpu {found['onnxruntime']}"
    print(f"{result['device']}: ms here; with {result['peer']} plain, channels last, as a graph; on the CPU; ratio")
    for row in rows.values():
        judge(row)
        show(row)
    result |= {"geometric_mean": mean(rows.values()), "rows": list(rows.values())}
    print(f"geometric mean of the ratios: {result['geometric_mean']}")
    name = args.name or machine.file_name(result["device"])
    of = [args.singles] if args.singles else [args.calls] if args.calls != "bound" else []
    kinds = args.kinds.split(",") if args.kinds != parser.get_default("kinds") else []
    machine.save(result, "-".join(["in-tree", *of, *kinds, name]), args.out)
    return None


if __name__ == "__main__":
    main()
