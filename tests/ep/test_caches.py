# SPDX-License-Identifier: Apache-2.0
"""Caches that an operator makes grow: bound once as input and as output, beside those given with each run."""

import numpy as np
import onnxruntime as ort
import provider
import pytest
from onnx import TensorProto, helper

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
