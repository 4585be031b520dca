#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process that uses ONNX Runtime, Numba, CuPy and PyTorch in turn, with a pool each and with one pool for all.

    python examples/one_pool.py [--mib 2048] [--rounds 2] [--json FILE]

Each phase needs about --mib MiB and drops all of it at its end, but a pool of its own keeps what it has had. The
program runs itself once each way, checks every result, and prints the most device memory in use. It needs a GPU, and
the four libraries.
"""

import argparse
import ctypes
import gc
import importlib.metadata
import json
import subprocess
import sys
import threading
import time

import numpy as np

MIB = 1 << 20
OWN, ONE = "own", "one"
WIDE, NARROW, SAMPLE = 4096, 64, 50  # columns of activations, of inputs; rows that are checked


# ---- device memory ----


def driver():
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError:
        found = None
    if found is None or found.cuInit(0) != 0:
        sys.exit("one_pool: no GPU can be used")
    return found


class DeviceMemory:
    """The most device memory in use since `begin()`, looked at every 2 ms through the driver."""

    def __init__(self):
        self.driver, self.context = driver(), ctypes.c_void_p()
        self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0)
        self.peak, self.done = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def used(self):
        free, total, before = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
        self.driver.cuCtxGetCurrent(ctypes.byref(before))
        self.driver.cuCtxSetCurrent(self.context)
        self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        self.driver.cuCtxSetCurrent(before)
        return total.value - free.value

    def watch(self):
        while not self.done.wait(0.002):
            self.peak = max(self.peak, self.used())

    def begin(self):
        self.start = self.peak = self.used()
        self.thread.start()

    def end(self):
        self.done.set()
        self.thread.join()
        return max(self.peak, self.used()) - self.start


# ---- one pool for all ----


def share_one_pool():
    """Before any of the libraries uses the GPU. ONNX Runtime's provider lives from the pool by itself."""
    import millpond.cupy
    import millpond.numba
    import millpond.torch

    millpond.numba.use()
    millpond.cupy.install()
    millpond.torch.install()


# ---- the phases; each makes what it needs, checks it, and leaves nothing ----


