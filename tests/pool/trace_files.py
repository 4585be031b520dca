# SPDX-License-Identifier: Apache-2.0
"""Makes a trace with the pool and writes it in every format; reads the data of the page back.

    trace_files.py LIBMILLPOND.SO FOLDER [OPTION ...]

works on the emulated device, in a process of its own, and prints as JSON what the pool says of itself.
"""

import base64
import ctypes
import json
import random
import re
import sys
from pathlib import Path

HOSTILE = "</script><b id=evil>\"&'\u2713"
CLIENTS = ["onnxruntime", HOSTILE]
FILES = {"pickle": 0, "csv": 1, "html": 2}
NO_STREAM = ctypes.c_void_p(2**64 - 1)
KIB, MIB = 1 << 10, 1 << 20
ACTIONS = ["alloc", "free", "use", "fail", "grow", "shrink"]
STATS = ["limit", "in_use", "requested", "in_use_max", "total", "total_max", "alloc_size_max", "allocs", "frees",
         "reserves", "extensions", "shrinkages", "failures", "events", "waits"]


class Pool:
    """A client's handle on the emulated device's pool."""

    def __init__(self, library, client, *options):
        self.library = library
        self.handle = ctypes.c_void_p()
        words = (ctypes.c_char_p * (len(options) + 1))(*(option.encode() for option in options), None)
        self.call("mp_pool_open", b"host:0", 0, client.encode(), words, ctypes.byref(self.handle))

    def call(self, name, *arguments, may_fail=False):
        status = getattr(self.library, name)(*arguments)
        if status != 0 and not may_fail:
            raise RuntimeError(f"{name}: {self.library.mp_error_message().decode()}")
        return status

    def alloc(self, size, stream, may_fail=False):
        addr = ctypes.c_size_t()
        self.call("mp_pool_alloc", self.handle, ctypes.c_size_t(size), stream, ctypes.byref(addr), may_fail=may_fail)
        return addr.value

    def reserve(self, size):
        addr = ctypes.c_size_t()
        self.call("mp_pool_reserve", self.handle, ctypes.c_size_t(size), ctypes.byref(addr))
        return addr.value

    def free(self, addr):
        self.call("mp_pool_free", self.handle, ctypes.c_size_t(addr))

    def trace(self, capacity):
        self.call("mp_pool_trace", self.handle, ctypes.c_size_t(capacity))

    def shrink(self):
        self.call("mp_pool_shrink", self.handle, None)

    def stats(self):
        out = (ctypes.c_uint64 * len(STATS))()
        self.call("mp_pool_get_stats", self.handle, ctypes.byref(out), ctypes.c_size_t(ctypes.sizeof(out)))
        return dict(zip(STATS, out, strict=True))

    def write(self, file_format, path):
        self.call("mp_pool_trace_write", self.handle, file_format, str(path).encode())


def work(pools, rng, steps, live):
    """Lends and frees at random, rather more of the first half of the time."""
    for step in range(steps):
        if not live or rng.random() < (0.7 if step < steps / 2 else 0.4):
            pool = rng.choice(pools)
            size = rng.choice([rng.randrange(1, 4 * KIB), rng.randrange(1, 300 * KIB), rng.randrange(1, 3 * MIB)])
            live.append((pool, pool.alloc(size, rng.choice([None, NO_STREAM]))))
        else:
            pool, addr = live.pop(rng.randrange(len(live)))
            pool.free(addr)


def make(library_path, folder, *more):
    library = ctypes.CDLL(library_path)
    library.mp_error_message.restype = ctypes.c_char_p
    pools = [Pool(library, client, *more) for client in CLIENTS]
    rng, live = random.Random(5), []
    work(pools, rng, 40, live)  # before the trace
    pools[0].trace(100000)
    reserved = pools[0].reserve(5 * MIB - 3)
    pools[1].reserve(2 * MIB)
    work(pools, rng, 600, live)
    assert pools[1].alloc(1 << 60, None, may_fail=True) == 0
    pools[0].free(reserved)
    for pool, addr in live[:60]:
        pool.free(addr)
    pools[0].shrink()
    work(pools, rng, 120, live[60:])
    for name, number in FILES.items():
        pools[0].write(number, Path(folder) / f"trace.{name}")
    print(json.dumps(pools[0].stats()))


def page_data(text):
    """(about, blocks, events) of a page, read from its text as trace_page.c wrote it."""
    parts = {name: re.search(f'<script type="[^"]*" id="{name}">(.*?)</script>', text, re.S).group(1)
             for name in ("about", "blocks", "events")}
    about = json.loads(parts["about"])

    def numbers(name):
        value = shift = 0
        for byte in base64.b64decode(parts[name], validate=True):
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                yield value
                value = shift = 0

    def step(value):
        return -(value + 1) // 2 if value % 2 else value // 2

    rows, blocks, end = numbers("blocks"), [], 0
    for _ in range(about["block_count"]):
        addr = end + step(next(rows))
        size, requested, stream, state, client = (next(rows) for _ in range(5))
        blocks.append({"addr": addr, "size": size, "requested": requested, "stream": stream, "state": state,
                       "client": client})
        end = addr + size
    assert next(rows, None) is None
    rows, events = numbers("events"), []
    time = addr = total = 0
    for _ in range(about["event_count"]):
        time += next(rows)
        head, client = next(rows), next(rows)
        addr += step(next(rows))
        size, requested, stream, thread = (next(rows) for _ in range(4))
        total += step(next(rows))
        events.append({"time": time, "action": ACTIONS[head & 7], "pages": bool(head >> 3), "client": client,
                       "addr": addr, "size": size, "requested": requested, "stream": stream, "thread": thread,
                       "total": total})
    assert next(rows, None) is None
    return about, blocks, events


if __name__ == "__main__":
    make(*sys.argv[1:])
