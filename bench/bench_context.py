#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times how a session comes to be, from a model and from its compiled form (ep.context_enable).

    bench_context.py [--repeats 7] [--out FILE] [MODEL ...]

MODEL is a file; by default those of .cache/models of less than 100 MB. Each repeat makes a session of either form, by
turns. The figures are medians, in milliseconds: by the clock, and of this process on all its threads.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import machine  # noqa: E402  (beside this file)
import millpond.onnxruntime as mort  # noqa: E402
import onnxruntime as ort  # noqa: E402

MOST_BYTES = 100 << 20


def options(**entries):
    made = ort.SessionOptions()
    made.log_severity_level = 3
    for key, value in entries.items():
        made.add_session_config_entry("ep." + key, str(value))
    return made


def compile_model(path, target):
    """Whether ONNX Runtime has written a compiled model."""
    mort.session(path, session_options=options(context_enable=1, context_file_path=target, context_embed_mode=1))
    return os.path.exists(target)


def timed(path):
    clock, busy = time.perf_counter(), time.process_time()
    mort.session(path, session_options=options())
    return 1e3 * (time.perf_counter() - clock), 1e3 * (time.process_time() - busy)


def measure(path, repeats):
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "compiled.onnx")
        if not compile_model(path, target):
            return None
        times = {"plain": [], "compiled": []}
        for _ in range(repeats):
            times["plain"].append(timed(path))
            times["compiled"].append(timed(target))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    return {f"{name}_{what}_ms": round(value, 2) for name, pair in medians.items()
            for what, value in zip(("clock", "processor"), pair, strict=True)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write JSON there")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    args = parser.parse_args()
    models = args.models or sorted(str(path) for path in (machine.ROOT / ".cache/models/models").glob("*.onnx")
                                   if path.stat().st_size < MOST_BYTES)  # fmt: skip
    rows = []
    print(f"{'model':<20} {'plain':>8} {'compiled':>9}   of the processor: {'plain':>6} {'compiled':>9}")
    for path in models:
        found = measure(path, args.repeats)
        name = Path(path).stem
        if found is None:
            print(f"{name:<20} is not compiled: see the log")
            continue
        rows.append({"model": name, **found})
        print(f"{name:<20} {found['plain_clock_ms']:8.1f} {found['compiled_clock_ms']:9.1f}"
              f"   {found['plain_processor_ms']:24.1f} {found['compiled_processor_ms']:9.1f}", flush=True)  # fmt: skip
    if args.out:
        about = {"when": machine.now(), "commit": machine.commit(), "cpu": machine.cpu(), "runtime": ort.__version__,
                 "device": mort.devices()[0].name, "environment": machine.environment()}  # fmt: skip
        args.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
