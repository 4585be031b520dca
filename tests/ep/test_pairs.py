# SPDX-License-Identifier: Apache-2.0
"""Two products with an activation between them, as networks for images end their blocks, on a device that gains by
making them at once."""

import numpy as np
import onnxruntime as ort
import op_model
import provider
import pytest
import small_models
from onnx import helper

ROUNDS = 3  # the third is captured
CHANNELS, BETWEEN = 24, 40


@pytest.fixture(autouse=True)
def paired(monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", "+channels_last,+pair_products")


def values(*dims):
    return np.random.default_rng(sum(dims)).integers(-32, 33, dims).astype(np.float32) / 64


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def of_pixels(activation):
    """Convolutions of single pixels, and what the first of them reads."""
    nodes = [node("Conv", "x v a", "h"), *activation, node("Conv", "g w b", "q"), node("Add", "q x", "y")]
    return nodes, {"v": values(BETWEEN, CHANNELS, 1, 1), "w": values(CHANNELS, BETWEEN, 1, 1)}, (CHANNELS, 9, 5)


def of_rows(activation):
    """Products of rows, each column times a number, and what the first of them reads."""
    nodes = [node("MatMul", "x v", "p"), node("Add", "p a", "h"), *activation, node("MatMul", "g w", "r"),
             node("Add", "r b", "q"), node("Mul", "s q", "m"), node("Add", "m x", "y")]
    weights = {"v": values(CHANNELS, BETWEEN), "w": values(BETWEEN, CHANNELS), "s": values(CHANNELS)}
    return nodes, weights, (9, 5, CHANNELS)


ACTIVATIONS = {"Relu": [node("Relu", "h", "g")],
               "Gelu": [node("Div", "h root", "d"), node("Erf", "d", "e"), node("Add", "e one", "f"),
                        node("Mul", "h f", "k"), node("Mul", "k half", "g")],
               "Clip": [node("Clip", "h low high", "g")],
               "Silu": [node("Sigmoid", "h", "u"), node("Mul", "h u", "g")]}


@pytest.mark.parametrize("batch", [0, 1, 8])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("form", [of_pixels, of_rows])
def test_result_is_that_of_the_cpu(form, activation, batch):
    """Elements of 16 bits are no further from what float32 gives than they are themselves."""
    nodes, weights, dims = form(ACTIVATIONS[activation])
    constants = {**weights, "a": values(BETWEEN), "b": values(CHANNELS), "low": np.float32(-0.5),
                 "high": np.float32(0.5), "root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}

    def made(kind):
        to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        read = {name for each in nodes for name in each.input}
        return small_models.model(
            [node("Cast", "images", "x", to=to), *nodes, node("Cast", "y", "out", to=1)],
            {"images": ["n", *dims]}, {"out": None},
            {name: array.astype(kind) for name, array in constants.items() if name in read})

    feed = {"images": values(batch, *dims)}
    expected = ort.InferenceSession(made(np.float32), op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    for kind, far in ((np.float32, 4e-3), (np.float16, 1e-2)):
        ours = provider.session(made(kind))
        for _ in range(ROUNDS):
            np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
