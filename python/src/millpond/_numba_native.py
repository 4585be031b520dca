# SPDX-License-Identifier: Apache-2.0
"""Memory that Numba has straight from the driver, since a pool has no such kind: mapped, write-combined and managed
memory, and arrays of the user that are page-locked for a while.

To free it waits for the device. So it is collected, and freed some at a time, and while cleaning up is deferred only
when memory runs out. Page-locking alone ends at once, because an array may be locked again right after.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from ._numba_backlog import Backlog, Deferral, Driver


class NativeMemory:
    """What one manager has from the driver. Finalizers refer to this, not to the manager."""

    def __init__(self, driver: Driver | None, deferral: Deferral) -> None:
        self._driver = driver
        self._alive: dict[int, Any] = {}  # Numba's objects count references; somebody has to hold them
        self._keys = itertools.count()
        self.backlog = Backlog(self._free, lambda: True, deferral)

    def finalizer(self, free: str, address: int, size: int) -> "Finalizer":
        """Frees `address` with the driver function `free`, some time after it was called."""
        return Finalizer(self, partial(self.backlog.give, (free, address), size))

    def unpin(self, address: int, owner: Any) -> "Finalizer":
        """Ends the page-locking of memory of `owner`, at once."""
        return Finalizer(self, partial(self._unpin, address, owner))

    def keep(self, memory: Any, finalizer: "Finalizer") -> Any:
        """What Numba is to be given of an object that counts its references."""
        finalizer.key = next(self._keys)
        self._alive[finalizer.key] = memory
        return memory.own()

    def drop(self, key: int | None) -> None:
        """Forgets an object that is being finalized."""
        self._alive.pop(key, None)

    def _free(self, block: tuple[str, int]) -> None:
        self._driver.call(*block)

    def _unpin(self, address: int, owner: Any) -> None:
        try:
            self._driver.call("cuMemHostUnregister", address)
        except Exception:  # with the context, the page-locking is gone
            return
        finally:
            del owner  # held until here: its memory may not go before


class Finalizer:
    """What is called when a piece of memory is done with; knows whom to tell."""

    __slots__ = ("_call", "_native", "key")

    def __init__(self, native: NativeMemory, call: Callable[[], None]) -> None:
        self._native = native
        self._call = call
        self.key: int | None = None

    def __call__(self) -> None:
        self._native.drop(self.key)
        self._call()
