# SPDX-License-Identifier: Apache-2.0
"""What test_cupy_gpu.py runs, each case in a process of its own: cupy_gpu_limit_cases.py CASE.

Exhaustion, hooks, captured graphs, buffers. A case fails by an exception.
"""

import gc

import cupy
import millpond
import millpond.cupy
import numpy as np
from case_kit import HUGE, MIB, case
from cupy_gpu_kit import check_works, expect_out_of_memory, in_use, main


@case
def exhaustion():
    millpond.cupy.install()
    expect_out_of_memory(HUGE)
    check_works()
    millpond.set_limit(millpond.cupy.pool().stats()["total"] + 64 * MIB)
    held = []
    try:
        while True:
            held.append(cupy.ones(4 * MIB, "u1"))
    except cupy.cuda.memory.OutOfMemoryError:
        assert 10 <= len(held) < 40
    expect_out_of_memory(256 * MIB)
    assert all(int(array[-1]) == 1 for array in held)
    del held[:]
    check_works(2)
    millpond.set_limit(0)
    assert cupy.ones(256 * MIB, "u1").data.ptr != 0


@case
def exhaustion_of_pinned():
    """CuPy copies without pinned memory then, and says so."""
    import warnings

    millpond.cupy.install()
    pool = millpond.cupy.pool(None, "pinned")
    x = cupy.asarray(np.arange(100_000))
    assert pool.stats()["allocs"] > 0
    whole = cupy.cuda.alloc_pinned_memory(MIB)
    assert pool.find(whole.ptr)["requested"] == MIB
    view = np.frombuffer(whole, "u1", MIB)
    view[:] = 3
    assert int(view.sum()) == 3 * MIB
    del view, whole
    try:
        cupy.cuda.alloc_pinned_memory(HUGE)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        assert error.status == 2  # cudaErrorMemoryAllocation
        assert f"cannot allocate {HUGE} bytes" in str(error)
    else:
        raise AssertionError("no error")
    replaced = millpond.cupy._allocate_pinned

    def nothing_left(size):
        return replaced(HUGE)

    cupy.cuda.set_pinned_memory_allocator(nothing_left)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(np.arange(50_000))), np.arange(50_000))
    assert any("pinned memory" in str(warning.message) for warning in warned)
    np.testing.assert_array_equal(cupy.asnumpy(x), np.arange(100_000))


@case
def exception_inside():
    """A hook that raises in the midst of a request."""
    millpond.cupy.install()

    class Broken(cupy.cuda.MemoryHook):
        def malloc_postprocess(self, **given):
            raise KeyError("mine")

    before = in_use()
    for _ in range(3):
        with Broken():
            try:
                cupy.ones(1000)
            except KeyError:
                pass
            else:
                raise AssertionError("no error")
    assert in_use() == before
    check_works()


@case
def hooks():
    import io

    from cupy.cuda.memory_hooks import DebugPrintHook, LineProfileHook

    millpond.cupy.install()
    text = io.StringIO()
    with DebugPrintHook(file=text):
        cupy.ones(1000)
    assert text.getvalue().count('"hook":"malloc"') == text.getvalue().count('"hook":"free"') == 1
    profile = LineProfileHook()
    with profile:
        x = cupy.ones(1000)
    assert x.data.ptr != 0


@case
def gives_way():
    """What CuPy's own pool keeps goes back when ours finds no memory, and the other way round."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    most = free * 6 // 10
    cupy.empty(most, "u1")  # kept by CuPy's own pool
    assert cupy.get_default_memory_pool().total_bytes() >= most
    millpond.cupy.install()
    x = cupy.empty(most, "u1")
    assert cupy.get_default_memory_pool().total_bytes() < most
    del x
    millpond.cupy.uninstall()
    millpond.cupy.install(beside=True)
    assert millpond.cupy.pool().stats()["total"] >= most
    x = cupy.empty(most, "u1")
    assert millpond.cupy.pool().stats()["total"] < most
    try:
        cupy.empty(HUGE, "u1")
    except cupy.cuda.memory.OutOfMemoryError:
        pass
    else:
        raise AssertionError("no error")
    del x
    block = millpond.Pool("cuda:0", client="other").alloc(most)
    assert block.size == most


@case
def graphs():
    """A captured graph keeps its memory while others work; it comes back with the graph."""
    millpond.cupy.install()
    stream = cupy.cuda.Stream(non_blocking=True)
    before = in_use()
    with stream:
        a = cupy.arange(100_000, dtype="f4")
        (a * 2 + 1).sum()  # compiles
    stream.synchronize()
    with millpond.cupy.capture(stream) as graph:
        b = a * 2
        out = b + 1
        del b
    wanted = np.arange(100_000, dtype="f4")
    for turn in range(10):
        a += 1
        noise = [cupy.full(100_000, -1, "f4") for _ in range(20)]
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(out), (wanted + turn + 1) * 2 + 1)
    with millpond.cupy.capture(stream, share=graph) as second:
        more = a * 3
    second.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(more), (wanted + 10) * 3)
    del noise, out, more
    graph.close()
    second.close()
    second.close()
    del a
    assert in_use() == before
    try:
        graph.launch()
    except millpond.Error as error:
        assert "closed" in str(error)
    else:
        raise AssertionError("no error")


@case
def graphs_by_hand():
    """begin_capture and end_capture of CuPy's own; an exception within a capture."""
    millpond.cupy.install()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a = cupy.arange(1000, dtype="f4")
        (a + 1).sum()
        stream.synchronize()
        stream.begin_capture()
        out = a + 1
        graph = stream.end_capture()
    noise = [cupy.zeros(1000, "f4") for _ in range(20)]
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(out), np.arange(1000) + 1)
    del noise
    try:
        with millpond.cupy.capture(stream):
            raise KeyError("mine")
    except KeyError:
        pass
    with millpond.cupy.capture(stream) as again:
        out = a + 2
    again.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(out), np.arange(1000) + 2)


@case
def buffers():
    """A Buffer as an array: no copy, and it lives as long as the array."""
    pool = millpond.Pool("cuda:0", client="test")
    stream = cupy.cuda.Stream(non_blocking=True)
    buffer = pool.alloc(4000, stream)
    address = buffer.address
    with stream:
        x = millpond.cupy.as_array(buffer, "f4", (10, 100))
        x[...] = 3
    assert x.data.ptr == address and x.shape == (10, 100)
    del buffer
    gc.collect()
    assert float(x.sum()) == 3000 and pool.find(address)["requested"] == 4000
    y = cupy.from_dlpack(x.view("u1"))  # around once more
    del x
    gc.collect()
    assert pool.find(address)["requested"] == 4000
    del y
    gc.collect()
    assert pool.stats()["in_use"] == 0
    with pool.alloc(1000, stream) as block:
        z = cupy.asarray(block)  # by __cuda_array_interface__
        assert z.data.ptr == block.address and z.size == 1000
        block.record_use(cupy.cuda.get_current_stream())
        del z
    assert pool.stats()["in_use"] == 0


if __name__ == "__main__":
    main()
