# SPDX-License-Identifier: Apache-2.0
"""millpond.Pool: opening, allocating, streams and closing, on the device at hand."""

import millpond
import pytest
from core_kit import make_stream, run_python

MIB = 1 << 20

# ---- opening ----


def test_device(pool):
    kind, number = pool.device.split(":")
    assert (kind == "host") == pool.is_emulated
    assert int(number) == pool.ordinal
    assert pool.device_name
    assert pool.memory == "device"
    assert pool.client == "test"
    assert pool.device in repr(pool)
    assert "'test'" in repr(pool)
    with pytest.raises(AttributeError):
        pool.device = "cuda:1"
    same = millpond.Pool(pool.device)
    assert same.device == pool.device
    assert same.client == "python"


def test_pinned():
    with millpond.Pool(memory="pinned", client="test") as pool:
        assert pool.memory == "pinned"
        with pool.alloc(100) as block:
            memoryview(block)[:] = bytes(range(100))
            assert bytes(block) == bytes(range(100))
            assert block.stream is None
            assert not hasattr(block, "__cuda_array_interface__")


@pytest.mark.parametrize(("keywords", "error", "words"), [
    ({"device": "tpu"}, ValueError, "'tpu'"),
    ({"device": "host:99"}, LookupError, "host:99"),
    ({"device": 3}, TypeError, "str"),
    ({"memory": "managed"}, ValueError, "'managed'"),
    ({"client": ""}, ValueError, "1 to 31 characters"),
    ({"client": "x" * 32}, ValueError, "1 to 31 characters"),
    ({"options": {"expandible": 1}}, ValueError, "arena.expandable"),
    ({"options": {"max_mem": "much"}}, ValueError, "max_mem"),
    ({"options": {"max_mem": "1\x002"}}, ValueError, "zero character"),
    ({"options": {7: 1}}, ValueError, "7"),
    ({"options": 7}, TypeError, "mapping"),
    ({"options": {"expandable": True, "ipc": True}}, ValueError, "ipc"),
    ({"what": 1}, TypeError, "what"),
])
def test_open_errors(keywords, error, words):
    with pytest.raises(error, match=words):
        millpond.Pool(**keywords)


def test_open_by_position():
    with pytest.raises(TypeError):
        millpond.Pool("auto", "device")


def test_options():
    """A process of its own, so that no other user of the pool has decided."""
    run_python("""
        import millpond
        class Words(dict): pass
        pool = millpond.Pool(options=Words({"max_mem": 8 << 20, "arena.expandable": False, "stream_cache_bytes": "1M"}))
        assert pool.stats()["limit"] == 8 << 20, pool.stats()
        pool.close()
        pool = millpond.Pool(options={})
        assert pool.stats()["limit"] is None
    """)


def test_options_of_a_later_opener_give_a_warning(pool, caplog):
    other = millpond.Pool(options={"max_mem": "1G"})
    assert other.stats()["limit"] == pool.stats()["limit"]
    assert "max_mem" in caplog.text


def test_two_handles_share(pool):
    other = millpond.Pool(client="other")
    address = pool.alloc_address(5000)
    assert other.find(address)["client"] == "test"
    assert other.stats() == pool.stats()
    other.free_address(address)
    assert other.alloc_address(5000) == address
    blocks = {share["name"]: share["blocks"] for share in pool.clients()}  # of earlier tests' handles, too
    assert (blocks["test"], blocks["other"]) == (0, 1)
    pool.free_address(address)


# ---- allocating ----


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 5000, MIB, 3 * MIB + 1])
def test_alloc(pool, size):
    before = pool.stats()
    block = pool.alloc(size)
    assert block.size == size
    assert block.address % 256 == 0
    found = pool.find(block.address)
    assert found["address"] == block.address
    assert found["requested"] == max(size, 1)
    assert pool.stats()["in_use"] - before["in_use"] == found["size"] >= size
    del block
    assert pool.stats()["in_use"] == before["in_use"]
    assert pool.stats()["allocs"] == before["allocs"] + 1


