# SPDX-License-Identifier: Apache-2.0
"""What the tests of millpond.onnxruntime share: arrays of a device that stand in for other libraries', and sessions."""

import millpond
import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import millpond.onnxruntime as mort  # noqa: E402
import onnx_kit  # noqa: E402
from millpond._ort_native import make_tensor  # noqa: E402

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


@pytest.fixture
def adder():
    """A session of y = x + 1 over four floats."""
    return mort.session(onnx_kit.add_one(), options=EXACT)


@pytest.fixture
def ort_pool():
    """A pool of the provider's device; nothing that the test lent may be left."""
    pool = millpond.Pool(device().spec, client="ort test")
    yield pool
    pool.close()
