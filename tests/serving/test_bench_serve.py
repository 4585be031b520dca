# SPDX-License-Identifier: Apache-2.0
"""The benchmark of serving, in the process alone: every row is there, and its figures are sane; no time is judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="onnx is not installed")
ROOT = Path(__file__).resolve().parents[2]


def run(*words):
    return subprocess.run([sys.executable, ROOT / "bench/bench_serve.py", *words], capture_output=True, text=True,
                          check=False, timeout=120)


def test_rows(tmp_path):
    out = tmp_path / "serve.json"
    done = run("--only", "direct", "--seconds", "0.05", "--repeats", "2", "--callers", "1,2", "--batch", "3", "--out",
               out)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert list(rows) == ["direct, 1 callers", "direct, 2 callers", "direct, batches of 3"]
    for figures in rows.values():
        assert set(figures) == {"requests_s", "p50_ms", "p99_ms"}
        assert all(0 < least <= middle <= most < 1e6 for middle, least, most in figures.values())
        assert figures["p50_ms"][0] <= figures["p99_ms"][0]
    assert run("--table", out).stdout == done.stdout and "| direct, 2 callers |" in done.stdout


@pytest.mark.parametrize(("words", "sentence"), [
    (["--only", "grpc"], "no route 'grpc'; there are direct, handle, http"), (["--model", "m.onnx"], "--input")])
def test_what_is_refused(words, sentence):
    done = run(*words)
    assert done.returncode == 2 and sentence in done.stderr
