# SPDX-License-Identifier: Apache-2.0
"""What tests of the benchmarks share."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(name, out, *words, **variables):
    """What the benchmark `name` has written to `out`, by these words and variables."""
    command = [sys.executable, str(ROOT / "bench" / name), "--out", str(out), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text(encoding="utf-8"))
