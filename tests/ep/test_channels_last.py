# SPDX-License-Identifier: Apache-2.0
"""What follows a convolution with its channels last, which a device that prefers that order gets by default."""

import numpy as np
import onnxruntime as ort
import op_model
import provider
import pytest
import small_models
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
    "neighbours": ([node("LRN", size=3)], {}),
    "blocks": ([node("DepthToSpace", blocksize=2, mode="CRD")], {}),
    "parts": ([node("Split", "c", "p q", axis=-3, num_outputs=2), node("Sub", "p q")], {}),
    "both": ([node("Concat", "c c", axis=-3)], {}),
    "along lines": ([node("Concat", "c c", axis=3)], {}),
    "scales": ([node("Resize", "c  k")], {"k": np.array([1, 1, 2, 3], np.float32)}),
    "sizes": ([node("Resize", "c   k", axes=[2, 3])], {"k": np.array([7, 9])}),
    "to last": ([node("Relu", "c", "r"), node("Transpose", "r", perm=[0, 2, 3, 1])], {}),
    "to first": ([node("Transpose", "c", "t", perm=[0, 3, 1, 2]), node("Relu", "t")], {}),
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
