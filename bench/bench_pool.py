#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Millpond's pool beside other allocators, in equal loops over equal lists, and compares them row by row.

    bench/bench_pool.py [--build build/dev] [--stage auto|cuda|host] [--repeats 5] [--budget-s 330] [--only NAME,...]
                        [--cases NAME,...] [--peer NAME=LIBRARY[:INIT]]... [--note TEXT] [--quick] [--name NAME]
    bench/bench_pool.py --table bench/results/pool-NAME.json

Every allocator runs in a fresh process, and the processes of a repeat follow each other, so that a drift of the machine
meets all. A figure is the median of the repeats; the file has the least and the most, too. A repeat that would exceed
the budget is not begun. A peer is any library with the functions of bench/pool/plugin.h. On a GPU the driver's
allocators take part, and those of PyTorch and CuPy where they are installed. Marks in the table: `!` this peer is
better than Millpond, `~` better, but the ranges of the two overlap, `>` the time of the pass was up before its end, `x`
allocations failed; neither counts as better.
"""

import argparse
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import machine  # noqa: E402  (beside this file)

ROOT = machine.ROOT
POOL = Path(__file__).resolve().parent / "pool"
LIMIT_S = 300  # of one process

# What the project aims at on an NVIDIA H200: (case, row, metric, bound).
AIMS = [
    ("pair", "256 B", "p50_ns", 60), ("pair", "256 B", "p999_ns", 500), ("live", "100000 blocks", "ns", 300),
    ("random", "10000 x 1 MiB", "warm_ms", 3),
]
AIM_SCALING = (16, 8)  # so many threads on own streams, at least so many times the throughput of one

# What is compared: (name in the rows, unit of the table, factor to it, whether more is better).
METRICS = {
    "p50_ns": ("ns", 1, False), "p99_ns": ("ns", 1, False), "p999_ns": ("ns", 1, False), "mean_ns": ("ns", 1, False),
    "ns": ("ns", 1, False), "cold_ms": ("ms", 1, False), "warm_ms": ("ms", 1, False),
    "mops": ("M/s", 1, True), "cold_ratio": ("x", 1, False), "warm_ratio": ("x", 1, False),
    "alloc_p50_ns": ("ns", 1, False), "alloc_p99_ns": ("ns", 1, False), "free_p50_ns": ("ns", 1, False),
    "wall_ratio": ("x", 1, False), "cold_ns": ("ns", 1, False), "warm_ns": ("ns", 1, False),
    "reserved_ratio": ("x", 1, False), "failures_percent": ("%", 1, False), "filled": ("%", 100, True),
    "trim_ms": ("ms", 1, False), "unused_percent": ("%", 1, False), "grow_ms": ("ms", 1, False),
}
WORDS = {
    "pair": "allocate and free one size, one thread",
    "live": "free one and allocate another in a live set, random order",
    "random": "RMM's random_allocations: N blocks up to a size; cold on a fresh pool, warm after it",
    "threads": "free one and allocate another in a set of 64 blocks a thread",
    "handover": "one thread allocates, another frees on another stream",
    "streams": "a block around each of 4 slow kernels a stream: wall time over that without an allocator",
    "pingpong": "freed on a stream at work, wanted on another; wall time over that with two fixed blocks",
    "replay": "recorded traces: time of an operation, peak reserved over peak live",
    "phases": "phases of varying sizes: peak reserved over peak live",
    "full": "churn on a device that is nearly full",
    "trim": "memory given back to the device; unused: what is still had for nothing",
    "python-replay": "recorded traces, from Python",
    "python-pair": "allocate and free one size, from Python",
    "python-live": "a live set, from Python",
    "python-random": "random_allocations, from Python",
}


@dataclass
class Backend:
    name: str
    command: list  # without the options that all have
    cases: list
    ours: bool = False
    floor: bool = False  # no allocator
    base: str = ""  # of a peer: the backend of ours it is compared with
    runs: list = field(default_factory=list)  # rows of each repeat
    failures: list = field(default_factory=list)
    versions: dict = field(default_factory=dict)


# The cases of allocators that others of the table already tell most about, or that are too slow for the rest: each
# call of cuMemFree waits for the device.
C_CASES = list(WORDS)[:11]
PYTHON_CASES = list(WORDS)[11:]
CASES_OF = {
    "millpond-mempool": "pair live random replay phases trim",
    "cuda": "pair random streams pingpong replay phases full",
    "cuda-async-0": "pair random replay phases full trim",
    "floor": "pair live random threads replay phases",  # those that touch no block
    "torch-expandable": "python-replay",
    "ctypes+millpond": "python-pair python-live python-random",
}


def cases_of(name, wanted):
    known = CASES_OF.get(name, " ".join(WORDS)).split()
    return [case for case in WORDS if case in known and case in wanted]


def c_backends(args, program, plugin):
    """Backends of pool_bench; the first is ours as a user gets it."""

    def backend(name, *options, **rest):
        return Backend(name, [program, *options], cases_of(name, C_CASES), **rest)

    found = [backend("millpond", "--library", plugin, ours=True),
             backend("millpond-expandable", "--library", plugin, "--init", "arena.expandable=1", ours=True),
             backend("millpond-mempool", "--library", plugin, "--init", "arena.use_cuda_mempool=1", ours=True)]
    if args.stage == "cuda":
        found += [backend("cuda", "--builtin", "cuda"),
                  backend("cuda-async", "--builtin", "cuda-async", "--init", "max"),
                  backend("cuda-async-0", "--builtin", "cuda-async", "--init", "0")]
    for peer in args.peer:
        name, _, rest = peer.partition("=")
        name, _, cases = name.partition("@")
        library, _, init = rest.partition(":")
        added = backend(name, "--library", Path(library).resolve(), "--init", init)
        added.cases = cases.split("+") if cases else added.cases
        found.append(added)
    return [*found, backend("floor", "--builtin", "floor", floor=True)]


def python_backends(args, plugin):
    script = [sys.executable, POOL / "python_loops.py", "--plugin", plugin, "--backend"]

    def backend(name, **rest):
        return Backend(name, [*script, name], cases_of(name, PYTHON_CASES), **rest)

    def family(framework, *peers):
        if args.stage != "cuda" or importlib.util.find_spec(framework) is None:
            return []
        ours = f"{framework}+millpond"
        return [backend(ours, ours=True), *(backend(peer, base=ours) for peer in peers)]

    return [backend("ctypes+millpond", ours=True), *family("torch", "torch", "torch-expandable"),
            *family("cupy", "cupy")]


def all_backends(args, program, plugin):
    found = c_backends(args, program, plugin) + ([] if args.no_python else python_backends(args, plugin))
    names = [backend.name for backend in found]
    for words, known in ((args.only, names), (args.cases, list(WORDS))):
        unknown = set((words or known[0]).split(",")) - set(known)
        if unknown:
            sys.exit(f"bench_pool: no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for backend in found:
        if args.cases:
            backend.cases = [case for case in backend.cases if case in args.cases.split(",")]
    return [backend for at, backend in enumerate(found)
            if backend.cases and (at == 0 or not args.only or backend.name in args.only.split(","))]


# ---- running ----


def process(command, env):
    """(rows, what went wrong or None) of one process."""
    try:
        done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True,
                              timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
        rows = [json.loads(line) for line in text.decode().splitlines() if line.endswith("}")]
        return rows, f"no end after {LIMIT_S} s"
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and rows and rows[-1].get("done"):
        return rows, None
    words = done.stderr.strip().splitlines()[-2:]
    return rows, "; ".join(words) or f"exit status {done.returncode}"


def is_python(backend):
    return backend.command[0] == sys.executable


def options_of(backend, args, traces, cases):
    options = [word for trace in traces for word in ("--trace", trace)] + ["--cases", ",".join(cases)]
    options += ["--quick"] if args.quick else []
    if not is_python(backend):
        options += ["--stage", args.stage, "--limit-ms", args.limit_ms, "--cap-mib", args.cap_mib]
        options += ["--threads", args.threads] if args.threads else []
    return options


def run(backend, args, traces, env):
    """All cases of one backend in one process; another one goes on behind a case that fails, which is then left out."""
    cases, found = list(backend.cases), []
    while cases:
        rows, problem = process([*backend.command, *options_of(backend, args, traces, cases)], env)
        found += rows
        for row in rows:
            backend.versions.update(row.get("versions", {}))
        if problem is None:
            break
        begun = next((row["begin"] for row in reversed(rows) if "begin" in row), None)
        backend.failures.append(f"{begun}: {problem}" if begun else problem)
        print(f"  {backend.name}: {backend.failures[-1]}", flush=True)
        if begun is None:
            backend.cases = []
            break
        cases = cases[cases.index(begun) + 1 :]
        backend.cases.remove(begun)
    return found


def repeat(backends, args, traces, env):
    """All repeats that the budget has time for; returns how many."""
    start, longest = time.monotonic(), 0
    for number in range(args.repeats):
        begun = time.monotonic()
        if number > 0 and begun - start + longest > args.budget_s:
            return number
        for backend in backends:
            if backend.cases:
                backend.runs.append(run(backend, args, traces, env))
        longest = max(longest, time.monotonic() - begun)
        print(f"repeat {number + 1} of {args.repeats}: {time.monotonic() - begun:.1f} s", flush=True)
    return args.repeats


# ---- comparing ----


def figures(backend):
    """{(case, row): {metric: [values]}}, and the other words of each row; `mark` says why a figure is no measure."""
    numbers, facts = {}, {}
    for rows in backend.runs:
        for row in rows:
            if "case" not in row:
                continue
            key = row["case"], row["row"]
            told = facts.setdefault(key, {})
            told.update({k: v for k, v in row.items() if k not in ("case", "row")})
            if row.get("cut") or row.get("failures"):
                told["mark"] = ">" if row.get("cut") else "x"
            for metric in METRICS:
                if row.get(metric) is not None:
                    numbers.setdefault(key, {}).setdefault(metric, []).append(row[metric])
    return numbers, facts


# Of a row's repeats; a list in the file.
Figures = namedtuple("Figures", "median least most")


def summary(values):
    return Figures(statistics.median(values), min(values), max(values))


def better(metric, peer, ours):
    """"", "~" or "!": whether the peer's figures are better than ours, and clearly so."""
    more = METRICS[metric][2]
    if peer.median == ours.median or (peer.median > ours.median) != more:
        return ""
    apart = peer.least > ours.most if more else peer.most < ours.least
    return "!" if apart else "~"


