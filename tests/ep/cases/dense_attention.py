# SPDX-License-Identifier: Apache-2.0
"""The dense attention operators of com.microsoft.

NumPy is the reference where ONNX Runtime's CPU provider lacks the operator, one of its forms (packed heads, beams,
masks of all positions) or puts masks into the scores that it gives out.
"""

import ml_dtypes
import numpy as np

from cases.kit import F32, D, R, case

NARROW = ("float", "float16", "bfloat16")
MS = "com.microsoft"


def ints(values):
    return D(values, "int32")


def heads_of(x, heads):
    """[batch, rows, heads * size] as [batch, heads, rows, size]."""
    size = x.shape[2] // heads
    return np.asarray(x, np.float64).reshape(*x.shape[:2], heads, size).transpose(0, 2, 1, 3)


def padding(mask, batch, rows, keys, past, value):
    """What a mask of padding adds to the scores [batch, heads, rows, keys]."""
    if mask is None:
        return 0.0
    key = np.arange(keys)
    if mask.ndim == 1:
        seen = key < mask[:batch, None]
        if len(mask) == 2 * batch:
            seen &= key >= mask[batch:, None]
        seen = seen[:, None, None, :]
    elif mask.ndim == 4:
        seen = mask[:, :, past : past + rows, :keys] > 0
    elif mask.ndim == 3:
        seen = mask[:, None] > 0
    else:
        seen = mask[:, None, None, :] > 0
    return np.where(seen, 0.0, value)


def attended(q, k, v, added=0.0, scale=0.0, causal=False):
    """Heads first. Gives the result [batch, rows, heads * size] and the scaled scores."""
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / np.sqrt(q.shape[-1]))
    total = scores + added
    rows, keys = total.shape[-2:]
    if causal:
        total = np.where(np.arange(keys) <= np.arange(rows)[:, None] + keys - rows, total, -np.inf)
    weights = np.exp(total - total.max(-1, keepdims=True, initial=-1e300))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    y = weights @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], rows, y.shape[1] * y.shape[3]), scores


def grown(past, fresh, used, room):
    """A cache with fresh rows behind `used` ones; with a room, the buffer and what of it counts."""
    if past is None:
        return fresh, fresh
    if not room:
        whole = np.concatenate([past, fresh], 2)
        return whole, whole
    whole = np.array(past, np.float64)
    whole[:, :, used : used + fresh.shape[2]] = fresh
    return whole, whole[:, :, : used + fresh.shape[2]]


def followed(cache, beams, used):
    """Each entry's rows of the past from the entries that its beams name."""
    if beams is None:
        return cache
    batch, width = beams.shape[:2]
    source = (np.arange(batch)[:, None, None] * width + beams[:, :, :used]).reshape(batch * width, used)
    out = cache.copy()
    for entry in range(batch * width):
        for row in range(used):
            out[entry, :, row] = cache[source[entry, row], :, row]
    return out


def split(query, key, value, bias, heads):
    """Q, K and V as heads, with their biases, from any of the forms."""
    if query.ndim == 5:
        q, k, v = (query[:, :, :, i].reshape(*query.shape[:2], -1) for i in range(3))
    elif key is not None and key.ndim == 5:
        q, (k, v) = query, (key[:, :, :, i].reshape(*key.shape[:2], -1) for i in range(2))
    elif key is None:
        q, k, v = np.split(query, 3, axis=-1)
    else:
        q, k, v = query, key, value
    if k.ndim == 4:
        return heads_of(q if bias is None else q + bias[: q.shape[2]], heads), k.astype(float), v.astype(float)
    if bias is not None:
        parts = np.split(bias, [q.shape[2], 2 * q.shape[2]])
        q, k, v = (x + part for x, part in zip((q, k, v), parts, strict=True))
    return heads_of(q, heads), heads_of(k, heads), heads_of(v, heads)


def multi_head(
    query,
    key=None,
    value=None,
    bias=None,
    mask=None,
    score_bias=None,
    past_key=None,
    past_value=None,
    length=None,
    beams=None,
    num_heads=1,
    scale=0.0,
    unidirectional=0,
    mask_filter_value=-10000.0,
):
    q, k, v = split(query, key, value, bias, num_heads)
    used = 0 if past_key is None else past_key.shape[2] if length is None else int(length[0])
    key_room, k = grown(past_key, k, used, length is not None)
    value_room, v = grown(past_value, v, used, length is not None)
    if q.shape[2] == 1:  # ONNX Runtime heeds beams of no longer texts
        k, v = followed(k, beams, used), followed(v, beams, used)
    added = padding(mask, q.shape[0], q.shape[2], k.shape[2], used, mask_filter_value)
    added = added + (0.0 if score_bias is None else score_bias)
    y, scores = attended(q, k, v, added, scale, unidirectional)
    return [y, key_room, value_room, scores]


