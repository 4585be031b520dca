# SPDX-License-Identifier: Apache-2.0
"""Captured graphs: enable_cuda_graph, gpu_graph_id, what is captured and what is not, memory, threads, errors."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cases
import graph_kit as kit
import numpy as np
import onnxruntime as ort
import provider
import pytest
import small_models
import tolerance
from onnx import TensorProto, helper
from ort_version import ORT

TESTS = Path(__file__).resolve().parents[1]
RELEASES = hasattr(ort.InferenceSession, "release_captured_graph")
BINDS_DEVICE = ORT >= (1, 30)
CHILD_START = """
import gc, sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np, onnxruntime as ort
import graph_kit as kit, provider, small_models, tolerance
import tolerance
ort.set_default_logger_severity(1)
provider.register()
"""


@pytest.fixture(scope="module", autouse=True)
def registered():
    provider.register()


def child(code, **environment):
    """What another Python says; it must end well."""
    paths = [str(TESTS / "ep"), str(TESTS.parent / "demo"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    script = CHILD_START + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", script], capture_output=True, text=True,
                          env=env, timeout=240, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stderr


def chain(session, count=4, graph=None):
    return kit.Bound(session, {"x": np.zeros(count, np.float32)}, {"y": [count]}, graph)


def check_chain(bound, length, values):
    for value in values:
        count = bound.inputs["x"].shape()[0]
        assert np.array_equal(bound.run(x=np.full(count, value, np.float32)), np.full(count, value + length))


ZEROS = {"x": np.zeros(4, np.float32)}


# ---- what a graph gives ----


@pytest.mark.parametrize("options", [
    {},
    {"use_ep_level_unified_stream": 1},
    {"has_user_compute_stream": 1},  # the legacy default stream
    {"min_num_runs_before_cuda_graph_capture": 0},
])
def test_updated_inputs_give_new_outputs(options):
    session = kit.session(small_models.add_chain(7), **options)
    bound = chain(session)
    check_chain(bound, 7, [0, 5, -3])
    if "min_num_runs_before_cuda_graph_capture" in options:  # the first recording may have had to load kernels
        check_chain(bound, 7, [1, 2, 3])
    assert kit.is_captured(session, ZEROS)
    check_chain(bound, 7, range(20))


@pytest.mark.parametrize(("pool", "mode"), [
    ("", "eager"),
    ("", "threaded"),
    ("", "adversarial:1"),
    ("", "adversarial:2"),
    ("arena.use_cuda_mempool=1", "eager"),
    ("arena.use_cuda_mempool=1", "threaded"),
    ("arena.use_cuda_mempool=1", "adversarial:3"),
    ("arena.expandable=1", "adversarial:4"),
    ("arena.guard=1,arena.poison=1", "adversarial:5"),
    ("arena.stream_cache_bytes=0", "adversarial:6"),
])
def test_products_and_shape_arithmetic(pool, mode):
    """With scratch memory, several ids for several shapes, and CPU nodes that only compute shapes."""
    child("""
        dense, shaped = kit.dense("n"), kit.reshaped()
        first, second = kit.session(dense), kit.session(shaped)
        generator = np.random.default_rng(5)
        bound = {}
        for turn in range(4):
            for rows in (1, 6, 3):
                x = generator.standard_normal((rows, 16)).astype(np.float32)
                if rows not in bound:
                    bound[rows] = kit.Bound(first, {"x": x}, {"y": [rows, 8]}, graph=rows)
                np.testing.assert_allclose(bound[rows].run(x=x), kit.cpu_result(dense, {"x": x}), **tolerance.FLOAT32)
                x = generator.standard_normal(2 * rows).astype(np.float32)
                if -rows not in bound:
                    bound[-rows] = kit.Bound(second, {"x": x}, {"y": [rows, 2]}, graph=rows)
                wanted = kit.cpu_result(shaped, {"x": x})
                np.testing.assert_allclose(bound[-rows].run(x=x), wanted, rtol=1e-6)
        for rows in (1, 6, 3):
            assert kit.is_captured(first, {"x": np.zeros((rows, 16), np.float32)}, rows)
            assert kit.is_captured(second, {"x": np.zeros(2 * rows, np.float32)}, rows)
        assert not kit.is_captured(first, {"x": np.zeros((6, 16), np.float32)}, 2)
    """, MILLPOND_POOL=pool, MILLPOND_HOST=mode)  # fmt: skip


def longformer(rows, x, flags, weights):
    """By the reference of the operator's cases."""
    sides = [weights["w"], weights["b"], np.zeros((1, rows), np.float32), weights["v"], weights["c"], flags]
    return cases.longformer.longformer(x, *sides, num_heads=2, window=2)[0]


