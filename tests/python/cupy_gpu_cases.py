# SPDX-License-Identifier: Apache-2.0
"""What test_cupy_gpu.py runs, each case in a process of its own: cupy_gpu_cases.py CASE.

Values, streams, threads. A case fails by an exception.
"""

import cupy
import millpond
import millpond.cupy
import numpy as np
from case_kit import MIB, case, check_in_threads
from cupy_gpu_kit import check_works, in_use, main, spin


@case
def values():
    millpond.cupy.install()
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((300, 200)), rng.standard_normal((200, 400))
    x, y = cupy.asarray(a), cupy.asarray(b)
    np.testing.assert_allclose(cupy.asnumpy(x @ y), a @ b)
    np.testing.assert_allclose(cupy.asnumpy(cupy.fft.fft2(x)), np.fft.fft2(a), atol=1e-9)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.sort(x, axis=1)), np.sort(a, axis=1))
    np.testing.assert_allclose(cupy.asnumpy(x[::3, 5:].T.copy()), a[::3, 5:].T)
    np.testing.assert_allclose(cupy.asnumpy(cupy.concatenate([x, x + 1]).cumsum(axis=0)),
                               np.concatenate([a, a + 1]).cumsum(axis=0))
    for size in (1, 255, 256, 257, 4095, MIB, MIB + 1, 100 * MIB):
        z = cupy.full(size, 7, "u1")
        assert int(z.astype("i8").sum()) == 7 * size
    del x, y, z
    cupy.fft.config.get_plan_cache().clear()
    check_works()


@case
def nothing():
    """Arrays without bytes have a null pointer and nothing of the pool."""
    millpond.cupy.install()
    before = in_use()
    x = cupy.empty((0, 5))
    assert x.data.ptr == 0 and in_use() == before
    assert cupy.asnumpy(x + 1).shape == (0, 5)
    assert cupy.concatenate([x, cupy.ones((2, 5))]).shape == (2, 5)
    millpond.cupy.record_use(x, 0)
    assert cupy.cuda.alloc_pinned_memory(0).ptr == 0


@case
def scopes():
    """install(), using_allocator(), uninstall(): each array stays what it was made as."""
    def is_ours(array):
        try:
            return millpond.cupy.pool().find(array.data.ptr)["client"] == "cupy"
        except millpond.NotFoundError:
            return False

    before = cupy.ones(1000)
    with cupy.cuda.using_allocator(millpond.cupy.allocator()):
        inside = cupy.ones(1000)
    millpond.cupy.install()
    installed = cupy.ones(1000)
    millpond.cupy.uninstall()
    after = cupy.ones(1000)
    assert [is_ours(array) for array in (before, inside, installed, after)] == [False, True, True, False]
    assert all(float(array.sum()) == 1000 for array in (before, inside, installed, after))
    del inside, installed
    assert in_use() == 0


def check_order(reader, dropper, taker, declared=False):
    """An array made on the first stream is read late on one, dropped on one, and its memory wanted on one."""
    millpond.cupy.install()
    count = 1 << 20
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for turn in range(40):
        with streams[0]:
            x = cupy.full(count, turn, "i4")
        streams[0].synchronize()
        with streams[reader]:
            spin()
            total = x.sum()
        if declared:
            millpond.cupy.record_use(x, streams[reader])
        with streams[dropper]:
            del x
        with streams[taker]:
            others = [cupy.full(count, -1, "i4") for _ in range(3)]
        streams[reader].synchronize()
        assert int(total) == turn * count, turn
        del others, total


@case
def streams_in_order():
    """Memory that a slow stream still reads is not given to another one."""
    check_order(reader=0, dropper=0, taker=1)


@case
def dropped_elsewhere():
    """An array that is used and dropped on another stream than it was made on."""
    check_order(reader=1, dropper=1, taker=0)


@case
def declared_use():
    """record_use() where the array is dropped on its own stream while another one reads it."""
    check_order(reader=1, dropper=0, taker=0, declared=True)


@case
def short_streams():
    """Streams that come and go, and whose handles are used again."""
    millpond.cupy.install()
    kept = []
    for turn in range(300):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x = cupy.full(10_000, turn, "i4")
            spin(100_000)
            kept.append((turn, x.sum()))
        if turn % 20 == 19:
            cupy.cuda.Device().synchronize()
            assert all(int(total) == of * 10_000 for of, total in kept)
            kept.clear()
    del stream, x
    assert len(millpond.cupy.pool().streams()) < 100


@case
def default_stream_of_threads():
    """With CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1 each thread has a default stream of its own."""
    millpond.cupy.install()
    threads()


@case
def threads():
    millpond.cupy.install()
    check_in_threads(
        lambda count, value: cupy.full(count, value, "i8"),
        lambda seed: cupy.cuda.Stream(non_blocking=True) if seed % 2 else cupy.cuda.get_current_stream())
    assert in_use() == 0


if __name__ == "__main__":
    main()
