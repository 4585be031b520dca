# SPDX-License-Identifier: Apache-2.0
"""Images whose channels do not fill packs, between convolutions that are sooner done with whole ones."""

import numpy as np
import pytest
from image_nets import SAME, check, node, weights

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


@pytest.mark.parametrize("sizes", [(8, 12), (2, 2), (10, 6)])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("net", NETS)
def test_networks(net, kind, sizes, monkeypatch):
    """Also where sizes are not known: nothing is cut or brought in for them."""
    monkeypatch.setenv("MILLPOND_PASSES", "+channels_last,+channel_packs")
    # sums of up to 162 products in another order; float16 rounds what ten nodes make
    steps = check(kind, 4, NETS[net], [sizes], 5e-5 if kind is np.float32 else 2e-2)
    assert "Gather" not in steps and "Slice" not in steps