class Number:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_sizes_are_whatever_counts(pool):
    assert pool.alloc(Number(100)).size == 100
    assert pool.alloc(size=100, stream=None).size == 100
    assert pool.alloc(True).size == 1
    address = pool.alloc_address(Number(100))
    pool.free_address(Number(address))


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda pool: pool.alloc(-1), ValueError, "size is -1"),
    (lambda pool: pool.alloc(1 << 64), ValueError, "2\\*\\*64"),
    (lambda pool: pool.alloc((1 << 64) - 1), MemoryError, "no device has that much"),
    (lambda pool: pool.alloc(1 << 60), MemoryError, "no device has that much"),
    (lambda pool: pool.alloc("1"), TypeError, "integer"),
    (lambda pool: pool.alloc(1.5), TypeError, "integer"),
    (lambda pool: pool.alloc(), TypeError, "lacks the argument size"),
    (lambda pool: pool.alloc(1, 2, 3), TypeError, "at most 2"),
    (lambda pool: pool.alloc(1, size=1), TypeError, "size twice"),
    (lambda pool: pool.alloc(1, queue=1), TypeError, "'queue'"),
    (lambda pool: pool.alloc_address(), TypeError, "1 or 2 arguments"),
    (lambda pool: pool.alloc_address(-1), ValueError, "size is -1"),
    (lambda pool: pool.alloc_address(1 << 60), MemoryError, "no device"),
    (lambda pool: pool.free_address(), TypeError, "1 or 2 arguments"),
    (lambda pool: pool.free_address(4096), ValueError, "0x1000"),
    (lambda pool: pool.free_address(4096, None), ValueError, "0x1000"),
    (lambda pool: pool.free_address("x"), TypeError, "integer"),
    (lambda pool: pool.free_address(-1), ValueError, "address is -1"),
    (lambda pool: pool.reserve(1 << 60), MemoryError, "no device"),
    (lambda pool: pool.reserve(-1), ValueError, "size is -1"),
    (lambda pool: pool.record_use(4096, 0), ValueError, "0x1000"),
    (lambda pool: pool.record_use(4096), TypeError, "2 arguments"),
    (lambda pool: pool.find(4096), LookupError, "0x1000"),
    (lambda pool: pool.find(None), TypeError, "integer"),
    (lambda pool: pool.ipc_export(4096), ValueError, "0x1000"),
    (lambda pool: pool.trace(-1), ValueError, "capacity is -1"),
    (lambda pool: pool.trace(1 << 31), ValueError, "events"),
])
def test_errors_of_calls(pool, call, error, words):
    before = pool.stats()["in_use"]
    with pytest.raises(error, match=words):
        call(pool)
    assert pool.stats()["in_use"] == before


def test_free_refuses_what_is_not_lent(pool):
    address = pool.alloc_address(5000)
    for wrong in (address + 256, address - 256, address + 1):
        with pytest.raises(millpond.InvalidArgumentError, match="not an allocated block"):
            pool.free_address(wrong)
    pool.free_address(address)
    with pytest.raises(millpond.InvalidArgumentError, match="freed already"):
        pool.free_address(address)
    pool.free_address(0)  # as free(NULL)


def test_reserve(pool):
    before = pool.stats()
    block = pool.reserve(5000)
    now = pool.stats()
    assert now["reserves"] == before["reserves"] + 1
    assert block.stream is None
    assert now["in_use"] > before["in_use"]
    del block
    assert pool.stats()["total"] == before["total"]


def test_out_of_memory():
    """The sentence names who holds what; the pool works afterwards."""
    run_python("""
        import millpond
        pool = millpond.Pool(client="me", options={"max_mem": "4M"})
        other = millpond.Pool(client="somebody else")
        held = other.alloc(2 << 20)
        before = pool.stats()
        for request in (pool.alloc, pool.alloc_address, pool.reserve):
            try:
                request(3 << 20)
            except millpond.OutOfMemoryError as error:
                assert "'me'" in str(error) and "somebody else 2097152" in str(error), error
                assert "arena.max_mem" in str(error), error
            else:
                raise AssertionError(request)
        now = pool.stats()
        assert now["in_use"] == before["in_use"] and now["failures"] == 3, now
        del held
        assert pool.alloc(3 << 20).size == 3 << 20
    """)


