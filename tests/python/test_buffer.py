# SPDX-License-Identifier: Apache-2.0
"""millpond.Buffer: its life, and what others in the process get of its memory."""

import array
import copy
import ctypes
import gc
import pickle
import sys
import weakref
import xml.etree.ElementTree as ET

import millpond
import pytest
from core_kit import make_stream

# ---- as an object ----


def test_properties(pool):
    block = pool.alloc(5000, 0)
    assert block.size == len(block) == 5000
    assert block.address == int(block) == block.__index__() == pool.find(block)["address"]
    assert block.stream == 0
    assert block.pool is pool
    assert hex(block.address) in repr(block).lower()
    assert pool.device in repr(block)
    assert bool(block)
    assert bool(pool.alloc(0))
    for name in ("address", "size", "stream", "pool", "new"):
        with pytest.raises(AttributeError):
            setattr(block, name, 1)


def test_it_cannot_be_made_or_copied(pool):
    block = pool.alloc(100)
    with pytest.raises(TypeError):
        millpond.Buffer()
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(block)
    with pytest.raises(TypeError):
        type("Sub", (millpond.Buffer,), {})


def test_it_goes_with_the_last_reference(pool):
    before = pool.stats()["in_use"]
    block = pool.alloc(5000)
    again = block
    del block
    assert pool.stats()["in_use"] > before
    gone = []
    watch = weakref.ref(again, lambda _: gone.append(pool.stats()["in_use"]))
    del again
    assert watch() is None
    assert gone == [before + 5120]  # a weak reference hears of it before the block is free
    assert pool.stats()["in_use"] == before


def test_freed(pool):
    block = pool.alloc(5000, 0)
    block.free()
    assert pool.stats()["in_use"] == 0
    block.free()
    block.free(None)
    assert "freed" in repr(block)
    assert (block.size, block.stream, block.pool) == (5000, 0, pool)
    for use in (lambda: block.address, lambda: int(block), lambda: hex(block), lambda: block.record_use(0),
                block.__dlpack__, block.__enter__, lambda: pool.find(block)):
        with pytest.raises(millpond.InvalidArgumentError, match="the buffer is freed"):
            use()
    with pytest.raises(BufferError):
        memoryview(block)
    if not pool.is_emulated:
        with pytest.raises(millpond.InvalidArgumentError, match="the buffer is freed"):
            _ = block.__cuda_array_interface__


def test_free_on_another_stream(pool):
    stream = make_stream(pool)
    for how in (stream, stream.handle, None, 0):
        block = pool.alloc(5000, 0)
        block.free(how)
        block = pool.alloc(5000, 0)
        block.free(stream=how)
    with pytest.raises(TypeError):
        pool.alloc(1).free("x")
    with pytest.raises(TypeError, match="'steam'"):
        pool.alloc(1).free(steam=0)
    pool.stream_gone(stream)
    stream.destroy()


def test_with(pool):
    with pool.alloc(5000) as block:
        assert pool.stats()["in_use"] > 0
    assert pool.stats()["in_use"] == 0
    with pytest.raises(ZeroDivisionError), pool.alloc(5000) as block:
        raise ZeroDivisionError
    assert pool.stats()["in_use"] == 0
    with pool.alloc(5000) as block:
        block.free()


def test_freed_by_hand_is_reported(pool, unraisable):
    """Somebody frees the address of a Buffer: a mistake that a destructor cannot raise."""
    block = pool.alloc(5000)
    pool.free_address(block.address)
    del block
    assert len(unraisable) == 1
    assert isinstance(unraisable[0][0], millpond.InvalidArgumentError)
    assert unraisable[0][1] is millpond.Buffer
    block = pool.alloc(5000)
    pool.free_address(block.address)
    with pytest.raises(millpond.InvalidArgumentError, match="freed already"):
        block.free()
    del block
    assert len(unraisable) == 1  # it was told once


def test_it_leaves_an_exception_alone(pool):
    def fail():
        block = pool.alloc(5000)
        pool.free_address(block.address)
        raise KeyError(id(block))

    reported = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda report: reported.append(report.exc_type)
    try:
        with pytest.raises(KeyError) as caught:
            fail()
        caught.traceback and gc.collect()
        del caught
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert reported == [millpond.InvalidArgumentError]


def test_in_a_cycle(pool):
    class Node:
        pass

    node = Node()
    node.me, node.block = node, pool.alloc(5000)
    del node
    assert pool.stats()["in_use"] > 0
    gc.collect()
    assert pool.stats()["in_use"] == 0


# ---- the buffer protocol ----


def test_memoryview(host):
    block = host.alloc(300)
    view = memoryview(block)
    assert (view.format, view.itemsize, view.shape, view.strides, view.readonly) == ("B", 1, (300,), (1,), False)
    assert view.contiguous
    view[:3] = b"abc"
    assert bytes(block)[:3] == b"abc"
    assert ctypes.string_at(block.address, 3) == b"abc"
    with pytest.raises(BufferError, match="1 views"):
        block.free()
    with pytest.raises(BufferError, match="1 views"), block:
        pass
    view.release()
    block.free()
    assert host.stats()["in_use"] == 0
    with pytest.raises(BufferError, match="freed"):
        bytes(block)


