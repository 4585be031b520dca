#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a request and its free through the C extension, through ctypes, and in C: nanoseconds a pair.

    bench_binding.py [--pairs N] [--repeats N] [--json FILE]

The package is the one that PYTHONPATH names, such as build/release/python. The row "C" is a loop in a small program
that the machine's compiler builds; without one it is left out. Rows are the best of the repeats, since what disturbs
a loop of some milliseconds only ever makes it longer.
"""

import argparse
import ctypes
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
import timeit
from pathlib import Path

import millpond

SIZE = 1024
LIB = Path(millpond.get_library_path()).with_name("libmillpond.so.0")
LOOP = """
#include <millpond/millpond.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
int main(int count, char **words) {
    (void)count;
    const long pairs = atol(words[2]), repeats = atol(words[3]);
    mp_pool *pool;
    mp_addr block;
    double best = 1e30;
    if (mp_pool_open(words[1], MP_MEMORY_DEVICE, "bench", NULL, &pool) != MP_OK) {
        return fprintf(stderr, "%s\\n", mp_error_message()), 1;
    }
    for (long r = 0; r < repeats; r++) {
        const double start = now();
        for (long i = 0; i < pairs; i++) {
            if (mp_pool_alloc(pool, SIZE, NULL, &block) != MP_OK || mp_pool_free(pool, block) != MP_OK) {
                return 1;
            }
        }
        const double took = (now() - start) / (double)pairs;
        best = took < best ? took : best;
    }
    printf("%f\\n", best);
    mp_pool_close(pool);
    return 0;
}
"""


def in_c(device, pairs, repeats):
    """Nanoseconds of a pair in C; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "loop.c", Path(folder) / "loop"
        source.write_text(LOOP, encoding="utf-8")
        subprocess.run([compiler, "-O2", f"-DSIZE={SIZE}", source, f"-I{millpond.get_include()}", f"-L{LIB.parent}",
                        "-lmillpond", f"-Wl,-rpath,{LIB.parent}", "-o", program], check=True)
        done = subprocess.run([program, device, str(pairs), str(repeats)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def by_ctypes(pool):
    """A pair as a binding without an extension would do it."""
    lib, handle, address = ctypes.CDLL(str(LIB)), ctypes.c_void_p(), ctypes.c_void_p()
    if lib.mp_pool_open(pool.device.encode(), 0, b"bench", None, ctypes.byref(handle)) != 0:
        raise RuntimeError("mp_pool_open")
    lib.mp_pool_alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    lib.mp_pool_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    alloc, free, out = lib.mp_pool_alloc, lib.mp_pool_free, ctypes.byref(address)

    def pair():
        alloc(handle, SIZE, None, out)
        free(handle, address)

    return pair


def by_address(pool):
    alloc, free = pool.alloc_address, pool.free_address
    return lambda: free(alloc(SIZE, 0))


def by_buffer(pool):
    alloc = pool.alloc
    return lambda: alloc(SIZE, 0)


def by_slow_way(pool):
    """A size that no shelf has, so that each call leaves the interpreter's lock."""
    alloc = pool.alloc
    return lambda: alloc(2 << 20, 0)


def nothing(_):
    return lambda: None


ROWS = [("an empty function", nothing), ("alloc_address and free_address", by_address), ("alloc, and drop", by_buffer),
        ("alloc of 2 MiB, and drop", by_slow_way), ("ctypes", by_ctypes)]


def best(pair, pairs, repeats):
    pair()
    return min(timeit.repeat(pair, number=pairs, repeat=repeats)) / pairs * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the figures to a file")
    args = parser.parse_args()
    pool = millpond.Pool(client="bench")
    rows = {name: best(make(pool), args.pairs, args.repeats) for name, make in ROWS}
    c = in_c(pool.device, args.pairs, args.repeats)
    if c is not None:
        rows["C"] = c
    print(f"{pool.device_name}, Python {platform.python_version()}, {SIZE} bytes, ns a pair")
    for name, ns in rows.items():
        print(f"  {name:<32} {ns:8.1f}")
    if args.json:
        figures = {"machine": platform.processor() or platform.machine(), "cpus": len(os.sched_getaffinity(0)),
                   "device": pool.device_name, "python": platform.python_version(), "millpond": millpond.version(),
                   "date": time.strftime("%Y-%m-%d"), "size": SIZE, "ns": rows}
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
