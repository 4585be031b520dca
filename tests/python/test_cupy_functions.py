# SPDX-License-Identifier: Apache-2.0
"""The C functions that CuPy calls, on the emulated device: without CuPy, and with it but without a GPU."""

import importlib.util

import pytest
from core_kit import run_python

CASES = ("blocks", "failures", "order_of_streams", "hooks", "threads", "forked", "cupy_streams")
WITH_CUPY = ("cupy_blocks", "cupy_at_exit", "cupy_out_of_memory", "cupy_hooks", "cupy_install")


def run(case):
    run_python(f"import cupy_function_cases as cases; cases.{case}()", MILLPOND_DEVICE="host", MILLPOND_HOST="threaded")


@pytest.mark.parametrize("case", CASES)
def test_without_cupy(case):
    run(case)


@pytest.mark.parametrize("case", WITH_CUPY)
def test_with_cupy(case):
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    run(case)


def test_the_sentence_where_cupy_is_missing():
    if importlib.util.find_spec("cupy") is not None:
        pytest.skip("CuPy is installed")
    run_python("""
        try:
            import millpond.cupy
        except ImportError as error:
            assert error.name == "cupy" and "pip install cupy-cuda13x" in str(error)
        else:
            raise AssertionError("no error")
    """)
