# SPDX-License-Identifier: Apache-2.0
"""A Pool's figures, its page of text, its trace, and handles for other processes."""

import os
import pickle
import re
from pathlib import Path

import millpond
import pytest
from core_kit import make_stream, run_python

HEADER = Path(millpond.get_include()) / "millpond/millpond.h"
MIB = 1 << 20

def fields_of(struct):
    """The names of the fields of a struct of the header, in their order."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.S).group(1)
    return re.findall(r"(\w+)(?:\[\d+\])?;", body)


# ---- figures ----


def test_stats(pool):
    stats = pool.stats()
    assert sorted(stats) == sorted(fields_of("mp_pool_stats"))
    assert all(type(value) is int for key, value in stats.items() if key != "limit")
    block = pool.alloc(3 * MIB)
    assert pool.stats()["in_use_max"] >= 3 * MIB
    assert pool.stats()["alloc_size_max"] >= 3 * MIB
    del block
    pool.reset_peaks()
    assert pool.stats()["in_use_max"] == pool.stats()["in_use"]
    assert pool.stats()["alloc_size_max"] == 0


def test_shares(pool):
    block = pool.alloc(5000, 0)
    none = pool.alloc(300)
    names = fields_of("mp_share")
    for share in (*pool.clients(), *pool.streams()):
        assert sorted(share) == sorted(names)
    mine = next(share for share in pool.clients() if share["name"] == "test")
    assert (mine["blocks"], mine["requested"]) == (2, 5300)
    by_stream = {share["stream"]: share for share in pool.streams()}
    assert by_stream[0]["requested"] == 5000
    assert by_stream[None]["requested"] == 300
    del block, none


def test_many_streams_are_all_listed(pool):
    streams = [make_stream(pool) for _ in range(70)]
    blocks = [pool.alloc(100, stream) for stream in streams]
    shares = {share["stream"]: share["blocks"] for share in pool.streams()}
    assert all(shares[stream.handle] == 1 for stream in streams)
    blocks.clear()
    for stream in streams:
        pool.stream_gone(stream)
        stream.destroy()


def test_find(pool):
    block = pool.alloc(5000, 0)
    found = pool.find(block.address + 4999)
    assert found["address"] == block.address
    assert found["client"] == "test"
    assert found["stream"] == 0
    assert found["region"] <= block.address < found["region"] + found["region_size"]
    assert pool.find(block) == found  # a Buffer is its address
    address = block.address
    del block
    with pytest.raises(millpond.NotFoundError):
        pool.find(address)


def test_memory_info_and_shrink(pool):
    free, total = pool.memory_info()
    assert 0 < free <= total
    pool.free_address(pool.alloc_address(64 * MIB))
    assert pool.stats()["total"] >= 64 * MIB
    released = pool.shrink()
    assert released >= 64 * MIB
    assert pool.stats()["total"] == 0
    assert pool.shrink() == 0


def test_dump(pool):
    block = pool.alloc(5000)
    text = pool.dump()
    assert "client test" in text
    assert pool.device_name in text
    del block


def test_limit():
    before = millpond.get_limit()
    try:
        millpond.set_limit(5 * MIB)
        assert millpond.get_limit() == 5 * MIB
        with millpond.Pool(client="test") as pool, pytest.raises(millpond.OutOfMemoryError, match="MILLPOND_LIMIT"):
            pool.alloc(64 * MIB)
        with pytest.raises(millpond.InvalidArgumentError, match="a limit is -1"):
            millpond.set_limit(-1)
        with pytest.raises(TypeError):
            millpond.set_limit("1G")
    finally:
        millpond.set_limit(before)


# ---- trace ----


def test_trace(pool, tmp_path):
    pool.trace(1000)
    pool.free_address(pool.alloc_address(5000))
    pool.write_trace(tmp_path / "a.html")
    pool.write_trace(str(tmp_path / "a.pickle"))
    pool.write_trace(os.fsencode(tmp_path / "a.csv"))
    pool.write_trace(tmp_path / "b.txt", "html")
    pool.write_trace(path=tmp_path / "c.txt", format="rmm")
    assert (tmp_path / "a.html").read_text(encoding="utf-8").lower().startswith("<!doctype html")
    assert (tmp_path / "b.txt").read_bytes()[:15] == (tmp_path / "a.html").read_bytes()[:15]
    assert {"segments", "device_traces"} <= set(pickle.loads((tmp_path / "a.pickle").read_bytes()))
    assert (tmp_path / "a.csv").read_text().startswith("Thread,Time,Action")
    assert (tmp_path / "c.txt").read_text() == (tmp_path / "a.csv").read_text()
    pool.trace(0)


@pytest.mark.parametrize(("arguments", "error", "words"), [
    (("a.txt",), ValueError, "neither in .html"),
    ((".html",), ValueError, "neither in .html"),
    (("a.html", "svg"), ValueError, "'svg'"),
    (("a.html", 1), ValueError, "format is 1"),
    (("no/such/folder/a.html",), LookupError, "no/such/folder"),
    ((7,), TypeError, "PathLike"),
    (("a\0.html",), ValueError, "null"),
    ((), TypeError, "lacks the argument path"),
])
def test_trace_errors(pool, tmp_path, monkeypatch, arguments, error, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        pool.write_trace(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_ipc():
    run_python("""
        import millpond
        pool = millpond.Pool(options={"ipc": True})
        first, block = pool.alloc(5000), pool.alloc(5000)
        handle, offset = pool.ipc_export(block)
        assert type(handle) is bytes and len(handle) == 64 and any(handle)
        assert offset == block.address - pool.find(block)["region"]
        del first, block
        pool.close()
        pool = millpond.Pool(options={"expandable": True})
        block = pool.alloc(5000)
        try:
            pool.ipc_export(block)
        except millpond.UnsupportedError as error:
            assert "arena.ipc=1" in str(error), error
        else:
            raise AssertionError
    """, MILLPOND_HOST_IPC="1")
