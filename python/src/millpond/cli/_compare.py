# SPDX-License-Identifier: Apache-2.0
"""How far outputs are from those of ONNX Runtime's CPU provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millpond import _ort_beyond_numpy as beyond

# The largest relative norm of a difference that passes. TF32, on by default on GPUs, keeps 10 bits of mantissa.
RELATIVE_MAX = {"float16": 3e-2}
RELATIVE_MAX_DEFAULT = 5e-3
RELATIVE_MAX_BEYOND = 1e-1  # of bfloat16, and floats of fewer bits


@dataclass(frozen=True)
class Difference:
    """Of one output. `largest` and `relative` are None where elements are not compared as numbers."""

    output: str
    shape: tuple[int, ...] | None
    type: str
    largest: float | None  # absolute, of an element
    relative: float | None  # norm of the difference over the norm of what is expected
    ok: bool
    note: str = ""


def _norms(result: Any, expected: Any) -> tuple[float, float]:
    """(largest, relative) difference; elements that are not finite must be the same."""
    finite = np.isfinite(expected)
    same = np.array_equal(result[~finite], expected[~finite], equal_nan=True)
    if not same or not np.isfinite(result[finite]).all():
        return float("inf"), float("inf")
    gap = result[finite] - expected[finite]
    largest = float(np.abs(gap).max()) if gap.size else 0.0
    norm = float(np.linalg.norm(expected[finite]))
    return largest, float(np.linalg.norm(gap)) / norm if norm else largest


def _of_arrays(name: str, result: Any, expected: Any, relative_max: float | None) -> Difference:
    shape, kind = tuple(result.shape), result.dtype.name
    if result.shape != expected.shape or result.dtype != expected.dtype:
        note = f"the CPU gives {expected.dtype.name} of shape {list(expected.shape)}"
        return Difference(name, shape, kind, None, None, False, note)
    other, is_float = beyond.type_of(result), beyond.is_float(result)
    if result.dtype.kind not in "iub" and not is_float and other is None:
        return Difference(name, shape, kind, None, None, bool(np.array_equal(result, expected)))
    largest, relative = _norms(result.astype(np.float64), expected.astype(np.float64))
    if relative_max is None and not is_float:
        return Difference(name, shape, kind, largest, relative, bool(np.array_equal(result, expected)))
    if relative_max is None:
        relative_max = RELATIVE_MAX.get(kind, RELATIVE_MAX_DEFAULT) if other is None else RELATIVE_MAX_BEYOND
    return Difference(name, shape, kind, largest, relative, relative <= relative_max)


def compare(name: str, result: Any, expected: Any, relative_max: float | None = None) -> Difference:
    """One output beside what the CPU gives. Integers, booleans and texts must be the same, unless a limit is given."""
    if isinstance(result, np.ndarray) and isinstance(expected, np.ndarray):
        return _of_arrays(name, result, expected, relative_max)
    if isinstance(result, list) and isinstance(expected, list) and len(result) == len(expected):
        parts = [compare(name, a, b, relative_max) for a, b in zip(result, expected, strict=True)]
        largest = [part.largest for part in parts if part.largest is not None]
        relative = [part.relative for part in parts if part.relative is not None]
        return Difference(name, None, f"list of {len(parts)}", max(largest, default=None), max(relative, default=None),
                          all(part.ok for part in parts))
    return Difference(name, None, type(result).__name__, None, None, bool(result == expected))