def ratio(metric, peer, ours):
    """How many times better ours is; None where that has no meaning."""
    above, below = (ours, peer) if METRICS[metric][2] else (peer, ours)
    return above.median / below.median if below.median > 0 else None


def compare(backends):
    """Rows for the file: for each case, row and metric what every backend had, and how ours stands."""
    found = {backend.name: figures(backend) for backend in backends}
    reference = next(backend.name for backend in backends if backend.ours)
    keys = list(dict.fromkeys(key for numbers, _ in found.values() for key in numbers))
    keys.sort(key=lambda key: list(WORDS).index(key[0]))
    rows = []
    for key in keys:
        for metric in METRICS:
            values = {name: summary(numbers[key][metric]) for name, (numbers, _) in found.items()
                      if metric in numbers.get(key, {})}
            if not values:
                continue
            row = {"case": key[0], "row": key[1], "metric": metric, "values": values, "ratio": {}, "better": {}}
            marks = {name: found[name][1][key]["mark"] for name in values if "mark" in found[name][1][key]}
            if metric == "reserved_ratio":  # is left out where the whole was not seen
                marks = {name: mark for name, mark in marks.items() if mark != ">"}
            for backend in backends:
                ours = values.get(backend.base or reference)
                if backend.ours or backend.floor or ours is None or backend.name not in values:
                    continue
                row["ratio"][backend.name] = ratio(metric, values[backend.name], ours)
                mark = better(metric, values[backend.name], ours)
                if mark and backend.name not in marks:
                    row["better"][backend.name] = mark
            rows.append({**row, "marks": marks})
    return rows


