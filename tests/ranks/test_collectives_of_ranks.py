# SPDX-License-Identifier: Apache-2.0
"""AllReduce, AllGather and AllToAll between processes: values, islands, captured graphs, and what each rank is told
when another is missing, dies or does something else. The work itself is in tests/ep/rank_work.py."""

import ctypes

import provider
import pytest
import ranks

SIZE = 4
SHARED = {"MILLPOND_HOST_IPC": "1"}  # emulated devices whose ranks reach each other's memory
GPUS = sum(1 for device in provider.register() if not provider.is_emulated(device))


def test_every_operator_type_and_axis():
    ranks.run("rank_work:everything", SIZE)


def test_graphs_of_the_users():
    ranks.run("rank_work:captured", 2)


@pytest.mark.parametrize("work", ["everything", "sums_of_sizes", "captured", "replayed", "two_streams", "mismatched"])
def test_sums_by_the_kernel(work):
    ranks.run(f"rank_work:{work}", 2, **SHARED)


@pytest.mark.parametrize("ranks_direct", [SHARED, SHARED | {"MILLPOND_RANK_DIRECT": "0"}, {}])
def test_who_makes_the_sums(ranks_direct):
    """As the profile has it: the kernel where ranks reach each other's memory and want that."""
    wanted = "1" if ranks_direct == SHARED else "0"
    ranks.run("rank_work:says_who_sums", 2, RANK_WORK_KERNEL=wanted, **ranks_direct)


def test_sessions_that_onnx_runtime_makes():
    ranks.run("rank_work:other_ways", 2)


def test_shapes_and_operators_that_differ():
    ranks.run("rank_work:mismatched", SIZE)


def test_a_first_shape_that_differs():
    ranks.run("rank_work:mismatched_at_first", 2)


@pytest.mark.parametrize("shared", [{}, SHARED], ids=["by rank 0", "by the kernel"])
@pytest.mark.parametrize("mode", ["threaded", "adversarial:7"])
def test_queued_work(mode, shared):
    ranks.run("rank_work:queued", 2, MILLPOND_HOST=mode, **shared)


def test_a_rank_that_never_comes():
    ranks.run("rank_work:misses_rank_two", SIZE, left_out=[2], timeout_s=4)


@pytest.mark.parametrize("shared", [{}, SHARED], ids=["by rank 0", "by the kernel"])
def test_a_rank_that_is_killed(shared):
    ranks.run("rank_work:rank_one_is_killed", SIZE, dies=[1], **shared)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.parametrize("direct", [{}, {"MILLPOND_RANK_DIRECT": "0"}], ids=["by the kernel", "by NCCL"])
@pytest.mark.parametrize("work", ["everything", "sums_of_sizes", "replayed", "mismatched_at_first",
                                  "rank_one_is_killed"])
def test_on_gpus(work, direct):
    ranks.run(f"rank_work:{work}", 4 if GPUS >= 4 else 2, device="cuda", dies=[1] if "killed" in work else [], **direct)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_who_makes_the_sums_on_gpus():
    reach = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDeviceCanAccessPeer(ctypes.byref(reach), 0, 1)
    if reach.value == 0:
        pytest.skip("these GPUs do not reach each other's memory")
    ranks.run("rank_work:says_who_sums", 2, device="cuda", RANK_WORK_KERNEL="1")


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_streams_of_their_own_on_gpus():
    ranks.run("rank_work:two_streams", 2, device="cuda")
