# SPDX-License-Identifier: Apache-2.0
"""What the cases of PyTorch on a GPU share; ROUTE is the first argument of the process: process (install()), part
(use_pool()), all (use_pool(all_threads=True)) or none."""

import contextlib
import gc
import sys

import millpond
import millpond.torch
import torch
from case_kit import CASES

ROUTE = sys.argv[1] if len(sys.argv) > 1 else "none"


def routed():
    """A block whose tensors have memory of the pool, by the route that was asked for."""
    if ROUTE in ("part", "all"):
        return millpond.torch.use_pool(all_threads=ROUTE == "all")
    return contextlib.nullcontext()


def start():
    if ROUTE == "process":
        millpond.torch.install()
        millpond.torch.install()


def pool():
    return millpond.torch.pool(0)


def in_use():
    gc.collect()
    return pool().stats()["in_use"]


def is_ours(tensor):
    try:
        return pool().find(tensor.data_ptr())["client"] == "torch"
    except millpond.NotFoundError:
        return False


def spin(cycles=20_000_000):
    """Some 10 ms on the current stream."""
    torch.cuda._sleep(cycles)


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def expect_out_of_memory(size, ours):
    try:
        empty(size)
    except torch.OutOfMemoryError as error:
        assert not ours or f"cannot allocate {size} bytes of device memory" in str(error), str(error)
    else:
        raise AssertionError("no error")


def main():
    """Runs the case that the second argument names."""
    CASES[sys.argv[2]]()
