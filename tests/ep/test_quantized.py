# SPDX-License-Identifier: Apache-2.0
"""Networks as ONNX Runtime quantises them, on a device that multiplies integers and on one that does not."""

import io
from contextlib import redirect_stdout

import numpy as np
import onnxruntime as ort
import op_model
import provider
import pytest
import small_models
from millpond import _ort_islands
from onnx import helper
from onnxruntime import quantization

INTEGERS = "+byte_conv,+byte_product,+channels_last"
ROUNDS = 3  # the third is captured
WIDTH = 32
STATIC = {
    "signed": {},
    "by channels": {"per_channel": True, "activation_type": quantization.QuantType.QUInt8},
    "symmetric": {"per_channel": True, "extra_options": {"ActivationSymmetric": True}},
    "operators": {"quant_format": quantization.QuantFormat.QOperator,
                  "activation_type": quantization.QuantType.QUInt8},
}


def values(name, *dims):
    seed = sum(map(ord, name))
    numbers = np.random.default_rng(seed).standard_normal(dims) / np.sqrt(np.prod(dims[1:]))
    return numbers.astype(np.float32)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def images():
    """Residual blocks: strides, padding, a pool, a sum of two images and its activation, single channels."""
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [node("Conv", "x w0 b0", "c0", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Relu", "c0", "r0"),
             node("MaxPool", "r0", "p0", kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", "p0 w1 b1", "c1", **same), node("Relu", "c1", "r1"),
             node("Conv", "r1 w2", "c2", **same), node("Add", "c2 p0", "s0"), node("Relu", "s0", "r2"),
             node("Conv", "r2 w3 b3", "c3", kernel_shape=[3, 3], strides=[2, 1], pads=[1, 0, 1, 2]),
             node("Conv", "r2 w4", "c4", kernel_shape=[1, 1], strides=[2, 1]), node("Add", "c3 c4", "s1"),
             node("Conv", "s1 w5", "c5", group=WIDTH, **same), node("HardSwish", "c5", "h"),
             node("GlobalAveragePool", "h", "g"), node("Flatten", "g", "f"), node("Gemm", "f w6 b6", "y", transB=1)]
    constants = {"w0": (WIDTH, 3, 3, 3), "b0": (WIDTH,), "w1": (WIDTH, WIDTH, 3, 3), "b1": (WIDTH,),
                 "w2": (WIDTH, WIDTH, 3, 3), "w3": (WIDTH, WIDTH, 3, 3), "b3": (WIDTH,), "w4": (WIDTH, WIDTH, 1, 1),
                 "w5": (WIDTH, 1, 3, 3), "w6": (10, WIDTH), "b6": (10,)}
    return nodes, {"x": ["n", 3, 10, 10]}, constants, (2, 3, 10, 10)


def rows():
    """A feed-forward block with its sum, of rows of three dimensions."""
    nodes = [node("MatMul", "x w0", "p0"), node("Add", "p0 b0", "a0"), node("Relu", "a0", "r0"),
             node("MatMul", "r0 w1", "p1"), node("Add", "b1 p1", "a1"), node("Add", "a1 x", "s"),
             node("Reshape", "s shape", "v"), node("MatMul", "v w2", "y")]
    constants = {"w0": (WIDTH, 2 * WIDTH), "b0": (2 * WIDTH,), "w1": (2 * WIDTH, WIDTH), "b1": (WIDTH,),
                 "w2": (WIDTH, 8)}
    return nodes, {"x": ["n", "length", WIDTH]}, constants, (2, 5, WIDTH)


def network(build):
    nodes, inputs, constants, dims = build()
    constants = {name: values(name, *shape) for name, shape in constants.items()}
    constants |= {"shape": np.array([-1, WIDTH])} if build is rows else {}
    return small_models.model(nodes, inputs, {"y": None}, constants), {"x": values("input", *dims) * 8}


class Feeds(quantization.CalibrationDataReader):
    def __init__(self, feed):
        self.left = iter([feed])

    def get_next(self):
        return next(self.left, None)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """The bytes of a network in a form of STATIC or "dynamic", and its feed; each made once."""
    made = {}

    def get(build, form):
        if (build, form) not in made:
            folder = tmp_path_factory.mktemp("quantized")
            model, feed = network(build)
            (folder / "f32.onnx").write_bytes(model)
            with redirect_stdout(io.StringIO()):
                if form == "dynamic":
                    quantization.quantize_dynamic(folder / "f32.onnx", folder / "q.onnx", per_channel=build is rows)
                else:
                    quantization.quantize_static(folder / "f32.onnx", folder / "q.onnx", Feeds(feed), **STATIC[form])
            made[build, form] = (folder / "q.onnx").read_bytes(), feed
        return made[build, form]

    return get


def check(ours, feed, expected, off):
    """Rounding to the other side is a step of 8 bits somewhere: so far, for so many of the results."""
    step = np.abs(expected).max() / 127
    for _ in range(ROUNDS):
        got = ours.run(None, feed)[0]
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() <= 2.01 * step
        assert np.mean(np.abs(got - expected) > 0.01 * step) <= off


@pytest.mark.parametrize("passes", [None, INTEGERS])
@pytest.mark.parametrize("form", STATIC)
@pytest.mark.parametrize("build", [images, rows])
def test_result_is_what_the_model_says(quantized, monkeypatch, build, form, passes):
    """As the CPU provider gives it that computes node by node, in float: it rounds where the model does."""
    model, feed = quantized(build, form)
    if passes:
        monkeypatch.setenv("MILLPOND_PASSES", passes)
    expected = ort.InferenceSession(model, op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    ours = provider.session(model, provider_options={"use_tf32": "0"})
    check(ours, feed, expected, 0.15 if form == "operators" else 0.02)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("stored", [np.int8, np.uint8, np.int16, np.uint16])
def test_rounding_in_clusters_is_that_of_the_operators(stored, kind):
    """Also of what is halfway, beyond the range, and no number."""
    zero = np.array(3, stored)
    nodes = [node("Cast", "x", "v", to=helper.np_dtype_to_tensor_dtype(np.dtype(kind))),
             node("QuantizeLinear", "v s z", "i"), node("DequantizeLinear", "i s z", "d"), node("Add", "d d", "t"),
             node("Cast", "t", "y", to=1)]
    model = small_models.model(nodes, {"x": ["n"]}, {"y": None}, {"s": np.array(0.25, kind), "z": zero}, opset=21)
    special = [np.nan, np.inf, -np.inf, 0.125, 0.375, -0.125, -0.375, -0.0, 6e4, -6e4, 31.75, 31.875, 32, -32.875]
    feed = {"x": np.concatenate([np.array(special, np.float32), values("more", 500) * 300])}
    expected = provider.session(model, provider_options={"fusion": "0"}).run(None, feed)[0]
    ours = provider.session(model)
    for _ in range(ROUNDS):
        np.testing.assert_array_equal(ours.run(None, feed)[0], expected)


def test_what_is_quantised_in_each_run_is_what_the_nodes_give(quantized, monkeypatch):
    """The CPU provider saturates sums on some processors, so these are those of the operators by themselves."""
    model, feed = quantized(rows, "dynamic")
    expected = provider.session(model, provider_options={"fusion": "0"}).run(None, feed)[0]
    check(provider.session(model), feed, expected, 0)
    monkeypatch.setenv("MILLPOND_PASSES", INTEGERS)
    check(provider.session(model), feed, expected, 0)
    plain = ort.InferenceSession(network(rows)[0], op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    assert np.abs(expected - plain).max() <= 0.05 * np.abs(plain).max()


@pytest.mark.parametrize("build, form, products, others",
                         [(images, "signed", 6, {"MaxPool", "GlobalAveragePool"}), (rows, "signed", 3, {"Fused"}),
                          (images, "operators", 5, {"QLinearConv"}),
                          (rows, "operators", 3, {"QLinearAdd"}), (rows, "dynamic", 3, {"DynamicQuantizeLinear"})])
def test_products_are_of_integers(quantized, monkeypatch, build, form, products, others):
    model, feed = quantized(build, form)
    monkeypatch.setenv("MILLPOND_PASSES", INTEGERS)
    options = provider.session_options()
    _ort_islands.ask(options)
    ours = provider.session(model, options=options)
    ours.run(None, feed)
    steps = [step for island in _ort_islands.islands_of(ours)["islands"] for program in island["programs"]
             for step in program["steps"]]
    operators = [step["op"] for step in steps]
    first = build is images and not provider.is_emulated(provider.devices()[0])  # three channels stay in float there
    assert operators.count("IntegerProduct") == products - first
    sums = [step for step in steps if step["op"] == "IntegerProduct" and "Add" in str(step["nodes"])]
    assert len(sums) == (0 if (build, form) == (rows, "operators") else 2)
    assert others <= set(operators)
    assert not {"MatMul", "Gemm", "MatMulInteger"} & set(operators)
