# SPDX-License-Identifier: Apache-2.0
"""Memory of the graphs that CuPy captures.

A captured graph uses its memory in every run, so the pool is told before a capture begins and after it has ended,
however it was begun. CuPy does not tell when a graph goes: memory of one that was captured by `begin_capture` alone
stays set apart. `CapturedGraph` gives it back.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from millpond._core import Capture, Error, Pool

Key = tuple[int, int]  # device and handle of a stream


class Captures:
    """All captures of CuPy's streams, once `watch()` has been called."""

    def __init__(self, cupy: Any, pool_of: Callable[[int], Pool]) -> None:
        self.cupy = cupy
        self._base = cupy.cuda.stream._BaseStream
        self._pool_of = pool_of
        self._open: dict[Key, tuple[Pool, Capture]] = {}
        self._claims: dict[Key, CapturedGraph] = {}  # who wants the memory of a capture
        self._kept: list[Capture] = []  # of graphs whose end nobody tells
        self._leaving: list[tuple[int, Capture]] = []  # given back while a stream was captured

    def watch(self) -> None:
        """Puts this object behind the methods of CuPy's streams."""
        begin, end = self._base.begin_capture, self._base.end_capture

        def begin_capture(stream: Any, mode: int | None = None) -> None:
            self._begin(stream, lambda: begin(stream, mode))

        def end_capture(stream: Any) -> Any:
            return self._end(stream, lambda: end(stream))

        begin_capture.__doc__, end_capture.__doc__ = begin.__doc__, end.__doc__
        self._base.begin_capture, self._base.end_capture = begin_capture, end_capture

    def key(self, stream: Any) -> Key:
        device = stream.device_id
        return (self.cupy.cuda.runtime.getDevice() if device < 0 else device, stream.ptr)

    def claim(self, key: Key, graph: CapturedGraph | None) -> None:
        """The next capture of the stream is for `graph`; None takes that back."""
        if graph is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = graph

    def _begin(self, stream: Any, begin: Callable[[], None]) -> None:
        key = self.key(stream)
        claim = self._claims.get(key)
        pool = self._pool_of(key[0])
        capture = pool.capture_begin(stream.ptr, claim.memory.capture if claim is not None else None)
        try:
            begin()
        except BaseException:
            pool.capture_end(stream.ptr)
            raise
        self._open[key] = (pool, capture)
        if claim is not None:
            claim.memory.capture = capture

    def _end(self, stream: Any, end: Callable[[], Any]) -> Any:
        key = self.key(stream)
        try:
            return end()
        finally:
            pool, capture = self._open.pop(key, (None, None))
            if pool is not None and capture is not None:
                pool.capture_end(stream.ptr)
                if key not in self._claims:
                    self._kept.append(capture)
            self._release_leaving()

    def release(self, device: int, capture: Capture) -> None:
        """Gives the memory of graphs that are gone back, once they have run."""
        self._leaving.append((device, capture))
        self._release_leaving()

    def _release_leaving(self) -> None:
        while self._leaving and not self._open:  # while one is open, the device cannot be waited for
            device, capture = self._leaving.pop()
            with self.cupy.cuda.Device(device):
                self.cupy.cuda.runtime.deviceSynchronize()
            capture.release()


class _Memory:
    """What graphs that never run at the same time share."""

    def __init__(self) -> None:
        self.capture: Capture | None = None
        self.users = 0


class CapturedGraph:
    """A graph of CuPy and the memory that it uses; see `millpond.cupy.capture`."""

    def __init__(self, captures: Captures, stream: Any, mode: int | None, share: CapturedGraph | None) -> None:
        self.graph: Any = None
        self._captures, self._stream, self._mode = captures, stream, mode
        self._key = captures.key(stream)
        self._is_closed = True
        if share is not None and (share._is_closed or share._key[0] != self._key[0]):
            raise Error("memory can be shared with a graph of the same device that is not closed, and with no other")
        self.memory: _Memory = share.memory if share is not None else _Memory()
        self.memory.users += 1
        self._is_closed = False

    def __enter__(self) -> CapturedGraph:
        self._stream.__enter__()
        self._captures.claim(self._key, self)
        try:
            self._stream.begin_capture(self._mode)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.graph = self._stream.end_capture()
        except self._captures.cupy.cuda.runtime.CUDARuntimeError:
            if error is None:  # else the capture broke where the error arose
                raise
        finally:
            self._leave()
            if error is not None:
                self.close()

    def _leave(self) -> None:
        self._captures.claim(self._key, None)
        self._stream.__exit__(None, None, None)

    def launch(self, stream: Any = None) -> None:
        """Queues a run of the graph on `stream`, by default on the current one."""
        if self.graph is None:
            raise Error("the graph is not captured, or closed")
        self.graph.launch(stream)

    def close(self) -> None:
        """Destroys the graph, waits for the device, and gives the memory back to the pool. What arrays that were made
        in the capture still have goes back with them. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed, self.graph = True, None
        self.memory.users -= 1
        if self.memory.users == 0 and self.memory.capture is not None:
            self._captures.release(self._key[0], self.memory.capture)

    def __del__(self) -> None:
        if not self._captures.cupy._util.is_shutting_down():
            self.close()