def row_facts(backends):
    """What the rows say beside the figures that are compared: sizes, counts, reasons to skip."""
    facts = {}
    for backend in backends:
        for (case, row), words in figures(backend)[1].items():
            rest = {k: v for k, v in words.items() if k not in METRICS}
            if rest:
                facts.setdefault(case, {}).setdefault(row, {})[backend.name] = rest
    return facts


# ---- showing ----


def short(value, metric):
    value *= METRICS[metric][1]
    if value == 0 or not math.isfinite(value):
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 3)}f}"


def table(result, case, out):
    """One case as a table in Markdown: a line for each row and metric, a column for each backend."""
    rows = [row for row in result["rows"] if row["case"] == case]
    names = [name for name in result["backends"] if any(name in row["values"] for row in rows)]
    out.append(f"\n**{case}**: {WORDS[case]}\n")
    out.append("| row | " + " | ".join(names) + " |")
    out.append("| --- | " + " | ".join("---:" for _ in names) + " |")
    for row in rows:
        cells = []
        for name in names:
            value = row["values"].get(name)
            cell = short(value[0], row["metric"]) if value else ""
            cells.append(row["marks"].get(name, "") + cell + row["better"].get(name, ""))
        unit = METRICS[row["metric"]][0]
        label = row["metric"].rsplit("_", 1)[0] if row["metric"].endswith(("_ns", "_ms", "_percent")) else row["metric"]
        out.append(f"| {row['row']}, {label} ({unit}) | " + " | ".join(cells) + " |")


