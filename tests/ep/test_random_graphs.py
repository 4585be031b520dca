# SPDX-License-Identifier: Apache-2.0
"""Random graphs in every mode of the emulated device; the adversarial one runs queued work late and in odd orders."""

import os
import subprocess
import sys
from pathlib import Path

import provider
import pytest
import random_graphs

HERE = Path(__file__).resolve().parent
GRAPHS_A_CHILD = 12


@pytest.mark.parametrize("seed", range(40))
def test_graph(seed):
    fault = random_graphs.compare(seed)
    assert fault is None, fault


@pytest.mark.parametrize("mode", ["threaded", *(f"adversarial:{seed}" for seed in range(1, 7))])
def test_mode(mode):
    if not provider.is_emulated(provider.register()[0]):
        pytest.skip("modes belong to the emulated device")
    first = 1000 + 100 * int(mode.partition(":")[2] or 0)
    env = {**os.environ, "MILLPOND_DEVICE": "host", "MILLPOND_HOST": mode, "PYTHONPATH": str(HERE.parents[1] / "demo")}
    command = [sys.executable, str(HERE / "random_graphs.py"), str(first), str(first + GRAPHS_A_CHILD - 1)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, f"MILLPOND_HOST={mode}: {done.stderr}"
