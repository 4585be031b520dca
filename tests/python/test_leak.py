# SPDX-License-Identifier: Apache-2.0
"""Nothing is left behind: memory of Python's, references."""

import gc
import sys
import tracemalloc
import weakref

import millpond
import pytest

MIB = 1 << 20

def leak_of(call, rounds=300):
    """How much memory of Python's a call leaves behind, in bytes a round: the least of some measurements, since the
    interpreter keeps things of its own now and then."""
    def measure():
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(rounds):
            call()
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / rounds

    tracemalloc.start()
    try:
        return min(measure() for _ in range(4))
    finally:
        tracemalloc.stop()


def ignore(error, call, *arguments, **keywords):
    with pytest.raises(error):
        call(*arguments, **keywords)


class Speaks:
    """An object with __cuda_stream__."""

    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return 0, self.answer


def test_repeated_calls_leak_nothing(pool):
    with pool.alloc(100) as block:
        assert leaky(calls_of(pool, block)) == []


def leaky(calls):
    """The numbers of those that leave something behind."""
    return [number for number, call in enumerate(calls) if leak_of(call) >= 8]


def calls_of(pool, block):
    return [
        lambda: pool.alloc(100), lambda: pool.alloc(100, 0), lambda: pool.alloc(2 * MIB), lambda: pool.reserve(100),
        lambda: pool.free_address(pool.alloc_address(100)), lambda: pool.find(block), lambda: pool.record_use(block, 2),
        pool.stats, pool.clients, pool.streams, pool.dump, pool.memory_info, pool.shrink, lambda: repr(pool),
        lambda: millpond.Pool(client="test", options={"ipc": False}).close(), lambda: block.stream, lambda: repr(block),
        block._repr_html_, pool._repr_html_,
        lambda: ignore(ValueError, pool.alloc, -1), lambda: ignore(ValueError, pool.free_address, 4096),
        lambda: ignore(MemoryError, pool.alloc, 1 << 60), lambda: ignore(TypeError, pool.alloc, 1, Speaks("x")),
        lambda: ignore(ValueError, millpond.Pool, "auto", options={"max_mem": "x"}),
        lambda: (pool.add_hook(print), pool.remove_hook(print)), lambda: pool.alloc(100, Speaks(0)),
        lambda: bytes(memoryview(block)) if pool.is_emulated else None,
    ]  # fmt: skip


def test_reference_counts(pool):
    def counts():
        gc.collect()
        return [sys.getrefcount(thing) for thing in (pool, millpond.Buffer, millpond.Pool, None)]

    before = counts()
    for _ in range(100):
        block = pool.alloc(100, None)
        weakref.ref(block)
        block.free()
        pool.free_address(pool.alloc_address(100, None), None)
        pool.stats()
        pool.streams()
        with millpond.Pool():
            pass
    del block
    after = counts()
    assert after[:3] == before[:3]
    assert abs(after[3] - before[3]) < 50
