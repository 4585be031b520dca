# SPDX-License-Identifier: Apache-2.0
"""The runner of the C tests: parts cover all tests, some run alone, and those that share a process end as ever."""

import os
import re
import subprocess
from pathlib import Path

import pytest

UNIT = Path(os.environ.get("MILLPOND_EP_LIBRARY", "/nowhere/lib/x")).parents[1] / "tests/unit_tests"
RESULT = re.compile(r"(ok|not ok) \d+ - (\S+) # (?:SKIP|(\d+) ms, from (\d+) ms on)")
OWN_PROCESS = "pool_look_logs_options_growth_and_shrinking@eager"  # the level of the log is read once

pytestmark = pytest.mark.skipif(not UNIT.exists(), reason=f"{UNIT} was not built")


def unit(*words, **variables):
    done = subprocess.run([str(UNIT), *map(str, words)], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, **variables})
    return done.stdout


def results(*words, **variables):
    """(outcome, name, milliseconds, its beginning) of each test, in the order of their ends."""
    return [found.groups() for found in map(RESULT.match, unit(*words, **variables).splitlines()) if found]


def names(*words):
    return unit("--list", *words).split()


def test_parts_cover_each_test_once():
    parts = [names("--shard", f"{i}/5") for i in range(1, 6)]
    assert sorted([*sum(parts, []), *names("--alone")]) == sorted(names())
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_wrong_parts_are_refused():
    for word in ("0/2", "3/2", "1", "1/2x", ""):
        assert unit("--list", "--shard", word) == ""


def test_some_run_alone_and_last():
    alone = {name for name in names("--alone") if name.startswith("mem")}
    ended = results("mem", "--modes", "eager", "--jobs", "4", "--batch", "4")
    assert {"memory_is_counted@eager", "mempool_returns_what_is_left_at_the_end@eager"} <= alone
    last = [name for _, name, _, _ in ended][-2:]
    assert set(last) <= alone and len(ended) > 20
    ends = [int(start) + int(ms) for _, _, ms, start in ended if ms]
    begins = [int(ended[-2][3]), int(ended[-1][3])]
    assert max(ends[:-2]) <= begins[0] + 2 and ends[-2] <= begins[1] + 2  # rounded to milliseconds


@pytest.mark.parametrize("batch", [3, 64])
def test_those_that_share_a_process_pass_as_they_do_alone(batch):
    ended = results("pool_l", "--modes", "eager", "--jobs", "2", "--batch", batch)
    assert ("ok", OWN_PROCESS) in [found[:2] for found in ended]
    assert sorted(found[:2] for found in ended) == sorted(
        found[:2] for found in results("pool_l", "--modes", "eager", "--jobs", "2"))


def test_one_that_fails_costs_the_others_of_its_process_nothing():
    """With options that no pool can have, those that open one fail."""
    words = ("pool_limit", "--modes", "eager", "--jobs", "2")
    by_itself = sorted(found[:2] for found in results(*words, MILLPOND_POOL="nonsense"))
    assert {outcome for outcome, _ in by_itself} == {"ok", "not ok"}
    assert sorted(found[:2] for found in results(*words, "--batch", "16", MILLPOND_POOL="nonsense")) == by_itself


def test_the_slowest_are_named():
    said = unit("pool_l", "--modes", "eager").splitlines()
    slowest = [int(line.split()[2]) for line in said if line.startswith("# slowest: ")]
    assert 0 < len(slowest) <= 15 and slowest == sorted(slowest, reverse=True)
    assert re.fullmatch(r"\d+ passed, 0 failed, \d+ skipped", said[-1])
