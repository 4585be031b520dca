# SPDX-License-Identifier: Apache-2.0
"""`numba.cuda.close()` leaves the contexts of the GPUs alone.

Numba would reset the primary contexts of all GPUs, also of those that it does not use, and with them the memory of
every library of the process: the pools', and what others have from them. So closing gives back Numba's own things only.
"""

from functools import partial
from typing import Any


def share_contexts(*devices: Any) -> None:
    """Changes what resetting these device objects of Numba does; weak references to them, as they are kept here."""
    for device in devices:
        if hasattr(device, "primary_context"):  # a context that another library made may have a bare number instead
            device.reset = partial(_close, device)


def _close(device: Any) -> None:
    """As Numba's own, but for the primary context, which stays."""
    context = device.primary_context
    if context is None:
        return
    context.reset()
    device.primary_context = None
    retire = getattr(context.memory_manager, "retire", None)
    if retire is not None:
        retire()
