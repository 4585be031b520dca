# SPDX-License-Identifier: Apache-2.0
"""Attention, rotary embedding, and the operators of com.microsoft that are made of them.

Shapes are chosen for each way in which attention is computed: few queries with the keys split, tiles, products.
"""

from cases.kit import F32, FLOATS, D, K, R, case

NARROW = ("float", "float16", "bfloat16")
MS = "com.microsoft"


def heads_first(batch, heads, rows, size):
    return R((batch, heads, rows, size))


def heads_last(batch, heads, rows, size):
    return R((batch, rows, heads * size))


def qkv(batch, heads, kv_heads, rows, keys, size, value=None, layout=heads_first):
    """Q, K and V."""
    return [
        layout(batch, heads, rows, size),
        layout(batch, kv_heads, keys, size),
        layout(batch, kv_heads, keys, value or size),
    ]


def flags(*shape, never=()):
    """A bool mask in which some keys are left out; in the rows `never` all of them."""
    count = 1
    for size in shape:
        count *= size
    row = shape[-1]
    values = [((i * 7 + i // 5) % 3 != 0 or i % row == 0) and i // row not in never for i in range(count)]

    def nest(flat, sizes):
        if len(sizes) == 1:
            return flat
        step = len(flat) // sizes[0]
        return [nest(flat[i * step : (i + 1) * step], sizes[1:]) for i in range(sizes[0])]

    return D(nest(values, shape), "bool")


def attention(inputs, types=F32, outputs=1, opsets=(24,), slack=4, **attrs):
    if "double" in types:  # ONNX Runtime rounds the root of its own scale to float
        attrs = {"scale": 0.25, **attrs}
    case("Attention", inputs, types, opsets, outputs=outputs, slack=slack, **attrs)


# Few queries: a lane's slice of a head, odd sizes, grouped heads, many keys.
attention(qkv(2, 3, 3, 4, 6, 8), FLOATS, opsets=(23, 24))
attention(qkv(1, 2, 2, 1, 1, 1))
attention(qkv(2, 6, 2, 1, 70, 64), NARROW)
attention(qkv(1, 8, 1, 2, 33, 40, 24), NARROW)
attention(qkv(1, 2, 2, 1, 1500, 16), NARROW)
attention(qkv(1, 4, 2, 1, 700, 5, 9))
attention(qkv(1, 1, 1, 2, 300, 256), NARROW)
attention(qkv(1, 9, 3, 1, 40, 64, layout=heads_last), NARROW, q_num_heads=9, kv_num_heads=3)
# New tokens by attention_decode.cu beside masks: ends of tiles, more rows than a block has, splits.
for size, heads, kv_heads, rows, keys in ((64, 9, 3, 1, 257), (80, 4, 4, 2, 33), (96, 12, 1, 1, 70),
                                          (128, 8, 2, 1, 600), (256, 2, 1, 3, 40)):
    attention([*qkv(2, heads, kv_heads, rows, keys, size), R((1, 1, rows, keys))], NARROW)
    attention([*qkv(2, heads, kv_heads, rows, keys, size), R((2, heads, rows, keys))], NARROW, is_causal=1)
    attention([*qkv(2, heads, kv_heads, rows, keys, size), flags(rows, keys)], NARROW)
# Tiles: more queries than one, ragged ends, several heads in a tile.
attention(qkv(2, 2, 2, 70, 50, 16), NARROW)
attention(qkv(1, 6, 2, 37, 90, 20, 12), NARROW)
attention(qkv(1, 2, 1, 40, 40, 128))
attention(qkv(1, 1, 1, 20, 33, 256))
attention(qkv(2, 4, 2, 30, 30, 8, layout=heads_last), FLOATS, q_num_heads=4, kv_num_heads=2)
# Products: heads that no lane holds, and more work than tiles are for.
attention(qkv(2, 4, 2, 20, 30, 264), NARROW, slack=8)
attention(qkv(2, 4, 2, 5, 30, 300, layout=heads_last), q_num_heads=4, kv_num_heads=2, slack=8)
attention(qkv(1, 2, 2, 1100, 1100, 64), is_causal=1)
attention(qkv(1, 2, 1, 2100, 600, 64), is_causal=1)
# Masks of each shape and type; a row without any key is 0.
for rows in (3, 40):
    for shape in ((rows, 30), (2, rows, 30), (2, 1, rows, 30), (1, 4, rows, 30)):
        mask = flags(*shape, never=(1,)) if shape[0] != 2 or len(shape) == 4 else R((4, rows, 30))
        attention([*qkv(2, 4, 2, rows, 30, 8), mask])
    attention([*qkv(2, 4, 2, rows, 30, 8), R((rows, 30))], FLOATS)
    attention([*qkv(2, 4, 2, rows, 30, 8), flags(rows, 30)], FLOATS, is_causal=1)
    attention([*qkv(2, 2, 2, rows, 30, 8), R((2, 2, rows, 30))], softcap=2.0, scale=0.7)
    attention(qkv(2, 4, 2, rows, rows, 8), NARROW, is_causal=1, softcap=0.5)
    attention(qkv(1, 2, 2, rows, 7, 8), is_causal=1)
# Caches: appended, also beside a mask; lengths instead of a cache.
PAST = [R((2, 2, 5, 8)), R((2, 2, 5, 6))]
for rows in (1, 3, 20):
    for types in (FLOATS,) if rows == 3 else (NARROW,):
        attention([*qkv(2, 4, 2, rows, rows, 8, 6), None, *PAST], types, outputs=3, opsets=(23, 24))
    attention([*qkv(2, 4, 2, rows, rows, 8, 6), None, *PAST], outputs=3, is_causal=1)
    attention([*qkv(2, 4, 2, rows, rows, 8, 6), R((rows, rows + 5)), *PAST], outputs=3, is_causal=1)
    attention([*qkv(2, 4, 2, rows, rows, 8, 6, heads_last), None, *PAST], outputs=3, is_causal=1, q_num_heads=4,
              kv_num_heads=2)
    attention([*qkv(3, 2, 2, rows, 20, 8), None, None, None, D([1, 13, 20])], NARROW)
    attention([*qkv(3, 2, 2, rows, 20, 8), None, None, None, D([1, 13, 20])], is_causal=1)
attention([*qkv(3, 4, 1, 1, 900, 16), flags(1, 900), None, None, D([0, 513, 900])])
attention([*qkv(1, 2, 2, 2, 3, 8), None, R((1, 2, 0, 8)), R((1, 2, 0, 8))], outputs=3)
# The scores on their way; those of a mask only where it is finite, since ONNX Runtime has no -inf there.
for mode in range(4):
    inputs = [*qkv(2, 4, 2, 3, 3, 8, 6), R((2, 1, 3, 8)), *PAST]
    attention(inputs, FLOATS if mode == 0 else F32, outputs=4, qk_matmul_output_mode=mode, softcap=1.5)
    attention(qkv(2, 4, 2, 3, 9, 8, layout=heads_last), outputs=4, qk_matmul_output_mode=mode, q_num_heads=4,
              kv_num_heads=2)
attention([*qkv(1, 2, 2, 3, 5, 8), flags(3, 5, never=(1,))], outputs=4, qk_matmul_output_mode=3)
# One session for several shapes.
case("Attention", qkv(1, 2, 2, 3, 4, 8), F32, (24,), slack=4,
     runs=[qkv(2, 2, 2, 40, 50, 16), qkv(1, 2, 2, 1, 600, 16), qkv(1, 2, 2, 3, 4, 8)])

# Rotary embedding: halves and neighbours, whole heads and parts of them, packs of 16 bytes and odd sizes.
for size in (8, 64, 12):
    for interleaved in (0, 1):
        caches = [R((50, size // 2), -1, 1), R((50, size // 2), -1, 1)]
        given = D([[7, 3, 49, 0], [1, 2, 3, 4]])
        case("RotaryEmbedding", [R((2, 3, 4, size)), *caches, given], NARROW, (23,), interleaved=interleaved)
        case("RotaryEmbedding", [R((2, 4, 3 * size)), *caches, given], F32, (23,), interleaved=interleaved,
             num_heads=3)
        case("RotaryEmbedding", [R((2, 3, 4, size + 16)), *caches, given], NARROW, (23,), interleaved=interleaved,
             rotary_embedding_dim=size)
        rows = [R((2, 4, size // 2), -1, 1), R((2, 4, size // 2), -1, 1)]
        case("RotaryEmbedding", [R((2, 3, 4, size)), *rows], F32, (23,), interleaved=interleaved)
        case("RotaryEmbedding", [R((2, 3, 4, size)), given, *caches], NARROW, (1,), domain=MS,
             interleaved=interleaved)
        case("RotaryEmbedding", [R((2, 4, 3 * size)), D([5]), *caches], F32, (1,), domain=MS,
             interleaved=interleaved)
        case("RotaryEmbedding", [R((2, 4, 3 * size)), given, *caches], F32, (1,), domain=MS, num_heads=3,
             interleaved=interleaved)
case("RotaryEmbedding", [R((1, 2, 3, 10)), R((9, 3)), R((9, 3)), K([[2, 8, 0]])], F32, (23,), rotary_embedding_dim=6)


# GroupQueryAttention: prompts and single tokens, packed or not, with positions, windows and sinks.
def grouped(batch, rows, past, size, heads=4, kv_heads=2, packed=False, rotary=0, lengths=None, rest=(),
            types=F32, **attrs):
    """`lengths` of each entry, all tokens counted. Caches with room behind are in group_query_test.c."""
    total = past + rows
    given = lengths or [total] * batch
    inputs = [R((batch, rows, (heads + 2 * kv_heads) * size)), None, None]
    if not packed:
        inputs = [R((batch, rows, n * size)) for n in (heads, kv_heads, kv_heads)]
    cache = R((batch, kv_heads, past, size)) if past else None
    inputs += [cache, cache, D([n - 1 for n in given], "int32"), D([total], "int32")]
    if rotary or rest:
        inputs += [R((400, rotary // 2), -1, 1) if rotary else None] * 2
    case("GroupQueryAttention", inputs + list(rest), types, (1,), outputs=3, slack=4, domain=MS, num_heads=heads,
         kv_num_heads=kv_heads, do_rotary=int(rotary > 0), **attrs)


for packed in (False, True):
    grouped(2, 5, 0, 16, packed=packed, types=NARROW)
    grouped(2, 1, 7, 16, packed=packed, types=NARROW)
    grouped(2, 1, 7, 16, packed=packed, rotary=16, types=NARROW)
    grouped(1, 6, 0, 16, packed=packed, rotary=16, rotary_interleaved=1)
    grouped(1, 3, 6, 32, packed=packed, rotary=16)
    grouped(2, 1, 8, 32, packed=packed, rotary=16, lengths=[5, 9])
    grouped(2, 1, 300, 64, heads=9, kv_heads=3, packed=packed, rotary=64, lengths=[301, 40], scale=0.125)
# By attention_decode.cu: groups that fill a block of rows and more, ends of tiles, windows, sinks.
for size, heads, kv_heads, past in ((64, 9, 3, 255), (80, 4, 4, 16), (96, 16, 1, 70), (128, 8, 2, 300),
                                    (256, 2, 1, 33)):
    grouped(1, 1, past, size, heads=heads, kv_heads=kv_heads, types=NARROW)
grouped(1, 3, 90, 64, types=NARROW, local_window_size=40)
grouped(2, 1, 90, 64, types=NARROW, lengths=[91, 20], local_window_size=40)
grouped(1, 1, 90, 128, types=NARROW, rest=[None, None, R((4,))])
grouped(1, 40, 0, 16, rotary=16)
grouped(1, 30, 20, 16, rotary=16, packed=True)
grouped(2, 1, 7, 16, softcap=3.0)
for window in (1, 4, 100):
    grouped(2, 9, 0, 16, local_window_size=window)
    grouped(1, 1, 20, 16, local_window_size=window)
grouped(2, 4, 0, 16, smooth_softmax=1)
grouped(1, 1, 300, 16, smooth_softmax=1)
grouped(2, 4, 0, 16, rest=[None, None, R((4,))])
grouped(1, 2, 5, 16, rest=[None, R((1, 4, 2, 7))])
grouped(2, 1, 6, 16, rest=[None, R((1, 4, 1, 7))])
grouped(1, 2, 5, 16, rotary=16, rest=[D([[9, 3]])])


# No new keys: another layer has filled the caches.
for rotary in (0, 16):
    caches = [R((30, 8), -1, 1)] * 2 if rotary else []
    for rows in (1, 3, 6):
        inputs = [R((1, rows, 64)), *[R((1, 0, 32))] * 2, *[R((1, 2, 6, 16))] * 2, D([5], "int32"), D([6], "int32")]
        case("GroupQueryAttention", inputs + caches, F32, (1,), outputs=3, slack=4, domain=MS, num_heads=4,
             kv_num_heads=2, do_rotary=int(rotary > 0))
