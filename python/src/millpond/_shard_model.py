# SPDX-License-Identifier: Apache-2.0
"""A model as `millpond shard` looks at it: nodes, weights that are read when they are needed, shapes of values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from millpond._core import InvalidArgumentError

SMALL = 1 << 16  # bytes: what is no larger is looked at for its values


class Refusal(Exception):
    """A product cannot be split; the sentence says why."""


@dataclass(frozen=True)
class Cut:
    """How a value is dealt to ranks: along an axis, which counts from the end, each rank its part of each segment.

    `copies`: of each segment, how many neighbouring ranks have the same part; none: each has its own.
    """

    axis: int
    segments: tuple[int, ...]
    copies: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return sum(self.segments)

    def times(self, factor: int) -> Cut:
        return Cut(self.axis, tuple(segment * factor for segment in self.segments), self.copies)

    def at(self, axis: int) -> Cut:
        return Cut(axis, self.segments, self.copies)

    def each(self) -> Iterator[tuple[int, int]]:
        """(segment, copies)"""
        return zip(self.segments, self.copies or (1,) * len(self.segments), strict=True)

    def fits(self, ranks: int) -> bool:
        """Whether all ranks have as much."""
        return all(ranks % copies == 0 and segment % (ranks // copies) == 0 for segment, copies in self.each())

    def own(self, ranks: int) -> int:
        """How many a rank has."""
        return sum(segment * copies // ranks for segment, copies in self.each())

    def take(self, array: Any, rank: int, ranks: int) -> Any:
        """A rank's part of an array."""
        parts, begin = [], 0
        for segment, copies in self.each():
            part = segment * copies // ranks
            index = [slice(None)] * array.ndim
            index[self.axis] = slice(begin + rank // copies * part, begin + (rank // copies + 1) * part)
            parts.append(array[tuple(index)])
            begin += segment
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis)

    def join(self, arrays: list[Any]) -> Any:
        """All ranks' parts as they were."""
        ranks, joined, begin = len(arrays), [], 0
        for segment, copies in self.each():
            part = segment * copies // ranks
            index = [slice(None)] * arrays[0].ndim
            index[self.axis] = slice(begin, begin + part)
            joined += [array[tuple(index)] for array in arrays[::copies]]
            begin += part
        return np.concatenate(joined, self.axis)


@dataclass
class Use:
    """A node's reading of a value."""

    node: onnx.NodeProto
    index: int
    hidden: bool = False  # by the body of an If, Loop or Scan


def _raw_type(size: int) -> np.dtype[Any]:
    return np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8"}[size])


@dataclass
class Weights:
    """The constants of a model. Arrays are of the bits, as unsigned integers, unless values are asked for."""

    folder: Path
    tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].dims)

    def _item_size(self, name: str) -> int:
        kind = self.tensors[name].data_type
        packed = {onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.STRING, onnx.TensorProto.FLOAT4E2M1}
        return 0 if kind in packed else int(helper.tensor_dtype_to_np_dtype(kind).itemsize)

    def bytes(self, name: str) -> int:
        return int(np.prod(self.shape(name), dtype=np.int64)) * (self._item_size(name) or 1)

    def _external(self, tensor: onnx.TensorProto, size: int) -> Any:
        """The bits of a tensor that lies in another file of the model's folder."""
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        path = (self.folder / info.location).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise InvalidArgumentError(f"{tensor.name!r} lies outside of the model's folder: {info.location}")
        count = int(np.prod(tuple(tensor.dims), dtype=np.int64))
        try:
            return np.memmap(path, _raw_type(size), "r", int(info.offset or 0), (count,)).reshape(tuple(tensor.dims))
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"the weight {tensor.name!r} cannot be read from {path}: {error}") from None

    def bits(self, name: str) -> Any:
        """All elements, as numbers of as many bytes. Raises Refusal for elements of less than a byte."""
        tensor, size = self.tensors[name], self._item_size(name)
        if size == 0:
            raise Refusal(f"the weight {name!r} has packed elements")
        if onnx.external_data_helper.uses_external_data(tensor) and np.prod(tensor.dims):
            return self._external(tensor, size)
        if tensor.HasField("raw_data"):
            return np.frombuffer(tensor.raw_data, _raw_type(size)).reshape(tuple(tensor.dims))
        return np.ascontiguousarray(numpy_helper.to_array(tensor)).view(_raw_type(size)).reshape(tuple(tensor.dims))

    def values(self, name: str) -> Any:
        """Of a small constant."""
        return numpy_helper.to_array(self.tensors[name], str(self.folder))


