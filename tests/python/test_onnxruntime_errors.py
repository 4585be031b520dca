# SPDX-License-Identifier: Apache-2.0
"""What users of millpond.onnxruntime are told: no memory, options that are not taken, a device nobody asked for."""

import textwrap
from pathlib import Path

import cli_kit
import millpond
import numpy as np
import onnx_kit
import pytest
from core_kit import run_python
from ort_kit import mort, ort

START = """
import millpond, numpy as np, onnx_kit, onnxruntime as ort
import millpond.onnxruntime as mort

def refused(call, *parts, kind=millpond.OutOfMemoryError):
    try:
        call()
    except kind as error:
        assert all(part in str(error) for part in parts), error
        assert "\\n" not in str(error) and "onnxruntime_src" not in str(error), error
        return error
    raise SystemExit("it was not refused")

LIMIT = 8 << 20
"""
NO_MEMORY = '"bytes of device memory", "for \'onnxruntime\'", "MILLPOND_LIMIT"'


def child(code, quiet=True, **more):
    return run_python(START + textwrap.dedent(code), quiet=quiet, **more)


# ---- no memory ----


@pytest.mark.parametrize("rows", [1 << 20, 3 << 19, 1 << 22])  # the output has no room; nor has the input
@pytest.mark.parametrize("mode", ["ORT_SEQUENTIAL", "ORT_PARALLEL"])
def test_a_run_without_memory_says_who_holds_it(rows, mode):
    child(f"""
        assert issubclass(millpond.OutOfMemoryError, MemoryError)
        options = ort.SessionOptions()
        options.execution_mode = ort.ExecutionMode.{mode}
        options.log_severity_level = 4
        session = mort.session(onnx_kit.add_one(["n"]), session_options=options)
        millpond.set_limit(LIMIT)
        x = np.zeros({rows} + 1, np.float32)
        for run in (
            lambda: session.run(None, {{"x": x}}),
            lambda: session.run_with_ort_values(None, {{"x": ort.OrtValue.ortvalue_from_numpy(x)}}),
            lambda: mort.run(session, {{"x": x}}),
            lambda: mort.run(session, {{"x": x}}, {{"y": "cpu"}}),
            lambda: mort.bind(session, {{"x": x}}).run(),
        ):
            refused(run, {NO_MEMORY})
            assert session.run(None, {{"x": np.zeros(4, np.float32)}})[0].tolist() == [1] * 4
    """, quiet=False)


def test_a_session_that_onnx_runtime_has_made_says_it_too():
    """Within its own error, where a node of the provider's is what fails."""
    child("""
        mort.register()
        options = ort.SessionOptions()
        options.log_severity_level = 4
        theirs = ort.InferenceSession(onnx_kit.add_one(["n"]), options, providers=[mort.get_ep_name()])
        millpond.set_limit(LIMIT)
        x = np.zeros((1 << 20) + 1, np.float32)
        refused(lambda: theirs.run(None, {"x": x}), "cannot allocate 4194308 bytes of device memory", kind=Exception)
        refused(lambda: mort.run(theirs, {"x": x}), "cannot allocate 4194308 bytes of device memory")
    """, quiet=False)


def test_weights_without_memory():
    child(f"""
        weights = np.zeros(4 << 20, np.float32)
        node = onnx_kit.Node("Add", ["x", "w"], ["y"], "add")
        model = onnx_kit.model([node], {{"x": [1]}}, {{"y": [4 << 20]}}, {{"w": weights}})
        millpond.set_limit(LIMIT)
        refused(lambda: mort.session(model), {NO_MEMORY})
        millpond.set_limit(0)
        assert mort.session(model)
    """, quiet=False)


def test_an_error_of_another_kind_stays_as_it_is():
    child("""
        session = mort.session(onnx_kit.add_one())
        millpond.set_limit(1)
        pool = millpond.Pool(mort.devices()[0].spec, client="other")
        refused(lambda: pool.alloc(1 << 20))
        try:
            session.run(None, {"x": np.zeros(5, np.float32)})
        except millpond.Error as error:
            raise SystemExit(f"{error!r} instead of ONNX Runtime's")
        except Exception as error:
            assert "dimension" in str(error), error
    """, quiet=False)


