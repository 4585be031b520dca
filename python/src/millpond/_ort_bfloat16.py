# SPDX-License-Identifier: Apache-2.0
"""Values of bfloat16 as arrays: NumPy knows the type by ml_dtypes, ONNX Runtime makes no arrays of it at all."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

from millpond._core import InvalidArgumentError

NAME, TENSOR = "bfloat16", "tensor(bfloat16)"
ONNX_TYPE = 16  # TensorProto.BFLOAT16
BITS = "uint16"  # what arrays of its bits are


def dtype() -> Any:
    """NumPy's type. Raises InvalidArgumentError where ml_dtypes is not installed."""
    import numpy as np

    try:
        import ml_dtypes
    except ModuleNotFoundError:
        raise InvalidArgumentError(
            "NumPy has no bfloat16 of its own; install ml_dtypes (pip install ml_dtypes), or take the value by DLPack"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


def is_array(array: Any) -> bool:
    return getattr(array, "dtype", None) is not None and str(array.dtype) == NAME


def value_of(array: Any) -> Any:
    """An array of the host as a value, which has a copy where the array has gaps."""
    import numpy as np

    from millpond._ort_native import ort

    bits = np.ascontiguousarray(array).view(BITS)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, ONNX_TYPE)


def array_of(value: Any) -> Any:
    """A copy of a value in memory that the host reads."""
    import numpy as np

    shape = tuple(value.shape())
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype())
    bits = np.ctypeslib.as_array((ctypes.c_uint16 * count).from_address(value.data_ptr()))
    return bits.view(dtype()).reshape(shape).copy()


def _of_host(value: Any) -> Any:
    if not value.is_tensor():
        return value
    return array_of(value) if value.data_type() == TENSOR else value.numpy()


def run(session: Any, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """session.run(), also where inputs or outputs are bfloat16; sequences and maps beside such stay values."""
    if TENSOR not in (argument.type for argument in (*session.get_inputs(), *session.get_outputs())):
        return session.run(names, feeds)
    from millpond._ort_native import ort

    values = {
        name: value_of(array) if is_array(array) else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in feeds.items()
    }
    wanted = names or [output.name for output in session.get_outputs()]
    return [_of_host(value) for value in session.run_with_ort_values(wanted, values)]
