# SPDX-License-Identifier: Apache-2.0
"""Random graphs with each pass left out in turn: the others must not need what it makes."""

import passes
import pytest
import random_graphs


@pytest.mark.parametrize("left_out", passes.NAMES)
def test_graphs_without_a_pass(left_out, monkeypatch, request):
    count = max(1, request.config.getoption("--graphs") // 20)
    first = 10_000 + 100 * passes.NAMES.index(left_out)
    monkeypatch.setenv("MILLPOND_PASSES", f"-{left_out}")
    fault = next(filter(None, map(random_graphs.compare, range(first, first + count))), None)
    assert fault is None, fault
