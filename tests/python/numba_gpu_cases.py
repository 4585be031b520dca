# SPDX-License-Identifier: Apache-2.0
"""Cases of test_numba_gpu.py: arrays, host memory, other processes, resetting, exhaustion."""

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import millpond.numba
import numpy as np
from case_kit import MIB, case
from numba_gpu_kit import SkipError, address_of, check, define_kernels, driver, grid, in_use, pool

# ---- arrays ----


@case
def arrays(cuda):
    add, _, _ = define_kernels()
    for dtype in (np.int8, np.float32, np.complex128):
        for shape in ((1,), (1000,), (37, 53), (0,)):
            host = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
            assert (cuda.to_device(host).copy_to_host() == host).all()
    host = np.arange(100000, dtype=np.float32)
    a, b = cuda.to_device(host), cuda.to_device(2 * host)
    c = cuda.device_array_like(a)
    add[grid(host.size)](a, b, c)
    assert (c.copy_to_host() == 3 * host).all() and (c[10:20].copy_to_host() == 3 * host[10:20]).all()
    block = pool().find(address_of(c) + 4)
    assert block["client"] == "numba" and block["requested"] == host.nbytes
    view = a[500:]
    del a
    assert (view.copy_to_host() == host[500:]).all()
    del b, c, view
    assert in_use() == 0


@case
def variable(cuda):
    array = cuda.to_device(np.ones(1000))
    assert pool().find(address_of(array))["client"] == "numba"
    assert isinstance(cuda.current_context().memory_manager, millpond.numba.manager_class(cuda))


@case
def arguments(cuda):
    host = np.arange(50000, dtype=np.float32)
    for _ in range(3):
        add, _, _ = define_kernels()
        allocs = pool().stats()["allocs"]
        result = np.zeros_like(host)
        add[grid(host.size)](host, 2 * host, result)
        cuda.synchronize()
        assert (result == 3 * host).all()
        assert pool().stats()["allocs"] >= allocs + 3, "NumPy arguments are not of the pool"
        assert in_use() == 0
        cuda.current_context().reset()  # which takes the memory resource off, until the next use
    add, _, _ = define_kernels()
    for _ in range(300):  # more than may wait
        add[grid(1000)](host[:1000], host[:1000], result[:1000])
    assert (result[:1000] == 2 * host[:1000]).all() and pool().stats()["total"] <= 256 * MIB


@case
def arguments_on_a_stream(cuda):
    add, _, _ = define_kernels()
    stream, host = cuda.stream(), np.arange(50000, dtype=np.float32)
    result = np.zeros_like(host)
    try:
        add[(*grid(host.size), stream)](host, 2 * host, result)
    except (RuntimeError, ValueError) as error:
        if "NumPy only supports stream=None" not in str(error):
            raise
        raise SkipError("this cuda.core has no NumPy arguments on streams, with any memory manager") from None
    stream.synchronize()
    assert (result == 3 * host).all() and in_use() == 0


@case
def memory_info(cuda):
    free, total = cuda.current_context().get_memory_info()
    array = cuda.device_array(512 * MIB, np.uint8)
    assert abs(free - cuda.current_context().get_memory_info().free - 512 * MIB) < 64 * MIB < free <= total
    del array
    assert abs(free - cuda.current_context().get_memory_info().free) < 64 * MIB
    cuda.current_context().reset()
    assert pool().stats()["total"] == 0


# ---- host memory ----


@case
def pinned(cuda):
    a = cuda.pinned_array(1000, np.float32)
    a[:] = np.arange(1000)
    assert pool("pinned").find(a.ctypes.data)["client"] == "numba"
    stream = cuda.stream()
    d = cuda.to_device(a, stream=stream)
    b = cuda.pinned_array(1000, np.float32)
    d.copy_to_host(b, stream=stream)
    stream.synchronize()
    assert (b == a).all()
    combined = cuda.current_context().memhostalloc(4096, wc=True)
    np.ndarray(shape=4096, dtype=np.uint8, buffer=combined)[:] = 1
    del a, b, combined
    assert in_use("pinned") == 0


