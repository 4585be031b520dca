# SPDX-License-Identifier: Apache-2.0
"""Streams of sessions: the user's, one for all, one a run; waiting, order, threads."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import graph_kit as kit
import numpy as np
import onnxruntime as ort
import provider
import pytest
import small_models
from ort_version import ORT

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "python"))
import core_kit  # noqa: E402  (found by the path above)


@pytest.fixture(scope="module", autouse=True)
def emulated():
    return provider.is_emulated(provider.register()[0])


@pytest.fixture
def stream(emulated):
    made = core_kit.HostStream() if emulated else core_kit.CudaStream()
    yield made
    gc.collect()
    made.destroy()


def session(length=3, **options):
    given = {key: str(value) for key, value in options.items()}
    return provider.session(small_models.add_chain(length), provider_options=given,
                            options=provider.session_options(threads=1))


def zeros(value=0):
    return {"x": np.full(4, value, np.float32)}


def child(code, **environment):
    paths = [str(TESTS / "ep"), str(TESTS / "python"), str(TESTS.parent / "demo"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    start = "from concurrent.futures import ThreadPoolExecutor\nimport gc, threading, numpy as np, onnxruntime as ort\n"
    start += "import graph_kit as kit, provider, small_models, tolerance\n"
    script = start + "provider.register()\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", script], capture_output=True, text=True,
                          env=env, timeout=120, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stderr


# ---- the user's stream ----


@pytest.mark.parametrize("form", [str, hex, lambda handle: "0X" + hex(handle)[2:].upper()])
@pytest.mark.parametrize("graphs", [0, 1])
def test_stream_of_the_user(stream, form, graphs):
    running = session(user_compute_stream=form(stream.handle), enable_cuda_graph=graphs)
    for i in range(4):
        assert running.run(None, zeros(i))[0].tolist() == [i + 3.0] * 4
    bound = kit.Bound(running, zeros(), {"y": [4]})
    for i in range(6):
        assert bound.run(x=np.full(4, i, np.float32)).tolist() == [i + 3.0] * 4
    assert kit.is_captured(running, zeros()) == bool(graphs)


@pytest.mark.parametrize("graphs", [0, 1])
def test_runs_wait_for_earlier_work_of_the_stream(emulated, graphs):
    if graphs and ORT < (1, 27):
        pytest.skip("this ONNX Runtime waits for a graph that it has launched")
    child(f"""
        import core_kit
        stream = core_kit.{"HostStream" if emulated else "CudaStream"}()
        options = {{"user_compute_stream": str(stream.handle), "enable_cuda_graph": "{graphs}"}}
        running, other = kit.session(small_models.add_chain(3), **options), kit.session(small_models.add_chain(3))
        bound = kit.Bound(running, {{"x": np.zeros(4, np.float32)}}, {{"y": [4]}})
        for value in (1, 5):
            assert bound.run(x=np.full(4, value, np.float32)).tolist() == [value + 3] * 4
        gate = threading.Event()
        stream.call(lambda: gate.wait(60))
        bound.inputs["x"].update_inplace(np.full(4, 9, np.float32))
        running.run_with_iobinding(bound.binding, kit.run_options(disable_synchronize_execution_providers=1))
        assert bound.outputs["y"].numpy().tolist() == [8] * 4  # not yet
        assert other.run(None, {{"x": np.zeros(4, np.float32)}})[0].tolist() == [3] * 4  # on a stream of its own
        assert bound.outputs["y"].numpy().tolist() == [8] * 4
        gate.set()
        stream.synchronize()  # unlike ONNX Runtime's, lets the gate have Python's lock
        bound.binding.synchronize_outputs()
        assert bound.outputs["y"].numpy().tolist() == [12] * 4
        del bound, running
        gc.collect()
        stream.destroy()
    """, MILLPOND_HOST="threaded")  # fmt: skip


@pytest.mark.parametrize("graphs", [0, 1])
@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_that_is_destroyed_before_its_sessions(emulated, graphs, waits):
    """As the end of a process may have it: a session that is closed later must not ask the stream anything."""
    said = child(f"""
        import core_kit
        ort.set_default_logger_severity(1)
        stream = core_kit.{"HostStream" if emulated else "CudaStream"}()
        options = {{"user_compute_stream": str(stream.handle), "enable_cuda_graph": "{graphs}"}}
        entries = {{}} if {waits} else {{"disable_synchronize_execution_providers": 1}}
        sessions = [kit.session(small_models.add_chain(length), **options) for length in (3, 4)]
        for running, added in zip(sessions, (3, 4)):
            bound = kit.Bound(running, {{"x": np.zeros(4, np.float32)}}, {{"y": [4]}})
            for value in range(5):
                bound.inputs["x"].update_inplace(np.full(4, value, np.float32))
                running.run_with_iobinding(bound.binding, kit.run_options(**entries))
                stream.synchronize()
                assert bound.outputs["y"].numpy().tolist() == [value + added] * 4
        stream.destroy()
        del bound, running
        while sessions:
            sessions.pop()
            gc.collect()
    """)
    assert "another library" not in said and "reports" not in said, said


def test_two_sessions_on_one_stream(stream):
    first, second = (session(length, user_compute_stream=stream.handle) for length in (2, 5))
    for i in range(3):
        assert first.run(None, zeros(i))[0].tolist() == [i + 2.0] * 4
        assert second.run(None, zeros(i))[0].tolist() == [i + 5.0] * 4
    del first
    gc.collect()
    assert second.run(None, zeros(1))[0].tolist() == [6.0] * 4
    stream.synchronize()


@pytest.mark.parametrize("text", ["perhaps", "0x", "12 monkeys", "-1", "1.5"])
def test_stream_that_is_no_number(text):
    """session() refuses it; ONNX Runtime's own gives a warning, and runs on streams of its own."""
    said = child(f"""
        given = {{"user_compute_stream": {text!r}}}
        try:
            provider.session(small_models.add_chain(3), provider_options=given)
            raise SystemExit("it was taken")
        except ValueError as error:
            assert "user_compute_stream" in str(error), error
        options = provider.session_options(threads=1, log_level=2)
        running = provider.ort.InferenceSession(small_models.add_chain(3), options,
                                                providers=[(provider.NAME, given), provider.CPU])
        assert running.run(None, {{"x": np.zeros(4, np.float32)}})[0].tolist() == [3.0] * 4
    """)
    assert "user_compute_stream" in said and text in said


