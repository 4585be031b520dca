# SPDX-License-Identifier: Apache-2.0
"""Cases of test_numba_gpu.py: memory that goes from one stream to another, captures, what an array costs."""

import time

import millpond.numba
import numpy as np
from case_kit import case
from numba_gpu_kit import SkipError, address_of, check, define_kernels, driver, grid, in_use


def passed_on(cuda, first, second, declare=None, announce=None, make=None):
    """Stream `first` is late to write to an array, which is freed meanwhile; new arrays are used on `second`.

    declare(array) is called before the first is freed, announce(array) before each new one is used, and
    make(stream, count) makes them. Returns whether one of them had the memory, and whether the late work changed any.
    """
    make = make or (lambda stream, count: cuda.device_array(count, np.int32))
    _, fill, fill_late = define_kernels()
    count, met, corrupt = 8192, False, False
    warm = cuda.device_array(count, np.int32)
    fill[(*grid(count), second)](warm, 0)
    fill_late[(*grid(count), first)](warm, 0, 1)
    cuda.synchronize()
    for _ in range(4):
        array = make(first, count)
        address = address_of(array)
        fill_late[(*grid(count), first)](array, 1, 60)
        if declare is not None:
            declare(array)
        del array
        millpond.numba.flush()
        new = [make(second, count) for _ in range(40)]
        for array in new:
            if announce is not None:
                announce(array)
            fill[(*grid(count), second)](array, 2)
        cuda.synchronize()
        met = met or address in [address_of(array) for array in new]
        corrupt = corrupt or not all((array.copy_to_host() == 2).all() for array in new)
        del array, new
    return met, corrupt


@case
def streams_in_order(cuda):
    met, corrupt = passed_on(cuda, cuda.stream(), cuda.stream())
    assert not corrupt, "late work of one stream wrote into an array of another"
    if not met:
        raise SkipError("the freed memory was not given to the next arrays")


@case
def streams_out_of_order(cuda):
    """Shows that the case above can fail."""
    _, corrupt = passed_on(cuda, cuda.stream(), cuda.stream())
    if not corrupt:
        raise SkipError("the two streams did not overlap")


def non_blocking_stream(cuda):
    from cuda.bindings import driver as binding

    cuda.current_context()
    result, stream = binding.cuStreamCreate(int(binding.CUstream_flags.CU_STREAM_NON_BLOCKING))
    assert int(result) == 0, result
    return cuda.external_stream(int(stream))


@case
def declared_use(cuda):
    stream = non_blocking_stream(cuda)

    def declare(array):
        millpond.numba.record_use(array, stream)

    _, corrupt = passed_on(cuda, stream, cuda.stream(), declare)
    assert not corrupt, "a use that was declared is not waited for"


@case
def non_blocking_in_order(cuda):
    _, corrupt = passed_on(cuda, non_blocking_stream(cuda), cuda.stream())
    assert not corrupt, "late work wrote into the next array, though all work is waited for"


@case
def non_blocking_first_use(cuda):
    """With "sync": the memory was used on streams of both kinds before, and is used on a non-blocking one next."""
    for first in (cuda.stream(), non_blocking_stream(cuda)):
        _, corrupt = passed_on(cuda, first, non_blocking_stream(cuda))
        assert not corrupt, "late work wrote into the next array, though all work is waited for"


@case
def announced_use(cuda):
    """Otherwise the non-blocking stream is declared before its first use."""
    stream = non_blocking_stream(cuda)
    _, corrupt = passed_on(
        cuda, cuda.stream(), stream, announce=lambda array: millpond.numba.record_use(array, stream)
    )
    assert not corrupt, "the first use on another stream does not wait for what the memory was used for before"


@case
def arrays_of_a_stream(cuda):
    def make(stream, count):
        with millpond.numba.stream(stream):
            return cuda.device_array(count, np.int32)

    kinds = (cuda.stream, lambda: non_blocking_stream(cuda))
    for first, second in [(one, other) for one in kinds for other in kinds]:
        _, corrupt = passed_on(cuda, first(), second(), make=make)
        assert not corrupt, "late work of one stream wrote into an array of another"


@case
def arguments_of_a_non_blocking_launch(cuda):
    """They are not written by late work on memory that was freed before."""
    add, _, fill_late = define_kernels()
    late, stream, count = cuda.stream(), non_blocking_stream(cuda), 8192
    host = np.arange(count, dtype=np.int32)
    try:
        add[(*grid(count), stream)](host, host, np.zeros_like(host))
    except (RuntimeError, ValueError) as error:
        if "NumPy only supports stream=None" not in str(error):
            raise
        raise SkipError("this cuda.core has no NumPy arguments on streams, with any memory manager") from None
    fill_late[(*grid(count), late)](cuda.device_array(count, np.int32), 0, 1)
    cuda.synchronize()
    for _ in range(4):
        old = [cuda.device_array(count, np.int32) for _ in range(8)]
        for array in old:
            fill_late[(*grid(count), late)](array, 1, 20)
        del array, old
        millpond.numba.flush()
        for _ in range(4):
            result = np.zeros_like(host)
            add[(*grid(count), stream)](host, host, result)
            stream.synchronize()
            assert (result == 2 * host).all(), "late work of another stream wrote into an argument"
        cuda.synchronize()


@case
def capture(cuda):
    """Frees do not disturb a capture, and what they freed comes back after it."""
    from cuda.bindings import driver as binding

    _, fill, _ = define_kernels()
    stream, array = cuda.stream(), cuda.device_array(1000, np.int32)
    fill[(*grid(1000), stream)](array, 0)
    stream.synchronize()
    millpond.numba.flush()
    mode = binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    assert int(binding.cuStreamBeginCapture(stream.handle, mode)[0]) == 0
    fill[(*grid(1000), stream)](array, 5)
    for _ in range(200):
        cuda.device_array(1000)
    assert millpond.numba.flush() == 0
    result, graph = binding.cuStreamEndCapture(stream.handle)
    assert int(result) == 0, result
    result, ready = binding.cuGraphInstantiate(graph, 0)
    assert int(result) == 0, result
    assert int(binding.cuGraphLaunch(ready, stream.handle)[0]) == 0
    stream.synchronize()
    check(array, 5)
    assert millpond.numba.flush() >= 200
    del array
    assert in_use() == 0


@case
def cost(cuda):
    """Microseconds to make and drop an array of 4 KiB: ours, and with Numba's own manager in the same process."""

    def best():
        for _ in range(200):
            cuda.device_array(4096, np.uint8)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(500):
                cuda.device_array(4096, np.uint8)
            times.append((time.perf_counter() - start) / 500 * 1e6)
        return min(times)

    context = cuda.current_context()
    ours, manager = best(), context.memory_manager
    context.memory_manager = driver().NumbaCUDAMemoryManager(context=context)
    context.prepare_for_use()
    native = best()
    context.memory_manager = manager
    print(f"summary: device_array of 4 KiB: {ours:.2f} us on the pool, {native:.2f} us with Numba's own manager")
    assert ours < native
