# SPDX-License-Identifier: Apache-2.0
"""Cases of test_cupy_functions.py that need a process of their own. Those named cupy_* need CuPy, none a GPU.

CuPy cannot tell its current stream without a driver, so a function of the test does.
"""

import ctypes
import gc
import os
import pickle
import sys
import threading
from types import SimpleNamespace

import millpond
from core_kit import HostStream
from millpond import _native

HUGE = 1 << 50
STREAM_FN = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)
HOOKS_FN = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)


class Rig:
    """The C functions, with callables in the place of CuPy's and of millpond.cupy's."""

    def __init__(self):
        self.stream, self.hooked, self.opened, self.hook_calls = 0, 0, [], []
        self.pool = millpond.Pool("host:0", client="cupy")
        self.kept = [STREAM_FN(lambda device: self.stream), HOOKS_FN(lambda skip: self.hooked)]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in self.kept]
        self.address, hooks = addresses
        _native.call_with_objects("millpond_cupy_prepare", self.address, self.open, self.fail, self.hook)
        _native.call_with_objects("millpond_cupy_watch_hooks", hooks)
        library = ctypes.PyDLL(_native.PATH)
        self.lend, self.give = library.millpond_cupy_lend, library.millpond_cupy_free
        self.lend.restype, self.lend.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int]
        self.give.restype, self.give.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]

    def open(self, device):
        self.opened.append(device)
        if device != 3:
            _native.open_device("millpond_cupy_open", device, "host:0")

    def fail(self, sentence, size, device):
        raise KeyError(sentence, size, device)

    def hook(self, name, device, size, address):
        self.hook_calls.append((name, device, size, address))

    def free(self, address, device=0):
        self.give(None, address, device)


def blocks():
    rig = Rig()
    address = rig.lend(1000, 0)
    assert rig.pool.find(address)["client"] == "cupy" and rig.pool.find(address)["stream"] == 0
    ctypes.memset(address, 1, 1000)
    rig.free(address)
    assert rig.pool.stats()["in_use"] == 0 and rig.opened == [0]
    rig.lend(1000, 1)
    assert rig.opened == [0, 1]


def failures():
    """What the callable raises comes out, and the next request works."""
    rig = Rig()
    for _ in range(3):
        try:
            rig.lend(HUGE, 0)
        except KeyError as error:
            sentence, size, device = error.args
            assert f"cannot allocate {HUGE} bytes" in sentence and (size, device) == (HUGE, 0)
        else:
            raise AssertionError("no error")
    rig.free(rig.lend(1000, 0))
    _native.call_with_objects("millpond_cupy_prepare", rig.address, rig.open, lambda *_: None, rig.hook)
    try:  # a callable that does not raise
        rig.lend(HUGE, 0)
    except millpond.OutOfMemoryError as error:
        assert f"cannot allocate {HUGE} bytes" in str(error)
    try:  # one that does not open
        rig.lend(1000, 3)
    except millpond.Error as error:
        assert "the pool of device 3 was not opened" in str(error)
    else:
        raise AssertionError("no error")


def order_of_streams():
    """A block is freed in the order of the stream that it was allocated on and of the one current at the end."""
    rig = Rig()
    first, second = HostStream(), HostStream()
    gate, reached = threading.Event(), threading.Event()
    rig.stream = first.handle
    address = rig.lend(5000, 0)
    second.call(lambda: (reached.set(), gate.wait(30)))
    assert reached.wait(30)
    rig.stream = second.handle
    rig.free(address)
    rig.stream = first.handle
    held = [rig.lend(5000, 0) for _ in range(3)]
    assert address not in held and not gate.is_set()
    gate.set()
    second.synchronize()
    rig.pool.shrink()
    assert rig.lend(5000, 0) == address


def hooks():
    rig = Rig()
    rig.hooked = 1
    address = rig.lend(1000, 0)
    rig.free(address)
    assert rig.hook_calls == [
        ("malloc_preprocess", 0, 1000, 0), ("malloc_postprocess", 0, 1000, address),
        ("free_preprocess", 0, 1000, address), ("free_postprocess", 0, 1000, address)]


def forked():
    """A forked child cannot use the pool, and leaves what it has inherited alone."""
    rig = Rig()
    address = rig.lend(1000, 0)
    child = os.fork()
    if child == 0:
        try:
            rig.lend(1000, 0)
        except millpond.UnsupportedError:
            rig.free(address)
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    rig.free(address)
    assert rig.pool.stats()["in_use"] == 0


def threads():
    rig = Rig()

    def work(seed):
        held = []
        for step in range(300):
            held.append(rig.lend(1 + (seed * 7919 + step * 104729) % 100000, 0))
            if len(held) > 10:
                rig.free(held.pop(step % 10))
        for address in held:
            rig.free(address)

    team = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    assert rig.pool.stats()["in_use"] == 0


# ---- with CuPy's own classes ----


