# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries as values of ONNX Runtime and the other way, without a copy.

Either side keeps the other's memory alive. A value made of an array holds the array; an array made of a value holds
the value. On the emulated device everything works alike, with memory that the host can read.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond import _ort_beyond_numpy as beyond
from millpond import _ort_register as register
from millpond import _ort_types as types
from millpond._core import Buffer, InvalidArgumentError, NotFoundError
from millpond._html import table
from millpond._ort_native import make_tensor, ort, read_tensor, wait_for
from millpond._ort_register import Device, pool_of
from millpond._ort_types import ElementType

if TYPE_CHECKING:
    from millpond._core import Stream

LEGACY_STREAM = 1
DL_CPU, DL_CUDA = 1, 2
POINTER_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


@dataclass(frozen=True)
class Memory:
    """An array in the memory of a device."""

    address: int
    type: ElementType
    shape: tuple[int, ...]
    ordinal: int | None  # None: the array does not tell
    owner: object
    is_read_only: bool = False


# ---- what arrays are ----


def _check_contiguous(shape: Sequence[int], strides: Sequence[int] | None, step: int) -> None:
    """`strides` and `step`, that of one element, are in the same unit."""
    if strides is None or 0 in shape:
        return
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != step:
            raise InvalidArgumentError(
                f"an array of shape {tuple(shape)} has gaps or another order (strides {tuple(strides)}); ONNX "
                "Runtime takes arrays in C order without gaps, so make such a copy first"
            )
        step *= size


