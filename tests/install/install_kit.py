# SPDX-License-Identifier: Apache-2.0
"""What the tests of an installed Millpond share."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import provider

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH", "MILLPOND_EP_LIBRARY", "PKG_CONFIG_PATH")  # that could hide a fault
C_WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def build_folder():
    """Of the libraries under test."""
    return provider.library_path().resolve().parents[1]


def done(*command, cwd=None, **variables):
    """Runs a command on the emulated device, with nothing of the source tree in its environment."""
    env = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    env.setdefault("MILLPOND_DEVICE", "host")
    return subprocess.run([str(word) for word in command], cwd=cwd, env=env | variables, capture_output=True,
                          text=True, check=False, timeout=600)


def run(*command, cwd=None, **variables):
    """The same for one that must succeed; what it printed."""
    ended = done(*command, cwd=cwd, **variables)
    assert ended.returncode == 0, f"{' '.join(map(str, command))}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def tool(name):
    """CMake and its kin, as requirements.txt installs them beside this Python."""
    beside = Path(sys.executable).parent / name
    return beside if beside.exists() else shutil.which(name)
