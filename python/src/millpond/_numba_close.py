# SPDX-License-Identifier: Apache-2.0
"""`numba.cuda.close()` leaves the contexts of the GPUs alone.

Numba would reset the primary contexts of all GPUs, also of those that it does not use, and with them the memory of
every library of the process: the pools', and what others have from them. So while Numba's memory is the pool's, closing
gives back Numba's own things only. Under another memory manager it does what Numba does.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any


def share_contexts(devices: Iterable[Any], is_ours: Callable[[Any], bool]) -> None:
    """Changes what resetting these device objects of Numba does; weak references to them, as they are kept here.

    is_ours(manager): whether this memory manager of a context is the pool's; of None: whether the next one will be.
    """
    for device in devices:
        if hasattr(device, "primary_context"):  # a context that another library made may have a bare number instead
            device.reset = partial(_close, device, is_ours)


def unshare_contexts(devices: Iterable[Any]) -> None:
    """What resetting them does is Numba's own again."""
    for device in devices:
        vars(device).pop("reset", None)


def _close(device: Any, is_ours: Callable[[Any], bool]) -> None:
    context = device.primary_context
    manager = None if context is None else context.memory_manager
    stays = is_ours(None)
    if not stays:
        unshare_contexts([device])
    if not stays and not is_ours(manager):
        device.reset()
    elif context is not None:
        context.reset()
        device.primary_context = None
        if is_ours(manager):
            manager.retire()
