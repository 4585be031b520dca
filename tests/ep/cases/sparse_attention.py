# SPDX-License-Identifier: Apache-2.0
"""SparseAttention of com.microsoft, against ONNX Runtime's CPU provider. It wants the memory of the caches shared and
gets each entry alone: of several, it takes the weights of all but the longest ones from elsewhere. What it leaves
undefined is computed in NumPy: rows behind the length of an entry, and blocks that are none."""

import functools

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from cases.attention import MS
from cases.kit import D, R, case
from cases.paged import rotated

TYPES = ("float", "float16", "bfloat16")
NAMES = ["query", "key", "value", "past_key", "past_value", "block_row_indices", "block_col_indices",
         "total_sequence_length", "key_total_sequence_lengths", "cos_cache", "sin_cache"]


@functools.lru_cache
def session(given, attrs):
    """One node on the CPU provider."""
    kinds = [TensorProto.INT32 if 5 <= NAMES.index(name) <= 8 else TensorProto.FLOAT for name in given]
    node = helper.make_node("SparseAttention", [name if name in given else "" for name in NAMES],
                            ["output", "present_key", "present_value"], domain=MS, **dict(attrs))
    graph = helper.make_graph([node], "sparse", [helper.make_tensor_value_info(name, kind, None) for name, kind in
                                                 zip(given, kinds, strict=True)],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)],
                              ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def by_cpu(given, attrs):
    run = session(tuple(name for name in NAMES if given.get(name) is not None), tuple(sorted(attrs.items())))
    binding, caches = run.io_binding(), {}
    for name in (value.name for value in run.get_inputs()):
        array = np.ascontiguousarray(given[name])
        value = ort.OrtValue.ortvalue_from_numpy(array if array.dtype == np.int32 else array.astype(np.float32))
        binding.bind_ortvalue_input(name, value)
        caches[name] = value
    binding.bind_output("output")
    binding.bind_ortvalue_output("present_key", caches["past_key"])
    binding.bind_ortvalue_output("present_value", caches["past_value"])
    run.run_with_iobinding(binding)
    results = [binding.get_outputs()[0], caches["past_key"], caches["past_value"]]
    return [value.numpy().copy() for value in results]  # an array does not keep its memory


def by_numpy(given, num_heads, kv_num_heads, sparse_block_size, scale=0.0, do_rotary=0, rotary_interleaved=0):
    q, starts, columns = (given[name] for name in ("query", "block_row_indices", "block_col_indices"))
    keys, values = given["past_key"].astype(np.float64), given["past_value"].astype(np.float64)
    size, capacity, (batch, rows) = keys.shape[3], keys.shape[2], q.shape[:2]
    fresh = [x.astype(np.float64).reshape(batch, rows, x.shape[2] // size, size) for x in (
        np.split(q, [num_heads * size, (num_heads + kv_num_heads) * size], 2) if given["key"] is None else
        (q, given["key"], given["value"]))]
    total = int(np.ravel(given["total_sequence_length"])[0])
    out = np.zeros((batch, rows, num_heads, size))
    for b, length in enumerate(given["key_total_sequence_lengths"].tolist()):
        place = 0 if total == rows else min(max(length - rows, 0), capacity - rows)
        fresh_q, fresh_k = fresh[0][b], fresh[1][b]
        if do_rotary:
            places = place + np.arange(rows)
            fresh_q, fresh_k = (rotated(x, places, given["cos_cache"], given["sin_cache"], rotary_interleaved, 0)
                                for x in (fresh_q, fresh_k))
        keys[b, :, place : place + rows] = fresh_k.swapaxes(0, 1)
        values[b, :, place : place + rows] = fresh[2][b].swapaxes(0, 1)
        length = min(max(length, 0), total)
        for i in range(rows):
            position = i if total == rows else length - rows + i
            row = position // sparse_block_size
            for h in range(num_heads if position >= 0 and row + 1 < starts.shape[1] else 0):
                layout, g = h % len(starts), h // (num_heads // kv_num_heads)
                blocks = columns[layout, max(starts[layout, row], 0) : max(starts[layout, row + 1], 0)].astype(np.int64)
                blocks = blocks[: starts.shape[1] - 1]
                seen = (blocks[blocks >= 0, None] * sparse_block_size + np.arange(sparse_block_size)).ravel()
                seen = seen[seen < min(position + 1, length)]
                if len(seen):
                    scores = keys[b, g, seen] @ fresh_q[i, h] * (scale or size**-0.5)
                    weights = np.exp(scores - scores.max())
                    out[b, i, h] = weights @ values[b, g, seen] / weights.sum()
    return [out.reshape(batch, rows, num_heads * size), keys, values]


def sparse(*inputs, wild=False, **attrs):
    given = dict.fromkeys(NAMES) | dict(zip(NAMES, inputs, strict=False))
    rows, total = given["query"].shape[1], int(np.ravel(given["total_sequence_length"])[0])
    outputs = by_numpy(given, **attrs)
    for b, length in enumerate([] if wild else given["key_total_sequence_lengths"].tolist()):
        fresh = min(rows, length) if total == rows else rows
        if fresh:
            alone = given | {name: given[name][b : b + 1, :fresh] for name in NAMES[:3] if given[name] is not None}
            alone |= {name: given[name][b : b + 1] for name in NAMES[3:5]}
            alone |= {name: np.array([length], np.int32) for name in NAMES[7:9]}
            out, keys, values = by_cpu(alone, attrs)
            outputs[0][b, :fresh] = out[0]
            outputs[1][b, :, :length], outputs[2][b, :, :length] = keys[0, :, :length], values[0, :, :length]
    return outputs


