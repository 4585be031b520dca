#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of onnxruntime-genai on the provider, tests/genai.

    test_genai.py --build build/dev [--gpu] [arguments of pytest]

Where this Python has no onnxruntime-genai, an environment BUILD/genai-VERSION is made: the Python and the packages of
this one, and onnxruntime-genai above them; with --gpu the package that has genai's part for CUDA. What that needs of
CUDA must be there. Without network, or with MILLPOND_OFFLINE=1, the tests are skipped.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import run_tests
from venv_above import environment

VERSION = "0.18.0"


def python_with_genai(build, on_gpu):
    """(a Python, None), or (None, why there is none)."""
    if importlib.util.find_spec("onnxruntime_genai") is not None:
        return sys.executable, None
    if os.environ.get("MILLPOND_OFFLINE", "0") not in ("", "0"):
        return None, "onnxruntime-genai is not installed, and MILLPOND_OFFLINE is set"
    package = f"onnxruntime-genai{'-cuda' if on_gpu else ''}=={VERSION}"
    try:
        return environment(build / f"genai-{VERSION}{'-cuda' if on_gpu else ''}", package), None
    except subprocess.CalledProcessError:
        return None, f"{package} cannot be installed here"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder, such as build/dev")
    parser.add_argument("--gpu", action="store_true", help="on a GPU")
    args, rest = parser.parse_known_args()
    build = args.build.resolve()
    python, missing = python_with_genai(build, args.gpu)
    if python is None:
        print(missing)
        return 1 if os.environ.get("CI") else run_tests.SKIP_STATUS
    command = [python, *run_tests.pytest("tests/genai", gpu=args.gpu)[1:], *rest]
    return subprocess.run([str(word) for word in command], check=False,
                          env=run_tests.environment(build, args.gpu)).returncode


if __name__ == "__main__":
    sys.exit(main())
