# SPDX-License-Identifier: Apache-2.0
"""The gates of performance: how they are judged, on figures that are given. Nothing is timed here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench")]

import gate  # noqa: E402

RESULTS = ROOT / "bench/results"


def pool_row(case, row, metric, marks=(), **values):
    spread = {name: [value, value, value] for name, value in values.items()}
    return {"case": case, "row": row, "metric": metric, "values": spread, "marks": dict.fromkeys(marks, ">")}


def pool_file(folder, *rows):
    path = folder / "pool.json"
    path.write_text(json.dumps({"emulated": True, "rows": rows}))
    return path


def gates_file(folder, *rows):
    path = folder / "gates.tsv"
    lines = ["# a table", "kind\tdevice\tpeer\tsubject\tmost", *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def judged(*options):
    return subprocess.run([sys.executable, ROOT / "bench/gate.py", *map(str, options)], capture_output=True, text=True)


PAIR = ("pool", "emulated", "floor", "pair, 256 B, mean_ns")
RATE = ("pool", "emulated", "floor", "threads, 4, mops")


def test_gates_that_are_kept_and_missed(tmp_path):
    """A figure of which more is better is turned round."""
    pool = pool_file(tmp_path, pool_row("pair", "256 B", "mean_ns", millpond=30, floor=10),
                     pool_row("threads", "4", "mops", millpond=20, floor=50))
    kept = judged("--pool", pool, "--gates", gates_file(tmp_path, (*PAIR, "3"), (*RATE, "2.5")))
    assert (kept.returncode, kept.stderr) == (0, "") and "2 of 2 gates are kept" in kept.stdout
    missed = judged("--pool", pool, "--gates", gates_file(tmp_path, (*PAIR, "2.9"), (*RATE, "2.4")))
    assert missed.returncode == 1 and "0 of 2 gates are kept" in missed.stdout
    assert missed.stderr.splitlines() == [
        "gate: pool, pair, 256 B, mean_ns, beside floor: 3 times the peer's time, and 2.9 is the most",
        "gate: pool, threads, 4, mops, beside floor: 2.5 times the peer's time, and 2.4 is the most",
    ]


def test_a_gate_without_a_figure_is_missed(tmp_path):
    """Also where the figure is marked as no measure; gates of other devices are not looked at."""
    pool = pool_file(tmp_path, pool_row("pair", "256 B", "mean_ns", ["floor"], millpond=30, floor=10),
                     pool_row("pair", "4 KiB", "mean_ns", millpond=30, floor=10))
    other = ("pool", "gpu", *PAIR[2:], "1")
    done = judged("--pool", pool, "--gates", gates_file(tmp_path, (*PAIR, "9"), other))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "pair, 256 B, mean_ns, beside floor: this run has no figure for it" in done.stderr
    none = judged("--pool", pool, "--gates", gates_file(tmp_path, other))
    assert none.returncode == 1 and "no gate of the table is for what was measured" in none.stderr


@pytest.mark.parametrize("row", [("model", *PAIR[1:], "1"), ("pool", "cuda", *PAIR[2:], "1"), (*PAIR, "0")])
def test_rows_that_are_no_gates(row, tmp_path):
    done = judged("--pool", pool_file(tmp_path), "--gates", gates_file(tmp_path, row))
    assert done.returncode == 1 and "has a row that is no gate" in done.stderr


def test_means_of_models():
    rows = [{"model": "a", "label": "x", "ratio": 0.5}, {"model": "a", "label": "", "ratio": 2.0},
            {"model": "b", "label": "x"}]
    found = {subject: ratio for (*_, subject), ratio in
             gate.in_tree_figures({"emulated": False, "rows": rows}).items()}
    assert found == {"a, x": 0.5, "a": 2.0, "geometric mean": pytest.approx(1.0)}
    assert gate.in_tree_figures({"emulated": False, "rows": rows[2:]}) == {}


def test_the_committed_results_keep_the_committed_gates():
    """So that every gate of a GPU names a row that there is."""
    pool, in_tree = sorted(RESULTS.glob("pool-nvidia-*.json")), sorted(RESULTS.glob("in-tree-nvidia-*.json"))
    done = judged("--pool", pool[-1], "--in-tree", in_tree[-1])
    gates = [each for each in gate.read_gates() if each.device == "gpu"]
    assert done.returncode == 0, done.stderr
    assert f"{len(gates)} of {len(gates)} gates are kept" in done.stdout
