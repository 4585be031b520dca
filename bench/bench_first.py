#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First results and memory of models, each in a process of its own: here, and on the CUDA provider of onnxruntime-gpu.

    bench/bench_first.py --peer FOLDER [--only TEXT] [--nets FOLDER] [--runs 20] [--name NAME]

FOLDER holds the package onnxruntime of an onnxruntime-gpu wheel. The ways: `cold` by default options with an empty
cache of kernels (those compiled ahead count, where they lie beside the library), `warm` the same once more, `nodes`
without islands, `in-tree` the peer's ordinary run. `first_s` goes from before the session is made, the provider not
yet registered, to the first result with NumPy inputs; CUDA's own start is in it. `mib` is what the device had less of
memory at most while the process ran, as another process sees it: weights, workspaces, code and CUDA's context are in
it. `ms` is the median of further runs with values bound on the device. Subjects are those of bench_in_tree.py. The
results go to bench/results/first-NAME.json.
"""

import argparse
import ctypes
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

os.environ.setdefault("MILLPOND_STAND_IN", "on")  # other benchmarks wait for the compiler
import bench_models  # noqa: E402  (beside this file)
import fetch_models  # noqa: E402
import machine  # noqa: E402
import nets  # noqa: E402
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402

PEER = "CUDAExecutionProvider"
WAYS = {"cold": {}, "warm": {}, "nodes": {"fusion": "0"}, "in-tree": {}}
MIB = 1 << 20
POLL_S = 0.002


class Watch(threading.Thread):
    """The least free memory of the first GPU while it watches, in bytes; through a context of its own."""

    def __init__(self):
        super().__init__(daemon=True)
        self.cuda, self.ends = ctypes.CDLL("libcuda.so.1"), threading.Event()
        self.context = ctypes.c_void_p()
        if self.cuda.cuInit(0) or self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0):
            sys.exit("bench_first: there is no GPU whose memory could be watched")
        self.least = self.before = self.free()

    def free(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda.cuCtxSetCurrent(self.context)
        self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return free.value

    def run(self):
        while not self.ends.wait(POLL_S):
            self.least = min(self.least, self.free())

    def used_mib(self):
        self.ends.set()
        self.join()
        return round((self.before - self.least) / MIB, 1)


def subjects(args):
    found = bench_models.subjects(fetch_models.default_dir(), args.only)
    return itertools.chain(found, nets.subjects(args.nets, args.only)) if args.nets else found


def session_of(way, model):
    if way == "in-tree":
        return ort.InferenceSession(model, provider.session_options(), providers=[PEER, provider.CPU])
    return provider.session(model, provider_options=WAYS[way])


def child(args):
    """One model, one way; prints JSON as its last line."""
    model, inputs = next((model, next(iter(pairs))[1]) for name, model, pairs in subjects(args) if name == args.model)
    started = time.perf_counter()
    session = session_of(args.way, model)
    session.run(None, inputs)
    first_s = time.perf_counter() - started
    binding, _ = bench_models.bound(session, inputs)
    times = []
    for _ in range(args.runs):
        started = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append(time.perf_counter() - started)
    print(json.dumps({"first_s": round(first_s, 3), "ms": round(1e3 * sorted(times)[len(times) // 2], 4)}))


def measure(args, name, way, cache):
    env = dict(os.environ, MILLPOND_CACHE_DIR=cache)
    if way == "in-tree":
        env["PYTHONPATH"] = os.pathsep.join([args.peer, *filter(None, [env.get("PYTHONPATH")])])
    command = [sys.executable, __file__, "--peer", args.peer, "--only", name, "--model", name, "--way", way,
               "--runs", str(args.runs), *(["--nets", args.nets] if args.nets else [])]
    watch = Watch()
    watch.start()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    used = watch.used_mib()
    if done.returncode != 0:
        return {"error": " ".join(done.stderr.split())[-160:]}
    return json.loads(done.stdout.splitlines()[-1]) | {"mib": used}


def show(row):
    figures = (f"{of['first_s']:9.3f} s {of['mib']:7.0f} MiB" if "mib" in of else f"{'-':>23s}"
               for of in (row[way] for way in WAYS))
    print(f"{row['model']:20s}{''.join(figures)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="folder with the package onnxruntime of onnxruntime-gpu")
    parser.add_argument("--only", default="", help="only subjects whose name holds this; several with commas between")
    parser.add_argument("--nets", help="folder of the networks of nets.py, which are measured, too")
    parser.add_argument("--runs", type=int, default=20, help="runs after the first")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.model:
        return child(args)
    if args.nets:
        nets.make_all(args.nets, args.only)
    result = {**bench_models.setting(provider.register()[0]), "command": machine.command("bench/bench_first.py"),
              "rows": []}
    print(f"{result['device']}: first result and most memory, {', '.join(WAYS)}")
    for name in [name for name, _, _ in subjects(args)]:
        with tempfile.TemporaryDirectory() as cache:
            measure(args, name, "cold", cache)  # so that no way alone reads the libraries' files from the disk
        with tempfile.TemporaryDirectory() as cache:
            row = {"model": name, **{way: measure(args, name, way, cache) for way in WAYS}}
        result["rows"].append(row)
        show(row)
    machine.save(result, f"first-{args.name or machine.file_name(result['device'])}", args.out)
    return None


if __name__ == "__main__":
    main()
