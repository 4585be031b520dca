# SPDX-License-Identifier: Apache-2.0
"""The two ways in which a Numba talks to the driver.

numba-cuda and numba-cuda-mlir use NVIDIA's cuda.bindings: functions return their outputs, and pointers are objects that
`int` takes. Numba's own CUDA target uses ctypes, where outputs are arguments and pointers have a `value` (with
NUMBA_CUDA_USE_NVIDIA_BINDING=1 it is of the first kind). A `Dialect` is what a memory manager needs of either.
"""

import ctypes
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ._core import UnsupportedError

HANDLE_BYTES = 64
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
PEER_ALREADY = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

HOST_PORTABLE, HOST_MAPPED, HOST_COMBINED = 1, 2, 4  # CU_MEMHOSTALLOC_*; CU_MEMHOSTREGISTER_DEVICEMAP is 2, too
ATTACH_GLOBAL, ATTACH_HOST = 1, 2  # CU_MEM_ATTACH_*


def handle_of(thing: Any) -> int:
    """The number behind a handle or a pointer, of either kind."""
    return int(getattr(thing, "value", thing) or 0)


class Dialect:
    """What cuda.bindings speaks."""

    def __init__(self, driver: ModuleType) -> None:
        self._driver = driver
        self.binding: Any = driver.binding
        self.device_pointer: Callable[[int], Any] = driver.binding.CUdeviceptr
        self.host_pointer: Callable[[int], Any] = int

    def error_code(self, number: int) -> Any:
        """As Numba's CudaAPIError has it."""
        return self.binding.CUresult(number)

    def host_alloc(self, size: int, flags: int) -> int:
        return int(self._driver.driver.cuMemHostAlloc(size, flags))

    def host_register(self, address: int, size: int, flags: int) -> None:
        self._driver.driver.cuMemHostRegister(address, size, flags)

    def managed_alloc(self, size: int, flags: int) -> int:
        return int(self._driver.driver.cuMemAllocManaged(size, flags))

    def ipc_handle(self, raw: bytes) -> Any:
        """What Numba's IpcHandle wraps."""
        handle = self.binding.CUipcMemHandle()
        ctypes.memmove(int(handle.getPtr()), raw, HANDLE_BYTES)
        return handle

    def ipc_bytes(self, handle: Any) -> bytes:
        return ctypes.string_at(int(handle.getPtr()), HANDLE_BYTES)


class CtypesDialect(Dialect):
    """What Numba's own CUDA target speaks."""

    def __init__(self, driver: ModuleType) -> None:
        self._driver = driver
        self.binding = CtypesBinding(lambda: driver.driver.lib)
        self.device_pointer = driver.drvapi.cu_device_ptr
        self.host_pointer = ctypes.c_void_p

    def error_code(self, number: int) -> int:
        return number

    def host_alloc(self, size: int, flags: int) -> int:
        pointer = ctypes.c_void_p()
        self._driver.driver.cuMemHostAlloc(ctypes.byref(pointer), size, flags)
        return handle_of(pointer)

    def host_register(self, address: int, size: int, flags: int) -> None:
        self._driver.driver.cuMemHostRegister(ctypes.c_void_p(address), size, flags)

    def managed_alloc(self, size: int, flags: int) -> int:
        pointer = self._driver.drvapi.cu_device_ptr()
        self._driver.driver.cuMemAllocManaged(ctypes.byref(pointer), size, flags)
        return handle_of(pointer)

    def ipc_handle(self, raw: bytes) -> Any:
        return self._driver.drvapi.cu_ipc_mem_handle.from_buffer_copy(raw)

    def ipc_bytes(self, handle: Any) -> bytes:
        return bytes(bytearray(handle))


@functools.cache
def dialect_of(driver: ModuleType) -> Dialect:
    """What the Numba with this driver module speaks. Raises UnsupportedError where it has no memory managers."""
    if hasattr(driver, "BaseCUDAMemoryManager"):
        if getattr(driver, "binding", None) is not None:
            return Dialect(driver)
        if hasattr(getattr(driver, "drvapi", None), "cu_device_ptr"):
            return CtypesDialect(driver)
    raise no_managers(driver.__name__)


def no_managers(name: str) -> UnsupportedError:
    """The error for a Numba that cannot have our memory."""
    return UnsupportedError(
        f"{name} has no memory managers that Millpond knows: it is Numba's simulator (unset NUMBA_ENABLE_CUDASIM), or "
        "older than Numba 0.61 and numba-cuda 0.20 (pip install -U numba-cuda)"
    )


