# SPDX-License-Identifier: Apache-2.0
"""`numba.cuda.close()` leaves the contexts of the GPUs alone.

Numba would reset the primary contexts of all GPUs, also of those that it does not use, and with them the memory of
every library of the process: the pools', and what others have from them. So while Numba's memory is the pool's, closing
releases Numba's own things only. Under another memory manager it does what Numba does.
"""

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any


def is_ours(manager: Any) -> bool:
    """Whether a memory manager, or a class of them, is the pool's."""
    return getattr(manager, "is_millpond", False)


def chosen_manager(driver: ModuleType) -> Any:
    """The class of the next context's memory manager; None while Numba has not asked for one."""
    return getattr(driver, "_memory_manager", None)


def share_contexts(driver: ModuleType) -> None:
    """Changes what resetting one of Numba's device objects does, for those that it will make as well."""
    own: Callable[[Any], None] = driver.Device.reset
    if hasattr(own, "millpond_own"):
        return

    @wraps(own)
    def reset(device: Any) -> None:
        _close(driver, device, own)

    reset.millpond_own = own  # type: ignore[attr-defined]
    driver.Device.reset = reset


def unshare_contexts(driver: ModuleType) -> None:
    """What resetting them does is Numba's own again."""
    driver.Device.reset = getattr(driver.Device.reset, "millpond_own", driver.Device.reset)


def _close(driver: ModuleType, device: Any, own: Callable[[Any], None]) -> None:
    context = device.primary_context
    manager = None if context is None else context.memory_manager
    if not is_ours(chosen_manager(driver)) and not is_ours(manager):
        own(device)
    elif context is not None:
        context.reset()
        device.primary_context = None
        if manager is not None and is_ours(manager):
            manager.retire()
