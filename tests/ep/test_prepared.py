# SPDX-License-Identifier: Apache-2.0
"""Constant weights that an operator wants in another form: made once, when the session begins, and not in each run."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import provider
import pytest
import tolerance
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(11)


def model_of(nodes, inputs, outputs, constants, opset=17):
    given = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    wanted = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "prepared", given, wanted, weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def floats(*shape):
    return RANDOM.standard_normal(shape, np.float32)


def conv(op="Conv", shape=(6, 4, 3, 2), **attrs):
    node = helper.make_node(op, ["x", "w", "b"], ["y"], name="it", **attrs)
    outer = shape[1] * attrs.get("group", 1) if op == "ConvTranspose" else shape[0]
    return model_of([node], {"x": (2, 4, 9, 8)}, ["y"], {"w": floats(*shape), "b": floats(outer)})


def quantized_lstm(hidden=12, size=10):
    def weight(depth):
        return RANDOM.integers(-64, 65, (1, depth, 4 * hidden)).astype(np.int8)

    scale, zero = np.array([0.01], np.float32), np.array([0], np.int8)
    names = ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], name="it", domain="com.microsoft", hidden_size=hidden)
    constants = {"w": weight(size), "r": weight(hidden), "s": scale, "z": zero}
    return model_of([node], {"x": (3, 2, size)}, ["y"], constants)


STEP_OF_8_BITS = {"rtol": 0, "atol": 1 / 127}  # a state, up to 1, is rounded to one byte: either side of a half
MODELS = {
    "conv": (conv(), 1),
    "grouped": (conv(shape=(6, 2, 3, 3), group=2, pads=[1, 1, 1, 1]), 1),
    "one-channel-a-group": (conv(shape=(8, 1, 3, 3), group=4), 0),  # both orders are the same
    "transposed": (conv("ConvTranspose", (4, 5, 3, 2), strides=[2, 1]), 1),
    "lstm": (quantized_lstm(), 2),
}


def session_of(model, prepare=True, profile=None, **more):
    options = provider.session_options(threads=1, log_level=4)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "0" if prepare else "1")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile / "profile")
    return provider.session(model, provider_options={"use_tf32": "0", "prefer_nhwc": "1", **more}, options=options)


def feed_of(model, seed=1):
    generator = np.random.default_rng(seed)
    held = {tensor.name for tensor in onnx.load_from_string(model).graph.initializer}
    return {value.name: generator.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
            for value in onnx.load_from_string(model).graph.input if value.name not in held}


def check(session, model, limit=tolerance.FLOAT32):
    reference = ort.InferenceSession(model, providers=[provider.CPU])
    for seed in range(2):
        feed = feed_of(model, seed)
        for result, want in zip(session.run(None, feed), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(result, want, **limit)


def copies(session, model):
    """How often the node that is looked at moves a tensor into another order, in one run."""
    session.run(None, feed_of(model))
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    ours = [event for event in events if event.get("cat") == "Kernel"
            and event["args"].get("ort_op_name") in ("Conv", "ConvTranspose", "DynamicQuantizeLSTM")]
    return sum("strided_copy" in event["name"] or "transpose_" in event["name"] for event in ours)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prepare", [True, False], ids=["once", "each run"])
def test_results_are_the_same(name, prepare):
    model, _ = MODELS[name]
    check(session_of(model, prepare), model, STEP_OF_8_BITS if name == "lstm" else tolerance.FLOAT32)


def test_a_prepared_weight_is_the_same_to_the_last_bit():
    model, _ = MODELS["lstm"]
    once, each = (session_of(model, prepare).run(None, feed_of(model))[0] for prepare in (True, False))
    np.testing.assert_array_equal(once, each)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_moves_no_weights(name, tmp_path):
    model, weights = MODELS[name]
    once, each = (copies(session_of(model, prepare, profile=tmp_path), model) for prepare in (True, False))
    assert each - once == weights


def test_weights_that_are_inputs_are_not_prepared():
    model = onnx.load_from_string(conv())
    model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, (6, 4, 3, 2)))
    kept = [tensor for tensor in model.graph.initializer if tensor.name != "w"]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    check(session_of(model.SerializeToString()), model.SerializeToString())


def test_others_still_find_the_weights_as_they_were():
    """Two convolutions share weights that an addition reads, too."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Conv", ["x", "w"], ["z"], strides=[2, 2]),
             helper.make_node("Add", ["w", "one"], ["more"])]
    model = model_of(nodes, {"x": (1, 4, 7, 7)}, ["y", "z", "more"], {"w": floats(6, 4, 3, 3), "one": np.float32([1])})
    check(session_of(model), model)


def test_sessions_have_their_own():
    model, _ = MODELS["conv"]
    first, second = session_of(model), session_of(model)
    del first
    check(second, model)


def test_in_a_captured_graph():
    model, _ = MODELS["conv"]
    session = session_of(model, enable_cuda_graph="1")
    binding, x = session.io_binding(), ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 4, 9, 8), np.float32), "cuda", 0)
    want = ort.InferenceSession(model, providers=[provider.CPU])
    shape = want.run(None, feed_of(model))[0].shape
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32), "cuda", 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for seed in range(5):
        feed = feed_of(model, seed)
        x.update_inplace(feed["x"])
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(y.numpy(), want.run(None, feed)[0], **tolerance.FLOAT32)
