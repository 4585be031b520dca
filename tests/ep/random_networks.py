#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random networks of several kinds beside ONNX Runtime's CPU provider.

random_networks.py KIND FIRST LAST [SHARE]   tries the seeds FIRST to LAST of a KIND in float32 and float16, with that
                                             share of the passes left out; prints the faults, and exits with 1 if any
"""

import os
import sys

import exported
import image_nets
import numpy as np
import passes
import random_agreement
import random_images
from changed_models import Changed
from random_encoders import Encoder
from random_quantized import Quantized
from random_steps import Steps

TYPES = (np.float32, np.float16)


def changed_part(seed):
    """One of the parts of networks as exporters write them."""
    import test_passes  # noqa: PLC0415  (which has their inputs; only tests are to need pytest)

    name = test_passes.MODELS[seed % len(test_passes.MODELS)]
    feeds = [test_passes.fed(name, np.float16, *sizes) for sizes in ((2, 7), (2, 7), (1, 1), (3, 9))]
    return Changed(seed, getattr(exported, name), feeds)


def changed_images(seed):
    feeds = [{"given": image_nets.values(batch, random_images.CHANNELS, *size)}
             for batch, size in zip((2, 2, 1, 1), random_images.SIZES, strict=True)]
    return Changed(seed, random_images.Net(seed, 16).model, feeds)


KINDS = {"encoders": Encoder, "quantized": Quantized, "steps": Steps, "parts": changed_part, "images": changed_images}


def trial(kind, seed, type_):
    """None, or what is wrong; whether anything could be said of the network."""
    net = KINDS[kind](seed)
    return random_agreement.compare(net, type_, net.feeds())


def leave_out(seed, share):
    """The words that leave a random part of the passes out."""
    random = np.random.default_rng(seed)
    return [f"-{name}" for name in [*passes.NAMES, "cluster", "row_cluster"] if random.random() < share]


def main():
    kind, first, last = sys.argv[1], *map(int, sys.argv[2:4])
    share, kept = float(sys.argv[4]) if len(sys.argv) > 4 else 0, os.environ.get("MILLPOND_PASSES", "")
    faults = judged = 0
    for seed in range(first, last + 1):
        os.environ["MILLPOND_PASSES"] = ",".join(filter(None, [kept, *leave_out(seed, share)]))
        for type_ in TYPES:
            fault, could = trial(kind, seed, type_)
            judged += could
            if fault:
                faults += 1
                print(f"{kind} {seed} {type_.__name__} {os.environ['MILLPOND_PASSES']}: {fault}", flush=True)
    print(f"{judged} of {2 * (last - first + 1)} runs could be judged, {faults} faults")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
