# SPDX-License-Identifier: Apache-2.0
"""A Buffer as a DLPack tensor: what consumers get, in which order, and how they let go."""

import ctypes
import gc
import threading

import millpond
import pytest
from core_kit import make_stream, run_python

C = ctypes.pythonapi
C.PyCapsule_GetName.restype = ctypes.c_char_p
C.PyCapsule_GetName.argtypes = [ctypes.py_object]
C.PyCapsule_GetPointer.restype = ctypes.c_void_p
C.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
C.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # called without the GIL
CPU, CUDA, CUDA_HOST = 1, 2, 3
USED = b"used_dltensor"


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", DELETER), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def consume(capsule):
    """Takes a tensor as a consumer does; returns it and its address."""
    name = C.PyCapsule_GetName(capsule)
    struct = {b"dltensor": Managed, b"dltensor_versioned": Versioned}[name]
    pointer = C.PyCapsule_GetPointer(capsule, name)
    C.PyCapsule_SetName(capsule, USED)
    return struct.from_address(pointer), pointer


def let_go(taken):
    managed, pointer = taken
    managed.deleter(pointer)


@pytest.mark.parametrize(("version", "name"), [(None, b"dltensor"), ((0, 8), b"dltensor"),
                                               ((1, 0), b"dltensor_versioned"), ((1, 3), b"dltensor_versioned"),
                                               ((2, 0), b"dltensor_versioned")])
