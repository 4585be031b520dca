# SPDX-License-Identifier: Apache-2.0
"""Shared by all Python tests: where modules and the library are found, and lines for the end of the report.

    --shard I/N     of the tests that are not marked `alone` every Nth, from the Ith on
    --alone         only those marked `alone`: they fill a GPU's memory, or look at how full it is
    --cases N       of a test with more than four cases the first, and of the others one in N
    --name NAME     the provider goes by this name, CUDAExecutionProvider or its own

tools/run_tests.py gives the first two where tests run on a GPU, several processes at a time.
"""

import collections
import os
import sys
import zlib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FEW = 4  # cases of a test, all of which are tried
sys.path[:0] = [str(path) for path in (TESTS, TESTS / "ep", TESTS / "models", TESTS.parent / "demo",
                                       TESTS.parent / "tools")]

import built  # noqa: E402  (found by the lines above)

if built.newest():  # as demo/provider.py, for all modules and the processes that tests start
    os.environ.setdefault("MILLPOND_EP_LIBRARY", str(built.newest()))
os.environ.setdefault("MILLPOND_STAND_IN", "off")  # tests count runs until graphs are captured

def shard(text):
    """(2, 8) of "2/8"."""
    index, count = map(int, text.split("/"))
    if not 1 <= index <= count:
        raise ValueError(text)
    return index, count


def pytest_addoption(parser):
    parser.addoption("--shard", type=shard, help="I/N: of the tests that may run beside others every Nth")
    parser.addoption("--cases", type=int, default=1, help="of tests with several cases one in N")
    parser.addoption("--name", help="what the provider is called")
    parser.addoption("--alone", action="store_true", help="only the tests that run beside no other")


def pytest_configure(config):
    if config.getoption("--name"):
        os.environ["MILLPOND_EP_NAME"] = config.getoption("--name")  # which demo/provider.py reads
    config.addinivalue_line("markers", "alone: fills a GPU's memory, or looks at how full it is")


def some_of(items, step):
    """Of each test with several cases the first, and of the others one in `step`. They are told by their names: every
    other of a table might have one value alone in a column."""
    count = collections.Counter(item.nodeid.partition("[")[0] for item in items)
    seen, kept = set(), []
    for item in items:
        test = item.nodeid.partition("[")[0]
        if count[test] <= FEW or test not in seen or zlib.crc32(item.name.encode()) % step == 0:
            kept.append(item)
        seen.add(test)
    return kept


@pytest.hookimpl(trylast=True)  # of the tests that are left
def pytest_collection_modifyitems(config, items):
    part, alone, step = (config.getoption(f"--{name}") for name in ("shard", "alone", "cases"))
    if part is None and not alone and step == 1:
        return
    wanted = some_of(items, step)
    if part is not None or alone:
        wanted = [item for item in wanted if (item.get_closest_marker("alone") is not None) == alone]
    if part is not None:
        index, count = part
        wanted = wanted[index - 1 :: count]
    known = set(wanted)
    config.hook.pytest_deselected(items=[item for item in items if item not in known])
    items[:] = wanted


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


@pytest.fixture(scope="session")
def model_path(root):
    """A function: the path of the trained model of a name, which ends the test where it was not fetched."""
    import needs

    def path_of(name):
        path = Path(root) / "models" / f"{name}.onnx"
        return str(path) if path.exists() else needs.missing(f"{path} is not there: run tools/fetch_models.py")

    return path_of
