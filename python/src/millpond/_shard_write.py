# SPDX-License-Identifier: Apache-2.0
"""A rank's model, written from the whole one and what was decided about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import helper, numpy_helper

from millpond._shard_model import Cut, Refusal, Use, set_attribute, tensor_of
from millpond._shard_split import Place, Plan

COLLECTIVES = "ai.millpond"  # the domain of operators between ranks, which the provider brings
EXTERNAL_FROM = 1 << 30  # bytes of weights, from which they lie in a file of their own
ALIGNMENT = 4096  # of a weight in that file, so that it can be mapped


def model_path(folder: Path, rank: int) -> Path:
    return folder / f"rank_{rank}.onnx"


class _Writer:
    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank, self.model = plan, rank, plan.model
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, onnx.TensorProto] = {}  # made here
        self.parts: dict[str, tuple[str, Cut]] = {}  # of weights: new name, old one, cut
        self.names = self._part_names()

    def _uses(self, name: str) -> list[tuple[Place, Use]]:
        return [((self.model.numbers[id(use.node)], use.index), use) for use in self.model.uses.get(name, ())]

    def _part_names(self) -> dict[tuple[str, Cut], str]:
        """A weight keeps its name where all read the same part of it."""
        wanted, names = self.plan.decided.wanted, {}
        for name in self.model.weights.tensors:
            cuts = {wanted.get(place) for place, _ in self._uses(name)}
            ordered = sorted((cut for cut in cuts if cut), key=lambda cut: (cut.axis, cut.segments, cut.copies))
            for i, cut in enumerate(ordered):
                names[name, cut] = name if len(cuts) == 1 and name not in self.model.outputs else f"{name}/part{i}"
        return names

    # ---- nodes ----

    def _add(self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], f"{output}/{kind}", domain=domain, **attributes))
        return output

    def _constant(self, name: str, *values: int) -> str:
        self.tensors[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        return name

    def _resized(self, place: Place, name: str) -> str:
        """A shape with another number in one place."""
        at, size = self.plan.decided.sizes[place]
        new = f"{name}/at{at}/{size}"
        listed = self.model.ints(name)
        if listed is not None:
            listed[at] = size
            return self._constant(new, *listed)
        if any(new in node.output for node in self.nodes):
            return new
        ends = [self._constant(f"{new}/{i}", i) for i in (0, at, at + 1, 1 << 62)]
        front = self._add("Slice", [name, ends[0], ends[1]], f"{new}/front")
        back = self._add("Slice", [name, ends[2], ends[3]], f"{new}/back")
        return self._add("Concat", [front, self._constant(f"{new}/size", size), back], new, axis=0)

    def _input(self, place: Place, name: str) -> str:
        decided = self.plan.decided
        if place in decided.tensors:
            tensor = decided.tensors[place]
            self.tensors[tensor.name] = tensor
            return tensor.name
        if place in decided.sizes:
            return self._resized(place, name)
        cut = decided.wanted.get(place)
        if cut is None or name not in self.model.weights:
            return name
        new = self.names[name, cut]
        self.parts[new] = (name, cut)
        return new

    def _row_product(self, node: onnx.NodeProto, bias: int | None) -> None:
        """What the ranks have of it is summed, and the bias added once, behind that."""
        out = node.output[0]
        given = node.input[bias] if bias is not None else ""
        if bias is not None:
            del node.input[bias:]
        node.output[0] = f"{out}/part"
        self.nodes.append(node)
        total = self._add("AllReduce", [f"{out}/part"], f"{out}/sum" if given else out, COLLECTIVES)
        if given:
            self._add("Add", [total, given], out)

    def _gathered(self, node: onnx.NodeProto) -> None:
        out = node.output[0]
        node.output[0] = f"{out}/part"
        self.nodes.append(node)
        self._add("AllGather", [f"{out}/part"], out, COLLECTIVES, axis=len(self.model.shape(out)) - 1,
                  group_size=self.plan.ranks)

    def write_nodes(self) -> None:
        decided = self.plan.decided
        for number, whole in enumerate(self.model.nodes):
            node = onnx.NodeProto()
            node.CopyFrom(whole)
            for i, name in enumerate(whole.input):
                node.input[i] = self._input((number, i), name)
            for key, value in decided.attributes.get(number, {}).items():
                set_attribute(node, key, value)
            if number in decided.rows:
                self._row_product(node, decided.rows[number])
            elif number in decided.gathered:
                self._gathered(node)
            else:
                self.nodes.append(node)

    # ---- values and weights ----

    def values(self, values: Any) -> Iterator[onnx.ValueInfoProto]:
        for value in values:
            fresh = onnx.ValueInfoProto()
            fresh.CopyFrom(value)
            cut = self.plan.decided.cuts.get(value.name)
            dims = fresh.type.tensor_type.shape.dim
            if cut is not None and len(dims) >= -cut.axis and dims[cut.axis].HasField("dim_value"):
                dims[cut.axis].dim_value = cut.own(self.plan.ranks)
            yield fresh

    def weights(self) -> Iterator[tuple[onnx.TensorProto, Any]]:
        """Those that are read, one by one, and their bits where the tensor does not have them."""
        weights = self.model.weights
        read = {name for node in self.nodes for name in node.input} | self.model.outputs
        read |= {name for name, uses in self.model.uses.items() if any(use.hidden for use in uses)}
        for name, (whole, cut) in self.parts.items():
            bits = cut.take(weights.bits(whole), self.rank, self.plan.ranks)
            yield tensor_of(weights.tensors[whole], name, bits.shape), bits
        for name, tensor in weights.tensors.items():
            if name not in read or name in self.parts:
                continue
            if not onnx.external_data_helper.uses_external_data(tensor):
                yield tensor, None
                continue
            try:
                yield tensor_of(tensor, name, tensor.dims), weights.bits(name)
            except Refusal:  # of packed elements
                yield numpy_helper.from_array(weights.values(name), name), None
        yield from ((tensor, None) for tensor in self.tensors.values())


def _inside(tensor: onnx.TensorProto, bits: Any) -> onnx.TensorProto:
    if bits is not None:
        tensor.raw_data = bits.tobytes()
    return tensor


def _placed(tensor: onnx.TensorProto, bits: Any, file: BinaryIO) -> onnx.TensorProto:
    """The tensor, with its elements in a file where they are many: mapped ones from where they lie."""
    raw = tensor.raw_data if bits is None else np.ascontiguousarray(bits).data
    if memoryview(raw).nbytes < ALIGNMENT:
        return _inside(tensor, bits)
    file.write(bytes(-file.tell() % ALIGNMENT))
    offset = file.tell()
    file.write(raw)
    fresh = tensor_of(tensor, tensor.name, tensor.dims)
    fresh.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", Path(file.name).name), ("offset", offset), ("length", file.tell() - offset)):
        fresh.external_data.add(key=key, value=str(value))
    return fresh


def write(plan: Plan, rank: int, folder: Path) -> Path:
    """Writes a rank's model; gives its path."""
    path, whole = model_path(folder, rank), plan.model.proto
    writer = _Writer(plan, rank)
    writer.write_nodes()
    graph = onnx.GraphProto(name=whole.graph.name)
    graph.input.extend(writer.values(whole.graph.input))
    graph.output.extend(writer.values(whole.graph.output))
    total = sum(plan.model.weights.bytes(name) for name in plan.model.weights.tensors)
    if plan.model.is_external or total >= EXTERNAL_FROM:
        data = path.with_name(f"{path.name}.data")
        with open(data, "wb") as file:
            graph.initializer.extend(_placed(tensor, bits, file) for tensor, bits in writer.weights())
    else:
        graph.initializer.extend(_inside(tensor, bits) for tensor, bits in writer.weights())
    graph.node.extend(writer.nodes)
    known = {tensor.name for tensor in graph.initializer}
    kept = [value for value in graph.input if value.name in plan.model.inputs or value.name in known]
    del graph.input[:]
    graph.input.extend(kept)
    opsets = list(whole.opset_import)
    if not any(opset.domain == COLLECTIVES for opset in opsets):
        opsets.append(helper.make_opsetid(COLLECTIVES, 1))
    made = helper.make_model(graph, opset_imports=opsets, ir_version=whole.ir_version, producer_name="millpond shard",
                             functions=list(whole.functions))
    path.write_bytes(made.SerializeToString())
    return path
