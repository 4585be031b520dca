# SPDX-License-Identifier: Apache-2.0
"""From a value that is to be dealt to ranks back to the products whose columns are: one rule for each operator.

A rule is asked for an output of its node to be cut, and says which of the node's inputs must be cut, and how; the
others stay whole. It raises Refusal where that cannot be.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import onnx

from millpond._shard_model import Cut, Refusal, attribute, title

if TYPE_CHECKING:
    from millpond._shard_split import Attempt

Rule = Callable[["Attempt", onnx.NodeProto, int, Cut], None]
RULES: dict[tuple[str, str], Rule] = {}
MS = "com.microsoft"
ELEMENTWISE = (
    "Abs", "Add", "And", "BiasGelu", "Cast", "Ceil", "Clip", "Cos", "Div", "Dropout", "Elu", "Equal", "Erf",
    "Exp", "FastGelu", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
    "QuickGelu", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Silu", "Sin", "Softplus", "Softsign",
    "Sqrt", "Sub", "Swish", "Tanh", "Where", "Xor",
)


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        RULES.update({(domain, name): function for name in names})
        return function

    return add


def of_node(node: onnx.NodeProto) -> Rule | None:
    return RULES.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))


def _elementwise(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    for i in range(len(node.input)):
        a.like(node, i, cut)


for _name in ELEMENTWISE:
    RULES["", _name] = RULES[MS, _name] = _elementwise


def _axis_of(node: onnx.NodeProto, rank: int, fallback: int) -> int:
    """The attribute `axis`, from the end."""
    axis = attribute(node, "axis", fallback)
    return axis - rank if axis >= 0 else axis


@rule("Softmax", "LogSoftmax", "LpNormalization")
def _along_an_axis(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    if _axis_of(node, len(a.model.shape(node.input[0])), -1) == cut.axis:
        raise Refusal(f"{title(node)} goes along what is split")
    a.need(node, 0, cut)


@rule("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")
def _norm(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    if out != 0 or _axis_of(node, len(a.model.shape(node.input[0])), -1) <= cut.axis:
        raise Refusal(f"{title(node)} needs whole rows")
    a.need(node, 0, cut)


@rule("SkipSimplifiedLayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization", domain=MS)
def _norm_of_rows(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    raise Refusal(f"{title(node)} needs whole rows")


@rule("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2")
def _reduce(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    rank = len(a.model.shape(node.input[0]))
    axes = a.model.ints(node.input[1]) if len(node.input) > 1 else attribute(node, "axes")
    if not axes or attribute(node, "keepdims", 1) != 1:
        raise Refusal(f"{title(node)} does not keep the dimension that is split")
    if cut.axis in [axis - rank if axis >= 0 else axis for axis in axes]:
        raise Refusal(f"{title(node)} goes along what is split")
    a.need(node, 0, cut)


# ---- shapes ----


def _blocks(before: tuple[int, ...], behind: tuple[int, ...], cut: Cut) -> list[Cut]:
    """Cuts of a Reshape's input that are `cut` of its output: elements that lie together stay together, so the block
    that is dealt is as large on both sides, or there are several such blocks side by side, or one behind the other."""
    at = len(behind) + cut.axis
    inner, block = prod(behind[at + 1 :]), prod(behind[at:])
    alike, several = [], []
    for i in range(len(before)):
        its_inner, its_block = prod(before[i + 1 :]), prod(before[i:])
        sizes = [segment * inner for segment in cut.segments]
        if before[i] == 1 or its_inner == 0 or any(size % its_inner for size in sizes):
            continue
        dealt = Cut(i - len(before), tuple(size // its_inner for size in sizes), cut.copies)
        if its_block == block:
            alike.append(dealt)
        elif sizes == [its_block] * (block // its_block):  # each block lies in a row of its own
            alike.append(Cut(dealt.axis, dealt.segments[:1], dealt.copies[:1]))
        elif len(sizes) == 1 and any(prod(behind[j:]) == its_block for j in range(at)):
            several.append(Cut(dealt.axis, *(each * (its_block // block) for each in (dealt.segments, dealt.copies))))
    return alike + several


@rule("Reshape")
def _reshape(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    before, behind = a.model.shape(node.input[0]), a.model.shape(node.output[0])
    for dealt in _blocks(before, behind, cut):
        if dealt.fits(a.ranks):
            a.need(node, 0, dealt)
            a.resize(node, 1, len(behind) + cut.axis, cut)
            return
    raise Refusal(f"{title(node)} from {list(before)} to {list(behind)} mixes what is split with what is not")


@rule("Expand")
def _expand(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    a.like(node, 0, cut)
    a.resize(node, 1, len(a.model.shape(node.output[0])) + cut.axis, cut)


@rule("Transpose")
def _transpose(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    rank = len(a.model.shape(node.input[0]))
    order = attribute(node, "perm", list(reversed(range(rank))))
    a.need(node, 0, cut.at(order[rank + cut.axis] - rank))


def _listed_axes(a: Attempt, node: onnx.NodeProto, rank: int) -> list[int]:
    axes = a.model.ints(node.input[1]) if len(node.input) > 1 else attribute(node, "axes")
    if axes is None:
        raise Refusal(f"the axes of {title(node)} are not known")
    return sorted(axis % rank for axis in axes)


@rule("Unsqueeze")
def _unsqueeze(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    rank = len(a.model.shape(node.output[0]))
    axes, at = _listed_axes(a, node, rank), rank + cut.axis
    a.need(node, 0, cut.at(at - sum(axis < at for axis in axes) - (rank - len(axes))))


@rule("Squeeze")
def _squeeze(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    rank = len(a.model.shape(node.input[0]))
    axes = _listed_axes(a, node, rank)
    kept = [i for i in range(rank) if i not in axes]
    a.need(node, 0, cut.at(kept[len(kept) + cut.axis] - rank))


@rule("Concat")
def _concat(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    if _axis_of(node, len(a.model.shape(node.output[0])), 0) == cut.axis:
        raise Refusal(f"{title(node)} joins along what is split")
    for i in range(len(node.input)):
        a.need(node, i, cut)


@rule("Slice")
def _slice(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    rank = len(a.model.shape(node.input[0]))
    axes = a.model.ints(node.input[3]) if len(node.input) > 3 and node.input[3] else list(range(rank))
    if axes is None or rank + cut.axis in [axis % rank for axis in axes]:
        raise Refusal(f"{title(node)} cuts along what is split")
    a.need(node, 0, cut)


@rule("Split")
def _split(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    rank = len(a.model.shape(node.input[0]))
    if _axis_of(node, rank, 0) != cut.axis:
        raise Refusal(f"{title(node)} cuts along another dimension than the one that is split")
    if len(cut.segments) != 1 or cut.copies:
        raise Refusal(f"{title(node)} cuts what has parts of its own")
    sizes = [a.model.shape(name)[cut.axis] for name in node.output]
    for name, size in zip(node.output, sizes, strict=True):
        a.mark(name, Cut(cut.axis, (size,)))
    a.need(node, 0, Cut(cut.axis, tuple(sizes)))
    if len(node.input) > 1 and node.input[1]:
        a.replace_ints(node, 1, [size // a.ranks for size in sizes])
    elif attribute(node, "split") is not None:
        a.set(node, "split", [size // a.ranks for size in sizes])


@rule("Gather")
def _gather(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    rank, indices = len(a.model.shape(node.input[0])), len(a.model.shape(node.input[1]))
    axis = attribute(node, "axis", 0) % rank
    at = rank + indices - 1 + cut.axis
    if axis <= at < axis + indices:
        raise Refusal(f"{title(node)} picks along what is split")
    a.need(node, 0, cut.at((at if at < axis else at - indices + 1) - rank))


# ---- products ----


@rule("MatMul")
def _matmul(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    if node.input[1] in a.model.weights:
        if cut.axis != -1 or len(a.model.shape(node.input[1])) != 2:
            raise Refusal(f"{title(node)} would have to be split by rows of its input")
        a.column(node)
        a.need(node, 1, cut)
    elif node.input[0] in a.model.weights:
        raise Refusal(f"{title(node)} has its weight on the left")
    elif cut.axis == -1:
        a.need(node, 1, cut)
    elif cut.axis == -2:
        a.need(node, 0, cut)
    else:
        a.like(node, 0, cut)
        a.like(node, 1, cut)


@rule("Gemm")
def _gemm(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    if cut.axis != -1 or node.input[1] not in a.model.weights or attribute(node, "transA", 0):
        raise Refusal(f"{title(node)} has no weight whose columns could be split")
    a.column(node)
    a.need(node, 1, cut.at(-2 if attribute(node, "transB", 0) else -1))
    if len(node.input) > 2:
        a.like(node, 2, cut)


@rule("MatMulNBits", domain=MS)
def _nbits(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    if cut.axis != -1 or node.input[1] not in a.model.weights or attribute(node, "weight_prepacked", 0):
        raise Refusal(f"{title(node)} has no weight whose columns could be split")
    a.column(node)
    a.nbits_columns(node, cut)
    a.set(node, "N", cut.own(a.ranks))


# ---- attention ----


def _heads(a: Attempt, node: onnx.NodeProto, name: str) -> int:
    """A number of heads, which becomes a rank's."""
    count = attribute(node, name, 0)
    if count <= 0 or count % a.ranks:
        raise Refusal(f"the {count} heads ({name}) of {title(node)} cannot be dealt to {a.ranks} ranks")
    a.set(node, name, count // a.ranks)
    return int(count)


def _shared_heads(a: Attempt, node: onnx.NodeProto, name: str) -> tuple[int, tuple[int, ...]]:
    """A number of heads that queries share, and copies: of fewer heads than ranks neighbours have the same one."""
    count = attribute(node, name, 0)
    if count <= 0 or count % a.ranks == 0 or a.ranks % count:
        return _heads(a, node, name), ()
    a.set(node, name, 1)
    return int(count), (a.ranks // count,)


def _given(node: onnx.NodeProto, i: int) -> bool:
    return i < len(node.input) and node.input[i] != ""


def _caches(a: Attempt, node: onnx.NodeProto, past: tuple[int, int], count: int, copies: tuple[int, ...] = ()) -> None:
    """Keys and values of the past, and those with the present ones: [batch, heads, length, size]."""
    for i in past:
        if _given(node, i):
            a.need(node, i, Cut(-3, (count,), copies))
    for name in list(node.output)[1:3]:
        if name:
            a.mark(name, Cut(-3, (count,), copies))


def _only_main(node: onnx.NodeProto, out: int, cut: Cut, axis: int) -> None:
    if out != 0 or cut.axis != axis or len(cut.segments) != 1 or cut.copies:
        raise Refusal(f"{title(node)} would have to be split otherwise than by heads")


def _whole_extras(a: Attempt, node: onnx.NodeProto, first: int, last: int) -> None:
    for i in range(first, last + 1):
        if _given(node, i) and prod(a.model.shape(node.input[i])) != 1:
            raise Refusal(f"input {i} of {title(node)} has a value for each head or channel")


@rule("GroupQueryAttention", domain=MS)
def _group_query(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    _only_main(node, out, cut, -1)
    heads, (shared, copies) = _heads(a, node, "num_heads"), _shared_heads(a, node, "kv_num_heads")
    size = cut.size // heads
    if _given(node, 1):
        a.need(node, 0, cut)
        a.need(node, 1, Cut(-1, (shared * size,), copies))
        a.need(node, 2, Cut(-1, (shared * size,), copies))
    else:
        a.need(node, 0, Cut(-1, (heads * size, shared * size, shared * size), (1, *copies, *copies) if copies else ()))
    _caches(a, node, (3, 4), shared, copies)
    if _given(node, 10):
        a.like(node, 10, Cut(-3, (heads,)))
    if _given(node, 11):
        a.like(node, 11, Cut(-1, (heads,)))
    _whole_extras(a, node, 12, 13)


@rule("MultiHeadAttention", domain=MS)
def _multi_head(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    _only_main(node, out, cut, -1)
    heads = _heads(a, node, "num_heads")
    if not _given(node, 1) or len(a.model.shape(node.input[0])) != 3 or len(node.output) > 3:
        raise Refusal(f"{title(node)} has packed queries, keys and values")
    sizes = []
    for i in (0, 1, 2):
        shape = a.model.shape(node.input[i])
        by_heads = len(shape) == 4
        a.need(node, i, Cut(-3, (heads,)) if by_heads else Cut(-1, (shape[-1],)))
        sizes.append(heads * shape[-1] if by_heads else shape[-1])
    if _given(node, 3):
        a.like(node, 3, Cut(-1, tuple(sizes)))
    if _given(node, 5):
        a.like(node, 5, Cut(-3, (heads,)))
    _caches(a, node, (6, 7), heads)


@rule("Attention", domain=MS)
def _projected(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    _only_main(node, out, cut, -1)
    heads = _heads(a, node, "num_heads")
    if node.input[1] not in a.model.weights:
        raise Refusal(f"the projections of {title(node)} are no constants")
    total = a.model.shape(node.input[1])[-1]
    sizes = attribute(node, "qkv_hidden_sizes") or [total // 3] * 3
    a.column(node)
    a.need(node, 1, Cut(-1, tuple(sizes)))
    if _given(node, 2):
        a.like(node, 2, Cut(-1, tuple(sizes)))
    if attribute(node, "qkv_hidden_sizes"):
        a.set(node, "qkv_hidden_sizes", [size // a.ranks for size in sizes])
    _caches(a, node, (4, 4), heads)
    if _given(node, 5):
        a.like(node, 5, Cut(-3, (heads,)))


@rule("Attention")
def _attention(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    flat = len(a.model.shape(node.output[0])) == 3
    _only_main(node, out, cut, -1 if flat else -3)
    shapes = [a.model.shape(node.input[i]) for i in range(3)]
    heads = _heads(a, node, "q_num_heads") if flat else shapes[0][1]
    shared = _heads(a, node, "kv_num_heads") if flat else shapes[1][1]
    for i, count in enumerate((heads, shared, shared)):
        a.need(node, i, Cut(-1, (shapes[i][-1],)) if flat else Cut(-3, (count,)))
    if _given(node, 3):
        a.like(node, 3, Cut(-3, (heads,)))
    _caches(a, node, (4, 5), shared)
    if len(node.output) > 3:
        raise Refusal(f"{title(node)} gives its scores away")


@rule("RotaryEmbedding")
@rule("RotaryEmbedding", domain=MS)
def _rotary(a: Attempt, node: onnx.NodeProto, out: int, cut: Cut) -> None:
    flat = len(a.model.shape(node.input[0])) == 3
    _only_main(node, out, cut, -1 if flat else -3)
    a.need(node, 0, cut)
    if flat and attribute(node, "num_heads", 0) > 0:
        _heads(a, node, "num_heads")


def unknown(node: onnx.NodeProto) -> Any:
    return Refusal(f"{title(node)} is no operator that can be split")
