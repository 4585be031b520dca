# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as a module, and the C functions that the adapter for it calls."""

from __future__ import annotations

import atexit
import ctypes
import re
import sys
from typing import TYPE_CHECKING, Any

from millpond import _native
from millpond._core import Pool, UnsupportedError

if TYPE_CHECKING:
    from millpond._core import Stream

VERSION_MIN = (1, 26)

ort: Any = _native.framework("onnxruntime", "pip install onnxruntime, or onnxruntime-gpu")


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def check_version(version: str) -> None:
    """Raises UnsupportedError for an ONNX Runtime that is too old."""
    if _parts(version) < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        python = "" if sys.version_info >= (3, 11) else ", which there is for Python 3.11 and newer"
        raise UnsupportedError(
            f"ONNX Runtime {version} is too old; Millpond needs {wanted} or newer{python}: pip install -U onnxruntime "
            "(or onnxruntime-gpu, whichever is installed)"
        )


def is_at_least(*version: int) -> bool:
    """Whether ONNX Runtime is of that version or newer."""
    return _parts(ort.__version__) >= version


check_version(ort.__version__)

_library = ctypes.PyDLL(_native.PATH)


def _function(name: str, parameters: int) -> Any:
    function = getattr(_library, name)
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.py_object] * parameters
    return function


_tensor_make = _function("millpond_tensor_make", 1)
_tensor_read = _function("millpond_tensor_read", 1)
_stream_wait = _function("millpond_stream_wait", 2)
atexit.register(_function("millpond_tensors_end", 0))


def make_tensor(
    address: int,
    kind: tuple[int, int],
    device: tuple[int, int],
    shape: tuple[int, ...],
    owner: object,
    versioned: bool = False,
) -> Any:
    """A DLPack capsule over memory that `owner` keeps. `kind` is DLPack's code and bits of an element."""
    return _tensor_make((address, *kind, device, shape, owner, versioned))


def read_tensor(capsule: Any) -> tuple[int, int, int, int, tuple[int, int], tuple[int, ...], tuple[int, ...] | None]:
    """Address, code, bits, lanes, device, shape and strides (in elements) of a DLPack capsule, which stays as it is."""
    return _tensor_read(capsule)


def wait_for(pool: Pool, stream: Stream) -> None:
    """Waits for the work queued on `stream` of the pool's device."""
    if stream is not None:
        _stream_wait(pool, stream)


def sentence(error: BaseException) -> str:
    """What an error says, in one line, without the functions and numbers that ONNX Runtime puts before it."""
    text = " ".join(str(error).split())
    return re.sub(r"^.*\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
