#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one allocator from Python, in a process of its own; bench_pool.py runs it.

    python_loops.py --backend NAME --plugin libbench_millpond.so [--trace FILE]... [--quick]

A framework's own pool and Millpond's stand behind the same functions of that framework, so the cost of calling from
Python is the same for both:

torch            torch.cuda.caching_allocator_alloc and _delete on PyTorch's caching allocator
torch-expandable the same with expandable_segments
torch+millpond   the same with Millpond behind CUDAPluggableAllocator, which adds a lock and a map of its own
cupy             cupy.cuda.MemoryPool().malloc
cupy+millpond    cupy.cuda.CFunctionAllocator over Millpond, on the stream that the loop has chosen
ctypes+millpond  Millpond called by ctypes; needs no framework and no GPU

A name that ends with +millpond-expandable is the same over expandable regions (arena.expandable=1).
"""

import argparse
import ctypes
import json
import math
import os
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import traces  # noqa: E402  (beside this file)

NO_STREAM = ctypes.c_void_p(-1).value  # as millpond.h: memory without a stream
BATCH, STREAMS = 1000, 16
MIB = 1 << 20


class Plugin:
    """Millpond's pool as plugin.h names its functions."""

    def __init__(self, path, init):
        self.path, self.init = str(path), init
        self.library = ctypes.CDLL(self.path)
        self.library.bench_alloc.restype = ctypes.c_void_p
        self.library.bench_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.library.bench_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.library.bench_free.restype = None
        self.library.bench_init.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.library.bench_fini.restype = None
        self.open()

    def open(self):
        if self.library.bench_init(self.init.encode(), 0) != 0:
            sys.exit(f"python_loops: {self.path} cannot open a pool with '{self.init}'")

    def fresh(self):
        self.library.bench_fini()
        self.open()

    def reserved(self):
        now, peak = ctypes.c_uint64(), ctypes.c_uint64()
        if self.library.bench_reserved(ctypes.byref(now), ctypes.byref(peak)) != 0:
            sys.exit("python_loops: the pool cannot say what it has reserved")
        return peak.value

    def address(self, name):
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value


# A backend has take(size), which returns a token; drop(token), after which the token is forgotten and the block goes
# back; use(number), which chooses one of 16 streams; fresh(), which begins with a pool that has no memory; and
# reserved(), the most bytes reserved from the device since then.


class Torch:
    def __init__(self, plugin):
        import torch

        if plugin is not None:
            torch.cuda.memory.change_current_allocator(
                torch.cuda.memory.CUDAPluggableAllocator(plugin.path, "bench_alloc", "bench_free"))
        torch.cuda.init()
        self.cuda, self.plugin = torch.cuda, plugin
        self.streams = [torch.cuda.Stream() for _ in range(STREAMS)]
        self.current = self.streams[0].cuda_stream
        self.drop = torch.cuda.caching_allocator_delete
        self.alloc = torch.cuda.caching_allocator_alloc

    def take(self, size):
        return self.alloc(size, 0, self.current)

    def use(self, number):
        self.current = self.streams[number].cuda_stream

    def fresh(self):
        if self.plugin:
            self.plugin.fresh()
        else:
            self.cuda.empty_cache()
            self.cuda.reset_peak_memory_stats()

    def reserved(self):
        return self.plugin.reserved() if self.plugin else self.cuda.memory_stats()["reserved_bytes.all.peak"]


class Cupy:
    def __init__(self, plugin):
        import cupy

        cupy.cuda.Device(0).use()
        self.cuda, self.plugin = cupy.cuda, plugin
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)]
        self.current = ctypes.c_void_p(self.streams[0].ptr)
        self.drop = id  # a block goes back when nothing refers to it
        if plugin is not None:
            self.pool = cupy.cuda.CFunctionAllocator(
                ctypes.addressof(self.current), plugin.address("bench_cupy_alloc"),
                plugin.address("bench_cupy_free"), (plugin, self.current))
            self.take = self.pool.malloc

    def use(self, number):
        self.streams[number].use()
        self.current.value = self.streams[number].ptr

    def fresh(self):
        if self.plugin:
            self.plugin.fresh()
        else:
            self.pool = self.cuda.MemoryPool()
            self.take = self.pool.malloc

    def reserved(self):
        # CuPy's pool gives nothing back by itself, so what it has last is the most it had.
        return self.plugin.reserved() if self.plugin else self.pool.total_bytes()


class Ctypes:
    def __init__(self, plugin):
        self.use = id  # the one there is
        self.fresh, self.reserved = plugin.fresh, plugin.reserved
        alloc, free = plugin.library.bench_alloc, plugin.library.bench_free
        self.take = lambda size: alloc(size, 0, NO_STREAM)
        self.drop = lambda block: free(block, 0, 0, NO_STREAM)


# name: (class, the options of Millpond's pool, or None without it)
BACKENDS = {"torch": (Torch, None), "torch-expandable": (Torch, None), "cupy": (Cupy, None)}
for framework, kind in (("torch", Torch), ("cupy", Cupy), ("ctypes", Ctypes)):
    BACKENDS[f"{framework}+millpond"] = kind, ""
    BACKENDS[f"{framework}+millpond-expandable"] = kind, "arena.expandable=1"


