# SPDX-License-Identifier: Apache-2.0
"""One pool of GPU memory for all libraries of a process: Numba, CuPy, PyTorch, ONNX Runtime.

    import millpond
    pool = millpond.Pool()               # the first GPU, else the emulated device
    block = pool.alloc(1 << 20, stream)  # for work queued on `stream` from now on
    del block                            # goes back in the order of that stream

Everybody who opens the same memory of the same device shares one pool. The adapters are submodules, imported when
they are first used: `millpond.numba`, `millpond.cuda_core`, `millpond.cupy`, `millpond.rmm`, `millpond.torch`,
`millpond.onnxruntime`, `millpond.genai`; for programs of several processes `millpond.serving`, `millpond.ray_serve`,
`millpond.dask`, `millpond.prometheus`.
This package imports none of those libraries, and works without a GPU. Sizes are bytes.
"""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

try:
    from millpond._core import (
        Buffer,
        Capture,
        Error,
        InvalidArgumentError,
        NotFoundError,
        OutOfMemoryError,
        Pool,
        UnsupportedError,
        get_limit,
        set_limit,
        version,
    )
except ModuleNotFoundError as _error:
    if _error.name != "millpond._core":
        raise
    raise ImportError(
        "millpond._core is not built here: install the wheel, or in the source tree run `make` and set "
        "PYTHONPATH=build/dev/python",
        name="millpond._core",
    ) from None

from millpond import _log
from millpond._ipc import IpcHandle, ipc_handle, open_ipc
from millpond._label import label
from millpond._statistics import statistics

if TYPE_CHECKING:
    from millpond import cli as cli
    from millpond import cuda_core as cuda_core
    from millpond import cupy as cupy
    from millpond import dask as dask
    from millpond import genai as genai
    from millpond import monitor as monitor
    from millpond import numba as numba
    from millpond import onnxruntime as onnxruntime
    from millpond import prometheus as prometheus
    from millpond import ray_serve as ray_serve
    from millpond import rmm as rmm
    from millpond import serving as serving
    from millpond import torch as torch

__version__ = version()
__all__ = [
    "Buffer",
    "Capture",
    "Error",
    "InvalidArgumentError",
    "IpcHandle",
    "NotFoundError",
    "OutOfMemoryError",
    "Pool",
    "UnsupportedError",
    "get_ep_name",
    "get_ep_names",
    "get_include",
    "get_library_path",
    "get_limit",
    "ipc_handle",
    "label",
    "open_ipc",
    "set_limit",
    "statistics",
    "version",
]

_FOLDER = Path(__file__).absolute().parent  # links of a build folder lead to the sources
_ADAPTERS = (
    "cli",
    "cuda_core",
    "cupy",
    "dask",
    "genai",
    "monitor",
    "numba",
    "onnxruntime",
    "prometheus",
    "ray_serve",
    "rmm",
    "serving",
    "torch",
)


def get_include() -> str:
    """The folder of the C header, for `#include <millpond/millpond.h>`."""
    return str(_FOLDER / "include")


def get_library_path() -> str:
    """Path of the execution provider that ONNX Runtime registers; `libmillpond.so.0` lies beside it."""
    return str(_FOLDER / "lib" / "libonnxruntime_providers_cuda_plugin.so")


def get_ep_name() -> str:
    """The execution provider's name in ONNX Runtime."""
    return "CudaPluginExecutionProvider"


def get_ep_names() -> list[str]:
    """The names of all execution providers in the library, as packages of ONNX Runtime's plugins have it."""
    return [get_ep_name()]


_log.start()

if not TYPE_CHECKING:  # which would take every name for one of the package's

    def __getattr__(name: str) -> object:
        """Imports an adapter when it is first asked for."""
        if name in _ADAPTERS:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ADAPTERS})


if os.environ.get("MILLPOND_MONITOR", "0") not in ("", "0"):
    importlib.import_module(f"{__name__}.monitor").start_if_asked()
