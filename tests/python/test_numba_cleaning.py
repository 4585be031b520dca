# SPDX-License-Identifier: Apache-2.0
"""millpond.numba with Numba's own classes, on the emulated device: host memory, cleaning up, arguments, settings."""
# ruff: noqa: F811 - fixtures are imported, and arguments have their names

import ctypes
import gc
import weakref

import millpond.numba
import numpy as np
import pytest
from millpond import _numba_manager
from numba_kit import content, driver, fill, package, rig  # noqa: F401

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
    monkeypatch.setitem(functions, "cuMemHostRegister", lambda *words: calls.append(("register", *words)))
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
    monkeypatch.setitem(functions, "cuMemHostAlloc", lambda size, flags: address + flags - 2)
    monkeypatch.setitem(functions, "cuMemHostGetDevicePointer", lambda *words: 0x5000)
    monkeypatch.setitem(functions, "cuMemAllocManaged", lambda size, flags: rig.driver.binding.CUdeviceptr(address))
    rig.manager._native._driver = Recorder()
    mapped = rig.context.memhostalloc(64, mapped=True)
    assert int(mapped.device_pointer) == 0x5000 and memoryview(mapped).nbytes == 64
    view = mapped.view(8)
    managed = rig.context.memallocmanaged(64)
    assert memoryview(managed).nbytes == 64
    combined = rig.context.memhostalloc(64, wc=True)
    assert type(combined) is rig.driver.PinnedMemory and combined.handle == address + 2
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


def test_defer_cleanup_returns_blocks_but_no_regions(rig):
    rig.context.reset()
    with rig.context.defer_cleanup():
        with rig.context.defer_cleanup():
            first = rig.context.memalloc(MIB)
            address = int(first.handle)
            del first
            rig.context.reset()
        total = rig.pool.stats()["total"]
        assert total > 0 and rig.in_use() == 0
        again = rig.context.memalloc(MIB)
        assert int(again.handle) == address
        del again
        assert rig.pool.stats()["total"] == total
    assert rig.pool.stats()["total"] == 0


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
    resource = rig.device._dev.memory_resource
    assert type(resource).__name__ == "ArgumentResource" and resource.pool is rig.pool
    rig.context.reset()
    assert rig.device._dev.memory_resource == "cuda.core's own"
    rig.context.prepare_for_use()
    assert rig.device._dev.memory_resource.pool is rig.pool
    rig.device._dev.memory_resource = "the user's"
    rig.context.reset()
    assert rig.device._dev.memory_resource == "the user's"


def test_arguments_may_stay_where_they_were(rig):
    rig.context.reset()
    rig.manager.retire()
    millpond.numba.configure(kernel_arguments=False)
    rig.open()
    rig.context.prepare_for_use()
    assert rig.device._dev.memory_resource == "cuda.core's own" and rig.pool is not None


def test_a_context_of_another_library_has_no_device_object(rig):
    other = rig.driver.Context(rig.driver.binding.CUdevice(0), 1)
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


def test_record_use(rig, monkeypatch):
    used = []

    class Recorder:
        def __init__(self, pool):
            self.find = pool.find

        def record_use(self, *words):
            used.append(words)

    memory = rig.context.memalloc(1000)
    monkeypatch.setattr(rig.manager, "_pool", Recorder(rig.pool))
    millpond.numba.record_use(memory, 77)
    millpond.numba.record_use(memory.view(300), 78)
    assert used == [(int(memory.handle), 77), (int(memory.handle), 78)]
    with pytest.raises(TypeError, match="not list"):
        millpond.numba.record_use([], 77)
    foreign = rig.driver.MemoryPointer(rig.context, 4096, 64)
    with pytest.raises(LookupError):
        millpond.numba.record_use(foreign, 77)
    rig.context.memory_manager = None
    with pytest.raises(ValueError, match="not of the pool"):
        millpond.numba.record_use(memory, 77)