def aims(result):
    """Lines that say which aims were reached by Millpond as a user gets it."""
    ours = next(iter(result["backends"]))
    found = {(row["case"], row["row"], row["metric"]): row["values"][ours][0]
             for row in result["rows"] if ours in row["values"]}
    for case, row, metric, bound in AIMS:
        value = found.get((case, row, metric))
        if value is not None:
            yield f"{case} {row} {metric}: {value:.3g}, aim < {bound}: {'reached' if value < bound else 'missed'}"
    threads, times = AIM_SCALING
    one, many = (found.get(("threads", f"{count:2d}, own streams", "mops")) for count in (1, threads))
    if one and many:
        word = "reached" if many >= times * one else "missed"
        yield f"{threads} threads on own streams: {many / one:.1f} times one, aim >= {times}: {word}"


def show(result):
    out = [f"{result['device']}{' (emulated)' if result['emulated'] else ''}, {result['driver']}, {result['cpu']}; "
           f"{result['repeats']} repeats, commit {result['commit']}"]
    for case in WORDS:
        if any(row["case"] == case for row in result["rows"]):
            table(result, case, out)
    lost = [f"{row['case']} {row['row']} {row['metric']}: {', '.join(row['better'])}"
            for row in result["rows"] if "!" in row["better"].values()]
    out.append(f"\nRows in which a peer is clearly better: {len(lost)} of {len(result['rows'])}")
    out += [f"- {line}" for line in lost]
    out += ["", *(f"- {line}" for line in aims(result))] if not result["emulated"] else []
    out += [f"- failed: {name}: {reason}" for name, entry in result["backends"].items() for reason in entry["failures"]]
    print("\n".join(out))


