# SPDX-License-Identifier: Apache-2.0
"""Parts of images that lie in them: convolutions write what a Concat puts together, and read what a Slice cuts."""

import numpy as np
import onnxruntime as ort
import op_model
import provider
import pytest
import small_models
from millpond import _ort_islands
from onnx import helper

ROUNDS = 3  # the third is captured
SAME = {"pads": [1, 1, 1, 1]}


def values(*dims):
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def weights(out, of, size):
    return values(out, of, size, size) / np.float32(np.sqrt(of * size * size))


def swish(x, to):
    return [node("Sigmoid", x, f"{to}_gate"), node("Mul", f"{x} {to}_gate", to)]


# two halves, of which the second goes on, and all of it at the end; then with what another branch has made
BLOCK = [
    node("Conv", "x a bias", "b"), *swish("b", "c"), node("Slice", "c zero half one", "d"),
    node("Slice", "c half end one", "e"), node("Conv", "e f", "g", **SAME), *swish("g", "h"),
    node("Conv", "h i", "j", **SAME), *swish("j", "k"), node("Add", "e k", "l"),
    node("Concat", "d e l", "m", axis=1), node("Conv", "m n", "o"), node("Relu", "o", "p"),
    node("Conv", "p q", "r", strides=[2, 2], **SAME), node("Resize", "r  twice", "s", mode="nearest"),
    node("Concat", "s p", "t", axis=1), node("Conv", "t u", "y", **SAME),
]
WEIGHTS = {"a": weights(32, 16, 1), "bias": values(32), "f": weights(16, 16, 3), "i": weights(16, 16, 3),
                 "n": weights(24, 48, 1), "q": weights(16, 24, 3), "u": weights(5, 40, 3)}

# cheap features of others, pools side by side, and what every layer before has made
LAYERS = [
    node("Conv", "x v", "b", **SAME), node("HardSwish", "b", "c"), node("Conv", "c w", "d", group=16, **SAME),
    node("Concat", "c d", "e", axis=1), node("MaxPool", "e", "f", kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
    node("MaxPool", "f", "g", kernel_shape=[5, 5], pads=[2, 2, 2, 2]), node("Concat", "e f g", "h", axis=1),
    node("Conv", "h z", "i"), node("Mul", "i scale", "j"), node("Relu", "j", "k"), node("Conv", "k l", "m", **SAME),
    node("Concat", "i m", "n", axis=1), node("Mul", "n wide", "o"), node("Relu", "o", "p"),
    node("Conv", "p q", "r", **SAME), node("Concat", "i m r", "s", axis=1), node("Conv", "s t", "y"),
]
LAYER_WEIGHTS = {"v": weights(16, 16, 3), "w": weights(16, 1, 3), "z": weights(32, 96, 1), "l": weights(8, 32, 3),
                 "q": weights(8, 40, 3), "t": weights(5, 48, 1), "scale": values(32, 1, 1), "wide": values(40, 1, 1)}

CUTS = {name: np.array([at]) for name, at in (("zero", 0), ("one", 1), ("half", 16), ("end", 1 << 40))}
# nodes, weights, other constants; how many Slices and Concats there are, and where parts lie within others
NETS = {
    "block": (BLOCK, WEIGHTS, {**CUTS, "twice": np.array([1, 1, 2, 2], np.float32)}, (1, 2), (0, 0)),
    "layers": (LAYERS, LAYER_WEIGHTS, {}, (0, 4), (0, 0)),
}


def made(kind, net):
    net_nodes, floats, others = NETS[net][:3]
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("Cast", "given", "x", to=to), *net_nodes, node("Cast", "y", "result", to=1)]
    constants = {name: value.astype(np.float16).astype(kind) for name, value in floats.items()}
    return small_models.model(nodes, {"given": ["n", 16, "height", "width"]}, {"result": None},
                              {**constants, **others})


@pytest.mark.parametrize("words", ["+channels_last", "+channels_last,+rows_within"])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("net", NETS)
def test_networks(net, kind, words, monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", words)
    options = provider.session_options()
    _ort_islands.ask(options)
    ours = provider.session(made(kind, net), provider_options={"use_tf32": "0"}, options=options)
    whole = ort.InferenceSession(made(np.float32, net), op_model.cpu_options(), [provider.CPU])
    # sums of up to 432 products in another order; float16 rounds what a dozen nodes make
    far = 5e-5 if kind is np.float32 else 2e-2
    for sizes in [(1, 8, 12), (1, 2, 2), (1, 10, 6)]:
        feed = {"given": values(sizes[0], 16, *sizes[1:]).astype(np.float16).astype(np.float32)}
        expected = whole.run(None, feed)[0]
        for _ in range(ROUNDS):
            np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
    (island,) = _ort_islands.islands_of(ours)["islands"]
    steps = [step["op"] for step in island["programs"][0]["steps"]]
    apart, within = NETS[net][3:]
    assert (steps.count("Slice"), steps.count("Concat")) == (within if "rows_within" in words else apart)
