# SPDX-License-Identifier: Apache-2.0
"""millpond.cuda_core without a GPU: which stream a block is allocated on and freed on, with each version of cuda.core.

cuda.core makes no buffer without a driver, so its Buffer and Stream are stood in for. test_cuda_core_gpu.py has the
real ones.
"""

import gc
import subprocess
import sys
import weakref
from types import SimpleNamespace

import millpond
import pytest

pytest.importorskip("cuda.core", reason="cuda-core is not installed")
from millpond import cuda_core  # noqa: E402
from millpond._core_streams import Streams  # noqa: E402
from millpond.cuda_core import PoolMemoryResource  # noqa: E402


class Stream:
    def __init__(self, handle):
        self.handle = handle
        self.syncs = 0
        self.work = SimpleNamespace(is_done=True)

    def record(self):
        if self.handle is None:
            raise RuntimeError("Stream has been closed")
        return self.work

    @staticmethod
    def from_handle(handle):
        return Stream(handle)

    def sync(self):
        self.syncs += 1


class GraphBuilder:
    def __init__(self, stream):
        self.stream = stream


class Buffer:
    """As that of cuda.core 1.2, and with `forgets` as that before: the default stream stands for what is not known."""

    forgets = False

    def __init__(self, ptr, size, mr, stream):
        self.ptr, self.size, self.mr, self.stream = ptr, size, mr, stream

    @classmethod
    def from_handle(cls, ptr, size, mr=None, **more):
        assert not (cls.forgets and more)
        return cls(ptr, size, mr, more.get("stream", Stream(1)))

    def close(self, stream=None):
        self.mr.deallocate(self.ptr, self.size, stream=stream or self.stream)


class Core:
    Stream = Stream

    def __init__(self, forgets):
        self.Buffer = type("Buffer", (Buffer,), {"forgets": forgets})


class Recorder:
    """A pool that notes what it is asked for."""

    memory, is_emulated, ordinal, closed = "device", False, 3, False

    def __init__(self):
        self.calls = []

    def alloc_address(self, *args):
        self.calls.append(("alloc", *args))
        return 0x1000

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))


@pytest.fixture(params=["knows", "forgets"])
def forgets(request, monkeypatch):
    """Whether this cuda.core forgets which stream a buffer was allocated on."""
    forgets = request.param == "forgets"
    monkeypatch.setattr(cuda_core, "_core", Core(forgets))
    monkeypatch.setattr(cuda_core, "_KNOWS_STREAM", not forgets)
    monkeypatch.setattr(cuda_core, "streams", Streams())
    return forgets


@pytest.fixture
def pool():
    return Recorder()


@pytest.mark.parametrize("wrap", [lambda stream: stream, GraphBuilder], ids=["stream", "graph"])
def test_a_collected_buffer_is_freed_in_the_order_of_its_stream(forgets, pool, wrap):
    buffer = PoolMemoryResource(pool).allocate(100, stream=wrap(Stream(0x5000)))
    buffer.close()
    free = [("record_use", 0x1000, 1), ("free_address", 0x1000)] if forgets else [("free_address", 0x1000, 0x5000)]
    assert pool.calls == [("alloc", 100, 0x5000), *free]


def test_close_names_the_stream(forgets, pool):
    first = Stream(0x5000)
    PoolMemoryResource(pool).allocate(100, stream=first).close(Stream(0x6000))
    assert pool.calls[1:] == [("free_address", 0x1000, 0x6000)]


def test_the_default_stream_of_a_thread_is_not_that_of_another(forgets, pool):
    PoolMemoryResource(pool).allocate(100, stream=Stream(2)).close()
    assert pool.calls[0] == ("alloc", 100, 2)
    assert pool.calls[1:] == [("record_use", 0x1000, 1 if forgets else 2), ("free_address", 0x1000)]


@pytest.mark.parametrize(("value", "handle"), [("0", 0), ("1", 2)])
def test_no_stream_is_the_default_one(forgets, pool, monkeypatch, value, handle):
    monkeypatch.setenv("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", value)
    resource = PoolMemoryResource(pool)
    resource.allocate(100)
    resource.deallocate(0x1000, 100)
    assert pool.calls == [("alloc", 100, handle), ("free_address", 0x1000)]


def ends(pool):
    return [handle for name, *given in pool.calls if name == "stream_gone" for handle in given]


def test_a_pool_hears_of_a_stream_s_end_before_it_is_destroyed(forgets, pool):
    resource, stream = PoolMemoryResource(pool), Stream(0x5000)
    told = []
    weakref.finalize(stream, lambda: told.extend(ends(pool)))
    resource.allocate(100, stream=stream).close(stream)
    resource.allocate(100, stream=Stream(0x6000)).close()
    assert ends(pool) == []  # the program has it
    del stream
    gc.collect()
    resource.allocate(100, stream=Stream(0x7000)).close()
    assert told[:1] == [0x5000] and ends(pool) == [0x5000, 0x6000]


def test_a_stream_with_work_left_is_kept(forgets, pool):
    resource, stream = PoolMemoryResource(pool), Stream(0x5000)
    work = stream.work
    work.is_done = False
    resource.allocate(100, stream=Stream(0x6000)).close(stream)
    del stream
    resource.allocate(100, stream=Stream(0x7000)).close()
    assert 0x5000 not in ends(pool)
    work.is_done = True
    resource.allocate(100, stream=Stream(0x8000)).close()
    assert 0x5000 in ends(pool)


