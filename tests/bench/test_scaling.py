# SPDX-License-Identifier: Apache-2.0
"""The calculation of docs/scaling.md: its tables are current, and what must hold of any such calculation does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench")]

import scaling_model as model  # noqa: E402


def test_the_tables_are_current():
    done = subprocess.run([sys.executable, ROOT / "bench/scaling_model.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_whole_model_is_eight_billion_weights():
    assert model.rank_bytes(1) / model.BYTES == pytest.approx(8.03e9, rel=2e-3)


@pytest.mark.parametrize("link", model.LINKS)
def test_sums_of_one_rank_take_no_time_and_more_ranks_take_more(link):
    for size in (8 << 10, 16 << 20):
        times = [model.all_reduce(link, ranks, size) for ranks in model.RANKS]
        assert times[0] == 0 and times == sorted(times)
        assert times[-1] >= 2 * 63 / 64 * size / link.bytes, "no more bytes a second than the link has"
