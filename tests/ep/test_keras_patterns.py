# SPDX-License-Identifier: Apache-2.0
"""What Keras and tf2onnx write, in pieces: results are the CPU provider's, and a run has few steps."""

import numpy as np
import onnxruntime as ort
import provider
import pytest
from exported import Model
from millpond import _ort_islands
from onnx import TensorProto, helper
from ort_version import HOLDS_CONTROL_FLOW

PASSES = ("", "gpu")


def steps_of(model, feed, passes, monkeypatch, rtol=2e-3):  # TF32 may be used, which steps depend on
    """The operators of a run, in order, without views; the results are compared with the CPU provider's."""
    monkeypatch.setenv("MILLPOND_PASSES", passes)
    options = provider.session_options()
    _ort_islands.ask(options)
    session = provider.session(model, options=options, fall_back=False)
    plain = provider.session_options()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = provider.session(model, provider.CPU, options=plain).run(None, feed)
    for got, want in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=rtol * np.abs(want).max())
    programs = [island["programs"][-1] for island in _ort_islands.islands_of(session)["islands"]
                if not island["is_body"]]
    return [step["op"] for program in programs for step in program["steps"]
            if any(kernel["kind"] != "copy" for kernel in step["kernels"])]


def values(*dims, kind=np.float32, seed=3):
    return np.random.default_rng(seed).standard_normal(dims).astype(kind)


def einsum_sides(m, x, width, heads, size, tokens):
    """Q, K and V: a product, taken apart into heads, and a bias of these."""
    def side():
        rows = m("Reshape", m("MatMul", x, m.weight(width, heads * size)), m.ints(-1, tokens, heads, size))
        return m("Add", rows, m.weight(heads, size))

    return side(), side(), side()


def seen_flat(m, x, axis, perm):
    """One side of an Einsum: a dimension of 1, an order, and [batch * heads, rows, elements]. Also which sizes it
    has in that order."""
    wide = m("Unsqueeze", x, m.ints(axis))
    turned = m("Transpose", wide, perm=list(perm)) if perm else wide
    sizes = m("Shape", wide)
    sizes = m("Gather", sizes, m.ints(*perm), axis=0) if perm else sizes
    lead = m("Gather", sizes, m.ints(0, 1), axis=0)
    flat = m("Concat", m("ReduceProd", lead, keepdims=1), m.ints(-1), m("Gather", sizes, m.ints(4), axis=0), axis=0)
    return m("Reshape", turned, flat), sizes, lead


def einsum(m, x, y, x_axis, x_perm, y_axis, y_perm):
    """As tf2onnx writes it: [batch, heads, rows, columns] of a product of three dimensions."""
    a, a_sizes, a_lead = seen_flat(m, x, x_axis, x_perm)
    b, b_sizes, b_lead = seen_flat(m, y, y_axis, y_perm)
    product = m("MatMul", a, m("Transpose", b, perm=[0, 2, 1]))
    back = m("Concat", m("Max", a_lead, b_lead), m("Gather", a_sizes, m.ints(2), axis=0),
             m("Gather", b_sizes, m.ints(3), axis=0), m.ints(1), axis=0)
    return m("Squeeze", m("Reshape", product, back), m.ints(4))


def selected(m, condition, yes, no, kind=TensorProto.FLOAT):
    """SelectV2 as tf2onnx writes it where types are not those of Where."""
    other = m("Cast", m("Not", condition), to=kind)
    return m("Add", m("Mul", m("Cast", condition, to=kind), yes), m("Mul", no, other))


def layer_norm(m, x, width):
    mean = m("GlobalAveragePool", x)
    apart = m("Sub", x, mean)
    root = m("Sqrt", m("Add", m("GlobalAveragePool", m("Mul", apart, apart)), m.constant(1e-6)))
    factor = m("Mul", m("Reciprocal", root), m.constant(values(1, 1, width, seed=1) * 0.1 + 1))
    shift = m("Add", m("Mul", m("Neg", mean), factor), m.constant(values(1, 1, width, seed=2) * 0.1))
    return m("Add", m("Mul", x, factor), shift)


def dense(m, x, width, made):
    """Of three dimensions, by a product of two; sizes of the result are asked for in 32 bits."""
    rows = m("Reshape", x, m.ints(-1, width))
    sizes = m("Gather", m("Cast", m("Shape", x), to=TensorProto.INT32), m.ints(0, 1), axis=0)
    back = m("Cast", m("Concat", sizes, m.constant([made], np.int32), axis=0), to=TensorProto.INT64)
    return m("Add", m("Reshape", m("MatMul", rows, m.weight(width, made)), back), m.weight(made))


