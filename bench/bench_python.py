#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times an array of Numba, CuPy and PyTorch, made and dropped in loops, with the library's own pool and with Millpond.

    bench_python.py [--repeats 5] [--quick] [--out FILE] [--only "NAME;NAME"]
    bench_python.py --table FILE

Every allocator runs in a process of its own; the processes of a repeat follow each other, and each repeat begins with
another one. A figure is the median of the repeats. `bench_pool.py` times the allocators beneath: raw blocks through a
framework's own functions. Here it is what a program writes: `device_array`, `cupy.empty`, `torch.empty`, through
`millpond.numba`, `millpond.cupy` and `millpond.torch`. The package is the one that PYTHONPATH names. Without a GPU only
Millpond's own Buffer is timed.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent / "pool")]
import machine  # noqa: E402  (beside this file)
import python_loops  # noqa: E402  (in pool/)

SIZES = ((256, "256 B"), (4096, "4 KiB"), (1 << 20, "1 MiB"))
LIMIT_S = 300


# A backend has take(size), which makes an array of that many bytes, and drop, which does nothing that takes time: an
# array goes when nothing refers to it.


class Arrays:
    def __init__(self, take):
        self.take, self.drop, self.use = take, id, id


def numba(settings):
    import numpy

    if not hasattr(numpy, "row_stack"):  # numba-cuda up to 0.30 looks for it
        numpy.row_stack = numpy.vstack
    from numba import cuda

    if settings is not None:
        import millpond.numba

        millpond.numba.use(**settings)
    return Arrays(lambda size: cuda.device_array(size, numpy.uint8))


def cupy(settings):
    import cupy

    if settings is not None:
        import millpond.cupy

        millpond.cupy.install(**settings)
    return Arrays(lambda size: cupy.empty(size, cupy.uint8))


def torch(settings):
    import contextlib

    import torch

    route = contextlib.nullcontext()
    if settings is not None:
        import millpond.torch

        if settings["route"] == "process":
            millpond.torch.install()
        else:
            route = millpond.torch.use_pool()
    device = torch.device("cuda", 0)
    torch.empty(1, device=device)
    route.__enter__()  # until the process ends
    backend = Arrays(lambda size: torch.empty(size, dtype=torch.uint8, device=device))
    backend.route = route
    return backend


def buffer(settings):
    import millpond

    pool = millpond.Pool(**settings)
    stream = None if pool.is_emulated else 0
    return Arrays(lambda size: pool.alloc(size, stream))


# Name: (how it is made, settings; None is the library's own pool, what it is compared with).
BACKENDS = {
    "numba": (numba, None, None),
    "numba+millpond": (numba, {}, "numba"),
    "numba+millpond, fast": (numba, {"streams": "fast"}, "numba"),
    "cupy": (cupy, None, None),
    "cupy+millpond": (cupy, {}, "cupy"),
    "torch": (torch, None, None),
    "torch+millpond": (torch, {"route": "process"}, "torch"),
    "torch+millpond, use_pool": (torch, {"route": "part"}, "torch"),
    "millpond.Buffer": (buffer, {}, None),
}


# ---- one backend ----


def measure(name, quick):
    """{row: ns}"""
    make, settings, _ = BACKENDS[name]
    backend, found = make(settings), {}
    for size, label in SIZES:
        found[f"one array of {label}"] = python_loops.pair_ns(backend, size, 3 if quick else 30)
    for slots in (100,) if quick else (100, 1000):
        build, items = python_loops.live_items(slots, 200 if quick else 10000)
        blocks = [None] * slots
        python_loops.run(backend, build, blocks)
        times = [python_loops.run(backend, items, blocks) * 1e6 / (len(items) / 2) for _ in range(1 if quick else 3)]
        found[f"one of {slots} arrays replaced"] = statistics.median(times)
        python_loops.give_back(backend, blocks)
    return found


def versions():
    found = {"python": sys.version.split()[0]}
    for name in ("numba", "numba_cuda", "cupy", "torch", "millpond"):
        if name in sys.modules and hasattr(sys.modules[name], "__version__"):
            found[name] = sys.modules[name].__version__
    return found


