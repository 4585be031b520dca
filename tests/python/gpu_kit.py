# SPDX-License-Identifier: Apache-2.0
"""What the tests of CuPy and PyTorch on a GPU share: whether there is one, and processes of their own."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import millpond
import pytest

HERE = Path(__file__).resolve().parent
LIMIT_S = 240


def gpu_of(name):
    """The framework's module; skips where it is missing or finds no GPU."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"no GPU test: {error}")
    if not module.cuda.is_available():
        pytest.skip(f"no GPU test: {name} finds no GPU")
    return module


def environment(**variables):
    """That of a process which finds what this one finds; the device is the GPU."""
    folders = [str(HERE / "shim"), str(HERE), str(Path(millpond.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, folders)), PYTHONUNBUFFERED="1", **variables)
    env.pop("MILLPOND_DEVICE", None)
    return env


def run_case(script, *arguments, limit_s=LIMIT_S, **variables):
    """Runs a script of this folder; returns what it printed. Fails where it fails."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", str(HERE / script), *arguments],
                          env=environment(**variables), capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout
