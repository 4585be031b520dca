# SPDX-License-Identifier: Apache-2.0
"""The first use of a block on another stream, by every way into the pool: in order where it is declared, and found by
the adversarial device where it is not. Numba's ways are in test_numba_streams.py, ONNX Runtime's in tests/ep."""

import importlib.util

import first_use_cases
import pytest
from core_kit import ON_GPU, run_python

SEEDS = range(1, 5)
MODES = ["gpu"] if ON_GPU else ["threaded", *(f"adversarial:{seed}" for seed in SEEDS)]


def run(mode, *words):
    return run_python("import sys, first_use_cases as cases; cases.main(*sys.argv[1:])", *words,
                      quiet="undeclared" not in words, **({} if mode == "gpu" else {"MILLPOND_HOST": mode}))


def need(way):
    if way == "cuda.core" and importlib.util.find_spec("cuda") is None:
        pytest.skip("cuda-core is not installed")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", sorted(first_use_cases.WAYS))
def test_a_declared_first_use_is_in_order(way, mode):
    need(way)
    run(mode, way)


@pytest.mark.parametrize("way", ["buffer", "torch", "dlpack"])
def test_a_declared_first_use_of_the_driver_s_pool_is_in_order(way):
    run(MODES[-1], way, "use_cuda_mempool=1")


@pytest.mark.skipif(ON_GPU, reason="a GPU reports no missing order")
@pytest.mark.parametrize("way", sorted(set(first_use_cases.WAYS) - {"no stream"}))  # that needs no declaration
def test_one_that_is_not_declared_is_found(way):
    need(way)
    found = [run(f"adversarial:{seed}", way, "undeclared") for seed in SEEDS]
    assert any(one.startswith("found:") for one in found), found
