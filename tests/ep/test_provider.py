# SPDX-License-Identifier: Apache-2.0
"""The provider itself: registration, devices, options, faulty models, threads, life times, bound values.

What ends a process or changes its registrations runs in a child process.
"""

import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import onnxruntime as ort
import provider
import pytest
import small_models
import tolerance
from onnx import helper
from ort_version import ORT

TESTS = Path(__file__).resolve().parents[1]
THREADS, RUNS_A_THREAD = 8, 25
CHILD_START = """
import gc, sys, numpy as np, onnxruntime as ort
import provider, small_models
# On a GPU, products of floats round their inputs to TF32 unless a test says use_tf32=0.
TF32 = {"rtol": 1e-2, "atol": 1e-2}
def run(session, rows=3):
    return session.run(None, small_models.mixed_feed(rows))[0]
def expected(rows=3):
    cpu = ort.InferenceSession(small_models.mixed(), providers=["CPUExecutionProvider"])
    return cpu.run(None, small_models.mixed_feed(rows))[0]
"""


def child(code, **environment):
    """Runs code in another Python; gives the finished process, its output as text."""
    paths = [str(TESTS / "ep"), str(TESTS / "models"), str(TESTS.parent / "demo")]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}
    script = textwrap.dedent(CHILD_START) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=240)


def finished(done):
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def device():
    return provider.register()[0]


@pytest.fixture(scope="module")
def emulated(device):
    return provider.is_emulated(device)


def cpu_result(model, feed):
    return ort.InferenceSession(model, providers=[provider.CPU]).run(None, feed)


def assert_close(result, expected):
    """What TF32 on a GPU leaves of these models, whose sums are short."""
    np.testing.assert_allclose(result, expected, **tolerance.TF32)


# ---- devices ----


def test_device_says_what_it_is(device):
    known = provider.metadata(device)
    assert device.device.type == ort.OrtHardwareDeviceType.GPU
    assert known["cuda_device_id"] == "0"
    assert known["emulated"] in ("0", "1")
    assert known["cuda_device_name"]
    major, minor = known["cuda_compute_capability"].split(".")
    assert int(major) >= 0 and int(minor) >= 0
    assert dict(device.ep_options)["device_id"] == "0"


def test_emulated_device_says_so():
    code = "[device] = provider.register(); print(provider.metadata(device)['emulated'])"
    assert finished(child(code, MILLPOND_DEVICE="host")).stdout == "1\n"


def test_unknown_device_wish_is_an_error():
    done = child("provider.register()", MILLPOND_DEVICE="abacus")
    assert done.returncode == 1
    assert "MILLPOND_DEVICE" in done.stderr and "abacus" in done.stderr


def test_provider_is_listed(device):
    assert provider.NAME in ort.get_available_providers()
    session = provider.session(small_models.add_chain(2))
    assert session.get_providers()[0] == provider.NAME


def test_device_can_be_chosen(device):
    options = provider.session_options()
    options.add_provider_for_devices([device], {})
    session = ort.InferenceSession(small_models.add_chain(3), options)
    assert set(provider.assignment(session)) == {provider.NAME}
    assert session.run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [3.0] * 4


def test_each_of_two_devices_runs_sessions():
    done = child(
        """
        devices = provider.register()
        assert [provider.metadata(device)["cuda_device_id"] for device in devices] == ["0", "1"]
        for device in devices:
            options = provider.session_options()
            options.add_provider_for_devices([device], {})
            session = ort.InferenceSession(small_models.mixed(), options)
            np.testing.assert_allclose(run(session), expected(), rtol=1e-5, atol=1e-5)
            binding = session.io_binding()
            for name, value in small_models.mixed_feed(3).items():
                index = int(provider.metadata(device)["cuda_device_id"])
                binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value, "cuda", index))
            binding.bind_output("y")
            session.run_with_iobinding(binding)
            np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], expected(), rtol=1e-5, atol=1e-5)
        """,
        MILLPOND_DEVICE="host",
        MILLPOND_HOST_DEVICES="2",
    )
    finished(done)


