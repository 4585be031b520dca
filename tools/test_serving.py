#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of engines that serve models or spread work over processes, tests/serving.

    test_serving.py --build build/dev [arguments of pytest]

Ray Serve, Dask and KServe, as requirements-serving.txt pins them, are put into an environment BUILD/serving of their
own above the Python and the packages of this one (600 MB). Without network, or with MILLPOND_OFFLINE=1, the tests are
skipped unless that is there. They are for the emulated device; bench/bench_serve.py is for a GPU, too.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import run_tests
from venv_above import environment

PINS = run_tests.ROOT / "requirements-serving.txt"


def python_with_engines(build):
    """(a Python, None), or (None, why there is none)."""
    lines = (line.partition("#")[0].strip() for line in PINS.read_text(encoding="utf-8").splitlines())
    packages = [line for line in lines if line]
    folder = build / "serving"
    if os.environ.get("MILLPOND_OFFLINE", "0") not in ("", "0") and not (folder / "packages.txt").exists():
        return None, "Ray, Dask and KServe are not installed, and MILLPOND_OFFLINE is set"
    try:
        return environment(folder, *packages), None
    except subprocess.CalledProcessError:
        return None, f"the packages of {PINS.name} cannot be installed here"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder, such as build/dev")
    args, rest = parser.parse_known_args()
    build = args.build.resolve()
    python, missing = python_with_engines(build)
    if python is None:
        print(missing)
        return 1 if os.environ.get("CI") else run_tests.SKIP_STATUS
    # Each file starts a cluster of its own, so each is one process's.
    command = [python, *run_tests.pytest("tests/serving", gpu=False)[1:], *rest]
    command += ["--dist=loadfile"] if "-n" in command else []
    return subprocess.run([str(word) for word in command], check=False,
                          env=run_tests.environment(build, gpu=False)).returncode


if __name__ == "__main__":
    sys.exit(main())
