# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the binding runs, and its figures are sane; no time is judged."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_row(tmp_path):
    out = tmp_path / "figures.json"
    done = subprocess.run([sys.executable, str(ROOT / "bench/bench_binding.py"), "--pairs", "200", "--repeats", "2",
                           "--json", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["ns"]
    assert len(rows) == (6 if shutil.which("cc") else 5)
    assert all(0 < ns < 1e8 for ns in rows.values())
    assert all(name in done.stdout for name in rows)
