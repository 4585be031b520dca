# SPDX-License-Identifier: Apache-2.0
"""millpond.numba with Numba's own classes, on the emulated device: host memory, cleaning up, arguments, settings."""
# ruff: noqa: F811 - fixtures are imported, and arguments have their names

import ctypes
import gc
import weakref
from types import SimpleNamespace

import millpond.numba
import numpy as np
import pytest
from millpond import _numba_manager
from millpond._numba_binding import handle_of
from numba_kit import FakeCoreDevice, address_of, content, driver, fill, package, rig  # noqa: F401

MIB = 1 << 20


# ---- host memory ----


@pytest.mark.parametrize("portable", [False, True])
def test_pinned_memory_is_of_the_pinned_pool(rig, portable):
    memory = rig.context.memhostalloc(4000, portable=portable)
    assert type(memory) is rig.driver.PinnedMemory
    array = np.ndarray(shape=1000, dtype=np.float32, buffer=memory)
    array[:] = 3
    pool = millpond.Pool("host:0", memory="pinned")
    assert array.sum() == 3000 and pool.find(array.ctypes.data)["client"] == "numba"
    address = array.ctypes.data
    del memory
    assert pool.find(address)["requested"] == 4000  # the array holds it
    del array
    rig.manager.flush()
    with pytest.raises(LookupError):
        pool.find(address)


def test_page_locking_is_paired_and_keeps_the_owner(rig, monkeypatch):
    calls = []

    class Owner:
        pass

    class Recorder:
        def call(self, *words):
            calls.append(words)

    functions = rig.driver.driver.__dict__
    def register(pointer, *words):
        calls.append(("register", handle_of(pointer), *words))

    monkeypatch.setitem(functions, "cuMemHostRegister", register)
    monkeypatch.setitem(functions, "cuMemHostGetDevicePointer", lambda *words: 0x5000)
    rig.manager._native._driver = Recorder()
    for mapped, flag in ((False, 0), (True, 2)):
        owner = Owner()
        alive = weakref.ref(owner)
        with rig.context.memory_manager.defer_cleanup():
            memory = rig.manager.mempin(owner, 0x4000, 64, mapped)
            del owner
            gc.collect()
            assert alive() is not None and calls == [("register", 0x4000, 64, flag)]
            del memory
            assert calls.pop() == ("cuMemHostUnregister", 0x4000)  # at once, though cleaning up is deferred
        assert alive() is None
        calls.clear()


def test_mapped_and_managed_memory_is_the_driver_s(rig, monkeypatch):
    freed = []

    class Recorder:
        def call(self, *words):
            freed.append(words)

    buffer = ctypes.create_string_buffer(64)
    address = ctypes.addressof(buffer)
    functions = rig.driver.driver.__dict__
    has_outputs = hasattr(rig.driver, "binding")  # ctypes has them among the arguments instead

    def answer(find):
        def call(*words):
            if has_outputs:
                return find(*words)
            words[0]._obj.value = find(*words[1:])
            return None

        return call

    monkeypatch.setitem(functions, "cuMemHostAlloc", answer(lambda size, flags: address + flags - 2))
    monkeypatch.setitem(functions, "cuMemHostGetDevicePointer", answer(lambda *words: 0x5000))
    monkeypatch.setitem(functions, "cuMemAllocManaged", answer(lambda size, flags: address))
    rig.manager._native._driver = Recorder()
    mapped = rig.context.memhostalloc(64, mapped=True)
    assert mapped.device_pointer_value == 0x5000 and memoryview(mapped).nbytes == 64
    view = mapped.view(8)
    managed = rig.context.memallocmanaged(64)
    assert memoryview(managed).nbytes == 64
    combined = rig.context.memhostalloc(64, wc=True)
    assert type(combined) is rig.driver.PinnedMemory and handle_of(combined.handle) == address + 2
    with rig.context.defer_cleanup():
        del mapped, managed, combined
        rig.manager.flush()
        assert freed == []
    rig.manager.flush()
    assert freed == [("cuMemFree", address), ("cuMemFreeHost", address + 2)]
    del view
    rig.context.reset()
    assert freed[2:] == [("cuMemFreeHost", address)]


# ---- cleaning up ----


