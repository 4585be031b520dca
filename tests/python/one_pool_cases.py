# SPDX-License-Identifier: Apache-2.0
"""What test_one_pool_gpu.py runs, each case in a process of its own: one_pool_cases.py CASE [OPERATIONS].

The libraries that are there take part; the last line printed is a JSON object.
"""

import ctypes
import gc
import importlib.util
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time

import millpond
import numpy as np
from case_kit import CASES, MIB, case

BUDGET = 2048 * MIB  # of live arrays


# ---- the libraries, each as: make(bytes, value) -> array of int32, and check(array, value) ----


class Cupy:
    def __init__(self):
        import cupy
        import millpond.cupy

        millpond.cupy.install()
        self.cupy = cupy
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]

    def make(self, size, value):
        stream = random.choice(self.streams)
        with stream:
            array = self.cupy.full(size // 4, value, "i4")
        if random.random() < 0.5:
            stream.synchronize()
        return stream, array

    def check(self, made, value):
        stream, array = made
        with stream:
            return int(self.cupy.abs(array - value).max()) == 0


class Torch:
    def __init__(self):
        import millpond.torch
        import torch

        millpond.torch.install()
        self.torch = torch
        self.streams = [torch.cuda.Stream() for _ in range(3)]

    def make(self, size, value):
        stream = random.choice(self.streams)
        with self.torch.cuda.stream(stream):
            return stream, self.torch.full((size // 4,), value, dtype=self.torch.int32, device="cuda")

    def check(self, made, value):
        stream, tensor = made
        with self.torch.cuda.stream(stream):
            return bool((tensor == value).all())


class Numba:
    def __init__(self):
        import millpond.numba
        from numba import cuda

        millpond.numba.use()

        @cuda.jit
        def fill(array, value):
            i = cuda.grid(1)
            if i < array.size:
                array[i] = value

        self.cuda, self.fill = cuda, fill

    def make(self, size, value):
        array = self.cuda.device_array(size // 4, np.int32)
        self.fill[(array.size + 255) // 256, 256](array, value)
        return array

    def check(self, array, value):
        return bool((array.copy_to_host() == value).all())


class Ort:
    """A session that runs while the others' arrays are live; it leaves no array of its own."""

    def __init__(self):
        import onnxruntime as ort
        from onnx import TensorProto, helper

        nodes = [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Mul", ["a", "x"], ["y"])]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
        model = helper.make_model(helper.make_graph(nodes, "step", ends[:1], ends[1:]),
                                  opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        ort.register_execution_provider_library(millpond.get_ep_name(), millpond.get_library_path())
        providers = [(millpond.get_ep_name(), {}), "CPUExecutionProvider"]
        self.session = ort.InferenceSession(model.SerializeToString(), providers=providers)

    def run(self, count):
        x = np.arange(count, dtype=np.float32) % 100
        (y,) = self.session.run(None, {"x": x})
        return bool((y == 2 * x * x).all())


NEEDS = {"torch": Torch, "numba": Numba, "cupy": Cupy}  # torch first: it must not have used the GPU


def libraries():
    found = {name: kind() for name, kind in NEEDS.items() if importlib.util.find_spec(name) is not None}
    if importlib.util.find_spec("onnxruntime") is not None and importlib.util.find_spec("onnx") is not None:
        found["onnxruntime"] = Ort()
    return found


# ---- random phases ----


class Phases:
    """Random requests in phases: each prefers some library and some size."""

    def __init__(self, operations):
        random.seed(5)
        self.all = libraries()
        self.makers = [name for name in self.all if name in NEEDS]
        self.operations, self.live, self.bytes, self.checks = operations, [], 0, 0
        self.samples = []  # (operation, bytes that the pool has, resident bytes of the process)
        self.counts = dict.fromkeys(self.all, 0)
        self.pool = millpond.Pool("cuda:0", client="watcher")
        self.phase()

    def phase(self):
        self.weights = [random.random() + 0.05 for _ in self.makers]
        self.least, self.most = sorted(random.uniform(math.log(256), math.log(48 * MIB)) for _ in range(2))
        self.target = random.uniform(0.1, 1) * BUDGET

    def make(self):
        size = int(math.exp(random.uniform(self.least, self.most))) // 4 * 4
        (name,) = random.choices(self.makers, self.weights)
        value = random.randrange(1 << 20)
        self.live.append((name, size, value, self.all[name].make(size, value)))
        self.bytes += size
        self.counts[name] += 1

    def drop(self):
        index = random.randrange(len(self.live))
        self.live[index], self.live[-1] = self.live[-1], self.live[index]
        name, size, value, made = self.live.pop()
        if random.random() < 0.05:
            self.check(name, value, made)
        self.bytes -= size

    def check(self, name, value, made):
        assert self.all[name].check(made, value), f"{name}: an array has lost its value {value}"
        self.checks += 1

    def step(self, operation):
        if operation % 1000 == 0:
            self.phase()
        if "onnxruntime" in self.all and operation % 50 == 0:
            assert self.all["onnxruntime"].run(random.randrange(1, MIB)), "onnxruntime: a wrong result"
            self.counts["onnxruntime"] += 1
        elif not self.live or (self.bytes < self.target and len(self.live) < 2000 and random.random() < 0.6):
            self.make()
        else:
            self.drop()
        if operation % max(1, self.operations // 20) == 0:
            self.sample(operation)

    def sample(self, operation):
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        self.samples.append((operation, self.pool.stats()["total"], resident))

    def run(self):
        started = time.perf_counter()
        for operation in range(1, self.operations + 1):
            self.step(operation)
        seconds = time.perf_counter() - started
        for name, _, value, made in self.live:
            self.check(name, value, made)
        self.live.clear()
        gc.collect()
        return seconds


@case
def random_phases(operations="100000"):
    phases = Phases(int(operations))
    seconds = phases.run()
    if "numba" in phases.all:
        import millpond.numba

        millpond.numba.flush()
    stats = phases.pool.stats()
    half = len(phases.samples) // 2
    print(json.dumps({
        "operations": phases.operations, "seconds": seconds, "counts": phases.counts, "checks": phases.checks,
        "total_max": stats["total_max"], "budget": BUDGET, "streams": len(phases.pool.streams()),
        "total_first_half": max(sample[1] for sample in phases.samples[:half]),
        "total_second_half": max(sample[1] for sample in phases.samples[half:]),
        "resident_half": phases.samples[half][2], "resident_end": phases.samples[-1][2],
        "left": {share["name"]: share["in_use"] for share in phases.pool.clients()},
    }))


# ---- a child that dies ----


def used():
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuInit(0) == 0
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


@case
def child(size):
    """Holds memory of all libraries until it is killed, in the midst of work."""
    makers = [one for name, one in libraries().items() if name in NEEDS]
    kept = [one.make(int(size), 1) for one in makers]
    print(len(kept), flush=True)
    while True:
        for one in makers:
            one.make(MIB, 2)


@case
def dying_child():
    """What a child had goes back to the device; the parent's arrays and its pool are as before."""
    mine = libraries()
    held = [(name, one, one.make(64 * MIB, 7)) for name, one in mine.items() if name in NEEDS]
    for name, one, made in held:
        assert one.check(made, 7), name
    before = used()
    process = subprocess.Popen([sys.executable, __file__, "child", str(512 * MIB)], stdout=subprocess.PIPE, text=True)
    count = int(process.stdout.readline())
    grown = used() - before
    assert grown >= count * 512 * MIB, (grown, count)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    limit = time.monotonic() + 30
    while used() - before > 64 * MIB and time.monotonic() < limit:
        time.sleep(0.1)
    left = used() - before
    assert left <= 64 * MIB, left
    for name, one, made in held:
        assert one.check(made, 7), name
        assert one.check(one.make(MIB, 3), 3), name
    print(json.dumps({"grown": grown, "left": left, "libraries": sorted(mine)}))


@case
def threads():
    """All libraries at the same time, each on a thread of its own."""
    mine, wrong = libraries(), []

    def work(name, one):
        for turn in range(150):
            if name == "onnxruntime":
                good = one.run(1000 + turn)
            else:
                good = all(one.check(one.make(4 * (1 + turn * 997 % 500_000), value), value) for value in range(3))
            if not good:
                wrong.append((name, turn))

    team = [threading.Thread(target=work, args=pair) for pair in mine.items()]
    for one in team:
        one.start()
    for one in team:
        one.join()
    assert not wrong, wrong[:5]
    print(json.dumps({"libraries": sorted(mine)}))


if __name__ == "__main__":
    CASES[sys.argv[1]](*sys.argv[2:])