def test_every_pool_of_a_stream_hears_of_its_end(forgets, pool):
    other = Recorder()
    for one in (pool, other, pool):
        PoolMemoryResource(one).allocate(100, stream=Stream(0x5000)).close()
    PoolMemoryResource(pool).allocate(100, stream=Stream(0x6000)).close()
    assert ends(pool) == ends(other) == [0x5000]


def test_a_closed_stream_s_handle_may_be_that_of_a_new_one(forgets, pool):
    resource, old = PoolMemoryResource(pool), Stream(0x5000)
    resource.allocate(100, stream=old).close(old)
    old.handle = None
    resource.allocate(100, stream=Stream(0x5000)).close()
    assert ends(pool) == []
    resource.allocate(100, stream=Stream(0x6000)).close()
    assert ends(pool) == [0x5000]


def test_other_libraries_streams(forgets, pool):
    class Foreign:
        def __cuda_stream__(self):
            return (0, 0x7000)

    resource = PoolMemoryResource(pool)
    for stream in (Foreign(), 0x7000):
        buffer = resource.allocate(100, stream=stream)
        assert pool.calls.pop() == ("alloc", 100, 0x7000)
        assert buffer.stream.handle == (1 if forgets else 0x7000)


def test_empty_buffers_are_no_blocks(forgets, pool):
    resource = PoolMemoryResource(pool)
    resource.allocate(0, stream=Stream(0x5000)).close()
    assert pool.calls == []


def test_a_buffer_that_cannot_be_made_leaves_no_block(forgets, pool, monkeypatch):
    def refuse(**_):
        raise OSError("no")

    monkeypatch.setattr(cuda_core._core.Buffer, "from_handle", refuse)
    with pytest.raises(OSError, match="no"):
        PoolMemoryResource(pool).allocate(100, stream=Stream(0x5000))
    assert pool.calls[1:] == [("free_address", 0x1000)]


def test_what_the_memory_is(pool):
    resource = PoolMemoryResource(pool)
    assert (resource.is_device_accessible, resource.is_host_accessible, resource.is_managed) == (True, False, False)
    assert resource.device_id == 3
    pinned = PoolMemoryResource(millpond.Pool("host:0", memory="pinned"))
    assert pinned.is_host_accessible and "PoolMemoryResource of <millpond.Pool of pinned" in repr(pinned)
    emulated = PoolMemoryResource(device="host:0")
    assert not emulated.is_device_accessible and emulated.pool.client == "cuda.core"


def test_pinned_memory_waits_for_its_stream(forgets):
    resource = PoolMemoryResource(millpond.Pool("host:0", memory="pinned"))
    stream = Stream(0x5000)
    buffer = resource.allocate(100, stream=stream)
    assert resource.pool.find(buffer.ptr)["requested"] == 100
    buffer.close(stream)
    assert stream.syncs == 1
    with pytest.raises(LookupError):
        resource.pool.find(buffer.ptr)


def test_exhaustion_is_cuda_core_s_error(forgets):
    from cuda.core._utils.cuda_utils import CUDAError

    resource = PoolMemoryResource(device="host:0")
    sentence = "^CUDA_ERROR_OUT_OF_MEMORY: cannot allocate 1152921504606846976 bytes"
    with pytest.raises(CUDAError, match=sentence) as caught:
        resource.allocate(1 << 60)
    assert isinstance(caught.value, MemoryError)
    buffer = resource.allocate(100)
    assert resource.pool.find(buffer.ptr)["client"] == "cuda.core"
    buffer.close()


def test_without_cuda_core():
    code = ("import sys\nsys.modules['cuda'] = None\ntry: import millpond.cuda_core\n"
            "except ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
                          env={"PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.startswith("millpond.cuda_core needs cuda.core, which cannot be imported (")
    assert done.stdout.endswith("pip install cuda-core\n")


class Gpu:
    def is_blocking(self, handle):
        return handle == 0x5000


def test_numba_s_arguments_wait_with_its_arrays(forgets, pool):
    from millpond._numba_arguments import ArgumentResource

    given = []
    resource = ArgumentResource(pool, 0, lambda *block: given.append(block), Gpu())
    resource.allocate(100, stream=Stream(0x5000)).close()
    resource.allocate(100, stream=Stream(1)).close()
    resource.allocate(100, stream=0).close()
    assert pool.calls == [("alloc", 100, 0)] * 3  # the legacy default stream, which a blocking one keeps to
    assert given == [(0x1000, 100)] * 3


def test_numba_s_arguments_of_a_non_blocking_launch_keep_to_its_stream(forgets, pool):
    from millpond._numba_arguments import ArgumentResource

    given = []
    resource = ArgumentResource(pool, 0, lambda *block: given.append(block), Gpu())
    for _ in range(2):
        resource.allocate(100, stream=Stream(0x6000)).close()
    assert pool.calls == [("alloc", 100, 0x6000), ("free_address", 0x1000)] * 2 and given == []
    resource.allocate(100, stream=Stream(1)).close()
    assert pool.calls[4:] == [("alloc", 100, 0)] and given == [(0x1000, 100)]  # the same address, allocated otherwise


def test_numba_s_arguments_with_sync_are_ready_for_every_stream(forgets, pool):
    from millpond._numba_arguments import ArgumentResource

    given = []
    resource = ArgumentResource(pool, None, lambda *block: given.append(block), Gpu())
    resource.allocate(100, stream=Stream(0x6000)).close()
    assert pool.calls == [("alloc", 100, None)] and given == [(0x1000, 100)]