@case
def pinned_while_copied(cuda):
    """Freed while a copy from it is under way, a pinned array is not given to the next one."""
    stream, arrays = cuda.stream(), []
    for turn in range(200):
        source = cuda.pinned_array(4 * MIB, np.uint8)
        source[:] = turn
        arrays.append(cuda.to_device(source, stream=stream))
        del source
    stream.synchronize()
    for turn, array in enumerate(arrays):
        check(array, turn)


@case
def mapped(cuda):
    _, fill, _ = define_kernels()
    array = cuda.mapped_array(1000, np.float32)
    fill[grid(1000)](array, 3)
    cuda.synchronize()
    check(np.asarray(array), 3)
    host = np.zeros(1000, np.float32)
    for value in (1, 2):
        with cuda.pinned(host):
            assert cuda.to_device(host).size == 1000
        with cuda.mapped(host) as device:
            fill[grid(1000)](device, value)
            cuda.synchronize()
        check(host, value)
    del array
    millpond.numba.flush()


@case
def managed(cuda):
    _, fill, _ = define_kernels()
    for attach_global in (True, False):
        array = cuda.managed_array(100000, np.float32, attach_global=attach_global)
        array[:] = 1
        fill[grid(array.size)](array, 5)
        cuda.synchronize()
        check(np.asarray(array), 5)
        del array
    millpond.numba.flush()


# ---- other processes ----


@case
def ipc(cuda):
    host = np.arange(1000, dtype=np.int64)
    arrays = [cuda.to_device(host + turn) for turn in range(3)]
    handles = [array.get_ipc_handle() for array in (*arrays[:2], arrays[2][100:200])]
    raw = cuda.current_context().get_ipc_handle(arrays[1].gpu_data)
    assert raw.offset == address_of(arrays[1]) - pool().find(address_of(arrays[1]))["region"] > 0
    command = [sys.executable, str(Path(__file__).with_name("numba_gpu_run.py")), cuda.__name__, "ipc_receiver"]
    received = subprocess.run(command, input=pickle.dumps((handles, raw)).hex(), check=True, timeout=100,
                              capture_output=True, text=True)
    sums = [int(host.sum()), int((host + 1).sum()), int((host + 2)[100:200].sum()), int((host + 1).sum())]
    assert json.loads(received.stdout.splitlines()[-1]) == sums, received.stdout + received.stderr


@case
def ipc_receiver(cuda):
    handles, raw = pickle.loads(bytes.fromhex(sys.stdin.read()))
    opened = [handle.open() for handle in handles]  # all at once, though they are of one region
    more = raw.open_array(cuda.current_context(), shape=1000, dtype=np.dtype(np.int64))
    print(json.dumps([int(array.copy_to_host().sum()) for array in (*opened, more)]))
    for handle in (*handles, raw):
        handle.close()


@case
def ipc_refused(cuda):
    array = cuda.to_device(np.ones(10))
    try:
        array.get_ipc_handle()
    except millpond.UnsupportedError as error:
        assert "arena.ipc=1" in str(error), error
    else:
        raise AssertionError("memory that cannot be shared got a handle")
    check(array, 1)


# ---- resetting ----


@case
def close(cuda):
    theirs = pool().alloc(4 * MIB, 0)
    cuda.to_device(np.full(4 * MIB, 7, np.uint8), to=cuda.as_cuda_array(theirs))
    mine = cuda.to_device(np.arange(1000))
    for turn in range(3):
        manager = cuda.current_context().memory_manager
        cuda.close()
        assert cuda.current_context().memory_manager is not manager
        _, fill, _ = define_kernels()
        new = cuda.device_array(1000)
        fill[grid(1000)](new, turn)
        check(new, turn)
        assert (mine.copy_to_host() == np.arange(1000)).all()
    check(cuda.as_cuda_array(theirs), 7)
    del mine, new, manager
    cuda.close()
    assert in_use() == 0


