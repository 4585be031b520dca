# SPDX-License-Identifier: Apache-2.0
"""ONNX's node tests for every operator that the EP registers; cases that are not covered are counted with reasons."""

import functools
from collections import Counter

import onnx_nodes
import pytest

LEFT_OUT = Counter()


@functools.cache
def covered():
    return list(_covered())


def _covered():
    for test in onnx_nodes.collect():
        model = onnx_nodes.restamped(test.model)
        reason = onnx_nodes.not_covered(test, model)
        if reason is None:
            yield pytest.param(test, model, id=test.name)
        else:
            LEFT_OUT[reason] += 1


def pytest_generate_tests(metafunc):
    if "node_test" in metafunc.fixturenames:
        metafunc.parametrize("node_test, model", covered())


def test_node(node_test, model, tally):
    tally("of ONNX's node tests left shape computation to the CPU", onnx_nodes.run(node_test, model))


def test_report(summary):
    """Says what was run and why the rest was not; the ten commonest reasons."""
    run = len(covered())
    total = run + sum(LEFT_OUT.values())
    reasons = ", ".join(f"{reason} {count}" for reason, count in LEFT_OUT.most_common(10))
    summary(
        f"ONNX node tests: {total} cases, {run} run, {sum(LEFT_OUT.values())} not covered ({reasons}, ...)"
    )
    assert total == len(onnx_nodes.collect())
