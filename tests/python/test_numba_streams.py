# SPDX-License-Identifier: Apache-2.0
"""Which stream Numba's memory is lent on: the settings, `millpond.numba.stream`, and memory that goes from one
non-blocking stream to another, on the emulated device, all of whose streams are such."""
# ruff: noqa: F811 - fixtures are imported, and arguments have their names

import gc
import inspect
import threading
import weakref

import millpond.numba
import pytest
from core_kit import HostStream
from numba_kit import PACKAGES, Rig, address_of, driver, driver_of, package, rig, run_python  # noqa: F401

KIB, MIB = 1 << 10, 1 << 20


def stream_of(rig, memory):
    return rig.pool.find(address_of(memory))["stream"]


def with_setting(rig, streams):
    rig.manager.retire()
    millpond.numba.configure(streams=streams)
    rig.open()
    rig.manager.initialize()
    return rig


@pytest.mark.parametrize(("streams", "handle"), [("fence", 0), ("fast", 0), ("sync", None)])
def test_what_arrays_are_lent_on(rig, streams, handle):
    with_setting(rig, streams)
    assert stream_of(rig, rig.context.memalloc(100)) == handle
    rig.open()  # also the first of all
    assert rig.pool is None
    first = rig.context.memalloc(100)
    assert stream_of(rig, first) == handle


# ---- with millpond.numba.stream ----


@pytest.mark.parametrize("streams", ["fence", "fast", "sync"])
def test_arrays_of_a_stream(rig, streams):
    with_setting(rig, streams)
    usual = stream_of(rig, rig.context.memalloc(100))
    with millpond.numba.stream(0x5000):
        outer = rig.context.memalloc(MIB)
        with millpond.numba.stream(0x6000):
            inner = rig.context.memalloc(MIB)
            with millpond.numba.stream(None):
                assert stream_of(rig, rig.context.memalloc(100)) == usual
        again = rig.context.memalloc(MIB)
    assert [stream_of(rig, memory) for memory in (outer, inner, again)] == [0x5000, 0x6000, 0x5000]
    assert stream_of(rig, rig.context.memalloc(100)) == usual
    del outer, inner, again
    rig.in_use()
    for handle in (0x5000, 0x6000):
        rig.pool.stream_gone(handle)


def test_an_array_of_a_stream_is_free_at_once_wherever_it_ends(rig):
    stream = HostStream()
    with millpond.numba.stream(stream):
        held = [rig.context.memalloc(MIB)]
    address = address_of(held[0])
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    with millpond.numba.stream(stream), rig.context.defer_cleanup():
        assert address_of(rig.context.memalloc(MIB)) == address  # no fence, nothing to wait for
        assert address_of(rig.context.memalloc(MIB)) == address
    rig.pool.stream_gone(stream)
    stream.destroy()


def test_a_thread_s_stream_is_its_own(rig):
    found = []
    with millpond.numba.stream(0x5000):
        thread = threading.Thread(target=lambda: found.append(stream_of(rig, rig.context.memalloc(100))))
        thread.start()
        thread.join()
    assert found == [0]
    with pytest.raises(KeyError), millpond.numba.stream(0x5000):
        raise KeyError
    assert stream_of(rig, rig.context.memalloc(100)) == 0


def test_what_is_a_stream(rig):
    class Foreign:
        def __cuda_stream__(self):
            return 0, 0x7000

    numba_s = make_stream(rig.driver, 0x7000)
    for stream in (Foreign(), numba_s, 0x7000):
        with millpond.numba.stream(stream):
            assert stream_of(rig, rig.context.memalloc(100)) == 0x7000
    with pytest.raises(TypeError, match="or a native handle, not str"), millpond.numba.stream("7"):
        pass
    rig.pool.stream_gone(0x7000)


def make_stream(driver, handle, finalizer=None):
    """A stream of Numba, which it made itself."""
    context = [None] if "context" in inspect.signature(driver.Stream).parameters else []
    own = getattr(getattr(driver, "drvapi", None), "cu_stream", None)
    is_ctypes = own is not None and not getattr(driver, "USE_NV_BINDING", False)
    return driver.Stream(*context, own(handle) if is_ctypes else driver.binding.CUstream(handle), finalizer)