def _of_buffer(buffer: Buffer, dtype: Any, shape: Sequence[int] | None) -> Memory:
    kind = types.from_dtype("uint8" if dtype is None else dtype)
    if shape is None:
        if buffer.size % kind.bytes:
            raise InvalidArgumentError(f"a Buffer of {buffer.size} bytes is not a whole number of {kind.name} elements")
        shape = (buffer.size // kind.bytes,)
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0 or math.prod(sizes) * kind.bytes > buffer.size:
        raise InvalidArgumentError(f"a Buffer of {buffer.size} bytes cannot be {kind.name} of shape {sizes}")
    return Memory(buffer.address, kind, sizes, buffer.pool.ordinal, buffer)


def _of_interface(array: Any, interface: dict[str, Any]) -> Memory:
    kind = types.from_typestr(interface["typestr"], getattr(array, "dtype", None))
    shape = tuple(interface["shape"])
    if interface.get("mask") is not None:
        raise InvalidArgumentError("a masked array cannot be passed to ONNX Runtime; fill in what is masked first")
    _check_contiguous(shape, interface.get("strides"), kind.bytes)
    address, is_read_only = interface["data"]
    return Memory(address or 0, kind, shape, None, array, bool(is_read_only))


def _capsule(array: Any) -> Any:
    """Without an order of streams, which stream_of sees to."""
    if not _is_torch(array):
        return array.__dlpack__(stream=-1)
    with sys.modules["torch"].cuda.device(array.device):  # it refuses for another device than the current one
        return array.detach().__dlpack__(stream=-1)


def _of_dlpack(array: Any) -> Memory | None:
    if array.__dlpack_device__()[0] != DL_CUDA:
        return None
    capsule = _capsule(array)
    address, code, bits, lanes, device, shape, strides = read_tensor(capsule)
    kind = types.from_dlpack(code, bits, lanes)
    if kind.name == "uint8" and _is_bool(array):
        kind = types.from_dtype("bool")  # older writers of DLPack have no code for it
    _check_contiguous(shape, strides, 1)
    return Memory(address, kind, shape, device[1], capsule)


def _is_bool(array: Any) -> bool:
    return str(getattr(array, "dtype", "")).rpartition(".")[2] in ("bool", "bool_")


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def interface_of(array: Any) -> dict[str, Any] | None:
    """An array's __cuda_array_interface__. PyTorch's says nothing of streams and types that it lacks, DLPack does."""
    return None if _is_torch(array) else getattr(array, "__cuda_array_interface__", None)


def describe(array: Any, dtype: Any = None, shape: Sequence[int] | None = None) -> Memory | None:
    """What a device array is; None where its memory is the host's."""
    if isinstance(array, Buffer):
        return None if array.pool.memory == "pinned" else _of_buffer(array, dtype, shape)
    if dtype is not None or shape is not None:
        raise InvalidArgumentError("dtype and shape are for a Buffer, which has none; other arrays have their own")
    interface = interface_of(array)
    if interface is not None:
        return _of_interface(array, interface)
    return _of_dlpack(array) if hasattr(array, "__dlpack_device__") else None


def stream_of(array: Any) -> int | None:
    """The stream on which an array's memory is ready now; None where there is nothing to wait for.

    An array that names none is taken to be ready on the legacy default stream, where most libraries work.
    """
    if isinstance(array, Buffer):
        return array.stream
    if isinstance(array, DeviceArray):
        return None
    if _is_torch(array):
        return sys.modules["torch"].cuda.current_stream(array.device).cuda_stream if array.is_cuda else None
    interface = interface_of(array)
    if interface is not None:
        stream = interface.get("stream")
        return LEGACY_STREAM if stream is None else stream
    if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == DL_CUDA:
        array.__dlpack__(stream=LEGACY_STREAM)  # has that stream wait for the array's
        return LEGACY_STREAM
    return None


# ---- whose memory it is ----


def _ask_driver(address: int) -> int | None:
    """The number of the GPU that an address belongs to, as the driver tells it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    ordinal = ctypes.c_int()
    failed = driver.cuPointerGetAttribute(ctypes.byref(ordinal), POINTER_ORDINAL, ctypes.c_uint64(address))
    return None if failed else ordinal.value


def _is_lent(device: Device, address: int) -> bool:
    try:
        pool_of(device).find(address)
    except NotFoundError:
        return False
    return True


def device_of(memory: Memory) -> Device:
    """The provider's device that the memory is of. Raises InvalidArgumentError where it is of none."""
    there = register.devices()
    ordinal = memory.ordinal
    if ordinal is None:
        ordinal = there[0].ordinal if len(there) == 1 or memory.address == 0 else _ask_driver(memory.address)
    found = next((device for device in there if device.ordinal == ordinal), None)
    if found is None:
        known = ", ".join(device.spec for device in there)
        raise InvalidArgumentError(f"the array is on device {ordinal}, and ONNX Runtime has {known} of the provider's")
    is_ours = isinstance(memory.owner, Buffer) or memory.address == 0  # memory of another process, too
    if found.is_emulated and not is_ours and not _is_lent(found, memory.address):
        raise InvalidArgumentError(
            "the array is not memory of the emulated device, on which ONNX Runtime runs here; sessions run on a GPU "
            "where MILLPOND_DEVICE does not say host and a GPU is found"
        )
    return found


# ---- to ONNX Runtime ----


class _Export:
    """What OrtValue.from_dlpack takes; the dtype tells bool from uint8, which it wants to be the same in DLPack."""

    def __init__(self, memory: Memory, device: Device) -> None:
        kind = memory.type
        code = types.UINT if kind.code == types.BOOL else kind.code
        self.dtype = kind.name
        self.capsule = make_tensor(
            memory.address, (code, kind.bits), (DL_CUDA, device.ordinal), memory.shape, memory.owner
        )

    def __dlpack__(self) -> Any:
        return self.capsule


def wrap(memory: Memory) -> Any:
    """The memory of a device as an OrtValue, which keeps the memory's owner."""
    return ort.OrtValue.from_dlpack(_Export(memory, device_of(memory)))


def _of_host(array: Any, dtype: Any, shape: Sequence[int] | None) -> Any:
    import numpy as np

    if isinstance(array, Buffer):
        memory = _of_buffer(array, dtype, shape)
        flat = np.frombuffer(array, dtype=memory.type.name, count=math.prod(memory.shape))
        array = flat.reshape(memory.shape)
    if isinstance(array, np.ndarray) and array.dtype.kind in "OUS":
        raise InvalidArgumentError("ONNX Runtime takes texts by session.run() only, not as values")
    if isinstance(array, np.ndarray):
        if beyond.type_of(array) is not None:
            return beyond.value_of(array)
        return ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))  # a scalar stays one
    if hasattr(array, "__dlpack__"):
        return ort.OrtValue.from_dlpack(array)
    raise InvalidArgumentError(
        f"a {type(array).__name__} is not an array: it has neither __cuda_array_interface__ nor __dlpack__"
    )


def as_ortvalue(
    array: Any, *, dtype: Any = None, shape: Sequence[int] | None = None, stream: Stream | Any = ...
) -> Any:
    """An array as an OrtValue that shares its memory; the OrtValue keeps the array alive.

    array: a Buffer, a device array of Numba, CuPy or PyTorch, or whatever else has __cuda_array_interface__ or DLPack,
    in C order without gaps; arrays of the host, such as NumPy's, become values of the host.
    dtype, shape: what to take a Buffer for; by default all of it, as bytes.
    stream: work queued there is waited for before this function returns. By default that is the stream which the array
    names, or the legacy default stream where it names none; None: the array is ready.
    Raises InvalidArgumentError for element types that ONNX Runtime has none for, arrays with gaps, and memory that is
    of no device of the provider.
    """
    if isinstance(array, ort.OrtValue):
        return array
    if isinstance(array, DeviceArray):
        return array.ortvalue
    memory = describe(array, dtype, shape)
    if memory is None:
        return _of_host(array, dtype, shape)
    value = wrap(memory)
    wait_for(pool_of(device_of(memory)), stream_of(array) if stream is ... else stream)
    return value