def gpu_driver():
    """The version of the kernel's driver and the highest clock, where nvidia-smi tells."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def setting(backends):
    """What the first run of pool_bench says of the device, and what we know of the machine."""
    told = next((rows[0] for backend in backends if not is_python(backend) for rows in backend.runs if rows), {})
    versions = {}
    for backend in backends:
        versions.update(backend.versions)
    return {
        "device": told.get("device", "unknown"), "emulated": told.get("stage") == "host",
        "driver": told.get("driver", "unknown"), "gpu_driver": gpu_driver() if told.get("stage") == "cuda" else "",
        "cpu": machine.cpu(),
        "limit_ms": told.get("limit_ms"), "cap_mib": told.get("cap_mib"),
        "tick_overhead_ns": told.get("tick_overhead_ns"), "versions": {"python": platform.python_version(), **versions},
        "commit": machine.commit(), "command": machine.command("bench/bench_pool.py"),
        "environment": machine.environment(), "time": machine.now(),
    }


# ---- the whole ----


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/dev", help="build folder")
    parser.add_argument("--stage", default="auto", choices=["auto", "cuda", "host"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget-s", type=float, default=330, help="no repeat is begun that would end later")
    parser.add_argument("--limit-ms", default="120", help="time of one timed pass; four times that for `random`")
    parser.add_argument("--cap-mib", default="32000", help="most memory that a case has live")
    parser.add_argument("--threads", help="most threads; by default one a processor")
    parser.add_argument("--cases", help="cases, separated by commas")
    parser.add_argument("--only", help="backends, separated by commas; millpond always runs")
    parser.add_argument("--peer", action="append", default=[], help="NAME[@CASE+CASE]=LIBRARY[:INIT]")
    parser.add_argument("--note", action="append", default=[], help="kept in the file: a version, a clock")
    parser.add_argument("--traces", type=Path, default=POOL / "traces", help="folder of *.csv.gz")
    parser.add_argument("--no-python", action="store_true", help="without the loops in Python")
    parser.add_argument("--quick", action="store_true", help="small counts, for tests")
    parser.add_argument("--name", help="the file is bench/results/pool-NAME.json; by default after the device")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    parser.add_argument("--table", type=Path, help="show a file again, and measure nothing")
    return parser.parse_args()


def command_of(backend):
    """For the reader of the file: without folders."""
    words = [word.name if isinstance(word, Path) else word for word in backend.command]
    return " ".join(Path(word).name if word == sys.executable else word or "''" for word in words)


def write(result, target):
    """JSON with a line for each row of `rows`, which a reader and a diff can take in."""
    head = json.dumps({key: value for key, value in result.items() if key not in ("rows", "facts")}, indent=1)
    text = json.dumps({"rows": result["rows"], "facts": result["facts"]})
    compact = json.loads(text, parse_float=lambda word: float(f"{float(word):.4g}"))
    rows = ",\n  ".join(json.dumps(row) for row in compact["rows"])
    facts = ",\n  ".join(f"{json.dumps(case)}: {json.dumps(words)}" for case, words in compact["facts"].items())
    target.parent.mkdir(parents=True, exist_ok=True)
    text = f'{head[:-2]},\n "rows": [\n  {rows}\n ],\n "facts": {{\n  {facts}\n }}\n}}\n'
    target.write_text(text, encoding="utf-8")


def has_gpu(program):
    done = subprocess.run([program, "--builtin", "floor", "--stage", "cuda", "--cases", "pair", "--quick"],
                          capture_output=True)
    return done.returncode == 0


def main():
    args = arguments()
    if args.table:
        show(json.loads(args.table.read_text(encoding="utf-8")))
        return 0
    build = args.build.resolve()
    program, plugin = build / "bench/pool/pool_bench", build / "bench/pool/libbench_millpond.so"
    if not program.exists():
        sys.exit(f"bench_pool: {program} is not there; build first: make")
    if args.stage == "auto":
        args.stage = "cuda" if has_gpu(program) else "host"
    env = dict(os.environ, MILLPOND_DEVICE=args.stage)
    backends = all_backends(args, program, plugin)
    traces = sorted(args.traces.glob("*.csv.gz"))
    repeats = repeat(backends, args, traces, env)
    result = {**setting(backends), "repeats": repeats, "notes": args.note, "build": build.name,
              "values": "median, least, most of the repeats",
              "backends": {backend.name: {"command": command_of(backend), "repeats": len(backend.runs),
                                          "failures": backend.failures} for backend in backends},
              "rows": compare(backends), "facts": row_facts(backends)}
    target = args.out or ROOT / "bench" / "results" / f"pool-{args.name or machine.file_name(result['device'])}.json"
    write(result, target)
    show(json.loads(target.read_text(encoding="utf-8")))
    print(f"written to {target}")
    return 1 if backends[0].failures else 0


if __name__ == "__main__":
    sys.exit(main())
