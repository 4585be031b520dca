# SPDX-License-Identifier: Apache-2.0
"""SparseAttentionIndexer and PackedSparseAttentionIndexer of com.microsoft, which ONNX Runtime's CPU provider does not
have, against NumPy: what their documentation in ONNX Runtime's registry of schemas says, entry by entry."""

import functools

import ml_dtypes
import numpy as np

from cases.attention import MS
from cases.kit import D, R, case

KEPT = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TYPES = tuple(KEPT)


def f64(*arrays):
    return [x if x is None else x.astype(np.float64) for x in arrays]


def normed(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def turned(x, position, cosine, sine, gated):
    """One position, the last dimension: the first elements by halves, or the last ones by neighbours."""
    row = min(max(position, 0), len(cosine) - 1)
    c, s, out = cosine[row], sine[row], x.copy()
    if gated:
        part = out[..., out.shape[-1] - 2 * len(c) :]
        even, odd = part[..., 0::2].copy(), part[..., 1::2].copy()
        part[..., 0::2], part[..., 1::2] = even * c - odd * s, odd * c + even * s
    else:
        part, half = out[..., : len(c)], len(c) // 2
        part[:] = part * c + np.concatenate([-part[..., half:], part[..., :half]], -1) * s
    return out


def best_of(scores, most):
    """Places of the highest scores, the first of equal ones first."""
    return np.argsort(-scores, kind="stable")[:most]


def scored(q, keys, weights=None):
    dots = np.maximum(q @ keys.T, 0)
    return dots.sum(0) if weights is None else weights @ dots


def padded(row, places):
    return [*row, *[-1] * (places - len(row))]


def pooled(key, gate, bias, first, ratio, size):
    """The window of tokens from `first` on, and the one before it where there is one."""
    halves = [slice(0, size), slice(size, 2 * size)] if first >= ratio else [slice(size, 2 * size)]
    starts = [first - ratio, first] if first >= ratio else [first]
    with np.errstate(invalid="ignore", over="ignore"):
        gates = np.concatenate([gate[a : a + ratio, h] + bias[:, h] for a, h in zip(starts, halves, strict=True)])
        values = np.concatenate([key[a : a + ratio, h] for a, h in zip(starts, halves, strict=True)])
        weights = np.exp(gates - gates.max(0))
        total = weights.sum(0)
        return np.where((total > 0) & np.isfinite(total), (weights * values).sum(0) / total, 0)


def windows(waiting, fresh, ratio):
    """Tokens of the last full window, new windows, where all that is kept begins, and how much that is."""
    before = ratio if waiting >= ratio else 0
    made, rest = divmod(waiting - before + fresh, ratio)
    return (before, made, before + (made - 1) * ratio, ratio + rest) if made else (before, 0, 0, waiting + fresh)


def indexer(q, key, q_norm, k_norm, cosine, sine, mask, past, gate=None, bias=None, weights=None, positions=None,
            length=None, waiting=None, kind="float", policy_mode="qsa", compress_ratio=1, token_budget=0, index_topk=0,
            epsilon=1e-6, scale=None, head_weight_scale=None):
    ratio, size, batch, rows = compress_ratio, len(q_norm), *q.shape[:2]
    q, key, q_norm, k_norm, cosine, sine, gate, bias, weights = f64(
        q, key, q_norm, k_norm, cosine, sine, gate, bias, weights)
    gated = policy_mode == "csa"
    if key is None:
        q, key = q[..., :-size], q[..., -size:]
    heads = q.shape[2] // size
    q = normed(q.reshape(batch, rows, heads, size), q_norm, epsilon)
    used = past.shape[1] if length is None else int(length[0])
    scale = size**-0.5 if scale is None else scale
    scale *= (heads**-0.5 if head_weight_scale is None else head_weight_scale) if gated else 1
    places = index_topk if gated else token_budget + ratio - 1
    fresh, kept = rows, None
    if gated:
        before, fresh, first, left = windows(waiting.shape[2], rows, ratio)
        both = [np.concatenate([old.astype(np.float64), new], 1) for old, new in zip(waiting, (key, gate), strict=True)]
        kept = np.stack([x[:, first : first + left] for x in both])
    present = np.zeros((batch, past.shape[1] if length is not None else used + fresh, size))
    present[:, : past.shape[1]] = past
    chosen = np.zeros((batch, rows, places), np.int32)
    for b in range(batch):
        tables = [x[b] if x.ndim == 3 else x for x in (cosine, sine)]
        if not gated:
            present[b, used : used + rows] = key[b]
        for w in range(fresh if gated else 0):
            one = pooled(both[0][b], both[1][b], bias, before + w * ratio, ratio, size)
            one = turned(normed(one, k_norm, epsilon), (used + w) * ratio, *tables, True)
            present[b, used + w] = one
        # What is kept is rounded to its type, and scores see that.
        seen = present[b].astype(KEPT[kind]).astype(np.float64)
        for i in range(rows):
            if gated:
                keys = seen[: min(max(0, (int(positions[b, i]) + 1) // ratio), used + fresh)]
                query = turned(q[b, i], int(positions[b, i]), *tables, True)
                chosen[b, i] = padded(best_of(scored(query, keys, weights[b, i]) * scale, places), places)
                continue
            shown = np.arange(used + i + 1) if mask is None else np.flatnonzero(mask[b, : used + i + 1])
            whole = len(shown) // ratio
            groups = shown[: whole * ratio].reshape(whole, ratio)
            keys = normed(seen[groups].mean(1), k_norm, epsilon) if whole else np.zeros((0, size))
            keys = np.array([turned(k, g[0], *tables, False) for k, g in zip(keys, groups, strict=True)])
            query = turned(q[b, i], used + i, *tables, False)
            best = best_of(scored(query, keys) * scale, token_budget // ratio) if whole else []
            chosen[b, i] = padded([*groups[best].ravel(), *shown[whole * ratio :]] if whole else shown, places)
    return [chosen, present, kept] if gated else [chosen, present]


def tried(op, inputs, types, reference, **attrs):
    for kind in types:
        case(op, inputs, (kind,), (1,), domain=MS, slack=4, reference=functools.partial(reference, kind=kind), **attrs)


def tables(entries, width, each=False, room=60):
    return [R((entries, room, width) if each else (room, width), -1, 1)] * 2


def qsa(batch, rows, past, heads=2, size=16, ratio=4, budget=8, width=8, packed=False, mask=None, room=None, each=False,
        types=("float",), **attrs):
    total = past + rows
    inputs = [R((batch, rows, (heads + packed) * size)), None if packed else R((batch, rows, size)),
              R((size,), 0.5, 2), R((size,), 0.5, 2), *tables(batch, width, each)]
    if mask is not None:
        generator = np.random.default_rng(total)
        mask = D((generator.random((batch, total)) < mask).astype(int).reshape(batch, total).tolist())
        mask = mask if batch * total else None
    inputs += [mask, R((batch, past if room is None else room, size))]
    if room is not None:
        inputs += [None] * 4 + [D([past], "int32")]
    tried("SparseAttentionIndexer", inputs, types, indexer, outputs=2, policy_mode="qsa", compress_ratio=ratio,
          token_budget=budget, **attrs)


def csa(batch, rows, past, waiting, heads=2, size=16, ratio=4, best=3, width=4, room=None, each=False, positions=None,
        types=("float",), gates=R, **attrs):
    if positions is None:
        positions = [[past * ratio + waiting % ratio + i for i in range(rows)] for _ in range(batch)]
    inputs = [R((batch, rows, heads * size)), R((batch, rows, 2 * size)), R((size,), 0.5, 2), R((size,), 0.5, 2),
              *tables(batch, width, each), None, R((batch, past if room is None else room, size)),
              gates((batch, rows, 2 * size)), R((ratio, 2 * size)), R((batch, rows, heads)),
              D(positions) if batch * rows else R((batch, rows)), None if room is None else D([past], "int32"),
              R((2, batch, waiting, 2 * size))]
    if batch * rows:
        tried("SparseAttentionIndexer", inputs, types, indexer, outputs=3, policy_mode="csa", compress_ratio=ratio,
              index_topk=best, **attrs)


# Tokens by their windows: no past, a past, one in a room of its own; few windows, none, more than are taken.
for batch, rows, past in ((1, 1, 0), (2, 3, 0), (2, 1, 21), (1, 30, 7), (3, 7, 40)):
    qsa(batch, rows, past, types=TYPES)
    qsa(batch, rows, past, heads=5, size=24, width=24, packed=True, each=True, budget=16)
    qsa(batch, rows, past, mask=0.6, ratio=3, budget=9, types=TYPES)
    qsa(batch, rows, past, room=60, mask=0.8, packed=True)
    qsa(batch, rows, past, room=past + rows, ratio=1, budget=2)
for size, heads in ((2, 1), (7, 3), (64, 70), (128, 8), (300, 2)):
    qsa(2, 3, 30, heads, size, width=2)
    qsa(1, 9, 0, heads, size, width=size // 2 * 2, scale=0.5, epsilon=0.1)
qsa(1, 5, 3000, heads=1, size=8, budget=1200)
qsa(1, 2, 2600, heads=1, size=8, ratio=1, budget=2300)
qsa(2, 0, 5)
qsa(0, 3, 5)
qsa(2, 4, 5, mask=0.0)
qsa(2, 4, 5, mask=1.0, ratio=20, budget=20)
# Windows that are kept as keys: tokens that wait, of one window or of two; windows that end in this run.
for waiting in (0, 1, 3, 4, 7):
    for rows in (1, 3, 5, 18):
        csa(2, rows, 0 if waiting < 4 else 1, waiting)
    csa(2, 6, 9, waiting, heads=5, size=24, width=12, each=True, types=TYPES)
    csa(2, 6, 9, waiting, room=11 if waiting < 6 else 12, ratio=4)
for size, heads in ((2, 1), (7, 3), (64, 70), (128, 8), (300, 2)):
    csa(1, 5, 6, 5, heads, size, width=1, scale=0.5, epsilon=0.1, head_weight_scale=0.2)
csa(1, 2, 5000, 1, heads=1, size=8, best=600)
csa(1, 3, 7, 5, ratio=3, positions=[[-(2**63), 2**63 - 1, 5]])
csa(2, 3, 0, 0, ratio=1, width=8, best=50, types=TYPES)
csa(1, 9, 0, 0, gates=lambda shape: D(np.where(np.arange(np.prod(shape)) % 7 < 3, -np.inf, 1).reshape(shape).tolist(),
                                      "float"))
csa(1, 9, 0, 0, gates=lambda shape: D(np.where(np.arange(np.prod(shape)) % 7 < 1, np.inf, 1).reshape(shape).tolist(),
                                      "float"))


def packed(q, key, q_norm, k_norm, cosine, sine, starts, pasts, gate=None, bias=None, weights=None, positions=None,
           states=None, waits=None, wait_gates=None, lengths=None, wanted=None, active=None, kind="float",
           policy_mode="qsa", compress_ratio=1, state_capacity=1, state_update_capacity=0, token_budget=0, index_topk=0,
           epsilon=1e-6, scale=None, head_weight_scale=None):
    ratio, size, gated, tokens = compress_ratio, len(q_norm), policy_mode == "csa", len(q)
    q, key, q_norm, k_norm, cosine, sine, gate, bias, weights = f64(
        q, key, q_norm, k_norm, cosine, sine, gate, bias, weights)
    if key is None:
        q, key = q[:, :-size], q[:, -size:]
    heads = q.shape[1] // size
    q = normed(q.reshape(tokens, heads, size), q_norm, epsilon)
    scale = size**-0.5 if scale is None else scale
    scale *= (heads**-0.5 if head_weight_scale is None else head_weight_scale) if gated else 1
    places = index_topk if gated else token_budget + ratio - 1
    chosen, counts = np.full((tokens, places), -1, np.int32), np.zeros(tokens, np.int32)
    keys, kept, kept_gates = f64(states, waits, wait_gates)
    after, told = lengths.copy(), np.zeros((len(pasts), state_update_capacity, size))
    for b, past in enumerate(pasts.tolist()):
        first, end, used, waiting = *starts[b : b + 2].tolist(), *lengths[b].tolist()
        most = 2 * ratio - 1 if gated else ratio - 1
        after[b] = min(max(used, 0), state_capacity), min(max(waiting, 0), most)
        if (starts[0] != 0 or starts[-1] != tokens or not 0 <= first <= end <= tokens or past < 0
                or not 0 <= used <= state_capacity or not 0 <= waiting <= most
                or (not gated and divmod(past, ratio) != (used, waiting))):
            continue
        before, made, begin, left = windows(waiting, end - first, ratio)
        if not gated:
            made, left = divmod(waiting + end - first, ratio)
            begin, before = made * ratio, 0
        if used + made > state_capacity:
            continue
        after[b] = used + made, left
        all_keys = np.concatenate([waits[b, :waiting].astype(np.float64), key[first:end]])
        all_gates = np.concatenate([wait_gates[b, :waiting].astype(np.float64), gate[first:end]]) if gated else None
        tables = [x[b] if x.ndim == 3 else x for x in (cosine, sine)]
        shown = 0 if wanted is None or (active is not None and active[0] == 0) else min(
            max(int(wanted[b]), 0), end - first, state_update_capacity)
        if shown:
            told[b, :shown] = key[first : first + shown]
        for w in range(made):
            at = before + w * ratio
            one = pooled(all_keys, all_gates, bias, at, ratio, size) if gated else all_keys[at : at + ratio].mean(0)
            one = turned(normed(one, k_norm, epsilon), (used + w) * ratio, *tables, gated)
            keys[b, used + w] = one
            if 0 <= at + ratio - 1 - waiting < shown:
                told[b, at + ratio - 1 - waiting] = one
        kept[b, :left] = all_keys[begin : begin + left]
        if gated:
            kept_gates[b, :left] = all_gates[begin : begin + left]
        seen = keys[b].astype(KEPT[kind]).astype(np.float64)
        for t in range(first, end):
            position = int(positions[t]) if gated else past + t - first
            whole = min(max(0, position + 1) // ratio, used + made)
            query = turned(q[t], position, *tables, gated)
            best = best_of(scored(query, seen[:whole], weights[t] if gated else None) * scale, index_topk if gated else
                           token_budget // ratio)
            row = best if gated else [*(best[:, None] * ratio + np.arange(ratio)).ravel(),
                                      *range(whole * ratio, position + 1)]
            chosen[t, : len(row)], counts[t] = row, len(row)
    outputs = [chosen, counts, keys, kept, *([kept_gates] if gated else []), after]
    return outputs + ([told] if state_update_capacity else [])


def several(lengths, past, policy="qsa", heads=2, size=16, ratio=4, capacity=12, width=8, joined=False, each=False,
            states=None, starts=None, wanted=None, active=None, positions=None, types=("float",), **attrs):
    gated, batch, tokens = policy == "csa", len(lengths), sum(lengths)
    width = width // 2 if gated else width
    wide = 2 * size if gated else size
    starts = [0, *np.cumsum(lengths).tolist()] if starts is None else starts
    states = [divmod(p, ratio) for p in past] if states is None else states
    inputs = [R((tokens, (heads + joined) * size)), None if joined else R((tokens, wide)), R((size,), 0.5, 2),
              R((size,), 0.5, 2), *tables(batch, width, each), D(starts, "int32"), D(list(past), "int32")]
    inputs += [None] * 4
    if gated:
        local = [k * ratio + w % ratio + i for n, (k, w) in zip(lengths, states, strict=True) for i in range(n)]
        inputs[8:] = [R((tokens, wide)), R((ratio, wide)), R((tokens, heads)), D(positions or local)]
    inputs += [R((batch, capacity, size)), R((batch, 2 * ratio - 1, wide)), None, D([list(s) for s in states], "int32")]
    if gated:
        inputs[14] = inputs[13]
    updates = attrs.get("state_update_capacity", 0)
    if wanted is not None:
        inputs += [D(wanted, "int32"), None if active is None else D([active], "int32")]
    while inputs[-1] is None:
        inputs.pop()
    attrs |= {"index_topk": 3} if gated else {"token_budget": 2 * ratio}
    tried("PackedSparseAttentionIndexer", inputs, types, packed, outputs=7 if updates else 6,
          absent=() if gated else (4,), policy_mode=policy, compress_ratio=ratio, state_capacity=capacity, **attrs)


# The same of a packed batch, whose lengths are on the device.
for lengths, past in (([1], [0]), ([1, 1], [21, 30]), ([5, 0, 12], [3, 8, 20]), ([9, 30], [0, 7])):
    states = [divmod(p, 4) for p in past]
    several(lengths, past, types=TYPES)
    several(lengths, past, heads=5, size=24, width=24, joined=True, each=True)
    several(lengths, past, ratio=3, capacity=13, wanted=[20, 1, -3][: len(past)], state_update_capacity=5, types=TYPES)
    several(lengths, past, wanted=[3] * len(past), active=1, state_update_capacity=2, joined=True)
    several(lengths, past, wanted=[3] * len(past), active=0, state_update_capacity=8)
    several(lengths, past, ratio=1, capacity=40)
    several(lengths, past, "csa", states=states, types=TYPES)
    several(lengths, past, "csa", 5, 24, states=[(n, 4 + k) for n, k in states], width=24, each=True, capacity=14)
    several(lengths, past, "csa", ratio=1, states=[(p, 1) for p in past], capacity=40)
for size, heads in ((2, 1), (64, 70), (300, 2)):
    several([3, 2], [30, 9], heads=heads, size=size, width=2, scale=0.5, epsilon=0.1)
    several([3, 2], [30, 9], "csa", heads=heads, size=size, width=2, scale=0.5, states=[(5, 3), (2, 5)],
            head_weight_scale=0.2)
several([5, 2], [15000, 9], heads=1, size=8, capacity=4000)
several([0, 0], [5, 2])
# Keys that do not fit, numbers that do not fit together, positions out of range.
several([3, 9], [47, 12], wanted=[2, 2], state_update_capacity=3, capacity=12)
several([9, 3], [40, 12], "csa", states=[(12, 1), (4, 2)])
LEAST, MOST = -(2**31), 2**31 - 1
for starts in ([0, 9, 5], [0, LEAST, 5], [1, 2, 5], [0, 3, MOST], [0, 3, 4], [MOST, LEAST, MOST]):
    several([3, 2], [20, 8], starts=starts, wanted=[1, 1], state_update_capacity=2)
    several([3, 2], [20, 8], "csa", states=[(5, 0), (2, 0)], starts=starts)
for states in ([(LEAST, MOST), (MOST, LEAST)], [(13, 0), (2, 9)], [(5, -1), (-1, 3)], [(4, 2), (2, 1)]):
    several([3, 2], [20, 8], states=states, wanted=[LEAST, MOST], state_update_capacity=2)
    several([3, 2], [20, 8], "csa", states=states, positions=[-(2**63), 2**63 - 1, 5, -1, 30])
several([3, 2], [LEAST, MOST], wanted=[2, 2], state_update_capacity=2, states=[(0, 0), (MOST // 4, 3)])
