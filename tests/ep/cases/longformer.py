# SPDX-License-Identifier: Apache-2.0
"""Attention within a window with global tokens, which no CPU provider has: against NumPy, by what ONNX Runtime's schema
says, and by its CUDA provider (contrib_ops/cuda/bert/longformer_attention*): a token whose mask is below 0 is 0, the
mask of a key is added to its score, and three matrices of weights come with five biases and one. Unlike there, global
tokens may be anywhere and of any number.

Its form in int8 is against what qordered_longformer_attention.cc there does: projections are rounded to bytes, whose
bias is in steps of theirs, and attention is in float16."""

import numpy as np

from cases.kit import INF, NAN, D, K, R, case

MS = {"domain": "com.microsoft", "opsets": (1,)}
BOTH = ("float", "float16")


def heads_of(x, heads):
    """[batch, rows, width] as [batch, heads, rows, size]."""
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def attended(local, own, mask, flags, heads, window):
    """Token by token; `local` and `own` are Q, K and V of all tokens, in double."""
    (q, k, v), (own_q, own_k, own_v) = ([heads_of(side, heads) for side in sides] for sides in (local, own))
    batch, _, rows, size = q.shape
    y = np.zeros_like(v)
    for entry, row in np.ndindex(batch, rows):
        if mask[entry, row] < 0:
            continue
        one = flags[entry, row] != 0
        keys = np.arange(rows)
        keys = keys if one else keys[(np.abs(keys - row) <= window) | (flags[entry] != 0)]
        queries, of, values = (own_q, own_k, own_v) if one else (q, k, v)
        with np.errstate(all="ignore"):
            scores = np.einsum("hd,hkd->hk", queries[entry, :, row], of[entry][:, keys]) / np.sqrt(size)
            scores += mask[entry, keys]
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            y[entry, :, row] = np.einsum("hk,hkd->hd", shares, values[entry][:, keys])
    return y.swapaxes(1, 2).reshape(batch, rows, -1 if y.size else local[0].shape[2])


def longformer(x, weight, bias, mask, own_weight, own_bias, flags, *, num_heads, window):
    x, mask = x.astype(float), mask.astype(float)
    if weight.ndim == 3:
        own_bias = np.concatenate([own_bias, bias[3 * x.shape[2]:]])
        bias = bias[:3 * x.shape[2]]
        weight, own_weight = (np.concatenate(list(w), axis=1) for w in (weight, own_weight))
    sides = (np.split(x @ w.astype(float) + b, 3, axis=2) for w, b in ((weight, bias), (own_weight, own_bias)))
    return [attended(*sides, mask, flags, num_heads, window)]


def layer(batch, rows, width, mask=None, flags=None, *, apart=False, reach=1.0):
    padding = np.zeros((batch, rows)) if mask is None else np.broadcast_to(mask, (batch, rows))
    marked = np.zeros((batch, rows)) if flags is None else np.broadcast_to(flags, (batch, rows))
    shape = (3, width, width) if apart else (width, 3 * width)
    biases = (5 * width, width) if apart else (3 * width, 3 * width)
    low = reach / max(width, 1) ** 0.5
    weights = [R(shape, -2 * low, 2 * low) for _ in range(2)]
    typed = [[R((batch, rows, width)), weights[0], R((biases[0],), -0.5, 0.5), D(padding.tolist(), kind), weights[1],
              R((biases[1],), -0.5, 0.5), D(marked.tolist(), "int32")] for kind in BOTH]
    for inputs in typed:  # lists say nothing of an empty tensor's shape
        inputs[3], inputs[6] = D(padding, inputs[3].type), D(marked, "int32")
    return dict(zip(BOTH, typed, strict=True))


def node(inputs, window, heads=2, runs=(), slack=8):
    for kind in BOTH:
        case("LongformerAttention", inputs[kind], (kind,), reference=longformer, num_heads=heads, window=window,
             slack=slack, runs=[run[kind] for run in runs], **MS)


def at(rows, *places):
    return np.isin(np.arange(rows), places)


def ends(rows, *counts):
    """Masks of entries of so many tokens, padded behind."""
    return np.where(np.arange(rows) < np.array(counts)[:, None], 0.0, -10000.0)


