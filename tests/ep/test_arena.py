# SPDX-License-Identifier: Apache-2.0
"""The pool as ONNX Runtime's users have it: the arena's options, statistics, shared allocators, sharing, life times.

Each test is a process of its own, since a pool keeps the options of the first who opens it. Most use the C API, whose
library only newer wheels carry.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import needs
import provider
import pytest

TESTS = Path(__file__).resolve().parents[1]
CAPI = Path(importlib.util.find_spec("onnxruntime").origin).parent / "capi"
ORT_C_LIBRARY = next(iter(sorted(CAPI.glob("libonnxruntime.so.1*"))), None)
POOL_LIBRARY = "libmillpond.so.0"

COMMON_START = """
import ctypes, gc, sys, threading
import numpy as np
import pool_c, small_models
from onnx import helper
MIB = 1 << 20
def sums(length=1):
    '''y = (x + x) * 2 ...; any number of elements'''
    names = ["x"] + [f"t{i}" for i in range(length - 1)] + ["y"]
    nodes = [helper.make_node("Add", [a, a], [b], name=f"add{b}") for a, b in zip(names, names[1:])]
    return small_models.model(nodes, {"x": ["n"]}, {"y": ["n"]})
"""
C_START = """
import ort_c
from ort_c import DEFAULT, PINNED, PREFIX, Environment, OrtError
def refused(action, *words, code=None):
    try:
        action()
    except OrtError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        assert code is None or error.code == code, (error.code, str(error))
        return
    raise AssertionError("it was not refused")
def check(session, count, value=1.0, factor=2, **more):
    result = session.run(np.full(count, value), **more)
    assert result.shape == (count,) and np.all(result == factor * value), result
"""
PYTHON_START = """
import onnxruntime as ort
import provider
"""


def run_child(code, environment):
    paths = [str(TESTS / "ep"), str(TESTS.parent / "demo")]
    env = {
        **os.environ,
        "MILLPOND_EP_LIBRARY": str(provider.library_path()),
        "ORT_C_LIBRARY": str(ORT_C_LIBRARY),
        "MILLPOND_PASSES": "-cluster",  # chains of Add are there for the memory between them
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        **environment,
    }
    for name in {"MILLPOND_POOL", "MILLPOND_LIMIT"} - set(environment):
        env.pop(name, None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def c_child(code, **environment):
    """Runs code over ONNX Runtime's C API; gives what it wrote to stderr."""
    if ORT_C_LIBRARY is None:
        needs.missing(f"this wheel has no C library in {CAPI}")
    return run_child(textwrap.dedent(COMMON_START) + C_START + textwrap.dedent(code), environment).stderr


def python_child(code, **environment):
    return run_child(textwrap.dedent(COMMON_START) + PYTHON_START + textwrap.dedent(code), environment).stderr


# ---- the default arena ----


def test_statistics_have_all_names_and_begin_at_zero():
    c_child("""
        names = ("Limit InUse TotalAllocated MaxInUse NumAllocs NumReserves NumArenaExtensions NumArenaShrinkages "
                 "MaxAllocSize RequestedInUse").split()
        environment = Environment()
        for kind in (DEFAULT, PINNED):
            stats = environment.shared(kind).stats()
            assert sorted(stats) == sorted(names)
            assert stats.pop("Limit") == -1
            assert not any(stats.values()), stats
    """)


@pytest.mark.parametrize("kind", ["DEFAULT", "PINNED"])
def test_arena_extends_and_reuses_as_documented(kind):
    c_child(f"""
        arena = Environment().shared({kind})
        first = arena.alloc(1000)
        stats = arena.stats()
        assert stats["TotalAllocated"] == 1 * MIB and stats["NumArenaExtensions"] == 1
        assert stats["NumAllocs"] == 1 and stats["MaxAllocSize"] == stats["RequestedInUse"] == 1000
        assert stats["InUse"] == stats["MaxInUse"] == 1024  # whole units of 256 bytes
        second = arena.alloc(5000)
        assert second == first + 1024  # cut from what is left of the same chunk
        assert arena.stats()["InUse"] == 1024 + 5120
        arena.free(first)
        assert arena.alloc(1000) == first
        large = arena.alloc(3 * MIB)  # 2 MiB are next; doubled to fit
        assert arena.stats()["TotalAllocated"] == 5 * MIB and arena.stats()["NumArenaExtensions"] == 2
        larger = arena.alloc(4 * MIB)  # 4 MiB again, since the last had to be doubled
        assert arena.stats()["TotalAllocated"] == 9 * MIB
        next_one = arena.alloc(2 * MIB)
        assert arena.stats()["TotalAllocated"] == 17 * MIB and arena.stats()["NumArenaExtensions"] == 4
        for block in (first, second, large, larger, next_one):
            assert block % 256 == 0
            arena.free(block)
        stats = arena.stats()
        assert stats["InUse"] == stats["RequestedInUse"] == 0 and stats["TotalAllocated"] == 17 * MIB
        assert stats["NumAllocs"] == 6 and stats["MaxAllocSize"] == 4 * MIB
        assert arena.alloc(8 * MIB) == next_one  # split chunks have become one again
    """)


def test_runs_reuse_what_runs_before_them_had():
    c_child("""
        environment = Environment()
        arena, session = environment.shared(), environment.session(sums(4))
        for _ in range(2):  # ORT plans one block for all that is between after the first
            check(session, 1 << 16, factor=16)
        before = arena.stats()
        assert before["NumArenaExtensions"] >= 1
        for i in range(20):
            check(session, (1 << 16) - 100 * i, value=i, factor=16)
        after = arena.stats()
        for name in ("TotalAllocated", "NumArenaExtensions", "InUse", "MaxInUse"):
            assert after[name] == before[name], (name, before, after)
        assert after["NumAllocs"] > before["NumAllocs"]
        session.close()
        assert arena.stats()["InUse"] == 0
    """)


