# SPDX-License-Identifier: Apache-2.0
"""tools/kernel_gen.py: which instances a build compiles that takes the others from another build."""

from pathlib import Path

import kernel_gen
import pytest

ROWS = sorted(kernel_gen.instances(Path(__file__).resolve().parents[2] / "src/kernel"))


def sources(rows):
    return [source for _, source, _ in rows]


@pytest.mark.parametrize("one_in", [1, 2, 4, 1000])
def test_a_sample_has_each_kernel(one_in):
    sample = list(kernel_gen.sampled(ROWS, one_in))
    assert set(sources(sample)) == set(sources(ROWS))
    for source in set(sources(ROWS)):
        assert sources(sample).count(source) == -(-sources(ROWS).count(source) // one_in)


def test_one_in_none_is_none():
    assert list(kernel_gen.sampled(ROWS, 0)) == []
