# SPDX-License-Identifier: Apache-2.0
"""SparseAttentionIndexer and PackedSparseAttentionIndexer of com.microsoft, which ONNX Runtime's CPU provider does not
have, against NumPy: what their documentation in ONNX Runtime's registry of schemas says, entry by entry."""

import numpy as np

from cases.attention import MS
from cases.kit import D, R, case

TYPES = ("float", "float16", "bfloat16")


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
            length=None, waiting=None, policy_mode="qsa", compress_ratio=1, token_budget=0, index_topk=0, epsilon=1e-6,
            scale=None, head_weight_scale=None):
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
        seen = present[b].astype(past.dtype).astype(np.float64)
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
    case("SparseAttentionIndexer", inputs, types, (1,), outputs=2, domain=MS, slack=4, reference=indexer,
         policy_mode="qsa", compress_ratio=ratio, token_budget=budget, **attrs)


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
        case("SparseAttentionIndexer", inputs, types, (1,), outputs=3, domain=MS, slack=4, reference=indexer,
             policy_mode="csa", compress_ratio=ratio, index_topk=best, **attrs)


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