def encoder(batch, mask, heads=4, size=8, tokens=12):
    """A layer of Keras's: embedding with indexes from the end, attention, and two products, with norms."""
    width = heads * size
    m = Model(np.float32)
    ids = m.input("ids", batch, tokens, kind=TensorProto.INT32)
    less = m("Less", m("Cast", ids, to=TensorProto.FLOAT), m.constant(0.0))
    ids_up = selected(m, less, m("Add", ids, m.constant(50, np.int32)), ids, TensorProto.INT32)
    x = m("Gather", m.weight(50, width, scale=7), ids_up, axis=0)
    q, k, v = einsum_sides(m, x, width, heads, size, tokens)
    scores = einsum(m, q, k, 3, (0, 2, 1, 3, 4), 1, (0, 3, 1, 2, 4))
    scores = m("Mul", scores, m.constant(size**-0.5))
    if mask == "causal":
        ones = np.tril(np.ones((1, 1, tokens, tokens), np.float32))
        scores = m("Add", m("Mul", scores, m.constant(ones)), m.constant((1 - ones) * np.float32(-1e9)))
    elif mask == "padding":
        sizes = m("Cast", m("Cast", m("Shape", scores), to=TensorProto.INT32), to=TensorProto.INT64)
        trues = m("Expand", m.constant(True, np.bool_), sizes)
        there = m("Unsqueeze", m("Not", m("Equal", ids, m.constant(0, np.int32))), m.ints(1, 2))
        scores = selected(m, m("And", trues, there), scores, m.constant(-1e9))
    result = einsum(m, m("Softmax", scores, axis=-1), v, 3, None, 2, (0, 3, 2, 4, 1))
    result = m("Reshape", m("Transpose", result, perm=[0, 2, 1, 3]), m.ints(-1, tokens, width))
    x = layer_norm(m, m("Add", x, m("Add", m("MatMul", result, m.weight(width, width)), m.weight(width))), width)
    wide = dense(m, x, width, 2 * width)
    erfc = m("Sub", m.constant(1.0), m("Erf", m("Mul", m("Neg", wide), m.constant(0.5**0.5))))
    wide = m("Mul", m("Mul", m.constant(0.5), wide), erfc)
    return m.finish(layer_norm(m, m("Add", x, dense(m, wide, 2 * width, width)), width))


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("mask", ("none", "causal", "padding"))
@pytest.mark.parametrize("batch", (2, "unk__12"))
def test_a_layer_of_an_encoder(batch, mask, passes, monkeypatch):
    ids = np.random.default_rng(4).integers(-50, 50, (2, 12)).astype(np.int32)
    ids[:, 9:] = 0
    steps = steps_of(encoder(batch, mask), {"ids": ids}, passes, monkeypatch)
    assert steps.count("Attention") == 1 and steps.count("SkipLayerNormalization") == 2
    assert len(steps) <= (10 if mask == "padding" else 8)
    assert not {"Transpose", "Reshape", "Cast", "Add", "Softmax"} & set(steps)


def while_loop(rounds, most, first=0, by_number=True, counted_in=np.float32):
    """A recurrent layer as TensorFlow's while_loop: its condition is only how often it runs."""
    cast = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(counted_in))}
    body = Model(np.float32)
    number = body.input("number", kind=TensorProto.INT64)
    body.input("there", kind=TensorProto.BOOL)
    step = body.input("step", kind=TensorProto.INT32)
    weights, state = body.input("weights", 4, 4), body.input("state", 2, 4)
    factor = body.input("factor", 4)
    more = body("Add", step, body.constant(1, np.int32))
    goes_on = body("Less", body("Cast", more, **cast), body.constant(rounds, counted_in))
    if by_number:
        other = body("Less", body("Cast", number, **cast), body.constant(100, counted_in))
        goes_on = body("And", other, goes_on)
    x = body("Gather", "x", step, axis=0)
    after = body("Tanh", body("Add", body("MatMul", state, weights), body("Mul", x, factor)))
    kept = body("Identity", weights)
    outs = {goes_on: (TensorProto.BOOL, []), more: (TensorProto.INT32, []), kept: (TensorProto.FLOAT, [4, 4]),
            after: (TensorProto.FLOAT, [2, 4]), factor: (TensorProto.FLOAT, [4]),
            body("Identity", after): (TensorProto.FLOAT, [2, 4])}
    outputs = [helper.make_tensor_value_info(value, *info) for value, info in outs.items()]
    graph = helper.make_graph(body.nodes, "body", body.inputs, outputs, body.weights)
    m = Model(np.float32)
    m.input("x", 9, 2, 4)
    m.input("f", 4)
    given = [m.constant(most, np.int64), m.constant(True, np.bool_), m.constant(first, np.int32), m.weight(4, 4),
             m.constant(np.zeros((2, 4))), "f"]
    outs = [m.name("out") for _ in range(5)]
    m.nodes.append(helper.make_node("Loop", given, outs, "/loop", body=graph))
    return m.finish(*(m("Mul", value, m.constant(2)) for value in outs[1:]))


@pytest.mark.parametrize("counted_in", (np.float32, np.float16))
@pytest.mark.parametrize("rounds, most, first, by_number, ran", (
    (9, 9, 0, True, 9), (9, 30, 0, False, 9), (9, 30, 3, True, 6), (9, 4, 0, True, 4), (1, 9, 0, True, 1)))