# ---- options ----


def test_bad_option_value_is_named():
    """Python's session() refuses it, one that ONNX Runtime makes has the default: the user is told which was wrong."""
    done = child("""
        try:
            provider.session(small_models.mixed(), provider_options={"use_tf32": "perhaps"})
            raise SystemExit("it was taken")
        except ValueError as error:
            assert "use_tf32" in str(error) and "perhaps" in str(error), error
        given = (provider.NAME, {"use_tf32": "perhaps"})
        session = ort.InferenceSession(small_models.mixed(), providers=[given, provider.CPU])
        np.testing.assert_allclose(run(session), expected(), **TF32)
    """)
    assert "use_tf32" in finished(done).stderr and "perhaps" in done.stderr


def test_unknown_option_is_no_failure():
    done = child("""
        provider.register()
        given = (provider.NAME, {"no_such_option": "1"})
        session = ort.InferenceSession(small_models.mixed(), providers=[given, provider.CPU])
        np.testing.assert_allclose(run(session), expected(), **TF32)
    """)
    finished(done)


def test_good_options_are_taken():
    for options in ({"use_tf32": "0"}, {"use_tf32": "1", "cudnn_conv_algo_search": "HEURISTIC"}):
        session = provider.session(small_models.mixed(), provider_options=options)
        given = session.get_provider_options()[provider.NAME]
        assert options.items() <= given.items()
        feed = small_models.mixed_feed(3)
        assert_close(session.run(None, feed)[0], cpu_result(small_models.mixed(), feed)[0])


def test_no_fall_back_means_none():
    chain = provider.session(small_models.add_chain(5), fall_back=False)
    assert set(provider.assignment(chain)) == {provider.NAME}
    with pytest.raises(NotImplementedError, match="LinearRegressor 'regression'.*fall_back"):
        provider.session(small_models.mixed(), fall_back=False)


# ---- faulty models and inputs ----


def test_corrupt_model_is_refused_and_the_next_one_runs():
    whole = small_models.mixed()
    for broken in (whole[: len(whole) // 2], b"\x08\x09" + os.urandom(64), b""):
        with pytest.raises(Exception, match="(?i)protobuf|model"):
            provider.session(broken)
    feed = small_models.mixed_feed(2)
    assert_close(provider.session(whole).run(None, feed)[0], cpu_result(whole, feed)[0])


def test_wrong_shapes_fail_and_the_session_lives_on():
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")]
    session = provider.session(small_models.model(nodes, {"a": ["m", "k"], "b": ["l", "n"]}, {"y": ["m", "n"]}))
    good = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 4), np.float32)}
    bad = {"a": np.ones((2, 3), np.float32), "b": np.ones((5, 4), np.float32)}
    for _ in range(2):
        assert session.run(None, good)[0].tolist() == [[3.0] * 4] * 2
        with pytest.raises(Exception, match="product|MatMul"):
            session.run(None, bad)
    assert session.run(None, good)[0].tolist() == [[3.0] * 4] * 2


def test_impossible_reshape_is_refused():
    done = child("""
        from onnx import helper
        nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="shape")]
        model = small_models.model(nodes, {"x": [6]}, {"y": [5]}, {"s": np.array([5], np.int64)})
        try:
            provider.session(model).run(None, {"x": np.zeros(6, np.float32)})
            raise SystemExit("6 elements were reshaped to 5")
        except Exception as error:
            print(error, file=sys.stderr)
    """)
    finished(done)


def test_too_large_a_tensor_is_out_of_memory(emulated):
    if not emulated:
        pytest.skip("a GPU's memory is not ours to fill")
    done = child(
        """
        from onnx import helper
        nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
        model = small_models.model(nodes, {"x": ["n"]}, {"y": ["n"]})
        session = provider.session(model)
        try:
            session.run(None, {"x": np.zeros(1 << 24, np.float32)})
            raise SystemExit("128 MiB fitted into 64 MiB")
        except Exception as error:
            assert "memory" in str(error), error
            print(error, file=sys.stderr)
        np.testing.assert_allclose(run(provider.session(small_models.mixed())), expected(), **TF32)
    """,
        MILLPOND_HOST_MEMORY=str(64 << 20),
        MILLPOND_DEVICE="host",
    )
    finished(done)


