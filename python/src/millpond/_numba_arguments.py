# SPDX-License-Identifier: Apache-2.0
"""Memory for NumPy arrays that are passed to kernels: Numba copies them to memory of the device object of cuda.core.

They are treated as Numba's other arrays: lent on the legacy default stream, and given to the backlog when freed.
"""

from collections.abc import Callable
from typing import Any

from ._core import Pool
from ._numba_backlog import Driver
from .cuda_core import PoolMemoryResource


class ArgumentResource(PoolMemoryResource):
    """The resource that a manager puts in the place of cuda.core's own."""

    def __init__(self, pool: Pool, give: Callable[[int, int], None], gpu: Driver | None) -> None:
        super().__init__(pool)
        self._give = give
        self._gpu = gpu

    def _lend(self, size: int, handle: int) -> int:
        address = self.pool.alloc_address(size, 0)
        if handle > 2 and self._gpu is not None and not self._gpu.is_blocking(handle):
            self.pool.record_use(address, handle)
        return address

    def _take_back(self, address: int, size: int, stream: Any) -> None:
        self._give(address, size)
