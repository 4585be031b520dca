# SPDX-License-Identifier: Apache-2.0
"""DynamicSparseAttention of com.microsoft, which ONNX Runtime's CPU provider does not have, against NumPy: what its
documentation in ONNX Runtime's registry of schemas says."""

import numpy as np

from cases.attention import MS
from cases.kit import D, R, case
from cases.paged import normed, rotated

TYPES = ("float", "float16", "bfloat16")


def dynamic(q, k, v, past_k, past_v, beside_k, beside_v, indices, counts, lengths, total, cosine=None, sine=None,
            positions=None, q_norm=None, k_norm=None, sink=None, num_heads=1, kv_num_heads=1, scale=0.0,
            attention_mode="selected_only", selected_kv_source="main", auxiliary_kv_shared=0, is_causal=1,
            local_window_size=-1, smooth_softmax=0, do_rotary=0, rotary_interleaved=0, rotary_offset=0,
            qk_norm_epsilon=1e-6):
    batch, rows = q.shape[:2]
    if k is None:
        size = q.shape[2] // (num_heads + 2 * kv_num_heads)
        q, k, v = np.split(q, [num_heads * size, (num_heads + kv_num_heads) * size], 2)
    size, group = q.shape[2] // num_heads, num_heads // kv_num_heads
    room = int(np.ravel(total)[0]) if past_k is None else past_k.shape[2]
    caches = [np.zeros((batch, kv_num_heads, room, size)) if x is None else x.astype(np.float64) for x in
              (past_k, past_v)]
    others = [beside_k, beside_k if beside_v is None else beside_v]
    out = np.zeros((batch, rows, num_heads, size))
    for b in range(batch):
        new_q, new_k, new_v = (x[b].astype(np.float64).reshape(rows, n, size) for x, n in
                               ((q, num_heads), (k, kv_num_heads), (v, kv_num_heads)))
        first = min(max(int(lengths[b]) + 1 - rows, 0), room - rows)
        places = first + np.arange(rows)
        if q_norm is not None:
            new_q, new_k = normed(new_q, q_norm, qk_norm_epsilon), normed(new_k, k_norm, qk_norm_epsilon)
        if do_rotary:
            at = places if positions is None else np.clip(positions[b], 0, len(cosine) - 1)
            new_q, new_k = (rotated(x, at, cosine, sine, rotary_interleaved, rotary_offset) for x in (new_q, new_k))
        for cache, new in zip(caches, (new_k, new_v), strict=True):
            cache[b, :, places] = new
        for i, place in enumerate(places):
            row = b * rows + i
            chosen = indices[row, : max(0, min(int(counts[row]), indices.shape[1]))].astype(np.int64)
            if selected_kv_source == "main":
                seen = [x[b][:, chosen[(chosen >= 0) & (chosen <= place)]] for x in caches]
            else:
                near = np.arange(max(0, place + 1 - local_window_size), place + 1)
                chosen = chosen[(chosen >= 0) & (chosen < beside_k.shape[2])]
                seen = [np.concatenate([x[b][:, near], y[b][:, chosen].astype(np.float64)], 1) for x, y in
                        zip(caches, others, strict=True)]
            for h in range(num_heads):
                scores = seen[0][h // group] @ new_q[i, h] * (scale or size**-0.5)
                extra = [sink[h]] if sink is not None else [0.0] if smooth_softmax else []
                top = max([*scores, *extra], default=0)
                weights = np.exp(scores - top)
                total_weight = weights.sum() + sum(np.exp(np.float64(x) - top) for x in extra)
                out[b, i, h] = weights @ seen[1][h // group] / (total_weight or 1)
    return [out.reshape(batch, rows, num_heads * size), *caches]


def node(rows, lengths, room=None, heads=4, kv=2, size=16, most=7, beside=None, window=4, shared=0, packed=False,
         rotary=0, norm=False, sink=False, positions=None, counts=None, total=None, low=-2, types=("float",), outputs=3,
         **attrs):
    batch, generator = len(lengths), np.random.default_rng(rows * size)
    tokens, top = batch * rows, max([rows, *lengths])
    inputs = [R((batch, rows, n * size)) for n in (heads, kv, kv)]
    if packed:
        inputs = [R((batch, rows, (heads + 2 * kv) * size)), None, None]
    inputs += [None if room is None else R((batch, kv, room, size))] * 2
    inputs += [None, None] if beside is None else [R((batch, kv, beside, size)), None if shared else
                                                    R((batch, kv, beside, size))]
    span = range(low, max(low + most, top + 3 if beside is None else beside + 3))
    chosen = np.array([generator.permutation(span)[:most] for _ in range(tokens)], int).reshape(tokens, most)
    inputs += [D(chosen.tolist(), "int32") if tokens * most else R((tokens, most)),
               D(counts or [most - i % 3 for i in range(tokens)], "int32"), D([n - 1 for n in lengths], "int32"),
               D([top] if total is None else total, "int32")]
    if tokens * most == 0:
        inputs[7] = D(np.zeros((tokens, most), int), "int32")
    inputs += [R((60, rotary // 2), -1, 1)] * 2 if rotary else [None, None]
    inputs += [D(positions) if positions else None, *([R((size,), 0.5, 2)] * 2 if norm else [None, None])]
    inputs += [R((heads,)) if sink else None]
    while inputs[-1] is None:
        inputs.pop()
    if beside is not None:
        attrs |= {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary",
                  "local_window_size": window, "auxiliary_kv_shared": shared}
    if rotary:
        attrs["do_rotary"] = 1

    def reference(*given, **named):
        return dynamic(*given, **named)[:outputs]

    case("DynamicSparseAttention", inputs, types, (1,), outputs=outputs, domain=MS, slack=4, reference=reference,
         num_heads=heads, kv_num_heads=kv, **attrs)


# No past, a past in a cache with room, one token or several, entries of different lengths.
for heads, kv in ((4, 2), (2, 2), (9, 1)):
    for beside in (None, 20):
        node(9, [9, 9], None, heads, kv, beside=beside, types=TYPES)
        node(1, [1, 30, 40], 40, heads, kv, beside=beside, types=TYPES)
        node(3, [21, 40], 45, heads, kv, beside=beside, packed=True)
for size in (5, 64, 100, 264):
    node(2, [20, 31], 33, size=size, low=0)
    node(2, [20, 31], 33, size=size, beside=25, shared=1)
node(1, [700], 800, heads=2, kv=1, most=600, low=0)
node(1, [700], 800, heads=2, kv=1, most=300, beside=400, window=500)
# Rotary positions of both kinds, norms, sinks; caches that the model does not want.
for interleaved in (0, 1):
    node(3, [21, 40], 45, rotary=16, rotary_interleaved=interleaved, types=TYPES)
    node(3, [21, 40], 45, rotary=8, rotary_interleaved=interleaved, rotary_offset=8, beside=20, packed=True, norm=True,
         positions=[[3, 50, 9], [0, 59, 70]], qk_norm_epsilon=0.25)
node(3, [21, 40], 45, norm=True, sink=True, types=TYPES)
node(3, [21, 40], 45, sink=True, smooth_softmax=1, beside=20, scale=0.7)
node(3, [21, 40], 45, smooth_softmax=1)
node(3, [21, 40], 45, outputs=1)
node(9, [9, 9], outputs=1)
node(3, [21, 40], 45, beside=0, most=3)
node(3, [21, 40], 45, most=0, counts=[5, 0, -1, 2, 1, 9])
node(0, [5], 8)
node(2, [], 8, total=[2], counts=[])
# Lengths, counts and choices that are out of range.
node(2, [1, -(2**31) + 1], 20, total=[20], sink=True)
node(2, [2**31, 0], 20, total=[20], beside=9)
for counts in ([0] * 4, [-(2**31)] * 4, [2**31 - 1] * 4):
    node(2, [12, 20], 20, counts=counts)
    node(2, [12, 20], 20, counts=counts, beside=9)
