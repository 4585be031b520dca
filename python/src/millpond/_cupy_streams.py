# SPDX-License-Identifier: Apache-2.0
"""The end of CuPy's streams.

A driver uses a destroyed stream's handle again, and the pool would take the new stream for the old one. So CuPy's
streams are not destroyed at once: a handle is kept until its work has ended, the pool is told, and then it goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond._core import Pool

_LAST_DEFAULT = 2  # 0, 1 and 2 are default streams, which never end


class Streams:
    """Destroys streams in place of CuPy, once `watch()` has been called."""

    def __init__(self, cupy: Any, pool_of: Callable[[int], Pool]) -> None:
        self._runtime = cupy.cuda.runtime
        self._class = cupy.cuda.Stream
        self._is_shutting_down = cupy._util.is_shutting_down
        self._pool_of = pool_of
        self._retired: list[tuple[int, int]] = []  # (device, handle)

    def watch(self) -> None:
        """Puts this object behind the destructor of CuPy's streams."""
        destroy = self._class.__del__

        def __del__(stream: Any) -> None:
            if not self._take(stream):
                destroy(stream)

        self._class.__del__ = __del__

    def _take(self, stream: Any) -> bool:
        """Whether the stream's handle is ours to destroy now; else it is CuPy's."""
        handle = getattr(stream, "ptr", 0)  # one that was never made has none
        is_foreign = getattr(stream, "_foreign_stream_ref", None) is not None
        if handle <= _LAST_DEFAULT or is_foreign or self._is_shutting_down():
            return False
        self._retired.append((stream.device_id, handle))
        self.destroy_idle()
        return True

    def destroy_idle(self) -> int:
        """Destroys those of the retired streams whose work has ended. Returns how many are left."""
        waiting = []
        while self._retired:
            one = self._retired.pop()
            if not self._destroy(*one):
                waiting.append(one)
        self._retired.extend(waiting)
        return len(waiting)

    def _destroy(self, device: int, handle: int) -> bool:
        try:
            if self._runtime.streamQuery(handle) != 0:
                return False
            self._pool_of(device).stream_gone(handle)
        except RuntimeError:  # of CuPy or of the pool: some captures forbid such calls
            return False
        self._runtime.streamDestroy(handle)
        return True
