# SPDX-License-Identifier: Apache-2.0
"""millpond.onnxruntime: registration, devices, sessions, placement. What changes registrations runs in a process."""

import re
import textwrap

import millpond
import numpy as np
import onnx_kit
import pytest
from core_kit import run_python
from onnx_kit import Node
from ort_kit import EXACT, check_version, mort, ort

START = "import millpond, numpy as np, onnx_kit, onnxruntime as ort\nimport millpond.onnxruntime as mort\n"


def child(code, **more):
    return run_python(START + textwrap.dedent(code), **more)


# ---- registration ----


def test_register_is_idempotent():
    child("""
        assert not mort.is_registered()
        first = mort.register()
        assert mort.register() == first == mort.devices() and mort.is_registered()
        assert len(ort.get_ep_devices()) == len(first) + 1  # the CPU's
        try:
            mort.register("Another")
        except millpond.Error as error:
            assert "'CudaPluginExecutionProvider'" in str(error) and "'Another'" in str(error)
        else:
            raise SystemExit("registered twice")
    """)


def test_another_name():
    child("""
        mort.register("My name")
        session = mort.session(onnx_kit.add_one())
        assert session.get_providers()[0] == mort.get_ep_name()
        assert session.run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [1] * 4
        del session
        assert mort.unregister() and not mort.is_registered()
        mort.register()
        mort.register(mort.get_ep_name())
    """)


def test_in_the_place_of_onnxruntimes_cuda_provider():
    """A program for that one, with its options in its own words, after one line."""
    child("""
        device = mort.register("CUDAExecutionProvider")[0]
        assert device.provider == "CUDAExecutionProvider"
        options = {"device_id": 0, "gpu_mem_limit": 8 << 20, "arena_extend_strategy": "kSameAsRequested",
                   "cudnn_conv_algo_search": "HEURISTIC", "do_copy_in_default_stream": True, "use_tf32": 0}
        session = ort.InferenceSession(
            onnx_kit.add_one(), providers=[("CUDAExecutionProvider", options), "CPUExecutionProvider"])
        assert session.get_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
        assert session.run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [1] * 4
        try:
            millpond.Pool(device.spec).alloc(9 << 20)
        except millpond.OutOfMemoryError as error:
            assert "arena.max_mem" in str(error), error
        else:
            raise SystemExit("the limit of the session's option is not the pool's")
        ours = mort.session(onnx_kit.add_one(), fall_back=False, options={"use_tf32": 0})
        assert mort.effective_options(ours)["use_tf32"] == "0"
        assert ours.get_providers()[0] == "CUDAExecutionProvider"
        assert mort.run(ours, {"x": np.zeros(4, np.float32)})["y"].numpy().tolist() == [1] * 4
        placed = mort.placement(ours)
        assert placed.elsewhere == () and list(placed.counts) == ["CUDAExecutionProvider"]
        for wrong, words in (({"use_tf23": 0}, "did you mean 'use_tf32'?"), ({"use_tf32": "x"}, 'use_tf32 is "x"')):
            try:
                mort.session(onnx_kit.add_one(), options=wrong)
            except millpond.InvalidArgumentError as error:
                assert words in str(error), error
            else:
                raise SystemExit(f"an option that is none was taken: {wrong}")
        try:
            mort.unregister()
        except millpond.Error as error:
            assert "still use the provider" in str(error)
        else:
            raise SystemExit("unregistered beneath a session")
        del session, ours
        assert mort.unregister() and not mort.is_registered()
        assert mort.register()[0].provider == mort.get_ep_name()
    """)


def test_an_onnxruntime_with_a_cuda_provider_of_its_own_is_not_deceived():
    child("""
        ort.get_available_providers = lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
        try:
            mort.register("CUDAExecutionProvider")
        except millpond.Error as error:
            assert "of its own" in str(error) and "onnxruntime-gpu" in str(error)
        else:
            raise SystemExit("registered")
        assert not mort.is_registered()
    """)


def test_registered_by_other_code():
    child("""
        ort.register_execution_provider_library("Theirs", millpond.get_library_path())
        assert len(mort.register()) == len(mort.devices()) == 1
        assert mort.session(onnx_kit.add_one()).run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [1] * 4
        assert not mort.unregister()  # what is theirs stays
        assert mort.is_registered()
    """)


def test_sessions_go_first():
    child("""
        session = mort.session(onnx_kit.add_one())
        cpu = ort.InferenceSession(onnx_kit.add_one(), providers=["CPUExecutionProvider"])
        theirs = ort.InferenceSession(onnx_kit.add_one(), providers=[mort.get_ep_name()])
        binding = session.io_binding()
        for left in (3, 2, 1):
            try:
                mort.unregister()
            except millpond.Error as error:
                assert str(error).startswith(f"{left} sessions or bindings"), error
            else:
                raise SystemExit("unregistered under a session")
            if left == 3:
                del theirs
            elif left == 2:
                del session
        del binding
        assert mort.unregister() and not mort.unregister()
        assert cpu.run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [1] * 4
        for _ in range(3):
            session = mort.session(onnx_kit.add_one())
            assert session.run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [1] * 4
            del session
            assert mort.unregister()
    """)


