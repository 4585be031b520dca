# SPDX-License-Identifier: Apache-2.0
"""Requests of a model put together along their first axis, and its outputs cut up again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millpond._core import OutOfMemoryError, Pool

Inputs = Mapping[str, Any]
Outputs = dict[str, Any]
_ALIGNMENT = 256  # of each array within the batch's memory, as blocks of the pool have it


def _is_open(argument: Any) -> bool:
    """Whether the model leaves open how long the first axis is."""
    shape = argument.shape
    return bool(shape) and not (isinstance(shape[0], int) and shape[0] >= 0)


def takes_batches(sessions: Sequence[Any]) -> bool:
    """Whether requests of these models may be put together along the first axis."""
    return all(_is_open(end) for session in sessions for end in (*session.get_inputs(), *session.get_outputs()))


def _key(request: Inputs) -> tuple[object, ...] | None:
    """What requests that may be put together have in common; None for one that runs by itself."""
    import numpy as np

    parts: list[object] = []
    rows: set[int] = set()
    for name in sorted(request):
        array = request[name]
        if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind in "OUS":
            return None
        parts.append((name, array.dtype.str, array.shape[1:]))
        rows.add(array.shape[0])
    return tuple(parts) if len(rows) == 1 and rows != {0} else None


def _joined(requests: Sequence[Inputs], pinned: Pool) -> tuple[Inputs, list[Any]]:
    """The requests as one, and what keeps its memory: a block of pinned memory for each input, else the host's own."""
    import numpy as np

    whole: dict[str, Any] = {}
    kept: list[Any] = []
    for name, first in requests[0].items():
        arrays = [request[name] for request in requests]
        shape = (sum(len(array) for array in arrays), *first.shape[1:])
        out = None
        if first.size > 0:
            try:
                block = pinned.alloc(sum(array.nbytes for array in arrays))
                out = np.frombuffer(block, first.dtype).reshape(shape)
                kept.append(block)
            except OutOfMemoryError:  # pageable memory does as well, if slower
                out = None
        whole[name] = np.concatenate(arrays, out=out)
    return whole, kept


def _cut(outputs: Outputs, rows: Sequence[int]) -> list[Outputs] | None:
    """Each request's part; None where an output does not have a row for each of the input's."""
    total = sum(rows)
    if any(array.ndim == 0 or len(array) != total for array in outputs.values()):
        return None
    parts: list[Outputs] = []
    begin = 0
    for count in rows:
        parts.append({name: array[begin : begin + count] for name, array in outputs.items()})
        begin += count
    return parts


def _together(requests: Sequence[Inputs], run: Callable[[Inputs], Outputs], pinned: Pool) -> list[Outputs] | None:
    whole, kept = _joined(requests, pinned)
    try:
        outputs = run(whole)
    except Exception:  # noqa: BLE001  which of them it was shows when each runs by itself
        return None
    finally:
        del whole, kept  # before any of them runs again
    return _cut(outputs, [len(next(iter(request.values()))) for request in requests])


def _alone(request: Inputs, run: Callable[[Inputs], Outputs]) -> Outputs | Exception:
    try:
        return run(request)
    except Exception as error:  # noqa: BLE001  it is the answer to this request
        return error


def split_up(
    sessions: Sequence[Any], requests: Sequence[Inputs], run: Callable[[Inputs], Outputs], pinned: Pool
) -> list[Outputs | Exception]:
    """What `run` gives for each request, of which those that fit together are one run."""
    groups: dict[object, list[int]] = {}
    may_join = takes_batches(sessions)
    for index, request in enumerate(requests):
        key = _key(request) if may_join else None
        groups.setdefault(index if key is None else key, []).append(index)
    results: dict[int, Outputs | Exception] = {}
    for members in groups.values():
        chosen = [requests[index] for index in members]
        parts = _together(chosen, run, pinned) if len(chosen) > 1 else None
        found = parts if parts is not None else [_alone(request, run) for request in chosen]
        results.update(zip(members, found, strict=True))
    return [results[index] for index in range(len(requests))]
