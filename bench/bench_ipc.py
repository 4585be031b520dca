#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times how a block gets from one process to another: by a handle, and by a copy through the memory of the host.

    bench_ipc.py [--sizes 4K,1M,64M] [--repeats 30] [--out FILE]

Two processes on the first device. Each round the first says what it has, the second answers when it has it on its
device; the time is that of the round, in microseconds, the median. "handle, kept" opens once and then only says that
there is something new, as a stream of frames does. On the emulated device, MILLPOND_HOST_IPC=1 is set.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import machine  # noqa: E402  (beside this file)

os.environ.setdefault("MILLPOND_HOST_IPC", "1")  # before the device is first used
WAYS = ("handle", "handle, kept", "through the host")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def consumer(pipe):
    """Takes (way, what) and answers once the bytes are on its device."""
    import millpond

    pool = millpond.Pool(client="bench")
    kept, block, shared = None, None, None
    while (asked := pipe.recv()) is not None:
        way, what = asked
        if way == "handle":
            millpond.open_ipc(what).free()
        elif way == "handle, kept":
            kept = millpond.open_ipc(what) if what is not None else kept
        else:
            if what is not None:
                name, size = what
                shared, block = shared_memory.SharedMemory(name=name), pool.alloc(size)
            block.copy_from_host(shared.buf[: block.size])
        pipe.send(True)
    del kept
    if shared is not None:
        shared.close()


def rounds(pipe, way, block, shared, repeats):
    import millpond

    handle = bytes(millpond.ipc_handle(block))
    first = {"handle": handle, "handle, kept": handle, "through the host": (shared.name, block.size)}[way]
    times = []
    for i in range(repeats + 1):
        start = time.perf_counter()
        if way == "through the host":
            block.copy_to_host(shared.buf[: block.size])
        pipe.send((way, first if i == 0 or way == "handle" else None))
        pipe.recv()
        times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="4K,1M,64M")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--out", type=Path, help="write JSON there")
    args = parser.parse_args()
    import millpond

    context = multiprocessing.get_context("spawn")  # a GPU's driver does not survive a fork
    here, there = context.Pipe()
    other = context.Process(target=consumer, args=(there,))
    other.start()
    pool = millpond.Pool(client="bench")
    rows = []
    print(f"{'bytes':>12}" + "".join(f"{way:>20}" for way in WAYS))
    for size in map(bytes_of, args.sizes.split(",")):
        block = pool.alloc(size)
        shared = shared_memory.SharedMemory(create=True, size=size)
        row = {"bytes": size, **{way: round(rounds(here, way, block, shared, args.repeats), 1) for way in WAYS}}
        rows.append(row)
        print(f"{size:>12}" + "".join(f"{row[way]:>20.1f}" for way in WAYS), flush=True)
        shared.close()
        shared.unlink()
    here.send(None)
    other.join()
    if args.out:
        about = {"when": machine.now(), "commit": machine.commit(), "cpu": machine.cpu(),
                 "device": pool.device_name, "environment": machine.environment()}  # fmt: skip
        args.out.write_text(json.dumps({**about, "us": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
