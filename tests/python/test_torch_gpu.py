# SPDX-License-Identifier: Apache-2.0
"""millpond.torch on a GPU, by both routes. Each case is a process of its own; torch_gpu_cases.py and
torch_gpu_graph_cases.py have them."""

import pytest
from gpu_kit import gpu_of, run_case

EXPANDABLE = {"MILLPOND_POOL": "arena.expandable=1"}
BOTH = ("values", "nothing", "record_stream", "record_use", "streams_in_order", "exhaustion", "exhaustion_in_backward",
        "empty_cache", "graphs", "threads", "buffers", "cupy_and_back")
GRAPHS = ("graphs", "failed_capture", "graphed_callables", "late", "gives_way", "all_threads", "buffers",
          "cupy_and_back")  # and what else torch_gpu_graph_cases.py has
ROWS = [
    *[("process", case, {}) for case in BOTH],
    *[("part", case, {}) for case in BOTH],
    *[("process", case, EXPANDABLE) for case in ("values", "record_stream", "graphs")],
    ("all", "values", {}),
    ("all", "threads", {}),
    ("process", "statistics", {}),
    ("process", "fraction", {}),
    ("process", "failed_capture", {}),
    ("process", "graphed_callables", {}),
    ("none", "graphed_callables", {}),  # what PyTorch does by itself
    ("none", "late", {}),
    pytest.param("none", "gives_way", {}, marks=pytest.mark.alone),
    ("none", "all_threads", {}),
]


@pytest.fixture(scope="module", autouse=True)
def gpu():
    gpu_of("torch")


@pytest.mark.parametrize(("route", "case", "variables"), ROWS, ids=str)
def test_case(route, case, variables):
    if case == "cupy_and_back":
        gpu_of("cupy")
    script = "torch_gpu_graph_cases.py" if case in GRAPHS else "torch_gpu_cases.py"
    run_case(script, route, case, **variables)
