# SPDX-License-Identifier: Apache-2.0
"""Memory for NumPy arrays that are passed to kernels: Numba copies them to memory of the device object of cuda.core.

Numba keeps one such object, which other code of the thread has as well (`cuda.core.Device(0)`). So Numba is given one
of its own, that differs in where memory comes from only.

On blocking streams they are treated as Numba's other arrays: allocated as those, and given to the backlog when freed. A
launch on a non-blocking stream has memory of that stream, freed in its order.
"""

from collections.abc import Callable
from typing import Any

from ._core import Pool
from ._numba_backlog import Driver
from .cuda_core import PoolMemoryResource

_LAST_DEFAULT = 2  # 0, 1 and 2 are default streams, which keep to each other's order


class ArgumentResource(PoolMemoryResource):
    """Allocates memory for NumPy arguments.

    usual: the stream that Numba's other arrays are allocated on. give(address, size): what takes them back.
    gpu: None on the emulated device, whose streams are all non-blocking.
    """

    def __init__(self, pool: Pool, usual: int | None, give: Callable[[int, int], None], gpu: Driver | None) -> None:
        super().__init__(pool)
        self._usual = usual
        self._give = give
        self._gpu = gpu
        self._in_order: set[int] = set()  # addresses that were allocated on the stream of a launch

    def _lend(self, size: int, handle: int) -> int:
        if self._usual is None or not self._keeps_own_order(handle):
            return self.pool.alloc_address(size, self._usual)
        address = self.pool.alloc_address(size, handle)
        self._in_order.add(address)
        return address

    def _keeps_own_order(self, handle: int) -> bool:
        return handle > _LAST_DEFAULT and (self._gpu is None or not self._gpu.is_blocking(handle))

    def _take_back(self, address: int, size: int, stream: Any) -> None:
        if address in self._in_order:
            self._in_order.discard(address)
            self.pool.free_address(address)
        else:
            self._give(address, size)


class ArgumentDevice:
    """What Numba keeps in place of its device object of cuda.core."""

    def __init__(self, device: Any, resource: ArgumentResource) -> None:
        self.millpond_device = device
        self.memory_resource = resource

    def allocate(self, size: int, stream: Any = None) -> Any:
        return self.memory_resource.allocate(size, stream=stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.millpond_device, name)
