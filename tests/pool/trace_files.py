# SPDX-License-Identifier: Apache-2.0
"""Makes a trace with the pool and writes it in every format; reads the data of the page back.

    trace_files.py FOLDER [OPTION ...]

works on the emulated device, in a process of its own, and prints as JSON what the pool says of itself.
MILLPOND_EP_LIBRARY names the library of the provider, beside which the pool's lies.
"""

import base64
import ctypes
import json
import random
import re
import sys
from pathlib import Path

HOSTILE = "</script><b id=evil>\"&'\u2713"
NOTE = f"offset  value\n     0  {HOSTILE}\n" + 60 * "1234567890" + "\n"
CLIENTS = ["onnxruntime", HOSTILE]
FILES = {"pickle": 0, "csv": 1, "html": 2}
KIB, MIB = 1 << 10, 1 << 20
WEIGHTS, ACTIVATIONS = 1, 2  # kinds of labels
ACTIONS = ["alloc", "free", "use", "fail", "grow", "shrink"]


def work(pools, streams, rng, steps, live):
    """Lends and frees at random, rather more of the first half of the time."""
    for step in range(steps):
        if not live or rng.random() < (0.7 if step < steps / 2 else 0.4):
            pool = rng.choice(pools)
            size = rng.choice([rng.randrange(1, 4 * KIB), rng.randrange(1, 300 * KIB), rng.randrange(1, 3 * MIB)])
            live.append((pool, pool.alloc(size, rng.choice(streams))))
        else:
            pool, addr = live.pop(rng.randrange(len(live)))
            pool.free(addr)


def make(folder, *options):
    import pool_c  # loads the library: only this process may

    pools = [pool_c.Pool(client, options=options, device="host:0") for client in CLIENTS]
    streams, rng, live = [None, pool_c.NO_STREAM], random.Random(5), []
    work(pools, streams, rng, 40, live)  # before the trace
    pools[0].trace(100000)
    reserved = pools[0].reserve(5 * MIB - 3)
    pool_c.set_label(WEIGHTS, None, HOSTILE)
    pools[1].reserve(2 * MIB)
    pool_c.set_label(ACTIVATIONS, "conv1", "y")
    for pool, size in zip(pools, (300 * KIB, MIB + 5), strict=True):
        pool.alloc(size, None)  # stays
    work(pools, streams, rng, 500, live)
    pool_c.set_label(0, None, None)
    work(pools, streams, rng, 100, live)
    try:
        pools[1].alloc(1 << 60, None)
        sys.exit("there was room for 2^60 bytes")
    except RuntimeError:
        pass  # as the trace must tell
    pools[0].free(reserved)
    for pool, addr in live[:60]:
        pool.free(addr)
    pools[0].shrink()
    work(pools, streams, rng, 120, live[60:])
    note = ctypes.c_void_p()  # what is known of memory besides its label
    pool_c.check("mp_note_add", b"memory of conv1", NOTE.encode(), ctypes.byref(note))
    for name, number in FILES.items():
        pools[0].write_trace(number, Path(folder) / f"trace.{name}")
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
        size, requested, stream, state, client, label = (next(rows) for _ in range(6))
        blocks.append({"addr": addr, "size": size, "requested": requested, "stream": stream, "state": state,
                       "client": client, "label": about["labels"][label]})
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
        label, stack = next(rows), next(rows)
        events.append({"time": time, "action": ACTIONS[head & 7], "pages": bool(head >> 3), "client": client,
                       "addr": addr, "size": size, "requested": requested, "stream": stream, "thread": thread,
                       "total": total, "label": about["labels"][label],
                       "stack": [about["frames"][frame] for frame in about["stacks"][stack]]})
    assert next(rows, None) is None
    return about, blocks, events


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "ep"))
    make(*sys.argv[1:])