def test_shrink_gives_back_whole_regions_and_starts_growth_anew():
    c_child("""
        arena = Environment().shared()
        blocks = [arena.alloc(MIB), arena.alloc(2 * MIB), arena.alloc(4 * MIB)]
        total = arena.stats()["TotalAllocated"]
        arena.shrink()
        assert arena.stats()["TotalAllocated"] == total == 7 * MIB  # every region is in use
        arena.free(blocks[1])
        arena.shrink()
        assert arena.stats()["TotalAllocated"] == 5 * MIB and arena.stats()["NumArenaShrinkages"] == 1
        assert arena.stats()["NumArenaExtensions"] == 2  # those that are still there
        arena.free(blocks[0])
        arena.free(blocks[2])
        arena.shrink()
        assert arena.stats()["TotalAllocated"] == 0 and arena.stats()["NumArenaShrinkages"] == 3
        assert arena.stats()["NumArenaExtensions"] == 0
        arena.free(arena.alloc(100))
        assert arena.stats()["TotalAllocated"] == 2 * MIB  # arena.initial_growth_chunk_size_bytes
    """)


def test_statistics_mean_what_those_of_onnxruntimes_own_arena_mean():
    """The same requests to both; only MaxAllocSize differs: as requested here, rounded there."""
    c_child("""
        environment = Environment()
        session = environment.session(sums(3))
        host = ort_c.made(ort_c.API.CreateCpuMemoryInfo, ort_c.ARENA_ALLOCATOR, 0)
        theirs = ort_c.Allocator(ort_c.made(ort_c.API.CreateAllocator, session.address, host))
        ours = environment.shared()
        shrink = {"memory.enable_memory_arena_shrinkage": "gpu:0;cpu:0"}
        def both(action):
            return [action(each) for each in (ours, theirs)]
        def compare(*left_out):
            mine, other = both(lambda each: each.stats())
            assert mine.keys() >= other.keys()  # RequestedInUse is younger than ONNX Runtime 1.26
            for name in other.keys() - set(left_out):
                assert mine[name] == other[name], (name, mine, other)
        compare()
        assert ours.stats()["Limit"] == -1
        small = both(lambda each: each.alloc(1000))
        large = both(lambda each: each.alloc(3 * MIB))
        compare("MaxAllocSize")
        assert (ours.stats()["MaxAllocSize"], theirs.stats()["MaxAllocSize"]) == (3 * MIB, 4 * MIB)
        apart = both(lambda each: each.reserve(5 * MIB))
        compare("MaxAllocSize")
        for each, block in zip((ours, theirs), large):
            each.free(block)
        compare("MaxAllocSize")
        check(session, 100, factor=8, config=shrink)
        requests = ("NumAllocs", "MaxInUse")  # which the run has made, too
        compare("MaxAllocSize", *requests)
        assert ours.stats()["NumArenaExtensions"] == 1 and ours.stats()["NumArenaShrinkages"] == 1
        for each, block, other in zip((ours, theirs), small, apart):
            each.free(block)
            each.free(other)
        compare("MaxAllocSize", *requests)
    """)


def test_run_option_shrinks_the_arena():
    c_child("""
        environment = Environment()
        arena, session = environment.shared(), environment.session(sums(3))
        shrink = {"memory.enable_memory_arena_shrinkage": "gpu:0"}
        check(session, 4 * MIB, factor=8)
        large = arena.stats()["TotalAllocated"]
        assert large >= 32 * MIB
        check(session, 100, factor=8)
        assert arena.stats()["TotalAllocated"] == large
        for i in range(3):
            check(session, 100, value=i, factor=8, config=shrink)
            assert arena.stats()["TotalAllocated"] <= 2 * MIB
        assert arena.stats()["NumArenaShrinkages"] >= 3
        check(session, 4 * MIB, factor=8)
        refused(lambda: session.run([1], config={"memory.enable_memory_arena_shrinkage": "gpu:77"}), "gpu:77")
    """)


def test_reserve_stays_outside_the_arena():
    c_child("""
        arena = Environment().shared()
        block = arena.reserve(5 * MIB + 1)
        stats = arena.stats()
        assert stats["NumReserves"] == 1 and stats["NumArenaExtensions"] == 0
        assert 5 * MIB < stats["TotalAllocated"] < 6 * MIB
        arena.shrink()
        assert arena.stats()["TotalAllocated"] == stats["TotalAllocated"]
        arena.free(block)
        assert arena.stats()["TotalAllocated"] == arena.stats()["InUse"] == 0
    """)


@pytest.mark.parametrize("config", [{}, {"session.use_device_allocator_for_initializers": "1"},
                                    {"session.use_env_allocators": "1"}])
def test_initializers_stay_outside_the_arena(config):
    """By the allocator for initializers, without Reserve being asked for."""
    c_child(f"""
        environment = Environment()
        session = environment.session(small_models.add_chain(3, MIB), config={config!r})
        arena = environment.shared()
        stats = arena.stats()
        assert stats["NumReserves"] == 1 and stats["NumArenaExtensions"] == 0, stats
        assert stats["InUse"] == stats["TotalAllocated"] == 4 * MIB, stats  # the ones that are added
        result = session.run(np.full(MIB, 5))
        assert np.all(result == 8)
        assert arena.stats()["NumArenaExtensions"] > 0
        arena.shrink()
        assert arena.stats()["TotalAllocated"] == 4 * MIB  # the arena is empty, the weights are there
        result = session.run(np.full(MIB, 5), config={{"memory.enable_memory_arena_shrinkage": "gpu:0"}})
        assert np.all(result == 8)
        session.close()
        assert arena.stats()["InUse"] == 0
    """)


def shared_constants():
    """Two islands, with a node between them that is in neither, read one large and one small constant."""
    return """
def shared():
    big, small = np.arange(MIB, dtype=np.float32), np.full(MIB, 3, np.float32)[:1000]
    nodes = [helper.make_node("Add", ["x", "big"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Slice", ["small", "begin", "end"], ["s"]), helper.make_node("Mul", ["b", "s"], ["c"]),
             helper.make_node("NonZero", ["c"], ["which"]), helper.make_node("Cast", ["which"], ["w"], to=1),
             helper.make_node("ReduceMax", ["w"], ["m"], keepdims=1), helper.make_node("Add", ["big", "m"], ["d"]),
             helper.make_node("Mul", ["d", "big"], ["e"]), helper.make_node("Slice", ["small", "begin", "end"], ["t"]),
             helper.make_node("Add", ["e", "t"], ["y"])]
    constants = {"big": big, "small": small, "begin": np.array([0]), "end": np.array([1])}
    return small_models.model(nodes, {"x": [MIB]}, {"y": [1, MIB]}, constants), big
"""


