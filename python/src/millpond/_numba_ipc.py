# SPDX-License-Identifier: Apache-2.0
"""Handles of arrays for other processes.

A handle stands for one allocation of the driver, and with a pool that is a region with many arrays: so it comes with
the place of the array in it. Numba's own way to pickle a handle needs an attribute that cuda-bindings lacks from 13.4
on; ours copies the bytes, also for memory that is not of the pool.
"""

import importlib
from typing import Any

from ._numba_binding import HANDLE_BYTES, dialect_of


def _native_handle(driver: Any, raw: bytes) -> Any:
    if len(raw) != HANDLE_BYTES:
        raise ValueError(f"a handle has {HANDLE_BYTES} bytes, not {len(raw)}")
    return dialect_of(driver).ipc_handle(raw)


def rebuild(module: str, raw: bytes, size: int, source_info: Any, offset: int) -> Any:
    """The handle in the process that received it; `module` is Numba's driver module."""
    driver = importlib.import_module(module)
    return driver.IpcHandle(None, _native_handle(driver, raw), size, source_info, offset=offset)


def make_handle(driver: Any, memory: Any, raw: bytes, source_info: Any, offset: int) -> Any:
    """An `IpcHandle` of Numba for `memory`, which it keeps alive; that begins `offset` bytes into what `raw` opens."""

    class PoolIpcHandle(driver.IpcHandle):
        def __reduce__(self) -> tuple[Any, ...]:
            return rebuild, (driver.__name__, raw, self.size, self.source_info, self.offset)

    return PoolIpcHandle(memory, _native_handle(driver, raw), memory.size, source_info, offset=offset)


def wrap_handle(driver: Any, handle: Any) -> Any:
    """The same handle, which can be pickled."""
    raw = dialect_of(driver).ipc_bytes(handle.handle)
    return make_handle(driver, handle.base, raw, handle.source_info, handle.offset)
