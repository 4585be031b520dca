# SPDX-License-Identifier: Apache-2.0
"""The pool's benchmark: every case runs and its figures arrive; a wrong allocator is refused. No time is judged."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/pool")]

import bench_pool  # noqa: E402
import pool_repeats  # noqa: E402
import provider  # noqa: E402
import python_loops  # noqa: E402
import record_traces  # noqa: E402
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
    folder = provider.library_path().resolve().parents[1]
    assert (folder / "bench/pool/pool_bench").exists(), "the build has a library and no pool_bench"
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


def bench(build, out, *options):
    """bench_pool.py on the emulated device: how it ended, and its result."""
    command = [sys.executable, ROOT / "bench/bench_pool.py", "--build", build, "--stage", "host", "--quick",
               "--out", out, *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment())
    return done, json.loads(out.read_text()) if out.exists() else None


def test_the_whole_benchmark(build, log, tmp_path):
    out = tmp_path / "pool.json"
    done, result = bench(build, out, "--repeats", 2, "--traces", log.parent, "--peer",
                         f"twin@pair={build}/bench/pool/libbench_millpond.so:arena.expandable=1")
    assert done.returncode == 0, done.stdout + done.stderr
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


# ---- a measurement in several calls ----

ONE_CASE = ("--only", "millpond", "--cases", "pair", "--no-python")


def test_repeats_of_several_calls_are_one_result(build, tmp_path):
    kept, out = tmp_path / "kept.json", tmp_path / "pool.json"
    results = []
    for repeats, made in ((1, 1), (3, 2), (3, 0)):
        done, result = bench(build, out, *ONE_CASE, "--repeats", repeats, "--resume", kept)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("repeat ") == made and result["repeats"] == len(result["times"]) == repeats
        results.append(result)
    first, joined, again = results
    assert joined["rows"] == again["rows"] and joined["times"] == again["times"]
    assert joined["times"][:1] == first["times"]
    mine = bench_pool.Backend("millpond", [], ["pair"])
    for each in json.loads(kept.read_text())["repeats"]:
        mine.take(each["backends"]["millpond"])
    numbers, _ = bench_pool.figures(mine)
    alone = {(row["row"], row["metric"]): row["values"]["millpond"][0] for row in first["rows"]}
    for row in joined["rows"]:
        values = numbers[row["case"], row["row"]][row["metric"]]
        assert len(values) == 3 and values[0] == pytest.approx(alone[row["row"], row["metric"]], rel=1e-3)
        assert row["values"]["millpond"] == pytest.approx(list(bench_pool.summary(values)), rel=1e-3)


def test_another_measurement_is_not_resumed(build, tmp_path):
    kept, out = tmp_path / "kept.json", tmp_path / "pool.json"
    assert bench(build, out, *ONE_CASE, "--repeats", 1, "--resume", kept)[0].returncode == 0
    before = kept.read_bytes()
    done, _ = bench(build, out, *ONE_CASE, "--repeats", 2, "--resume", kept, "--limit-ms", 60)
    assert done.returncode != 0 and kept.read_bytes() == before
    assert re.fullmatch(r"bench_pool: .*kept.json cannot be resumed here: its command of millpond is '.*-ms 120.*', "
                        r"and here it is '.*-ms 60.*'; .*\n", done.stderr)
    known = json.loads(before)
    for word in ("device", "driver", "processor", "commit", "build", "environment", "Python"):
        there = {**known["about"], word: "another"}
        kept.write_text(json.dumps({**known, "about": there}))
        done, _ = bench(build, out, *ONE_CASE, "--repeats", 2, "--resume", kept)
        assert done.returncode != 0 and f"its {word} is 'another', and here it is " in done.stderr
        assert done.stderr.count("\n") == 1
    kept.write_text("[]")
    done, _ = bench(build, out, *ONE_CASE, "--resume", kept)
    assert done.returncode != 0 and "kept.json holds no repeats" in done.stderr


def test_a_case_that_has_failed_is_left_out_of_later_calls(tmp_path):
    about, path = {"device": "a"}, tmp_path / "kept" / "file.json"
    found = {"rows": [{"case": "pair", "row": "256 B", "p50_ns": 5}], "cases": ["pair"], "failures": ["live: no"],
             "versions": {"torch": "2"}}
    pool_repeats.Repeats(about, path).add("now", {"peer": found})
    backend = bench_pool.Backend("peer", [], ["pair", "live"])
    [kept] = pool_repeats.Repeats(about, path).all
    backend.take(kept["backends"]["peer"])
    assert (backend.cases, backend.failures, backend.runs) == (["pair"], ["live: no"], [found["rows"]])
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]


# ---- pool_bench and the loops in Python ----


@pytest.mark.parametrize("name", ["ctypes+millpond", "ctypes+millpond-expandable"])
def test_python_loops_drive_the_pool(build, log, name):
    _, library = plugin(build)
    command = [sys.executable, python_loops.__file__, "--backend", name, "--plugin", library, "--quick", "--trace", log]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=environment(MILLPOND_DEVICE="host"))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["case"] for row in rows if "case" in row} == set(python_loops.CASES) and rows[-1] == {"done": True}
    [replay] = [row for row in rows if row.get("case") == "python-replay"]
    assert replay["live_peak"] == 73000
    # Pages are of 2 MiB; the first region of an arena without them has 1.
    assert replay["reserved_peak"] == (2 << 20 if name.endswith("expandable") else 1 << 20)


@pytest.mark.parametrize("mode", ["threaded", "adversarial:1", "adversarial:2"])
def test_a_wrong_allocator_is_not_timed(build, mode):
    status, rows, said = pool_bench(build, *plugin(build, "reckless"), "--cases", "handover", MILLPOND_HOST=mode)
    assert status == 2 and "allocated too early" in said
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


@pytest.mark.parametrize("name", record_traces.RECORDERS)
def test_the_traces_kept_here_are_sound(name):
    path = record_traces.OUT / f"{name}.csv.gz"
    items = traces.read(path)
    assert len(items) > 500 and path.stat().st_size <= record_traces.BYTES_MAX
    assert traces.live_peak(items) > 1 << 20


def test_better_and_ratio():
    ours, near, fast = (bench_pool.Figures(*three) for three in ((10, 8, 12), (9, 7, 11), (5, 4, 6)))
    assert [bench_pool.better("p50_ns", peer, ours) for peer in (ours, near, fast)] == ["", "~", "!"]
    assert [bench_pool.better("mops", peer, ours) for peer in (near, fast)] == ["", ""]
    assert bench_pool.better("mops", ours, fast) == "!"
    assert bench_pool.ratio("p50_ns", fast, ours) == 0.5 and bench_pool.ratio("mops", fast, ours) == 2
