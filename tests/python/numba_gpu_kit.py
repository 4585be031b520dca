# SPDX-License-Identifier: Apache-2.0
"""What the cases of test_numba_gpu.py share: kernels, pools, and looking at memory.

A case is a function that is given a Numba (numba.cuda or numba_cuda_mlir.cuda). It fails by an exception.
"""

import gc
import importlib
import os
import sys

import millpond.numba
import numpy as np

cuda = None  # the Numba under test; set by choose()


class SkipError(Exception):
    """The case says nothing on this machine."""


def choose(package):
    """Imports the Numba under test."""
    global cuda
    if os.environ.get("MILLPOND_TEST_OWN_TARGET") == "1":
        sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "NumbaCudaFinder"]
    cuda = importlib.import_module(package)
    return cuda


def driver():
    return sys.modules[cuda.BaseCUDAMemoryManager.__module__]


def pool(memory="device", device=0):
    return millpond.Pool(f"cuda:{device}", memory=memory, client="test")


def in_use(memory="device"):
    """Bytes that Numba holds of the pool once nothing waits any more."""
    gc.collect()
    millpond.numba.flush()
    return sum(share["in_use"] for share in pool(memory).clients() if share["name"] == "numba")


def address_of(array):
    return array.__cuda_array_interface__["data"][0]


def define_kernels():
    """Anew after each reset of a context, which unloads them."""

    @cuda.jit
    def add(a, b, c):
        i = cuda.grid(1)
        if i < c.size:
            c[i] = a[i] + b[i]

    @cuda.jit
    def fill(a, value):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = value

    @cuda.jit
    def fill_late(a, value, milliseconds):
        for _ in range(milliseconds):
            cuda.nanosleep(np.uint32(1000000))
        i = cuda.grid(1)
        if i < a.size:
            a[i] = value

    return add, fill, fill_late


def grid(count):
    return (count + 255) // 256, 256


def check(array, value):
    found = array.copy_to_host() if hasattr(array, "copy_to_host") else array
    assert (found == value).all(), f"{np.count_nonzero(found != value)} of {found.size} elements are not {value}"