def test_islands_share_the_constants_that_they_have_in_common():
    c_child(shared_constants() + """
environment = Environment()
made, big = shared()
session = environment.session(made)
arena = environment.shared()
stats = arena.stats()
assert stats["NumArenaExtensions"] == 0 and stats["NumReserves"] == 1, stats
assert 4 * MIB < stats["InUse"] < 4 * MIB + 16384, stats
for value in range(4):
    x = np.full(MIB, value, np.float32)
    result = session.run(x)
    np.testing.assert_allclose(result.ravel(), (big + MIB - 1) * big + 3, rtol=1e-6)
session.close()
assert arena.stats()["InUse"] == 0
""", MILLPOND_FUSION="1")


@pytest.mark.parametrize("other", [0, 1])
def test_bodies_share_constants_of_one_name_where_they_are_equal(other):
    """Each body is compiled by itself, when the memory of the other's constant may be used for something else."""
    c_child(f"""
        from onnx import TensorProto, numpy_helper
        info = helper.make_tensor_value_info
        def body(name, last):
            weight = np.arange(MIB, dtype=np.float32)
            weight[-1] += last
            nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "w"], [name])]
            return helper.make_graph(nodes, name, [], [info(name, TensorProto.FLOAT, [MIB])],
                                     [numpy_helper.from_array(weight, "w")]), weight
        (yes, w), (no, v) = body("yes", 0), body("no", {other})
        nodes = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
                 helper.make_node("Greater", ["most", "zero"], ["which"]),
                 helper.make_node("If", ["which"], ["y"], then_branch=yes, else_branch=no)]
        made = small_models.model(nodes, {{"x": [MIB]}}, {{"y": [MIB]}}, {{"zero": np.float32(0)}})
        environment = Environment()
        session = environment.session(made)
        weights = environment.shared().stats()["InUse"]
        assert {1 + other} * 4 * MIB <= weights < {1 + other} * 4 * MIB + 4096, weights
        for i in range(4):
            for x, weight in ((1, w), (-1, v)):
                np.testing.assert_array_equal(session.run(np.full(MIB, x)), (np.float32(x) + weight) * weight)
        session.close()
        assert environment.shared().stats()["InUse"] == 0
    """, MILLPOND_FUSION="1")  # fmt: skip


def test_weights_of_islands_count_towards_the_limit():
    c_child("""
        environment = Environment()
        refused(lambda: environment.session(small_models.add_chain(3, MIB), {"arena.max_mem": "3M"}),
                "4194304 bytes", "arena.max_mem")
        assert environment.shared().stats()["InUse"] == 0
    """, MILLPOND_FUSION="1")  # fmt: skip


@pytest.mark.parametrize("limit", ["3M", "8M"])
def test_where_memory_is_short_weights_stay_as_they_are(limit):
    """To bring a weight of 2 MiB into another form takes it twice, for a while."""
    c_child(f"""
        import test_prepared
        made = test_prepared.quantized_lstm(128, 4096)
        environment = Environment()
        session = environment.session(made, {{"arena.max_mem": {limit!r}}})
        stats = environment.shared().stats()
        assert 2 * MIB < stats["InUse"] < 2 * MIB + 100000, stats
        assert (stats["MaxInUse"] > 4 * MIB) == ({limit!r} == "8M"), stats
        session.close()
        assert environment.shared().stats()["InUse"] == 0
    """, MILLPOND_FUSION="2")  # fmt: skip


# ---- options ----


def test_options_of_a_shared_allocator_take_effect():
    c_child("""
        environment = Environment()
        arena = environment.replace_shared({"arena.extend_strategy": 1})
        arena.alloc(3 * MIB)
        assert arena.stats()["TotalAllocated"] == 3 * MIB
        arena = environment.replace_shared({"arena.extend_strategy": "kSameAsRequested"}, PINNED)
        arena.alloc(300 * 256)
        assert arena.stats()["TotalAllocated"] == 300 * 256
    """)
    c_child("""
        environment = Environment()
        arena = environment.replace_shared({"arena.initial_chunk_size_bytes": 64 << 10})
        block = arena.alloc(100)
        assert arena.stats()["TotalAllocated"] == 64 << 10
        arena.free(block)
        arena = environment.replace_shared({"arena.initial_growth_chunk_size_bytes": 128 << 10})
        arena.free(arena.alloc(100))
        assert arena.stats()["TotalAllocated"] == MIB
        arena.shrink()
        arena.free(arena.alloc(100))
        assert arena.stats()["TotalAllocated"] == 128 << 10
        arena = environment.replace_shared({"arena.max_power_of_two_extend_bytes": 2 * MIB})
        blocks = [arena.alloc(MIB + i) for i in range(4)]
        assert arena.stats()["TotalAllocated"] == (1 + 2 + 2 + 2) * MIB
    """)


def test_dead_bytes_decide_when_a_chunk_is_cut():
    c_child("""
        environment = Environment()
        arena = environment.shared()
        block = arena.alloc(600 << 10)  # more than half of the chunk, and less than 128 MiB are left
        assert arena.stats()["InUse"] == MIB and arena.stats()["RequestedInUse"] == 600 << 10
        arena.free(block)
        arena = environment.replace_shared({"arena.max_dead_bytes_per_chunk": 1000})
        block = arena.alloc(600 << 10)
        assert arena.stats()["InUse"] == 600 << 10
        arena.alloc(400 << 10)
        assert arena.stats()["NumArenaExtensions"] == 1
    """)


BAD = [
    ("arena.max_mem", "-1"),
    ("arena.max_mem", "lots"),
    ("arena.initial_chunk_size_bytes", "0"),
    ("arena.initial_growth_chunk_size_bytes", "1e6"),
    ("arena.max_dead_bytes_per_chunk", "-5"),
    ("arena.max_power_of_two_extend_bytes", ""),
    ("arena.extend_strategy", "2"),
    ("arena.use_cuda_mempool", "perhaps"),
    ("arena.cuda_mempool_release_threshold", "-1"),
    ("arena.cuda_mempool_bytes_to_keep_on_shrink", "x"),
    ("arena.max_memory", "5"),
]


