# SPDX-License-Identifier: Apache-2.0
"""Cases of GroupQueryAttention whose heads are normed before they are rotated, as Qwen 3 has it.

The CPU provider refuses that, so what it does is written out here.
"""

import numpy as np

from cases.attention import NARROW, grouped
from cases.dense_attention import attended, heads_of
from cases.kit import R


def turned(x, cosine, sine, first):
    """Heads of x in halves, each token by its position from `first` on."""
    half = cosine.shape[1]
    at = np.arange(first, first + x.shape[2])
    a, b, c, s = x[..., :half], x[..., half:2 * half], cosine[at], sine[at]
    return np.concatenate([a * c - b * s, a * s + b * c, x[..., 2 * half:]], -1)


def normed_grouped(query, key, value, past_key, past_value, lengths, total, *rest, num_heads, kv_num_heads, do_rotary,
                   qk_norm_epsilon=1e-6, **_):
    """For entries of one length."""
    if key is None:
        size = query.shape[2] // (num_heads + 2 * kv_num_heads)
        query, key, value = np.split(query, np.cumsum([num_heads * size, kv_num_heads * size]), 2)
    sides = []
    for x, heads, weight in ((query, num_heads, rest[7]), (key, kv_num_heads, rest[8])):
        x = heads_of(np.asarray(x, np.float64), heads)
        x = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + qk_norm_epsilon) * np.asarray(weight, np.float64)
        past = int(np.ravel(total)[0]) - x.shape[2]
        sides.append(turned(x, np.asarray(rest[0], np.float64), np.asarray(rest[1], np.float64), past)
                     if do_rotary else x)
    q, fresh = sides
    caches = [(past_key, fresh), (past_value, heads_of(np.asarray(value, np.float64), kv_num_heads))]
    keys, values = (new if past is None else np.concatenate([past, new], 2) for past, new in caches)
    k, v = (np.repeat(x, num_heads // kv_num_heads, 1) for x in (keys, values))
    y, _ = attended(q, k, v, causal=True)
    return [y, keys, values]


for packed in (False, True):
    for rows, past, size in ((5, 0, 16), (1, 7, 16), (3, 6, 32), (2, 4, 10)):
        for rotary in (0, size):
            grouped(2, rows, past, size, packed=packed, rotary=rotary, types=NARROW, reference=normed_grouped,
                    qk_norm_epsilon=0.01, rest=[*[None] * 5, R((size,)), R((size,))])