def test_stream_that_is_none(emulated):
    if not emulated:
        pytest.skip("a driver does not survive a wrong handle")
    with pytest.raises(Exception, match="not a stream"):
        session(user_compute_stream=hex(id(object())))


@pytest.mark.parametrize(("options", "words"), [
    ({"user_compute_stream": 2}, "for each thread"),
    ({"has_user_compute_stream": 1, "gpu_external_alloc": 99, "gpu_external_free": 99}, "exclude each other"),
])
def test_streams_that_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        session(**options)


def test_copies_in_other_streams_give_a_warning():
    said = child("""
        provider.session(small_models.add_chain(3), provider_options={"do_copy_in_default_stream": "0"},
                         options=provider.session_options(threads=1, log_level=2))
    """)
    assert "do_copy_in_default_stream=0 has no effect" in said


# ---- one for all, one a run ----


@pytest.mark.parametrize(("options", "mode"), [
    ({}, "eager"),
    ({}, "threaded"),
    ({}, "adversarial:21"),
    ({"use_ep_level_unified_stream": "1"}, "threaded"),
    ({"use_ep_level_unified_stream": "1"}, "adversarial:22"),
    ({"has_user_compute_stream": "1"}, "threaded"),
    ({"has_user_compute_stream": "1"}, "adversarial:23"),
])
def test_one_session_from_many_threads(options, mode):
    child(f"""
        model = kit.dense("n")
        running = provider.session(model, provider_options={{"use_tf32": "0", **{options!r}}},
                                   options=provider.session_options(threads=1))
        def work(number):
            generator = np.random.default_rng(number)
            for turn in range(12):
                x = generator.standard_normal((int(generator.integers(1, 9)), 16)).astype(np.float32)
                [y] = running.run(None, {{"x": x}})
                np.testing.assert_allclose(y, reference.run(None, {{"x": x}})[0], **tolerance.FLOAT32)
        reference = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, range(6)))
        del running
        gc.collect()
        assert provider.pool_stats()["in_use"] == 0
    """, MILLPOND_HOST=mode)  # fmt: skip


def test_waiting_for_outputs_leaves_captures_alone():
    """One session's threads capture again and again, while another waits for its streams."""
    capturing, plain = kit.session(small_models.add_chain(20)), session()
    stop = threading.Event()

    def wait():
        binding = plain.io_binding()
        binding.bind_cpu_input("x", np.zeros(4, np.float32))
        binding.bind_output("y")
        while not stop.is_set():
            plain.run_with_iobinding(binding)
            binding.synchronize_inputs()
            binding.synchronize_outputs()
            time.sleep(0.001)

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(wait) for _ in range(2)]
        try:
            for graph in range(40):
                bound = kit.Bound(capturing, zeros(), {"y": [4]}, graph)
                assert bound.run(x=np.full(4, graph, np.float32)).tolist() == [graph + 20.0] * 4
                assert kit.is_captured(capturing, zeros(), graph)
        finally:
            stop.set()
    for each in done:
        each.result()


MODES = ["threaded", *(f"adversarial:{seed}" for seed in range(32, 36))]
COUNT = 1 << 18  # elements: what is under way takes a while

