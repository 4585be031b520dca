# SPDX-License-Identifier: Apache-2.0
"""tests/numba_suite/run.py: what it counts as worse, what it runs again; and a module of Numba's tests through it."""

import importlib.util
import json
import subprocess
import sys
import time

import pytest
from numba_kit import HERE, driver_of, environment

RUN = HERE.parent / "numba_suite/run.py"
suite = importlib.util.module_from_spec(importlib.util.spec_from_file_location("numba_suite_run", RUN))
suite.__spec__.loader.exec_module(suite)


def write(out, side, name, *records):
    module = suite.Module(out, side, name)
    module.log.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return module


def ended(test, outcome, reason=""):
    return {"test": test, "outcome": outcome, "reason": reason}


@pytest.mark.parametrize(("without", "ours", "is_worse"), [
    (ended("t", "passed"), ended("t", "passed"), False),
    (ended("t", "passed"), ended("t", "failed"), True),
    (ended("t", "passed"), ended("t", "skipped", "why"), True),
    (ended("t", "passed"), {"start": "t"}, True),
    (ended("t", "passed"), ended("other", "passed"), True),
    (ended("t", "failed"), ended("t", "error"), False),
    (ended("t", "failed"), ended("t", "passed"), False),
    (ended("t", "xfailed"), ended("t", "passed"), False),
    (ended("t", "skipped"), ended("t", "failed"), True),
    (ended("t", "passed"), ended("t", "skipped", "x Deallocation specific to Numba memory management"), False),
])  # fmt: skip
def test_what_is_worse(tmp_path, without, ours, is_worse):
    write(tmp_path, "without", "m", without, {"managers": ["NumbaCUDAMemoryManager"]})
    write(tmp_path, "with", "m", ours, {"managers": ["MillpondMemoryManager"]})
    counts, worse, skipped, managers = suite.compare(tmp_path, ["m"])
    assert (len(worse) > 0) == is_worse and sum(counts["without"].values()) == 1
    assert skipped == (["m::t"] if "Deallocation" in ours.get("reason", "") else [])
    assert managers == {"without": {"NumbaCUDAMemoryManager": 1}, "with": {"MillpondMemoryManager": 1}}


def test_a_run_without_our_manager_is_not_taken_for_a_good_one(tmp_path, capsys):
    for side in ("without", "with"):
        write(tmp_path, side, "m", ended("t", "passed"), {"managers": ["NumbaCUDAMemoryManager"]})
    counts, worse, skipped, managers = suite.compare(tmp_path, ["m"])
    suite.report(tmp_path, counts, worse, [], skipped, managers)
    assert len(worse) == 1 and "were not the ones that were asked for" in capsys.readouterr().out


class Process:
    def __init__(self, returncode):
        self.returncode = returncode


def test_crashes(tmp_path):
    queue = suite.Queue(1, time.monotonic() + 100, 100, {})
    module = write(tmp_path, "with", "m", ended("first", "passed"), {"start": "second"})
    assert not queue.finish(Process(-11), module, False)  # another process for what comes after
    assert module.results() == {"first": ("passed", ""), "second": ("crashed", "")} and not module.done.exists()
    assert queue.finish(Process(-11), module, True) and module.done.exists()
    module = write(tmp_path, "with", "end", ended("first", "passed"))
    assert queue.finish(Process(-11), module, False)
    assert module.results()[suite.THE_END] == ("crashed", "exit status -11")
    late = suite.Queue(1, time.monotonic() - 100, 100, {})
    module = write(tmp_path, "with", "late", ended("first", "passed"), {"start": "second"})
    assert not late.finish(Process(-9), module, False)
    assert module.results() == {"first": ("passed", "")}  # the second runs again


def test_a_module_of_numba(tmp_path):
    driver_of("numba.cuda")
    command = [sys.executable, str(RUN), "--out", str(tmp_path), "--only", "nocuda.test_dummyarray", "--jobs", "2"]
    for turn in range(2):  # the second has nothing to run
        began = time.monotonic()
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((tmp_path / "compare.json").read_text())
        assert found["counts"]["with"] == found["counts"]["without"] and found["counts"]["with"]["passed"] > 20
        assert turn == 0 or time.monotonic() - began < 20