def test_the_pool_is_told_before_numba_destroys_a_stream(rig):
    native, told = HostStream(), []

    def finalizer():
        told.append(rig.pool.streams())
        native.destroy()

    stream = make_stream(rig.driver, native.handle, finalizer=finalizer)
    alive = weakref.ref(stream)
    with millpond.numba.stream(stream):
        memory = rig.context.memalloc(MIB)
        rig.context.memalloc(MIB)
    del stream
    gc.collect()
    assert alive() is not None and told == []  # the array keeps it
    assert native.handle in [share["stream"] for share in rig.pool.streams()]
    del memory
    gc.collect()
    assert alive() is None and len(told) == 1
    assert native.handle not in [share["stream"] for share in told[0]]


def test_exhaustion_in_a_stream_is_numba_s_error(rig):
    with millpond.numba.stream(0x5000):
        with pytest.raises(rig.driver.CudaAPIError, match="bytes of device memory"):
            rig.context.memalloc(1 << 60)
        cycle = [rig.context.memalloc(MIB)]
        cycle.append(cycle)
    del cycle
    gc.collect()
    rig.pool.stream_gone(0x5000)


# ---- from one non-blocking stream to another ----

# Stream `a` writes late to a block, which is freed in its order. An array has the memory next, since there is no other,
# and stream `b` writes to it. `lend` makes the array and whatever is to be said of b; what it returns keeps it.
PASS_ON = """
import ctypes, sys, importlib
from numba_kit import Rig, address_of
from millpond import _numba_manager
_numba_manager.Manager.device_name = lambda self: "host:0"
cuda = importlib.import_module(sys.argv[1])
driver = sys.modules[cuda.BaseCUDAMemoryManager.__module__]
import millpond.numba
from core_kit import HostStream
SIZE = 4 << 20
millpond.numba.use(cuda, streams=sys.argv[2], options={"max_mem": SIZE, "extend_strategy": 1})
rig, a, b = Rig(driver), HostStream(), HostStream()
rig.context.prepare_for_use()
other, wrong = millpond.Pool("host:0", client="other"), 0
LEND
for turn in range(40):
    block = other.alloc(SIZE, a)
    address = block.address
    for _ in range(3):
        a.call(lambda: ctypes.memset(address, 1, 64))
    block.free()
    held = lend(b)
    b.call(lambda: ctypes.memset(address, 2, 64))
    b.synchronize()
    a.synchronize()
    wrong += ctypes.string_at(address, 64) != bytes([2]) * 64
    del held
    rig.manager.flush()
for stream in (a, b):
    other.stream_gone(stream)
    stream.destroy()
print(wrong)
"""


def array(before="", after=""):
    return f"""
def lend(stream):
    with millpond.numba.stream({before or None}):
        memory = rig.context.memalloc(SIZE)
    assert address_of(memory) == address
    {after or 'pass'}
    return memory
"""


ARGUMENT = """
from millpond import cuda_core
class Buffer:
    def __init__(self, ptr, size, mr):
        assert ptr == address
        self.free = lambda: mr.deallocate(ptr, size)
    @classmethod
    def from_handle(cls, ptr, size, mr, **more):
        return cls(ptr, size, mr)
    def __del__(self):
        self.free()
cuda_core._core = type("Core", (), {"Buffer": Buffer, "Stream": type("Stream", (), {})})
cuda_core._for_buffer = lambda *words: {}
def lend(stream):
    return rig.device._dev.allocate(SIZE, stream=stream.handle)
"""


@pytest.mark.parametrize("mode", ["threaded", "adversarial:3"])
@pytest.mark.parametrize(("streams", "lend"), [
    ("sync", array()),
    ("fence", array("stream")),
    ("fence", array(after="millpond.numba.record_use(memory, stream)")),
    ("fast", array(after="millpond.numba.record_use(memory, stream)")),
    ("fence", ARGUMENT),
    ("sync", ARGUMENT),
], ids=["sync", "stream", "declared", "declared-fast", "argument", "argument-sync"])  # fmt: skip
def test_memory_that_goes_to_a_non_blocking_stream(mode, streams, lend):
    driver_of(PACKAGES[0])
    if lend is ARGUMENT:
        pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    out = run_python(PASS_ON.replace("LEND", lend), PACKAGES[0], streams, MILLPOND_HOST=mode)
    assert out == "0\n"