def test_reset_spares_arrays_and_others(rig):
    other = millpond.Pool("host:0", client="other")
    theirs = other.alloc(3 * MIB)
    memory = rig.context.memalloc(2 * MIB)
    fill(memory, 9)
    memoryview(theirs)[:] = bytes(range(256)) * (theirs.size // 256)
    rig.context.memalloc(2 * MIB)
    rig.context.reset()
    assert content(memory) == {9} and memoryview(theirs).tobytes() == bytes(range(256)) * (theirs.size // 256)
    del memory
    assert rig.in_use() == 0
    del theirs
    rig.context.reset()
    assert rig.pool.stats()["total"] == 0


def test_defer_cleanup_waits_for_nothing(rig):
    rig.context.reset()
    before = rig.share("in_use")
    fences = []
    for backlog in rig.manager._backlogs:
        backlog._fence = lambda: fences.append(1) or True
    with rig.context.defer_cleanup():
        with rig.context.defer_cleanup():
            for _ in range(200):
                rig.context.memalloc(MIB)
            rig.context.reset()
        rig.context.get_memory_info()
        total = rig.pool.stats()["total"]
        assert fences == [] and rig.share("in_use") == before + 200 * MIB and total >= 200 * MIB
    assert fences == [1] and rig.pool.stats()["total"] == 0
    with rig.context.defer_cleanup():
        for _ in range(200):
            rig.context.memalloc(256)
    assert fences == [1, 1] and rig.share("in_use") == before  # more than may wait went back at the end
    with rig.context.defer_cleanup():
        rig.context.memalloc(256)
    assert fences == [1, 1] and rig.in_use() == before  # the few wait for more


@pytest.mark.parametrize("streams", ["fence", "sync"])
def test_defer_cleanup_holds_for_pinned_memory(rig, streams):
    rig.manager.retire()
    millpond.numba.configure(streams=streams)
    rig.open()
    rig.manager.initialize()
    rig.context.memhostalloc(100)
    rig.manager.flush()
    fences = []
    for backlog in rig.manager._backlogs:
        backlog._fence = lambda: fences.append(1) or True
    with rig.context.defer_cleanup():
        for _ in range(200):
            rig.context.memhostalloc(100)
        assert fences == []
    assert len(fences) == 1


def test_a_shortage_frees_what_waits_also_while_deferred(rig):
    freed = []

    class Gpu:
        def call(self, *words):
            freed.append(words)

    rig.manager._native._driver = Gpu()
    total = rig.pool.memory_info()[1]
    size = total // 3
    with rig.context.defer_cleanup():
        rig.context.memalloc(size)
        rig.context.memalloc(size)
        rig.manager._native.finalizer("cuMemFree", 0x7000, 100)()
        assert rig.share("in_use") >= 2 * size and freed == []
        other = millpond.Pool("host:0", client="other")
        block = other.alloc(2 * size)  # another library's request
        assert freed == [("cuMemFree", 0x7000)] and block.size == 2 * size
    del block
    other.close()


def test_defer_cleanup_ends_with_an_exception(rig):
    with pytest.raises(KeyError), rig.context.defer_cleanup():
        rig.context.reset()
        raise KeyError
    rig.context.memalloc(MIB)
    rig.context.reset()
    assert rig.pool.stats()["total"] == 0


def test_close_leaves_the_gpu_s_context_alone(rig):
    memory = rig.context.memalloc(1000)
    fill(memory, 4)
    first = rig.manager
    rig.device.reset()  # what cuda.close() calls; without us it would raise here
    assert rig.device.primary_context is None and first not in _numba_manager.active
    rig.device.reset()
    rig.open()
    rig.context.prepare_for_use()
    assert rig.manager is not first and content(memory) == {4}
    before = rig.in_use()
    del memory, first
    gc.collect()  # what waited goes back with the last that could have given more
    assert rig.in_use() == before - 1024


def test_memory_info(rig):
    info = rig.context.get_memory_info()
    assert isinstance(info, rig.driver.MemoryInfo) and 0 < info.free <= info.total
    memory = rig.context.memalloc(8 * MIB)
    assert info.free - rig.context.get_memory_info().free == 8 * MIB
    del memory
    assert rig.context.get_memory_info() == info


# ---- NumPy arguments of kernels ----


def test_arguments_come_from_the_pool_until_reset(rig):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    mine = rig.device._dev
    assert type(mine.memory_resource).__name__ == "ArgumentResource" and mine.memory_resource.pool is rig.pool
    assert mine.compute_capability == (9, 0)
    rig.context.prepare_for_use()
    rig.context.reset()
    assert type(rig.device._dev) is FakeCoreDevice
    rig.context.prepare_for_use()
    assert rig.device._dev.memory_resource.pool is rig.pool and type(rig.device._dev.millpond_device) is FakeCoreDevice


def test_what_other_code_has_of_cuda_core_stays(rig):
    """Device(0) is one object a thread, Numba's and a user's."""
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    theirs = rig.core_device
    assert theirs.memory_resource == "cuda.core's own" and theirs.allocate(5, stream=1) == ("cuda.core's own", 5, 1)
    theirs.memory_resource = "the user's"
    for _ in range(2):
        rig.context.reset()
        rig.context.prepare_for_use()
        assert theirs.memory_resource == "the user's" and rig.device._dev.memory_resource.pool is rig.pool


def test_arguments_may_stay_where_they_were(rig):
    rig.context.reset()
    rig.manager.retire()
    millpond.numba.configure(kernel_arguments=False)
    rig.open()
    rig.context.prepare_for_use()
    assert rig.device._dev is rig.core_device and rig.pool is not None


def test_a_context_of_another_library_has_no_device_object(rig):
    binding = getattr(rig.driver, "binding", None)
    other = rig.driver.Context(0 if binding is None else binding.CUdevice(0), 1)
    other.prepare_for_use()
    assert other.memalloc(100).size == 100
    other.memory_manager.retire()


# ---- settings, and streams of others ----


@pytest.mark.parametrize("streams", ["fast", "sync"])
def test_modes(rig, streams):
    rig.manager.retire()
    millpond.numba.configure(streams=streams)
    rig.open()
    rig.manager.initialize()
    before = rig.in_use()
    rig.context.memalloc(100)
    assert rig.share("in_use") == before + (0 if streams == "fast" else 256)
    rig.context.memhostalloc(100)
    assert rig.in_use() == before


def test_configure_refuses(rig):
    with pytest.raises(RuntimeError, match="at work already"):
        millpond.numba.configure(streams="fast")
    rig.manager.retire()
    with pytest.raises(ValueError, match="streams is 'slow'; it must be one of fence, fast, sync"):
        millpond.numba.configure(streams="slow")
    millpond.numba.configure(ipc=True, options={"arena.max_mem": "1G"})
    assert _numba_manager.settings.pool_options() == {"arena.max_mem": "1G", "arena.ipc": True}


# ---- other devices ----


def test_peers_are_enabled_for_the_pool_too(rig, monkeypatch):
    calls, codes = [], []

    class Gpu:
        def ordinal_of(self, context):
            return {0x77: 1}[context]

    class Peer:
        def __init__(self, device, **more):
            calls.append((device, more["client"]))

        def enable_peer(self, ordinal):
            calls.append(ordinal)

    def enable(context, flags):
        calls.append((context, flags))
        if codes:
            raise rig.driver.CudaAPIError(codes.pop(), "no")

    monkeypatch.setitem(rig.driver.driver.__dict__, "cuCtxEnablePeerAccess", enable)
    monkeypatch.setattr(rig.manager, "_gpu", Gpu())
    monkeypatch.setattr(_numba_manager, "Pool", Peer)
    codes.append(704)  # another library was first
    rig.context.enable_peer_access(0x77)
    assert calls == [(0x77, 0), ("host:1", "numba"), 0]
    for code in (704, 217):  # now Numba was; and GPUs that are not connected
        codes.append(code)
        with pytest.raises(rig.driver.CudaAPIError):
            rig.context.enable_peer_access(0x77)
    assert calls[3:] == [(0x77, 0)] * 2


class Recorder:
    """The pool, which notes what is declared."""

    def __init__(self, pool, used):
        self.find = pool.find
        self.record_use = lambda *words: used.append(words)


@pytest.fixture
def used(rig, monkeypatch):
    found = []
    monkeypatch.setattr(_numba_manager, "pools", [Recorder(rig.pool, found)])
    return found


def test_record_use(rig, used):
    memory = rig.context.memalloc(1000)
    millpond.numba.record_use(memory, 77)
    millpond.numba.record_use(memory.view(300), 78)
    assert used == [(address_of(memory), 77), (address_of(memory), 78)]
    with pytest.raises(TypeError, match="not list"):
        millpond.numba.record_use([], 77)
    with pytest.raises(TypeError, match="not str"):
        millpond.numba.record_use(memory, "77")
    foreign = rig.driver.MemoryPointer(rig.context, rig.manager._device_pointer(4096), 64)
    with pytest.raises(LookupError, match="not allocated the memory at 0x1000"):
        millpond.numba.record_use(foreign, 77)
    rig.context.memory_manager = None
    with pytest.raises(ValueError, match="not of the pool"):
        millpond.numba.record_use(foreign, 77)


def test_record_use_after_close(rig, used):
    memory = rig.context.memalloc(1000)
    rig.device.reset()
    rig.context = None
    rig.manager = SimpleNamespace(retire=lambda: None)
    gc.collect()
    with pytest.raises(ReferenceError):
        memory.context.device  # noqa: B018 - it has gone
    millpond.numba.record_use(memory, 77)
    assert used == [(address_of(memory), 77)]
    foreign = rig.driver.MemoryPointer(memory.context, type(memory.device_pointer)(4096), 64)
    with pytest.raises(LookupError):
        millpond.numba.record_use(foreign, 77)
