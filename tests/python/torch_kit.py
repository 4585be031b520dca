# SPDX-License-Identifier: Apache-2.0
"""The C functions for PyTorch, called as PyTorch would, and C++ that stands in for it."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from millpond import _native

SOURCE = Path(__file__).with_name("throwing.cpp")
NOTHING, OUT_OF_MEMORY, ERROR, BAD_ALLOC = range(4)  # what throwing.cpp says was thrown


def function(name, result, *arguments):
    """A C function of the extension, called without the interpreter's lock."""
    found = getattr(ctypes.CDLL(_native.PATH), name)
    found.restype, found.argtypes = result, list(arguments)
    return found


POINTER, SIZE, INT, U64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64
alloc = function("millpond_torch_alloc", POINTER, SIZE, INT, POINTER)
free = function("millpond_torch_free", None, POINTER, SIZE, INT, POINTER)
empty_cache = function("millpond_torch_empty_cache", None)
record_stream = function("millpond_torch_record_stream", None, POINTER, POINTER)
base = function("millpond_torch_base", POINTER, POINTER, ctypes.POINTER(SIZE))
fraction = function("millpond_torch_fraction", None, ctypes.c_double, INT)
segment = function("millpond_torch_segment", POINTER, SIZE, INT, POINTER)
segment_free = function("millpond_torch_segment_free", None, POINTER, SIZE, INT, POINTER)


def build(folder):
    """Compiles throwing.cpp; skips where there is no C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = Path(folder) / "throwing.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(SOURCE), "-o", str(library)], check=True)
    return library


class StandIn:
    """throwing.cpp, made known to the extension in PyTorch's place. For a process of its own."""

    def __init__(self, library):
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
        path = str(library).encode()
        self.best = function("millpond_torch_prepare", INT, ctypes.c_char_p, ctypes.c_char_p)(path, path)

    def alloc(self, size, device=0, stream=None, name="millpond_torch_alloc"):
        """(kind, address or None, sentence)"""
        out, text = POINTER(), ctypes.create_string_buffer(1000)
        kind = self.library.call_alloc(POINTER(_native.address(name)), SIZE(size), device, POINTER(stream),
                                       ctypes.byref(out), text, SIZE(len(text)))
        return kind, out.value, text.value.decode()

    def begin(self, first, second, device=0):
        text = ctypes.create_string_buffer(1000)
        kind = self.library.call_begin(POINTER(_native.address("millpond_torch_graph_begin")), device, U64(first),
                                       U64(second), text, SIZE(len(text)))
        return kind, text.value.decode()

    def end(self, first, second, device=0):
        self.library.call_end(POINTER(_native.address("millpond_torch_graph_end")), device, U64(first), U64(second))

    def release(self, first, second, device=0):
        self.library.call_end(POINTER(_native.address("millpond_torch_graph_release")), device, U64(first), U64(second))
