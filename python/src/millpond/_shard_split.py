# SPDX-License-Identifier: Apache-2.0
"""Which products of a model are split, and how: by rows where all before them can be split by columns.

For each product with a constant weight, in the order of the graph, it is tried to deal the rows of its weight to the
ranks. Its input must then be dealt, too, and that is followed back, operator by operator, to products whose columns
are dealt. What comes out of the product is a part of a sum, which AllReduce completes. An attempt counts as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from millpond._shard_model import Cut, Model, Refusal, attribute, title
from millpond._shard_rules import MS, of_node, unknown

PRODUCTS = {("", "MatMul"), ("", "Gemm"), (MS, "MatMulNBits")}
GATHER_MIN = 1 << 16  # bytes of a last product's weight from which it is worth to gather its result

Place = tuple[int, int]  # a node, by its number, and an input of it


@dataclass
class Decided:
    """What is done to a model. All of it is by number of node, so that it can be done again for each rank."""

    cuts: dict[str, Cut] = field(default_factory=dict)  # of values
    wanted: dict[Place, Cut] = field(default_factory=dict)  # inputs that come cut, weights too
    sizes: dict[Place, tuple[int, int]] = field(default_factory=dict)  # entry of a shape, its number
    tensors: dict[Place, onnx.TensorProto] = field(default_factory=dict)  # constants in the place of others
    attributes: dict[int, dict[str, Any]] = field(default_factory=dict)
    columns: set[int] = field(default_factory=set)
    rows: dict[int, int | None] = field(default_factory=dict)  # product, and its bias, which is added behind the sum
    gathered: set[int] = field(default_factory=set)
    inside: set[int] = field(default_factory=set)  # nodes that work on parts

    def merge(self, other: Decided) -> None:
        for name in ("cuts", "wanted", "sizes", "tensors", "rows", "columns", "gathered", "inside"):
            getattr(self, name).update(getattr(other, name))
        for node, changed in other.attributes.items():
            self.attributes.setdefault(node, {}).update(changed)


class Attempt:
    """To split one product; what is decided before counts."""

    def __init__(self, model: Model, ranks: int, before: Decided) -> None:
        self.model, self.ranks, self.before = model, ranks, before
        self.now = Decided()
        self.reaches_columns = False

    def number(self, node: onnx.NodeProto) -> int:
        return self.model.numbers[id(node)]

    # ---- what rules say ----

    def mark(self, name: str, cut: Cut) -> bool:
        """Whether it was not known that the value is cut."""
        if not cut.fits(self.ranks):
            sizes = " and ".join(map(str, cut.segments))
            raise Refusal(f"{sizes} elements of {name!r} cannot be dealt to {self.ranks} ranks")
        known = self.now.cuts.get(name) or self.before.cuts.get(name)
        if known is not None and known != cut:
            raise Refusal(f"{name!r} would have to be split in two ways")
        self.reaches_columns = self.reaches_columns or name in self.before.cuts
        self.now.cuts[name] = cut
        return known is None

    def need(self, node: onnx.NodeProto, i: int, cut: Cut) -> None:
        """Input `i` comes cut."""
        name, place = node.input[i], (self.number(node), i)
        shape = self.model.shape(name)
        if len(shape) < -cut.axis or shape[cut.axis] != cut.size:
            raise Refusal(f"input {i} of {title(node)} has the shape {list(shape)}, whose dimension {cut.axis} is not "
                          f"{cut.size}")
        known = self.now.wanted.get(place) or self.before.wanted.get(place)
        if known is not None and known != cut:
            raise Refusal(f"input {i} of {title(node)} would have to be split in two ways")
        self.now.wanted[place] = cut
        if name in self.model.weights:
            if not cut.fits(self.ranks):
                raise Refusal(f"{cut.size} elements of the weight {name!r} cannot be dealt to {self.ranks} ranks")
            return
        if self.mark(name, cut):
            self._follow(name, cut)

    def like(self, node: onnx.NodeProto, i: int, cut: Cut) -> None:
        """Input `i` comes cut, unless it is the same for all along that axis, or left out."""
        if node.input[i] == "":
            return
        shape = self.model.shape(node.input[i])
        if len(shape) >= -cut.axis and shape[cut.axis] != 1:
            self.need(node, i, cut)

    def _follow(self, name: str, cut: Cut) -> None:
        if name in self.model.inputs:
            return
        node = self.model.producers.get(name)
        if node is None:
            raise Refusal(f"nothing makes {name!r}")
        if self.number(node) in self.before.rows:
            raise Refusal(f"it comes from {title(node)}, whose sum all ranks have")
        found = of_node(node)
        if found is None:
            raise unknown(node)
        self.now.inside.add(self.number(node))
        found(self, node, list(node.output).index(name), cut)

    def column(self, node: onnx.NodeProto) -> None:
        self.reaches_columns = True
        self.now.columns.add(self.number(node))

    def set(self, node: onnx.NodeProto, name: str, value: Any) -> None:
        self.now.attributes.setdefault(self.number(node), {})[name] = value

    def resize(self, node: onnx.NodeProto, i: int, at: int, cut: Cut) -> None:
        """Entry `at` of the shape that input `i` is becomes a rank's part, unless it follows from the others."""
        if len(node.input) <= i:
            raise Refusal(f"{title(node)} has its shape as an attribute")
        listed = self.model.ints(node.input[i])
        if listed is None or listed[at] != -1:
            self.now.sizes[self.number(node), i] = (at, cut.own(self.ranks))

    def replace_ints(self, node: onnx.NodeProto, i: int, values: list[int]) -> None:
        name = f"{node.input[i]}/rank"
        self.now.tensors[self.number(node), i] = numpy_helper.from_array(np.array(values, np.int64), name)

    # ---- products of 4 bits and the like ----

    def nbits_columns(self, node: onnx.NodeProto, cut: Cut) -> None:
        """Rows of B [N, blocks, bytes], of scales and zero points [N, blocks] or [N * blocks], and of a bias [N]."""
        for i in (1, 2, 3, 5):
            if i < len(node.input) and node.input[i]:
                shape = self.model.shape(node.input[i])
                self.need(node, i, cut.times(shape[0] // cut.size).at(-len(shape)))

    def nbits_rows(self, node: onnx.NodeProto, cut: Cut) -> None:
        """The blocks of each row."""
        block, bits = attribute(node, "block_size", 32), attribute(node, "bits", 4)
        if len(node.input) > 4 and node.input[4]:
            raise Refusal(f"{title(node)} has its rows in another order (g_idx)")
        if any(segment % (block * self.ranks) for segment in cut.segments):
            raise Refusal(f"{cut.size} rows in blocks of {block} cannot be dealt to {self.ranks} ranks")
        columns = attribute(node, "N")
        for i in (1, 2, 3):
            if i >= len(node.input) or not node.input[i]:
                continue
            shape = self.model.shape(node.input[i])
            if i != 1 and len(shape) != 2:
                raise Refusal(f"{'scales' if i == 2 else 'zero points'} of {title(node)} are not [N, blocks]")
            per_row = int(np.prod(shape)) // columns if i != 1 else shape[1]
            blocks = cut.size // block
            packed = per_row != blocks and i == 3  # several to a byte
            unit = block * (8 // bits) if packed else block
            if any(segment % (unit * self.ranks) for segment in cut.segments):
                raise Refusal(f"zero points of {title(node)} share bytes that {self.ranks} ranks would need")
            self.need(node, i, Cut(-2 if i == 1 else -1, tuple(segment // unit for segment in cut.segments)))
        self.set(node, "K", cut.size // self.ranks)

    # ---- the attempt ----

    def rows(self, node: onnx.NodeProto) -> None:
        """To deal the rows of the product's weight."""
        number, shape = self.number(node), self.model.shape(node.input[0])
        if len(shape) < 2:
            raise Refusal("its input is a vector")
        self.need(node, 0, Cut(-1, (shape[-1],)))
        cut = self.now.cuts[node.input[0]]
        if cut.copies:
            raise Refusal("several ranks would have the same rows")
        bias = {"Gemm": 2, "MatMulNBits": 5}.get(node.op_type, len(node.input))
        if node.op_type == "MatMulNBits":
            self.nbits_rows(node, cut)
        else:
            trans_b = node.op_type == "Gemm" and attribute(node, "transB", 0)
            self.need(node, 1, cut.at(-1 if trans_b else -2))
        given = bias < len(node.input) and node.input[bias] != ""
        if given and node.op_type == "Gemm" and attribute(node, "beta", 1.0) != 1.0:
            raise Refusal("its bias is scaled")
        self.now.rows[number] = bias if given else None
        self.now.inside.add(number)
        if not self.reaches_columns:
            raise Refusal("no product before it could be split by columns")
        self.check()

    def gather(self, node: onnx.NodeProto) -> None:
        """To deal the columns of a last product, whose results are then gathered."""
        shape = self.model.shape(node.output[0])
        found = of_node(node)
        if found is None or len(shape) < 2:
            raise Refusal("it cannot be split by columns")
        found(self, node, 0, Cut(-1, (shape[-1],)))
        for (number, i), cut in self.now.wanted.items():
            name = self.model.nodes[number].input[i]
            if not cut.fits(self.ranks):
                raise Refusal(f"{cut.size} elements of {name!r} cannot be dealt to {self.ranks} ranks")
        if shape[-1] % self.ranks:
            raise Refusal(f"{shape[-1]} columns cannot be dealt to {self.ranks} ranks")
        self.now.gathered.add(self.number(node))

    def check(self) -> None:
        """Whoever reads a value that is cut knows of it."""
        for name in self.now.cuts:
            for use in self.model.uses.get(name, ()):
                place = (self.number(use.node), use.index)
                if use.hidden:
                    raise Refusal(f"{name!r} is read within {title(use.node)}, too")
                if place in self.now.wanted or place in self.before.wanted or self._only_looks(use.node):
                    continue
                raise Refusal(f"{name!r} is read by {title(use.node)}, too, which needs all of it")

    def _only_looks(self, node: onnx.NodeProto) -> bool:
        """A Shape of which nobody uses the size that is split."""
        if node.op_type != "Shape":
            return False
        cut = self.now.cuts.get(node.input[0]) or self.before.cuts[node.input[0]]
        rank = len(self.model.shape(node.input[0]))
        for use in self.model.uses.get(node.output[0], ()):
            picked = self.model.ints(use.node.input[1]) if use.node.op_type == "Gather" and use.index == 0 else None
            if picked is None or any(i % rank == rank + cut.axis for i in picked):
                return False
        return node.output[0] not in self.model.outputs and attribute(node, "start", 0) == 0


@dataclass
class Plan:
    model: Model
    ranks: int
    decided: Decided
    refused: dict[int, str]  # products that stay whole, and why

    def node(self, number: int) -> onnx.NodeProto:
        return self.model.nodes[number]

    def bytes(self) -> dict[str, int]:
        """Of all weights, of those that are split, and of what a rank has."""
        weights = self.model.weights
        cuts = {(self.node(number).input[i], cut) for (number, i), cut in self.decided.wanted.items()}
        parts = {(name, cut) for name, cut in cuts if name in weights}
        whole = sum(map(weights.bytes, weights.tensors))
        split = sum(map(weights.bytes, {name for name, _ in parts}))
        return {"whole": whole, "split": split, "rank": whole - split + sum(
            weights.bytes(name) // cut.size * cut.own(self.ranks) for name, cut in parts)}


def _is_product(model: Model, node: onnx.NodeProto) -> bool:
    return ((node.domain, node.op_type) in PRODUCTS and len(node.input) > 1 and node.input[1] in model.weights
            and len(model.weights.shape(node.input[1])) >= 2)


def _is_last(model: Model, node: onnx.NodeProto) -> bool:
    return node.output[0] in model.outputs or all(
        use.node.op_type in {"Cast", "Tanh", "Div", "Mul"} for use in model.uses.get(node.output[0], ()))


def plan(model: Model, ranks: int) -> Plan:
    """`model` must have the shapes of its values."""
    numbers = model.numbers
    decided, refused = Decided(), {}
    products = [node for node in model.nodes if _is_product(model, node)]
    for node in products:
        if numbers[id(node)] in decided.columns:
            continue
        attempt = Attempt(model, ranks, decided)
        try:
            attempt.rows(node)
            decided.merge(attempt.now)
        except Refusal as why:
            refused[numbers[id(node)]] = str(why)
    for node in products:
        number = numbers[id(node)]
        is_whole = number not in decided.columns and number not in decided.rows
        if is_whole and _is_last(model, node) and model.weights.bytes(node.input[1]) >= GATHER_MIN:
            attempt = Attempt(model, ranks, decided)
            try:
                attempt.gather(node)
                decided.merge(attempt.now)
            except Refusal as why:
                refused[number] = str(why)
    done = decided.columns | decided.rows.keys()
    for node in model.nodes:
        large = [name for name in node.input if name in model.weights and model.weights.bytes(name) >= GATHER_MIN]
        if large and not _is_product(model, node) and numbers[id(node)] not in decided.inside:
            refused[numbers[id(node)]] = f"weights of {node.op_type} are not split"
    return Plan(model, ranks, decided, {number: why for number, why in refused.items() if number not in done})
