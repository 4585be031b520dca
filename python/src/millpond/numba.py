# SPDX-License-Identifier: Apache-2.0
"""Numba on the pool: a memory manager for numba-cuda and for its successor numba-cuda-mlir.

    import millpond.numba
    millpond.numba.use()          # before the first array; or NUMBA_CUDA_MEMORY_MANAGER=millpond.numba

docs/numba.md has the rules for streams, the settings and the limits. Importing this imports no Numba.
"""

import dataclasses
import importlib
import os
import sys
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

from . import _numba_manager
from ._core import UnsupportedError

if TYPE_CHECKING:
    from ._core import Stream

__all__ = ["configure", "flush", "manager_class", "record_use", "use"]

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
    """Sets how Numba's memory is had; what is not given stays. Before Numba's first context.

    streams: what happens before a freed array's memory serves another. "fence" (the default): work on blocking streams
        is ordered, without waiting; "fast": nothing, the program keeps the order; "sync": all of the device's work is
        waited for. The variable MILLPOND_NUMBA_STREAMS sets it too.
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

    Warns where Numba has a context already, which keeps its memory until `numba.cuda.close()`. Raises ImportError
    without Numba, UnsupportedError for a Numba without memory managers (its simulator, or a very old one).
    """
    if settings:
        configure(**settings)
    driver = _driver_of(cuda if cuda is not None else _find_cuda())
    chosen = _numba_manager.manager_class(driver)
    driver.set_memory_manager(chosen)
    busy = [
        str(device.id)
        for device in driver.driver.list_devices()
        if device.primary_context is not None and not isinstance(device.primary_context.memory_manager, chosen)
    ]
    if busy:
        warnings.warn(
            f"Numba has a context on device {', '.join(busy)}, which keeps its own memory: call millpond.numba.use() "
            "before the first use of the GPU, or cuda.close() after it",
            RuntimeWarning,
            stacklevel=2,
        )
    return chosen


def manager_class(cuda: ModuleType | None = None) -> type:
    """The class to give to `cuda.set_memory_manager`, which `use` does. `cuda` and errors: as there."""
    return _numba_manager.manager_class(_driver_of(cuda if cuda is not None else _find_cuda()))


def record_use(array: Any, stream: "Stream") -> None:
    """Declares that work queued on `stream` uses `array`, so that its memory is not lent again before.

    Needed for streams that do not keep to the legacy default stream (made with the flag "non-blocking", as those of
    PyTorch, ONNX Runtime and `cupy.cuda.Stream(non_blocking=True)` are), unless streams="sync" is set.

    array: a device array of Numba, or its `gpu_data`. stream: one of Numba, cuda.core or another library with
    `__cuda_stream__`, or a native handle.
    Raises TypeError for what is no array, ValueError for memory of another memory manager, LookupError for memory that
    the pool has not lent.
    """
    memory = getattr(array, "gpu_data", array)
    context = getattr(memory, "context", None)
    if context is None:
        raise TypeError(f"record_use() takes a device array of Numba, not {type(array).__name__}")
    manager = context.memory_manager
    if not isinstance(manager, _numba_manager.Manager):
        raise ValueError("this array's memory is not of the pool: call millpond.numba.use() before it is made")
    manager.record_use(memory, stream)


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


def _driver_of(cuda: ModuleType) -> ModuleType:
    """The module that has the classes of a Numba, of which `cuda` shows some."""
    base = getattr(cuda, "BaseCUDAMemoryManager", None)
    driver = None if base is None else sys.modules[base.__module__]
    if driver is None or getattr(driver, "binding", None) is None:
        raise UnsupportedError(
            f"{cuda.__name__} has no memory managers: it is Numba's simulator (unset NUMBA_ENABLE_CUDASIM), or older "
            "than numba-cuda 0.20 (pip install -U numba-cuda)"
        )
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

    def __new__(cls, context: Any = None) -> Any:
        if context is None:
            return super().__new__(cls)  # asked for its version only
        return _numba_manager.manager_class(_driver_behind(context))(context=context)