def test_an_output_keeps_its_session():
    """Whose allocator frees the memory; so the registration stays as well."""
    child("""
        import gc, weakref
        session = mort.session(onnx_kit.add_one())
        gone = weakref.ref(session)
        y = mort.run(session, {"x": np.zeros(4, np.float32)})["y"]
        kept = y.__dlpack__(stream=-1)
        del session, y
        for last in (False, True):
            try:
                mort.unregister()
            except millpond.Error as error:
                assert "1 sessions" in str(error) and not last
                assert gone() is not None
                del kept
                gc.collect()
                assert gone() is None
            else:
                assert last and not mort.is_registered()
        # a value of other memory keeps nothing
        mort.register()
        value = mort.as_ortvalue(millpond.Pool(mort.devices()[0].spec).alloc(16))
        assert mort.unregister()
        del value
    """)


@pytest.mark.parametrize(("keep", "end"), [
    *[(keep, end) for keep in ("session, y", "session", "y", "None")
      for end in ("", "import os; os._exit(0)", "raise SystemExit(0)")], ("None", "mort.unregister()")])
def test_a_process_may_end_at_any_moment(keep, end):
    child(f"""
        def make():
            session = mort.session(onnx_kit.add_one())
            y = mort.run(session, {{"x": np.zeros(4, np.float32)}})["y"]
            buffer = millpond.Pool(session and "auto").alloc(16)
            value = mort.as_ortvalue(buffer)
            return {keep}, value
        kept = make()
        {end}
    """)


def test_a_library_that_is_not_there_is_named(tmp_path):
    child("""
        for path, part in (("/nowhere.so", "is not there"), (ort.__file__, "refused")):
            try:
                mort.register(library=path)
            except millpond.Error as error:
                assert path in str(error) and part in str(error) and "\\n" not in str(error), error
            else:
                raise SystemExit("registered")
        assert mort.register()
    """, quiet=False)


def test_an_unknown_device_wish_is_named():
    child("""
        try:
            mort.register()
        except millpond.Error as error:
            assert "MILLPOND_DEVICE" in str(error) and "abacus" in str(error), error
        else:
            raise SystemExit("registered")
    """, MILLPOND_DEVICE="abacus", quiet=False)  # ONNX Runtime logs it too


@pytest.mark.parametrize("version", ["1.25.1", "1.9.0", "0.5"])
def test_an_old_onnxruntime_is_refused(version):
    with pytest.raises(millpond.UnsupportedError, match=re.escape(version) + ".*needs 1.26 or newer.*pip install"):
        check_version(version)
    check_version("1.26.0")
    check_version("2.0.0+cu13")


def test_no_onnxruntime_is_said():
    out = run_python("""
        import sys
        sys.modules["onnxruntime"] = None
        try:
            import millpond.onnxruntime
        except ImportError as error:
            print(error)
    """)
    assert out.count("\n") == 1 and "pip install onnxruntime" in out


# ---- devices ----


def test_a_device_says_what_it_is():
    device = mort.devices()[0]
    pool = millpond.Pool(device.spec)
    assert (device.spec, device.name, device.is_emulated) == (pool.device, pool.device_name, pool.is_emulated)
    assert device.ordinal == 0 and device.reason and device.memory_bytes == pool.memory_info()[1]
    assert device.ort_device.ep_name == millpond.get_ep_name()


def test_devices_are_chosen():
    child("""
        first, second = mort.devices()
        assert (first.spec, second.spec) == ("host:0", "host:1")
        for wish in ("host:1", 1, second):
            session = mort.session(onnx_kit.add_one(), wish)
            y = mort.run(session, {"x": np.zeros(4, np.float32)})["y"]
            assert y.device == second and np.asarray(y).tolist() == [1] * 4
            assert millpond.Pool("host:1").find(y.address)["client"] == "onnxruntime"
        assert mort.session(onnx_kit.add_one(), "host").get_provider_options()[mort.get_ep_name()]["device_id"] == "0"
        session = mort.session(onnx_kit.add_one(), 1, providers=["CPUExecutionProvider"])
        assert mort.run(session, {"x": np.zeros(4, np.float32)})["y"].device == second
        buffer = millpond.Pool("host:1").alloc(16)
        assert mort.as_array(mort.as_ortvalue(buffer)).device == second
    """, MILLPOND_DEVICE="host", MILLPOND_HOST_DEVICES="2", quiet=False)