def tensor_of(like: onnx.TensorProto, name: str, shape: Iterable[int]) -> onnx.TensorProto:
    """A tensor of that type and shape, without its elements."""
    return onnx.TensorProto(name=name, data_type=like.data_type, dims=shape)


def attribute(node: onnx.NodeProto, name: str, fallback: Any = None) -> Any:
    for each in node.attribute:
        if each.name == name:
            return helper.get_attribute_value(each)
    return fallback


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _read_inside(graph: onnx.GraphProto) -> Iterator[str]:
    """Names that a body reads, its own ones too."""
    for node in graph.node:
        yield from node.input
        for each in node.attribute:
            for body in [each.g] if each.HasField("g") else each.graphs:
                yield from _read_inside(body)
    yield from (value.name for value in graph.output)


class Model:
    """The graph of a model file, without what it computes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.proto = onnx.load(str(self.path), load_external_data=False)
        except Exception as error:  # protobuf's errors have many classes
            raise InvalidArgumentError(f"{self.path} is no ONNX model: {error}") from None
        self.graph = self.proto.graph
        self.weights = Weights(self.path.parent)
        self.shapes: Mapping[str, tuple[int, ...]] = {}  # of values, in a run
        self.producers: dict[str, onnx.NodeProto] = {}
        self.uses: dict[str, list[Use]] = {}
        self.inputs = {value.name for value in self.graph.input}
        self.outputs = {value.name for value in self.graph.output}
        self._constants_out()
        for tensor in self.graph.initializer:
            self.weights.tensors[tensor.name] = tensor
        self.inputs -= set(self.weights.tensors)
        self.nodes = list(self.graph.node)  # these very objects, by which a node's number is found
        self.numbers = {id(node): i for i, node in enumerate(self.nodes)}
        for node in self.nodes:
            self.producers.update(dict.fromkeys(filter(None, node.output), node))
            for i, name in enumerate(node.input):
                self.uses.setdefault(name, []).append(Use(node, i))
            for each in node.attribute:
                for body in [each.g] if each.HasField("g") else each.graphs:
                    for name in set(_read_inside(body)):
                        self.uses.setdefault(name, []).append(Use(node, -1, True))

    def _constants_out(self) -> None:
        """Constant nodes become weights, which are dealt the same way."""
        kept = []
        for node in self.graph.node:
            value = attribute(node, "value") if node.op_type == "Constant" else None
            if isinstance(value, onnx.TensorProto):
                tensor = onnx.TensorProto()
                tensor.CopyFrom(value)
                tensor.name = node.output[0]
                self.graph.initializer.append(tensor)
            else:
                kept.append(node)
        del self.graph.node[:]
        self.graph.node.extend(kept)

    @property
    def is_external(self) -> bool:
        return any(map(onnx.external_data_helper.uses_external_data, self.graph.initializer))

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self.weights:
            return self.weights.shape(name)
        if name not in self.shapes:
            raise Refusal(f"the shape of {name!r} is not known")
        return self.shapes[name]

    def ints(self, name: str) -> list[int] | None:
        """The values of a small constant; None where it is none."""
        if name not in self.weights or self.weights.bytes(name) > SMALL:
            return None
        return [int(value) for value in np.atleast_1d(self.weights.values(name)).reshape(-1)]


def title(node: onnx.NodeProto) -> str:
    """How messages name a node."""
    return f"{node.op_type} {node.name!r}" if node.name else f"{node.op_type} that makes {node.output[0]!r}"