class CupyRig:
    """CuPy with its real allocator object over the emulated device."""

    def __init__(self):
        import cupy
        import millpond.cupy

        self.cupy, self.adapter = cupy, millpond.cupy
        self.adapter._prepare()
        self.pool = self.adapter._pools[0, "device"] = millpond.Pool("host:0", client="cupy")
        _native.open_device("millpond_cupy_open", 0, "host:0")
        self.function = STREAM_FN(lambda device: 0)
        stream = ctypes.cast(self.function, ctypes.c_void_p).value
        _native.call_with_objects("millpond_cupy_prepare", stream, self.adapter.pool,
                                  self.adapter._raise_out_of_memory, self.adapter._call_hooks)

    def memory(self, size, device=0):
        functions = (_native.address("millpond_cupy_alloc"), _native.address("millpond_cupy_free"))
        return self.cupy.cuda.memory.CFunctionAllocatorMemory(size, 0, *functions, device)


def cupy_blocks():
    rig = CupyRig()
    memory = rig.memory(1000)
    array = rig.cupy.ndarray((250,), "f4", memptr=rig.cupy.cuda.MemoryPointer(memory, 0))
    address = memory.ptr
    del memory
    assert rig.pool.find(address)["requested"] == 1000
    del array
    gc.collect()
    assert rig.pool.stats()["in_use"] == 0
    assert rig.memory(0).ptr == 0


def cupy_at_exit():
    """Arrays that live until the interpreter ends, and ones in a cycle."""
    rig = CupyRig()
    sys.kept = [rig, *(rig.memory(1000) for _ in range(10))]
    cycle = [rig.memory(1000)]
    cycle.append(cycle)


def cupy_out_of_memory():
    rig = CupyRig()
    kind = rig.cupy.cuda.memory.OutOfMemoryError
    for _ in range(1000):
        try:
            rig.memory(HUGE)
        except kind as error:
            assert str(error).startswith(f"cannot allocate {HUGE} bytes"), error
            assert isinstance(pickle.loads(pickle.dumps(error)), kind)
        else:
            raise AssertionError("no error")
    assert rig.memory(1000).ptr != 0
    try:
        rig.memory(1000, 5)
    except millpond.NotFoundError as error:
        assert "cuda:5" in str(error)
    else:
        raise AssertionError("no error")


def cupy_hooks():
    rig = CupyRig()
    calls = []

    class Hook(rig.cupy.cuda.MemoryHook):
        name = "Recorder"

        def malloc_preprocess(self, **given):
            calls.append(("before", given))

        def malloc_postprocess(self, **given):
            calls.append(("after", given))

        def free_preprocess(self, **given):
            calls.append(("free", given))

    with Hook():
        memory = rig.memory(1000)
        address = memory.ptr
        del memory
    rig.memory(1000)
    block = {"device_id": 0, "mem_size": 1024}
    lent = {**block, "mem_ptr": address, "pmem_id": address}
    assert calls == [("before", {**block, "size": 1000}), ("after", {**lent, "size": 1000}), ("free", lent)]

    class Broken(rig.cupy.cuda.MemoryHook):
        def malloc_postprocess(self, **given):
            raise KeyError("mine")

    with Broken():
        try:
            rig.memory(1000)
        except KeyError as error:
            assert error.args == ("mine",)
        else:
            raise AssertionError("no error")
    assert rig.pool.stats()["in_use"] == 0


def cupy_install():
    """Allocators are put in place and taken away again; nothing of it needs a GPU."""
    import cupy
    import millpond.cupy

    before = cupy.cuda.get_allocator()
    millpond.cupy.install()
    millpond.cupy.install()
    assert millpond.cupy.is_installed() and "CFunctionAllocator" in repr(cupy.cuda.get_allocator())
    millpond.cupy.uninstall()
    assert not millpond.cupy.is_installed() and cupy.cuda.get_allocator() == before
    with cupy.cuda.using_allocator(millpond.cupy.allocator()):
        try:
            millpond.cupy.install()
        except ValueError:
            pass
        else:
            raise AssertionError("CuPy refuses this")
    assert not millpond.cupy.is_installed()
    millpond.cupy.install(beside=True, pinned=False)
    assert "MemoryPool" in repr(cupy.cuda.get_allocator())
    millpond.cupy.uninstall()


def cupy_streams():
    """A stream is destroyed when its work has ended and the pool knows."""
    from millpond._cupy_streams import Streams

    log, busy = [], {48}

    class Stream:
        def __init__(self, ptr, foreign=None):
            self.ptr, self.device_id, self._foreign_stream_ref = ptr, 0, foreign

        def __del__(self):
            log.append(("by CuPy", self.ptr))

    runtime = SimpleNamespace(streamQuery=lambda ptr: 600 if ptr in busy else 0,
                              streamDestroy=lambda ptr: log.append(("destroyed", ptr)))
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Stream=Stream),
                           _util=SimpleNamespace(is_shutting_down=lambda: False))
    pool = SimpleNamespace(stream_gone=lambda ptr: log.append(("gone", ptr)))
    streams = Streams(cupy, lambda device: pool)
    streams.watch()
    for ptr, foreign in ((32, None), (0, None), (2, None), (64, "torch's")):
        Stream(ptr, foreign)
    gc.collect()
    assert log == [("gone", 32), ("destroyed", 32), ("by CuPy", 0), ("by CuPy", 2), ("by CuPy", 64)], log
    log.clear()
    Stream(48)
    gc.collect()
    assert log == [] and streams.destroy_idle() == 1
    busy.clear()
    assert streams.destroy_idle() == 0 and log == [("gone", 48), ("destroyed", 48)]
