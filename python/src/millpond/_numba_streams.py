# SPDX-License-Identifier: Apache-2.0
"""The stream that a thread's arrays are made for: `with millpond.numba.stream(s):`.

Numba tells a memory manager no stream, so the user may. Inside, blocks are allocated on that stream and freed in order,
whenever and wherever their finalizers run: a finalizer holds the stream, and the pool knows which one it allocated on.
"""

import threading
import weakref
from typing import Any

from ._core import Pool
from ._numba_binding import handle_of


def stream_handle(stream: Any) -> int:
    """The native handle of a stream of Numba, of another library with `__cuda_stream__`, or an int."""
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if hasattr(stream, "handle"):  # of Numba's own CUDA target
        return handle_of(stream.handle)
    if isinstance(stream, int):
        return stream
    raise TypeError(
        f"a stream is one of Numba or of another library with __cuda_stream__, or a native handle, not "
        f"{type(stream).__name__}"
    )


class Order:
    """A stream that blocks are allocated on."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.handle = stream_handle(stream)
        self._known: set[int] = set()  # devices whose pools will be told of the stream's end

    def lend(self, pool: Pool, size: int) -> int:
        """Raises OutOfMemoryError."""
        address = pool.alloc_address(size, self.handle)
        if pool.ordinal not in self._known:
            _watch(self.stream, self.handle, pool)
            self._known.add(pool.ordinal)
        return address


class _Current(threading.local):
    order: Order | None = None  # None: Numba's usual way


current = _Current()


def free_in_order(pool: Pool, stream: Any, address: int) -> None:
    """What the finalizer of such a block calls. `stream` is kept until then."""
    try:
        pool.free_address(address)
    except Exception:  # there is nobody to raise it to
        return


# ---- the end of streams ----

_watched: "weakref.WeakKeyDictionary[Any, set[int]]" = weakref.WeakKeyDictionary()


def _watch(stream: Any, handle: int, pool: Pool) -> None:
    """Has the pool told before Numba destroys a stream that Numba made: drivers use handles again."""
    if handle <= 2 or type(stream).__name__ != "Stream" or getattr(stream, "external", True):
        return
    pools = _watched.setdefault(stream, set())
    if pool.ordinal not in pools:
        pools.add(pool.ordinal)
        weakref.finalize(stream, _tell, pool, handle)  # finalizers run newest first: this one before Numba's


def _tell(pool: Pool, handle: int) -> None:
    try:
        pool.stream_gone(handle)
    except Exception:  # during a capture of it, or with the GPU broken
        return
