# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention token by token: caches that keep a window give what whole ones do, of every type."""

import numpy as np
import onnxruntime as ort
import provider
import pytest
from onnx import TensorProto, helper

HEADS, KV_HEADS, SIZE, WINDOW, TOKENS = 4, 2, 16, 6, 25
KINDS = {  # of a cache: its type, what a row takes, bits
    "float": (TensorProto.FLOAT, np.float32, SIZE, 0),
    "int8": (TensorProto.INT8, np.int8, SIZE, 8),
    "uint8": (TensorProto.UINT8, np.uint8, SIZE // 2, 4),
}


def session(kind, keeps, providers=None):
    cache, _, _, bits = KINDS[kind]
    quantised = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": bits} if bits else {}
    names = ["query", "key", "value", "past_key", "past_value", "lengths", "total"]
    node = helper.make_node("GroupQueryAttention", [*names, *([""] * 5 + ["scale", "scale"] if bits else [])],
                            ["y", "present_key", "present_value"], "tested", domain="com.microsoft",
                            num_heads=HEADS, kv_num_heads=KV_HEADS, local_window_size=WINDOW,
                            sliding_window_cache=int(keeps), **quantised)
    kinds = [TensorProto.FLOAT] * 3 + [cache] * 2 + [TensorProto.INT32] * 2
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    if bits:
        inputs.append(helper.make_tensor_value_info("scale", TensorProto.FLOAT, [1]))
    outputs = [helper.make_tensor_value_info(name, kind, None)
               for name, kind in zip(node.output, [TensorProto.FLOAT, cache, cache], strict=True)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "window", inputs, outputs), opset_imports=opsets, ir_version=10)
    if providers:
        return ort.InferenceSession(model.SerializeToString(), providers=providers)
    return provider.session(model.SerializeToString(), provider_options={"use_tf32": "0"},
                            options=provider.session_options(threads=1))


def talk(session, kind, rows, steps, batch):
    """What attention gives for all tokens, and the rows that the caches have at the end."""
    _, dtype, row, bits = KINDS[kind]
    generator = np.random.default_rng(2)
    fresh = [generator.standard_normal((batch, TOKENS, n * SIZE)).astype(np.float32)
             for n in (HEADS, KV_HEADS, KV_HEADS)]
    caches = [np.full((batch, KV_HEADS, rows, row), 136 if dtype is np.uint8 else 0, dtype) for _ in range(2)]
    found, done = [], 0
    for step in steps:
        given = {name: x[:, done : done + step] for name, x in zip(("query", "key", "value"), fresh, strict=True)}
        done += step
        given |= {"past_key": caches[0], "past_value": caches[1], "total": np.array([done], np.int32),
                  "lengths": np.full(batch, done - 1, np.int32)}
        if bits:
            given["scale"] = np.array([0.03 if bits == 8 else 0.4], np.float32)
        y, *caches = session.run(None, given)
        found.append(y)
    return np.concatenate(found, 1), [cache[:, :, :WINDOW] for cache in caches]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spare", [0, 1, 4])
@pytest.mark.parametrize(("steps", "batch"), [([1] * TOKENS, 2), ([9, *[1] * 16], 2), ([3, 11, 1, 2, 8], 1)])
def test_a_window_is_enough(kind, spare, steps, batch):
    got, kept = talk(session(kind, True), kind, WINDOW + spare, steps, batch)
    want, _ = talk(session(kind, False), kind, TOKENS, steps, batch)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    if kind == "float":  # the CPU provider's caches, too
        there, rows = talk(session(kind, True, [provider.CPU]), kind, WINDOW + spare, steps, batch)
        np.testing.assert_allclose(got, there, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(kept, rows)
