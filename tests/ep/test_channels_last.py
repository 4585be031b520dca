# SPDX-License-Identifier: Apache-2.0
"""What follows a convolution with its channels last, which a device that prefers that order gets by default."""

import numpy as np
import onnxruntime as ort
import op_model
import provider
import pytest
import small_models
from millpond import _ort_islands
from onnx import helper

ROUNDS = 3  # the third is captured
CHANNELS = 8


@pytest.fixture(autouse=True)
def turned(monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", "+channels_last")


def values(*dims):
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def node(op, inputs="c", outputs="y", **attributes):
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


CHANNEL, ROW, NUMBER = values(CHANNELS, 1, 1), values(6), np.full((1, 1, 1, 1, 1), 2, np.float32)
OF_CHANNELS = {key: np.abs(values(CHANNELS)) + i for i, key in enumerate(("scale", "shift", "mean", "variance"))}
# from the convolution's result c of shape [n, 8, 5, 6] to y
CASES = {
    "channel": ([node("Mul", "k c")], {"k": CHANNEL}),
    "row": ([node("Add", "c k")], {"k": ROW}),
    "number of rank 5": ([node("Add", "c k")], {"k": NUMBER}),
    "image": ([node("Mul", "k c", "d"), node("Add", "d l")],
              {"k": values(1, CHANNELS, 5, 6), "l": values(5, 6)}),
    "residual": ([node("Relu", "c", "r"), node("Add", "r c", "s"), node("Sigmoid", "s")], {}),
    "prelu": ([node("PRelu", "c k")], {"k": CHANNEL}),
    "where": ([node("Greater", "c z", "b"), node("Where", "b c k")], {"z": np.float32(0), "k": CHANNEL}),
    "average": ([node("GlobalAveragePool")], {}),
    "largest": ([node("GlobalMaxPool")], {}),
    "mean": ([node("ReduceMean", "c axes", keepdims=1)], {"axes": np.array([3, 2])}),
    "mean of a line": ([node("ReduceMean", "c axes", keepdims=1)], {"axes": np.array([3])}),
    "gate": ([node("GlobalAveragePool", "c", "g"), node("Sigmoid", "g", "s"), node("Mul", "s c")], {}),
    "one pixel added": (
        [node("GlobalMaxPool", "c", "g"), node("Conv", "c k", "d"), node("Add", "d g")],
        {"k": values(CHANNELS, CHANNELS, 1, 1)},
    ),
    "transposed": ([node("ConvTranspose", "c k", strides=[2, 2])], {"k": values(CHANNELS, 3, 2, 2)}),
    "pool": ([node("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)], {}),
    "norm": ([node("BatchNormalization", " ".join(["c", *OF_CHANNELS]))], OF_CHANNELS),
    "norm of each": ([node("InstanceNormalization", "c scale shift", "d"), node("Relu", "d")],
                     {"scale": OF_CHANNELS["scale"], "shift": OF_CHANNELS["shift"]}),
    "norm of each and a gate": (
        [node("InstanceNormalization", "c scale shift", "d"), node("Sigmoid", "d", "e"), node("Mul", "d e")],
        {"scale": OF_CHANNELS["scale"], "shift": OF_CHANNELS["shift"]},
    ),
    "neighbours": ([node("LRN", size=3)], {}),
    "blocks": ([node("DepthToSpace", blocksize=2, mode="CRD")], {}),
    "parts": ([node("Split", "c", "p q", axis=-3, num_outputs=2), node("Sub", "p q")], {}),
    "slices": (
        [node("Slice", "c o i j", "p"), node("Slice", "c i k j", "q"), node("Slice", "c k l j", "r"),
         node("Concat", "r p q", axis=1)],
        {"o": np.array([0]), "i": np.array([1]), "k": np.array([5]), "l": np.array([CHANNELS]), "j": np.array([1])},
    ),
    "both": ([node("Concat", "c c", axis=-3)], {}),
    "beside a constant": ([node("Concat", "k c", axis=0)], {"k": values(2, CHANNELS, 5, 6)}),
    "beside one channel": (
        [node("ReduceMax", "x axes", "m", keepdims=1), node("Concat", "m c", "d", axis=1), node("Conv", "d k")],
        {"axes": np.array([1]), "k": values(3, CHANNELS + 1, 2, 2)},
    ),
    "along lines": ([node("Concat", "c c", axis=3)], {}),
    "scales": ([node("Resize", "c  k")], {"k": np.array([1, 1, 2, 3], np.float32)}),
    "sizes": ([node("Resize", "c   k", axes=[2, 3])], {"k": np.array([7, 9])}),
    "to last": ([node("Relu", "c", "r"), node("Transpose", "r", perm=[0, 2, 3, 1])], {}),
    "to first": ([node("Transpose", "c", "t", perm=[0, 3, 1, 2]), node("Relu", "t")], {}),
    "rows of pixels": ([node("Reshape", "c k", "r"), node("Transpose", "r", perm=[0, 2, 1])],
                       {"k": np.array([0, CHANNELS, 30])}),
    "other rows": ([node("Reshape", "c k", "r"), node("Transpose", "r", perm=[0, 2, 1])],
                   {"k": np.array([0, CHANNELS // 2, 60])}),
    "an image again": (
        [node("Reshape", "c k", "r"), node("Transpose", "r", "t", perm=[0, 2, 1]), node("Add", "t a", "s"),
         node("Transpose", "s", "u", perm=[0, 2, 1]), node("Reshape", "u i", "v"), node("Conv", "v z")],
        {"k": np.array([0, CHANNELS, 30]), "a": values(30, CHANNELS), "i": np.array([0, CHANNELS, 6, 5]),
         "z": values(4, CHANNELS, 3, 3)},
    ),
}


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_result_is_that_of_the_cpu(case, known, batch):
    """Also of no image at all, which ONNX Runtime's convolution takes, but not what it rewrites for some processors."""
    nodes, constants = CASES[case]
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), *nodes]
    shape = [batch if known else "n", 4, 5, 6]
    model = small_models.model(nodes, {"x": shape}, {"y": None}, {"w": values(CHANNELS, 4, 3, 3), **constants})
    feed = {"x": values(batch, 4, 5, 6)}
    ours = provider.session(model, provider_options={"use_tf32": "0"})
    expected = ort.InferenceSession(model, op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    for _ in range(ROUNDS):
        # sums of 36 products in another order
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=2e-5, atol=2e-5, strict=True)


TRANSPOSED = {"overlapping": {"strides": [2, 2], "pads": [1, 1, 1, 1]}, "apart": {"strides": [3, 4]},
              "with an edge": {"strides": [2, 3], "output_padding": [1, 2]}, "gaps": {"dilations": [2, 1]},
              "groups": {"group": 2}}


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolutions_begin(case, biased, size, batch):
    """From single pixels, which are one product, and from images."""
    bias = {"b": values(3 * TRANSPOSED[case].get("group", 1))} if biased else {}
    constants = {"w": values(4, 3, 3, 4), **bias, "v": values(3 * TRANSPOSED[case].get("group", 1), 2, 3, 3)}
    nodes = [node("ConvTranspose", " ".join(["x", "w", *bias]), "c", **TRANSPOSED[case]), node("Relu", "c", "r"),
             node("ConvTranspose", "r v", strides=[2, 2])]
    model = small_models.model(nodes, {"x": ["n", 4, size, size]}, {"y": None}, constants)
    feed = {"x": values(batch, 4, size, size)}
    options = provider.session_options()
    _ort_islands.ask(options)
    ours = provider.session(model, provider_options={"use_tf32": "0"}, options=options)
    expected = ort.InferenceSession(model, op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    for _ in range(ROUNDS):
        # sums of up to 48 and 24 products, in another order
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=2e-5, atol=2e-5, strict=True)
    (island,) = _ort_islands.islands_of(ours)["islands"]
    steps = [step["op"] for program in island["programs"] for step in program["steps"]]
    assert steps.count("Transpose") <= 2


PATCHES = {"biased": {"strides": [10, 16]}, "valid": {"strides": [10, 16], "auto_pad": "VALID"},
           "written out": {"strides": [10, 16], "pads": [0] * 4, "dilations": [1, 1], "kernel_shape": [10, 16]},
           "overlapping": {"strides": [5, 16]}, "apart": {"strides": [20, 16]}, "with a border": {
               "strides": [10, 16], "pads": [5, 8, 5, 8]}}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [20, 27])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("case", PATCHES)
def test_patches_of_an_image(case, kind, length, batch):
    """Which are a product of rows if they do not overlap and are all of the image."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    bias = {"b": values(6)} if case == "biased" else {}
    constants = {"w": values(6, 3, 10, 16) / 16, **bias}

    def made(kind, to):
        nodes = [node("Cast", "x", "h", to=to), node("Conv", " ".join(["h", *constants]), "c", **PATCHES[case]),
                 node("Reshape", "c k", "r"), node("Transpose", "r", "t", perm=[0, 2, 1]), node("Cast", "t", to=1)]
        rounded = {name: value.astype(np.float16).astype(kind) for name, value in constants.items()}
        return small_models.model(nodes, {"x": ["n", 3, length, 32]}, {"y": None},
                                  {**rounded, "k": np.array([0, 6, -1])})

    feed = {"x": values(batch, 3, length, 32).astype(np.float16).astype(np.float32)}
    expected = ort.InferenceSession(made(np.float32, 1), op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    options = provider.session_options()
    _ort_islands.ask(options)
    ours = provider.session(made(kind, to), provider_options={"use_tf32": "0"}, options=options)
    # sums of 480 products in another order; float16 rounds weights, pixels and results alike, but sums in float
    far = 5e-5 if kind is np.float32 else 4e-3
    for _ in range(ROUNDS):
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
    (island,) = _ort_islands.islands_of(ours)["islands"]
    made_by = {step["op"] for program in island["programs"] for step in program["steps"]}
    assert bool({"MatMul", "MatMulBias"} & made_by) == (case in ("biased", "valid", "written out") and length == 20)


def test_patches_that_their_weights_do_not_fit():
    """As a convolution has it, whose kernel_shape is another than that of its weights."""
    nodes = [node("Relu", "x", "r"), node("Conv", "r w", "c", strides=[10, 16], kernel_shape=[10, 8])]
    model = small_models.model(nodes, {"x": ["n", 3, 20, 32]}, {"c": None}, {"w": values(6, 3, 10, 16)})
    with pytest.raises(Exception, match="kernel_shape"):
        provider.session(model).run(None, {"x": values(1, 3, 20, 32)})


# the same for volumes: from c of shape [n, 8, 3, 5, 6]
VOLUMES = {
    "channel": ([node("Mul", "k c")], {"k": CHANNEL[..., None]}),
    "line": ([node("Add", "c k")], {"k": values(3, 1, 1)}),
    "residual": ([node("Relu", "c", "r"), node("Add", "r c", "s"), node("Sigmoid", "s")], {}),
    "average": ([node("GlobalAveragePool")], {}),
    "largest": ([node("GlobalMaxPool")], {}),
    "mean": ([node("ReduceMean", "c axes", keepdims=1)], {"axes": np.array([4, 2, 3])}),
    "mean of pictures": ([node("ReduceMean", "c axes", keepdims=1)], {"axes": np.array([3, 4])}),
    "pool": ([node("MaxPool", kernel_shape=[1, 2, 2], strides=[1, 2, 2], ceil_mode=1)], {}),
    "average of windows": ([node("AveragePool", kernel_shape=[2, 3, 2], pads=[1, 1, 0, 1, 1, 1])], {}),
    "norm": ([node("BatchNormalization", " ".join(["c", *OF_CHANNELS]))], OF_CHANNELS),
    "transposed": ([node("ConvTranspose", "c k", strides=[1, 2, 2])], {"k": values(CHANNELS, 3, 1, 2, 2)}),
    "parts": ([node("Split", "c", "p q", axis=-4, num_outputs=2), node("Sub", "p q")], {}),
    "both": ([node("Concat", "c c", axis=1)], {}),
    "larger": ([node("Resize", "c  k")], {"k": np.array([1, 1, 1, 2, 3], np.float32)}),
    "again": ([node("Conv", "c k", "d"), node("Add", "d c")], {"k": values(CHANNELS, CHANNELS, 1, 1, 1)}),
    "groups": ([node("Conv", "c k", group=4)], {"k": values(CHANNELS, 2, 1, 3, 1)}),
    "to last": ([node("Relu", "c", "r"), node("Transpose", "r", perm=[0, 2, 3, 4, 1])], {}),
    "to first": ([node("Transpose", "c", "t", perm=[0, 4, 1, 2, 3]), node("Relu", "t")], {}),
    "and pictures": (  # a convolution over what has a dimension less, whose result [n, 3, 5, 6] is repeated
        [node("ReduceMean", "c i", "p", keepdims=0), node("Conv", "p k", "d"), node("Unsqueeze", "d j", "e"),
         node("Add", "e c", "s"), node("Mul", "s g", "t"), node("Relu", "d", "r"), node("Mul", "r l", "o"),
         node("ReduceSum", "o", "u", keepdims=0), node("Add", "t u")],
        {"i": np.array([2]), "j": np.array([1]), "k": values(3, CHANNELS, 1, 1), "g": values(CHANNELS, 1, 1, 1),
         "l": values(3, 1, 1)},
    ),
    "one constant for both": (
        [node("ReduceMean", "c i", "p", keepdims=0), node("Conv", "p k", "d"), node("Mul", "d g", "e"),
         node("ReduceSum", "e", "u", keepdims=0), node("Mul", "c g", "t"), node("Add", "t u")],
        {"i": np.array([2]), "k": values(CHANNELS, CHANNELS, 1, 1), "g": values(5, 1)},
    ),
}


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("case", VOLUMES)
def test_volumes_too(case, known, batch):
    nodes, constants = VOLUMES[case]
    nodes = [node("Conv", "x w", "c", pads=[1] * 6), *nodes]
    shape = [batch if known else "n", 4, 3, 5, 6]
    model = small_models.model(nodes, {"x": shape}, {"y": None}, {"w": values(CHANNELS, 4, 3, 3, 3), **constants})
    feed = {"x": values(batch, 4, 3, 5, 6)}
    ours = provider.session(model, provider_options={"use_tf32": "0"})
    expected = ort.InferenceSession(model, op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    for _ in range(ROUNDS):
        # sums of 108 products in another order
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=5e-5, atol=5e-5, strict=True)


# the same for lines: from c of shape [n, 8, 30]
LINES = {
    "channel": ([node("Mul", "k c")], {"k": CHANNEL[..., 0]}),
    "line": ([node("Add", "c k")], {"k": values(30)}),
    "residual": ([node("Relu", "c", "r"), node("Add", "r c", "s"), node("Sigmoid", "s")], {}),
    "prelu": ([node("PRelu", "c k")], {"k": CHANNEL[..., 0]}),
    "average": ([node("GlobalAveragePool")], {}),
    "gate": ([node("GlobalAveragePool", "c", "g"), node("Conv", "g k", "s"), node("Mul", "s c")],
             {"k": values(CHANNELS, CHANNELS, 1)}),
    "pool": ([node("MaxPool", kernel_shape=[3], strides=[2], ceil_mode=1)], {}),
    "norm": ([node("BatchNormalization", " ".join(["c", *OF_CHANNELS]))], OF_CHANNELS),
    "transposed": ([node("ConvTranspose", "c k", strides=[3], pads=[2, 2])], {"k": values(CHANNELS, 3, 7)}),
    "apart": ([node("ConvTranspose", "c k b", strides=[4])], {"k": values(CHANNELS, 3, 4), "b": values(3)}),
    "apart without a bias": ([node("ConvTranspose", "c k", strides=[2])], {"k": values(CHANNELS, 5, 2)}),
    "transposed to one": ([node("Conv", "c k", "d"), node("ConvTranspose", "d l b", strides=[8], pads=[3, 4])],
                          {"k": values(40, CHANNELS, 1), "l": values(40, 1, 16), "b": values(1)}),
    "transposed groups": ([node("ConvTranspose", "c k", strides=[2], group=2, output_padding=[1])],
                          {"k": values(CHANNELS, 3, 3)}),
    "dilated": ([node("Conv", "c k", dilations=[4], pads=[8, 8])], {"k": values(6, CHANNELS, 5)}),
    "groups": ([node("Conv", "c k b", group=2)], {"k": values(6, 4, 3), "b": values(6)}),
    "groups of pixels": ([node("Conv", "c k b", group=2)], {"k": values(16, 4, 1), "b": values(16)}),
    "each channel": ([node("Conv", "c k b", "d", group=8, dilations=[3], pads=[3, 3]), node("Relu", "d", "r"),
                      node("Add", "r c")], {"k": values(CHANNELS, 1, 3), "b": values(CHANNELS)}),
    "each channel in steps": ([node("Conv", "c k", group=8, strides=[2], pads=[6, 1])], {"k": values(CHANNELS, 1, 7)}),
    "to one": ([node("Conv", "c k", "d", pads=[3, 3]), node("Tanh", "d")], {"k": values(1, CHANNELS, 7)}),
    "parts": ([node("Split", "c", "p q", axis=1, num_outputs=2), node("Sub", "p q")], {}),
    "both": ([node("Concat", "c c", axis=-2)], {}),
    "largest of all": ([node("ReduceMax", "c i", "m", keepdims=0), node("Sigmoid", "m")], {"i": np.array([2])}),
    "largest of channels": ([node("ReduceMax", "c i", "m", keepdims=0), node("Sigmoid", "m")], {"i": np.array([-2])}),
    "largest of both": ([node("ReduceMax", "c i", "m", keepdims=0), node("Sigmoid", "m")], {"i": np.array([1, 2])}),
    "sum of a line": ([node("ReduceSum", "c i", "m", keepdims=1), node("Mul", "m c")], {"i": np.array([-1])}),
    "cut short": ([node("Slice", "c s e i")], {"s": np.array([0]), "e": np.array([-1]), "i": np.array([2])}),
    "cut by channels": ([node("Slice", "c s e i t")],
                        {"s": np.array([6, 2]), "e": np.array([0, 20]), "i": np.array([1, -1]),
                         "t": np.array([-2, 3])}),
    "cut without axes": ([node("Slice", "c s e")], {"s": np.array([0, 2]), "e": np.array([9, 7])}),
    "padded": ([node("Pad", "c p v")], {"p": np.array([0, 1, 4, 0, 0, -2]), "v": np.float32(2)}),
    "padded along axes": ([node("Pad", "c p  i", mode="reflect")], {"p": np.array([4, 5]), "i": np.array([2])}),
    "group norm": ([node("GroupNormalization", "c s b", num_groups=2)],
                   {"s": values(CHANNELS), "b": values(CHANNELS) + 1}),
    "instance norm": ([node("InstanceNormalization", "c s b")], {"s": values(CHANNELS), "b": values(CHANNELS) + 1}),
    "rows": ([node("Transpose", "c", "t", perm=[0, 2, 1]), node("LayerNormalization", "t s b", "n"),
              node("Transpose", "n", "u", perm=[0, 2, 1]), node("Relu", "u", "r"), node("Conv", "r k", "d"),
              node("Transpose", "d", perm=[0, 2, 1])],
             {"s": values(CHANNELS), "b": values(CHANNELS), "k": values(4, CHANNELS, 3)}),
    "rows and lines": ([node("Transpose", "c", "t", perm=[0, 2, 1]), node("MatMul", "t k", "m"),
                        node("Transpose", "m", "u", perm=[0, 2, 1]), node("Add", "u c", "y")],
                       {"k": values(CHANNELS, CHANNELS)}),
}


# Results of no lines where the CPU provider fails, or keeps a dimension that goes.
OF_NONE = {"group norm": (0, CHANNELS, 30), "largest of channels": (0, 30)}


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("case", LINES)
def test_lines_too(case, known, batch):
    nodes, constants = LINES[case]
    nodes = [node("Conv", "x w", "c", pads=[1, 1]), *nodes]
    shape = [batch if known else "n", 4, 30 if known else "l"]
    opset = 21 if case == "group norm" else small_models.OPSET
    model = small_models.model(nodes, {"x": shape}, {"y": None}, {"w": values(CHANNELS, 4, 3), **constants}, opset)
    feed = {"x": values(batch, 4, 30)}
    ours = provider.session(model, provider_options={"use_tf32": "0"})
    if batch == 0 and case in OF_NONE:
        expected = np.zeros(OF_NONE[case], np.float32)
    else:
        expected = ort.InferenceSession(model, op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    for _ in range(ROUNDS):
        # sums of 12 to 56 products in another order, some of them twice
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=5e-5, atol=5e-5, strict=True)


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("kind, tf32", [(np.float32, "0"), (np.float32, "1"), (np.float16, "0")])
def test_images_with_few_channels(kind, tf32, channels, batch):
    """Which are read as they are, or get zeros behind them, as do the weights, up to 16 bytes a pixel. TF32 has room
    for the values.
    """

    def made(kind):
        """Of float16 values, also where it computes in float32."""
        to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        weights = {"w": values(CHANNELS, channels, 7, 7) / 8, "b": values(CHANNELS)}
        nodes = [node("Cast", "x", "h", to=to), node("Conv", "h w b", "c", pads=[3, 3, 3, 3], strides=[2, 2]),
                 node("Relu", "c", "r"), node("Cast", "r", to=1)]
        return small_models.model(nodes, {"x": ["n", channels, 9, 11]}, {"y": None},
                                  {name: value.astype(np.float16).astype(kind) for name, value in weights.items()})

    feed = {"x": values(batch, channels, 9, 11).astype(np.float16).astype(np.float32)}
    expected = ort.InferenceSession(made(np.float32), op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    ours = provider.session(made(kind), provider_options={"use_tf32": tf32})
    far = 5e-5 if kind is np.float32 else 4e-3
    for _ in range(ROUNDS):
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