# ---- the driver's library as cuda.bindings shows it ----


class Result(int):
    """A result of the driver, which has a name."""

    @property
    def name(self) -> str:
        return f"CUDA error {int(self)}"


# Name, symbol, types of the inputs, type of the output that comes first (None: there is none).
_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t
_FUNCTIONS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "cuCtxPushCurrent": ("cuCtxPushCurrent_v2", (_POINTER,), None),
    "cuCtxPopCurrent": ("cuCtxPopCurrent_v2", (), _POINTER),
    "cuCtxSynchronize": ("cuCtxSynchronize", (), None),
    "cuCtxGetDevice": ("cuCtxGetDevice", (), ctypes.c_int),
    "cuStreamSynchronize": ("cuStreamSynchronize", (_POINTER,), None),
    "cuStreamWaitEvent": ("cuStreamWaitEvent", (_POINTER, _POINTER, _INT), None),
    "cuEventRecord": ("cuEventRecord", (_POINTER, _POINTER), None),
    "cuEventDestroy": ("cuEventDestroy_v2", (_POINTER,), None),
    "cuMemFree": ("cuMemFree_v2", (_SIZE,), None),
    "cuMemFreeHost": ("cuMemFreeHost", (_POINTER,), None),
    "cuMemHostUnregister": ("cuMemHostUnregister", (_POINTER,), None),
}
_LAST_OUT = {  # the output comes after the input
    "cuStreamIsCapturing": (_POINTER, ctypes.c_int),
    "cuStreamGetFlags": (_POINTER, _INT),
}


class CtypesBinding:
    """The functions and constants of cuda.bindings.driver that Millpond uses, over the driver's library.

    find: gives that library, when the first function is called.
    """

    CU_STREAM_LEGACY = 1
    CUstream = staticmethod(int)

    class CUresult:
        CUDA_ERROR_DEINITIALIZED = 4
        CUDA_ERROR_INVALID_CONTEXT = 201
        CUDA_ERROR_INVALID_HANDLE = 400
        CUDA_ERROR_CONTEXT_IS_DESTROYED = 709
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906

    class CUstreamCaptureMode:
        CU_STREAM_CAPTURE_MODE_RELAXED = 2

    class CUstreamCaptureStatus:
        CU_STREAM_CAPTURE_STATUS_NONE = 0

    class CUevent_flags:  # noqa: N801 - the names are NVIDIA's
        CU_EVENT_DISABLE_TIMING = 2

    class CUstream_flags:  # noqa: N801
        CU_STREAM_NON_BLOCKING = 1

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """A function; kept as an attribute from then on."""
        if name in _FUNCTIONS:
            symbol, inputs, output = _FUNCTIONS[name]
            call = self._plain(symbol, inputs, output)
        elif name in _LAST_OUT:
            call = self._asking(name, *_LAST_OUT[name])
        else:
            raise AttributeError(name)
        setattr(self, name, call)
        return call

    def _plain(self, symbol: str, inputs: tuple[Any, ...], output: Any) -> Callable[..., tuple[Any, ...]]:
        function = self._function(symbol, *(() if output is None else (_POINTER,)), *inputs)
        if output is None:
            return lambda *args: (Result(function(*args)),)

        def call(*args: Any) -> tuple[Any, ...]:
            out = output()
            return Result(function(ctypes.byref(out), *args)), out.value

        return call

    def _asking(self, symbol: str, given: Any, output: Any) -> Callable[..., tuple[Any, ...]]:
        function = self._function(symbol, given, _POINTER)

        def call(thing: Any) -> tuple[Any, ...]:
            out = output()
            return Result(function(thing, ctypes.byref(out))), out.value

        return call

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:  # noqa: N802
        out = ctypes.c_void_p()
        return Result(self._function("cuEventCreate", _POINTER, _INT)(ctypes.byref(out), flags)), out.value

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> tuple[Any, ...]:  # noqa: N802
        out = ctypes.c_int(mode)
        return Result(self._exchange(ctypes.byref(out))), out.value

    @functools.cached_property
    def _exchange(self) -> Any:
        return self._function("cuThreadExchangeStreamCaptureMode", _POINTER)

    def _function(self, symbol: str, *types: Any) -> Any:
        """A function of the library. Numba declares the same symbols in its own way: so this is made from the
        address."""
        address = ctypes.cast(getattr(self._find(), symbol), ctypes.c_void_p).value
        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)