def run_apart(name, quick):
    """What a process of its own has measured, or the reason why not."""
    command = [sys.executable, __file__, "--one", name, *(["--quick"] if quick else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return None, f"took longer than {LIMIT_S} s"
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), None


# ---- all of them ----


def available():
    """The backends whose library is there; without a GPU only our own."""
    import millpond

    if millpond.Pool().is_emulated:
        return ["millpond.Buffer"]
    missing = {name for name in ("numba", "cupy", "torch") if importlib.util.find_spec(name) is None}
    return [name for name in BACKENDS if name.split("+")[0] not in missing]


def repeat_all(names, repeats, quick):
    """{name: {row: [ns of each repeat]}}, versions, {name: reason}"""
    found, known, failures = {name: {} for name in names}, {}, {}
    for turn in range(repeats):
        shift = turn % len(names)
        for name in [*names[shift:], *names[:shift]]:
            seen, reason = run_apart(name, quick)
            if seen is None:
                failures[name] = reason
                print(f"{name}: {reason}", file=sys.stderr)
                continue
            known |= seen["versions"]
            for row, value in seen["rows"].items():
                found[name].setdefault(row, []).append(value)
    return found, known, failures


def rows_of(found):
    rows = []
    for row in dict.fromkeys(row for seen in found.values() for row in seen):
        values = {name: [statistics.median(seen[row]), min(seen[row]), max(seen[row])]
                  for name, seen in found.items() if row in seen}
        ratios = {name: round(values[peer][0] / values[name][0], 3)
                  for name in values if (peer := BACKENDS[name][2]) in values}
        rows.append({"row": row, "unit": "ns", "values": values, "times_as_fast": ratios})
    return rows


def describe():
    import millpond

    pool = millpond.Pool()
    return {"device": pool.device_name, "emulated": pool.is_emulated, "cpu": machine.cpu(), "commit": machine.commit(),
            "command": machine.command("bench/bench_python.py"), "environment": machine.environment(),
            "time": machine.now()}


def show(result):
    names = list(dict.fromkeys(name for row in result["rows"] for name in row["values"]))
    print(f"{result['device']}{' (emulated)' if result['emulated'] else ''}, {result['cpu']}; "
          f"{result['repeats']} repeats; ns an array")
    print("| row | " + " | ".join(names) + " |")
    print("| --- | " + " | ".join("---:" for _ in names) + " |")
    for row in result["rows"]:
        cells = []
        for name in names:
            value, ratio = row["values"].get(name), row["times_as_fast"].get(name)
            cells.append("" if value is None else f"{value[0]:,.0f}" + (f" ({ratio:.2f} x)" if ratio else ""))
        print(f"| {row['row']} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="by default bench/results/python-<device>.json")
    parser.add_argument("--only", help="names of backends, separated by semicolons")
    parser.add_argument("--table", type=Path, metavar="FILE", help="show a file of results again")
    parser.add_argument("--one", choices=BACKENDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        rows = measure(options.one, options.quick)
        print(json.dumps({"rows": rows, "versions": versions()}))
        return
    if options.table:
        show(json.loads(options.table.read_text(encoding="utf-8")))
        return
    names = options.only.split(";") if options.only else available()
    unknown = [name for name in names if name not in BACKENDS]
    if unknown:
        parser.error(f"no backend {unknown[0]!r}; there are {'; '.join(BACKENDS)}")
    about = describe()
    found, known, failures = repeat_all(names, options.repeats, options.quick)
    result = {**about, "versions": known, "repeats": options.repeats, "values": "median, least, most of the repeats",
              "rows": rows_of(found), "failures": failures}
    out = options.out or machine.ROOT / "bench" / "results" / f"python-{machine.file_name(about['device'])}.json"
    os.makedirs(out.parent, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    show(result)
    if failures:
        sys.exit(f"bench_python: {len(failures)} backends failed: {'; '.join(failures)}")


if __name__ == "__main__":
    main()
