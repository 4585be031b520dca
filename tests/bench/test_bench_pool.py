# SPDX-License-Identifier: Apache-2.0
"""The pool's benchmark: every case runs and its figures arrive; a wrong allocator is refused. No time is judged."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/pool")]

import bench_pool  # noqa: E402
import python_loops  # noqa: E402
import traces  # noqa: E402

LOG = """Thread,Time,Action,Pointer,Size,Stream
77,10:00:00.000001,allocate,0xa00,1000,0x5
78,10:00:00.000002,allocate,0xb00,70000,0x6
77,10:00:00.000003,free,0xa00,1000,0x5
77,10:00:00.000004,allocate failure,(nil),99,0x5
78,10:00:00.000005,allocate,0xa00,3000,0x6
78,10:00:00.000006,free,0xc00,8,0x6
78,10:00:00.000007,free,0xb00,70000,0x6
"""


@pytest.fixture(scope="module")
def build():
    folder = Path(os.environ.get("MILLPOND_EP_LIBRARY", ROOT / "build/dev/lib/x")).resolve().parents[1]
    if not (folder / "bench/pool/pool_bench").exists():
        pytest.skip("pool_bench is not built")
    return folder


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(LOG.encode()))
    return path


def environment(**extra):
    return dict(os.environ, MILLPOND_HOST_MEMORY="2G", **extra)


def pool_bench(build, *options, **extra):
    """(exit status, rows, what it said) of one run on the emulated device."""
    command = [build / "bench/pool/pool_bench", "--stage", "host", "--quick", *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment(**extra))
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def plugin(build, name="millpond"):
    return "--library", build / f"bench/pool/libbench_{name}.so"


def test_the_whole_benchmark(build, log, tmp_path):
    out = tmp_path / "pool.json"
    command = [sys.executable, ROOT / "bench/bench_pool.py", "--build", build, "--stage", "host", "--quick",
               "--repeats", "2", "--traces", log.parent, "--out", out, "--peer",
               f"twin@pair={build}/bench/pool/libbench_millpond.so:arena.expandable=1"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert result["emulated"] and result["repeats"] == 2
    assert all(entry["failures"] == [] for entry in result["backends"].values())
    seen = {(row["case"], name) for row in result["rows"] for name in row["values"]}
    assert {case for case, name in seen if name == "millpond"} == set(bench_pool.C_CASES)
    assert {case for case, name in seen if name == "ctypes+millpond"} == {"python-pair", "python-live", "python-random"}
    assert {case for case, name in seen if name == "twin"} == {"pair"}
    for row in result["rows"]:
        for median, least, most in row["values"].values():
            assert least <= median <= most
    assert any(row["ratio"].get("twin") for row in result["rows"])
    shown = subprocess.run([sys.executable, str(ROOT / "bench/bench_pool.py"), "--table", str(out)],
                           capture_output=True, text=True)
    assert shown.returncode == 0 and shown.stdout in done.stdout


@pytest.mark.parametrize("mode", ["threaded", "adversarial:1", "adversarial:2"])
def test_a_wrong_allocator_is_not_timed(build, mode):
    status, rows, said = pool_bench(build, *plugin(build, "reckless"), "--cases", "handover", MILLPOND_HOST=mode)
    assert status == 2 and "lent too early" in said
    assert rows[-1] == {"begin": "handover"}


@pytest.mark.parametrize("mode", ["threaded", "adversarial:1", "adversarial:2"])
@pytest.mark.parametrize("init", ["", "arena.expandable=1"])
def test_ours_passes_the_check(build, mode, init):
    status, rows, said = pool_bench(build, *plugin(build), "--init", init, "--cases", "handover", MILLPOND_HOST=mode)
    assert status == 0, said
    assert rows[-1] == {"done": True}


def test_a_trace_is_replayed_as_recorded(build, log):
    status, rows, said = pool_bench(build, "--builtin", "floor", "--cases", "replay", "--trace", log)
    assert status == 0, said
    row = next(row for row in rows if row.get("case") == "replay")
    assert (row["operations"], row["streams"], row["threads"]) == (5, 2, 2)
    assert row["live_peak"] == 73000 and row["blocks_peak"] == 2


@pytest.mark.parametrize("options, part", [
    ([], "name an allocator"),
    (["--builtin", "floor", "--cases", "pair,nonsense"], "unknown"),
    (["--builtin", "nothing"], "no backend 'nothing'"),
    (["--library", "/nowhere.so"], "/nowhere.so"),
    (["--builtin", "floor", "--limit-ms", "soon"], "takes a number"),
    (["--builtin", "floor", "--cases", "replay", "--trace", "/nowhere.csv"], "cannot be read"),
])
def test_what_cannot_be_done_is_said(build, options, part):
    status, _, said = pool_bench(build, *options)
    assert status == 2 and part in said


def test_random_items_are_as_rmm_draws_them():
    items = python_loops.random_items(1000, 1 << 20, 64 << 20)
    assert sum(item.allocate for item in items) <= 1000 and len(items) <= 2000
    assert traces.live_peak(items) < 64 << 20
    live = {}
    for item in items:
        if item.allocate:
            assert item.slot not in live and 1 <= item.size <= 1 << 20
            live[item.slot] = item.size
        else:
            assert live.pop(item.slot) == item.size


def test_a_trace_survives_its_file(tmp_path):
    events = [traces.Event(5.0, "allocate", 0x700, 10, "a", 1), traces.Event(5.1, "allocate", 0x900, 20, "b", 2),
              traces.Event(5.2, "free", 0x700, 0, "b", 1), traces.Event(5.3, "free", 0x123, 5, "a", 1),
              traces.Event(65.25, "allocate", 0x500, 0, "a", 2)]
    path = tmp_path / "trace.csv.gz"
    assert traces.write(path, events) == len(events)
    assert traces.read(path) == [(True, 0, 10, 0, 0), (True, 1, 20, 1, 1), (False, 0, 10, 1, 0), (True, 0, 1, 0, 1)]
    assert "00:01:00.250000,allocate,0x1,1,1" in gzip.decompress(path.read_bytes()).decode()
    assert traces.write(path, events * 2000, 300) < len(events) * 2000 and path.stat().st_size <= 300


def test_a_snapshot_becomes_a_trace():
    def entry(action, addr, size, stream=0):
        return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1_000_000 + addr}

    snapshot = {"segments": [], "device_traces": [
        [entry("alloc", 1, 1)],
        [entry("segment_alloc", 4096, 1 << 21), entry("alloc", 4096, 300), entry("alloc", 8192, 5000, 7),
         entry("free_requested", 4096, 300), entry("free_completed", 4096, 300), entry("free_requested", 99, 1),
         entry("snapshot", 0, 0), entry("alloc", 4096, 200)]]}
    items = [item for _, item in traces.operations(traces.from_torch(snapshot))]
    assert items == [(True, 0, 300, 0, 0), (True, 1, 5000, 0, 1), (False, 0, 300, 0, 0), (True, 0, 200, 0, 0)]


@pytest.mark.parametrize("path", sorted((ROOT / "bench/pool/traces").glob("*.csv.gz")), ids=lambda path: path.name)
def test_the_traces_kept_here_are_sound(path):
    items = traces.read(path)
    assert len(items) > 500 and path.stat().st_size <= 200 * 1024
    assert traces.live_peak(items) > 1 << 20


def test_better_and_ratio():
    ours, near, fast = (bench_pool.Figures(*three) for three in ((10, 8, 12), (9, 7, 11), (5, 4, 6)))
    assert [bench_pool.better("p50_ns", peer, ours) for peer in (ours, near, fast)] == ["", "~", "!"]
    assert [bench_pool.better("mops", peer, ours) for peer in (near, fast)] == ["", ""]
    assert bench_pool.better("mops", ours, fast) == "!"
    assert bench_pool.ratio("p50_ns", fast, ours) == 0.5 and bench_pool.ratio("mops", fast, ours) == 2
