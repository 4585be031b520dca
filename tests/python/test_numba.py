# SPDX-License-Identifier: Apache-2.0
"""millpond.numba with Numba's own classes, on the emulated device: the contract, and device memory."""
# ruff: noqa: F811 - fixtures are imported, and arguments have their names

import threading
import warnings

import millpond.numba
import numpy as np
import pytest
from millpond import _numba_manager
from millpond._numba_binding import dialect_of, handle_of
from numba_kit import Rig, address_of, content, driver, fill, make_device, package, rig, would_reset  # noqa: F401

KIB = 1 << 10
MIB = 1 << 20


# ---- the contract ----


def test_class_is_a_memory_manager(driver):
    chosen = _numba_manager.manager_class(driver)
    assert issubclass(chosen, driver.BaseCUDAMemoryManager)
    assert chosen is _numba_manager.manager_class(driver)
    with pytest.raises(RuntimeError, match="requires a context"):
        chosen()


def test_version_needs_no_context_and_opens_nothing(driver):
    before = len(_numba_manager.active)
    manager = _numba_manager.manager_class(driver)(context=None)
    assert manager.interface_version == 1
    assert manager._pool is None and len(_numba_manager.active) == before
    manager.reset()  # with nothing to reset


@pytest.mark.parametrize("name", ["manager_class", "_numba_memory_manager"])
def test_set_memory_manager_takes_it(package, driver, monkeypatch, name):
    monkeypatch.setattr(driver, "_memory_manager", None)
    monkeypatch.setattr(_numba_manager.Manager, "device_name", lambda self: "host:0")
    given = getattr(millpond.numba, name)
    driver.set_memory_manager(given(__import__(package, fromlist=["x"])) if name == "manager_class" else given)
    manager = Rig(driver).manager
    assert isinstance(manager, driver.BaseCUDAMemoryManager) and manager.memalloc(10).size == 10
    manager.retire()


def test_use_sets_it_and_warns_of_contexts(package, driver, monkeypatch):
    cuda = __import__(package, fromlist=["x"])
    monkeypatch.setattr(driver, "_memory_manager", driver.NumbaCUDAMemoryManager)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = millpond.numba.use(cuda)
    assert driver._memory_manager is chosen
    monkeypatch.setattr(driver, "_memory_manager", driver.NumbaCUDAMemoryManager)
    native = Rig(driver)
    monkeypatch.setitem(driver.driver.devices, 0, native.device)
    with pytest.warns(RuntimeWarning, match="context on device 0, which keeps its own memory"):
        millpond.numba.use(cuda)


def test_close_after_use_s_warning_resets_no_gpu(package, driver, monkeypatch):
    """The warning advises cuda.close(), and other libraries have memory of the pool by then."""
    cuda = __import__(package, fromlist=["x"])
    monkeypatch.setattr(driver, "_memory_manager", driver.NumbaCUDAMemoryManager)
    native = Rig(driver)
    monkeypatch.setitem(driver.driver.devices, 0, native.device)
    with pytest.warns(RuntimeWarning, match="context on device 0"):
        millpond.numba.use(cuda)
    native.device.reset()  # what cuda.close() calls; Numba's own would raise here
    assert native.device.primary_context is None and driver._memory_manager is _numba_manager.manager_class(driver)
    millpond.numba.restore(cuda)


def test_restore_undoes_use(package, driver, monkeypatch):
    cuda = __import__(package, fromlist=["x"])
    monkeypatch.setattr(driver, "_memory_manager", driver.NumbaCUDAMemoryManager)
    monkeypatch.setattr(_numba_manager.Manager, "device_name", lambda self: "host:0")
    millpond.numba.use(cuda)
    millpond.numba.use(cuda)  # twice is no harm
    rig = Rig(driver)
    idle = make_device(driver)
    monkeypatch.setitem(driver.driver.devices, 0, rig.device)
    monkeypatch.setitem(driver.driver.devices, 1, idle)
    rig.context.prepare_for_use()
    memory = rig.context.memalloc(100)
    with pytest.warns(RuntimeWarning, match=r"context on device 0, which keeps the pool: cuda\.close\(\)"):
        millpond.numba.restore(cuda)
    assert driver._memory_manager is driver.NumbaCUDAMemoryManager
    with pytest.raises(AssertionError, match="would be reset"):
        idle.reset()
    rig.device.reset()  # the pool's context: its arrays stay
    fill(memory, 3)
    assert content(memory) == {3} and rig.manager not in _numba_manager.active
    with pytest.raises(AssertionError, match="would be reset"):
        rig.device.reset()  # from now on Numba's own
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        millpond.numba.restore(cuda)  # nothing to undo
        millpond.numba.use(cuda)
        make_device(driver).reset()  # also of a device that Numba finds later
        millpond.numba.restore(cuda)
    assert driver.Device.reset is would_reset


