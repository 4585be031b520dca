# SPDX-License-Identifier: Apache-2.0
"""Reads the structure of an ONNX file: nodes, versions of operator sets, types and shapes of values; no weights.

An ONNX file is one message of Protocol Buffers: fields, each a number, a kind and a value. Only the fields needed are
looked at, in the file as it is mapped, so a large model costs no more than its structure.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from millpond._core import InvalidArgumentError, NotFoundError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10
DEPTH_MAX = 32  # of graphs within nodes

# Names of TensorProto's element types, as ONNX Runtime writes them.
ELEMENTS = (
    "undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "double",
    "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
    "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2",
)


@dataclass(frozen=True)
class Value:
    """Type and shape of a value: `type` is "tensor(float)", empty if it is not a tensor or not known."""

    type: str = ""
    shape: tuple[int | str | None, ...] | None = None


@dataclass
class NodeInfo:
    operator: str = ""
    domain: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    depth: int = 0  # of its graph: 0 for the model's own, 1 for a body of one of its nodes


@dataclass
class Model:
    nodes: list[NodeInfo] = field(default_factory=list)  # those of inner graphs too
    opsets: dict[str, int] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)  # initializers and Constants, but for those of inner graphs
    functions: set[tuple[str, str]] = field(default_factory=set)  # (domain, name) of the model's own


class _Broken(Exception):
    """The bytes are not a message."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for i in range(VARINT_BYTES_MAX):
        if at + i >= len(data):
            break
        byte = data[at + i]
        result |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return result, at + i + 1
    raise _Broken


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field; a value of several bytes is a view of them."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise _Broken
        if number == 0 or size > len(data) - at:
            raise _Broken
        yield number, data[at : at + size]
        at += size


def _text(value: int | memoryview) -> str:
    return str(_bytes(value), "utf-8", "replace")


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise _Broken
    return value


def _number(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise _Broken
    return value - (1 << 64) if value >= 1 << 63 else value


def _tensor_type(element: int) -> str:
    return f"tensor({ELEMENTS[element]})" if 0 < element < len(ELEMENTS) else ""


def _dimension(data: memoryview) -> int | str | None:
    for number, value in _fields(data):
        if number == 1:
            return _number(value)
        if number == 2:
            return _text(value)
    return None


def _value_type(data: memoryview) -> Value:
    """Of a TypeProto."""
    for number, value in _fields(data):
        if number != 1:  # no tensor
            continue
        element, shape = 0, None
        for part, inner in _fields(_bytes(value)):
            if part == 1:
                element = _number(inner)
            elif part == 2:
                shape = tuple(_dimension(_bytes(each)) for key, each in _fields(_bytes(inner)) if key == 1)
        return Value(_tensor_type(element), shape)
    return Value()


def _read_value(data: memoryview, model: Model) -> str:
    name, value = "", Value()
    for number, each in _fields(data):
        if number == 1:
            name = _text(each)
        elif number == 2:
            value = _value_type(_bytes(each))
    model.values[name] = value
    return name


def _read_tensor(data: memoryview) -> tuple[str, Value]:
    """Name, and type and shape, of a TensorProto."""
    name, element, shape = "", 0, []
    for number, value in _fields(data):
        if number == 1:
            shape += [_number(value)] if isinstance(value, int) else _packed(value)
        elif number == 2:
            element = _number(value)
        elif number == 8:
            name = _text(value)
    return name, Value(_tensor_type(element), tuple(shape))


def _packed(data: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        numbers.append(_number(value))
    return numbers


def _read_attribute(data: memoryview, model: Model, depth: int) -> Value | None:
    """Reads graphs; gives the tensor that the attribute may be."""
    tensor = None
    for number, value in _fields(data):
        if number == 5:
            tensor = _read_tensor(_bytes(value))[1]
        elif number in (6, 11):  # a graph, or one of several
            _read_graph(_bytes(value), model, depth + 1)
    return tensor


def _read_node(data: memoryview, model: Model, depth: int) -> None:
    node, tensor = NodeInfo(depth=depth), None
    for number, value in _fields(data):
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 3:
            node.name = _text(value)
        elif number == 4:
            node.operator = _text(value)
        elif number == 5:
            tensor = _read_attribute(_bytes(value), model, depth) or tensor
        elif number == 7:
            domain = _text(value)
            node.domain = "" if domain == "ai.onnx" else domain
    model.nodes.append(node)
    if node.operator == "Constant" and tensor is not None and node.outputs:
        _add_weight(node.outputs[0], tensor, model, depth)


def _add_weight(name: str, value: Value, model: Model, depth: int) -> None:
    model.values[name] = value
    if depth == 0:
        model.weights.append(name)


def _read_graph(data: memoryview, model: Model, depth: int = 0) -> None:
    if depth > DEPTH_MAX:
        raise _Broken
    for number, value in _fields(data):
        if number == 1:
            _read_node(_bytes(value), model, depth)
        elif number == 5:
            _add_weight(*_read_tensor(_bytes(value)), model, depth)
        elif number in (11, 12, 13):
            name = _read_value(_bytes(value), model)
            if number == 11 and depth == 0:
                model.inputs.append(name)


def _read_function(data: memoryview, model: Model) -> None:
    name, domain = "", ""
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 10:
            domain = _text(value)
    model.functions.add((domain, name))


def _read_opset(data: memoryview, model: Model) -> None:
    domain, version = "", 1
    for number, value in _fields(data):
        if number == 1:
            domain = _text(value)
        elif number == 2:
            version = _number(value)
    model.opsets["" if domain == "ai.onnx" else domain] = version


def parse(data: memoryview | bytes) -> Model | None:
    """The structure of a model's bytes; None where they are none."""
    model = Model()
    has_graph = False
    try:
        for number, value in _fields(memoryview(data)):
            if number == 7:
                has_graph = True
                _read_graph(_bytes(value), model)
            elif number == 8:
                _read_opset(_bytes(value), model)
            elif number == 25:
                _read_function(_bytes(value), model)
    except _Broken:
        return None
    return model if has_graph else None


def read(path: str | os.PathLike[str]) -> Model:
    """The structure of a model file. Raises NotFoundError and InvalidArgumentError."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise InvalidArgumentError(f"{os.fspath(path)} is empty, no ONNX model")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                model = parse(view)
    except OSError as error:
        raise NotFoundError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
    if model is None:
        raise InvalidArgumentError(f"{os.fspath(path)} is no ONNX model")
    return model
