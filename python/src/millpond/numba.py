# SPDX-License-Identifier: Apache-2.0
"""Numba on the pool: a memory manager for numba-cuda, its successor numba-cuda-mlir, and Numba's own CUDA target.

    import millpond.numba
    millpond.numba.use()          # before the first array; or NUMBA_CUDA_MEMORY_MANAGER=millpond.numba

docs/numba.md has the rules for streams, the settings and the limits. Importing this imports no Numba.
"""

import contextlib
import dataclasses
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

from . import _numba_manager
from ._core import NotFoundError
from ._numba_binding import dialect_of, no_managers
from ._numba_close import chosen_manager, is_ours, share_contexts, unshare_contexts
from ._numba_streams import Order, current, stream_handle

if TYPE_CHECKING:
    from ._core import Stream

__all__ = ["configure", "flush", "manager_class", "record_use", "restore", "stream", "use"]

Streams = Literal["fence", "fast", "sync"]

_PACKAGES = ("numba.cuda", "numba_cuda_mlir.cuda")


def _check_streams(word: str, where: str) -> str:
    if word not in get_args(Streams):
        raise ValueError(f"{where} is {word!r}; it must be one of {', '.join(get_args(Streams))}")
    return word


if "MILLPOND_NUMBA_STREAMS" in os.environ:
    _numba_manager.settings = dataclasses.replace(
        _numba_manager.settings,
        streams=_check_streams(os.environ["MILLPOND_NUMBA_STREAMS"], "the variable MILLPOND_NUMBA_STREAMS"),
    )


