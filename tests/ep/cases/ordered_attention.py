# SPDX-License-Identifier: Apache-2.0
"""Attention in int8 from end to end, which no CPU provider has: against NumPy, as ONNX Runtime's CUDA provider rounds
(contrib_ops/cuda/quantization/qordered_ops/qordered_attention.cc: what every step gives is bytes of a scale of its own,
biases are in real units, weights lie column by column, the softmax is of scores / sqrt(head))."""

import numpy as np

from cases.kit import D, K, case

COL, ROW = 0, 1
MS = {"domain": "com.microsoft", "opsets": (1,)}
MASK = 17


def rounded(x, scale):
    with np.errstate(all="ignore"):
        return np.clip(np.rint(x / float(scale)), -128, 127)


def seen_by(mask, batch, rows, causal):
    """[batch, rows, keys]: which keys count."""
    keys = np.arange(rows)
    seen = np.ones((batch, rows, rows), bool)
    if mask is not None and mask.ndim == 1:
        ends = mask[:batch, None, None]
        starts = mask[batch:, None, None] if len(mask) == 2 * batch else 0
        seen &= (keys < ends) & (keys >= starts)
    elif mask is not None and mask.ndim == 4:
        seen &= mask[:, 0, :rows, :rows] > 0
    elif mask is not None and mask.shape[-1] == rows:
        seen &= mask.reshape(batch, -1, rows) > 0
    return seen & (keys[None, :] <= keys[:, None]) if causal else seen


def attention(x, x_scale, *rest, num_heads, unidirectional=0, **_):
    side_scales, weights, weight_scales, biases = (rest[i:i + 3] for i in range(0, 12, 3))
    score_scale, share_scale, y_scale = rest[12:15]
    batch, rows, _ = x.shape
    sides = []
    for scale, weight, weight_scale, bias in zip(side_scales, weights, weight_scales, biases, strict=True):
        plain = weight.reshape(-1).reshape(weight.shape[1], weight.shape[0]).T.astype(float)
        real = (x.astype(float) @ plain) * (float(x_scale) * np.asarray(weight_scale, float)) + bias
        heads = (batch, rows, num_heads, weight.shape[1] // num_heads)
        sides.append(rounded(real, scale).reshape(heads).swapaxes(1, 2))
    q, k, v = sides
    scores = rounded(q @ k.swapaxes(2, 3) * float(side_scales[0]) * float(side_scales[1]), score_scale)
    seen = seen_by(rest[15] if len(rest) > 15 else None, batch, rows, unidirectional)[:, None]
    with np.errstate(all="ignore"):
        raised = scores * float(score_scale) / np.sqrt(q.shape[-1])
        raised = np.where(seen, raised, -np.inf)
        shares = np.exp(raised - raised.max(-1, keepdims=True, initial=-1e30))
        shares = np.nan_to_num(shares / shares.sum(-1, keepdims=True))
    bytes_of_shares = rounded(shares, share_scale)
    y = rounded(bytes_of_shares @ v * float(share_scale) * float(side_scales[2]), y_scale)
    return [y.swapaxes(1, 2).reshape(*x.shape[:2], weight.shape[1]).astype(np.int8)]


def layer(batch, rows, width, hidden, *, seed=1, lines=False, weights=D, powers=True):
    """Scales are powers of two, so that nothing but the softmax is rounded twice; or as in trained models."""
    generator = np.random.default_rng(seed)
    x = D(generator.integers(-64, 64, (batch, rows, width)).astype(np.int8), "int8")
    kinds = [weights(generator.integers(-128, 128, (width, hidden)).astype(np.int8), "int8") for _ in range(3)]
    near = 1.0 if powers else 1.07
    scale = np.float32(near / 64)
    per_line = 2.0 ** -generator.integers(6, 8, hidden) * near
    lines = [D(per_line.astype(np.float32) if lines else scale, "float")] * 3
    biases = [weights(generator.integers(-64, 64, hidden) / 64, "float") for _ in range(3)]
    sides = [D(near * 2.0**power, "float") for power in (-2, -3, -2)]
    last = [D(value * near, "float") for value in (0.5, 1 / 128, 0.25)]
    return [x, D(near / 32, "float"), *sides, *kinds, *lines, *biases, *last]


def node(inputs, heads=2, **attrs):
    case("QOrderedAttention", inputs, ("int8",), reference=attention, num_heads=heads, order_input=ROW,
         order_weight=COL, order_output=ROW, **attrs, **MS)


def ints(values):
    return D(np.asarray(values), "int32")


for rows, width, hidden, heads in ((16, 32, 32, 2), (1, 8, 6, 2), (5, 13, 9, 3), (40, 24, 48, 1), (33, 32, 64, 4)):
    for lines in (False, True):
        node(layer(2, rows, width, hidden, lines=lines), heads, qkv_hidden_sizes=[hidden] * 3)
    node(layer(2, rows, width, hidden, weights=K), heads)
    node(layer(2, rows, width, hidden, powers=False), heads)
    node(layer(2, rows, width, hidden), heads, unidirectional=1)

# Masks: of keys, other ones in each entry; no key; numbers that are no flags; by queries; ends and beginnings.
flags = (np.arange(2 * 16).reshape(2, 16) % 5 < 3).astype(int)
blocked = np.stack([np.ones(16, int), np.zeros(16, int)])
for mask in (flags, blocked, flags * (2**31 - 1) - (1 - flags) * 2**31, [[1], [0]], [[0]],
             np.arange(2 * 16 * 16).reshape(2, 16, 16) % 3 > 0, np.arange(2 * 20 * 20).reshape(2, 1, 20, 20) % 3 > 0,
             [11, 16], [0, 99], [9, 16, 3, 20], [-5, 2**31 - 1, -7, 4]):
    for causal in (0, 1):
        node([*layer(2, 16, 32, 32), ints(mask)], unidirectional=causal)

# Empty batches, rows and inputs; other shapes in the same session.
for shape in ((0, 16, 32, 32), (2, 0, 32, 32), (2, 5, 0, 32), (2, 5, 8, 0)):
    node(layer(*shape))
case("QOrderedAttention", layer(2, 16, 32, 32), ("int8",), reference=attention, num_heads=2, order_input=ROW,
     order_weight=COL, order_output=ROW, runs=[layer(1, 7, 32, 32, seed=2), layer(2, 16, 32, 32, seed=3)], **MS)
