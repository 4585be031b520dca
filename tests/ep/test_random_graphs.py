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
MODES = ["threaded", *(f"adversarial:{seed}" for seed in range(1, 7))]


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--graphs")))


def test_graph(seed):
    fault = random_graphs.compare(seed)
    assert fault is None, fault


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode, request):
    if not provider.is_emulated(provider.register()[0]):
        pytest.skip("modes belong to the emulated device")
    count = request.config.getoption("--graphs") * 3 // 10
    first = 1000 * (1 + MODES.index(mode))
    env = {**os.environ, "MILLPOND_DEVICE": "host", "MILLPOND_HOST": mode, "PYTHONPATH": str(HERE.parents[1] / "demo")}
    command = [sys.executable, str(HERE / "random_graphs.py"), str(first), str(first + count - 1)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0, f"MILLPOND_HOST={mode}: {done.stderr}"
