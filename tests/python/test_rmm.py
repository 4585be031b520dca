# SPDX-License-Identifier: Apache-2.0
"""millpond.rmm: with RMM itself where it is installed, which needs no GPU for that, and with a stand-in."""

import gc
import importlib
import subprocess
import sys
import types

import millpond
import pytest
from core_kit import make_stream

MIB = 1 << 20


class Stream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


class CallbackMemoryResource:
    """Calls back as RMM does."""

    def __init__(self, allocate_func, deallocate_func):
        self._allocate, self._deallocate = allocate_func, deallocate_func

    def allocate(self, size, stream=None):
        try:
            return self._allocate(size, stream or Stream(0))
        except MemoryError as error:
            raise MemoryError(f"std::bad_alloc: out_of_memory: {error}") from None

    def deallocate(self, address, size, stream=None):
        self._deallocate(address, size, stream or Stream(0))


def stand_in(monkeypatch, stream=Stream):
    """RMM's modules, as far as millpond.rmm uses them; returns the resources that are set."""
    found = {}
    rmm, mr, inner = types.ModuleType("rmm"), types.ModuleType("rmm.mr"), types.ModuleType("rmm.pylibrmm.stream")
    rmm.__version__, rmm.mr, inner.Stream = "25.10.00", mr, stream
    mr.CallbackMemoryResource, mr.set_per_device_resource = CallbackMemoryResource, found.__setitem__
    package = types.ModuleType("rmm.pylibrmm")
    for module in (rmm, mr, package, inner):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def load(monkeypatch):
    monkeypatch.delitem(sys.modules, "millpond.rmm", raising=False)
    return importlib.import_module("millpond.rmm")


@pytest.fixture(params=["stand-in", "real"])
def kind(request, monkeypatch):
    """The module over one of the two, and what makes a stream of a handle."""
    if request.param == "stand-in":
        stand_in(monkeypatch)
        make = Stream
    else:
        make = pytest.importorskip("rmm", reason="RMM is not installed").pylibrmm.stream.Stream
    yield load(monkeypatch), make
    sys.modules.pop("millpond.rmm", None)


def lent(pool, address):
    try:
        return pool.find(address)
    except LookupError:
        return None


def test_blocks_are_of_their_stream(kind, pool):
    module, make = kind
    stream = make_stream(pool)
    given = make(stream) if make is not Stream else Stream(stream.handle)
    resource = module.resource(device=pool.device)
    first = resource.allocate(1000, given)
    block = lent(pool, first)
    assert (block["client"], block["requested"], block["stream"]) == ("rmm", 1000, stream.handle) and first % 256 == 0
    resource.deallocate(first, 1000, given)
    assert lent(pool, first) is None and resource.allocate(1000, given) == first  # at once, on the same stream
    resource.deallocate(first, 1000, given)
    second = resource.allocate(1000)
    assert lent(pool, second)["stream"] == 0
    resource.deallocate(second, 1000, given)  # RMM's caller has made this stream wait
    assert lent(pool, second) is None
    pool.stream_gone(stream)
    stream.destroy()


def test_the_pool_lives_with_the_resource(kind):
    module, _ = kind
    mine = millpond.Pool("host:0", client="mine")
    resource = module.resource(mine)
    address = resource.allocate(MIB)
    assert lent(mine, address)["client"] == "mine"
    resource.deallocate(address, MIB)
    assert lent(mine, address) is None


def test_exhaustion_is_a_memory_error(kind, pool):
    module, _ = kind
    resource = module.resource(device=pool.device)
    with pytest.raises(MemoryError, match="out_of_memory: cannot allocate 1152921504606846976 bytes of device memory"):
        resource.allocate(1 << 60)
    address = resource.allocate(100)
    resource.deallocate(address, 100)
    assert lent(pool, address) is None


def test_a_wrong_free_is_a_warning(kind, pool):
    module, _ = kind
    resource = module.resource(device=pool.device)
    with pytest.warns(RuntimeWarning, match=r"RMM frees 0x1230 \(5 bytes\): "):
        resource.deallocate(0x1230, 5)


def test_buffers_of_rmm(monkeypatch, pool):
    rmm = pytest.importorskip("rmm", reason="RMM is not installed")
    adaptor = rmm.mr.StatisticsResourceAdaptor(load(monkeypatch).resource(device=pool.device))
    address = adaptor.allocate(MIB)
    assert lent(pool, address)["requested"] == MIB and adaptor.allocation_counts.current_bytes == MIB
    adaptor.deallocate(address, MIB)
    del adaptor
    gc.collect()
    assert lent(pool, address) is None


class Recorder:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))


def test_the_default_stream_of_a_thread_is_not_that_of_another(monkeypatch):
    stand_in(monkeypatch)
    pool = Recorder()
    load(monkeypatch).resource(pool).deallocate(0x1000, 100, Stream(2))
    assert pool.calls == [("record_use", 0x1000, 2), ("free_address", 0x1000)]


def test_install_sets_the_gpu_s_resource(monkeypatch):
    found = stand_in(monkeypatch)
    module, opened = load(monkeypatch), []
    monkeypatch.setattr(module, "Pool", lambda device, **more: opened.append((device, more)) or Recorder())
    made = module.install(3, options={"arena.max_mem": "1G"})
    assert found == {3: made}
    assert opened == [("cuda:3", {"client": "rmm", "options": {"arena.max_mem": "1G"}})]


def test_an_old_rmm_is_refused(monkeypatch):
    stand_in(monkeypatch, stream=object)
    with pytest.raises(millpond.UnsupportedError, match="RMM 25.10.00 does not say which stream"):
        load(monkeypatch).resource(device="host:0")


def test_without_rmm():
    code = ("import sys\nsys.modules['rmm'] = None\ntry: import millpond.rmm\n"
            "except ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
                          env={"PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.startswith("millpond.rmm needs RMM, which cannot be imported (")
    assert done.stdout.endswith("pip install rmm-cu13, or rmm-cu12\n")