@pytest.mark.parametrize("wish", ["cuda:63", "host:63", 63, "abacus"])
def test_a_device_that_is_not_there_is_named(wish):
    with pytest.raises(millpond.NotFoundError, match=f"no device {wish!r} .*only {mort.devices()[0].spec}"):
        mort.session(onnx_kit.add_one(), wish)


def test_no_device_at_all():
    with pytest.raises(millpond.InvalidArgumentError, match="is not a device"):
        mort.session(onnx_kit.add_one(), 1.5)


# ---- sessions ----


def test_models_of_each_form(tmp_path):
    path = tmp_path / "add.onnx"
    path.write_bytes(onnx_kit.add_one())

    class Proto:
        def SerializeToString(self):  # noqa: N802  as an onnx.ModelProto has it
            return path.read_bytes()

    for model in (path, str(path), path.read_bytes(), Proto()):
        assert mort.session(model).run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [1] * 4
    with pytest.raises(millpond.InvalidArgumentError, match="a int is not a model"):
        mort.session(5)


def test_options_arrive():
    session = mort.session(onnx_kit.mixed(), options={"use_tf32": False, "cudnn_conv_algo_search": "HEURISTIC"})
    given = session.get_provider_options()[millpond.get_ep_name()]
    assert given["use_tf32"] == "0" and given["cudnn_conv_algo_search"] == "HEURISTIC"


def test_effective_options_are_what_the_session_runs_with():
    session = mort.session(onnx_kit.mixed(), options={"use_tf32": False, "cudnn_conv_algo_search": "1"})
    given = ort.SessionOptions()
    given.add_session_config_entry("ep.cuda.use_tf32", "perhaps")  # a warning; among `options` it is an error
    other = mort.session(onnx_kit.mixed(), session_options=given)
    options = mort.effective_options(session)
    assert options["use_tf32"] == "0" and options["cudnn_conv_algo_search"] == "HEURISTIC"
    assert options["enable_cudnn"] == "1" and options["device_id"] == "0"
    assert mort.effective_options(other)["use_tf32"] == "1"


def test_sessions_without_effective_options_are_refused():
    unnamed = ort.InferenceSession(onnx_kit.mixed(), providers=["CPUExecutionProvider"])
    with pytest.raises(millpond.InvalidArgumentError, match="millpond.session"):
        mort.effective_options(unnamed)
    options = ort.SessionOptions()
    options.add_session_config_entry("millpond.session", "elsewhere")
    named = ort.InferenceSession(onnx_kit.mixed(), options, providers=["CPUExecutionProvider"])
    with pytest.raises(millpond.InvalidArgumentError, match="'elsewhere' is not on the provider"):
        mort.effective_options(named)


def test_session_options_arrive(capfd):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = mort.session(onnx_kit.mixed(), session_options=options)
    assert mort.placement(session).counts[millpond.get_ep_name()]["MatMul"] == 1
    with pytest.raises(millpond.InvalidArgumentError, match="new ones for each session"):
        mort.session(onnx_kit.mixed(), session_options=options)
    assert "record_ep" not in capfd.readouterr().err  # of an entry that is set twice ONNX Runtime warns


def test_no_fall_back():
    assert mort.session(onnx_kit.add_one(), fall_back=False)
    with pytest.raises(millpond.UnsupportedError, match="LinearRegressor 'regression': no kernel for this operator"):
        mort.session(onnx_kit.mixed(), fall_back=False)
    cpu = ["CPUExecutionProvider"]
    with pytest.raises(millpond.UnsupportedError, match="LinearRegressor 'regression'"):
        mort.session(onnx_kit.mixed(), fall_back=False, providers=cpu)
    assert mort.session(onnx_kit.add_one(), fall_back=False, providers=cpu)


@pytest.mark.parametrize("names", [("shape", "size", "expand"), ("", "", "")])
def test_work_on_shapes_is_no_falling_back(names):
    nodes = [Node("Shape", ["x"], ["s"], names[0]), Node("Add", ["s", "one"], ["t"], names[1]),
             Node("Expand", ["one", "t"], ["z"], names[2])]
    model = model_of(nodes, {"x": ["n"]}, {"z": (onnx_kit.INT64, ["m"])}, {"one": np.array([1])})
    session = mort.session(model, fall_back=False)
    placed = mort.placement(session)
    assert placed.elsewhere and all(node.is_shape_work and "shapes" in node.reason for node in placed.elsewhere)
    assert not placed.fallen_back
    assert session.run(None, {"x": np.zeros(3, np.float32)})[0].tolist() == [1] * 4