def test_what_a_tensor_marks_may_change_between_replays():
    """How many tokens LongformerAttention lets see all is for the device alone to know."""
    rows, generator = 24, np.random.default_rng(8)
    weights = {name: generator.uniform(-1, 1, shape).astype(np.float32)
               for name, shape in {"w": (8, 24), "b": 24, "v": (8, 24), "c": 24}.items()}
    constants = {**weights, "mask": np.zeros((1, rows), np.float32)}
    nodes = [
        helper.make_node("Cast", ["flags"], ["marks"], name="marks", to=TensorProto.INT32),
        helper.make_node("LongformerAttention", ["x", "w", "b", "mask", "v", "c", "marks"], ["y"], name="tested",
                         domain="com.microsoft", num_heads=2, window=2),
    ]
    shapes = {"x": [1, rows, 8], "flags": [1, rows]}
    session = kit.session(small_models.model(nodes, shapes, {"y": [1, rows, 8]}, constants))
    none = np.zeros((1, rows), np.float32)
    bound = kit.Bound(session, {"x": np.zeros((1, rows, 8), np.float32), "flags": none}, {"y": [1, rows, 8]})
    for count in (0, 0, 0, 3, rows, 1, 0, 7):
        x = generator.uniform(-1, 1, (1, rows, 8)).astype(np.float32)
        flags = none.copy()
        flags[0, generator.permutation(rows)[:count]] = 1
        wanted = longformer(rows, x, flags, weights)
        np.testing.assert_allclose(bound.run(x=x, flags=flags), wanted, **tolerance.FLOAT32)
    assert kit.is_captured(session, {"x": x, "flags": flags})


def test_graph_minus_one_is_never_captured():
    session = kit.session(small_models.add_chain(3))
    bound = chain(session, graph=-1)
    check_chain(bound, 3, range(6))
    assert session.run(None, ZEROS, kit.run_options(-1))[0].tolist() == [3.0] * 4
    assert not kit.is_captured(session, ZEROS, 0)


def test_runs_with_and_without_a_graph_take_turns():
    session = kit.session(small_models.add_chain(3))
    bound = chain(session)
    for i in range(12):
        x = np.full(4, i, np.float32)
        assert bound.run(kit.run_options(0 if i % 3 else -1), x=x).tolist() == [i + 3.0] * 4
    assert kit.is_captured(session, ZEROS)


def test_unsynchronized_runs_end_in_order():
    session = kit.session(small_models.add_chain(3))
    bound = chain(session)
    for i in range(8):
        options = kit.run_options(0 if i % 3 else -1, disable_synchronize_execution_providers=1)
        bound.inputs["x"].update_inplace(np.full(4, i, np.float32))
        session.run_with_iobinding(bound.binding, options)
        bound.binding.synchronize_outputs()
        assert bound.outputs["y"].numpy().tolist() == [i + 3.0] * 4