def make_session():
    import millpond
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    chance = np.random.default_rng(1)
    weights = [chance.standard_normal(shape, np.float32) / 64 for shape in ((NARROW, WIDE), (WIDE, NARROW))]
    nodes = [helper.make_node("MatMul", ["x", "first"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "second"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", NARROW]) for name in "xy"]
    constants = [numpy_helper.from_array(value, name) for value, name in zip(weights, ("first", "second"), strict=True)]
    graph = helper.make_graph(nodes, "phase", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if not any(device.ep_name == millpond.get_ep_name() for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(millpond.get_ep_name(), millpond.get_library_path())
    session = ort.InferenceSession(model.SerializeToString(), providers=[(millpond.get_ep_name(), {}),
                                                                         "CPUExecutionProvider"])
    return session, weights


def infer(state, mib):
    """ONNX Runtime: a network with `mib` MiB of activations."""
    session, (first, second) = state
    x = np.random.default_rng(2).standard_normal((mib * MIB // (WIDE * 4), NARROW), np.float32)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y[:SAMPLE], np.maximum(x[:SAMPLE] @ first, 0) @ second, rtol=1e-2, atol=2e-3)


def make_kernel():
    if not hasattr(np, "row_stack"):  # numba-cuda up to 0.30 looks for it, and NumPy 2.5 has it no more
        np.row_stack = np.vstack
    from numba import cuda

    @cuda.jit
    def axpy(a, x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] += a * x[i]

    return cuda, axpy


def kernels(state, mib):
    """Numba: arrays of half the size each, and a kernel over them."""
    cuda, axpy = state
    count = mib * MIB // 8
    x, y = cuda.device_array(count, np.float32), cuda.device_array(count, np.float32)
    x.copy_to_device(np.arange(count, dtype=np.float32))
    y.copy_to_device(np.ones(count, np.float32))
    axpy[(count + 255) // 256, 256](2, x, y)
    np.testing.assert_array_equal(y[:SAMPLE].copy_to_host(), np.arange(SAMPLE, dtype=np.float32) * 2 + 1)


def arrays(cupy, mib):
    """CuPy: a sort and a sum, with temporary arrays of CuPy's own."""
    count = mib * MIB // 16
    x = cupy.arange(count, dtype=cupy.float32)[::-1].copy()
    ordered = cupy.sort(x)
    total = (ordered[: 1 << 20] * 2).astype(cupy.float64).sum()
    least = min(count, 1 << 20)
    assert float(total) == least * (least - 1.0) and float(ordered[-1]) == np.float32(count - 1)


def make_network():
    import torch

    torch.manual_seed(1)
    return torch, torch.nn.Sequential(torch.nn.Linear(NARROW, WIDE), torch.nn.ReLU(), torch.nn.Linear(WIDE, 1))


def train(state, mib):
    """PyTorch: a step forward and back, with `mib` MiB of activations."""
    torch, network = state
    network.cuda().zero_grad(set_to_none=True)
    x = torch.ones(mib * MIB // (3 * WIDE * 4), NARROW, device="cuda") / 8
    out = network(x)
    out.mean().backward()
    gradient = network[0].weight.grad.cpu()
    network.zero_grad(set_to_none=True)
    del x
    one = torch.full((1, NARROW), 1 / 8)
    network.cpu()
    torch.testing.assert_close(out[:1].detach().cpu(), network(one).detach(), rtol=1e-2, atol=2e-3)
    network(one).mean().backward()
    torch.testing.assert_close(gradient, network[0].weight.grad, rtol=1e-2, atol=1e-3)


def prepare():
    """[(name, phase, its state)], in the order in which they run."""
    import cupy

    return [("onnxruntime", infer, make_session()), ("numba", kernels, make_kernel()), ("cupy", arrays, cupy),
            ("torch", train, make_network())]


# ---- both ways ----


def run(pools, mib, rounds):
    """One way, in this process; what was seen."""
    if pools == ONE:
        share_one_pool()
    memory, phases = DeviceMemory(), prepare()
    for _, phase, state in phases:  # contexts, libraries and kernels are loaded
        phase(state, 8)
    gc.collect()
    memory.begin()
    seen, started = [], time.perf_counter()
    for turn in range(rounds):
        for name, phase, state in phases:
            phase(state, mib)
            gc.collect()
            seen.append({"round": turn, "phase": name, "used_after": memory.used() - memory.start})
    return {"pools": pools, "mib": mib, "rounds": rounds, "phases": seen, "seconds": time.perf_counter() - started,
            "peak": memory.end()}


def run_apart(pools, options):
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--pools", pools, "--mib", str(options.mib), "--rounds", str(options.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"one_pool: with {pools} the process failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def describe(options):
    """What the results were measured on."""
    import millpond

    names = ("onnxruntime", "numba-cuda", "cupy-cuda13x", "cupy-cuda12x", "torch", "numpy")
    found = {name: version(name) for name in names}
    return {"device": millpond.Pool("cuda:0").device_name, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": f"examples/one_pool.py --mib {options.mib} --rounds {options.rounds}",
            "versions": {name: value for name, value in found.items() if value}}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def show(results):
    print(f"{'device memory in use, MiB':28}{'four pools':>12}{'one pool':>12}")
    for own, one in zip(results[OWN]["phases"], results[ONE]["phases"], strict=True):
        label = f"round {own['round'] + 1}, after {own['phase']}"
        print(f"{label:28}{own['used_after'] / MIB:12.0f}{one['used_after'] / MIB:12.0f}")
    own, one = results[OWN]["peak"], results[ONE]["peak"]
    print(f"{'at most':28}{own / MIB:12.0f}{one / MIB:12.0f}")
    print(f"one pool needs {100 * (1 - one / own):.0f} % less")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2048, help="what a phase needs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pools", choices=(OWN, ONE), help="run one way only, and print what was seen as JSON")
    parser.add_argument("--json", metavar="FILE", help="write both results there")
    options = parser.parse_args()
    if options.pools:
        print(json.dumps(run(options.pools, options.mib, options.rounds)))
        return
    driver()
    results = {pools: run_apart(pools, options) for pools in (OWN, ONE)}
    show(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**describe(options), **results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