# ---- streams ----


class Speaks:
    def __init__(self, answer, version=0):
        self.answer = answer
        self.version = version

    def __cuda_stream__(self):
        return self.version, self.answer


class HasPair:
    __cuda_stream__ = (0, 2)


@pytest.mark.parametrize(("given", "handle"), [(None, None), (0, 0), (1, 1), (2, 2), (Number(2), 2), (Speaks(0), 0),
                                               (Speaks(2), 2), (HasPair(), 2)])
def test_streams(pool, given, handle):
    block = pool.alloc(100, given)
    assert block.stream == handle
    assert pool.find(block)["stream"] in (handle, 0 if handle == 1 else handle)
    block.free(given)
    pool.free_address(pool.alloc_address(100, given))
    pool.free_address(pool.alloc_address(100, given), given)


@pytest.mark.parametrize(("given", "error", "words"), [
    (-1, ValueError, "a stream is -1"),
    ((1 << 64) - 2, ValueError, "not a handle of a stream"),
    ("0", TypeError, "__cuda_stream__"),
    (1.0, TypeError, "__cuda_stream__"),
    (Speaks(0, version=1), ValueError, "version 1"),
    (Speaks("x"), TypeError, "integer"),
    (Speaks(None), TypeError, "integer"),
])
def test_what_is_no_stream(pool, given, error, words):
    with pytest.raises(error, match=words):
        pool.alloc(100, given)
    with pytest.raises(error, match=words):
        pool.stream_settled(given)
    address = pool.alloc_address(100)
    with pytest.raises(error, match=words):
        pool.free_address(address, given)
    with pytest.raises(error, match=words):
        pool.record_use(address, given)
    pool.free_address(address)


class Raises:
    def __cuda_stream__(self):
        raise ZeroDivisionError


class RaisesBefore:
    @property
    def __cuda_stream__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("stream", [Raises(), RaisesBefore()])
def test_an_exception_of_a_stream_is_passed_on(pool, stream):
    with pytest.raises(ZeroDivisionError):
        pool.alloc(100, stream)


def test_order_of_streams(pool):
    """Memory of one stream serves another once it is said to be safe, and not before."""
    one, two = make_stream(pool), make_stream(pool)
    address = pool.alloc_address(5000, one)
    pool.free_address(address)
    assert pool.alloc_address(5000, one) == address  # its own stream may have it at once
    pool.free_address(address)
    waits = pool.stats()["waits"]
    mark = pool.stream_mark(one)
    pool.stream_ordered(two, one, mark)
    pool.stream_ordered(consumer=two, producer=one, mark=mark)
    pool.stream_settled(one)
    assert pool.stats()["waits"] == waits
    block = pool.alloc(5000, one)
    block.record_use(two)
    pool.record_use(block.address, two)
    del block
    for stream in (one, two):
        pool.stream_gone(stream)
        stream.destroy()
    assert {share["stream"] for share in pool.streams() if share["blocks"]} == set()


def test_what_is_freed_after_its_stream_serves_all(pool):
    stream = make_stream(pool)
    address = pool.alloc_address(5000, stream)
    pool.stream_gone(stream)
    stream.destroy()
    assert pool.find(address)["stream"] is None
    pool.free_address(address)