# ---- threads and life times ----


def hammer(session, feeds, wanted, faults):
    try:
        for i in range(RUNS_A_THREAD):
            feed, want = feeds[i % len(feeds)], wanted[i % len(feeds)]
            np.testing.assert_allclose(session.run(None, feed)[0], want, rtol=1e-5, atol=1e-5)
    except BaseException as fault:  # noqa: BLE001  the main thread reports it
        faults.append(fault)


def exact_session(model):
    """Without TF32, whose ten bits of mantissa are not what these tests are about."""
    return provider.session(
        model, provider_options={"use_tf32": "0"}, options=provider.session_options(threads=1)
    )


def run_threads(sessions, model):
    feeds = [small_models.mixed_feed(rows, seed=rows) for rows in (1, 5, 2, 9)]
    wanted = [cpu_result(model, feed)[0] for feed in feeds]
    faults = []
    threads = [
        threading.Thread(target=hammer, args=(sessions[i % len(sessions)], feeds, wanted, faults))
        for i in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    return threads, faults


def test_two_sessions_from_eight_threads():
    model = small_models.mixed()
    sessions = [exact_session(model) for _ in range(2)]
    threads, faults = run_threads(sessions, model)
    for thread in threads:
        thread.join()
    assert not faults, faults[0]


def test_sessions_come_and_go_while_another_runs():
    model = small_models.mixed()
    keeper = exact_session(model)
    threads, faults = run_threads([keeper], model)
    while any(thread.is_alive() for thread in threads):
        passing = provider.session(model, options=provider.session_options(threads=1))
        passing.run(None, small_models.mixed_feed(4))
        del passing
    for thread in threads:
        thread.join()
    assert not faults, faults[0]


def test_output_outlives_its_session():
    session = provider.session(small_models.add_chain(2))
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.zeros(4, np.float32))
    binding.bind_output("y", "cuda", 0)
    session.run_with_iobinding(binding)
    [value] = binding.get_outputs()
    del binding, session
    assert value.numpy().tolist() == [2.0] * 4


# ---- values on the device ----


def test_outputs_are_bound_to_the_device():
    """By a value with every ONNX Runtime, by the device's name from 1.30 on: docs/i_have_a_model.md says so."""
    session = provider.session(small_models.add_chain(2))
    value = ort.OrtValue.ortvalue_from_shape_and_type([4], np.float32, "cuda", 0)
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.zeros(4, np.float32))
    binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    assert value.device_name() == binding.get_outputs()[0].device_name() == "cuda"
    assert value.numpy().tolist() == [2.0] * 4
    def by_name():
        binding.clear_binding_outputs()
        binding.bind_output("y", "cuda", 0)
        session.run_with_iobinding(binding)
    if ORT < (1, 30):
        with pytest.raises(Exception, match="allocator"):
            by_name()
        return
    by_name()
    [output] = binding.get_outputs()
    assert output.device_name() == "cuda" and output.numpy().tolist() == [2.0] * 4


def test_bound_values_stay_on_the_device():
    session = provider.session(small_models.add_chain(4, 1024), fall_back=False)
    x = ort.OrtValue.ortvalue_from_numpy(np.arange(1024, dtype=np.float32), "cuda", 0)
    y = ort.OrtValue.ortvalue_from_shape_and_type([1024], np.float32, "cuda", 0)
    assert x.device_name().lower() in ("cuda", "gpu")
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for _ in range(3):
        session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert np.array_equal(y.numpy(), np.arange(1024) + 4)
    x.update_inplace(np.zeros(1024, np.float32))
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert np.array_equal(y.numpy(), np.full(1024, 4))
    assert np.array_equal(x.numpy(), np.zeros(1024))


