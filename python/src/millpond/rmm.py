# SPDX-License-Identifier: Apache-2.0
"""A pool as a memory resource of RMM, so that RAPIDS (cuDF, cuML, ...) shares it.

    import millpond.rmm
    millpond.rmm.install()        # before RAPIDS allocates; or rmm.mr.set_current_device_resource(resource())

Blocks are allocated on the stream that RMM names and freed in the order of the one that it frees on. RMM 26.02
and later work: those before do not say in Python which stream they mean.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from ._core import Error, Pool, UnsupportedError

try:
    import rmm as _rmm
    import rmm.mr
    from rmm.pylibrmm.stream import Stream as _Stream
except ImportError as _error:
    raise ImportError(
        f"millpond.rmm needs RMM, which cannot be imported ({_error}); pip install rmm-cu13, or rmm-cu12"
    ) from _error

__all__ = ["install", "resource"]

_PER_THREAD = 2  # the handle that means the default stream of the calling thread


def resource(
    pool: Pool | None = None,
    *,
    device: str = "auto",
    options: Mapping[str, object] | None = None,
    client: str = "rmm",
) -> Any:
    """An `rmm.mr.CallbackMemoryResource` over a pool; its blocks keep the pool open.

    pool: the pool; by default that of device memory of `device`, which all users of the process share.
    device, options, client: as for `millpond.Pool`, where no pool is given.

    Where memory runs out RMM raises MemoryError (`rmm::out_of_memory` in C++) with the pool's sentence.
    Raises what `millpond.Pool` raises, and UnsupportedError for an RMM before 26.02.
    """
    if not hasattr(_Stream, "__cuda_stream__"):
        raise UnsupportedError(
            f"RMM {_rmm.__version__} does not say which stream memory is for; millpond.rmm needs 26.02 or later "
            "(pip install -U rmm-cu13)"
        )
    lender = pool if pool is not None else Pool(device, client=client, options=options)

    def allocate(size: int, stream: Any) -> int:
        return lender.alloc_address(size, stream)

    def deallocate(address: int, size: int, stream: Any) -> None:
        try:
            _free(lender, address, stream)
        except Error as error:  # C++ calls this, and has no place for an exception
            warnings.warn(f"RMM frees {address:#x} ({size} bytes): {error}", RuntimeWarning, stacklevel=2)

    return _rmm.mr.CallbackMemoryResource(allocate, deallocate)


def install(device: int = 0, *, options: Mapping[str, object] | None = None) -> Any:
    """Makes the pool RMM's memory of this GPU; returns the resource. Earlier allocations of RMM stay as they are.

    device: the driver's number of it. options: of the pool, as for `millpond.Pool`.
    To undo it, set another resource: `rmm.mr.set_per_device_resource(device, rmm.mr.CudaMemoryResource())`.
    Raises what `resource` raises.
    """
    made = resource(device=f"cuda:{device}", options=options)
    _rmm.mr.set_per_device_resource(device, made)
    return made


def _free(pool: Pool, address: int, stream: Any) -> None:
    if stream.__cuda_stream__()[1] == _PER_THREAD:
        # The stream of another thread than the one that the block was allocated on, perhaps: wait for both.
        pool.record_use(address, _PER_THREAD)
        pool.free_address(address)
    else:
        pool.free_address(address, stream)
