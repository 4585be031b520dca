# SPDX-License-Identifier: Apache-2.0
"""Shared by all Python tests: where modules are found, and lines for the end of the report."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(path) for path in (TESTS, TESTS / "ep", TESTS / "models", TESTS.parent / "demo",
                                       TESTS.parent / "tools")]

SUMMARY = []


@pytest.fixture
def summary():
    """A function that keeps a line for the end of the report; tools/run_tests.py shows lines that begin so."""
    return lambda line: SUMMARY.append(f"summary: {line}")


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of several processes, of pytest-xdist
        session.config.workeroutput["summary"] = SUMMARY


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    SUMMARY.extend(getattr(node, "workeroutput", {}).get("summary", []))


def pytest_terminal_summary(terminalreporter):
    for line in SUMMARY:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def root():
    """The folder of models and inputs."""
    import fetch_models

    return str(fetch_models.default_dir())