def test_output_of_one_session_feeds_another():
    first, second = (provider.session(small_models.add_chain(length)) for length in (2, 3))
    binding = first.io_binding()
    binding.bind_cpu_input("x", np.ones(4, np.float32))
    binding.bind_output("y", "cuda", 0)
    first.run_with_iobinding(binding)
    then = second.io_binding()
    then.bind_ortvalue_input("x", binding.get_outputs()[0])
    then.bind_output("y")
    second.run_with_iobinding(then)
    assert then.copy_outputs_to_cpu()[0].tolist() == [6.0] * 4


def test_values_are_copied_each_way():
    for kind in (np.float32, np.float16, np.int64, np.uint8, bool):
        values = np.arange(60).reshape(3, 4, 5).astype(kind)
        assert np.array_equal(ort.OrtValue.ortvalue_from_numpy(values, "cuda", 0).numpy(), values)
    assert ort.OrtValue.ortvalue_from_numpy(np.zeros((0, 3), np.float32), "cuda", 0).numpy().shape == (0, 3)


# ---- registration ----


def test_same_name_twice():
    done = child("""
        provider.register()
        before = run(provider.session(small_models.mixed()))
        try:
            ort.register_execution_provider_library(provider.NAME, str(provider.library_path()))
            raise SystemExit("a second registration of the name was taken")
        except Exception as error:
            print(error, file=sys.stderr)
        assert len(provider.devices()) >= 1
        np.testing.assert_allclose(run(provider.session(small_models.mixed())), before)
    """)
    finished(done)


def test_another_name_for_the_same_library():
    done = child("""
        provider.register()
        count = len(provider.devices())
        try:
            ort.register_execution_provider_library("Another", str(provider.library_path()))
            ort.unregister_execution_provider_library("Another")
        except Exception as error:
            print(error, file=sys.stderr)
        assert len(provider.devices()) == count
        np.testing.assert_allclose(run(provider.session(small_models.mixed())), expected(), **TF32)
    """)
    finished(done)


def test_library_without_the_pools_is_refused_by_name(tmp_path):
    """But not where the process has that one already: with the package millpond."""
    alone = shutil.copy(provider.library_path(), tmp_path)
    code = f"""
        import sys, onnxruntime as ort
        sys.path[:0] = [entry for entry in sys.argv[1:]]
        if sys.argv[1:]:
            import millpond
        try:
            ort.register_execution_provider_library("alone", {str(alone)!r})
        except Exception as error:
            raise SystemExit(str(error))
    """
    package = str(Path(provider.pond.__file__).parents[1])
    for path, said in ([], "libmillpond.so.0: cannot open shared object file"), ([package], ""):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *path], capture_output=True, text=True)
        assert (done.returncode != 0) == bool(said) and said in done.stderr, done.stderr


def test_unregistered_and_registered_again():
    done = child("""
        for _ in range(3):
            provider.register()
            session = provider.session(small_models.mixed())
            np.testing.assert_allclose(run(session), expected(), **TF32)
            del session
            gc.collect()
            ort.unregister_execution_provider_library(provider.NAME)
            assert provider.devices() == []
    """)
    finished(done)


def test_a_process_may_end_without_unregistering():
    done = child("session = provider.session(small_models.mixed()); value = run(session)")
    finished(done)


def test_nothing_is_printed():
    done = child("run(provider.session(small_models.mixed()))")
    assert finished(done).stdout == ""
    assert done.stderr == ""


@pytest.mark.parametrize("mode", ["eager", "threaded", "adversarial:1", "adversarial:2"])
def test_every_mode_of_the_emulated_device(mode):
    done = child(
        """
        session = provider.session(small_models.mixed())
        for rows in (1, 7, 3, 7):
            np.testing.assert_allclose(run(session, rows), expected(rows), rtol=1e-5, atol=1e-5)
    """,
        MILLPOND_DEVICE="host",
        MILLPOND_HOST=mode,
    )
    finished(done)
