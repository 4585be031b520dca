# SPDX-License-Identifier: Apache-2.0
"""Random networks of several kinds beside the CPU provider's, with the passes of the emulated device and of a GPU."""

import pytest
import random_networks
from ort_version import ORT

SEEDS = 8
BYTES = "+byte_conv,+byte_product,+channels_last"  # where products of integers gain something
PASSES = dict.fromkeys(random_networks.KINDS, ("", "gpu")) | {"quantized": ("", f"gpu,{BYTES}")}

pytestmark = pytest.mark.skipif(ORT < (1, 31), reason="the CPU provider, which is the reference, had faults then")


@pytest.mark.parametrize("type_", random_networks.TYPES)
@pytest.mark.parametrize(("kind", "words"), [(kind, words) for kind in PASSES for words in PASSES[kind]])
def test_networks(kind, words, type_, monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", words)
    seeds = range(SEEDS * (4 if kind == "parts" else 1))  # nearly each part
    found = {seed: random_networks.trial(kind, seed, type_) for seed in seeds}
    assert not {seed: fault for seed, (fault, _) in found.items() if fault}
    assert sum(could for _, could in found.values()) > 0.7 * len(seeds)


@pytest.mark.parametrize("kind", random_networks.KINDS)
def test_networks_without_some_passes(kind, monkeypatch):
    found = {}
    for seed in range(100, 100 + SEEDS):
        words = random_networks.leave_out(seed, 0.15)
        monkeypatch.setenv("MILLPOND_PASSES", ",".join([PASSES[kind][1], *words]))
        found[seed] = random_networks.trial(kind, seed, random_networks.TYPES[0])
    assert not {seed: fault for seed, (fault, _) in found.items() if fault}