def test_the_command_line_prints_it(tmp_path):
    path = tmp_path / "add.onnx"
    path.write_bytes(onnx_kit.add_one(["n"]))
    said = cli_kit.run("run", path, "--shape", f"x={4 << 20}", status=1, MILLPOND_LIMIT="8M")[1]
    assert said.splitlines()[-1].startswith("millpond: ") and "bytes of device memory" in said.splitlines()[-1]
    assert "for 'onnxruntime'" in said.splitlines()[-1]


# ---- options ----


@pytest.mark.parametrize(("options", "parts"), [
    ({"usetf32": 1}, ("'usetf32'", "'use_tf32'")),
    ({"use_tf32": "maybe"}, ("use_tf32", '"maybe"')),
    ({"cudnn_conv_algo_search": "BEST"}, ("cudnn_conv_algo_search", "EXHAUSTIVE")),
    ({"arena.max_mme": "1M"}, ("arena.max_mme", "arena.max_mem")),
    ({"arena.max_mem": "much"}, ("arena.max_mem", '"much"')),
    ({"gpu_mem_limit": "much"}, ("arena.max_mem", '"much"')),
    ({"arena_extend_strategy": "kSometimes"}, ("arena.extend_strategy", "kNextPowerOfTwo")),
])
@pytest.mark.parametrize("providers", [(), ("CPUExecutionProvider",)])
def test_options_that_are_not_taken_are_refused(options, parts, providers):
    with pytest.raises(ValueError, match="^[^\n]*$") as caught:
        mort.session(onnx_kit.add_one(), options=options, providers=providers)
    assert isinstance(caught.value, millpond.InvalidArgumentError)
    assert all(part in str(caught.value) for part in parts), caught.value
    assert "onnxruntime_src" not in str(caught.value)


@pytest.mark.parametrize(("model", "options", "part"), [
    ("", {}, "'' is not the path of a model"),
    ("a\0b", {}, "is not the path of a model"),
    (onnx_kit.add_one(), [("use_tf32", 1)], "options is a list; give a mapping"),
    (onnx_kit.add_one(), "use_tf32", "options is a str; give a mapping"),
])
def test_arguments_of_another_kind_are_refused(model, options, part):
    with pytest.raises(millpond.InvalidArgumentError, match=part):
        mort.session(model, options=options)


def test_an_input_that_is_none():
    with pytest.raises(millpond.InvalidArgumentError, match="^the model's inputs x have no value, but None$"):
        mort.session(onnx_kit.add_one()).run(None, {"x": None})


def test_a_model_too_old_for_any_kernel():
    old = onnx_kit.model([onnx_kit.Node("Relu", ["x"], ["y"], "early")], {"x": [2]}, {"y": [2]}, opset=5)
    with pytest.raises(millpond.UnsupportedError, match="^no provider has a kernel for the node 'early'[^\n]*$"):
        mort.session(old)


def test_a_run_in_a_forked_child():
    child("""
        import os
        session = mort.session(onnx_kit.add_one())
        x = {"x": np.zeros(4, np.float32)}
        session.run(None, x)
        child = os.fork()
        if child == 0:
            refused(lambda: session.run(None, x), "forked", "spawn", kind=millpond.UnsupportedError)
            os._exit(5)  # ONNX Runtime itself waits for its threads, which the child lacks
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    """, quiet=False)


def test_a_limit_of_a_session_works_or_is_refused():
    child("""
        session = mort.session(onnx_kit.add_one(["n"]), options={"arena.max_mem": "4M"})
        refused(lambda: session.run(None, {"x": np.zeros(1 << 20, np.float32)}), "arena.max_mem (4194304 bytes)")
        assert mort.session(onnx_kit.add_one(), options={"arena.max_mem": "4M"})
        refused(lambda: mort.session(onnx_kit.add_one(), options={"arena.max_mem": "5M"}), "arena.max_mem=5242880",
                "4194304", "MILLPOND_POOL", kind=millpond.InvalidArgumentError)
    """, quiet=False)


@pytest.mark.parametrize("size", ["row=4", "n=4"])
def test_a_dimension_that_the_model_lacks(size, tmp_path):
    path = tmp_path / "add.onnx"
    path.write_bytes(onnx_kit.add_one(["rows", "columns"]))
    said = cli_kit.refused("run", path, "--dim", size, "--dim", "columns=2")
    assert f"'{size.partition('=')[0]}'" in said and "rows, columns" in said