# ---- from ONNX Runtime ----


class DeviceArray:
    """A value of ONNX Runtime as a device array, which shares its memory and keeps it alive.

    It is ready: a run has ended when it returns. Speaks DLPack and, for memory of a GPU, __cuda_array_interface__;
    on the emulated device NumPy reads it. Work of others that still uses the memory when the last reference goes must
    be declared with record_use(), but for those who take it by DLPack, whose stream is recorded.
    """

    __slots__ = ("__weakref__", "address", "device", "ortvalue", "shape", "type")

    def __init__(self, ortvalue: Any) -> None:
        kind = types.from_tensor(ortvalue.data_type())
        if kind is None:
            raise InvalidArgumentError(f"a {ortvalue.data_type()} cannot be a device array; read it with .numpy()")
        ordinal = ortvalue.__dlpack_device__()[1]
        self.ortvalue: Any = ortvalue
        self.type: ElementType = kind
        self.shape: tuple[int, ...] = tuple(ortvalue.shape())
        self.address: int = ortvalue.data_ptr()
        self.device: Device = register.find(ordinal)

    @property
    def dtype(self) -> str:
        """Name of the element type, as NumPy calls it."""
        return self.type.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.type.bytes

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on {self.device.spec}>"

    def _repr_html_(self) -> str:
        columns = ("type", "shape", "bytes", "device")
        return table(columns, [(self.dtype, list(self.shape), self.nbytes, self.device.spec)], "DeviceArray")

    def numpy(self) -> Any:
        """A copy in the host's memory. One of bfloat16 takes ml_dtypes; InvalidArgumentError says so without."""
        if self.type.name == beyond.BFLOAT16:
            dtype = beyond.dtype(beyond.BFLOAT16)
            bits = Memory(self.address, types.from_dtype(beyond.BITS), self.shape, self.device.ordinal, self.ortvalue)
            return DeviceArray(wrap(bits)).numpy().view(dtype)
        if self.device.is_emulated and self.type.typestr is not None:
            import numpy as np

            return np.array(self)  # which a build of ONNX Runtime with CUDA would ask the GPU for
        return self.ortvalue.numpy()

    def record_use(self, stream: Stream) -> None:
        """Work queued on `stream` uses the memory, which is allocated again only after that work.

        Raises NotFoundError for memory that is not the pool's; its owner sees to it.
        """
        pool = pool_of(self.device)
        if self.nbytes > 0:
            pool.record_use(pool.find(self.address)["address"], stream)

    def _interface(self, protocol: str, **more: Any) -> dict[str, Any]:
        if self.type.typestr is None:
            raise AttributeError(f"{protocol} has no word for {self.dtype}; DLPack has")
        data = (self.address if self.nbytes > 0 else 0, False)
        return {"shape": self.shape, "typestr": self.type.typestr, "data": data, "strides": None, "version": 3, **more}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device.is_emulated:
            raise AttributeError("the memory is the host's, so it has no __cuda_array_interface__")
        return self._interface("__cuda_array_interface__", stream=None)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self.device.is_emulated:
            raise AttributeError("the host cannot read a GPU's memory; .numpy() copies it")
        return self._interface("__array_interface__")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (DL_CPU, 0) if self.device.is_emulated else (DL_CUDA, self.device.ordinal)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule that keeps the value; `stream`, the consumer's, is recorded as a user of the memory."""
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"the memory is of DLPack's device {device}, and is not copied to {tuple(dl_device)}")
        if copy:
            raise BufferError("a DeviceArray shares its memory; numpy() makes a copy")
        if self.device.is_emulated:
            if stream not in (None, -1):
                raise InvalidArgumentError(f"stream is {stream!r}; for memory of the host it must be None or -1")
        elif stream != -1 and self.nbytes > 0 and _is_lent(self.device, self.address):
            self.record_use(LEGACY_STREAM if stream is None else stream)
        versioned = max_version is not None and max_version[0] >= 1
        kind = (self.type.code, self.type.bits)
        return make_tensor(self.address, kind, device, self.shape, self.ortvalue, versioned)


def as_array(ortvalue: Any) -> Any:
    """An OrtValue as a DeviceArray that shares its memory; a value of the host as a NumPy array.

    Anything but a tensor (a sequence, a map) stays the OrtValue that it is.
    """
    if not isinstance(ortvalue, ort.OrtValue):
        raise InvalidArgumentError(f"a {type(ortvalue).__name__} is not an OrtValue")
    if not ortvalue.is_tensor():
        return ortvalue
    if ortvalue.device_name() != "cpu":
        return DeviceArray(ortvalue)
    return beyond.array_of(ortvalue)
