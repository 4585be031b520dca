# SPDX-License-Identifier: Apache-2.0
"""C functions of the extension that frameworks call by address, and the sentences about missing frameworks.

They are exported by name. The library is loaded already, so opening it again gives the same one.
"""

import ctypes
import importlib
from types import ModuleType

from millpond import _core
from millpond._core import Error, InvalidArgumentError, NotFoundError, OutOfMemoryError, UnsupportedError
from millpond._log import flushed

PATH: str = _core.__file__

_with_gil = ctypes.PyDLL(PATH)  # for functions that take objects, or are called where the lock must stay
_without_gil = ctypes.CDLL(PATH)
_STATUS = {1: OutOfMemoryError, 2: InvalidArgumentError, 3: UnsupportedError, 5: NotFoundError}


def address(name: str) -> int:
    """Where the C function lies."""
    found = ctypes.cast(getattr(_with_gil, name), ctypes.c_void_p).value
    assert found is not None  # getattr would have raised
    return found


def call_with_objects(name: str, *values: object) -> int:
    """Calls a C function; ints go as addresses, all else as objects, to which it takes references of its own."""
    function = getattr(_with_gil, name)
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.c_size_t if isinstance(value, int) else ctypes.py_object for value in values]
    return function(*values)


def open_device(name: str, number: int, device: str) -> None:
    """Has the C function `name` open the pool of `device` as what the framework calls device `number`."""
    function = getattr(_without_gil, name)
    function.restype, function.argtypes = ctypes.c_int, [ctypes.c_int, ctypes.c_char_p]
    with flushed():
        status = function(number, device.encode())
    check(status)


def check(status: int) -> None:
    """Raises what the status of a C function says that was called on this thread."""
    if status != 0:
        raise _STATUS.get(status, Error)(last_sentence())


def last_sentence() -> str:
    """What the last failure on this thread was."""
    message = _without_gil.mp_error_message
    message.restype = ctypes.c_char_p
    return message().decode(errors="replace")


def framework(name: str, install: str) -> ModuleType:
    """Imports a framework, or says in one sentence how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f"millpond.{name} needs {name}, which is not installed; {install}", name=name) from None
