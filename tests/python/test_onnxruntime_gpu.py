# SPDX-License-Identifier: Apache-2.0
"""millpond.onnxruntime on a GPU, with arrays of CuPy, Numba and PyTorch. Each case is a process of its own;
onnxruntime_gpu_cases.py has them."""

import importlib
import importlib.util

import millpond
import pytest
from gpu_kit import gpu_of, run_case

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

LIBRARIES = ("cupy", "numba", "torch")
SHARED = ("shares", "shares_one_pool", "waits", "keeps", "refuses")
ROWS = [*[(case, name) for case in SHARED for name in LIBRARIES], ("types", "torch"), ("records", "torch"),
        ("all_together", "all")]


@pytest.fixture(scope="module", autouse=True)
def gpu():
    try:
        millpond.Pool("cuda:0").close()
    except millpond.Error as error:
        pytest.skip(f"no GPU test: {error}")


def need(name):
    if name != "numba":
        gpu_of(name)
    elif importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("no GPU test: numba-cuda is not installed")


@pytest.mark.parametrize(("case", "library"), ROWS, ids=str)
def test_case(case, library):
    for name in LIBRARIES if library == "all" else (library,):
        need(name)
    run_case("onnxruntime_gpu_cases.py", case, library)


def test_the_command_line():
    for name in ("click", "rich"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    run_case("onnxruntime_gpu_cases.py", "the_command_line")