def first(count, function):
    """The first results of a reference, for nodes that have no more."""
    return lambda *inputs, **attrs: function(*inputs, **attrs)[:count]


def mha(inputs, types=F32, outputs=1, plain=False, **attrs):
    """`plain`: by NumPy."""
    reference = first(outputs, multi_head) if plain else None
    case("MultiHeadAttention", inputs, types, (1,), outputs=outputs, slack=4, domain=MS, reference=reference, **attrs)


def apart(batch, heads, rows, keys, size, value=None):
    shapes = ((rows, size), (keys, size), (keys, value or size))
    return [R((batch, length, heads * width)) for length, width in shapes]


# Few queries, tiles, products; heads of odd sizes, V of another size than Q and K.
mha(apart(2, 3, 4, 6, 8), NARROW, num_heads=3)
mha(apart(2, 3, 4, 6, 7, 5), NARROW, num_heads=3)
mha(apart(1, 2, 1, 700, 40), num_heads=2)
mha(apart(2, 2, 40, 40, 12, 20), NARROW, num_heads=2, unidirectional=1)
# As many rows as keys are left: the last query sees all keys. The CPU provider has the first one see one key, and the
# last one all the same.
mha(apart(2, 2, 40, 50, 12, 20), NARROW, plain=True, num_heads=2, unidirectional=1, note="special")
mha(apart(2, 2, 9, 5, 8), NARROW, plain=True, num_heads=2, unidirectional=1, note="special")
mha(apart(1, 1, 1200, 500, 8), plain=True, num_heads=1, unidirectional=1, note="special")
mha(apart(1, 2, 20, 30, 264), num_heads=2, scale=0.05)
mha(apart(2, 2, 1, 6, 8), num_heads=2, unidirectional=1)
# Nothing there: no entry, no query, no key, heads of no element of V.
mha(apart(0, 2, 3, 4, 8), num_heads=2, plain=True)
mha(apart(2, 2, 0, 4, 8), num_heads=2, plain=True)
mha([*apart(2, 2, 3, 0, 8), R((48,))], num_heads=2)
# Biases, of each form; packed forms by NumPy.
for rows in (3, 40):
    mha([*apart(2, 2, rows, 30, 8, 6), R((44,))], NARROW, num_heads=2)
    mha([R((2, rows, 16)), *[R((2, 2, 30, 8))] * 2], NARROW, 3, num_heads=2)
    mha([R((2, rows, 16)), *[R((2, 2, 30, 8))] * 2, R((48,))], num_heads=2)
    mha([R((2, rows, 16)), R((2, 30, 2, 2, 8))], NARROW, plain=True, num_heads=2)
    mha([R((2, rows, 2, 3, 8))], NARROW, plain=True, num_heads=2)
    mha([R((2, rows, 2, 3, 5)), None, None, R((30,))], NARROW, plain=True, num_heads=2, unidirectional=1)
