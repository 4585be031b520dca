# SPDX-License-Identifier: Apache-2.0
"""Nodes with a kernel of ours that an attribute, an input or an output keeps from us: they run on the CPU provider from
the start, and its results are those of a session without us."""

import numpy as np
import onnxruntime as ort
import provider
import pytest
import tolerance
from onnx import TensorProto, helper

HEADS, KV_HEADS, SIZE, PAST = 4, 2, 16, 4
CAUSAL_WINDOW = {"sliding_window_cache": 1, "local_window_size": PAST}


def feeds(rows, past):
    generator = np.random.default_rng(5)
    shapes = {"query": (1, rows, HEADS * SIZE), "key": (1, rows, KV_HEADS * SIZE), "value": (1, rows, KV_HEADS * SIZE)}
    if past:
        shapes |= dict.fromkeys(("past_key", "past_value"), (1, KV_HEADS, past, SIZE))
    given = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return given | {"seqlens": np.array([past + rows - 1], np.int32), "total": np.array([past + rows], np.int32)}


def group_query(given, outputs, attributes, extra=()):
    names = ["query", "key", "value", "past_key", "past_value", "seqlens", "total"]
    names = [name if name in given else "" for name in names] + list(extra)
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}
    node = helper.make_node("GroupQueryAttention", names, outputs, "tested", domain="com.microsoft", **attributes)
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32}
    inputs = [
        helper.make_tensor_value_info(name, kinds[x.dtype], [f"{name}{i}" for i in range(x.ndim)])
        for name, x in given.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "refused", inputs, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def owner(session):
    return {node: ep for ep, _, node in provider.assigned_nodes(session)}["tested"]


@pytest.mark.parametrize(
    ("rows", "past", "outputs", "attributes", "ours"),
    [
        (2, 0, ["y", "k", "v"], {}, True),
        (2, PAST, ["y", "k", "v"], {"local_window_size": 3}, True),
        (2, 0, ["y", "k", "v", "scores"], {"qk_output": 1}, False),
        (2, 0, ["y", "k", "v", "scores"], {"qk_output": 2}, False),
        (1, PAST, ["y", "k", "v"], CAUSAL_WINDOW, True),
        (2, 0, ["y", "k", "v"], {"local_window_size": 0}, False),
    ],
)
def test_group_query_attention(rows, past, outputs, attributes, ours):
    given = feeds(rows, past)
    model = group_query(given, outputs, attributes)
    session = provider.session(model, options=provider.session_options(threads=1, log_level=4))
    assert owner(session) == (provider.NAME if ours else provider.CPU)
    alone = ort.InferenceSession(model, providers=[provider.CPU])
    for got, want in zip(session.run(None, given), alone.run(None, given), strict=True):
        np.testing.assert_allclose(got, want, **tolerance.FLOAT32)


def test_what_no_provider_runs_is_not_ours_either():
    """Rotary caches left out: the CPU provider says so in its own words when the node runs."""
    session = provider.session(group_query(feeds(2, 0), ["y", "k", "v"], {"do_rotary": 1}),
                               options=provider.session_options(threads=1, log_level=4))
    assert owner(session) == provider.CPU
