# SPDX-License-Identifier: Apache-2.0
"""Streams of cuda.core that pools have had blocks of.

cuda.core destroys a stream with the last that refers to it and tells nobody, but a pool must not find a stream
destroyed whose work it has still to wait for. So a stream is kept here until nobody else refers to it and its work has
ended; then the pools are told and the stream let go.
"""

import sys
import threading
from collections.abc import Mapping
from typing import Any

from ._core import Pool

_LAST_DEFAULT = 2  # 0, 1 and 2 stand for default streams


def _references(held: Mapping[int, Any]) -> dict[int, int]:
    return {handle: sys.getrefcount(stream) for handle, stream in held.items()}


_OURS = _references({0: object()})[0]  # how many of them are the table's own; it depends on the interpreter


def _is_open(stream: Any, handle: int) -> bool:
    try:
        return int(stream.handle) == handle
    except (RuntimeError, TypeError):  # closed by the program, which has told the pool
        return False


class Streams:
    """A table of them. Threads may call at once."""

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}
        self._pools: dict[int, list[Pool]] = {}  # those to be told
        self._lock = threading.Lock()

    def keep(self, stream: Any, handle: int, pool: Pool) -> None:
        """Keeps `stream`, an object of cuda.core, unless it is a default stream or one of its handle is kept."""
        if handle <= _LAST_DEFAULT:
            return
        held = self._held.get(handle)
        is_kept = held is stream or _is_open(held, handle) if held is not None else False
        if is_kept and pool in self._pools.get(handle, ()):
            return
        with self._lock:
            self._let_go()
            if not is_kept or handle not in self._held:
                self._held[handle], self._pools[handle] = stream, []
            self._pools[handle].append(pool)

    def _let_go(self) -> None:
        """Called as often as the program makes a stream, so it finds few."""
        for handle, count in _references(self._held).items():
            if count == _OURS and self._has_ended(handle):
                del self._held[handle], self._pools[handle]

    def _has_ended(self, handle: int) -> bool:
        try:
            if not self._held[handle].record().is_done:
                return False
            for pool in self._pools[handle]:
                if not pool.closed:
                    pool.stream_gone(handle)
        except Exception:  # some captures forbid such calls: later
            return False
        return True


streams = Streams()
