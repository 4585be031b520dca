# SPDX-License-Identifier: Apache-2.0
"""Parts of images that lie in them: convolutions write what a Concat puts together, and read what a Slice cuts."""

import numpy as np
import pytest
from image_nets import SAME, check, node, values, weights


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

# a Resize to the size that there is copies, and so knows no rows that lie apart
SAME_SIZE = [
    node("Conv", "x w", "a", **SAME), node("Resize", "a  once", "b", mode="nearest"), node("Relu", "b", "c"),
    node("Concat", "b c", "d", axis=1), node("Conv", "d u", "y"),
]
SAME_WEIGHTS = {"w": weights(16, 16, 3), "u": weights(5, 32, 1)}

CUTS = {name: np.array([at]) for name, at in (("zero", 0), ("one", 1), ("half", 16), ("end", 1 << 40))}
# nodes, weights, other constants; how many Slices and Concats there are, and where parts lie within others: of what
# convolutions of 3 x 3 read or make without a step behind them there are copies
NETS = {
    "block": (BLOCK, WEIGHTS, {**CUTS, "twice": np.array([1, 1, 2, 2], np.float32)}, (1, 2), (1, 1)),
    "same size": (SAME_SIZE, SAME_WEIGHTS, {"once": np.ones(4, np.float32)}, (0, 1), (0, 1)),
    "layers": (LAYERS, LAYER_WEIGHTS, {}, (0, 4), (0, 2)),
}


@pytest.mark.parametrize("words", ["+channels_last,-rows_within", "+channels_last,+rows_within"])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("net", NETS)
def test_networks(net, kind, words, monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", words)
    *network, apart, within = NETS[net]
    # sums of up to 432 products in another order; float16 rounds what a dozen nodes make
    steps = check(kind, 16, network, [(8, 12), (2, 2), (10, 6)], 5e-5 if kind is np.float32 else 2e-2)
    assert (steps.count("Slice"), steps.count("Concat")) == (within if "+rows_within" in words else apart)
