# SPDX-License-Identifier: Apache-2.0
"""Memory of the pool for other processes on the same GPU.

    handle = millpond.ipc_handle(block)  # a Buffer, or an array of Numba, CuPy, PyTorch or ONNX Runtime on the pool
    queue.put(handle)                    # by pickle, or bytes(handle) over a socket

    block = millpond.open_ipc(queue.get())  # in the other process: a Buffer over the same memory

What is opened is the device's allocation around the block, a region of the pool. A GPU is known by its place on the PCI
bus, since its number may differ from process to process; an emulated device by its number.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from millpond import _native
from millpond._core import Buffer, InvalidArgumentError, NotFoundError, Pool

CLIENT = "ipc"
ORDINALS = 64  # more GPUs than a machine has
_MARK = b"MPIPC\0\0\1"
_FORM = struct.Struct("<8s64sQQQ40s")
_SPEC = re.compile(r"host:\d{1,2}|cuda:[0-9a-f:.]{1,31}")

_stream_wait = ctypes.PyDLL(_native.PATH).millpond_stream_wait
_stream_wait.restype = ctypes.py_object
_stream_wait.argtypes = [ctypes.py_object] * 2


@dataclass(frozen=True)
class IpcHandle:
    """Names a block in another process. In the process that made it, it keeps the block."""

    raw: bytes  # of the driver
    offset: int  # of the block, in what that opens
    size: int
    device: str  # "cuda:" and the GPU's place on the PCI bus, or "host:0"
    process: int
    _owner: object = field(default=None, repr=False, compare=False)

    def __bytes__(self) -> bytes:
        """For from_bytes, in the other process."""
        return _FORM.pack(_MARK, self.raw, self.offset, self.size, self.process, self.device.encode())

    @staticmethod
    def from_bytes(data: bytes) -> IpcHandle:
        """Raises InvalidArgumentError for bytes that bytes(handle) has not made."""
        if len(data) != _FORM.size or data[: len(_MARK)] != _MARK:
            raise InvalidArgumentError(f"these {len(data)} bytes are not those of an IpcHandle of this version")
        _, raw, offset, size, process, device = _FORM.unpack(data)
        spec = device.rstrip(b"\0").decode("ascii", "replace")
        if not _SPEC.fullmatch(spec):
            raise InvalidArgumentError(f"the handle is of the device {spec!r}, which is none")
        return IpcHandle(raw, offset, size, spec, process)

    def __reduce__(self) -> tuple[Any, ...]:
        return IpcHandle.from_bytes, (bytes(self),)

    def open(self) -> Buffer:
        """As open_ipc."""
        return open_ipc(self)


def _identity(pool: Pool) -> str:
    return pool.device if pool.is_emulated else f"cuda:{pool.bus_id or pool.ordinal}"


def _part_of(array: Any, pool: Pool | None) -> tuple[Pool, int, int, Any]:
    """Pool, address, bytes and stream of what is to be passed on."""
    if isinstance(array, Buffer):
        return array.pool, array.address, array.size, array.stream
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise InvalidArgumentError(
            f"a {type(array).__name__} is neither a Buffer nor an array with __cuda_array_interface__"
        )
    width = int(re.sub(r"^\D+", "", interface["typestr"]) or 0)
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    steps = [math.prod(shape[i + 1 :]) * width for i in range(len(shape))]
    if strides is not None and any(n > 1 and step != given for n, step, given in zip(shape, steps, strides)):  # noqa: B905
        raise InvalidArgumentError(f"an array of shape {shape} has gaps or another order; make a copy in C order first")
    return pool or Pool(client=CLIENT), interface["data"][0], math.prod(shape) * width, interface.get("stream", 1)


def ipc_handle(array: Any, pool: Pool | None = None) -> IpcHandle:
    """A handle by which another process of the user opens the memory of `array`.

    array: a Buffer, or a device array with `__cuda_array_interface__` and without gaps whose memory is the pool's.
    pool: the one that an array's memory is of, where that is not the first GPU's.
    Waits for what is queued on the stream of the array. The handle keeps it; the memory stays as long as either lives
    in this process. Of work queued afterwards the other process knows nothing. Raises UnsupportedError for memory that
    cannot be passed on (arena.expandable, arena.use_cuda_mempool, pinned, an emulated device without
    MILLPOND_HOST_IPC=1), NotFoundError for memory that is not the pool's.
    """
    home, address, size, stream = _part_of(array, pool)
    block = home.find(address)
    raw, offset = home.ipc_export(block["address"])
    if stream is not None:
        _stream_wait(home, stream)
    inside = address - block["address"]
    return IpcHandle(raw, offset + inside, size, _identity(home), os.getpid(), array)


def _pool_of(device: str) -> Pool:
    """The pool of device memory of what a handle names."""
    if device.startswith("host:"):
        return Pool(device, client=CLIENT)
    for ordinal in range(ORDINALS):
        try:
            pool = Pool(f"cuda:{ordinal}", client=CLIENT)
        except NotFoundError:
            break
        if _identity(pool) == device:
            return pool
    raise NotFoundError(
        f"the handle is of the GPU {device.partition(':')[2]}, which this process does not see; CUDA_VISIBLE_DEVICES "
        "decides"
    )


def open_ipc(handle: IpcHandle | bytes) -> Buffer:
    """A Buffer over the memory of a block in another process of the user, on the same GPU.

    handle: what ipc_handle gave there, or its bytes. It may be opened several times. The Buffer is bytes to Numba,
    CuPy, PyTorch and ONNX Runtime, as any Buffer; no limit of this process counts it. Before it goes, this process
    waits for the device; that it went the other process must be told, which keeps the block until then.
    Raises InvalidArgumentError for a handle of this process, of one that has ended, or of memory that it has freed, and
    NotFoundError for a GPU that this process does not see.
    """
    known = handle if isinstance(handle, IpcHandle) else IpcHandle.from_bytes(handle)
    if known.process == os.getpid():
        raise InvalidArgumentError("the handle is of this process; use the array itself")
    return _pool_of(known.device).ipc_open(known.raw, known.offset, known.size)
