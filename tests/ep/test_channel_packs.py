# SPDX-License-Identifier: Apache-2.0
"""Images whose channels do not fill packs, between convolutions that are sooner done with whole ones."""

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


# two branches, of 18 and 35 channels, of which each gets what the other has
BRANCHES = [
    node("Conv", "x a", "b", **SAME), node("Relu", "b", "c"), node("Conv", "c d", "e", **SAME), node("Add", "e c", "f"),
    node("Conv", "x g", "h", strides=[2, 2], **SAME), node("Sigmoid", "h", "i"), node("Conv", "i j", "k"),
    node("Shape", "f", "l", start=2), node("Concat", "m l", "n", axis=0), node("Resize", "k   n", "o", mode="nearest"),
    node("Add", "f o", "p"), node("Conv", "p q", "r", strides=[2, 2], **SAME), node("Add", "r i", "s"),
    node("MaxPool", "s", "t", kernel_shape=[3, 3], **SAME), node("Conv", "t u", "y"),
]
WEIGHTS = {"a": weights(18, 4, 3), "d": weights(18, 18, 3), "g": weights(35, 4, 3), "j": weights(18, 35, 1),
           "q": weights(35, 18, 3), "u": weights(5, 35, 1)}


# blocks of 11, 18 and 21 channels, of which each is added to the first ones of the next
BLOCKS = [
    node("Conv", "x b", "c"), node("Conv", "c d", "e"), node("Relu", "e", "f"),
    node("Conv", "f g", "h", group=24, **SAME), node("HardSwish", "h", "i"), node("Conv", "i j", "k"),
    node("Slice", "k zero at11 one", "l"), node("Slice", "k at11 end one", "m"), node("Add", "l c", "n"),
    node("Concat", "n m", "o", axis=1), node("Conv", "o p", "q"), node("Relu", "q", "r"), node("Conv", "r s", "t"),
    node("Slice", "t zero at18 one", "u"), node("Slice", "t at18 end one", "v"), node("Add", "o u", "w"),
    node("Concat", "w v", "z", axis=1), node("Conv", "z a", "y", **SAME),
]
CUTS = {name: np.array([at]) for name, at in (("zero", 0), ("one", 1), ("at11", 11), ("at18", 18), ("end", 1 << 40))}
NETS = {
    "branches": (BRANCHES, WEIGHTS, {"m": np.array([1, 18])}),
    "blocks": (BLOCKS, {"b": weights(11, 4, 1), "d": weights(24, 11, 1), "g": weights(24, 1, 3),
                        "j": weights(18, 24, 1), "p": weights(24, 18, 1), "s": weights(21, 24, 1),
                        "a": weights(3, 21, 3)}, CUTS),
}


def made(kind, net):
    nodes, floats, others = NETS[net]
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("Cast", "given", "x", to=to), *nodes, node("Cast", "y", "result", to=1)]
    constants = {name: value.astype(np.float16).astype(kind) for name, value in floats.items()}
    return small_models.model(nodes, {"given": ["n", 4, "height", "width"]}, {"result": None},
                              {**constants, **others})


@pytest.mark.parametrize("sizes", [(8, 12), (2, 2), (10, 6)])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("net", NETS)
def test_networks(net, kind, sizes, monkeypatch):
    """Also where sizes are not known: nothing is cut or brought in for them."""
    monkeypatch.setenv("MILLPOND_PASSES", "+channels_last,+channel_packs")
    feed = {"given": values(1, 4, *sizes).astype(np.float16).astype(np.float32)}
    options = provider.session_options()
    _ort_islands.ask(options)
    ours = provider.session(made(kind, net), provider_options={"use_tf32": "0"}, options=options)
    expected = ort.InferenceSession(made(np.float32, net), op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    # sums of up to 162 products in another order; float16 rounds what ten nodes make
    far = 5e-5 if kind is np.float32 else 2e-2
    for _ in range(ROUNDS):
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
    (island,) = _ort_islands.islands_of(ours)["islands"]
    steps = [step["op"] for program in island["programs"] for step in program["steps"]]
    assert "Gather" not in steps and "Slice" not in steps
