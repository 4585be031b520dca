# SPDX-License-Identifier: Apache-2.0
"""Sizes that the networks for the benchmarks are measured with, and the ratios of what was measured."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import nets  # noqa: E402  (torch, of which the networks are made, is imported where they are)

FEED = {"ids": np.arange(256).reshape(2, 128), "mask": np.ones((2, 128), np.int64)}


def test_a_network_of_one_size_is_fed_what_it_was_made_with():
    assert nets.feeds_of("bert_f16", FEED) == [("", FEED)]
    assert nets.axes_of("bert") == () and nets.axes_of("phi_dyn") == ("batch", "length")


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", ["bert_open_f16", "resnet50_open_f32"])
def test_a_network_of_open_sizes_is_fed_several(name, many):
    axes = nets.axes_of(name.rpartition("_")[0])
    feed = FEED if len(axes) == 2 else {"x": np.arange(24.0).reshape(1, 2, 3, 4)}
    labels, feeds = zip(*nets.feeds_of(name, feed, many), strict=True)
    assert len(set(labels)) == len(labels) > 4
    for label, made in zip(labels, feeds, strict=True):
        size = tuple(map(int, label.split(" x ")))
        assert len(size) == len(axes)
        assert {key: (value.shape, value.dtype) for key, value in made.items()} == {
            key: (size + value.shape[len(size):], value.dtype) for key, value in feed.items()}
