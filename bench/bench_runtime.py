#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the provider's runtime: models and chains of small nodes, with captured graphs and without, on the arena and
on the driver's own pool; and what a node costs, part by part.

    bench/bench_runtime.py --build build/cuda [--only TEXT] [--seconds 1] [--name NAME]

Each kind of pool is measured in a process of its own, since a process has one pool a device. Inputs and outputs are
bound on the device. `relative` is the norm of the difference from the CPU provider, of the last run. The results go to
bench/results/runtime-NAME.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import fetch_models  # noqa: E402
import machine  # noqa: E402

POOLS = {"arena": "", "mempool": "arena.use_cuda_mempool=1"}
CHAINS = (1, 50, 100, 200)
MODELS = ("mtcnn_onet", "ppocrv6_rec", "minilm_l6_int8w", "smollm2-135m-fp32")
GRAPH = {"enable_cuda_graph": "1"}
MANY = 3000  # runs of a small model at most


def subjects(only):
    """(name, model, label and inputs) of each subject whose name holds `only`."""
    import feeds
    import small_models

    for length in CHAINS:
        if only in (name := f"add_chain_{length}"):
            x = np.arange(bench_models.CHAIN_COUNT, dtype=np.float32)
            yield name, small_models.add_chain(length, bench_models.CHAIN_COUNT), [("1024 floats", {"x": x})]
    root = fetch_models.default_dir()
    for name in MODELS:
        path = Path(root) / "models" / f"{name}.onnx"
        if only in name and path.exists():
            yield name, str(path), list(feeds.feeds(name, root))


def measure(model, inputs, options, seconds, expected):
    import provider

    session = provider.session(model, provider_options=options)
    binding, outputs = bench_models.bound(session, inputs)
    for _ in range(4):  # warm-up and capture
        session.run_with_iobinding(binding)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < MANY):
        started = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append((time.perf_counter() - started) * 1e3)
    relative = bench_models.relative_norm([output.numpy() for output in outputs], expected)
    return {"ms": round(float(np.median(times)), 4), "runs": len(times), "relative": float(f"{relative:.3e}")}


def child(args):
    """Measures with the pool that the environment asks for; prints JSON."""
    import provider

    provider.register()
    rows = []
    for name, model, pairs in subjects(args.only):
        for label, inputs in pairs:
            expected = provider.session(model, provider.CPU).run(None, inputs)
            for graph in (False, True):
                row = {"model": name, "label": label, "graph": graph}
                try:
                    row |= measure(model, inputs, GRAPH if graph else {}, args.seconds, expected)
                except Exception as error:  # what cannot be captured is a row, too
                    row["error"] = " ".join(str(error).split())[-240:]
                rows.append(row)
                print(f"# {row}", file=sys.stderr, flush=True)
    device = provider.devices()[0]
    print(json.dumps({"setting": bench_models.setting(device), "rows": rows}))


def parts(build, emulated):
    """{part: ns} of a node's run, by node_bench."""
    program = Path(build) / "bench/node/node_bench"
    done = subprocess.run([program, "host" if emulated else "cuda"], capture_output=True, text=True, check=True)
    return {name: float(ns) for name, ns in (line.split() for line in done.stdout.splitlines())}


def per_node(rows):
    """ns a node of the chains on one pool: the slope from the shortest to the longest."""
    found = {}
    for graph in (False, True):
        chains = {int(row["model"].rsplit("_", 1)[1]): row["ms"] for row in rows
                  if row["model"].startswith("add_chain") and row["graph"] == graph and "ms" in row}
        if len(chains) > 1:
            first, last = min(chains), max(chains)
            found["graph" if graph else "plain"] = round((chains[last] - chains[first]) / (last - first) * 1e6, 1)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/dev", help="build folder, for node_bench")
    parser.add_argument("--only", default="", help="measure only subjects whose name holds this")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each figure")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    result = {"rows": []}
    for pool, options in POOLS.items():
        env = dict(os.environ, MILLPOND_POOL=options) if options else dict(os.environ)
        command = [sys.executable, __file__, "--child", "--only", args.only, "--seconds", str(args.seconds)]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        result = {**found["setting"], "command": machine.command("bench/bench_runtime.py"), **result}
        result["rows"] += [{"pool": pool, **row} for row in found["rows"]]
        result.setdefault("ns_per_node", {})[pool] = per_node(found["rows"])
    result["ns_parts"] = parts(args.build, result["emulated"])
    for row in result["rows"]:
        figure = f"{row['ms']:9.3f} ms  {row['relative']:.1e}" if "ms" in row else row["error"]
        how = "graph" if row["graph"] else "plain"
        print(f"{row['model']:18s} {row['label']:22s} {row['pool']:8s} {how:6s} {figure}")
    print(f"ns a node: {result['ns_per_node']}; of which ours: {result['ns_parts']}")
    machine.save(result, f"runtime-{args.name or machine.file_name(result['device'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
