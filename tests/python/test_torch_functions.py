# SPDX-License-Identifier: Apache-2.0
"""The C functions that PyTorch calls, on the emulated device and without PyTorch."""

import ctypes

import millpond
import pytest
import torch_kit
from core_kit import HostStream, run_python
from millpond import _native

DEVICE = 8  # by this number; nobody else's
HUGE = 1 << 50
CASES = ("out_of_memory", "other_errors", "plainer", "threads", "graph_memory", "graph_names", "graph_side_stream",
         "graph_failures", "order_of_streams")


@pytest.fixture
def pool():
    _native.open_device("millpond_torch_open", DEVICE, "host:0")
    pool = millpond.Pool("host:0", client="test")
    before = pool.stats()["in_use"]
    yield pool
    assert pool.stats()["in_use"] == before


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return torch_kit.build(tmp_path_factory.mktemp("throwing"))


@pytest.mark.parametrize("case", CASES)
def test_in_its_process(case, library):
    run_python(f"import sys, torch_function_cases as cases; cases.{case}(sys.argv[1])", str(library),
               quiet=case != "plainer", MILLPOND_DEVICE="host", MILLPOND_HOST="threaded")


def test_blocks(pool):
    address = torch_kit.alloc(1000, DEVICE, None)
    assert pool.find(address)["client"] == "torch"
    assert pool.find(address)["requested"] == 1000
    region = pool.find(address)
    size = ctypes.c_size_t()
    assert torch_kit.base(address + 100, ctypes.byref(size)) == region["region"]
    assert size.value == region["region_size"]
    assert torch_kit.base(address, None) == region["region"]
    ctypes.memset(address, 7, 1000)
    torch_kit.free(address, 12345, DEVICE, None)  # a size that PyTorch has got wrong
    with pytest.raises(millpond.NotFoundError):
        pool.find(address)


def test_nothing(pool):
    assert torch_kit.alloc(0, DEVICE, None) is None
    torch_kit.free(None, 0, DEVICE, None)
    assert torch_kit.base(12345, None) == 12345
    torch_kit.record_stream(12345, None)  # not the pool's


def test_null_without_pytorch(pool):
    failures = pool.stats()["failures"]
    assert torch_kit.alloc(HUGE, DEVICE, None) is None
    assert pool.stats()["failures"] == failures + 1


def test_empty_cache(pool):
    torch_kit.free(torch_kit.alloc(1 << 20, DEVICE, None), 0, DEVICE, None)
    before = pool.stats()["total"]
    torch_kit.empty_cache()
    assert pool.stats()["total"] < before


def test_fraction(pool):
    total = pool.memory_info()[1]
    try:
        torch_kit.fraction(0.25, DEVICE)
        assert millpond.get_limit() == pytest.approx(total * 0.25, abs=1)
        assert torch_kit.alloc(total // 2, DEVICE, None) is None
        torch_kit.fraction(0.0, DEVICE)
        assert millpond.get_limit() == 1
    finally:
        torch_kit.fraction(1.0, DEVICE)
    assert millpond.get_limit() == 0


def test_a_number_stands_for_one_device(pool):
    _native.open_device("millpond_torch_open", DEVICE, "host:0")
    with pytest.raises(millpond.UnsupportedError, match="device 8 is host:0 already"):
        _native.open_device("millpond_torch_open", DEVICE, "host:1")
    with pytest.raises(millpond.InvalidArgumentError, match="numbers go from 0 to 63"):
        _native.open_device("millpond_torch_open", 64, "host:0")
    with pytest.raises(millpond.NotFoundError):
        _native.open_device("millpond_torch_open", 9, "cuda:63")


def test_segments_run_no_hooks(pool):
    """PyTorch's lock is held then, and a hook of Python takes the interpreter's."""
    asked = []
    pool.add_hook(lambda size: asked.append(size))
    used = pool.stats()["total"]
    millpond.set_limit(used + (1 << 20))
    try:
        assert torch_kit.segment(64 << 20, DEVICE, None) is None
        assert asked == []
        assert torch_kit.alloc(64 << 20, DEVICE, None) is None
        assert asked == [64 << 20]
    finally:
        millpond.set_limit(0)


def test_segments(pool):
    address = torch_kit.segment(2 << 20, DEVICE, None)
    assert pool.find(address)["requested"] == 2 << 20
    torch_kit.segment_free(address, 2 << 20, DEVICE, None)


def test_a_segment_in_a_capture_follows_no_stream(pool):
    stream, graph = HostStream(), ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.handle)
    stream.check(HostStream.library.mp__host_capture_begin(stream.device, handle))
    address = torch_kit.segment(2 << 20, DEVICE, stream.handle)
    assert pool.find(address)["stream"] is None
    stream.check(HostStream.library.mp__host_capture_end(stream.device, handle, ctypes.byref(graph)))
    torch_kit.segment_free(address, 0, DEVICE, stream.handle)
    pool.stream_gone(stream)
    stream.destroy()
