# SPDX-License-Identifier: Apache-2.0
"""Caches that an operator makes grow: bound once as input and as output, beside those given with each run."""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import provider
import pytest
import tolerance
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE, BLOCKS, ROOM, STEPS = 2, 16, 6, 4, 5
CACHE = (BLOCKS, ROOM, HEADS, SIZE)


def model(outputs):
    """Two requests with a new token each."""
    half, whole = TensorProto.FLOAT16, TensorProto.INT32
    inputs = [helper.make_tensor_value_info(name, half, (2, HEADS * SIZE)) for name in "qkv"]
    inputs += [helper.make_tensor_value_info(name, half, CACHE) for name in ("keys", "values")]
    inputs += [helper.make_tensor_value_info(name, whole, shape) for name, shape in
               (("starts", (3,)), ("past", (2,)), ("table", (2, 3)))]
    made = helper.make_node("PagedAttention", [x.name for x in inputs], outputs, domain="com.microsoft",
                            num_heads=HEADS, kv_num_heads=HEADS)
    results = [helper.make_tensor_value_info(name, half, None) for name in outputs]
    graph = helper.make_graph([made], "g", inputs, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def feeds():
    rng = np.random.default_rng(7)
    for step in range(STEPS):
        fresh = {name: rng.standard_normal((2, HEADS * SIZE)).astype(np.float16) for name in "qkv"}
        yield fresh | {"past": np.array([step, step + 5], np.int32)}


FIXED = {"starts": np.array([0, 1, 2], np.int32), "table": np.array([[4, 0, 3], [1, 5, 2]], np.int32)}


def session(outputs, fusion):
    return provider.session(model(outputs), provider_options={"fusion": fusion})


@pytest.mark.parametrize("fusion", ["0", "2"])
def test_paged_caches_grow_where_they_are(fusion):
    empty = np.zeros(CACHE, np.float16)
    apart = session(["y", "keys_out", "values_out"], fusion)
    bound = session(["y", "keys_out", "values_out"], fusion)
    binding = bound.io_binding()
    held = {name: ort.OrtValue.ortvalue_from_numpy(empty, "cuda", 0) for name in ("keys", "values")}
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(f"{name}_out", value)
    binding.bind_output("y", "cpu")
    keys, values = empty, empty
    for feed in feeds():
        y, keys, values = apart.run(None, feed | FIXED | {"keys": keys, "values": values})
        for name, value in (feed | FIXED).items():
            binding.bind_cpu_input(name, value)
        bound.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[-1], y)
        np.testing.assert_array_equal(held["keys"].numpy(), keys)
        np.testing.assert_array_equal(held["values"].numpy(), values)
    assert np.count_nonzero(keys.any((2, 3))) == 2 * STEPS


# ---- caches of a whole model, within an island ----

WIDTH, ROWS, PROMPT = HEADS * SIZE, 16, 4


def decoder(reads_past):
    """Two layers over caches with room for ROWS tokens; the mask says how many there are. `reads_past`: the sum of the
    first layer's past keys is a result, too, whose node comes behind those that write the caches."""
    rng = np.random.default_rng(1)
    dense = [ROWS, HEADS, SIZE]
    weights, nodes = [], [
        helper.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"], start=1, end=2),
        helper.make_node("Cast", ["shape"], ["total"], to=TensorProto.INT32)]
    for name, value in (("axis", np.array([1])), ("one", np.array([1]))):
        weights.append(numpy_helper.from_array(value, name))
    last = "x"
    for layer in range(2):
        for name in "qkvo":
            value = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
            weights.append(numpy_helper.from_array(value, f"{name}{layer}.w"))
        nodes += [helper.make_node("MatMul", [last, f"{name}{layer}.w"], [f"{name}{layer}"]) for name in "qkv"]
        names = [f"{name}{layer}" for name in ("q", "k", "v", "past_key", "past_value")]
        nodes += [helper.make_node("GroupQueryAttention", [*names, "lengths", "total"],
                                   [f"a{layer}", f"present_key{layer}", f"present_value{layer}"],
                                   domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS),
                  helper.make_node("MatMul", [f"a{layer}", f"o{layer}.w"], [f"y{layer}"])]
        last = f"y{layer}"
    if reads_past:
        nodes += [helper.make_node("ReduceSum", ["past_key0"], ["all"], keepdims=0),
                  helper.make_node("Add", ["all", "y1"], ["later"])]
    caches = [f"{side}{layer}" for layer in range(2) for side in ("key", "value")]
    shape = ["batch", dense[1], "rows", dense[2]]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", WIDTH]),
              helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "seen"])]
    inputs += [helper.make_tensor_value_info(f"past_{name}", TensorProto.FLOAT, shape) for name in caches]
    outputs = [helper.make_tensor_value_info("later" if reads_past else "y1", TensorProto.FLOAT, None)]
    outputs += [helper.make_tensor_value_info(f"present_{name}", TensorProto.FLOAT, shape) for name in caches]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), caches


def spoken():
    """Fresh tokens and the mask of each run: a prompt, then a token at a time."""
    rng = np.random.default_rng(3)
    for seen in range(PROMPT, PROMPT + STEPS):
        fresh = PROMPT if seen == PROMPT else 1
        yield {"x": rng.standard_normal((1, fresh, WIDTH)).astype(np.float32), "mask": np.ones((1, seen), np.int64)}


def profiled(model, fusion, folder):
    prepared = provider.session_options()
    prepared.enable_profiling = True
    prepared.profile_file_prefix = str(folder / "profile")
    return provider.session(model, provider_options={"fusion": fusion, "use_tf32": "0"}, options=prepared)


def copies(session):
    """How many copies on the device a profiled session has made."""
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return sum(event["name"] == "MemcpyDeviceToDevice" for event in events if event.get("cat") == "Kernel")


@pytest.mark.parametrize(("fusion", "reads_past"), [("0", False), ("1", False), ("2", False), ("1", True)])
def test_a_decoder_writes_its_caches_where_they_are(fusion, reads_past, tmp_path):
    model, caches = decoder(reads_past)
    reference = ort.InferenceSession(model, providers=[provider.CPU])
    bound = profiled(model, fusion, tmp_path)
    binding = bound.io_binding()
    held, known = {}, {}
    for name in caches:
        known[f"past_{name}"] = np.zeros((1, HEADS, ROWS, SIZE), np.float32)
        held[name] = ort.OrtValue.ortvalue_from_numpy(known[f"past_{name}"], "cuda", 0)
        binding.bind_ortvalue_input(f"past_{name}", held[name])
        binding.bind_ortvalue_output(f"present_{name}", held[name])
    for feed in spoken():
        y, *present = reference.run(None, feed | known)
        known = {f"past_{name}": cache for name, cache in zip(caches, present, strict=True)}
        for name, value in feed.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output(bound.get_outputs()[0].name, "cpu")
        bound.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[-1], y, **tolerance.FLOAT32)
        for name in caches:
            np.testing.assert_allclose(held[name].numpy(), known[f"past_{name}"], **tolerance.FLOAT32)
    if fusion == "1" and not reads_past:
        assert copies(bound) == 0
