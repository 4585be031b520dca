# SPDX-License-Identifier: Apache-2.0
"""Inside each pytest that run.py starts: what Numba's tests need and their wheel lacks, and a line for each result.

Lines are written as they come, so that a crash loses only the test that crashed: one when a test starts, one with
what came of it. The file is named by NUMBA_SUITE_LOG.
"""

import json
import os
import sys

import numpy
import pytest

if not hasattr(numpy, "row_stack"):  # numba-cuda up to 0.30 cannot compile with NumPy 2.5, which has none
    numpy.row_stack = numpy.vstack

RANK = ["passed", "xfailed", "skipped", "failed", "error"]  # of several reports on a test, the last of these counts


def write(**record):
    with open(os.environ["NUMBA_SUITE_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")


def name_of(nodeid):
    """The test within its module."""
    return nodeid.partition("::")[2]


@pytest.fixture
def initialize_from_pytest_config(request):
    """Numba's own conftest, which is not in its wheel, has this fixture for the class of its tests."""
    if request.cls is not None:
        request.cls._dump_failed_filechecks = False


def pytest_collection_modifyitems(config, items):
    """Leaves out what an earlier run of this module has done already."""
    done = set(filter(None, os.environ.get("NUMBA_SUITE_DONE", "").split("\n")))
    config.hook.pytest_deselected(items=[item for item in items if name_of(item.nodeid) in done])
    items[:] = [item for item in items if name_of(item.nodeid) not in done]


def pytest_runtest_logstart(nodeid):
    write(start=name_of(nodeid))


class Results:
    outcomes = {}


def outcome_of(report):
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "passed"
    if report.outcome == "failed" and report.when != "call":
        return "error"
    return report.outcome


def pytest_runtest_logreport(report):
    outcome = outcome_of(report)
    before = Results.outcomes.get(report.nodeid, ("passed", ""))
    reason = "" if outcome in ("passed", "xfailed") else str(getattr(report, "longreprtext", "") or report.longrepr)
    if RANK.index(outcome) > RANK.index(before[0]):
        Results.outcomes[report.nodeid] = outcome, reason[-1500:]


def pytest_runtest_logfinish(nodeid):
    outcome, reason = Results.outcomes.get(nodeid, ("passed", ""))
    write(test=name_of(nodeid), outcome=outcome, reason=reason)


def pytest_collectreport(report):
    if report.outcome != "passed":
        kind = "skipped" if report.outcome == "skipped" else "error"
        write(test="(the module)", outcome=kind, reason=str(report.longrepr)[-1500:])


def pytest_sessionfinish():
    """Which memory manager was at work."""
    driver = sys.modules.get("numba.cuda.cudadrv.driver")
    managers = set()
    for device in getattr(getattr(driver, "driver", None), "devices", {}).values():
        if device.primary_context is not None:
            managers.add(type(device.primary_context.memory_manager).__name__)
    write(managers=sorted(managers))
