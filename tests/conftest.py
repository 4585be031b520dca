# SPDX-License-Identifier: Apache-2.0
"""Shared by all Python tests: where modules and the library are found, and lines for the end of the report."""

import collections
import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(path) for path in (TESTS, TESTS / "ep", TESTS / "models", TESTS.parent / "demo",
                                       TESTS.parent / "tools")]

LIBRARY = "libonnxruntime_providers_cuda_plugin.so"
BUILT = sorted(TESTS.parent.glob(f"build/*/lib/{LIBRARY}"), key=lambda path: path.stat().st_mtime)
if BUILT:  # as demo/provider.py, for all modules and the processes that tests start
    os.environ.setdefault("MILLPOND_EP_LIBRARY", str(BUILT[-1]))

SUMMARY = []
TALLY = collections.Counter()


@pytest.fixture
def summary():
    """A function that keeps a line for the end of the report; tools/run_tests.py shows lines that begin so."""
    return lambda line: SUMMARY.append(f"summary: {line}")


@pytest.fixture
def tally():
    """A function that counts; at the end of the report each thing counted has a line "summary: COUNT THING"."""

    def count(thing, by=1):
        TALLY[thing] += by

    return count


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of several processes, of pytest-xdist
        session.config.workeroutput.update(summary=SUMMARY, tally=dict(TALLY))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    output = getattr(node, "workeroutput", {})
    SUMMARY.extend(output.get("summary", []))
    TALLY.update(output.get("tally", {}))


def pytest_terminal_summary(terminalreporter):
    for line in [*SUMMARY, *(f"summary: {count} {thing}" for thing, count in TALLY.items() if count)]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def root():
    """The folder of models and inputs."""
    import fetch_models

    return str(fetch_models.default_dir())