def test_a_loop_that_counts(rounds, most, first, by_number, ran, counted_in, monkeypatch):
    """Its condition is known, so that the host waits for nothing between its rounds, and what it carries and never
    changes is copied in none."""
    model = while_loop(rounds, most, first, by_number, counted_in)
    monkeypatch.setenv("MILLPOND_PASSES", "")
    options = provider.session_options()
    _ort_islands.ask(options)
    session = provider.session(model, provider_options={"use_tf32": "0"}, options=options, fall_back=False)
    feed = {"x": values(9, 2, 4), "f": values(4)}
    wanted = provider.session(model, provider.CPU).run(None, feed)
    got = session.run(None, feed)
    assert got[3].shape == wanted[3].shape == (ran, 2, 4)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)  # tanh of another library, nine times
    if not HOLDS_CONTROL_FLOW:
        return
    told = [island for island in _ort_islands.islands_of(session)["islands"] if not island["is_body"]]
    loops = [step for island in told for program in island["programs"] for step in program["steps"]
             if step["op"] == "Loop"]
    assert [len(step["out"]) for step in loops] == [3]  # the count, the state and all states


def test_a_loop_whose_numbers_cannot_be_counted():
    """Numbers of bytes wrap around, float16 has no integer behind 2,048, and a number that is asked for 2^40 times is
    given up."""
    for kind, deep, rounds in ((np.uint8, 0, 1000), (np.float16, 0, 2100), (np.int64, 40, 1000)):
        body = Model(np.float32)
        body.input("number", kind=TensorProto.INT64)
        body.input("there", kind=TensorProto.BOOL)
        tensor = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        step, x = body.input("step", kind=tensor), body.input("x", 4)
        more = body("Add", step, body.constant(1, kind))
        asked = more
        for _ in range(deep):
            asked = body("Max", asked, asked)
        goes_on = body("Greater", asked, body.constant(0, kind)) if kind == np.uint8 else \
            body("Less", asked, body.constant(2050 if kind == np.float16 else 5, kind))
        outs = {goes_on: (TensorProto.BOOL, []), more: (tensor, []),
                body("Mul", x, body.constant(0.99)): (TensorProto.FLOAT, [4])}
        outputs = [helper.make_tensor_value_info(value, *info) for value, info in outs.items()]
        graph = helper.make_graph(body.nodes, "body", body.inputs, outputs, body.weights)
        m = Model(np.float32)
        m.input("x", 4)
        given = [m.constant(rounds, np.int64), m.constant(True, np.bool_), m.constant(0, kind), "x"]
        m.nodes.append(helper.make_node("Loop", given, ["steps", "out"], "/loop", body=graph))
        model = m.finish(m("Neg", "out"))
        feed = {"x": values(4)}
        wanted = provider.session(model, provider.CPU).run(None, feed)
        got = provider.session(model, fall_back=False).run(None, feed)
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5)  # of a round more or less 1 % is off


def image(batch):
    """Gates of channels by views, pixels that are repeated by Tile, and a softmax of channels, between Transposes."""
    m = Model(np.float32)
    m.input("x", batch, 16, 16, 8)

    def conv(x, before, after, kernel=1):
        pads = [kernel // 2] * 4
        return m("Conv", x, m.constant(values(after, before, kernel, kernel) / (before * kernel) ** 0.5),
                 m.constant(values(after)), pads=pads, kernel_shape=[kernel] * 2)

    x = m("Relu", conv(m("Transpose", "x", perm=[0, 3, 1, 2]), 8, 16, 3))
    mean = m("Squeeze", m("GlobalAveragePool", x), m.ints(2, 3))
    gates = m("Relu", conv(m("Reshape", mean, m.ints(-1, 16, 1, 1)), 16, 8))
    gates = m("Sigmoid", conv(m("Reshape", gates, m.ints(-1, 8, 1, 1)), 8, 16))
    x = m("Relu", conv(m("Mul", x, gates), 16, 16, 3))
    rows = m("Tile", m("Unsqueeze", x, m.ints(3)), m.ints(1, 1, 1, 2, 1))
    rows = m("Reshape", m("Transpose", rows, perm=[0, 2, 3, 4, 1]), m.ints(-1, 32, 16, 1, 16))
    wide = m("Reshape", m("Tile", rows, m.ints(1, 1, 1, 2, 1)), m.ints(-1, 32, 32, 16))
    x = conv(m("Transpose", wide, perm=[0, 3, 1, 2]), 16, 4, 3)
    return m.finish(m("Transpose", m("Softmax", x, axis=1), perm=[0, 2, 3, 1]))


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("batch", (2, "unk__12"))
def test_an_image_with_channels_last(batch, passes, monkeypatch):
    steps = steps_of(image(batch), {"x": values(2, 16, 16, 8)}, passes, monkeypatch)
    assert "Tile" not in steps and steps.count("Resize") == 1
    if passes == "gpu":
        assert steps == ["FusedConv", "SqueezeExcite", "FusedConv", "Resize", "Conv", "Softmax"]