def test_a_later_memory_manager_has_numba_s_own_reset(package, driver, monkeypatch):
    cuda = __import__(package, fromlist=["x"])
    monkeypatch.setattr(driver, "_memory_manager", driver.NumbaCUDAMemoryManager)
    monkeypatch.setattr(_numba_manager.Manager, "device_name", lambda self: "host:0")
    millpond.numba.use(cuda)
    rig = Rig(driver)
    monkeypatch.setitem(driver.driver.devices, 0, rig.device)
    rig.context.prepare_for_use()
    driver.set_memory_manager(driver.NumbaCUDAMemoryManager)
    rig.device.reset()
    rig.open()
    assert isinstance(rig.manager, driver.NumbaCUDAMemoryManager)
    with pytest.raises(AssertionError, match="would be reset"):
        rig.device.reset()
    millpond.numba.restore(cuda)
    assert driver._memory_manager is driver.NumbaCUDAMemoryManager


def test_reset_before_initialize_and_initialize_again(rig):
    rig.open()
    manager = rig.manager
    manager.reset()
    assert manager._pool is None
    manager.initialize()
    pool = manager._pool
    manager.initialize()
    assert manager._pool is pool
    rig.context.reset()
    manager.initialize()
    assert manager._pool is pool  # the same one, with the arrays that live


def test_memory_without_initialize(rig):
    rig.open()
    assert rig.manager.memalloc(100).size == 100


# ---- device memory ----


@pytest.mark.parametrize("size", [1, 255, 4 * KIB, 3 * MIB, np.int64(1000)])
def test_memalloc_gives_what_numba_expects(rig, size):
    memory = rig.context.memalloc(size)
    driver = rig.driver
    assert type(memory) is driver.MemoryPointer and type(memory.device_pointer) is dialect_of(driver).device_pointer
    assert address_of(memory) % 256 == 0 and memory.size == size and memory.is_managed
    assert handle_of(memory.device_ctypes_pointer) == address_of(memory)
    assert (handle_of(driver.device_pointer(memory)), driver.device_memory_size(memory)) == (address_of(memory), size)
    assert driver.is_device_memory(memory)
    assert rig.pool.find(address_of(memory))["client"] == "numba"
    fill(memory, 7)
    assert content(memory) == {7}


def test_views_count_and_keep_the_block(rig):
    memory = rig.context.memalloc(1024)
    address = address_of(memory)
    view = memory.view(10)
    further = view.view(10)
    assert (address_of(view), address_of(further)) == (address + 10, address + 20) and memory.refct == 3
    del further
    assert memory.refct == 2
    del view
    assert memory.refct == 1 and rig.pool.find(address)["requested"] == 1024


def test_an_array_of_numba_lives_on_it(rig):
    arrays = __import__(rig.driver.__name__.rpartition(".")[0] + ".devicearray", fromlist=["x"])
    array = arrays.DeviceNDArray((10, 20), (80, 4), np.float32, gpu_data=rig.context.memalloc(800))
    address = array.__cuda_array_interface__["data"][0]
    assert rig.pool.find(address)["requested"] == 800
    before = rig.in_use()
    del array
    assert rig.in_use() == before - 1024


def test_blocks_wait_for_each_other(rig):
    before = rig.in_use()
    for count in range(1, 64):
        rig.context.memalloc(256)
        assert rig.share("in_use") == before + count * 256  # not given back yet: nothing may have them
    rig.context.memalloc(256)
    assert rig.share("in_use") == before
    rig.context.memalloc(256)
    rig.context.memalloc(64 * MIB)  # large ones wait for nobody
    assert rig.share("in_use") == before


def test_flush_gives_back_all(rig):
    assert len(_numba_manager.active) == 1
    millpond.numba.flush()
    for _ in range(5):
        rig.context.memalloc(256)
    assert millpond.numba.flush() == 5 and millpond.numba.flush() == 0


def test_finalizers_do_not_raise(rig, capfd):
    memory = rig.context.memalloc(512)
    rig.pool.free_address(address_of(memory))  # somebody else frees it
    del memory
    freed = rig.context.memalloc(512)
    freed.free()
    with pytest.raises(RuntimeError, match="dead memory"):
        freed.free()
    del freed
    rig.manager.flush()
    assert capfd.readouterr() == ("", "")


def test_cycles_are_collected(rig):
    before = rig.in_use()
    cycle = [rig.context.memalloc(MIB)]
    cycle.append(cycle)
    del cycle
    assert rig.in_use() == before


def test_threads(rig):
    before, failures = rig.in_use(), []

    def work(seed):
        random, mine = np.random.default_rng(seed), []
        try:
            for turn in range(400):
                memory = rig.context.memalloc(int(random.integers(1, 20000)))
                fill(memory, seed + turn % 50)
                mine.append((memory, seed + turn % 50))
                if len(mine) > 8:
                    kept, byte = mine.pop(int(random.integers(0, len(mine))))
                    assert content(kept) == {byte}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 51, 101, 151)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and rig.in_use() == before


def test_freed_on_another_thread(rig):
    before = rig.in_use()
    held = [rig.context.memalloc(300)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert rig.in_use() == before