# ---- the emulated device ----


ON_THE_CPU = {"MILLPOND_DEVICE": "", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("make", [
    "mort.session(model)",
    "mort.session(model, 0)",
    "mort.register() and ort.InferenceSession(model, providers=[mort.get_ep_name()])",
])
def test_emulation_that_nobody_asked_for_is_told_once(make):
    done = cli_kit.program(START + textwrap.dedent(f"""
        model = onnx_kit.add_one()
        for _ in range(3):
            assert {make}
    """), **ON_THE_CPU)
    told = [line for line in done.stderr.splitlines() if "emulated device" in line]
    assert len(told) == 1 and "MILLPOND_DEVICE=host" in told[0] and "millpond doctor" in told[0], done.stderr


@pytest.mark.parametrize(("make", "variables"), [
    ("mort.session(model, 'host')", ON_THE_CPU),
    ("mort.session(model, mort.devices()[0])", ON_THE_CPU),
    ("mort.session(model)", ON_THE_CPU | {"MILLPOND_DEVICE": "host"}),
])
def test_emulation_that_was_asked_for_is_no_news(make, variables):
    done = cli_kit.program(START + f"model = onnx_kit.add_one()\nassert {make}\n", **variables)
    assert done.stderr == ""


def test_a_demo_that_has_printed_its_device_is_told_nothing():
    demo = Path(__file__).resolve().parents[2] / "demo"
    done = cli_kit.program(textwrap.dedent(f"""
        import onnx_kit, sys
        sys.path.append({str(demo)!r})
        import provider
        assert provider.session(onnx_kit.add_one())
    """), **ON_THE_CPU, MILLPOND_EP_LIBRARY=millpond.get_library_path())
    assert done.stderr == ""


@pytest.mark.parametrize(("device", "chosen"), [("", False), ("host", True)])
def test_policies_do_not_choose_what_nobody_asked_for(device, chosen):
    cli_kit.program(START + textwrap.dedent(f"""
        mort.register()
        there = [each for each in ort.get_ep_devices() if each.ep_name == mort.get_ep_name()]
        assert there[0].device.vendor == "Millpond" and there[0].device.vendor_id == 0
        assert there[0].device.metadata["emulated"] == "1"
        policies = ort.OrtExecutionProviderDevicePolicy
        for policy in (policies.PREFER_GPU, policies.MAX_PERFORMANCE, policies.PREFER_CPU, policies.DEFAULT):
            options = ort.SessionOptions()
            options.set_provider_selection_policy(policy)
            session = ort.InferenceSession(onnx_kit.add_one(), options)
            wanted = {chosen} and policy in (policies.PREFER_GPU, policies.MAX_PERFORMANCE)
            assert (mort.get_ep_name() in session.get_providers()) == wanted, policy
        assert mort.session(onnx_kit.add_one(), "host").run(None, {{"x": np.zeros(4, np.float32)}})
    """), **ON_THE_CPU | {"MILLPOND_DEVICE": device})


# ---- what things look like ----


def test_what_a_session_and_a_placement_look_like():
    session = mort.session(onnx_kit.add_one())
    assert isinstance(session, ort.InferenceSession) and isinstance(session, mort.Session)
    assert repr(session) == "<millpond.onnxruntime.Session of x tensor(float)[4], y tensor(float)[4]>"
    assert repr(mort.bind(session)) == f"<Binding of x to y on {mort.devices()[0].spec}>"
    placed = mort.placement(session)
    assert repr(placed) == f"<Placement of 1 nodes: 1 on {mort.get_ep_name()}>"
    table = placed._repr_html_()
    assert table.startswith("<table>") and "<td>Add</td>" in table


def test_names_of_the_providers():
    assert millpond.get_ep_names() == [millpond.get_ep_name()] == mort.get_ep_names()


def test_a_device_array_in_a_notebook():
    y = mort.run(mort.session(onnx_kit.add_one()), {"x": np.zeros(4, np.float32)})["y"]
    assert "float32" in y._repr_html_() and mort.devices()[0].spec in y._repr_html_()
