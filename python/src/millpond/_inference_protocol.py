# SPDX-License-Identifier: Apache-2.0
"""Requests and replies of the Open Inference Protocol (version 2, which KServe and Triton speak) as NumPy arrays.

A body is JSON; with the extension for binary data it is JSON and behind it the bytes of those tensors that say how many
they have. All of it comes from a peer that nobody vouches for, so each size is compared with what is there before
memory is taken for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond._core import InvalidArgumentError

HEADER_LENGTH = "Inference-Header-Content-Length"
RANK_MAX, TENSORS_MAX = 16, 256
_NAMES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
}  # fmt: skip
_WORDS = {name: word for word, name in _NAMES.items()}


@dataclass
class Request:
    """A request for a run of a model."""

    inputs: dict[str, Any]
    outputs: list[str] | None = None  # None: all
    binary: set[str] = field(default_factory=set[str])  # outputs that are wanted as bytes
    all_binary: bool = False
    id: str | None = None


def _refuse(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the request is not one of the Open Inference Protocol: {what}")


def _listed(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = document.get(key, [])
    if not isinstance(found, list) or len(found) > TENSORS_MAX or not all(isinstance(each, dict) for each in found):
        raise _refuse(f'"{key}" must be a list of at most {TENSORS_MAX} objects')
    if not all(isinstance(each.get("name"), str) for each in found):
        raise _refuse(f'each of "{key}" must have a name')
    if len({each["name"] for each in found}) != len(found):
        raise _refuse(f'a name stands twice in "{key}"')
    return found


def _parameters(owner: Mapping[str, Any]) -> dict[str, Any]:
    found = owner.get("parameters", {})
    if not isinstance(found, dict):
        raise _refuse('"parameters" must be an object')
    return found


def _shape_of(tensor: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tensor.get("shape")
    if not isinstance(shape, list) or len(shape) > RANK_MAX:
        raise _refuse(f'the shape of "{tensor["name"]}" must be a list of at most {RANK_MAX} numbers')
    if not all(type(size) is int and 0 <= size < 1 << 62 for size in shape):
        raise _refuse(f'"{tensor["name"]}" has the shape {str(shape)[:80]}')
    return tuple(shape)


def _listed_array(data: list[Any], dtype: Any) -> Any:
    """Numbers of JSON as elements of that type, which they must be: 1.5 is no INT32, and 300 no UINT8."""
    import numpy as np

    given = np.asarray(data).reshape(-1)
    if given.size > 0:
        taken = {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}[dtype.kind]
        if given.dtype.kind not in taken:
            raise ValueError(f"there is something else than {dtype} in it")
        if dtype.kind in "iu":
            least, most = int(given.min()), int(given.max())
            if least < np.iinfo(dtype).min or most > np.iinfo(dtype).max:
                raise ValueError(f"it has numbers from {least} to {most}")
    with np.errstate(over="ignore"):  # what a float cannot hold is infinite
        return given.astype(dtype)


def _array_of(tensor: Mapping[str, Any], rest: memoryview) -> tuple[Any, int]:
    """The tensor, and how many bytes of `rest` it is made of, without a copy."""
    import numpy as np

    name, word, shape = tensor["name"], tensor.get("datatype"), _shape_of(tensor)
    if not isinstance(word, str) or word not in _NAMES:
        raise _refuse(f'"{name}" has the datatype {str(word)[:40]!r}; there are {", ".join(_NAMES)}')
    dtype, count = np.dtype(_NAMES[word]), math.prod(shape)
    size = _parameters(tensor).get("binary_data_size")
    try:
        if size is None:
            if not isinstance(tensor.get("data"), list):
                raise _refuse(f'"{name}" has neither a list as its data nor a binary_data_size')
            flat = _listed_array(tensor["data"], dtype)
            if flat.size != count:
                raise _refuse(f'"{name}" has {flat.size} elements, and its shape {list(shape)} asks for {count}')
            return flat.reshape(shape), 0
        if type(size) is not int or size != count * dtype.itemsize or size > len(rest):
            raise _refuse(
                f'"{name}" has a binary_data_size of {str(size)[:40]}; its shape and datatype ask for '
                f"{count * dtype.itemsize} bytes, and {len(rest)} are left of the body"
            )
        return np.frombuffer(rest[:size], dtype).reshape(shape), size
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise _refuse(f'the data of "{name}" cannot be {word} of shape {list(shape)}: {str(error)[:200]}') from None


def decode(body: bytes | memoryview, header_length: str | int | None = None) -> Request:
    """What a body asks for. header_length: what the request's header Inference-Header-Content-Length says.

    Raises InvalidArgumentError with what is wrong.
    """
    whole = memoryview(body)
    try:
        length = len(whole) if header_length is None else int(header_length)
    except ValueError:
        length = -1
    if not 0 <= length <= len(whole):
        raise _refuse(f"{HEADER_LENGTH} is {str(header_length)[:40]!r}, and the body has {len(whole)} bytes")
    try:
        document = json.loads(bytes(whole[:length]))
    except (ValueError, RecursionError) as error:
        raise _refuse(f"its JSON cannot be read: {str(error)[:200]}") from None
    if not isinstance(document, dict) or not isinstance(document.get("id", ""), str):
        raise _refuse("it must be an object, and its id a text")
    rest, inputs = whole[length:], dict[str, Any]()
    for tensor in _listed(document, "inputs"):
        inputs[tensor["name"]], used = _array_of(tensor, rest)
        rest = rest[used:]
    if len(rest) > 0:
        raise _refuse(f"{len(rest)} bytes of the body belong to no input")
    wanted = _listed(document, "outputs")
    return Request(
        inputs,
        [each["name"] for each in wanted] or None,
        {each["name"] for each in wanted if _parameters(each).get("binary_data") is True},
        _parameters(document).get("binary_data_output") is True,
        document.get("id"),
    )


def _described(name: str, array: Any, is_binary: bool) -> dict[str, Any]:
    word = _WORDS.get(array.dtype.name)
    if word is None:
        raise InvalidArgumentError(f"output {name!r} is {array.dtype}, for which the protocol has no datatype")
    about = {"name": name, "datatype": word, "shape": list(array.shape)}
    if is_binary:
        return about | {"parameters": {"binary_data_size": array.nbytes}}
    return about | {"data": array.reshape(-1).tolist()}


def encode(model: str, version: str, request: Request, outputs: Mapping[str, Any]) -> tuple[bytes, int | None]:
    """The body of a reply, and how long its JSON is where bytes follow it, else None."""
    binary = {name for name in outputs if request.all_binary or name in request.binary}
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        document["id"] = request.id
    document["outputs"] = [_described(name, array, name in binary) for name, array in outputs.items()]
    head = json.dumps(document).encode()
    if not binary:
        return head, None
    return b"".join([head, *(array.tobytes() for name, array in outputs.items() if name in binary)]), len(head)


def _listing(arguments: Iterable[Any]) -> list[dict[str, Any]]:
    import numpy as np

    from millpond import _ort_types

    listed = []
    for argument in arguments:
        kind = _ort_types.from_tensor(argument.type)
        word = _WORDS.get(np.dtype(kind.name).name) if kind is not None and kind.typestr is not None else None
        shape = [size if isinstance(size, int) else -1 for size in argument.shape]
        listed.append({"name": argument.name, "datatype": word or argument.type, "shape": shape})
    return listed


def metadata(name: str, version: str, session: Any) -> dict[str, Any]:
    """The protocol's description of a model."""
    return {
        "name": name,
        "versions": [version],
        "platform": "onnxruntime_onnx",
        "inputs": _listing(session.get_inputs()),
        "outputs": _listing(session.get_outputs()),
    }
