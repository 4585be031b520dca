# SPDX-License-Identifier: Apache-2.0
"""Element types as ONNX Runtime, DLPack and __cuda_array_interface__ name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond._core import InvalidArgumentError

INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6  # DLPack's codes


@dataclass(frozen=True)
class ElementType:
    """One type of element. `typestr` is None where __cuda_array_interface__ has no word for it."""

    name: str  # as NumPy calls it
    onnx: str  # as ONNX Runtime calls it: "tensor(float)" is a tensor of it
    code: int
    bits: int
    typestr: str | None

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def tensor(self) -> str:
        return f"tensor({self.onnx})"


TYPES = (
    ElementType("float32", "float", FLOAT, 32, "<f4"),
    ElementType("float64", "double", FLOAT, 64, "<f8"),
    ElementType("float16", "float16", FLOAT, 16, "<f2"),
    ElementType("bfloat16", "bfloat16", BFLOAT, 16, None),
    ElementType("int8", "int8", INT, 8, "|i1"),
    ElementType("int16", "int16", INT, 16, "<i2"),
    ElementType("int32", "int32", INT, 32, "<i4"),
    ElementType("int64", "int64", INT, 64, "<i8"),
    ElementType("uint8", "uint8", UINT, 8, "|u1"),
    ElementType("uint16", "uint16", UINT, 16, "<u2"),
    ElementType("uint32", "uint32", UINT, 32, "<u4"),
    ElementType("uint64", "uint64", UINT, 64, "<u8"),
    ElementType("bool", "bool", BOOL, 8, "|b1"),
)
_BY_NAME = {known.name: known for known in TYPES}
_BY_TENSOR = {known.tensor: known for known in TYPES}
_BY_TYPESTR = {known.typestr: known for known in TYPES if known.typestr is not None}
_BY_CODE = {(known.code, known.bits): known for known in TYPES}
KNOWN = ", ".join(_BY_NAME)


def _reject(given: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"ONNX Runtime takes no device arrays of {given}; it takes {KNOWN}")


def _word(dtype: Any) -> str:
    """"float32" of numpy.float32, numpy.dtype("float32"), torch.float32 or "float32"."""
    for attribute in ("name", "__name__"):
        word = getattr(dtype, attribute, None)
        if isinstance(word, str):
            return word
    return str(dtype).rpartition(".")[2]


def from_dtype(dtype: Any) -> ElementType:
    """Of a NumPy or PyTorch dtype, its name, or a typestr such as "<f4"."""
    word = _word(dtype)
    found = _BY_NAME.get("bool" if word == "bool_" else word) or _BY_TYPESTR.get(word)
    if found is None:
        raise _reject(word)
    return found


def from_tensor(text: str) -> ElementType | None:
    """Of "tensor(float)"; None for what cannot be in a device's memory, such as strings and sequences."""
    return _BY_TENSOR.get(text)


def from_typestr(text: str, dtype: Any = None) -> ElementType:
    """Of the typestr of an array, whose `dtype` says what a void type is."""
    found = _BY_TYPESTR.get(text)
    if found is None and text[1:2] == "V" and dtype is not None:
        return from_dtype(dtype)  # NumPy has no kind for the types that others add to it
    if found is None:
        raise _reject(f"the type {text!r}")
    return found


def from_dlpack(code: int, bits: int, lanes: int) -> ElementType:
    found = _BY_CODE.get((code, bits))
    if found is None or lanes != 1:
        raise _reject(f"DLPack's type with code {code}, {bits} bits and {lanes} lanes")
    return found
