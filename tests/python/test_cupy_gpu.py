# SPDX-License-Identifier: Apache-2.0
"""millpond.cupy on a GPU. Each case is a process of its own; cupy_gpu_cases.py and
cupy_gpu_limit_cases.py have them."""

import pytest
from gpu_kit import gpu_of, run_case

LIMITS = ("exhaustion", "exhaustion_of_pinned", "exception_inside", "hooks", "gives_way", "graphs", "graphs_by_hand",
          "buffers")  # which cupy_gpu_limit_cases.py has
ROWS = [
    ("values", {}),
    ("values", {"MILLPOND_POOL": "arena.expandable=1"}),
    ("values", {"MILLPOND_POOL": "arena.use_cuda_mempool=1"}),
    ("nothing", {}),
    ("scopes", {}),
    ("streams_in_order", {}),
    ("streams_in_order", {"MILLPOND_POOL": "arena.expandable=1"}),
    ("dropped_elsewhere", {}),
    ("declared_use", {}),
    ("short_streams", {}),
    ("threads", {}),
    ("default_stream_of_threads", {"CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1"}),
    ("exhaustion", {}),
    ("exhaustion_of_pinned", {}),
    ("exception_inside", {}),
    ("hooks", {}),
    pytest.param("gives_way", {}, marks=pytest.mark.alone),
    ("graphs", {}),
    ("graphs_by_hand", {}),
    ("buffers", {}),
]


@pytest.fixture(scope="module", autouse=True)
def gpu():
    gpu_of("cupy")


@pytest.mark.parametrize(("case", "variables"), ROWS, ids=str)
def test_case(case, variables):
    run_case("cupy_gpu_limit_cases.py" if case in LIMITS else "cupy_gpu_cases.py", case, **variables)
