# SPDX-License-Identifier: Apache-2.0
"""AllReduce, AllGather and AllToAll between processes: values, islands, captured graphs, and what each rank is told
when another is missing, dies or does something else. The work itself is in tests/ep/rank_work.py."""

import provider
import pytest
import ranks

SIZE = 4
GPUS = sum(1 for device in provider.register() if not provider.is_emulated(device))


def test_every_operator_type_and_axis():
    ranks.run("rank_work:everything", SIZE)


def test_graphs_of_the_users():
    ranks.run("rank_work:captured", 2)


def test_sessions_that_onnx_runtime_makes():
    ranks.run("rank_work:other_ways", 2)


def test_shapes_and_operators_that_differ():
    ranks.run("rank_work:mismatched", SIZE)


def test_a_first_shape_that_differs():
    ranks.run("rank_work:mismatched_at_first", 2)


@pytest.mark.parametrize("mode", ["threaded", "adversarial:7"])
def test_queued_work(mode):
    ranks.run("rank_work:queued", 2, MILLPOND_HOST=mode)


def test_a_rank_that_never_comes():
    ranks.run("rank_work:misses_rank_two", SIZE, left_out=[2], timeout_s=4)


def test_a_rank_that_is_killed():
    ranks.run("rank_work:rank_one_is_killed", SIZE, dies=[1])


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.parametrize("work", ["everything", "mismatched_at_first", "rank_one_is_killed"])
def test_on_gpus(work):
    ranks.run(f"rank_work:{work}", 4 if GPUS >= 4 else 2, device="cuda", dies=[1] if "killed" in work else [])