def test_capture(pool):
    stream = make_stream(pool)
    capture = pool.capture_begin(stream)
    with pytest.raises(millpond.Error, match="in a capture already"):
        pool.capture_begin(stream)
    address = pool.alloc_address(5000, stream)
    pool.free_address(address)
    pool.capture_end(stream)
    with pytest.raises(millpond.InvalidArgumentError, match="not in a capture"):
        pool.capture_end(stream)
    outside = pool.alloc_address(5000, stream)
    assert outside != address  # the graph keeps its memory
    pool.free_address(outside)
    assert pool.capture_begin(stream, capture) is capture
    assert pool.alloc_address(5000, stream) == address  # and allocates it to a further graph of its own
    pool.free_address(address)
    pool.capture_end(stream)
    capture.release()
    capture.release()
    with pytest.raises(millpond.InvalidArgumentError, match="not\\s+released"):
        pool.capture_begin(stream, capture)
    pool.stream_gone(stream)
    stream.destroy()


def test_capture_errors(pool):
    with pytest.raises(millpond.InvalidArgumentError, match="only a stream"):
        pool.capture_begin(None)
    with pytest.raises(millpond.InvalidArgumentError, match="capture is 7"):
        pool.capture_begin(0, 7)
    other = millpond.Pool()
    stream = make_stream(pool)
    capture = other.capture_begin(stream)
    other.capture_end(stream)
    with pytest.raises(millpond.InvalidArgumentError, match="this Pool"):
        pool.capture_begin(stream, capture)
    with pytest.raises(TypeError):
        millpond.Capture()
    other.close()  # the capture keeps the handle until it goes
    del capture
    pool.stream_gone(stream)
    stream.destroy()


# ---- closing ----


CALLS = {
    "alloc": (1,), "alloc_address": (1,), "free_address": (4096,), "reserve": (1,), "record_use": (4096, 0),
    "find": (1,), "stream_settled": (0,), "stream_gone": (0,), "stream_mark": (0,), "stream_ordered": (0, 1, 1),
    "capture_begin": (0,), "capture_end": (0,), "shrink": (), "add_hook": (print,), "stats": (), "reset_peaks": (),
    "clients": (), "streams": (), "memory_info": (), "dump": (), "trace": (1,), "write_trace": ("a.html",),
    "ipc_export": (4096,), "ipc_open": (bytes(64), 0, 1), "enable_peer": (0,), "__enter__": (),
}  # fmt: skip


def test_closed():
    pool = millpond.Pool(client="test")
    assert not pool.closed
    pool.close()
    pool.close()
    assert pool.closed
    assert "closed" in repr(pool)
    untested = set(CALLS) ^ {name for name, value in vars(millpond.Pool).items()
                             if callable(value) and (not name.startswith("_") or name == "__enter__")}
    assert untested == {"close", "remove_hook"}
    for name, arguments in CALLS.items():
        with pytest.raises(millpond.InvalidArgumentError, match="the pool is closed"):
            getattr(pool, name)(*arguments)
    with pytest.raises(millpond.NotFoundError):
        pool.remove_hook(print)
    assert pool.client == "test"


def test_buffers_outlive_the_pool():
    """The memory goes with the last of them."""
    run_python("""
        import millpond
        pool = millpond.Pool()
        one, two = pool.alloc(5000), pool.alloc(5000, 0)
        pool.close()
        del pool
        other = millpond.Pool()
        assert other.stats()["in_use"] > 0  # it is the same memory
        assert other.find(one)["client"] == "python"
        assert one.pool.closed
        one.free()
        two.record_use(2)
        del one, two
        assert other.stats()["in_use"] == 0
    """)


def test_peers():
    run_python("""
        import millpond
        pool = millpond.Pool("host:0")
        pool.enable_peer(1)
        for wrong, error in ((2, millpond.InvalidArgumentError), (-1, ValueError), ("1", TypeError)):
            try:
                pool.enable_peer(wrong)
            except error:
                continue
            raise AssertionError(wrong)
        pool.close()
        try:
            pool.enable_peer(1)
        except millpond.InvalidArgumentError:
            print("closed")
    """, MILLPOND_HOST_DEVICES="2")


def test_with(pool):
    with millpond.Pool(client="other") as other:
        block = other.alloc(100)
    assert other.closed
    assert pool.stats()["in_use"] > 0
    del block
