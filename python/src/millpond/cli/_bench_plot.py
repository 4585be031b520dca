# SPDX-License-Identifier: Apache-2.0
"""`millpond bench --plot`: a picture of how long runs took, and of memory meanwhile, as SVG.

For each model the share of runs that took at most so long, a line for each provider; and below it what the pool had
reserved of the device, and its most in use in each run of Millpond's, over the time of those runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

MIB = 2**20
WIDTH, LEFT, RIGHT = 720, 64, 16  # of the picture, and of what is beside a panel
TALL, APART, HEAD = 150, 56, 34  # of a panel; from its floor to the next one's top; above the first
POINTS_MAX = 500  # of a line
COLORS = {"millpond": "one", "cpu": "two", "cuda": "three"}
STYLE = """
  svg { --panel: #ffffff; --ink: #1b2430; --soft: #4a5566; --line: #c3cad4; --one: #00796b; --two: #c2570c;
        --three: #3455b0 }
  @media (prefers-color-scheme: dark) {
    svg { --panel: #1c212b; --ink: #e8ecf2; --soft: #b3bdcb; --line: #4a5566; --one: #2bb3a3; --two: #ef8a3c;
          --three: #8ca6f0 }
  }
  text { font: 13px system-ui, "Liberation Sans", Arial, sans-serif; fill: var(--ink) }
  .small { font-size: 12px; fill: var(--soft) } .strong { font-weight: 600 } .panel { fill: var(--panel) }
  .grid { stroke: var(--line); stroke-width: 1; fill: none }
  .line { fill: none; stroke-width: 1.8 } .dashed { stroke-dasharray: 5 3 }
  .one { stroke: var(--one) } .two { stroke: var(--two) } .three { stroke: var(--three) }
"""


class Axis:
    """Numbers from `low` to `high` as places from `start` to `end`."""

    def __init__(self, low: float, high: float, start: float, end: float, log: bool = False) -> None:
        self.log = log and low > 0
        self.low, self.high, self.start, self.end = low, high if high > low else low + (abs(low) or 1), start, end

    def __call__(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        share = ((math.log(value) if self.log else value) - low) / (high - low)
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[float]:
        """Round numbers within, some five of them."""
        if self.log:
            tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [digit * 10.0**ten for ten in tens for digit in (1, 2, 5)]
            within = [value for value in found if self.low <= value <= self.high]
            if len(within) > 1:
                return within
        rough = (self.high - self.low) / 4
        ten = 10.0 ** math.floor(math.log10(rough))
        step = next(ten * digit for digit in (1, 2, 5, 10) if ten * digit >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(said)}</text>'


def _path(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<path class="{kind}" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _axes(across: Axis, up: Axis, top: float, unit: str, label: str, percent: bool = False) -> Iterator[str]:
    floor = top + TALL
    for value in across.ticks():
        yield _path([(across(value), top), (across(value), floor)], "grid")
        yield _text(across(value), floor + 16, _number(value), "small", "middle")
    for value in up.ticks():
        yield _path([(LEFT, up(value)), (WIDTH - RIGHT, up(value))], "grid")
        yield _text(LEFT - 6, up(value) + 4, f"{value * 100:.0f} %" if percent else _number(value), "small", "end")
    yield _text(WIDTH - RIGHT, floor + 32, unit, "small", "end")
    yield _text(LEFT, floor + 32, label, "small")


def _shares(times: Sequence[float]) -> list[tuple[float, float]]:
    """(milliseconds, share of the runs that took at most so long), as steps."""
    ordered = np.sort(np.asarray(times, float))
    at = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), POINTS_MAX)).round().astype(int))
    points = [(float(ordered[0]), 0.0)]
    for i in at:
        points += [(float(ordered[i]), points[-1][1]), (float(ordered[i]), float(i + 1) / len(ordered))]
    return points


def _latencies(rows: Sequence[Any], top: float) -> Iterator[str]:
    every = [time for row in rows for time in row.times]
    across = Axis(min(every), max(every), LEFT, WIDTH - RIGHT, log=max(every) > 3 * min(every))
    up = Axis(0, 1, top + TALL, top)
    yield from _axes(across, up, top, "ms", "share of runs that took at most so long", percent=True)
    for number, row in enumerate(rows):
        p50, p99 = (float(value) for value in np.percentile(row.times, (50, 99)))
        y = top + TALL - 12 - 18 * (len(rows) - 1 - number)
        yield _path([(across(time), up(share)) for time, share in _shares(row.times)], f"line {COLORS[row.provider]}")
        yield _path([(WIDTH - 306, y - 4), (WIDTH - 282, y - 4)], f"line {COLORS[row.provider]}")
        yield _text(WIDTH - 276, y, f"{row.provider}: {_number(p50)} ms, 99 % within {_number(p99)}")


def _thinned(samples: Sequence[Any]) -> list[Any]:
    """At most so many, of which each is the most of those that it stands for."""
    each = math.ceil(len(samples) / POINTS_MAX)
    parts = [samples[i : i + each] for i in range(0, len(samples), each)]
    return [(part[-1][0], max(s[1] for s in part), max(s[2] for s in part)) for part in parts]


def _memory(samples: Sequence[Any], top: float) -> Iterator[str]:
    kept = _thinned(samples)
    across = Axis(0, max(kept[-1][0], 1e-3), LEFT, WIDTH - RIGHT)
    up = Axis(0, 1.05 * max(max(sample[1] for sample in kept) / MIB, 1), top + TALL, top)
    yield from _axes(across, up, top, "s", "MiB of the pool: reserved (dashed), and most in use in a run")
    for which, kind in ((1, "line one dashed"), (2, "line one")):
        yield _path([(across(sample[0]), up(sample[which] / MIB)) for sample in kept], kind)


def _by_model(rows: Sequence[Any]) -> Iterator[list[Any]]:
    """Rows of one model, which follow one another. Models may have a name in common, but each provider once."""
    its: list[Any] = []
    for row in rows:
        if its and (row.model != its[0].model or any(row.provider == other.provider for other in its)):
            yield its
            its = []
        its.append(row)
    if its:
        yield its


def svg(rows: Sequence[Any], where: str) -> str:
    """A picture of rows that have been timed; `where` says on what."""
    models = list(_by_model([row for row in rows if row.times]))
    parts, top = [], HEAD
    for its in models:
        parts += [_text(LEFT, top - 12, its[0].model, "strong"), *_latencies(its, top)]
        top += TALL + APART
        for row in its:
            if row.memory:
                parts += _memory(row.memory, top)
                top += TALL + APART
        top += HEAD - 8
    height = top - HEAD + 16
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img">', f"<title>{escape(f'Latencies and memory of {len(models)} models. {where}')}</title>",
        f"<style>{STYLE}</style>", f'<rect class="panel" width="{WIDTH}" height="{height}" rx="8"/>', *parts,
        _text(WIDTH - RIGHT, height - 8, where, "small", "end"), "</svg>", ""])
