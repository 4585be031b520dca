# SPDX-License-Identifier: Apache-2.0
"""What the tests of millpond.onnxruntime share: arrays of a device that stand in for other libraries', and sessions."""

import numpy as np
import pytest

ort = pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")

import millpond.onnxruntime as mort  # noqa: E402
from millpond import _ort_types as ort_types  # noqa: E402, F401
from millpond import _ort_values as ort_values  # noqa: E402, F401
from millpond._ort_native import check_version, make_tensor  # noqa: E402, F401

EXACT = {"use_tf32": False}


def device():
    return mort.devices()[0]


def on_device(pool, array, stream=None):
    """A Buffer with the array's values; the values go there as ONNX Runtime copies them."""
    array = np.ascontiguousarray(array)
    buffer = pool.alloc(max(array.nbytes, 1), stream)
    if array.nbytes:
        value = mort.as_ortvalue(buffer, dtype="uint8", shape=(array.nbytes,))
        value.update_inplace(array.reshape(-1).view(np.uint8))
    return buffer


def values(buffer, dtype, shape):
    """What a Buffer holds, as a NumPy array of its own."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return mort.as_array(mort.as_ortvalue(buffer, shape=(count,))).numpy().view(dtype).reshape(shape)


class Interface:
    """An array with __cuda_array_interface__ alone, as Numba's are; `changes` are entries that differ."""

    def __init__(self, buffer, dtype, shape, **changes):
        self.buffer, self.dtype = buffer, np.dtype(dtype)
        self.__cuda_array_interface__ = {
            "shape": tuple(shape), "typestr": self.dtype.str, "data": (buffer.address, False), "strides": None,
            "version": 3, "stream": None, **changes,
        }


class Packed:
    """An array with DLPack alone, on a GPU as it says; remembers the streams it was asked for."""

    def __init__(self, buffer, code, bits, shape, device=0, dtype=None):
        self.buffer, self.kind, self.shape, self.device, self.streams = buffer, (code, bits), tuple(shape), device, []
        if dtype is not None:
            self.dtype = dtype

    def __dlpack_device__(self):
        return 2, self.device

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return make_tensor(self.buffer.address, self.kind, (2, self.device), self.shape, self.buffer)