SYNC_START = f"""
    import ctypes
    from onnxruntime.capi._pybind_state import copy_tensors
    count = {COUNT}
    def value(fill):
        return kit.on_device(np.full(count, fill, np.float32))
    def on_device(session, x, y):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        return binding
    unsynchronized = kit.run_options(disable_synchronize_execution_providers=1)
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("graphs", [0, 1])
def test_waiting_for_inputs_waits_for_the_environments_streams(mode, graphs):
    """Also right after a graph that nobody has waited for."""
    child(SYNC_START + f"""
    stream = provider.devices()[0].create_sync_stream()
    running = provider.session(small_models.add_chain(3, count), provider_options={{"enable_cuda_graph": "{graphs}"}},
                               options=provider.session_options(threads=1))
    x, y = value(0), value(0)
    binding = on_device(running, x, y)
    wrong = []
    for i in range(20):
        source = ort.OrtValue.ortvalue_from_numpy(np.full(count, i, np.float32))
        copy_tensors([source._ortvalue], [x._ortvalue], stream)
        binding.synchronize_inputs()
        running.run_with_iobinding(binding, unsynchronized)
        binding.synchronize_outputs()
        if not np.all(y.numpy() == i + 3):
            wrong.append(i)
        running.run_with_iobinding(binding, unsynchronized)
    assert not wrong, f"inputs that had not come: {{wrong}}"
    """, MILLPOND_HOST=mode)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_waiting_for_inputs_waits_for_other_sessions(mode):
    child(SYNC_START + """
    first, second = (kit.session(small_models.add_chain(length, count), enable_cuda_graph=0) for length in (12, 3))
    x, between, y = value(0), value(0), value(0)
    give, take = on_device(first, x, between), on_device(second, between, y)
    wrong = []
    for i in range(20):
        x.update_inplace(np.full(count, i, np.float32))
        first.run_with_iobinding(give, unsynchronized)
        take.synchronize_inputs()
        second.run_with_iobinding(take)
        if not np.all(y.numpy() == i + 15):
            wrong.append(i)
    assert not wrong, f"outputs of the first session that had not come: {wrong}"
    """, MILLPOND_HOST=mode)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("known", [0, 1])
def test_waiting_for_inputs_waits_for_streams_of_other_libraries(emulated, mode, known):
    """For those that the pool knows of (by an allocation or a declared use), and the default one."""
    if not emulated:
        pytest.skip("the mode is the emulated device's")
    child(SYNC_START + f"""
    import core_kit
    import millpond
    pool, stream = millpond.Pool(client="test"), core_kit.HostStream()
    running = provider.session(small_models.add_chain(3, count), options=provider.session_options(threads=1))
    x, y = value(0), value(0)
    binding = on_device(running, x, y)
    if {known}:
        pool.record_use(x.data_ptr(), stream.handle)
    else:
        default = ctypes.c_void_p()
        stream.check(stream.library.mp__host_stream_wrap(stream.device, None, ctypes.byref(default)))
        stream.handle = default.value
    wrong = []
    for i in range(20):
        stream.check(stream.library.mp__host_fill(
            stream.device, ctypes.c_void_p(stream.handle), ctypes.c_size_t(x.data_ptr()),
            ctypes.c_uint32(int(np.float32(i).view(np.uint32))), ctypes.c_size_t(4), ctypes.c_size_t(count)))
        binding.synchronize_inputs()
        running.run_with_iobinding(binding)
        if not np.all(y.numpy() == i + 3):
            wrong.append(i)
    assert not wrong, f"inputs that had not come: {{wrong}}"
    """, MILLPOND_HOST=mode)  # fmt: skip


@pytest.mark.parametrize("mode", ["eager", "threaded"])
def test_waiting_leaves_captures_of_other_libraries_alone(emulated, mode):
    if not emulated:
        pytest.skip("on a GPU the captures are those of PyTorch's tests")
    child("""
    import core_kit, ctypes, millpond
    pool, stream, graph = millpond.Pool(client="test"), core_kit.HostStream(), ctypes.c_void_p()
    library, device, handle = stream.library, stream.device, ctypes.c_void_p(stream.handle)
    running = provider.session(small_models.add_chain(3), options=provider.session_options(threads=1))
    binding = running.io_binding()
    x = kit.on_device(np.ones(4, np.float32))
    binding.bind_ortvalue_input("x", x)
    pool.record_use(x.data_ptr(), stream.handle)
    stream.check(library.mp__host_capture_begin(device, handle))
    binding.synchronize_inputs()
    stream.check(library.mp__host_capture_end(device, handle, ctypes.byref(graph)))
    library.mp__host_graph_destroy(device, graph)
    """, MILLPOND_HOST=mode)  # fmt: skip


def test_values_wait_for_unsynchronized_runs():
    running = session(length=30)
    bound = kit.Bound(running, zeros(), {"y": [4]})
    for i in range(10):
        bound.inputs["x"].update_inplace(np.full(4, i, np.float32))
        running.run_with_iobinding(bound.binding, kit.run_options(disable_synchronize_execution_providers=1))
        bound.binding.synchronize_outputs()
        assert bound.outputs["y"].numpy().tolist() == [i + 30.0] * 4


def test_options_are_seen_by_onnxruntime():
    running = session(use_ep_level_unified_stream=1)
    assert isinstance(running, ort.InferenceSession)
    assert running.get_provider_options()[provider.NAME]["use_ep_level_unified_stream"] == "1"
    assert running.run(None, zeros())[0].tolist() == [3.0] * 4