def test_an_error_is_no_session_on_the_cpu(capfd):
    """Which is what InferenceSession makes of it, by default, with lines on stdout."""
    with pytest.raises(Exception, match="(?i)model|protobuf"):
        mort.session(b"nonsense")
    with pytest.raises(RuntimeError, match='arena.max_mem is "nonsense"'):
        mort.session(onnx_kit.add_one(), options={"arena.max_mem": "nonsense"})
    assert capfd.readouterr().out == ""


# ---- placement ----


def why(model):
    return {node.title: node for node in mort.placement(model).elsewhere}


def test_placement_of_a_session_and_of_a_model():
    model = onnx_kit.mixed()
    for found in (mort.placement(mort.session(model)), mort.placement(model)):
        assert {node.operator for node in found.elsewhere} == {"LinearRegressor"}
        assert sum(found.counts[millpond.get_ep_name()].values()) == 3
    (node,) = found.elsewhere
    assert (node.name, node.provider, node.domain) == ("regression", "CPUExecutionProvider", "ai.onnx.ml")
    assert node.reason == "no kernel for this operator" and not node.is_shape_work


def test_reasons():
    shape = model_of([Node("Shape", ["x"], ["s"], "shape"), Node("Add", ["s", "one"], ["t"], "size"),
                      Node("Expand", ["one", "t"], ["z"], "expand")], {"x": ["n"]}, {"z": (onnx_kit.INT64, ["m"])},
                     {"one": np.array([1])})
    assert why(shape)["Add"].is_shape_work and "shapes" in why(shape)["Add"].reason

    kind = model_of([Node("Add", ["x", "x"], ["y"], "add")], {"x": (onnx_kit.STRING, [2])},
                    {"y": (onnx_kit.STRING, [2])})
    with pytest.raises(Exception, match="(?i)type"):  # no provider has it
        mort.session(kind)

    where = model_of([Node("Where", ["c", "x", "x"], ["y"], "where")],
                     {"c": (onnx_kit.BOOL, [2]), "x": (onnx_kit.STRING, [2])}, {"y": (onnx_kit.STRING, [2])})
    assert why(where)["Where"].reason.startswith("no kernel for T = tensor(string); there are tensor(")

    rank = model_of([Node("Neg", ["x"], ["y"], "deep")], {"x": [1] * 17}, {"y": [1] * 17})
    assert why(rank)["Neg"].reason == "x has 17 dimensions; the provider takes at most 16"

    distance = Node("CDist", ["x", "x"], ["y"], "distance", "com.microsoft")
    other = onnx_kit.model([distance], {"x": [4, 2]}, {"y": [4, 4]}, domains=["com.microsoft"])
    assert why(other)["com.microsoft.CDist"].reason == "no kernel for this operator"


def model_of(nodes, inputs, outputs, constants=()):
    return onnx_kit.model(nodes, inputs, outputs, constants)


def test_nodes_of_inner_graphs():
    node = Node("LinearRegressor", ["q"], ["d"], "inner", "ai.onnx.ml", {"coefficients": [1.0, 2.0]})
    branch = onnx_kit.graph_bytes([node], {}, {"d": [2, 1]})
    other = onnx_kit.graph_bytes([Node("ReduceSum", ["q", ""], ["e"], "sum")], {}, {"e": [1, 1]})
    node = Node("If", ["c"], ["y"], "choice", attributes={"then_branch": branch, "else_branch": other})
    model = onnx_kit.model([node], {"c": (onnx_kit.BOOL, []), "q": [2, 2]}, {"y": ["m", 1]},
                           domains=["ai.onnx.ml"])
    found = mort.placement(model)
    assert found.counts[millpond.get_ep_name()] == {"ReduceSum": 1, "If": 1}
    assert {node.name: node.reason for node in found.elsewhere} == {"inner": "no kernel for this operator"}


def test_a_session_that_has_not_recorded_it():
    session = ort.InferenceSession(onnx_kit.add_one(), providers=["CPUExecutionProvider"])
    with pytest.raises(millpond.InvalidArgumentError, match="session.record_ep_graph_assignment_info"):
        mort.placement(session)


def test_versions_that_there_are_no_kernels_for():
    from millpond._ort_placement import Reasons

    reasons = Reasons()
    assert reasons.missing("", "Relu", 18) is None
    assert reasons.missing("", "Relu", 1).startswith("no kernel for version 1; there are ")
    assert reasons.missing("", "Nonsense", 18) == "no kernel for this operator"
    assert reasons.missing("somebody", "Relu", 18) == "no kernel for this operator"


def test_results_are_those_of_the_cpu():
    feed = onnx_kit.mixed_feed(5)
    cpu = ort.InferenceSession(onnx_kit.mixed(), providers=["CPUExecutionProvider"])
    result = mort.session(onnx_kit.mixed(), options=EXACT).run(None, feed)[0]
    np.testing.assert_allclose(result, cpu.run(None, feed)[0], rtol=1e-4, atol=1e-5)
