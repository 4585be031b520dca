# SPDX-License-Identifier: Apache-2.0
"""bench/bench_python.py on the emulated device: what it writes, shows again, and refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import millpond

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "bench_python.py"


def run(*arguments, status=0):
    folders = [str(Path(millpond.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = dict(os.environ, MILLPOND_DEVICE="host", CUDA_VISIBLE_DEVICES="",
               PYTHONPATH=os.pathsep.join(filter(None, folders)))
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120,
                          env=env, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_results(tmp_path):
    file = tmp_path / "results.json"
    printed = run("--quick", "--repeats", "2", "--out", str(file)).stdout
    result = json.loads(file.read_text(encoding="utf-8"))
    assert result["emulated"] and result["repeats"] == 2 and not result["failures"]
    for row in result["rows"]:
        median, least, most = row["values"]["millpond.Buffer"]
        assert 0 < least <= median <= most
    assert "| one array of 1 MiB |" in printed
    assert run("--table", str(file)).stdout == printed


def test_failures_are_told(tmp_path):
    file = tmp_path / "results.json"
    done = run("--quick", "--repeats", "1", "--out", str(file), "--only", "millpond.Buffer;cupy", status=1)
    assert "1 backends failed: cupy" in done.stderr
    assert list(json.loads(file.read_text(encoding="utf-8"))["failures"]) == ["cupy"]
    assert "no backend 'pond'" in run("--only", "pond", status=2).stderr