@pytest.mark.skipif(not BINDS_DEVICE, reason="this ONNX Runtime cannot bind an output to the device without a value")
def test_outputs_that_the_first_run_makes_are_kept():
    session = kit.session(small_models.add_chain(2))
    x = kit.on_device(np.zeros(4, np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "cuda", 0)
    for i in range(5):
        x.update_inplace(np.full(4, i, np.float32))
        session.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [i + 2.0] * 4
    assert kit.is_captured(session, ZEROS)


# ---- runs that are not captured ----


def test_plain_runs_are_right_and_never_captured():
    session = kit.session(small_models.add_chain(4))
    for i in range(12):
        [y] = session.run(None, {"x": np.full(4, i, np.float32)})
        assert y.tolist() == [i + 4.0] * 4
    check_chain(chain(session), 4, range(4))
    assert kit.is_captured(session, ZEROS)
    assert session.run(None, ZEROS, kit.run_options(-1))[0].tolist() == [4.0] * 4
    assert session.run(None, ZEROS, kit.run_options(1))[0].tolist() == [4.0] * 4


def test_why_a_run_is_not_captured_is_told_once():
    text = child("""
        session = kit.session(small_models.add_chain(2))
        for i in range(5):
            assert len(session.run(None, {"x": np.zeros(4, np.float32)})) == 1
        bound = kit.Bound(session, {"x": np.zeros(4, np.float32)}, {"y": [4]})
        bound.run()
    """, MILLPOND_LOG="info")  # fmt: skip
    assert text.count("bind values of the device") == 1
    assert text.count("graph 0 is captured: 2 nodes") == 1


def test_outputs_bound_to_the_host_are_right():
    session = kit.session(small_models.add_chain(4))
    x = kit.on_device(np.zeros(4, np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    for i in range(5):
        binding.bind_output("y")
        x.update_inplace(np.full(4, i, np.float32))
        session.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [i + 4.0] * 4


def test_least_runs_may_be_more_than_one_run_makes():
    """ONNX Runtime gives up after eight runs in one; the count goes on in the next."""
    session = kit.session(small_models.add_chain(2), min_num_runs_before_cuda_graph_capture=20)
    bound = chain(session)
    check_chain(bound, 2, [1, 2])
    assert session.run(None, ZEROS, kit.run_options(-1))[0].tolist() == [2.0] * 4
    check_chain(bound, 2, [3])
    assert kit.is_captured(session, ZEROS)
    check_chain(bound, 2, range(5))


def matched():
    nodes = [helper.make_node("MatMul", ["a", "b"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"])]
    return small_models.model(nodes, {"a": ["m", "k"], "b": ["l", "n"]}, {"y": ["m", "n"]})


def test_a_recorded_run_may_turn_out_otherwise():
    """With new shapes, with values of the host, and with shapes that do not fit: results are right, errors are clear,
    and the session goes on."""
    session = kit.session(matched(), min_num_runs_before_cuda_graph_capture=7)
    shapes = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 4), np.float32)}

    def bind(graph, **inputs):
        given = {**shapes, **inputs}
        return kit.Bound(session, given, {"y": [len(given["a"]), given["b"].shape[1]]}, graph)

    for graph in (1, 2, 3):
        assert np.all(bind(graph).run() == 3)  # the next run of each would be recorded
    bigger = bind(1, a=np.ones((5, 3), np.float32))
    assert np.all(bigger.run() == 3)
    assert np.all(session.run(None, shapes, kit.run_options(2))[0] == 3)
    wrong = bind(3, b=np.ones((5, 4), np.float32))
    with pytest.raises(Exception, match="product|MatMul"):
        wrong.run()
    for bound in (bigger, bind(2), bind(3)):
        for i in range(1, 10):
            assert np.all(bound.run(a=np.full(bound.inputs["a"].shape(), i, np.float32)) == 3 * i)
    for graph in (1, 2, 3):
        assert kit.is_captured(session, shapes, graph)


def test_model_with_work_on_the_cpu_is_refused():
    """By ONNX Runtime, with a reason, and without graphs it runs."""
    with pytest.raises(Exception, match="(?i)graph capture"):
        kit.session(small_models.mixed())
    assert provider.session(small_models.mixed()).run(None, small_models.mixed_feed(2))


def test_memory_of_a_graph_is_nobody_elses():
    """A run that finds none left fails with a clear error; once the graph's thread has ended there is enough."""
    text = child("""
        import ctypes, pool_c
        MIB = 1 << 20
        from onnx import helper
        nodes = [helper.make_node("Add", ["x", "one"], ["more"]), helper.make_node("Sub", ["x", "one"], ["less"]),
                 helper.make_node("Mul", ["more", "less"], ["y"])]  # both must lie somewhere
        model = small_models.model(nodes, {"x": [MIB]}, {"y": [MIB]}, {"one": np.ones(MIB, np.float32)})
        session = kit.session(model)
        captured, go_on = threading.Event(), threading.Event()
        def capture():
            bound = kit.Bound(session, {"x": np.zeros(MIB, np.float32)}, {"y": [MIB]})
            bound.run()
            del bound  # the graph keeps it
            captured.set()
            go_on.wait()
        thread = threading.Thread(target=capture, daemon=True)
        thread.start()
        assert captured.wait(60)
        bound = kit.Bound(session, {"x": np.zeros(MIB, np.float32)}, {"y": [MIB]})
        pool_c.Pool("test").shrink()
        pool_c.LIB.mp_limit_set(ctypes.c_size_t(provider.pool_stats()["total"]))
        for i in range(3):
            try:
                bound.run()
                raise SystemExit("a run took memory of the graph of another thread")
            except Exception as error:
                assert "memory" in str(error), error
        go_on.set()
        kit.join(thread)
        for i in range(6):
            assert np.all(bound.run(x=np.full(MIB, i, np.float32)) == i * i - 1)
    """, MILLPOND_POOL="arena.extend_strategy=1", MILLPOND_PASSES="-cluster")  # fmt: skip
    assert "MILLPOND_LIMIT" in text


# ---- memory and life times ----


@pytest.mark.skipif(not RELEASES, reason="this ONNX Runtime's sessions have no release_captured_graph")
def test_released_graphs_give_their_memory_back():
    child("""
        pool = provider.pool_stats
        session = kit.session(small_models.add_chain(6, 50000))
        bound = kit.Bound(session, {"x": np.zeros(50000, np.float32)}, {"y": [50000]})
        bound.run()
        session.release_captured_graph(0)
        before = pool()["in_use"]
        for i in range(4):
            assert np.all(bound.run(x=np.full(50000, i, np.float32)) == i + 6)
            assert kit.is_captured(session, {"x": np.zeros(50000, np.float32)})
            session.release_captured_graph(0)
            session.release_captured_graph(7)  # never captured
            assert not kit.is_captured(session, {"x": np.zeros(50000, np.float32)})
            assert pool()["in_use"] == before
        del bound, session
        gc.collect()
        assert pool()["in_use"] == 0
    """)


@pytest.mark.parametrize("pool", ["", "arena.use_cuda_mempool=1"])
def test_bound_values_stay_as_long_as_the_graph(pool):
    """Freed by their user, they are not allocated to others, since each launch writes there."""
    child("""
        session = kit.session(small_models.add_chain(3, 1000))
        bound = kit.Bound(session, {"x": np.zeros(1000, np.float32)}, {"y": [1000]})
        bound.run()
        del bound
        gc.collect()
        others = [kit.on_device(np.full(1000, 77, np.float32)) for _ in range(8)]
        assert kit.is_captured(session, {"x": np.zeros(1000, np.float32)})  # a launch
        assert all(np.all(other.numpy() == 77) for other in others)
        del session, others
        gc.collect()
        assert provider.pool_stats()["in_use"] == 0
    """, MILLPOND_POOL=pool, MILLPOND_HOST="adversarial:9")  # fmt: skip


def test_sessions_end_with_graphs_of_other_threads():
    child("""
        sessions = [kit.session(small_models.add_chain(n)) for n in (3, 5)]
        gate = threading.Barrier(5, timeout=120)
        def work(number):
            bounds = [kit.Bound(session, {"x": np.zeros(4, np.float32)}, {"y": [4]}) for session in sessions]
            for i in range(4):
                for n, bound in zip((3, 5), bounds):
                    assert bound.run(x=np.full(4, i, np.float32)).tolist() == [i + n] * 4
            keeper = bounds[1]
            del bound, bounds
            gate.wait()
            gate.wait()
            for i in range(4):
                assert keeper.run(x=np.full(4, i, np.float32)).tolist() == [i + 5] * 4
        with ThreadPoolExecutor(4) as threads:
            done = [threads.submit(work, i) for i in range(4)]
            gate.wait()
            del sessions[0]
            gc.collect()
            sessions.insert(0, None)
            gate.wait()
        for each in done:
            each.result()
        del done, each
        del sessions, threads
        gc.collect()
        assert provider.pool_stats()["in_use"] == 0
    """)


# ---- threads ----


@pytest.mark.parametrize(("mode", "pool", "options"), [
    ("eager", "", {}),
    ("threaded", "", {}),
    ("adversarial:11", "", {}),
    ("adversarial:12", "arena.use_cuda_mempool=1", {}),
    ("threaded", "arena.use_cuda_mempool=1", {}),
    ("threaded", "", {"use_ep_level_unified_stream": 1}),
    ("adversarial:13", "", {"has_user_compute_stream": 1}),
])
def test_many_threads(mode, pool, options):
    """One session and several, graphs of several ids, and runs without: every value is looked at."""
    child(f"""
        lengths = (4, 9)
        sessions = [kit.session(small_models.add_chain(n, 3000), **{options!r}) for n in lengths]
        gate = threading.Barrier(5)
        def work(number):
            gate.wait()  # so that each is on a thread of its own, which has graphs of its own
            generator = np.random.default_rng(number)
            bounds = {{}}
            for turn in range(24):
                which, graph = turn % 2, int(generator.integers(-1, 2))
                key = which, graph
                if key not in bounds:
                    bounds[key] = kit.Bound(sessions[which], {{"x": np.zeros(3000, np.float32)}}, {{"y": [3000]}},
                                            graph)
                x = generator.integers(0, 1000, 3000).astype(np.float32)
                assert np.array_equal(bounds[key].run(x=x), x + lengths[which]), (number, turn)
                if turn % 5 == 0:
                    [y] = sessions[which].run(None, {{"x": x}}, kit.run_options(-1))
                    assert np.array_equal(y, x + lengths[which]), (number, turn)
                if turn % 11 == 10:
                    gc.collect()
        for rounds in range(2):
            with ThreadPoolExecutor(5) as threads:
                list(threads.map(work, range(5)))
        del sessions, threads
        gc.collect()
        assert provider.pool_stats()["in_use"] == 0
    """, MILLPOND_HOST=mode, MILLPOND_POOL=pool)  # fmt: skip


def test_sessions_come_and_go_while_others_launch():
    keeper = kit.session(small_models.add_chain(6))
    stop = threading.Event()

    def work():
        bound = chain(keeper)
        i = 0
        while not stop.is_set() or i < 10:
            check_chain(bound, 6, [i])
            i += 1

    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(work) for _ in range(3)]
        try:
            for _ in range(10):
                check_chain(chain(kit.session(small_models.add_chain(2))), 2, range(4))
                gc.collect()
        finally:
            stop.set()
    for each in done:
        each.result()


def test_example():
    """The example of docs/graphs.md, which compares its results itself."""
    script = TESTS.parent / "examples" / "cuda_graph.py"
    env = {**os.environ, "PYTHONPATH": str(provider.library_path().absolute().parents[1] / "python")}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, env=env,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["1", "8"]
