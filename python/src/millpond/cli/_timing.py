# SPDX-License-Identifier: Apache-2.0
"""Latencies: runs are timed one by one, after some that are not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Latency:
    """Milliseconds of single runs."""

    runs: int
    least: float
    p50: float
    p90: float
    p99: float
    most: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def timed(run: Callable[[], object]) -> float:
    """Milliseconds of one run."""
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


def repeated(
    run: Callable[[], object], runs: int, seconds: float, after: Callable[[], object] | None = None
) -> list[float]:
    """Milliseconds of each of `runs` runs, or of fewer, but at least one, where they take longer than `seconds`.
    `after` is called behind each, and is not in its time."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < runs and (not times or time.perf_counter() < until):
        times.append(timed(run))
        if after is not None:
            after()
    return times


def latency(times: Sequence[float]) -> Latency:
    p50, p90, p99 = (float(value) for value in np.percentile(times, PERCENTILES))
    return Latency(len(times), min(times), p50, p90, p99, max(times))
