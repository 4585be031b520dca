#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times trained models and chains of small operators on Millpond's EP and on ONNX Runtime's CPU EP.

Inputs and outputs are bound on the device, so a run is what a caller pays who keeps the data there. Each figure is the
median of many runs after warm-up; `relative` is the norm of the difference from the CPU EP. The results go to
bench/results/NAME.json, with the device and the versions they were measured with.

    bench/bench_models.py [--only TEXT] [--seconds 2] [--name NAME] [--no-cpu]
"""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
from onnx import TensorProto

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import feeds  # noqa: E402
import fetch_models  # noqa: E402
import machine  # noqa: E402  (beside this file)
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402
import small_models  # noqa: E402
from single_case import SHARED  # noqa: E402

os.environ.setdefault("MILLPOND_STAND_IN", "off")  # a few runs are no warm-up where kernels are compiled meanwhile
CHAINS = {"add_chain_1": 1, "add_chain_200": 200}
CHAIN_COUNT = 1024
RUNS_MIN, RUNS_MAX, WARM_UP_MAX = 3, 2000, 5


def median_ms(run, seconds):
    """(median, runs) of calls until the time is used up, after a warm-up of at most the same time."""
    end = time.perf_counter() + seconds
    for _ in range(WARM_UP_MAX):
        run()
        if time.perf_counter() > end:
            break
    times, end = [], time.perf_counter() + seconds
    while len(times) < RUNS_MIN or (time.perf_counter() < end and len(times) < RUNS_MAX):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1e3)
    return float(np.median(times)), len(times)


def on_device(value):
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value), "cuda", 0)


def bind_input(binding, name, value):
    """Binds a copy on the device, which is returned and has to live as long as the binding. ONNX Runtime takes no NumPy
    array of bfloat16, so its bits are copied as integers."""
    if value.dtype != ml_dtypes.bfloat16:
        copy = on_device(value)
        binding.bind_ortvalue_input(name, copy)
        return copy
    bits = on_device(value.view(np.int16))
    binding.bind_input(name, "cuda", 0, TensorProto.BFLOAT16, value.shape, bits.data_ptr())
    return bits


def bound(session, inputs):
    """A binding with every input and, at the shapes of a first run, every output on the device; those that are called
    so lie where an input does."""
    binding = session.io_binding()
    binding.kept = {name: bind_input(binding, name, value) for name, value in inputs.items()}
    names = [output.name for output in session.get_outputs()]
    for name in names:
        if name.endswith(SHARED):
            binding.bind_ortvalue_output(name, binding.kept[name.removesuffix(SHARED)])
        else:
            binding.bind_output(name, "cuda", 0)
    session.run_with_iobinding(binding)
    outputs = binding.get_outputs()
    for name, value in zip(names, outputs, strict=True):
        binding.bind_ortvalue_output(name, value)
    return binding, outputs


def relative_norm(results, expected):
    pairs = [(a, b) for a, b in zip(results, expected, strict=True) if b.dtype.kind == "f" and a.shape == b.shape]
    gap = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in pairs)
    size = sum(float((b.astype(np.float64) ** 2).sum()) for _, b in pairs)
    return (gap / size) ** 0.5 if size else 0.0


def measure(model, inputs, session, cpu, seconds):
    binding, outputs = bound(session, inputs)
    ms, runs = median_ms(lambda: session.run_with_iobinding(binding), seconds)
    placed = {ep: sum(ops.values()) for ep, ops in provider.assignment(session).items()}
    row = {"model": model, "ms": round(ms, 4), "runs": runs, "nodes": placed}
    if cpu is not None:
        row["relative"] = float(f"{relative_norm([o.numpy() for o in outputs], cpu.run(None, inputs)):.3e}")
        row["cpu_ms"] = round(median_ms(lambda: cpu.run(None, inputs), seconds)[0], 4)
    return row


def sessions(model, with_cpu):
    started = time.perf_counter()
    session = provider.session(model)
    load_s = time.perf_counter() - started
    return session, provider.session(model, provider.CPU) if with_cpu else None, load_s


def subjects(root, only):
    """(name, model, pairs of label and feed) of each subject whose name holds `only` or a part between commas."""
    parts = only.split(",")
    for name, length in CHAINS.items():
        if any(part in name for part in parts):
            x = np.arange(CHAIN_COUNT, dtype=np.float32)
            yield name, small_models.add_chain(length, CHAIN_COUNT), [(f"{CHAIN_COUNT} floats", {"x": x})]
    for name in feeds.FEEDS:
        path = Path(root) / "models" / f"{name}.onnx"
        if any(part in name for part in parts) and path.exists():
            yield name, str(path), feeds.feeds(name, root)


def setting(device):
    known = provider.metadata(device)
    return {
        "device": provider.device_name(device),
        "emulated": provider.is_emulated(device),
        "compute_capability": known.get("cuda_compute_capability", ""),
        "driver": known.get("driver", ""),
        "cpu": machine.cpu(),
        "onnxruntime": ort.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "commit": machine.commit(),
        "command": machine.command("bench/bench_models.py"),
        "environment": machine.environment(),
        "time": machine.now(),
    }


def show(row):
    cpu = f"{row['cpu_ms']:10.3f} {row['relative']:9.1e}" if "cpu_ms" in row else ""
    nodes = ", ".join(f"{count} {ep.removesuffix('ExecutionProvider')}" for ep, count in sorted(row["nodes"].items()))
    print(f"{row['model']:20s} {row['label']:24s} {row['ms']:10.3f} {cpu}  {nodes}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only subjects whose name holds this; several with commas between")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each figure")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--no-cpu", action="store_true", help="do not measure the CPU EP")
    args = parser.parse_args()
    device = provider.register()[0]
    result = {**setting(device), "results": []}
    print(f"{result['device']}{' (emulated)' if result['emulated'] else ''}, onnxruntime {ort.__version__}")
    print(f"{'model':20s} {'input':24s} {'ms':>10s} {'CPU EP ms':>10s} {'relative':>9s}  nodes")
    for name, model, pairs in subjects(fetch_models.default_dir(), args.only):
        session, cpu, load_s = sessions(model, not args.no_cpu)
        for label, inputs in pairs:
            row = {"label": label, "load_s": round(load_s, 3), **measure(name, inputs, session, cpu, args.seconds)}
            result["results"].append(row)
            show(row)
    if not result["results"]:
        sys.exit(f"bench_models: nothing to measure; no subject holds '{args.only}', or no models were fetched")
    machine.save(result, args.name or machine.file_name(result["device"]))


if __name__ == "__main__":
    main()