def layouts_of(count, blocks, local, stride):
    """Blocks below the diagonal: `local` neighbours, and every stride-th."""
    masks = np.zeros((count, blocks, blocks), bool)
    for layout, i, j in np.ndindex(masks.shape):
        masks[layout, i, j] = j <= i and (i - j < local or (j + layout + 1) % stride == 0)
    lists = [np.concatenate([np.flatnonzero(row) for row in mask]) for mask in masks]
    starts = [[0, *np.cumsum(mask.sum(1)).tolist()] for mask in masks]
    most = max(map(len, lists))
    return starts, [x.tolist() + [-1] * (most - len(x)) for x in lists]


def node(rows, lengths, heads=4, kv=2, size=16, block=16, room=8, layouts=1, local=1, stride=3, packed=False, rotary=0,
         types=("float",), total=None, mask=None, wild=False, slack=3, **attrs):
    batch, most = len(lengths), max([rows, *lengths])
    starts, columns = mask or layouts_of(layouts, room, local, stride)
    generator = np.random.default_rng(rows + heads)
    cache = R((batch, kv, room * block, size))
    rest = [cache, cache, D(starts, "int32"), D(columns, "int32"), D([most] if total is None else total, "int32"),
            D(list(lengths), "int32")]
    rest += [R((room * block + 3, rotary // 2), -1, 1)] * 2 if rotary else []
    if rotary:
        attrs["do_rotary"] = 1
    for kind in types:
        fresh = [R((batch, rows, n * size)) for n in (heads, kv, kv)]
        if packed:  # ONNX Runtime's inference of shapes wants to know these
            fresh = [D(generator.uniform(-3, 3, (batch, rows, (heads + 2 * kv) * size)).tolist(), kind), None, None]
        case("SparseAttention", fresh + rest, (kind,), (1,), outputs=3, domain=MS, slack=slack,
             reference=functools.partial(sparse, wild=wild), num_heads=heads, kv_num_heads=kv, sparse_block_size=block,
             **attrs)


# Prompts, of one length or with padding; single tokens; more than one behind a past.
for layouts in (1, 2, 4):
    for heads, kv in ((4, 4), (4, 2), (8, 1)):
        node(70, [70, 70], heads, kv, layouts=layouts)
        node(70, [70, 33, 1], heads, kv, layouts=layouts, packed=True)
        node(1, [1, 40, 128], heads, kv, layouts=layouts, local=2)
        node(3, [60, 17], heads, kv, layouts=layouts)
        node(21, [100, 64, 21], heads, kv, layouts=layouts, stride=4)
for rows, lengths in ((70, [70, 33]), (1, [1, 40, 128]), (20, [100, 30])):
    node(rows, lengths, layouts=2, types=TYPES)
    for interleaved in (0, 1):
        node(rows, lengths, layouts=2, rotary=16, types=TYPES, rotary_interleaved=interleaved)
        node(rows, lengths, size=48, layouts=2, rotary=32, packed=True, rotary_interleaved=interleaved)
for size in (8, 64, 128, 256, 264):
    node(40, [40, 29], size=size, layouts=4)
    node(1, [40, 29], size=size, layouts=4, types=("float16",))
# Blocks of other sizes, more of them than are looked at in one go, lists in which all blocks are.
for block in (16, 32, 64, 128):
    node(50, [200, 120], 2, 1, block=block, room=2048 // block // 8, layouts=2, stride=2)
    node(1, [200, 256], 2, 1, block=block, room=2048 // block // 8, layouts=2, stride=2)
node(40, [4600], 2, 1, size=8, room=290, layouts=2, stride=7)
node(9, [4600], 1, 1, size=8, room=290, layouts=1, stride=7)
node(1, [4600], 2, 1, size=8, room=290, layouts=2, stride=7)
node(60, [60], local=8)
node(1, [60, 128], local=8, stride=1)
node(30, [30], scale=0.3)
node(2, [30], total=30, scale=0.3)
# Nothing to do.
node(0, [0, 0], total=[0])
node(0, [5], total=[20])
node(3, [], total=[3])
# What the CPU provider would read outside: lists and blocks that are none, lengths out of range.
WILD = ([[0, -5, 900, 2, 3, 3, 2**31 - 1, -(2**31), 6]], [[0, 5, -7, 2**31 - 1, -(2**31), 1, 2, 300, 4]])
for rows, lengths in ((40, [40, 20]), (1, [5, 100]), (20, [25, 100]), (1, [64, 17])):
    node(rows, lengths, mask=WILD, wild=True, types=TYPES)
    node(rows, lengths, 2, 2, mask=([WILD[0][0]] * 2, [WILD[1][0]] * 2), wild=True, size=8)
for rows in (1, 3, 20, 64):
    node(rows, [-7, 2**31 - 1, 0, -(2**31), 2 * rows], total=[64], wild=True, layouts=2)
    node(rows, [-7, 2**31 - 1, 0, -(2**31), 2 * rows], total=[rows], wild=True, layouts=2)
    node(rows, [rows, 64], total=[64], mask=([[0] * 9], [[]]), wild=True)
