# SPDX-License-Identifier: Apache-2.0
"""Cases of GroupQueryAttention whose caches keep a window of the tokens, as Gemma has it in every other layer.

What is behind the rows that a cache has is left open; we write zeros there, and the CPU provider does not. So what it
does is written out here; tests/genai compares tokens with the provider itself.
"""

import numpy as np

from cases.attention import NARROW
from cases.dense_attention import heads_of
from cases.kit import F32, D, R, V, case
from cases.normed_attention import turned

MS = "com.microsoft"


def rows_after(tokens, capacity, window):
    """How many of the last tokens a cache has."""
    at_once = capacity - window + 1
    return tokens if tokens <= capacity else tokens - -(-(tokens - capacity) // at_once) * at_once


def seen(q, k, v, first, window):
    """Attention of one head; the queries' first key is `first`, each sees `window` keys, itself included."""
    out = np.zeros((len(q), v.shape[1]))
    for i, row in enumerate(q):
        keys = slice(max(0, first + i + 1 - window), first + i + 1)
        scores = k[keys] @ row / np.sqrt(len(row))
        weights = np.exp(scores - scores.max())
        out[i] = weights / weights.sum() @ v[keys]
    return out


def windowed(query, key, value, past_key, past_value, lengths, total, *caches, num_heads, kv_num_heads, do_rotary,
             local_window_size, **_):
    batch, rows, _ = query.shape
    capacity = past_key.shape[2]
    kept = [np.zeros(past.shape) for past in (past_key, past_value)]
    y = np.zeros(query.shape)
    prompt = int(np.ravel(total)[0]) == rows
    for b in range(batch):
        tokens = int(np.ravel(lengths)[b]) + 1
        before = 0 if prompt else tokens - rows
        q, k = (heads_of(np.asarray(x[b:b + 1], np.float64), n) for x, n in ((query, num_heads), (key, kv_num_heads)))
        if do_rotary:
            q, k = (turned(x, *(np.asarray(c, np.float64) for c in caches[:2]), before) for x in (q, k))
        past = rows_after(before, capacity, local_window_size)
        fresh = (k[0], heads_of(np.asarray(value[b:b + 1], np.float64), kv_num_heads)[0])
        sides = [np.concatenate([old[b, :, :past], new], 1)
                 for old, new in zip((past_key, past_value), fresh, strict=True)]
        share = num_heads // kv_num_heads
        heads = [seen(q[0, h], sides[0][h // share], sides[1][h // share], past, local_window_size)
                 for h in range(num_heads)]
        y[b] = np.stack(heads, 1).reshape(rows, -1)
        left = rows_after(tokens, capacity, local_window_size)
        for side, target in zip(sides, kept, strict=True):
            target[b, :, :left] = side[:, past + tokens - before - left : past + tokens - before]
    return [y, *kept]


def window_cache(batch, rows, past, capacity, window, size=16, types=F32, rotary=False, lengths=None):
    """`lengths` of each entry, all tokens counted, at most past + rows."""
    lengths = lengths or [past + rows] * batch
    generator = np.random.default_rng(capacity)
    caches = generator.integers(-8, 9, (2, batch, 2, capacity, size)) / 4
    for b, tokens in enumerate(lengths):
        caches[:, b, :, rows_after(tokens - rows, capacity, window):] = 0
    inputs = [*(R((batch, rows, n * size)) for n in (4, 2, 2)), *(V(cache.tolist()) for cache in caches),
              D([n - 1 for n in lengths], "int32"), D([past + rows], "int32")]
    if rotary:
        inputs += [R((400, size // 2), -1, 1)] * 2
    case("GroupQueryAttention", inputs, types, (1,), outputs=3, slack=4, domain=MS, num_heads=4, kv_num_heads=2,
         local_window_size=window, sliding_window_cache=1, do_rotary=int(rotary), reference=windowed)


for spare in (0, 1, 5):
    for past in (8, 9, 8 + spare, 30, 31, 32):
        window_cache(1, 1, past, 8 + spare, 8)
    window_cache(2, 1, 40, 8 + spare, 8, rotary=True, types=NARROW, lengths=[41, 6])
    window_cache(1, 3, 20, 8 + spare, 8, rotary=True)
    window_cache(1, 30, 20, 8 + spare, 8)
    window_cache(1, 30, 0, 8 + spare, 8, rotary=True)
    window_cache(2, 20, 0, 8 + spare, 8)
window_cache(1, 1, 300, 70, 64, size=10)
for past in (0, 7):  # room for all that there is, if not for the window
    window_cache(1, 3, past, 10, 16)