def test_malformed_options_are_refused_by_name():
    """By a shared allocator, and by the first and a later session; what works goes on working."""
    c_child(f"""
        environment = Environment()
        session = environment.session(sums())
        for key, value in {BAD!r}:
            refused(lambda: environment.replace_shared({{key: value}}), key, code=ort_c.INVALID_ARGUMENT)
            refused(lambda: environment.session(sums(), {{key: value}}), key, "INVALID_ARGUMENT")
            check(session, 1000)
        environment.replace_shared({{}}).alloc(5)
        session.close()
    """)


def test_malformed_options_of_the_environment_are_refused():
    c_child("""
        environment = Environment({"ep_factory.CudaPluginExecutionProvider.arena.max_mem": "-1"}, register=False)
        refused(environment.register, "arena.max_mem", "-1")
    """)


@pytest.mark.parametrize("prefix", ["ep_factory.CudaPluginExecutionProvider.",
                                    "EP_Factory.cudapluginexecutionprovider."])
def test_options_of_the_environment_take_effect(prefix):
    text = c_child(f"""
        prefix = {prefix!r}
        environment = Environment({{
            prefix + "arena.extend_strategy": 1, prefix + "arena.max_mem": 4 * MIB,
            "ep_factory.OtherExecutionProvider.arena.max_mem": "lots",
        }})
        arena = environment.shared()
        assert arena.stats()["Limit"] == environment.shared(PINNED).stats()["Limit"] == 4 * MIB
        arena.free(arena.alloc(3 * MIB))
        assert arena.stats()["TotalAllocated"] == 3 * MIB
        session = environment.session(sums())
        check(session, 1000)
        refused(lambda: session.run(np.zeros(8 * MIB)))
        check(session, 1000)
        session.close()
    """)
    assert "stays" not in text, "the environment's own options differ from nobody's"


def test_options_of_the_process_take_effect():
    text = c_child("""
        environment = Environment()
        assert environment.shared().stats()["Limit"] == 8 * MIB
        environment.session(sums()).close()
        environment.session(sums(), {"arena.max_mem": "8M"}).close()
    """, MILLPOND_POOL="arena.max_mem=8M")  # fmt: skip
    assert "stays" not in text


def test_session_options_make_the_arena_where_nobody_has():
    text = c_child("""
        environment = Environment()
        environment.release_shared()
        environment.release_shared(PINNED)
        assert environment.shared() is None
        options = {"arena.max_mem": "4M", "arena.extend_strategy": "1"}
        session = environment.session(sums(), options, {PREFIX + "arena.max_dead_bytes_per_chunk": "512"})
        check(session, 1000)
        stats = session.stats()
        assert stats["Limit"] == 4 * MIB and stats["TotalAllocated"] < MIB
        print("next", file=sys.stderr)
        same = environment.session(sums(), {"arena.max_dead_bytes_per_chunk": "512", **options})
        plain = environment.session(sums())
        print("other", file=sys.stderr)
        other = environment.session(sums(), {"arena.max_dead_bytes_per_chunk": "512", **options, "arena.max_mem": "9M"})
        for session in (same, plain, other):
            check(session, 1000)
            assert session.stats()["Limit"] == 4 * MIB
    """)
    _, same, other = text.replace("other\n", "next\n").split("next\n")
    assert "stays" not in same, "options that do not differ, and none, are no reason to warn"
    assert "arena.max_mem" in other and "stays" in other


