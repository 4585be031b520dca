# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the provider's runtime on the emulated device: every row is there, and results are right."""

import json
import subprocess
import sys
from pathlib import Path

import provider
import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "pytest"


@pytest.fixture
def result():
    build = provider.library_path().parents[1]
    command = [sys.executable, ROOT / "bench/bench_runtime.py", "--build", build, "--only", "add_chain_1", "--seconds",
               "0.05", "--name", NAME]
    target = ROOT / f"bench/results/runtime-{NAME}.json"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        yield json.loads(target.read_text(encoding="utf-8"))
    finally:
        target.unlink(missing_ok=True)


def test_rows_and_parts(result):
    rows = {(row["model"], row["pool"], row["graph"]): row for row in result["rows"]}
    assert len(rows) == 2 * 2 * 2  # chains of 1 and 100 nodes, two pools, with graphs and without
    for key, row in rows.items():
        assert row["ms"] > 0 and row["relative"] == 0, (key, row)
    assert set(result["ns_parts"]) == {"plan_lookup", "plan_queue", "plan_run", "graph_run", "idle_wait"}
    assert all(ns > 0 for ns in result["ns_parts"].values())
    assert result["ns_per_node"]["arena"].keys() == {"plain", "graph"}
    assert str(ROOT) not in result["command"]
