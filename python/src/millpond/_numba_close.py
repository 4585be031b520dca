# SPDX-License-Identifier: Apache-2.0
"""`numba.cuda.close()` leaves the contexts of the GPUs alone.

Numba would reset the primary contexts of all GPUs, also of those that it does not use, and with them the memory of
every library of the process: the pools', and what others have from them. So while Numba's memory is the pool's, closing
gives back Numba's own things only. Under another memory manager it does what Numba does.
"""

import weakref
from collections.abc import Iterable
from functools import partial
from types import ModuleType
from typing import Any


def is_ours(manager: Any) -> bool:
    """Whether a memory manager, or a class of them, is the pool's."""
    return getattr(manager, "is_millpond", False)


def chosen_manager(driver: ModuleType) -> Any:
    """The class of the next context's memory manager; None while Numba has not asked for one."""
    return getattr(driver, "_memory_manager", None)


def share_devices(driver: ModuleType, *more: Any) -> None:
    """Changes what resetting Numba's device objects does: those that it has by now, and `more` (weak references)."""
    for device in (*more, *map(weakref.proxy, driver.driver.list_devices())):
        if hasattr(device, "primary_context"):  # a context that another library made may have a bare number instead
            device.reset = partial(_close, driver, device)


def unshare(devices: Iterable[Any]) -> None:
    """What resetting them does is Numba's own again."""
    for device in devices:
        vars(device).pop("reset", None)


def _close(driver: ModuleType, device: Any) -> None:
    context = device.primary_context
    manager = None if context is None else context.memory_manager
    stays = is_ours(chosen_manager(driver))
    if not stays:
        unshare([device])
    if not stays and not is_ours(manager):
        device.reset()
    elif context is not None:
        context.reset()
        device.primary_context = None
        if manager is not None and is_ours(manager):
            manager.retire()