# Masks of each shape, rows of nothing but padding among them.
LENGTHS = (ints([17, 30]), ints([0, 31]), ints([-3, 5, 0, 3, 6, 0, 30, 60]))
FLAGS = [[(i * 7 + i // 5) % 3 != 0 and b == 0 for i in range(30)] for b in range(2)]
for rows in (1, 3, 40):
    for mask in LENGTHS:
        mha([*apart(2, 2, rows, 30, 8), None, mask], num_heads=2, plain=min(mask.values) < 0, mask_filter_value=-90.0)
    mha([*apart(2, 2, rows, 30, 8), None, ints(FLAGS)], NARROW, num_heads=2, mask_filter_value=-500.0)
    mha([*apart(2, 2, rows, 30, 8), None, ints([[row] * rows for row in FLAGS])], num_heads=2, mask_filter_value=-50.0)
    mha([*apart(2, 2, rows, 30, 264), None, ints(FLAGS)], num_heads=2, mask_filter_value=-5.0)
    mha([*apart(2, 2, rows, 30, 8), None, ints(FLAGS)], num_heads=2, mask_filter_value=-3.4028234663852886e38)
    for lead in ((1, 1), (2, 1), (1, 2), (2, 2)):
        mha([*apart(2, 2, rows, 30, 8), None, None, R((*lead, rows, 30))], NARROW, num_heads=2)
    mha(
        [*apart(2, 2, rows, rows, 8), R((48,)), ints([rows, 1]), R((1, 2, rows, rows))],
        num_heads=2,
        unidirectional=1,
        mask_filter_value=-100.0,
    )
# Caches: of no row, appended to, with room, in beams.
for rows in (1, 3, 20):
    for past in (0, 5):
        caches = [R((2, 2, past, 8))] * 2
        mha([*apart(2, 2, rows, rows, 8), R((48,)), None, None, *caches], NARROW, 3, num_heads=2, unidirectional=1)
        mha(
            [*apart(2, 2, rows, 4, 8), None, ints([2, 4 + past]), R((1, 1, rows, 4 + past)), *caches],
            F32,
            3,
            num_heads=2,
        )
    room = [R((4, 2, 40, 8))] * 2
    for used in (0, 7, 40 - rows):
        inputs = [*apart(4, 2, rows, rows, 8), None, None, None, *room, ints([used])]
        mha(inputs, NARROW, 3, plain=True, num_heads=2)
        beams = [[[(row * (beam + 2)) % 2 for row in range(40)] for beam in range(2)] for _ in range(2)]
        mha([*inputs, ints(beams)], NARROW, 4, plain=True, num_heads=2)
        mha([*inputs, ints(beams)], NARROW, 3, plain=True, num_heads=2)
mha([*apart(2, 2, 1, 1, 8), None, None, None, *[R((2, 2, 9, 8))] * 2, ints([3])], F32, 3, num_heads=2)
# Scaled scores as an output.
mha(apart(2, 2, 3, 9, 8), F32, 4, num_heads=2)
mha([*apart(2, 2, 3, 9, 8), None, ints([2, 9]), R((1, 1, 3, 9))], NARROW, 4, plain=True, num_heads=2)


# ---- Attention: projections of one input ----


def packed_keys(cache, x):
    """Keys [batch, heads, rows, size] in packs of x: [batch, heads, size / x, rows, x]; its own inverse's argument."""
    batch, heads, rows, size = cache.shape
    return cache.reshape(batch, heads, rows, size // x, x).swapaxes(2, 3).reshape(cache.shape)


def unpacked_keys(cache, x):
    batch, heads, rows, size = cache.shape
    return cache.reshape(batch, heads, size // x, rows, x).swapaxes(2, 3).reshape(cache.shape)


def turned(x, first, dim):
    """Heads [batch, heads, rows, size] turned by positions from `first` on, their first `dim` elements by halves."""
    half = dim // 2
    angle = (first + np.arange(x.shape[2]))[:, None] / 10000 ** (np.arange(half) / half)
    a, b = x[..., :half], x[..., half:dim]
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cosine - b * sine, a * sine + b * cosine, x[..., dim:]], -1)


def projected(
    x,
    weights,
    bias=None,
    mask=None,
    past=None,
    score_bias=None,
    length=None,
    width=None,
    beams=None,
    num_heads=1,
    qkv_hidden_sizes=None,
    scale=0.0,
    unidirectional=0,
    mask_filter_value=-10000.0,
    past_present_share_buffer=0,
    pack=0,
    do_rotary=0,
    rotary_embedding_dim=0,
):
    made = np.asarray(x, np.float64) @ weights + (0.0 if bias is None else bias)
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    q, k, v = (heads_of(part, num_heads) for part in np.split(made, np.cumsum(sizes)[:2], axis=2))
    used = 0 if past is None else int(length[0]) if past_present_share_buffer else past.shape[3]
    if do_rotary:
        q, k = (turned(x, used, rotary_embedding_dim or q.shape[3]) for x in (q, k))
    keys = None if past is None else unpacked_keys(past[0], pack) if pack else past[0]
    key_room, k = grown(keys, k, used, past_present_share_buffer)
    value_room, v = grown(None if past is None else past[1], v, used, past_present_share_buffer)
    if width is not None and width[0] > 1:
        k, v = followed(k, beams, used), followed(v, beams, used)
    if mask is not None and mask.ndim == 2 and mask.shape[1] != k.shape[2]:
        mask = None
    added = padding(mask, len(x), x.shape[1], k.shape[2], used, mask_filter_value)
    y, _ = attended(q, k, v, added + (0.0 if score_bias is None else score_bias), scale, unidirectional)
    present = [packed_keys(key_room, pack) if pack else key_room, value_room]
    return [y, np.stack(present) if key_room.shape == value_room.shape else None]


def own(inputs, types=F32, outputs=1, plain=False, **attrs):
    reference = first(outputs, projected) if plain else None
    case("Attention", inputs, types, (1,), outputs=outputs, slack=8, domain=MS, reference=reference, **attrs)


def layer(batch, rows, width, columns):
    """An input, weights and a bias, small enough for scores that are no single peak."""
    return [R((batch, rows, width), -1, 1), R((width, columns), -0.5, 0.5), R((columns,), -0.5, 0.5)]


for rows in (1, 4, 40):
    own(layer(2, rows, 12, 48), NARROW, num_heads=2)
    own(layer(2, rows, 12, 48), NARROW, 2, num_heads=2, unidirectional=1, scale=0.3)
    own(layer(2, rows, 5, 22), num_heads=2, qkv_hidden_sizes=[8, 8, 6])
    own([*layer(2, rows, 12, 48), None, R((2, 2, 2, 7, 8))], NARROW, 2, num_heads=2, unidirectional=1)
    own([*layer(2, rows, 12, 48), None, R((2, 2, 2, 0, 8))], F32, 2, num_heads=2)
    own([*layer(2, rows, 12, 48), None, None, R((1, 2, rows, rows))], NARROW, num_heads=2)
    own([*layer(2, rows, 12, 48), None, R((2, 2, 2, 3, 8)), R((2, 1, rows, rows + 3))], F32, 2, plain=True, num_heads=2)
    own([*layer(2, rows, 12, 48)[:2]], NARROW, plain=True, num_heads=2)
    for used in (0, 6):
        own(
            [*layer(2, rows, 12, 48), None, R((2, 2, 2, 50, 8)), None, ints([used])],
            NARROW,
            2,
            plain=True,
            num_heads=2,
            past_present_share_buffer=1,
            unidirectional=1,
        )
    for mask in (
        ints([rows // 2, 0]),
        ints([rows, 5, 1, 0]),
        ints([3, rows, 0, 3, 6, 0, 3, 6]),
        ints([[0]]),
        ints([[1], [0]]),
    ):
        for causal in (0, 1):
            own([*layer(2, rows, 12, 48), mask], num_heads=2, unidirectional=causal, mask_filter_value=-90.0)
    flags = [[(i + b) % 3 != 0 for i in range(rows + 2)] for b in range(2)]
    own([*layer(2, rows, 12, 48), ints(flags), R((2, 2, 2, 2, 8))], NARROW, 2, num_heads=2)
    own([*layer(2, rows, 12, 48), ints([[row] * rows for row in flags]), R((2, 2, 2, 2, 8))], F32, 2, num_heads=2)
    every = [[[[(i * 5 + j) % 3 != 0 for j in range(44)] for i in range(44)]] for _ in range(2)]
    own([*layer(2, rows, 12, 48), ints(every), R((2, 2, 2, 2, 8))], F32, 2, plain=True, num_heads=2)
own(layer(0, 3, 12, 48), F32, 2, plain=True, num_heads=2)
own(layer(2, 0, 12, 48), F32, 2, plain=True, num_heads=2)
own(layer(2, 3, 0, 48), F32, 2, plain=True, num_heads=2)

# ---- decoders: a token at a time, caches with room, beams ----

BEAMS = [[[(row * (beam + 2)) % 2 for row in range(20)] for beam in range(2)] for _ in range(2)]


def decoder(*inputs, output_qk=0, past_present_share_buffer=1, **attrs):
    query, key, value, mask, score_bias, past_key, past_value, length, width, beams, bias = [*inputs, *[None] * 11][:11]
    beams = beams if width is not None and width[0] > 1 else None
    return multi_head(query, key, value, bias, mask, score_bias, past_key, past_value, length, beams, **attrs)


def dmmha(inputs, types=("float", "float16"), outputs=3, plain=True, **attrs):
    reference = first(outputs, decoder) if plain else None
    case(
        "DecoderMaskedMultiHeadAttention",
        inputs,
        types,
        (1,),
        outputs=outputs,
        slack=4,
        domain=MS,
        reference=reference,
        **attrs,
    )


for used in (0, 7, 19):
    room = [R((4, 2, 20, 8))] * 2
    seen = ints([[(i + b) % 3 != 0 or i == used for i in range(used + 1)] for b in range(4)])
    rest = [None, None, *room, ints([used])]
    dmmha([*apart(4, 2, 1, 1, 8), *rest], F32, plain=False, num_heads=2, past_present_share_buffer=1)
    dmmha(
        [*apart(4, 2, 1, 1, 8), seen, *rest[1:], None, None, R((48,))],
        F32,
        plain=False,
        num_heads=2,
        past_present_share_buffer=1,
    )
    dmmha([R((4, 1, 48)), None, None, *rest, None, None, R((48,))], num_heads=2, past_present_share_buffer=1)
    dmmha(
        [*apart(4, 2, 1, 1, 8), seen, R((1, 2, 1, used + 1)), *room, ints([used]), ints([2]), ints(BEAMS)],
        outputs=4,
        num_heads=2,
        past_present_share_buffer=1,
        output_qk=1,
    )
    dmmha([*apart(4, 2, 1, 1, 8), *rest, ints([1]), ints(BEAMS)], num_heads=2, past_present_share_buffer=1)
    dmmha([*apart(4, 2, 1, 1, 8), *rest, ints([2]), ints(BEAMS)], num_heads=2, past_present_share_buffer=1)
    for pack, types in ((4, F32), (8, ("float16",))):
        keep = {"num_heads": 2, "past_present_share_buffer": 1}
        stacked = R((2, 4, 2, 20, 16))
        for tail in ([ints([used])], [ints([used]), ints([2]), ints(BEAMS)], [ints([used]), ints([1]), ints(BEAMS)]):
            case(
                "DecoderMaskedSelfAttention",
                [*layer(4, 1, 12, 96), seen, stacked, None, *tail],
                types,
                (1,),
                outputs=2,
                slack=8,
                domain=MS,
                reference=lambda *x, pack=pack, **attrs: projected(*x, pack=pack, **attrs),
                **keep,
            )
        case(
            "DecoderMaskedSelfAttention",
            [*layer(4, 1, 12, 96), None, stacked, None, ints([used])],
            types,
            (1,),
            outputs=2,
            slack=8,
            domain=MS,
            scale=0.3,
            reference=lambda *x, pack=pack, **attrs: projected(*x, pack=pack, **attrs),
            **keep,
        )
# Across, to keys and values of heads.
dmmha([R((2, 1, 16)), *[R((2, 2, 30, 8))] * 2], F32, 1, plain=False, num_heads=2)
dmmha(
    [R((2, 1, 16)), *[R((2, 2, 30, 8))] * 2, ints([[i % 3 for i in range(30)]] * 2), *[None] * 6, R((48,))],
    outputs=1,
    num_heads=2,
)


# ---- QAttention: the same with a product of integers ----


def quantized(x, weights, bias, x_scale, weights_scale, mask=None, x_zero=None, weights_zero=None, past=None, **attrs):
    x = (x.astype(np.float64) - (0 if x_zero is None else x_zero)) * x_scale
    weights = (weights.astype(np.float64) - (0 if weights_zero is None else weights_zero)) * weights_scale
    return projected(x, weights, bias, mask, past, **attrs)


def bytes_of(shape, kind, seed):
    low, high = (0, 256) if kind == "uint8" else (-64, 64)  # processors without VNNI saturate sums of larger products
    return D(np.random.default_rng(seed).integers(low, high, shape).tolist(), kind)


def qattention(
    kind, weights_kind, batch, rows, width, rest=(), types=F32, outputs=1, columns=48, each=False, plain=False, **attrs
):
    scale = R((columns,), 0.001, 0.003) if each else R((1,), 0.001, 0.003)
    inputs = [
        bytes_of((batch, rows, width), kind, 1),
        bytes_of((width, columns), weights_kind, 2),
        R((columns,)),
        R((), 0.01, 0.02),
        scale,
        *rest,
    ]
    reference = first(outputs, quantized) if plain or kind == "int8" else None
    case(
        "QAttention",
        inputs,
        types,
        (1,),
        outputs=outputs,
        slack=16,
        domain=MS,
        reference=reference,
        num_heads=2,
        **attrs,
    )


for rows in (1, 5, 40):
    for kind in ("int8", "uint8"):
        for weights_kind in ("int8", "uint8"):
            zeros = [None, D(3, kind), D([7], weights_kind)]
            both = ("float", "float16")
            qattention(kind, weights_kind, 2, rows, 24, types=both, plain=True)
            qattention(kind, weights_kind, 2, rows, 13, zeros, each=True)
            each = D([5 + i % 7 for i in range(48)], weights_kind)
            qattention(kind, weights_kind, 2, rows, 24, [*zeros[:2], each], outputs=2, each=True, unidirectional=1)
    qattention(
        "uint8",
        "int8",
        2,
        rows,
        24,
        [ints([rows, 1]), None, None, R((2, 2, 2, 6, 8))],
        outputs=2,
        mask_filter_value=-90.0,
    )
    qattention("int8", "int8", 2, rows, 24, [None, None, None, R((2, 2, 2, 6, 8))], both, 2)

# ---- DecoderAttention: tokens first, flags as inputs ----


def decoder_layer(
    query,
    key,
    q_weight,
    kv_weight,
    bias,
    mask,
    key_cache,
    value_cache,
    across,
    use_past,
    state,
    masked,
    num_heads=1,
    mask_filter_value=-10000.0,
):
    width = query.shape[2]
    past = bool(use_past) and bool(state)
    q = heads_of((query.astype(np.float64) @ q_weight + bias[:width]).swapaxes(0, 1), num_heads)
    source = key if across else query
    fresh = source[:0] if across and past else source
    k, v = np.split((fresh.astype(np.float64) @ kv_weight + bias[width:]).swapaxes(0, 1), 2, axis=2)
    k, v = heads_of(k, num_heads), heads_of(v, num_heads)
    if past:
        k, v = np.concatenate([key_cache, k], 2), np.concatenate([value_cache, v], 2)
    added = np.where(mask, mask_filter_value, 0.0)[:, None, None, :] if masked else 0.0
    y, _ = attended(q, k, v, added)
    return [y.swapaxes(0, 1), k, v]


def flag(value):
    return D(bool(value), "bool")


for rows in (1, 6, 20):
    for across, use_past, state in ((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1), (1, 1, 0)):
        keys = 9 if across else rows
        total = 5 + (0 if across else rows) if use_past and state else keys
        marks = D([[(i + b) % 3 == 0 for i in range(total)] for b in range(2)], "bool")
        inputs = [
            R((rows, 2, 16), -1, 1),
            R((9, 2, 16), -1, 1),
            R((16, 16), -0.5, 0.5),
            R((16, 32), -0.5, 0.5),
            R((48,)),
        ]
        for mask in (None, marks):
            rest = [
                mask,
                *[R((2, 2, 5, 8))] * 2,
                *(flag(value) for value in (across, use_past, state, mask is not None)),
            ]
            case(
                "DecoderAttention",
                inputs + rest,
                ("float", "float16"),
                (1,),
                outputs=3,
                slack=8,
                domain=MS,
                reference=decoder_layer,
                num_heads=2,
            )
case(
    "DecoderAttention",
    [*inputs, None, None, None, *[flag(0)] * 4],
    F32,
    (1,),
    outputs=3,
    slack=8,
    domain=MS,
    reference=decoder_layer,
    num_heads=2,
)


# ---- tokens without padding ----


def removed(x, counts):
    batch, length = x.shape[:2]
    counts = np.clip(counts, 0, length)
    stays = np.arange(length) < counts[:, None]
    places = np.concatenate([np.flatnonzero(stays), np.flatnonzero(~stays)]).reshape(batch, length)
    return [x[stays], places, np.concatenate([[0], np.cumsum(counts)]), [counts.max(initial=0)]]


def restored(x, places):
    out = np.zeros((places.size, x.shape[1]))
    for row, at in enumerate(places.reshape(-1)[: len(x)]):
        if 0 <= at < len(out):
            out[at] = x[row]
    return [out.reshape(*places.shape, x.shape[1])]


def padded(x, starts, length):
    out = np.zeros((len(starts) - 1, length, *x.shape[1:]))
    for entry, (start, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        out[entry, : end - start] = x[start:end]
    return out


def over_padding(q, k, v, starts, length, score_bias, heads, scale):
    """Attention of packed rows."""
    q, k, v = (heads_of(padded(x, starts, length), heads) for x in (q, k, v))
    counts = np.diff(starts)
    added = np.where(np.arange(length) < counts[:, None], 0.0, -np.inf)[:, None, None, :]
    y, _ = attended(q, k, v, added + (0.0 if score_bias is None else score_bias), scale)
    return [np.concatenate([y[entry, :count] for entry, count in enumerate(counts)])]


def packed_projected(x, weights, bias, places, starts, score_bias=None, num_heads=1, qkv_hidden_sizes=None, scale=0.0):
    made = x.astype(np.float64) @ weights + bias
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    parts = np.split(made, np.cumsum(sizes)[:2], axis=1)
    return over_padding(*parts, starts, places.shape[1], score_bias, num_heads, scale)


def packed_apart(q, k, v, bias, places, starts, score_bias=None, num_heads=1, scale=0.0):
    if k is None:
        q, k, v = (q[:, :, i].reshape(len(q), q.shape[1] * q.shape[3]) for i in range(3))
    if bias is not None:
        parts = np.split(bias, [q.shape[1], 2 * q.shape[1]])
        q, k, v = (x + part for x, part in zip((q, k, v), parts, strict=True))
    return over_padding(q, k, v, starts, places.shape[1], score_bias, num_heads, scale)


BOTH = ("float", "float16")
for width in (1, 6, 16):
    for counts in ([3, 0, 5], [5, 5, 5], [0, 0, 0], [-2, 9, 1]):
        for name in BOTH:
            case(
                "RemovePadding",
                [R((3, 5, width)), ints(counts)],
                (name,),
                (1,),
                outputs=4,
                domain=MS,
                reference=removed,
            )
    places = [[0, 5, 6, 10, 11], [12, 13, 1, 2, 3], [4, 7, 8, 9, 14]]
    for tokens in (7, 15, 0, 20):
        case("RestorePadding", [R((tokens, width)), ints(places)], BOTH, (1,), domain=MS, reference=restored)
    case(
        "RestorePadding",
        [R((7, width)), ints([[0, -1, 15, 2147483647, 3], [2, 9, 1, 1, 1]])],
        BOTH,
        (1,),
        domain=MS,
        reference=restored,
    )
case(
    "RemovePadding",
    [R((400, 3, 4)), ints([i % 4 for i in range(400)])],
    F32,
    (1,),
    outputs=4,
    domain=MS,
    reference=removed,
    runs=[[R((400, 3, 4)), ints([(i * 3) % 4 for i in range(400)])]],
)
for counts, length in (([3, 0, 5], 5), ([1], 1), ([6, 6], 6), ([40, 17], 40), ([0, 0], 3)):
    tokens, starts = sum(counts), ints(np.concatenate([[0], np.cumsum(counts)]).tolist())
    places = ints(np.arange(len(counts) * length).reshape(len(counts), length).tolist())
    about = [places, starts]
    for lead in (None, (1, 1), (1, 2), (len(counts), 1), (len(counts), 2)):
        rest = about if lead is None else [*about, R((*lead, length, length))]
        packed = [R((tokens, 12), -1, 1), R((12, 48), -0.5, 0.5), R((48,), -0.5, 0.5)]
        case(
            "PackedAttention", [*packed, *rest], BOTH, (1,), slack=8, domain=MS, reference=packed_projected, num_heads=2
        )
        case(
            "PackedMultiHeadAttention",
            [*[R((tokens, 16))] * 3, None, *rest],
            BOTH,
            (1,),
            slack=4,
            domain=MS,
            reference=packed_apart,
            num_heads=2,
        )
    case(
        "PackedAttention",
        [packed[0], R((12, 44), -0.5, 0.5), R((44,)), *about],
        BOTH,
        (1,),
        slack=8,
        domain=MS,
        reference=packed_projected,
        num_heads=2,
        qkv_hidden_sizes=[16, 16, 12],
        scale=0.2,
    )
    case(
        "PackedMultiHeadAttention",
        [R((tokens, 14)), R((tokens, 14)), R((tokens, 6)), R((34,)), *about],
        BOTH,
        (1,),
        slack=4,
        domain=MS,
        reference=packed_apart,
        num_heads=2,
        scale=0.2,
    )
    for bias in (None, R((48,))):
        case(
            "PackedMultiHeadAttention",
            [R((tokens, 2, 3, 8)), None, None, bias, *about],
            BOTH,
            (1,),
            slack=4,
            domain=MS,
            reference=packed_apart,
            num_heads=2,
        )


# ---- GroupQueryAttention: quantised caches ----


def narrowed(x, scale, kind):
    share = np.asarray(x, np.float32) * (np.float32(1) / np.asarray(scale, np.float32))  # its ties are those of floats
    if kind == "float8e4m3fn":
        return np.clip(share, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    low = -8 if kind == "uint8" else -128
    return np.clip(np.rint(share), low, -1 - low)


def two_in_a_byte(x):
    size = x.shape[-1]
    pairs = np.zeros((*x.shape[:-1], size + size % 2)) + 8
    pairs[..., :size] += x
    return pairs[..., 0::2] + 16 * pairs[..., 1::2]


def values_of(cache, kind, size):
    cache = np.asarray(cache, np.float64)
    if kind != "uint8":
        return cache
    pairs = np.stack([cache % 16, cache // 16], -1).reshape(*cache.shape[:-1], 2 * cache.shape[-1])
    return pairs[..., :size] - 8


def quantized_grouped(kind):
    """A reference for caches of a type, for as many tokens in all entries."""

    def attend(query, key, value, past_key, past_value, lengths, total, *rest, num_heads, kv_num_heads, **_):
        scales = rest[5:7]
        size = query.shape[2] // num_heads
        sides = []
        for fresh, past, scale in zip((key, value), (past_key, past_value), scales, strict=True):
            scale = np.asarray(scale, np.float64)
            scale = scale.reshape(1, kv_num_heads, 1, size) if scale.size > 1 else scale.reshape(())
            old = values_of(past, kind, size)
            new = narrowed(heads_of(fresh, kv_num_heads), scale, kind)
            whole = np.concatenate([old, new], 2)
            sides.append(
                (
                    two_in_a_byte(whole) if kind == "uint8" else whole,
                    np.repeat(whole * scale, num_heads // kv_num_heads, 1),
                )
            )
        (keys, k), (values, v) = sides
        y, _ = attended(heads_of(query, num_heads), k, v, causal=True)
        return [y, keys, values]

    return attend


def grouped_cache(
    kind, rows, past, size, types=F32, plain=False, batch=2, rotary=False, modes=("PER_TENSOR", "PER_CHANNEL")
):
    low, high, row = {"int8": (-128, 128, size), "uint8": (0, 256, (size + 1) // 2), "float8e4m3fn": (-60, 60, size)}[
        kind
    ]
    made = np.random.default_rng(size).integers(low, high, (2, batch, 2, past, row))
    if kind == "uint8" and size % 2:
        made[..., -1] = made[..., -1] % 16 + 128  # what is behind the last element is 0
    caches = [D(cache.tolist() if past else np.zeros((batch, 2, 0, row)), kind) for cache in made]
    total = rows + past
    common = [D([total - 1] * batch, "int32"), D([total], "int32")]
    turns = (
        [
            D(np.cos(np.arange(total * (size // 2))).reshape(total, -1).tolist(), "float"),
            D(np.sin(np.arange(total * (size // 2))).reshape(total, -1).tolist(), "float"),
        ]
        if rotary
        else [None, None]
    )
    for mode in modes:
        wanted = [0.0213 + 0.0011 * (i % 9) for i in range(2 * size)]
        if kind == "uint8":
            wanted = [10 * value for value in wanted]
        scale = D([wanted[0]] if mode == "PER_TENSOR" else np.reshape(wanted, (1, 2, 1, size)).tolist(), "float")
        inputs = [
            *(R((batch, rows, n * size)) for n in (4, 2, 2)),
            *caches,
            *common,
            *turns,
            None,
            None,
            None,
            scale,
            scale,
        ]
        for name in types:
            case(
                "GroupQueryAttention",
                inputs,
                (name,),
                (1,),
                outputs=3,
                slack=4,
                domain=MS,
                num_heads=4,
                kv_num_heads=2,
                k_quant_type=mode,
                v_quant_type=mode,
                kv_cache_bit_width=4 if kind == "uint8" else 8,
                do_rotary=int(rotary),
                reference=quantized_grouped(kind) if plain else None,
            )


for kind in ("int8", "uint8", "float8e4m3fn"):
    plain = kind == "float8e4m3fn"
    for rows, past in ((1, 7), (5, 0), (40, 0), (1, 300)):
        grouped_cache(kind, rows, past, 16, plain=plain)
        grouped_cache(kind, rows, past, 16, NARROW, plain=True)
    for size in (64, 128):
        grouped_cache(kind, 1, 90, size, NARROW, plain=True)
        grouped_cache(kind, 3, 40, size, NARROW, batch=1, plain=True)
    grouped_cache(kind, 3, 5, 20, batch=1, plain=True)
    grouped_cache(kind, 2, 5, 7, batch=1, plain=True)
for kind in ("int8", "uint8"):
    grouped_cache(kind, 1, 7, 16, rotary=True)


# ---- positions: rotation within Attention ----

for rows, past in ((1, 7), (5, 0), (20, 3)):
    rest = [None, R((2, 2, 2, past, 16))] if past else []
    for dim in (0, 8):
        more = {"rotary_embedding_dim": dim} if dim else {}
        own([*layer(2, rows, 12, 96), *rest], NARROW, 2, plain=True, num_heads=2, do_rotary=1, unidirectional=1, **more)
    qattention("int8", "int8", 2, rows, 24, [None, None, None, *rest[1:]] if past else (), columns=96, do_rotary=1)
for pack, types in ((4, F32), (8, ("float16",))):
    case(
        "DecoderMaskedSelfAttention",
        [*layer(4, 1, 12, 96), None, R((2, 4, 2, 20, 16)), None, ints([9])],
        types,
        (1,),
        outputs=2,
        slack=8,
        domain=MS,
        num_heads=2,
        past_present_share_buffer=1,
        do_rotary=1,
        reference=lambda *x, pack=pack, **attrs: projected(*x, pack=pack, **attrs),
    )