@case
def threads(cuda):
    add, _, _ = define_kernels()
    cuda.current_context()  # Numba's own start of the driver is not safe on several threads at once
    failures = []

    def work(seed):
        random, stream = np.random.default_rng(seed), cuda.stream()
        try:
            for _ in range(150):
                host = random.integers(0, 1000, int(random.integers(1, 60000)))
                a, b = cuda.to_device(host, stream=stream), cuda.to_device(host + seed, stream=stream)
                c = cuda.device_array_like(a)
                add[(*grid(host.size), stream)](a, b, c)
                del a, b
                result = c.copy_to_host(stream=stream)
                stream.synchronize()
                assert (result == 2 * host + seed).all()
        except BaseException as error:
            failures.append(error)
            raise

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == [] and in_use() == 0


@case
def freed_by_a_thread_without_context(cuda):
    from cuda.bindings import driver as binding

    held, contexts = [cuda.device_array(1000) for _ in range(200)], []

    def work():
        held.clear()
        millpond.numba.flush()
        contexts.append(int(binding.cuCtxGetCurrent()[1]))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert contexts == [0] and in_use() == 0


@case
def live_at_exit(cuda):
    keep = [cuda.device_array(1000) for _ in range(100)]
    keep += [cuda.pinned_array(10), cuda.mapped_array(10), cuda.managed_array(10), keep]
    millpond.kept_until_the_end = keep


@case
def exhaustion(cuda):
    api_error = driver().CudaAPIError
    _, fill, _ = define_kernels()
    for shape in (1 << 50, 1 << 40):
        try:
            cuda.device_array(shape, np.uint8)
        except api_error as error:
            assert error.code == driver().binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY, error
            assert "bytes of device memory" in str(error), error
        else:
            raise AssertionError(f"{shape} bytes")
    held = []
    try:
        while True:
            held.append(cuda.device_array(64 * MIB, np.uint8))
    except api_error:
        assert len(held) >= 10  # the test limits the pool to 1 GiB
    try:
        fill[grid(1000)](np.zeros(2048 * MIB, np.uint8), 1)
    except Exception as error:  # Numba's own, or what cuda.core makes of it where that has the argument's memory
        is_cores = type(error).__mro__[1].__name__ == "CUDAError"
        assert (is_cores or isinstance(error, api_error)) and "OUT_OF_MEMORY" in str(error), error
    else:
        raise AssertionError("an argument larger than the pool")
    held.clear()
    array = cuda.device_array(64 * MIB, np.uint8)
    fill[grid(array.size)](array, 3)
    check(array, 3)


@case
def two_gpus(cuda):
    if len(cuda.gpus) < 2:
        raise SkipError("one GPU only")
    arrays = []
    for device in (0, 1):
        with cuda.gpus[device]:
            arrays.append(cuda.to_device(np.full(1000, device)))
            assert pool(device=device).find(address_of(arrays[-1]))["client"] == "numba"
    for device in (1, 0):
        with cuda.gpus[device]:
            check(arrays[device], device)
            arrays[device] = None
    assert millpond.numba.flush() == 2


@case
def peers(cuda):
    """A kernel of one GPU reads memory of the other's pool."""
    if len(cuda.gpus) < 2:
        raise SkipError("one GPU only")
    with cuda.gpus[1]:
        theirs, context = cuda.to_device(np.arange(1000, dtype=np.float32)), cuda.current_context()
        cuda.synchronize()
    with cuda.gpus[0]:
        if not cuda.current_context().can_access_peer(1):
            raise SkipError("the two GPUs are not connected")
        cuda.current_context().enable_peer_access(context.handle)
        add, _, _ = define_kernels()
        mine = cuda.device_array(1000, np.float32)
        add[grid(1000)](theirs, theirs, mine)
        assert (mine.copy_to_host() == 2 * np.arange(1000)).all()