def test_dlpack(pool, version, name):
    block = pool.alloc(5000)
    kind, number = block.__dlpack_device__()
    assert kind == (CPU if pool.is_emulated else CUDA)
    assert number == (0 if pool.is_emulated else pool.ordinal)
    capsule = block.__dlpack__(max_version=version, stream=-1)
    assert C.PyCapsule_GetName(capsule) == name
    managed, pointer = consume(capsule)
    tensor = managed.tensor
    assert (tensor.data, tensor.device_type, tensor.device_id) == (block.address, kind, number)
    assert (tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (1, 1, 8, 1)
    assert (tensor.shape[0], tensor.strides[0], tensor.byte_offset) == (5000, 1, 0)
    if name == b"dltensor_versioned":
        assert (managed.major, managed.flags) == (1, 0)
    del block, capsule
    assert pool.stats()["in_use"] > 0  # the tensor keeps it
    managed.deleter(pointer)
    assert pool.stats()["in_use"] == 0


def test_a_capsule_that_nobody_takes(pool):
    for version in (None, (1, 0)):
        block = pool.alloc(5000)
        capsule = block.__dlpack__(max_version=version, stream=-1)
        del block
        assert pool.stats()["in_use"] > 0
        del capsule
        assert pool.stats()["in_use"] == 0


def test_many_tensors_of_one_block(pool):
    block = pool.alloc(5000)
    taken = [consume(block.__dlpack__(stream=-1)) for _ in range(4)]
    block.free()  # only its own part
    assert pool.stats()["in_use"] > 0
    for tensor in taken[:-1]:
        let_go(tensor)
    assert pool.stats()["in_use"] > 0
    assert ctypes.string_at(taken[-1][0].tensor.data, 1) is not None if pool.is_emulated else True
    let_go(taken[-1])
    assert pool.stats()["in_use"] == 0


def test_an_empty_tensor(pool):
    taken = consume(pool.alloc(0).__dlpack__(stream=-1))
    assert taken[0].tensor.data is None
    assert taken[0].tensor.shape[0] == 0
    let_go(taken)


def test_pinned_memory():
    with millpond.Pool(memory="pinned", client="test") as pool:
        block = pool.alloc(100)
        assert block.__dlpack_device__() == (CPU if pool.is_emulated else CUDA_HOST, 0)
        let_go(consume(block.__dlpack__()))


@pytest.mark.parametrize(("keywords", "error", "words"), [
    ({"copy": True}, BufferError, "no copies"),
    ({"dl_device": (99, 0)}, BufferError, "\\(99, 0\\)"),
    ({"dl_device": 1}, ValueError, "dl_device is 1"),
    ({"dl_device": (1, "x")}, TypeError, "int"),
    ({"max_version": 1}, ValueError, "max_version is 1"),
    ({"max_version": (1,)}, ValueError, "max_version is \\(1,\\)"),
    ({"stream": "x"}, (TypeError, ValueError), "x"),
    ({"stream": -2}, ValueError, "-2"),
    ({"flavour": 1}, TypeError, "flavour"),
])
def test_dlpack_errors(pool, keywords, error, words):
    block = pool.alloc(100)
    with pytest.raises(error, match=words):
        block.__dlpack__(**keywords)
    with pytest.raises(TypeError, match="by name"):
        block.__dlpack__(None, (1, 0))
    let_go(consume(block.__dlpack__(dl_device=block.__dlpack_device__(), copy=False)))


def test_dlpack_into_numpy(host):
    numpy = pytest.importorskip("numpy")
    block = host.alloc(100)
    array = numpy.from_dlpack(block)
    array[:] = range(100)
    assert bytes(block) == bytes(range(100))
    del block
    assert int(array.sum()) == 4950
    del array
    assert host.stats()["in_use"] == 0


def test_for_the_host_there_are_no_streams(host):
    block = host.alloc(100, 0)
    for stream in (0, 1, 2):
        with pytest.raises(millpond.InvalidArgumentError, match="None or -1"):
            block.__dlpack__(stream=stream)


def test_the_host_waits_for_the_stream():
    """Whoever reads memory of the emulated device gets it after the work that was queued before."""
    run_python("""
        import threading, time, millpond
        from core_kit import make_stream
        pool = millpond.Pool()
        stream = make_stream(pool)
        block = pool.alloc(16, stream)
        memoryview(block)[:] = bytes(16)
        def work():
            time.sleep(0.2)
            memoryview(block)[:] = b"x" * 16
        for wait, seen in ((-1, bytes(16)), (None, b"x" * 16)):
            stream.call(work)
            capsule = block.__dlpack__(stream=wait)
            assert bytes(block) == seen, (wait, bytes(block))
            stream.synchronize()
            memoryview(block)[:] = bytes(16)
        del capsule, block
        pool.stream_gone(stream)
        stream.destroy()
    """, MILLPOND_HOST="threaded", MILLPOND_DEVICE="host")


def test_a_tensor_of_a_stream_that_cannot_be_waited_for(host):
    block = host.alloc(100, 0x1000)  # the emulated device knows all of its streams
    with pytest.raises(millpond.InvalidArgumentError, match="not a stream"):
        block.__dlpack__()
    let_go(consume(block.__dlpack__(stream=-1)))


@pytest.mark.parametrize("own", [None, 0, 1, 2])
def test_consumers_on_a_gpu(gpu, own):
    stream = make_stream(gpu)
    waits = gpu.stats()["waits"]
    for consumer in (None, -1, 1, 2, stream.handle):
        block = gpu.alloc(5000, own)
        taken = consume(block.__dlpack__(stream=consumer))
        block.free()
        let_go(taken)
    for wrong in (0, -2, "x"):
        with pytest.raises((ValueError, TypeError)):
            gpu.alloc(100, own).__dlpack__(stream=wrong)
    assert gpu.stats()["waits"] >= waits
    gpu.stream_gone(stream)
    stream.destroy()


def test_a_consumer_comes_after_the_producer(gpu):
    """A tensor passed to another stream has what was queued on the buffer's own stream before."""
    torch = pytest.importorskip("torch")
    own, other = torch.cuda.Stream(), torch.cuda.Stream()
    source = torch.zeros(1 << 26, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    for turn in range(1, 20):
        block = gpu.alloc(1 << 26, own.cuda_stream)
        with torch.cuda.stream(own):
            source.fill_(turn)
            view = torch.from_dlpack(block)  # on the same stream: no order is needed
            torch.cuda._sleep(1000000)
            view.copy_(source)
        with torch.cuda.stream(other):
            total = int(torch.from_dlpack(block).max())
        assert total == turn
        del view, block
    torch.cuda.synchronize()
    for stream in (own, other):
        gpu.stream_gone(stream.cuda_stream)


def test_torch_takes_it(gpu):
    torch = pytest.importorskip("torch")
    check_frameworks(gpu, torch.from_dlpack, lambda block: torch.as_tensor(block, device="cuda"))


def test_cupy_takes_it(gpu):
    cupy = pytest.importorskip("cupy")
    check_frameworks(gpu, cupy.from_dlpack, cupy.asarray)


def check_frameworks(gpu, *ways):
    for way in ways:
        block = gpu.alloc(4096)
        array = way(block)
        array[:] = 3
        assert int(array.sum()) == 3 * 4096
        del block
        gc.collect()
        assert gpu.stats()["in_use"] > 0
        del array
        gc.collect()
        assert gpu.stats()["in_use"] == 0


# ---- deleters ----


def test_deleters_without_the_interpreter(pool):
    """A tensor may be let go by a thread that Python knows nothing of."""
    libc = ctypes.CDLL(None)
    taken = [consume(pool.alloc(5000).__dlpack__(stream=-1, max_version=(1, 0))) for _ in range(50)]
    threads = []
    for managed, pointer in taken:
        thread = ctypes.c_ulong()
        start = ctypes.cast(managed.deleter, ctypes.c_void_p)
        assert libc.pthread_create(ctypes.byref(thread), None, start, ctypes.c_void_p(pointer)) == 0
        threads.append(thread)
    for thread in threads:
        libc.pthread_join(thread, None)
    assert pool.stats()["in_use"] == 0


def test_deleters_of_a_closed_pool():
    run_python("""
        import gc, numpy, millpond
        pool = millpond.Pool(client="a")
        array = numpy.from_dlpack(pool.alloc(5000))
        pool.close()
        del pool
        array[:] = 1
        other = millpond.Pool(client="b")
        assert other.stats()["in_use"] == 5120
        del array
        assert other.stats()["in_use"] == 0
    """, MILLPOND_DEVICE="host")


def test_deleters_in_many_threads(pool):
    def work():
        for _ in range(300):
            block = pool.alloc(1000)
            one, two = consume(block.__dlpack__(stream=-1)), consume(block.__dlpack__(stream=-1, max_version=(1, 0)))
            del block
            let_go(two)
            let_go(one)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.stats()["in_use"] == 0