def configure(
    *,
    streams: Streams | None = None,
    ipc: bool | None = None,
    pinned: bool | None = None,
    kernel_arguments: bool | None = None,
    options: Mapping[str, object] | None = None,
) -> None:
    """Sets how Numba's memory is allocated; what is not given stays. Before Numba's first context.

    streams: what happens before a freed array's memory is reused. "fence" (the default): work on blocking streams
        is ordered, without waiting; "fast": nothing, the program keeps the order; "sync": all of the device's work is
        waited for, so that any stream may use any array. The variable MILLPOND_NUMBA_STREAMS sets it too.
    ipc: the pool must have memory that other processes can open (`arena.ipc`); False by default.
    pinned: `cuda.pinned_array` has memory of the pinned pool; True by default.
    kernel_arguments: copies of NumPy arrays that are passed to kernels are in the pool; True by default.
    options: of the pool, as for `millpond.Pool`.

    Raises ValueError for another word, and RuntimeError where Numba has a context with a pool already.
    """
    if len(_numba_manager.active) > 0:
        raise RuntimeError(
            "Numba's memory manager is at work already: call configure() before the first use of a GPU, or after "
            "numba.cuda.close()"
        )
    given = {
        "streams": None if streams is None else _check_streams(streams, "streams"),
        "ipc": ipc,
        "pinned": pinned,
        "kernel_arguments": kernel_arguments,
        "options": None if options is None else dict(options),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    _numba_manager.settings = dataclasses.replace(_numba_manager.settings, **changes)


def use(cuda: ModuleType | None = None, **settings: Any) -> type:
    """Makes the pool Numba's memory from its next context on; returns the class of memory managers.

    cuda: `numba.cuda` or `numba_cuda_mlir.cuda`; by default the one that is imported, or installed.
    settings: as for `configure`.

    Warns where Numba has a context already, which keeps its memory until `numba.cuda.close()`. That resets no GPU's
    primary context from now on: other libraries may have memory of the pool. Raises ImportError without Numba,
    UnsupportedError for a Numba without memory managers (its simulator, or a very old one), and what `configure`
    raises.
    """
    if settings:
        configure(**settings)
    driver = _driver_of(cuda if cuda is not None else _find_cuda())
    chosen = _numba_manager.manager_class(driver)
    before = chosen_manager(driver)
    if not is_ours(before):
        _before[driver.__name__] = before
    driver.set_memory_manager(chosen)
    share_contexts(driver)
    busy = _devices(driver, with_pool=False)
    if busy:
        warnings.warn(
            f"Numba has a context on device {busy}, which keeps its own memory: call millpond.numba.use() before the "
            "first use of the GPU, or cuda.close() after it",
            RuntimeWarning,
            stacklevel=2,
        )
    return chosen


def restore(cuda: ModuleType | None = None) -> None:
    """Undoes `use()`, and NUMBA_CUDA_MEMORY_MANAGER: from its next context on Numba has the memory manager that it had
    before, or its own.

    cuda and errors: as for `use`. Where Numba has another one by now, nothing changes. Arrays stay valid. Warns where
    Numba has a context with the pool, which keeps it until `numba.cuda.close()`.
    """
    driver = _driver_of(cuda if cuda is not None else _find_cuda())
    if not is_ours(chosen_manager(driver)):
        return
    driver.set_memory_manager(_before.pop(driver.__name__, None) or driver.NumbaCUDAMemoryManager)
    busy = _devices(driver, with_pool=True)
    if not busy:
        unshare_contexts(driver)
    else:
        warnings.warn(
            f"Numba has a context on device {busy}, which keeps the pool: cuda.close() ends it",
            RuntimeWarning,
            stacklevel=2,
        )


def manager_class(cuda: ModuleType | None = None) -> type:
    """The class to give to `cuda.set_memory_manager`, which `use` does. `cuda` and errors: as there."""
    return _numba_manager.manager_class(_driver_of(cuda if cuda is not None else _find_cuda()))


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Inside, on this thread, Numba's new device arrays are for work on `stream`, and freed in its order.

    Work that was queued on it before an array is freed may still use the array; no fence is needed then. Another stream
    uses one after `record_use(array, other)`. Where and when an array is freed does not matter. May be nested; None is
    Numba's usual way again.

    stream: one of Numba, cuda.core or another library with `__cuda_stream__`, or a native handle. Numba's own are
    watched, and kept until the arrays have gone; before another one is destroyed, `Pool.stream_gone` must be called,
    since drivers use handles again.
    Raises TypeError for anything but a stream.
    """
    before = current.order
    current.order = None if stream is None else Order(stream)
    try:
        yield
    finally:
        current.order = before


def record_use(array: Any, stream: "Stream") -> None:
    """Declares that work queued on `stream` from now on uses `array`: before that work is queued.

    The stream is made to wait for whatever the array's memory was used for before the array was made, and once the
    array is freed, its memory is not reused before the stream's work has ended. Needed for streams that do not keep
    to the legacy default stream (made with the flag "non-blocking", as those of PyTorch, ONNX Runtime and
    `cupy.cuda.Stream(non_blocking=True)` are), unless streams="sync" is set; and for each stream but one's own inside
    `millpond.numba.stream`.

    array: a device array of Numba, or its `gpu_data`; also one that outlived `cuda.close()`. stream: one of Numba,
    cuda.core or another library with `__cuda_stream__`, or a native handle.
    Raises TypeError for anything but an array and a stream, ValueError for memory of another manager, LookupError for
    memory that the pool has not allocated.
    """
    memory = getattr(array, "gpu_data", array)
    address = getattr(memory, "device_pointer_value", None)
    if address is None:
        raise TypeError(f"record_use() takes a device array of Numba, not {type(array).__name__}")
    for pool in list(_numba_manager.pools):
        try:
            block = pool.find(address)
        except NotFoundError:
            continue
        pool.record_use(block["address"], None if stream is None else stream_handle(stream))
        return
    if not is_ours(_manager_of(memory)):
        raise ValueError("this array's memory is not of the pool: call millpond.numba.use() before it is made")
    raise NotFoundError(
        f"the pool has not allocated the memory at {address:#x}: it was freed, or allocated before millpond.numba.use()"
    )


def _manager_of(memory: Any) -> Any:
    """The memory manager of the context that memory belongs to; a class of ours where that is gone."""
    try:
        return memory.context.memory_manager
    except ReferenceError:
        return _numba_manager.Manager


def flush() -> int:
    """Gives back all freed blocks that still wait for others to be freed with, and returns how many.

    The pool asks for that by itself before it runs out of memory.
    """
    return sum(manager.flush() for manager in list(_numba_manager.active))


# ---- which Numba ----


def _find_cuda() -> ModuleType:
    for name in sorted(_PACKAGES, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError("millpond.numba needs numba-cuda or numba-cuda-mlir; pip install 'numba-cuda[cu13]'")


_before: dict[str, Any] = {}  # what use() took the place of, by the driver module's name


def _has_pool(device: Any) -> bool:
    context = device.primary_context
    return context is not None and is_ours(context.memory_manager)


def _devices(driver: ModuleType, *, with_pool: bool) -> str:
    """The devices that Numba has a context on, with the pool or with other memory."""
    return ", ".join(
        str(int(device.id))
        for device in driver.driver.list_devices()
        if device.primary_context is not None and _has_pool(device) == with_pool
    )


def _driver_of(cuda: ModuleType) -> ModuleType:
    """The module that has the classes of a Numba, of which `cuda` shows some."""
    base = getattr(cuda, "BaseCUDAMemoryManager", None)
    if base is None:
        raise no_managers(cuda.__name__)
    driver = sys.modules[base.__module__]
    dialect_of(driver)
    return driver


def _driver_behind(context: Any) -> ModuleType:
    """The driver module whose context this is."""
    for kind in type(context).__mro__:
        module = sys.modules.get(kind.__module__)
        if hasattr(module, "BaseCUDAMemoryManager"):
            return module
    return _driver_of(_find_cuda())


class _numba_memory_manager:  # noqa: N801 - Numba looks for this name
    """What NUMBA_CUDA_MEMORY_MANAGER=millpond.numba stands for. Both Numbas of a process may ask; each gets an object
    of its own class."""

    interface_version = 1
    is_millpond = True

    def __new__(cls, context: Any = None) -> Any:
        if context is None:
            return super().__new__(cls)  # asked for its version only
        return _numba_manager.manager_class(_driver_behind(context))(context=context)
