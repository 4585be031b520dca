# SPDX-License-Identifier: Apache-2.0
"""The pool beside ONNX Runtime's own arena: equal traces, equal settings, never much more memory."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import needs
import provider
import pytest

TESTS = Path(__file__).resolve().parents[1]
CAPI = Path(importlib.util.find_spec("onnxruntime").origin).parent / "capi"
ORT_C_LIBRARY = next(iter(sorted(CAPI.glob("libonnxruntime.so.1*"))), None)
SEEDS, COUNT = (0, 2, 5), 2000  # requests of a trace
MOST = 1.25


@pytest.fixture(scope="module")
def rows():
    if ORT_C_LIBRARY is None:
        needs.missing(f"this wheel has no C library in {CAPI}")
    env = {
        **os.environ,
        "MILLPOND_EP_LIBRARY": str(provider.library_path()),
        "MILLPOND_HOST": "eager",  # nothing is queued, so other modes only cost time
        "ORT_C_LIBRARY": str(ORT_C_LIBRARY),
        "PYTHONPATH": os.pathsep.join([str(TESTS / "ep"), str(TESTS.parent / "demo")]),
    }
    for name in ("MILLPOND_POOL", "MILLPOND_LIMIT"):
        env.pop(name, None)
    found = []
    for seed in SEEDS:
        command = [sys.executable, TESTS / "ep/arena_peer.py", str(seed), str(seed + 1), str(COUNT)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        found += [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) > 40 * len(SEEDS)
    return found


def exceeds(row):
    return any(ours > MOST * theirs for ours, theirs in zip(row["ours"], row["theirs"], strict=True))


def test_no_trace_needs_much_more_than_in_onnxruntimes_arena(rows):
    # Where both need nearly all that they have, chance decides who doubles its memory once more: addresses, which no
    # run chooses, break ties in both. So one trace in fifty may go either way; ours on the whole may not.
    beyond = [row for row in rows if exceeds(row)]
    assert len(beyond) <= len(rows) / 50, beyond


@pytest.mark.parametrize(("what", "figure"), [("bytes", 0), ("extensions", 1)])
def test_all_traces_together_need_about_the_same(rows, what, figure):
    ours, theirs = (sum(row[side][figure] for row in rows) for side in ("ours", "theirs"))
    assert ours <= 1.05 * theirs, (what, ours, theirs)


def test_growth_as_requested_stays_near_trace_by_trace(rows):
    beyond = [row for row in rows if row["settings"]["arena_extend_strategy"] == 1 and exceeds(row)]
    assert not beyond


def test_freed_neighbours_serve_one_request_as_large_as_all_of_them(rows):
    fixed = [row for row in rows if " then " in row["trace"]]
    assert len(fixed) >= 8
    for row in fixed:
        assert row["ours"] == row["theirs"], row
