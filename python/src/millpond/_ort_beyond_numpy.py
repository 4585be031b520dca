# SPDX-License-Identifier: Apache-2.0
"""Values of types that NumPy lacks as arrays: it knows them by ml_dtypes, and ONNX Runtime makes no arrays of them.

In a value of 4 or 2 bits an element, bytes hold two or four of them, the first in the lowest bits; in an array of
ml_dtypes each has a byte of its own.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond._core import InvalidArgumentError


@dataclass(frozen=True)
class Type:
    name: str  # as ml_dtypes calls it
    onnx: str  # "tensor(bfloat16)" is a tensor of it
    number: int  # of TensorProto's DataType
    bits: int
    is_float: bool


TYPES = (
    Type("bfloat16", "bfloat16", 16, 16, True),
    Type("float8_e4m3fn", "float8e4m3fn", 17, 8, True),
    Type("float8_e4m3fnuz", "float8e4m3fnuz", 18, 8, True),
    Type("float8_e5m2", "float8e5m2", 19, 8, True),
    Type("float8_e5m2fnuz", "float8e5m2fnuz", 20, 8, True),
    Type("uint4", "uint4", 21, 4, False),
    Type("int4", "int4", 22, 4, False),
    Type("float4_e2m1fn", "float4e2m1", 23, 4, True),
    Type("uint2", "uint2", 25, 2, False),
    Type("int2", "int2", 26, 2, False),
)
_BY_NAME = {known.name: known for known in TYPES}
_BY_TENSOR = {f"tensor({known.onnx})": known for known in TYPES}

BFLOAT16 = "bfloat16"
BITS = "uint16"  # what arrays of bfloat16's bits are


def from_tensor(text: str) -> Type | None:
    """Of "tensor(int4)"; None for a type that is none of these."""
    return _BY_TENSOR.get(text)


def dtype(name: str) -> Any:
    """NumPy's type of that name. Raises InvalidArgumentError where ml_dtypes is not installed, or too old for it."""
    import numpy as np

    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    except (ModuleNotFoundError, AttributeError):
        raise InvalidArgumentError(
            f"NumPy has no {name} of its own; install ml_dtypes (pip install -U ml_dtypes), or take the value by DLPack"
        ) from None


def type_of(array: Any) -> Type | None:
    """None for an array of a type that NumPy has, and for what is no array."""
    found = getattr(array, "dtype", None)
    return None if found is None else _BY_NAME.get(str(found))


def is_float(array: Any) -> bool:
    """Whether a NumPy array is of floats, of its own or of these."""
    kind = type_of(array)
    return array.dtype.kind == "f" if kind is None else kind.is_float


def size_of(array: Any) -> int:
    """How many bytes a value of it has."""
    kind = type_of(array)
    return array.nbytes if kind is None else (array.size * kind.bits + 7) // 8


def _packed(kind: Type, array: Any) -> Any:
    """Bytes of the array's shape, of which the first ones hold its elements."""
    import numpy as np

    each = 8 // kind.bits
    codes = array.view(np.uint8).ravel() & ((1 << kind.bits) - 1)
    room = np.zeros(array.shape, np.uint8)
    for i in range(each):
        part = codes[i::each] << (kind.bits * i)
        room.reshape(-1)[: part.size] |= part
    return room


def _unpacked(kind: Type, packed: Any, count: int) -> Any:
    import numpy as np

    mask, shifts = (1 << kind.bits) - 1, range(0, 8, kind.bits)
    codes = np.stack([(packed >> shift) & mask for shift in shifts], axis=-1).reshape(-1)[:count]
    if kind.is_float:
        return codes.view(dtype(kind.name))
    sign = 1 << (kind.bits - 1) if kind.name.startswith("int") else 0
    return ((codes.astype(np.int8) ^ sign) - sign).astype(dtype(kind.name))


def value_of(array: Any) -> Any:
    """An array of the host of one of these types as a value, which has a copy where the array has gaps."""
    import numpy as np

    from millpond._ort_native import ort

    kind = _BY_NAME[str(array.dtype)]
    whole = np.asarray(array, order="C")
    codes = _packed(kind, whole) if kind.bits < 8 else whole.view(BITS if kind.bits == 16 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(codes, kind.number)


def array_of(value: Any) -> Any:
    """A copy of a tensor in memory that the host reads, of one of these types or another."""
    import numpy as np

    kind = from_tensor(value.data_type())
    if kind is None:
        return value.numpy()
    shape = tuple(value.shape())
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype(kind.name))
    size = (count * kind.bits + 7) // 8
    codes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(value.data_ptr()))
    flat = _unpacked(kind, codes, count) if kind.bits < 8 else codes.view(dtype(kind.name))
    return flat.reshape(shape).copy()


def runner(session: Any, names: Sequence[str] | None = None) -> Callable[[Mapping[str, Any]], list[Any]]:
    """session.run() for these outputs (None: all), also where inputs or outputs are of these types; sequences and maps
    beside such stay values. Other sessions are asked once, so that runs which are timed cost no more."""
    if not any(from_tensor(argument.type) for argument in (*session.get_inputs(), *session.get_outputs())):
        return lambda feeds: session.run(names, feeds)
    from millpond._ort_native import ort

    wanted = names or [output.name for output in session.get_outputs()]

    def run_values(feeds: Mapping[str, Any]) -> list[Any]:
        values = {
            name: value_of(array) if type_of(array) is not None else ort.OrtValue.ortvalue_from_numpy(array)
            for name, array in feeds.items()
        }
        results = session.run_with_ort_values(wanted, values)
        return [array_of(value) if value.is_tensor() else value for value in results]

    return run_values


def run(session: Any, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """A single run of runner()."""
    return runner(session, names)(feeds)