def test_a_memoryview_keeps_it(host):
    view = memoryview(host.alloc(5000))
    half = view[2500:]
    del view
    half[0] = 7
    assert host.stats()["in_use"] > 0
    del half
    assert host.stats()["in_use"] == 0


def test_bytes_of_a_gpu(gpu):
    block = gpu.alloc(100)
    for way in (memoryview, bytes):
        with pytest.raises(BufferError, match="copy it"):
            way(block)


def test_struct_and_numpy(host):
    numpy = pytest.importorskip("numpy")
    block = host.alloc(4096)
    array = numpy.frombuffer(block, dtype=numpy.float32)
    array[:] = 2.5
    assert numpy.asarray(block).view(numpy.float32).sum() == 2560
    del array
    gc.collect()
    block.free()


# ---- __cuda_array_interface__ ----


def test_no_interface_for_the_host(host):
    block = host.alloc(100)
    assert not hasattr(block, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the host's"):
        _ = block.__cuda_array_interface__


@pytest.mark.parametrize(("given", "stream"), [(None, None), (0, 1), (1, 1), (2, 2)])
def test_cuda_array_interface(gpu, given, stream):
    block = gpu.alloc(5000, given)
    assert block.__cuda_array_interface__ == {
        "shape": (5000,), "typestr": "|u1", "data": (block.address, False), "strides": None, "stream": stream,
        "version": 3}
    assert gpu.alloc(0, given).__cuda_array_interface__["data"] == (0, False)


def test_cuda_array_interface_of_a_stream(gpu):
    stream = make_stream(gpu)
    block = gpu.alloc(5000, stream)
    assert block.__cuda_array_interface__["stream"] == stream.handle
    del block
    gpu.stream_gone(stream)
    stream.destroy()


# ---- to and from the host ----


def test_copies_to_and_from_the_host(pool):
    block = pool.alloc(1000, 0)
    assert block.nbytes == block.size == 1000
    text = bytes(range(250)) * 4
    assert block.copy_from_host(text) is None
    copied = block.copy_to_host()
    assert type(copied) is bytearray and copied == text
    target = array.array("i", [0] * 100)
    assert block.copy_to_host(target) is target and target.tobytes() == text[:400]  # as much as it has room for
    block.copy_from_host(memoryview(b"abc"), stream=None)
    assert block.copy_to_host(bytearray(5), stream=0) == b"abc" + text[3:5]
    empty = pool.alloc(0)
    empty.copy_from_host(b"")
    assert empty.copy_to_host() == b""


def test_copies_that_cannot_be(pool):
    block = pool.alloc(4, 0)
    block.copy_from_host(b"1234")
    with pytest.raises(millpond.InvalidArgumentError, match="has 5 bytes, and the buffer 4"):
        block.copy_from_host(b"12345")
    with pytest.raises(millpond.InvalidArgumentError, match="has 5 bytes, and the buffer 4"):
        block.copy_to_host(bytearray(5))
    with pytest.raises(BufferError):
        block.copy_to_host(b"not writable")
    with pytest.raises(BufferError):
        block.copy_from_host(memoryview(b"12345678")[::2])  # gaps
    with pytest.raises(TypeError):
        block.copy_from_host(4)
    with pytest.raises(TypeError):
        block.copy_from_host()
    assert block.copy_to_host() == b"1234"
    block.free()
    for call in (block.copy_to_host, lambda: block.copy_from_host(b"1")):
        with pytest.raises(millpond.InvalidArgumentError, match="freed"):
            call()


def test_a_copy_waits_for_the_stream(pool):
    """In adversarial mode, what is queued may run as late as it can."""
    stream = make_stream(pool)
    block = pool.alloc(1 << 16, stream)
    stream.fill(block.address, 7, block.size)
    assert block.copy_to_host() == b"\7" * block.size
    stream.fill(block.address, 8, block.size)
    block.copy_from_host(b"9")
    assert block.copy_to_host(bytearray(2)) == b"9\x08"
    del block
    pool.stream_gone(stream)
    stream.destroy()


def test_a_pool_in_a_notebook(pool):
    block = pool.alloc(5000)
    page = pool._repr_html_()
    assert page.startswith("<table>") and pool.device in page and "<td>test</td>" in page
    del block


def test_a_buffer_in_a_notebook(pool):
    named = millpond.Pool(client="<b>&\"", memory="device")
    block = named.alloc(5000, 0)
    page = block._repr_html_()
    root = ET.fromstring(page)  # well formed, so that a name is text
    cells = [cell.text for cell in root.iter("td")]
    assert cells == ["5,000", hex(block.address), "0x0", "<b>&\"", f"device memory of {pool.device}"]
    assert [cell.text for cell in ET.fromstring(pool.alloc(1)._repr_html_()).iter("td")][2] == "none"
    block.free()
    assert ET.fromstring(block._repr_html_()).findtext("caption") == repr(block)
    named.close()
