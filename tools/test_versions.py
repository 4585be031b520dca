#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the provider's tests with other versions of ONNX Runtime than the one of requirements.txt.

    test_versions.py --build build/dev [--versions 1.26.0,newest] [--sample 8]

By default the oldest that the provider works with, one between, and the newest on PyPI; where that is the one of
requirements.txt, `make test` has tried it already, with more cases. Each gets an environment .venv/ort-VERSION: the
Python and the packages of this one, and an ONNX Runtime of its own before them.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import run_tests
from venv_above import environment, pip

ROOT = run_tests.ROOT
OLDEST, BETWEEN, NEWEST = "1.26.0", "1.29.0", "newest"
TESTS = ["provider", "fault", "arena", "profiler", "control_flow", "context", "op_cases", "onnx_nodes"]
LIMIT_S = 600


def pinned():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r"^onnxruntime==(\S+)", text, re.MULTILINE).group(1)


def newest():
    """The version that pip would install today."""
    report = pip("install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-", "onnxruntime",
                 stdout=subprocess.PIPE).stdout
    return json.loads(report)["install"][0]["metadata"]["version"]


def environment_of(version):
    """The Python of an environment with this ONNX Runtime; makes it where it is missing."""
    return environment(ROOT / ".venv" / f"ort-{version}", f"onnxruntime=={version}")


def tests_of(version, python, sample):
    """The step of run_tests that tries a version."""
    found = subprocess.run([python, "-c", "import onnxruntime; print(onnxruntime.__version__)"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.strip()
    if found != version:
        sys.exit(f"{python} has ONNX Runtime {found} and not {version}; delete its folder")
    files = [f"tests/ep/test_{name}.py" for name in TESTS]
    command = [python, *run_tests.pytest(f"--sample={sample}", *files, gpu=False, more=1)[1:]]
    return run_tests.Step(version, "the provider in this ONNX Runtime", command, limit_s=LIMIT_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder, such as build/dev")
    parser.add_argument("--versions", default=f"{OLDEST},{BETWEEN},{NEWEST}", help="separated by commas")
    parser.add_argument("--sample", type=int, default=8, help="of tests with many cases only every Nth")
    args = parser.parse_args()
    build = args.build.resolve()
    logs = build / "test-logs"
    logs.mkdir(parents=True, exist_ok=True)
    env = run_tests.environment(build, gpu=False)
    started, totals = time.monotonic(), [0, 0, 0]
    for asked in args.versions.split(","):
        version = newest() if asked == NEWEST else asked
        if asked == NEWEST and version == pinned():
            print(f"{version:<13} is the newest, and the one of requirements.txt, which `make test` tries in full")
            continue
        step = tests_of(version, environment_of(version), args.sample)
        counts = run_tests.run_step(step, logs / f"ort-{version}.log", env)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped, in {time.monotonic() - started:.0f} s")
    return 1 if totals[1] > 0 or totals[0] == 0 else 0


if __name__ == "__main__":
    os.environ.setdefault("MILLPOND_DEVICE", "host")
    sys.exit(main())
