# SPDX-License-Identifier: Apache-2.0
"""Networks in float16 whose norms stay in float: they take what those in halves take, and give what was asked for."""

import numpy as np
import provider
import pytest
from exported import Model
from millpond import _ort_islands
from onnx import TensorProto

WIDTH = 64


def row(m, seed, exact):
    """A constant of floats, all of the half type or not."""
    values = np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)
    return m.constant(values.astype(np.float16).astype(np.float32) if exact else values, np.float32)


def layer(norm, exact):
    m = Model(np.float16)
    m.input("x", "batch", 7, WIDTH)
    product = m("MatMul", "x", m.weight(WIDTH, WIDTH))
    scale, bias = row(m, 1, exact), row(m, 2, exact)
    if norm == "SkipLayerNormalization":
        wide = (m("Cast", product, to=TensorProto.FLOAT), m("Cast", "x", to=TensorProto.FLOAT))
        normed = m(norm, *wide, scale, bias, domain="com.microsoft", epsilon=1e-5)
    else:
        wide = m("Cast", m("Add", product, "x"), to=TensorProto.FLOAT)
        more = (bias,) if norm == "LayerNormalization" else ()
        normed = m(norm, wide, scale, *more, axis=-1, epsilon=1e-5)
    rows = m("Cast", normed, to=TensorProto.FLOAT16)
    return m.finish(m("Add", m("MatMul", rows, m.weight(WIDTH, WIDTH)), "x"))


@pytest.mark.parametrize("exact", (True, False))
@pytest.mark.parametrize("norm", ("LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization"))
def test_a_norm_in_float(norm, exact):
    model = layer(norm, exact)
    feed = {"x": np.random.default_rng(3).standard_normal((2, 7, WIDTH)).astype(np.float16)}
    options = provider.session_options()
    _ort_islands.ask(options)
    session = provider.session(model, options=options, fall_back=False)
    apart = provider.session(model, provider_options={"fusion": "0"}, fall_back=False)
    got, want = (one.run(None, feed)[0].astype(np.float32) for one in (session, apart))
    one_step = float(np.finfo(np.float16).eps)  # sums of rows in another order, and a sum that is not rounded before
    np.testing.assert_allclose(got, want, rtol=4 * one_step, atol=4 * one_step * np.abs(want).max())
    programs = [island["programs"][-1] for island in _ort_islands.islands_of(session)["islands"]]
    steps = [step["op"] for program in programs for step in program["steps"]]
    assert ("Cast" in steps) != exact, steps
