# SPDX-License-Identifier: Apache-2.0
"""Squeeze and excitation as exporters write it, on a device that gains by images with channels last."""

import numpy as np
import onnxruntime as ort
import op_model
import provider
import pytest
import small_models
from onnx import helper

ROUNDS = 3  # the third is captured
CHANNELS, SQUEEZED = 16, 6


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", "+channels_last,+pooled_products,+find_excitation")


def values(*dims):
    return np.random.default_rng(sum(dims)).integers(-32, 33, dims).astype(np.float32) / 64


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def by_convolutions(kind):
    nodes = [node("GlobalAveragePool", "c", "p"), node("Conv", "p v a", "q"), node("Relu", "q", "r"),
             node("Conv", "r w b", "s"), node("Sigmoid", "s", "g")]
    return nodes, {"v": values(SQUEEZED, CHANNELS, 1, 1).astype(kind), "a": values(SQUEEZED).astype(kind),
                   "w": values(CHANNELS, SQUEEZED, 1, 1).astype(kind), "b": values(CHANNELS).astype(kind)}


def by_hard_ones(kind):
    """Written out, as before there were operators for them."""
    nodes = [node("ReduceMean", "c axes", "p"), node("Conv", "p v", "q"), node("Add", "q three", "q3"),
             node("Clip", "q3 none six", "q6"), node("Mul", "q q6", "qq"), node("Div", "qq six", "r"),
             node("Conv", "r w", "s"), node("Add", "s three", "s3"), node("Clip", "s3 none six", "s6"),
             node("Div", "s6 six", "g")]
    return nodes, {"v": values(SQUEEZED, CHANNELS, 1, 1).astype(kind), "axes": np.array([2, 3]),
                   "w": values(CHANNELS, SQUEEZED, 1, 1).astype(kind),
                   **{name: np.array(number, kind) for name, number in (("three", 3), ("none", 0), ("six", 6))}}


def by_rows(kind):
    """Of torch's Linear."""
    nodes = [node("GlobalAveragePool", "c", "p"), node("Flatten", "p", "f"), node("Gemm", "f v a", "q", transB=1),
             node("Relu", "q", "r"), node("Gemm", "r w b", "s", transB=1), node("Sigmoid", "s", "u"),
             node("Reshape", "u pixel", "g")]
    return nodes, {"v": values(SQUEEZED, CHANNELS).astype(kind), "a": values(SQUEEZED).astype(kind),
                   "w": values(CHANNELS, SQUEEZED).astype(kind), "b": values(CHANNELS).astype(kind),
                   "pixel": np.array([-1, CHANNELS, 1, 1])}


def by_products(kind):
    nodes = [node("ReduceMean", "c axes", "p", keepdims=0), node("MatMul", "p v", "q"), node("Add", "q a", "qa"),
             node("Sigmoid", "qa", "h"), node("Mul", "qa h", "r"), node("MatMul", "r w", "s"),
             node("HardSigmoid", "s", "u"), node("Unsqueeze", "u axes", "g")]
    return nodes, {"v": values(CHANNELS, SQUEEZED).astype(kind), "a": values(SQUEEZED).astype(kind),
                   "w": values(SQUEEZED, CHANNELS).astype(kind), "axes": np.array([2, 3])}


ENDS = {
    "scaled": [node("Mul", "c g", "y")],
    "scaled by": [node("Mul", "g c", "y")],
    "added": [node("Mul", "c g", "m"), node("Add", "c m", "y")],
    "gates too": [node("Mul", "c g", "m"), node("Mul", "m g", "y")],
    "another": [node("Mul", "c g", "m"), node("Add", "m x", "y")],
}


@pytest.mark.parametrize("batch, side", [(0, 5), (1, 1), (1, 75), (3, 9)])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", [by_convolutions, by_hard_ones, by_rows, by_products])
def test_result_is_that_of_the_cpu(form, end, batch, side):
    """Elements of 16 bits are no further from what float32 gives than they are themselves."""

    def made(kind):
        to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        nodes, constants = form(kind)
        nodes = [node("Cast", "images", "x", to=to), node("Conv", "x k", "c"), *nodes, *ENDS[end],
                 node("Cast", "y", "out", to=1)]
        kernel = {"k": values(CHANNELS, CHANNELS, 1, 1).astype(kind)}
        return small_models.model(nodes, {"images": ["n", CHANNELS, "h", "w"]}, {"out": None},
                                  {**kernel, **constants})

    feed = {"images": values(batch, CHANNELS, side, side)}
    expected = ort.InferenceSession(made(np.float32), op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    for kind, far in ((np.float32, 2e-5), (np.float16, 4e-3)):
        ours = provider.session(made(kind), provider_options={"use_tf32": "0"})
        for _ in range(ROUNDS):
            np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
