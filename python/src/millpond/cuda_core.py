# SPDX-License-Identifier: Apache-2.0
"""A pool as a memory resource of cuda.core, NVIDIA's Python interface to CUDA.

    from cuda.core import Device
    from millpond.cuda_core import PoolMemoryResource

    device = Device()
    device.set_current()
    device.memory_resource = PoolMemoryResource()
    buffer = device.allocate(1 << 20, stream=device.default_stream)

Blocks are allocated in the order of the stream given and freed in the order of the one that the buffer is closed on.
cuda.core 0.3 and later work. Those before 1.2 do not tell a resource which stream a buffer was allocated on when it is
collected: they name the default stream or none, and the block then waits for both.
"""

import inspect
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._core import OutOfMemoryError, Pool
from ._core_streams import streams

try:
    import cuda.core as _core

    if not hasattr(_core, "MemoryResource"):  # up to 0.4
        import cuda.core.experimental as _core
except ImportError as _error:
    raise ImportError(
        f"millpond.cuda_core needs cuda.core, which cannot be imported ({_error}); pip install cuda-core"
    ) from _error

__all__ = ["PoolMemoryResource"]

_PER_THREAD = 2  # the handle that means the default stream of the calling thread
_KNOWS_STREAM = "stream" in inspect.signature(_core.Buffer.from_handle).parameters  # from 1.2 on


def _error_class() -> type[Exception]:
    """What cuda.core raises when the driver refuses; it has no public name."""
    for package in ("cuda.core", "cuda.core.experimental"):
        try:
            return __import__(f"{package}._utils.cuda_utils", fromlist=["CUDAError"]).CUDAError
        except (ImportError, AttributeError):
            continue
    return RuntimeError


class _CudaOutOfMemoryError(_error_class(), MemoryError):
    """cuda.core's own error for a full device, which is a MemoryError too."""


def _plain(stream: Any) -> Any:
    """The stream of a graph under construction; anything else as it is."""
    inner = getattr(stream, "stream", None)
    return inner if isinstance(inner, _core.Stream) else stream


def _handle_of(stream: Any) -> int:
    """The native handle of a stream of cuda.core, an object with `__cuda_stream__` or an int; None: the default."""
    if stream is None:
        return _PER_THREAD if os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0") == "1" else 0
    if isinstance(stream, _core.Stream):
        return int(stream.handle)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    return int(stream)


def _for_buffer(stream: Any, handle: int) -> dict[str, Any]:
    """How a new buffer is told the stream that it is to be freed on, where it can be told."""
    if stream is None or not _KNOWS_STREAM:
        return {}
    return {"stream": stream if isinstance(stream, _core.Stream) else _core.Stream.from_handle(handle)}


if TYPE_CHECKING:
    _MemoryResource = object  # a checker finds nothing in cuda.core, which fills itself when it is imported
else:
    _MemoryResource = _core.MemoryResource


class PoolMemoryResource(_MemoryResource):
    """Gives cuda.core memory of a pool.

    pool: the pool; by default that of device memory of `device`, which all users of the process share.
    device, options, client: as for `millpond.Pool`, where no pool is given.
    Raises what `millpond.Pool` raises.
    """

    def __init__(
        self,
        pool: Pool | None = None,
        *,
        device: str = "auto",
        options: Mapping[str, object] | None = None,
        client: str = "cuda.core",
    ) -> None:
        self.pool: Pool = pool if pool is not None else Pool(device, client=client, options=options)
        self._is_pinned = self.pool.memory == "pinned"

    def allocate(self, size: int, stream: Any = None) -> Any:
        """A buffer of `size` bytes for work queued on `stream` after this call; None is the default stream.

        Raises cuda.core's CUDAError, which is a MemoryError then, where memory runs out.
        """
        stream = _plain(stream)
        handle = _handle_of(stream)
        if not self._is_pinned:
            self._keep(stream, handle)
        try:
            address = self._lend(size, handle) if size else 0
        except OutOfMemoryError as error:
            raise _CudaOutOfMemoryError(f"CUDA_ERROR_OUT_OF_MEMORY: {error}") from error
        try:
            return _core.Buffer.from_handle(ptr=address, size=size, mr=self, **_for_buffer(stream, handle))
        except BaseException:
            self.deallocate(address, size)
            raise

    def deallocate(self, ptr: Any, size: int, stream: Any = None) -> None:
        """Frees the block in the order of `stream`; None: of the one it was allocated on."""
        address = int(ptr)
        if address != 0:  # that of an empty buffer
            self._take_back(address, size, _plain(stream))

    @property
    def is_device_accessible(self) -> bool:
        """Whether a GPU can use the memory."""
        return not self.pool.is_emulated

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host can use the memory."""
        return self._is_pinned or self.pool.is_emulated

    @property
    def is_managed(self) -> bool:
        """Pools have no managed memory."""
        return False

    @property
    def device_id(self) -> int:
        """The driver's number of the device."""
        return self.pool.ordinal

    def __repr__(self) -> str:
        return f"<PoolMemoryResource of {self.pool!r}>"

    def _keep(self, stream: Any, handle: int) -> None:
        if isinstance(stream, _core.Stream):
            streams.keep(stream, handle, self.pool)

    def _lend(self, size: int, handle: int) -> int:
        return self.pool.alloc_address(size, None if self._is_pinned else handle)

    def _take_back(self, address: int, size: int, stream: Any) -> None:
        if self._is_pinned:
            if isinstance(stream, _core.Stream):
                stream.sync()  # pinned memory has no order of streams: what is free is used at once
            stream = None
        if stream is None:
            self.pool.free_address(address)
            return
        handle = _handle_of(stream)
        self._keep(stream, handle)
        if handle <= _PER_THREAD and (not _KNOWS_STREAM or handle == _PER_THREAD):
            # Perhaps only a stand-in for the stream of the allocation: wait for that and for this one.
            self.pool.record_use(address, handle)
            self.pool.free_address(address)
        else:
            self.pool.free_address(address, handle)