# ---- the loops ----


def run(backend, items, blocks=None):
    """Milliseconds of all operations on `blocks`; without these, on fresh ones that are given back in the end."""
    take, drop, use = backend.take, backend.drop, backend.use
    slots = blocks if blocks is not None else [None] * (1 + max(item.slot for item in items))
    stream = 0
    use(0)
    started = time.perf_counter_ns()
    for allocate, slot, size, _, wanted in items:
        if wanted != stream:
            use(wanted)
            stream = wanted
        if allocate:
            slots[slot] = take(size)
        else:
            drop(slots[slot])
            slots[slot] = None
    ms = (time.perf_counter_ns() - started) / 1e6
    if blocks is None:
        give_back(backend, slots)
    return ms


def give_back(backend, blocks):
    for slot, block in enumerate(blocks):
        if block is not None:
            backend.drop(block)
            blocks[slot] = block = None


def pair_ns(backend, size, batches):
    take, drop = backend.take, backend.drop
    times = []
    for _ in range(batches + 2):  # the first two warm up
        started = time.perf_counter_ns()
        for _ in range(BATCH):
            block = take(size)
            drop(block)
            block = None
        times.append((time.perf_counter_ns() - started) / BATCH)
    return statistics.median(times[2:])


def log_uniform(chance, least, most):
    return int(least * math.exp(chance.random() * math.log(most / least)))


def live_items(slots, changes):
    chance = random.Random(slots)
    sizes = [log_uniform(chance, 256, 65536) for _ in range(slots)]
    build = [traces.Operation(True, slot, size, 0, 0) for slot, size in enumerate(sizes)]
    items = []
    for _ in range(changes):
        slot = chance.randrange(slots)
        items.append(traces.Operation(False, slot, sizes[slot], 0, 0))
        sizes[slot] = log_uniform(chance, 256, 65536)
        items.append(traces.Operation(True, slot, sizes[slot], 0, 0))
    return build, items


def random_items(count, size_max, cap):
    """As RMM's random_allocations: 73 of 100 draws allocate, the others free a random block."""
    chance, live, items, made, total = random.Random(1), [], [], 0, 0
    for _ in range(2 * count):
        size, wanted = chance.randint(1, size_max), chance.randrange(100) < 73
        if not live and made == count:
            break
        if not live or (wanted and made < count and total + size < cap):
            items.append(traces.Operation(True, made, size, 0, 0))
            live.append(items[-1])
            made, total = made + 1, total + size
        else:
            at = chance.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            block = live.pop()
            items.append(block._replace(allocate=False))
            total -= block.size
    return items


def row(case, name, **numbers):
    print(json.dumps({"case": case, "row": name, **numbers}), flush=True)


def case_replay(backend, paths, _):
    for path in paths:
        items = traces.read(path)
        live_peak = traces.live_peak(items)
        backend.fresh()
        cold = run(backend, items)
        peak = backend.reserved()
        warm = statistics.median(run(backend, items) for _ in range(3))
        row("python-replay", Path(path).name, cold_ns=cold * 1e6 / len(items), warm_ns=warm * 1e6 / len(items),
            reserved_ratio=peak / live_peak, reserved_peak=peak, live_peak=live_peak)


def case_pair(backend, _, quick):
    for size, name in ((256, "256 B"), (4096, "4 KiB"), (MIB, "1 MiB")):
        row("python-pair", name, ns=pair_ns(backend, size, 3 if quick else 30))


def case_live(backend, _, quick):
    for slots in (100, 1000) if quick else (100, 1000, 10000):
        build, items = live_items(slots, 500 if quick else 20000)
        blocks = [None] * slots
        run(backend, build, blocks)
        row("python-live", f"{slots} blocks", ns=run(backend, items, blocks) * 1e6 / (len(items) / 2))
        give_back(backend, blocks)


def case_random(backend, _, quick):
    count = 500 if quick else 10000
    items = random_items(count, MIB, 16000 * MIB)
    cold = run(backend, items)
    warm = statistics.median(run(backend, items) for _ in range(3))
    row("python-random", f"{count} x 1 MiB", cold_ms=cold, warm_ms=warm)


CASES = {"python-replay": case_replay, "python-pair": case_pair, "python-live": case_live, "python-random": case_random}


def versions():
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "cupy"):
        if name in sys.modules:
            found[name] = sys.modules[name].__version__
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", required=True, choices=BACKENDS, metavar="NAME", help=", ".join(BACKENDS))
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES), help="names, separated by commas")
    parser.add_argument("--trace", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    kind, options = BACKENDS[args.backend]
    if args.backend == "torch-expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    backend = kind(Plugin(args.plugin, options) if options is not None else None)
    print(json.dumps({"versions": versions()}), flush=True)
    for name in args.cases.split(","):
        print(json.dumps({"begin": name}), flush=True)
        backend.fresh()
        CASES[name](backend, args.trace, args.quick)
    print(json.dumps({"done": True}))


if __name__ == "__main__":
    main()
