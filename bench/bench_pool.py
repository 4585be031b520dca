#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Millpond's pool beside other allocators, in equal loops over equal lists, and compares them row by row.

    bench/bench_pool.py [--build build/dev] [--stage auto|cuda|host] [--repeats 5] [--budget-s 330] [--resume FILE]
                        [--only NAME,...] [--cases NAME,...] [--peer NAME[@CASE+CASE]=LIBRARY[:INIT]]... [--note TEXT]
                        [--quick] [--name NAME]
    bench/bench_pool.py --table bench/results/pool-NAME.json

Every allocator runs in a fresh process, and the processes of a repeat follow each other, so that a drift of the machine
meets all. A figure is the median of the repeats; the file has the least and the most, too. A repeat that would exceed
the budget is not begun; with --resume, the same command goes on with it another time. A peer is any library with the
functions of bench/pool/plugin.h. On a GPU the driver's allocators take part, and those of PyTorch and CuPy where they
are installed; ONNX Runtime's own arena is that of its CPU (bench/pool/plugin_ort.c). Marks in the table: `!` this peer
is better than Millpond, `~` better, but the ranges of the two overlap, `>` the time of the pass was up before its end,
`x` allocations failed; neither counts as better.
"""

import argparse
import importlib.metadata
import importlib.util
import json
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
from pool_repeats import Repeats, digest  # noqa: E402  (likewise)
from pool_table import METRICS, WORDS, show  # noqa: E402  (likewise)

ROOT = machine.ROOT
POOL = Path(__file__).resolve().parent / "pool"
LIMIT_S = 300  # of one process

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

    def take(self, found):
        """What one repeat has found, now or in an earlier call."""
        self.runs.append(found["rows"])
        self.cases = found["cases"]
        self.failures += found["failures"]
        self.versions.update(found["versions"])


# The cases of allocators that others of the table already tell most about, or that are too slow for the rest: each
# call of cuMemFree waits for the device.
C_CASES = [case for case in WORDS if not case.startswith("python-")]
PYTHON_CASES = [case for case in WORDS if case.startswith("python-")]
CASES_OF = {
    "millpond-mempool": "pair live random replay phases trim",
    "cuda": "pair random streams pingpong replay phases full",
    "cuda-async-0": "pair random replay phases full trim",
    "ort-arena": "pair live random threads replay phases",  # the same: its blocks are the host's
    "floor": "pair live random threads replay phases",  # those that touch no block
    "torch-expandable": "python-replay",
    "ctypes+millpond": "python-pair python-live python-random",
}


def cases_of(name, wanted):
    known = CASES_OF.get(name, " ".join(WORDS)).split()
    return [case for case in WORDS if case in known and case in wanted]


def ort_library():
    """The library of ONNX Runtime's C API in its wheel; None without one."""
    found = importlib.util.find_spec("onnxruntime")
    folder = Path(found.origin).parent / "capi" if found is not None and found.origin else None
    return next(iter(sorted(folder.glob("libonnxruntime.so.1*"))), None) if folder is not None else None


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
    ort = ort_library()
    if ort is not None:
        found.append(backend("ort-arena", "--library", plugin.with_name("libbench_ort.so"), "--init", ort))
    for peer in args.peer:
        name, _, rest = peer.partition("=")
        name, _, cases = name.partition("@")
        library, _, init = rest.partition(":")
        if not Path(library).is_file():
            sys.exit(f"bench_pool: --peer {peer}: there is no library '{library}'")
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
        return [backend(ours, ours=True), backend(f"{ours}-expandable", ours=True),
                *(backend(peer, base=ours) for peer in peers)]

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


