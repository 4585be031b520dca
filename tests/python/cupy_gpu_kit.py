# SPDX-License-Identifier: Apache-2.0
"""What the cases of CuPy on a GPU share."""

import gc
import sys

import cupy
import millpond
import millpond.cupy
from case_kit import CASES

SPIN = cupy.RawKernel(r"""
extern "C" __global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}""", "spin")


def spin(cycles=20_000_000):
    """Some 10 ms on the current stream."""
    SPIN((1,), (1,), (cycles,))


def in_use():
    gc.collect()
    return millpond.cupy.pool().stats()["in_use"]


def check_works(seed=1):
    """A sum over fresh arrays; the pool holds them."""
    before = in_use()
    x = cupy.arange(100_000, dtype="f8") * seed
    assert millpond.cupy.pool().find(x.data.ptr)["client"] == "cupy"
    assert float(x.sum()) == seed * 99_999 * 50_000
    del x
    assert in_use() == before


def expect_out_of_memory(size):
    try:
        cupy.empty(size, "u1")
    except cupy.cuda.memory.OutOfMemoryError as error:
        assert isinstance(error, MemoryError)
        assert f"cannot allocate {size} bytes of device memory" in str(error) and "cupy" in str(error), str(error)
    else:
        raise AssertionError("no error")


def main():
    """Runs the case that the argument names."""
    CASES[sys.argv[1]]()
