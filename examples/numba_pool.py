#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numba's arrays and a buffer of the program's own come from one pool: memory that one frees is used by the other."""

import millpond.numba
import numpy as np
from numba import cuda

millpond.numba.use()  # before the first array


@cuda.jit
def scale(values, factor):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= factor


def main():
    if not cuda.is_available():
        print("no GPU here, and Numba's kernels need one")
        return
    pool = millpond.Pool("cuda:0", client="example")
    host = np.arange(1_000_000, dtype=np.float32)

    values = cuda.to_device(host)  # of the pool
    scale[1024, 1024](values, 2)
    scale[1024, 1024](host, 2)  # the copy that Numba makes of a NumPy array is of the pool, too
    assert (values.copy_to_host() == host).all()
    print({share["name"]: share["in_use"] for share in pool.clients()})

    del values
    millpond.numba.flush()
    had = pool.stats()["total"]
    block = pool.alloc(4_000_000, stream=0)  # has what Numba gave back
    array = cuda.as_cuda_array(block).view(np.float32)
    array.copy_to_device(host)
    scale[1024, 1024](array, 0.5)
    assert (array.copy_to_host() == host / 2).all()
    assert pool.stats()["total"] == had
    print(f"{had} bytes of the GPU were enough for all of it")


if __name__ == "__main__":
    main()