# Windows of one key and of many tokens, tiles that windows end in, heads of any size.
for rows, window, width, heads in ((2, 1, 6, 2), (8, 2, 8, 2), (24, 3, 10, 1), (96, 8, 32, 2), (96, 48, 48, 3),
                                   (320, 16, 16, 2), (320, 80, 8, 1), (16, 2, 520, 2)):
    node(layer(2, rows, width), window, heads)
    node(layer(2, rows, width, flags=at(rows, 0)), window, heads)
    some = np.stack([at(rows, 1, rows // 2, rows - 1), at(rows, 0, 2, rows // 3)])
    padded = ends(rows, rows - rows // 3, rows)
    node(layer(2, rows, width, padded, some), window, heads)
    node(layer(2, rows, width, padded, some, apart=True), window, heads)

# Which tokens are global: none, all, more than the window, those at its edges, none of one entry, padding.
ROWS, WINDOW = 80, 5
everywhere = np.ones(ROWS)
for flags in (np.zeros(ROWS), everywhere, at(ROWS, *range(70)), at(ROWS, *range(0, ROWS, 2)), at(ROWS, 30, 35, 40, 25),
              np.stack([everywhere, np.zeros(ROWS)]), at(ROWS, 79), np.where(at(ROWS, 3, 44), -(2**31), 0),
              np.where(at(ROWS, 3, 44), 2**31 - 1, 0)):
    for mask in (None, ends(ROWS, 33, ROWS), ends(ROWS, 0, 64)):
        node(layer(2, ROWS, 16, mask, flags), WINDOW)

# Masks that are no padding: of all, holes, gentle ones, above 0, without end, no number; -0.0 is not below 0.
holes = np.where(np.arange(ROWS) % 3 == 0, -10000.0, 0.0)
for mask in (np.full(ROWS, -10000.0), holes, np.where(np.arange(ROWS) % 2, -0.5, 0.75), np.full(ROWS, -0.0),
             np.where(at(ROWS, 7, 50), -INF, 0.0), np.where(at(ROWS, 50), NAN, 0.0), np.where(at(ROWS, 7), INF, 0.0)):
    node(layer(2, ROWS, 16, mask, at(ROWS, 2, 50)), WINDOW)

# One head alone, one entry, scores far apart; nothing at all; other shapes and flags in the same session.
node(layer(1, 64, 24, flags=at(64, 5)), 4, heads=1)
node(layer(2, 32, 16, flags=at(32, 5), reach=6.0), 4, slack=64)
for shape in ((0, 8, 8), (2, 0, 8), (2, 8, 0)):
    node(layer(*shape), 2)
node(layer(2, 16, 16), 4, runs=[layer(1, 80, 16, ends(80, 50), at(80, 3, 9)), layer(2, 16, 16, flags=at(16, 15))])


# ---- in int8 ----


def ordered_sides(x, x_scale, weight, weight_scale, bias, scale):
    """Q, K and V as the bytes that stand for them; the weights lie column by column."""
    plain = weight.reshape(weight.shape[1], weight.shape[0]).T.astype(float)
    steps = x.astype(float) @ plain * (float(x_scale) * float(weight_scale) / float(scale)) + bias
    real = np.clip(np.rint(steps), -128, 127) * float(scale)
    return np.split(real.astype(np.float16).astype(float), 3, axis=2)


def ordered(x, x_scale, weight, weight_scale, bias, _bias_scale, scale, mask, own_weight, own_weight_scale, own_bias,
            own_scale, flags, y_scale, *, num_heads, window, **_):
    local = ordered_sides(x, x_scale, weight, weight_scale, bias, scale)
    own = ordered_sides(x, x_scale, own_weight, own_weight_scale, own_bias, own_scale)
    y = attended(local, own, mask.astype(float), flags, num_heads, window).astype(np.float16).astype(float)
    with np.errstate(all="ignore"):
        steps = np.rint(y / float(y_scale))
    return [np.clip(np.nan_to_num(steps, nan=-128), -128, 127).astype(np.int8)]


def ordered_layer(batch, rows, width, mask=None, flags=None, *, seed=1, weights=D):
    generator = np.random.default_rng(seed)
    padding = np.zeros((batch, rows)) if mask is None else np.broadcast_to(mask, (batch, rows))
    marked = np.zeros((batch, rows)) if flags is None else np.broadcast_to(flags, (batch, rows))
    x = D(generator.integers(-64, 64, (batch, rows, width)), "int8")
    sides = []
    for power in (-2, -3):
        matrix = weights(generator.integers(-128, 128, (width, 3 * width)).astype(np.int8), "int8")
        bias = weights((generator.integers(-64, 64, 3 * width) / 4).astype(np.float32), "float")
        sides.append([matrix, D(1 / 64, "float"), bias, D(2.0**power, "float")])
    (weight, weight_scale, bias, scale), (own_weight, own_weight_scale, own_bias, own_scale) = sides
    return [x, D(1 / 32, "float"), weight, weight_scale, bias, D([3.0, -1.0], "float"), scale, D(padding, "float16"),
            own_weight, own_weight_scale, own_bias, own_scale, D(marked, "int32"), D(1 / 8, "float")]


def ordered_node(inputs, window, heads=2, runs=()):
    case("QOrderedLongformerAttention", inputs, ("int8",), reference=ordered, num_heads=heads, window=window,
         order_input=1, order_weight=0, order_global_weight=0, order_output=1, runs=runs, **MS)


for rows, window, width, heads in ((2, 1, 6, 2), (24, 3, 12, 3), (96, 8, 32, 2), (80, 40, 16, 1)):
    some = np.stack([at(rows, 1, rows // 2, rows - 1), at(rows, 0, 2, rows // 3)])
    padded = ends(rows, rows - rows // 3, rows)
    for mask, flags in ((None, None), (None, at(rows, 0)), (padded, some), (None, np.ones(rows)),
                        (np.full(rows, -10000.0), some)):
        ordered_node(ordered_layer(2, rows, width, mask, flags), window, heads)
    ordered_node(ordered_layer(2, rows, width, padded, some, weights=K), window, heads)
ordered_node(ordered_layer(2, 32, 16, np.where(at(32, 7), NAN, 0.0), at(32, 3)), 2)
for shape in ((0, 8, 8), (2, 0, 8), (2, 8, 0)):
    ordered_node(ordered_layer(*shape), 2)
ordered_node(ordered_layer(2, 16, 16), 4, runs=[ordered_layer(1, 80, 16, ends(80, 50), at(80, 3, 9)),
                                               ordered_layer(2, 16, 16, flags=at(16, 15), seed=2)])