PREFIXES = ["PREFIX", "'ep.cuda.'", "'EP.Cuda.'"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_options_of_the_first_session_take_effect(prefix):
    """For both kinds of memory, though ONNX Runtime asks for its allocators when the library is registered."""
    text = c_child(f"""
        environment = Environment()
        arena, pinned = environment.shared(), environment.shared(PINNED)
        prefix = {prefix}
        session = environment.session(sums(), config={{prefix + "arena.max_mem": "1M",
                                                       prefix + "arena.extend_strategy": "1"}})
        for stats in (arena.stats(), pinned.stats(), session.stats(), session.stats(PINNED)):
            assert stats["Limit"] == MIB
        check(session, 1000)
        assert 0 < arena.stats()["TotalAllocated"] < MIB // 4  # as requested, not by regions of 1 MiB
        refused(lambda: session.run(np.zeros(MIB)))
        check(session, 1000)
        session.close()
        assert arena.stats()["Limit"] == MIB and arena.stats()["TotalAllocated"] > 0  # kept for the next session
        session = environment.session(sums())
        refused(lambda: session.run(np.zeros(MIB)))
    """)
    assert "stays" not in text


def test_own_prefix_wins():
    c_child("""
        both = {"ep.cuda.arena.max_mem": "3M", PREFIX + "arena.max_mem": "2M"}
        session = Environment().session(sums(), config=both)
        assert session.stats()["Limit"] == 2 * MIB
    """)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_mempool_mode_by_the_first_sessions_options(prefix):
    text = c_child(f"""
        environment = Environment()
        session = environment.session(sums(3), config={{{prefix} + "arena.use_cuda_mempool": "1"}})
        check(session, MIB, factor=8)
        stats = session.stats()
        assert stats["NumArenaExtensions"] == 0 and stats["MaxInUse"] >= 8 * MIB  # it is no arena
        assert environment.shared().stats()["NumAllocs"] == stats["NumAllocs"]
    """)
    assert "use_cuda_mempool" not in text
    text = c_child(f"""
        session = Environment().session(sums(3), config={{{prefix} + "arena.use_cuda_mempool": "1"}})
        check(session, MIB, factor=8)
        assert session.stats()["NumArenaExtensions"] > 0
    """, MILLPOND_DEVICE="host", MILLPOND_HOST_MEMPOOLS="0")  # fmt: skip
    assert "use_cuda_mempool" in text, "the driver's pool was not even asked for"


@pytest.mark.parametrize("first", ["environment.shared().free(environment.shared().alloc(100))",
                                   "environment.session(sums())", "environment.shared().stats()",
                                   "mine = pool_c.Pool('mine')"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_sessions_options_that_come_too_late_give_a_warning(first, prefix):
    text = c_child(f"""
        environment = Environment()
        before = {first.removeprefix("mine = ")}
        session = environment.session(sums(), config={{{prefix} + "arena.max_mem": "1M"}})
        assert environment.shared().stats()["Limit"] == session.stats()["Limit"] == -1
        check(session, MIB)
    """)
    assert text.count("device memory of device 0 is in use already with arena.max_mem=0, which stays, not 1048576") == 1


def test_a_program_after_the_registration_decides_the_options():
    text = c_child("""
        environment = Environment()
        mine = pool_c.Pool("mine", options=["arena.max_mem=8M"])
        session = environment.session(sums())
        assert session.stats()["Limit"] == environment.shared().stats()["Limit"] == 8 * MIB
    """)
    assert "stays" not in text


def test_a_sessions_entry_without_a_prefix_gives_a_warning():
    text = c_child("""
        session = Environment().session(sums(), config={"arena.max_mem": "1M"})
        assert session.stats()["Limit"] == -1
    """)
    assert "'arena.max_mem' is ignored; write ep.cuda.arena.max_mem" in text


def test_sessions_options_come_on_top_of_the_environments():
    text = c_child("""
        environment = Environment({"ep_factory.CudaPluginExecutionProvider.arena.max_mem": "8M"})
        def say(what):
            print(what, file=sys.stderr, flush=True)
        first = environment.session(sums(), {"arena.extend_strategy": "1"})
        check(first, 1000)
        assert first.stats()["Limit"] == 8 * MIB and first.stats()["TotalAllocated"] < MIB // 4
        environment.session(sums())
        environment.session(sums(), {"arena.extend_strategy": "1"})
        environment.session(sums(), {"arena.max_mem": "8M"})
        for value in ("1G", "1G", "2G"):
            say("next")
            environment.session(sums(), {"arena.max_mem": value})
        say("next")
        environment.session(sums())
    """)
    quiet, first, again, other, last = text.split("next\n")
    assert "stays" not in quiet + again + last
    assert first.count("device memory of device 0 is in use already with arena.max_mem=8388608, which stays, "
                       "not 1073741824") == 1
    assert other.count("arena.max_mem=8388608, which stays, not 2147483648") == 2  # and of pinned memory


def test_an_allocator_that_cannot_have_its_pool_says_why():
    """One sentence in the log and no memory, each time; and memory once there can be a pool."""
    text = c_child("""
        arena = Environment().shared()
        others = [pool_c.Pool(f"client {i}") for i in range(32)]
        for _ in range(2):
            assert arena.table.Alloc(arena.address, 1000) is None
            assert arena.table.AllocOnStream(arena.address, 1000, None) is None
            assert arena.reserve(1000) is None
        refused(arena.stats, "32 clients")
        refused(arena.shrink, "32 clients")
        for each in others:
            each.close()
        block = arena.alloc(1000)
        assert block and arena.stats()["NumAllocs"] == 1
        arena.free(block)
    """)
    assert text.count("a pool distinguishes 32 clients; 'onnxruntime' is one too many") == 6


def test_shared_allocator_is_replaced_while_nobody_uses_its_pool():
    text = c_child("""
        environment = Environment()
        session = environment.session(sums())
        check(session, 1000)
        session.close()
        arena = environment.replace_shared({"arena.max_mem": "4M"})
        assert arena.address == environment.shared().address
        stats = arena.stats()
        assert stats.pop("Limit") == 4 * MIB and not any(stats.values())  # a new pool
        assert environment.shared(PINNED).stats()["Limit"] == -1
        session = environment.session(sums())
        assert session.stats()["Limit"] == 4 * MIB
        check(session, 1000)
        refused(lambda: session.run(np.zeros(8 * MIB)))
        check(session, 1000)
    """)
    assert "stays" not in text


def test_shared_allocator_cannot_be_replaced_under_a_session():
    """The session's memory stays what it was, and so does the pool."""
    text = c_child("""
        environment = Environment()
        session = environment.session(sums())
        value = session.run_on_device(np.full(1000, 3))
        arena = environment.replace_shared({"arena.max_mem": "4M"})
        assert arena.stats()["Limit"] == -1
        check(session, 8 * MIB)
        ort_c.API.ReleaseValue(value)
        session.close()
        assert arena.stats()["InUse"] == 0
        assert environment.replace_shared({"arena.max_mem": "4M"}).stats()["Limit"] == 4 * MIB
    """)
    assert "arena.max_mem" in text and "stays" in text


def test_releasing_shared_allocators_leaves_those_of_sessions():
    c_child("""
        environment = Environment()
        session, other = environment.session(sums()), environment.session(sums())
        environment.release_shared()
        environment.release_shared(PINNED)
        assert environment.shared() is None and environment.shared(PINNED) is None
        check(session, 1000)
        session.close()
        check(other, 1000)
        environment.replace_shared().alloc(100)
        other.close()
        assert environment.shared().stats()["NumAllocs"] >= 5  # it joined the pool of the sessions
    """)


def test_allocators_are_device_allocators():
    c_child("""
        environment = Environment()
        assert environment.shared().info() == ("Cuda", ort_c.DEVICE_ALLOCATOR)
        assert environment.shared(PINNED).info() == ("CudaPinned", ort_c.DEVICE_ALLOCATOR)
        refused(lambda: environment.replace_shared({}, allocator=ort_c.ARENA_ALLOCATOR), "OrtArenaAllocator")
        arena = environment.replace_shared({"arena.use_cuda_mempool": 1})
        assert arena.info() == ("Cuda", ort_c.DEVICE_ALLOCATOR)
    """)


def test_sessions_use_the_allocators_of_the_environment():
    c_child("""
        environment = Environment()
        arena = environment.replace_shared({"arena.max_mem": "16M"})
        session = environment.session(sums(2), config={"session.use_env_allocators": "1"})
        for i in range(5):
            before = arena.stats()
            check(session, 1000 * (i + 1), value=i, factor=4)
            after = arena.stats()
            assert after["NumAllocs"] > before["NumAllocs"] and after["InUse"] == 0
        refused(lambda: session.run(np.zeros(8 * MIB)))
        check(session, 1000, factor=4)
        session.close()
    """)


# ---- memory that runs out ----


def test_limit_makes_one_run_fail_and_the_next_smaller_one_work():
    text = c_child("""
        environment = Environment()
        arena = environment.replace_shared({"arena.max_mem": 16 * MIB})
        branches = [f"b{i}" for i in range(6)]
        nodes = [helper.make_node("LeakyRelu", ["x"], [name], alpha=i / 8) for i, name in enumerate(branches)]
        nodes += [helper.make_node("Sum", branches, ["y"])]  # all are alive at once
        session = environment.session(small_models.model(nodes, {"x": ["n"]}, {"y": ["n"]}))
        for i in range(3):
            check(session, 4 << 10, factor=6)
            refused(lambda: session.run(np.ones(MIB)))  # the third tensor of 4 MiB or so is too many
            assert arena.stats()["InUse"] == 0 and arena.stats()["TotalAllocated"] <= 16 * MIB
            refused(lambda: session.run(np.ones(5 * MIB)))  # not even the first
            check(session, 64 << 10, factor=6)
            assert arena.stats()["InUse"] == 0
    """)
    assert "arena.max_mem (16777216 bytes)" in text
    assert "4194304 bytes" in text and "onnxruntime" in text, "the log says how much was asked for and who has what"


def test_limit_of_the_process_holds_for_all_users_together():
    text = c_child("""
        environment = Environment()
        mine, session = pool_c.Pool("mine"), environment.session(sums())
        block = mine.reserve(4 * MIB)
        check(session, 1000)
        refused(lambda: session.run(np.zeros(MIB)))
        mine.free(block)
        check(session, MIB // 2)
        session.close()
    """, MILLPOND_LIMIT="6M")  # fmt: skip
    assert "MILLPOND_LIMIT" in text and "mine 4194304" in text


# ---- the driver's own pool ----

MEMPOOL_RUN = """
environment = Environment()
options = {"arena.use_cuda_mempool": 1, "arena.cuda_mempool_release_threshold": 512 * MIB,
           "arena.cuda_mempool_bytes_to_keep_on_shrink": KEPT}
arena = environment.replace_shared(options)
session = environment.session(sums(4), config={"session.use_device_allocator_for_initializers": "1"})
for count in (100, MIB, 5000, 2 * MIB):
    check(session, count, value=count % 7, factor=16)
stats = arena.stats()
assert stats["InUse"] == 0 and stats["NumAllocs"] >= 12 and stats["MaxAllocSize"] >= 8 * MIB, stats
assert stats["Limit"] == -1 and stats["MaxInUse"] >= 16 * MIB, stats
"""


@pytest.mark.parametrize("kept", [0, 16])
def test_mempool_mode_runs_and_trims(kept):
    text = c_child(f"KEPT = {kept} * MIB\n" + MEMPOOL_RUN + """
assert stats["NumArenaExtensions"] == 0  # it is no arena
arena.free(arena.alloc(96 * MIB))
held = arena.stats()["TotalAllocated"]
assert held >= 96 * MIB  # kept by the release threshold
check(session, 100, factor=16, config={"memory.enable_memory_arena_shrinkage": "gpu:0"})
left = arena.stats()["TotalAllocated"]
assert left < held and left <= KEPT + 33 * MIB, (held, left)  # the driver keeps whole blocks
block = arena.alloc(3 * MIB)
assert arena.stats()["InUse"] >= 3 * MIB and arena.stats()["TotalAllocated"] >= 3 * MIB
arena.free(block)
session.close()
environment.release_shared()
""")  # fmt: skip
    assert "use_cuda_mempool" not in text, text


def test_mempool_mode_falls_back_to_the_arena_with_a_warning():
    text = c_child("KEPT = 0\n" + MEMPOOL_RUN + """
assert stats["NumArenaExtensions"] >= 1
session.close()
""", MILLPOND_DEVICE="host", MILLPOND_HOST_MEMPOOLS="0")  # fmt: skip
    assert text.count("arena.use_cuda_mempool: ") == 1
    assert "uses its own arena instead" in text


def test_mempool_mode_by_the_environments_options():
    text = c_child("""
        environment = Environment({"ep_factory.CudaPluginExecutionProvider.arena.use_cuda_mempool": "1"})
        session = environment.session(sums(3))
        check(session, MIB, factor=8)
        stats = environment.shared().stats()
        assert stats["NumArenaExtensions"] == 0 and stats["MaxInUse"] >= 8 * MIB
        pinned = environment.shared(PINNED)
        pinned.free(pinned.alloc(1000))
        assert pinned.stats()["NumArenaExtensions"] == 1  # always an arena
        session.close()
    """)
    assert "use_cuda_mempool" not in text


# ---- one pool for everybody ----


def test_sessions_and_a_c_program_share_one_pool():
    python_child("""
        provider.register()
        mine = pool_c.Pool("my program")
        sessions = [provider.session(sums(2)) for _ in range(3)]
        x = np.arange(MIB, dtype=np.float32)
        for session in sessions:
            assert np.array_equal(session.run(None, {"x": x})[0], 4 * x)
        stats, clients = mine.stats(), mine.clients()
        assert sorted(clients) == ["my program", "onnxruntime"]
        assert clients["onnxruntime"].allocs == stats["allocs"] >= 9 and clients["my program"].allocs == 0
        assert stats["total"] < 32 * MIB  # what one session gave back served the next
        blocks = [mine.alloc(MIB) for _ in range(4)]
        assert mine.stats()["total"] == stats["total"]  # and now serves the program
        assert mine.clients()["my program"].in_use >= 4 * MIB and mine.clients()["my program"].blocks == 4
        assert np.array_equal(sessions[0].run(None, {"x": x})[0], 4 * x)
        held = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
        assert mine.clients()["onnxruntime"].in_use == stats["in_use"] + 4 * MIB
        for block in blocks:
            mine.free(block)
        assert mine.clients()["my program"].in_use == 0
        assert np.array_equal(held.numpy(), x)
        del held
        mine.close()
        assert np.array_equal(sessions[1].run(None, {"x": x})[0], 4 * x)
    """)


def test_a_program_that_came_first_decides_the_options():
    text = python_child("""
        mine = pool_c.Pool("first", options=["arena.max_mem=8M"])
        block = mine.alloc(100)
        try:
            provider.session(sums(), provider_options={"arena.max_mem": "64M"})
            raise SystemExit("a limit that comes too late was taken")
        except ValueError as error:
            assert "arena.max_mem" in str(error) and "MILLPOND_POOL" in str(error), error
        given = (provider.NAME, {"arena.max_mem": "64M"})
        session = provider.ort.InferenceSession(sums(), providers=[given, provider.CPU])
        assert np.all(session.run(None, {"x": np.ones(1000, np.float32)})[0] == 2)
        try:
            session.run(None, {"x": np.ones(4 * MIB, np.float32)})
            raise SystemExit("16 MiB fitted into 8 MiB")
        except Exception as error:
            assert "llocation" in str(error) or "memory" in str(error), error
        mine.free(block)
        mine.close()
        assert np.all(session.run(None, {"x": np.ones(1000, np.float32)})[0] == 2)
    """)
    assert "arena.max_mem" in text and "stays" in text and "'onnxruntime'" in text


def test_a_block_of_a_closed_program_keeps_its_memory():
    """The pool outlives both of its users in turn."""
    c_child("""
        mine = pool_c.Pool("mine")
        block = mine.alloc(1000)
        environment = Environment()
        session = environment.session(sums())
        check(session, 1000)
        session.close()
        environment.unregister()
        assert mine.clients()["onnxruntime"].in_use == 0
        mine.free(mine.alloc(5 * MIB))
        mine.free(block)
        environment.register()
        session = environment.session(sums())
        check(session, 1000)
        mine.close()
        check(session, 1000)
        session.close()
        environment.unregister()
    """)


def test_two_copies_of_the_library_share_one_pool(tmp_path):
    library = provider.library_path()
    for name in (library.name, POOL_LIBRARY):
        shutil.copy(library.parent / name, tmp_path / name)
    c_child(f"""
        environment = Environment()
        environment.register("Other", {str(tmp_path / library.name)!r})
        devices = environment.devices()
        first, second = devices[0], devices[len(devices) // 2]  # the same device by each library
        assert first != second
        with open("/proc/self/maps", encoding="utf-8") as file:
            loaded = set(line.split()[-1] for line in file if "millpond" in line or "cuda_plugin" in line)
        assert len([path for path in loaded if path.endswith({library.name!r})]) == 2, loaded
        assert len([path for path in loaded if "/libmillpond.so" in path]) == 1, loaded
        mine = pool_c.Pool("mine")
        sessions = [environment.session(sums(2), device=device) for device in (first, second, first)]
        for session in sessions:
            check(session, 50000, factor=4)
        clients, stats = mine.clients(), mine.stats()
        assert sorted(clients) == ["mine", "onnxruntime"]
        assert clients["onnxruntime"].allocs == stats["allocs"] == sessions[1].stats()["NumAllocs"] >= 9
        assert stats["total"] <= 3 * MIB, stats  # a second region where streams are still at work
        sessions[1].close()
        environment.unregister("Other")
        check(sessions[0], 50000, factor=4)
    """)


def test_sessions_that_take_turns_do_not_make_the_pool_grow():
    c_child("""
        environment = Environment()
        arena = environment.shared()
        sessions = [environment.session(sums(length)) for length in (2, 3, 4)]
        def round_of_runs():
            for i, session in enumerate(sessions):
                check(session, MIB // 4 + 10000 * i, value=i, factor=4 << i)
        for _ in range(3):
            round_of_runs()
        before = arena.stats()
        for _ in range(15):
            round_of_runs()
        after = arena.stats()
        assert after["TotalAllocated"] == before["TotalAllocated"] < 16 * MIB, (before, after)
        assert after["NumArenaExtensions"] == before["NumArenaExtensions"]
    """)


def test_each_device_has_a_pool_of_its_own():
    c_child("""
        environment = Environment({"ep_factory.CudaPluginExecutionProvider.arena.max_mem": 8 * MIB})
        first, second = environment.devices()
        sessions = [environment.session(sums(2), device=device) for device in (first, second)]
        for _ in range(2):
            check(sessions[1], MIB // 4, factor=4)
        assert sessions[0].stats()["TotalAllocated"] == sessions[0].stats()["NumAllocs"] == 0
        assert sessions[1].stats()["NumAllocs"] >= 6
        refused(lambda: sessions[1].run(np.zeros(4 * MIB)))
        check(sessions[0], MIB // 4, factor=4)
        sessions[1].close()
        check(sessions[0], MIB // 4, factor=4)
        assert environment.shared().stats()["NumAllocs"] == sessions[0].stats()["NumAllocs"]
    """, MILLPOND_DEVICE="host", MILLPOND_HOST_DEVICES="2")  # fmt: skip


# ---- memory of functions that the session's options name ----

EXTERNAL_START = """
source = pool_c.Pool("source")  # who owns the memory; any library would do
allocated, refusing, emptied = {}, [False], [0]
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
def take(size):
    if refusing[0]:
        return None
    block = source.alloc(size)
    allocated[block] = size
    return block
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def give(block):
    del allocated[block]
    source.free(block)
@ctypes.CFUNCTYPE(None)
def empty():
    emptied[0] += 1
def address(function):
    return str(ctypes.cast(function, ctypes.c_void_p).value)
options = {"gpu_external_alloc": address(take), "gpu_external_free": address(give)}
environment = Environment()
"""


def test_session_lends_from_functions():
    text = c_child(
        EXTERNAL_START
        + """
options["gpu_external_empty_cache"] = address(empty)
session = environment.session(small_models.add_chain(3, 5000), options)
weights = len(allocated)
assert weights >= 1
assert np.all(session.run(np.full(5000, 4)) == 7)
assert source.clients()["source"].allocs >= weights + 2
value = session.run_on_device(np.full(5000, 5))
assert source.clients()["source"].in_use > 4 * 5000 * (weights + 1)
assert set(source.clients()) == {"source"}  # the provider has not even opened the device's own pool
second = environment.session(small_models.add_chain(3, 5000), options)
assert np.all(second.run(np.full(5000, 4)) == 7)
plain = environment.session(sums())
before = source.clients()["source"].allocs
check(plain, 5000)
assert source.clients()["source"].allocs == before and source.clients()["onnxruntime"].allocs >= 2
refusing[0] = True
refused(lambda: second.run(np.zeros(5000)))
assert emptied[0] >= 1
check(plain, 5000)
refusing[0] = False
assert np.all(second.run(np.full(5000, 8)) == 11)
ort_c.API.ReleaseValue(value)
second.close()
session.close()
assert not allocated and source.clients()["source"].in_use == 0
"""
    )
    assert "cannot allocate 20000 bytes" in text and "the external memory manager cannot provide" in text


def test_functions_with_memory_that_cannot_be_lent_are_refused_in_a_sentence():
    """Aligned to 16, as malloc has it: the session says so itself, and not its first run by way of the log."""
    c_child(
        EXTERNAL_START
        + """
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
def crooked(size):
    return source.alloc(size + 512) + 16
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def straighten(block):
    source.free(block - 16)
crooked_options = {"gpu_external_alloc": address(crooked), "gpu_external_free": address(straighten)}
refused(lambda: environment.session(small_models.add_chain(3, 5000), crooked_options), "not a multiple of 256")
assert source.clients()["source"].in_use == 0
"""
    )


@pytest.mark.parametrize("name", ["gpu_external_alloc", "gpu_external_free"])
def test_one_function_alone_is_ignored_with_a_warning(name):
    text = c_child(
        EXTERNAL_START
        + f"""
session = environment.session(sums(), {{{name!r}: options[{name!r}]}})
check(session, 5000)
assert not allocated and source.clients()["source"].allocs == 0 and source.clients()["onnxruntime"].allocs >= 2
"""
    )
    assert "gpu_external_alloc and gpu_external_free must both be set" in text


def test_a_function_that_is_no_address_is_ignored_with_a_warning():
    text = c_child("""
        options = {"gpu_external_alloc": "malloc", "gpu_external_free": "free", "gpu_external_empty_cache": "-4"}
        session = Environment().session(sums(), options)
        check(session, 1000)
    """)
    assert "gpu_external_alloc" in text and "malloc" in text


# ---- threads and life times ----


@pytest.mark.parametrize(
    ("sessions", "mode", "pool"),
    [
        (1, "eager", ""),
        (1, "threaded", ""),
        (4, "threaded", ""),
        (4, "adversarial:5", ""),
        (4, "adversarial:6", "arena.use_cuda_mempool=1"),
        (1, "adversarial:7", "arena.expandable=1"),
        (4, "threaded", "arena.expandable=1"),
        (4, "adversarial:8", "arena.guard=1,arena.poison=1"),
        (4, "adversarial:9", "arena.stream_cache_bytes=0"),
    ],
)
def test_many_runs_at_once(sessions, mode, pool):
    text = c_child(f"""
        environment = Environment()
        arena = environment.shared()
        sessions = [environment.session(sums(5)) for _ in range({sessions})]
        faults = []
        def work(index):
            try:
                generator = np.random.default_rng(index)
                for i in range(15):
                    x = generator.integers(0, 1000, int(generator.integers(1, 60000))).astype(np.float32)
                    config = {{"memory.enable_memory_arena_shrinkage": "gpu:0"}} if i % 5 == 4 else {{}}
                    result = sessions[(index + i) % len(sessions)].run(x, config=config)
                    assert np.array_equal(result, 32 * x), (index, i)
            except BaseException as fault:
                faults.append(fault)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults[0]
        stats = arena.stats()
        assert stats["InUse"] == stats["RequestedInUse"] == 0 and stats["NumAllocs"] >= 8 * 15 * 3, stats
        for session in sessions:
            session.close()
        arena.shrink()
        assert arena.stats()["TotalAllocated"] == 0
    """, MILLPOND_HOST=mode, MILLPOND_POOL=pool)  # fmt: skip
    assert "[E:" not in text, text
    assert "[W:" not in text, text


def test_sessions_come_and_go_while_others_run():
    c_child("""
        environment = Environment()
        steady, faults, done = environment.session(sums(3)), [], threading.Event()
        def come_and_go(index):
            try:
                while not done.is_set():
                    session = environment.session(sums(2), {"arena.max_mem": "1G"} if index else {})
                    check(session, 20000 + index, value=index, factor=4)
                    session.close()
            except BaseException as fault:
                faults.append(fault)
        threads = [threading.Thread(target=come_and_go, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for i in range(60):
            check(steady, 30000 - i, value=i, factor=8)
        done.set()
        for thread in threads:
            thread.join()
        assert not faults, faults[0]
        assert environment.shared().stats()["InUse"] == 0
    """)


def test_sessions_and_values_outlive_the_registration():
    c_child("""
        environment = Environment()
        session, mine = environment.session(sums(2)), pool_c.Pool("mine")
        value = session.run_on_device(np.full(1000, 3))
        held = mine.clients()["onnxruntime"].in_use
        assert held >= 4000
        environment.unregister()
        assert mine.clients()["onnxruntime"].in_use == held
        check(session, 5000, factor=4)
        environment.register()
        again = environment.session(sums(2))
        check(again, 5000, factor=4)
        check(session, 5000, factor=4)
        ort_c.API.ReleaseValue(value)
        session.close()
        assert mine.clients()["onnxruntime"].in_use == 0
        check(again, 5000, factor=4)
        again.close()
        environment.unregister()
        mine.free(mine.alloc(MIB))
        mine.close()
    """)


def test_a_value_outlives_everything_else():
    c_child("""
        environment = Environment()
        session = environment.session(sums(2))
        value = session.run_on_device(np.full(1000, 3))
        session.close()
        environment.unregister()
        mine = pool_c.Pool("mine")
        assert mine.clients()["onnxruntime"].blocks == 1
        ort_c.API.ReleaseValue(value)
        assert mine.clients()["onnxruntime"].blocks == 0
        mine.close()
        environment.register()
        stats = environment.shared().stats()
        assert stats["TotalAllocated"] == 0 and stats["NumAllocs"] == 0  # a new pool
    """)