def rows_of(output):
    """Whole lines of JSON; the last of a process that was ended may be a part."""
    lines = (output or b"").decode(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def process(command, env):
    """(rows, what went wrong or None) of one process."""
    try:
        done = subprocess.run([str(word) for word in command], env=env, capture_output=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        return rows_of(late.stdout), f"no end after {LIMIT_S} s"
    rows = rows_of(done.stdout)
    if done.returncode == 0 and rows and rows[-1].get("done"):
        return rows, None
    words = done.stderr.decode(errors="replace").strip().splitlines()[-2:]
    return rows, "; ".join(words) or f"exit status {done.returncode}"


def probe(program, stage):
    """What pool_bench says of the device."""
    command = [program, "--builtin", "floor", "--stage", stage, "--cases", "pair", "--quick"]
    rows, problem = process(command, os.environ)
    return rows[0] if problem is None else sys.exit(f"bench_pool: {problem}")


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
    cases = backend.cases
    found = {"rows": [], "cases": list(cases), "failures": [], "versions": {}}
    while cases:
        rows, problem = process([*backend.command, *options_of(backend, args, traces, cases)], env)
        found["rows"] += rows
        for row in rows:
            found["versions"].update(row.get("versions", {}))
        if problem is None:
            break
        begun = next((row["begin"] for row in reversed(rows) if "begin" in row), None)
        found["failures"].append(f"{begun}: {problem}" if begun else problem)
        print(f"  {backend.name}: {found['failures'][-1]}", flush=True)
        if begun is None:
            found["cases"] = []
            break
        cases = cases[cases.index(begun) + 1 :]
        found["cases"].remove(begun)
    return found


def measure(backends, repeats, args, traces, env):
    """All repeats that are missing, or as many as the budget has time for; one at least."""
    start, longest = time.monotonic(), 0
    while len(repeats.all) < args.repeats:
        begun = time.monotonic()
        if longest > 0 and begun - start + longest > args.budget_s:
            print(f"{len(repeats.all)} of {args.repeats} repeats are made"
                  f"{'; the same command goes on' if args.resume else ''}", flush=True)
            return
        found = {}
        for backend in backends:
            if backend.cases:
                found[backend.name] = run(backend, args, traces, env)
                backend.take(found[backend.name])
        repeats.add(machine.now(), found)
        longest = max(longest, time.monotonic() - begun)
        print(f"repeat {len(repeats.all)} of {args.repeats}: {time.monotonic() - begun:.1f} s", flush=True)


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
    middle = statistics.median(values)
    if all(isinstance(value, int) for value in values):
        middle = round(middle)  # a fraction is written with fewer digits than counts are, and could lie outside of them
    return Figures(middle, min(values), max(values))


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


def gpu_driver(stage):
    """The version of the kernel's driver and the highest clock, where nvidia-smi tells."""
    if stage != "cuda":
        return ""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def version_of(module):
    """The version of an installed module, by the packages that bring it; "" without one."""
    packages = sorted(set(importlib.metadata.packages_distributions().get(module, [])))
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def measured(args, device, build, backends, traces):
    """What repeats must have in common to be of one measurement."""
    libraries = [word for backend in backends for word in backend.command if isinstance(word, Path)]
    files = sorted({*libraries, build / "lib/libmillpond.so.0", POOL / "traces.py", *traces},
                   key=lambda path: path.name)
    options = {f"command of {backend.name}": command_of(backend, options_of(backend, args, traces, backend.cases))
               for backend in backends}
    return {
        "device": device["device"], "driver": device["driver"], "GPU's driver": gpu_driver(device["stage"]),
        "processor": machine.cpu(), "Python": platform.python_version(), "PyTorch": version_of("torch"),
        "CuPy": version_of("cupy"), "environment": machine.environment(),
        # Results that lie in the tree make it dirty; the build says more of what was changed.
        "commit": machine.commit().removesuffix("-dirty"), "build": digest(files), **options,
    }


def setting(backends, device):
    """The device, and what the first run of pool_bench and we know of the machine."""
    told = next((rows[0] for backend in backends if not is_python(backend) for rows in backend.runs if rows), {})
    versions = {}
    for backend in backends:
        versions.update(backend.versions)
    return {
        "device": device["device"], "emulated": device["stage"] == "host", "driver": device["driver"],
        "gpu_driver": gpu_driver(device["stage"]), "cpu": machine.cpu(),
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
    parser.add_argument("--resume", type=Path, metavar="FILE",
                        help="keep every repeat in FILE, and go on from those it has, of this machine and build")
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


def command_of(backend, options=()):
    """For the reader of the file: without folders."""
    words = [word.name if isinstance(word, Path) else word for word in (*backend.command, *options)]
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


def main():
    args = arguments()
    if args.table:
        show(json.loads(args.table.read_text(encoding="utf-8")))
        return 0
    build = args.build.resolve()
    program, plugin = build / "bench/pool/pool_bench", build / "bench/pool/libbench_millpond.so"
    if not program.exists():
        sys.exit(f"bench_pool: {program} is not there; build first: make")
    device = probe(program, args.stage)
    args.stage = device["stage"]
    env = dict(os.environ, MILLPOND_DEVICE=args.stage)
    backends = all_backends(args, program, plugin)
    traces = sorted(args.traces.glob("*.csv.gz"))
    repeats = Repeats(measured(args, device, build, backends, traces), args.resume)
    for earlier in repeats.all:
        for backend in backends:
            if backend.name in earlier["backends"]:
                backend.take(earlier["backends"][backend.name])
    measure(backends, repeats, args, traces, env)
    result = {**setting(backends, device), "repeats": len(repeats.all), "notes": args.note, "build": build.name,
              "times": [each["time"] for each in repeats.all],
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
