# SPDX-License-Identifier: Apache-2.0
"""millpond.numba on a GPU. Each case is a process of its own; numba_gpu_cases.py and numba_gpu_streams.py have them."""

import json
import re
import subprocess
import sys

import millpond
import pytest
from numba_kit import HERE, PACKAGES, driver_of, environment

RUN = HERE / "numba_gpu_run.py"

OWN_TARGET = {"MILLPOND_TEST_OWN_TARGET": "1"}  # numba.cuda is Numba's own

# Case, settings of millpond.numba.use(), variables of the process.
ROWS = [
    ("arrays", {}, {}),
    ("arrays", {"streams": "fast"}, {}),
    ("arrays", {"streams": "sync"}, {}),
    ("arrays", {"options": {"arena.expandable": 1}}, {}),
    ("arrays", {"options": {"arena.use_cuda_mempool": 1}}, {}),
    ("variable", {}, {"NUMBA_CUDA_MEMORY_MANAGER": "millpond.numba"}),
    ("arguments", {}, {}),
    ("arguments", {"streams": "fast"}, {}),
    ("arguments_on_a_stream", {}, {}),
    ("memory_info", {}, {}),
    ("pinned", {}, {}),
    ("pinned_while_copied", {}, {}),
    ("mapped", {}, {}),
    ("managed", {}, {}),
    ("ipc", {"ipc": True}, {}),
    ("ipc_refused", {"options": {"arena.expandable": 1}}, {}),
    ("ipc_refused", {"options": {"arena.use_cuda_mempool": 1}}, {}),
    ("close", {}, {}),
    ("threads", {}, {}),
    ("threads", {"options": {"arena.expandable": 1}}, {}),
    ("freed_by_a_thread_without_context", {}, {}),
    ("live_at_exit", {}, {}),
    ("exhaustion", {"options": {"arena.max_mem": "1G"}}, {}),
    ("two_gpus", {}, {}),
    ("streams_in_order", {}, {}),
    ("streams_in_order", {"streams": "sync"}, {}),
    ("streams_out_of_order", {"streams": "fast"}, {}),
    ("declared_use", {}, {}),
    ("non_blocking_in_order", {"streams": "sync"}, {}),
    ("non_blocking_first_use", {"streams": "sync"}, {}),
    ("announced_use", {}, {}),
    ("announced_use", {"options": {"arena.expandable": 1}}, {}),
    ("arrays_of_a_stream", {}, {}),
    ("arrays_of_a_stream", {"options": {"arena.use_cuda_mempool": 1}}, {}),
    ("arguments_of_a_non_blocking_launch", {}, {}),
    ("arguments_of_a_non_blocking_launch", {"streams": "sync"}, {}),
    ("peers", {"options": {"arena.expandable": 1}}, {}),
    ("arrays", {}, OWN_TARGET),
    ("pinned", {}, OWN_TARGET),
    ("mapped", {}, OWN_TARGET),
    ("managed", {}, OWN_TARGET),
    ("close", {}, OWN_TARGET),
    ("streams_in_order", {}, OWN_TARGET),
    ("arrays_of_a_stream", {}, OWN_TARGET),
    ("capture", {}, {}),
    ("cost", {}, {}),
]


@pytest.fixture(scope="module", autouse=True)
def gpu():
    try:
        millpond.Pool("cuda:0")
    except millpond.Error as error:
        pytest.skip(f"no GPU: {error}")


@pytest.fixture(params=PACKAGES)
def package(request):
    driver_of(request.param)
    return request.param


def marked(number, row):
    """The row as a case; some look at the device's memory, or measure times, which others would spoil."""
    marks = pytest.mark.alone if row[0] in ("memory_info", "cost") else ()
    return pytest.param(*row, id=f"{row[0]}-{number}", marks=marks)


@pytest.mark.parametrize(("case", "settings", "variables"), [marked(*each) for each in enumerate(ROWS)])
def test_case(package, case, settings, variables, summary):
    if variables is OWN_TARGET and package != "numba.cuda":
        pytest.skip("numba_cuda_mlir is a package of its own")
    quiet = {"NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"}
    done = subprocess.run([sys.executable, str(RUN), package, case, json.dumps(settings)], check=False, timeout=300,
                          env=environment(**quiet, **variables), capture_output=True, text=True, cwd=HERE)
    said = f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == 0, said
    assert not re.search(r"Traceback|Exception ignored", done.stderr), said
    for line in done.stdout.splitlines():
        if line.startswith("summary: "):
            summary(f"{package}: {line.removeprefix('summary: ')}")
        elif line.startswith("skipped: "):
            pytest.skip(line.removeprefix("skipped: "))
