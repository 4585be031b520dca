# SPDX-License-Identifier: Apache-2.0
"""What islands keep on the device between runs: how much, and that it goes where memory is short."""

import concurrent.futures
import gc

import numpy as np
import onnxruntime as ort
import pool_c
import provider
import pytest
import small_models
from onnx import helper
from test_provider import child, finished

LARGE = 4000  # elements whose bytes a program keeps
KEPT = 4 * 4096  # bytes: rounded up to 256


def counting():
    """y = (exp(relu(x)) + 0, 1, 2, ...) * 2; the numbers are known from the shape, and kept on the device."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Size", ["x"], ["size"]), helper.make_node("Cast", ["size"], ["limit"], to=1),
        helper.make_node("Range", ["zero", "limit", "one"], ["numbers"]),
        helper.make_node("Add", ["b", "numbers"], ["c"]), helper.make_node("Add", ["c", "c"], ["y"]),
    ]
    constants = {"zero": np.float32(0), "one": np.float32(1)}
    return small_models.model(nodes, {"x": ["n"]}, {"y": ["n"]}, constants)


def session_of(**options):
    return provider.session(counting(), provider_options={key: str(value) for key, value in options.items()})


def check(session, count, value=0.0, config=()):
    options = ort.RunOptions()
    for key, text in config:
        options.add_run_config_entry(key, text)
    [y] = session.run(None, {"x": np.full(count, value, np.float32)}, options)
    want = 2 * (np.exp(np.float32(max(value, 0))) + np.arange(count, dtype=np.float32))
    np.testing.assert_allclose(y, want, rtol=1e-5)


def requested():
    gc.collect()
    return provider.pool_stats()["requested"]


@pytest.mark.parametrize("most", [1, 3])
def test_so_many_programs_are_kept(most):
    session = session_of(fusion_programs=most)
    before = requested()
    for round_ in range(3):
        for i in range(6):
            check(session, LARGE + i, round_)
            assert requested() - before <= most * KEPT
    assert requested() - before > (most - 1) * KEPT
    del session
    assert requested() <= before


@pytest.mark.parametrize("most", [0, 1, 40000, 100000])
def test_so_many_bytes_are_kept(most):
    """The program of the last run keeps its own, whatever it needs: its next run has it."""
    session = session_of(fusion_memory=most)
    before = requested()
    for round_ in range(3):
        for i in range(8):
            for value in range(1 + 3 * (i % 2)):  # a captured graph counts, too
                check(session, LARGE + i, value + round_)
            assert requested() - before <= most + KEPT


@pytest.mark.parametrize("mode", ["eager", "threaded", "adversarial:5"])
def test_what_is_kept_goes_before_a_request_fails(mode):
    done = child(
        """
        import ctypes, pool_c, test_island_limits as limits
        sessions = [limits.session_of() for _ in range(2)]
        before = provider.pool_stats()["requested"]
        def run_all():
            for round in range(4):
                for i, session in enumerate(sessions):
                    for count in range(5):
                        limits.check(session, limits.LARGE + count, i + round)
        for round in range(2):
            run_all()
            kept = provider.pool_stats()["requested"] - before
            assert kept >= 10 * limits.LARGE * 4, kept
            other, blocks = pool_c.Pool("other"), []
            pool_c.LIB.mp_limit_set(ctypes.c_size_t(provider.pool_stats()["total"]))
            try:
                while True:
                    blocks.append(other.alloc(8192))
            except RuntimeError as error:
                assert "memory" in str(error), error
            assert provider.pool_stats()["requested"] == before + 8192 * len(blocks)
            for block in blocks:
                other.free(block)
            pool_c.LIB.mp_limit_set(ctypes.c_size_t(0))
            run_all()
    """,
        MILLPOND_HOST=mode,
        MILLPOND_POOL="arena.check=1",
    )
    finished(done)


def test_what_is_kept_goes_when_the_session_is_to_be_efficient():
    session = session_of()
    before = requested()
    for value in range(4):
        for i in range(3):
            check(session, LARGE + i, value)
    assert requested() - before >= 3 * 4 * LARGE
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    assert requested() == before
    for value in range(4):
        for i in range(3):
            check(session, LARGE + i, value)


def test_many_sessions_at_once():
    """Each has a hook of its own on the one pool."""
    sessions = [session_of() for _ in range(20)]
    for value in range(2):
        for session in sessions:
            check(session, LARGE, value)


def test_runs_that_shrink_the_arena():
    """Regions go and come again while graphs have been captured with addresses in them."""
    session = session_of()
    shrink = [("memory.enable_memory_arena_shrinkage", "gpu:0")]
    for round_ in range(6):
        for count in (LARGE, 10 * LARGE, 300 * LARGE):
            check(session, count, round_, shrink if round_ % 2 else ())
            check(session, count, round_ + 0.5, shrink)


def test_threads_that_share_little_memory():
    """Each run finds what it kept gone, and what other threads need is left alone."""
    session = session_of(fusion_memory=0, fusion_programs=2)

    def work(seed):
        for i in range(30):
            check(session, LARGE + (seed + i) % 5, i % 3)

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_threads_and_hooks():
    """Another user runs out of memory again and again while threads run islands."""
    session = session_of()
    stop = concurrent.futures.Future()

    def work(seed):
        for i in range(40):
            check(session, LARGE + (seed + i) % 7, i % 3)

    def starve():
        other = pool_c.Pool("starving")
        failed = 0
        while not stop.done():
            try:
                other.free(other.alloc(1 << 46))
            except RuntimeError:
                failed += 1
        return failed

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        starving = pool.submit(starve)
        workers = [pool.submit(work, seed) for seed in range(4)]
        concurrent.futures.wait(workers)
        stop.set_result(None)
        for worker in workers:
            worker.result()
        assert starving.result() > 0


@pytest.mark.parametrize(("key", "value"), [("fusion_programs", "0"), ("fusion_programs", "5000"),
                                            ("fusion_memory", "-1")])
def test_wrong_values_are_refused(key, value):
    with pytest.raises(Exception, match=key):
        session_of(**{key: value})
