# SPDX-License-Identifier: Apache-2.0
"""Positions of com.microsoft: rotary ones on three axes or from given angles, and biases by distance."""

import numpy as np

from cases.attention import MS, NARROW
from cases.kit import F32, D, K, R, case

HALVES = ("float", "float16")

# Three positions a token: sections in a row or mixed, heads first and last, packs of 16 bytes and odd sizes.
for size, sections in ((16, [2, 3, 3]), (64, [16, 8, 8]), (12, [6, 0, 0]), (14, [1, 3, 3])):
    for layout in (0, 1):
        for interleaved in (0, 1):
            given = D(np.random.default_rng(size).integers(0, 20, (3, 2, 4)).tolist())
            caches = [R((20, size // 2), -1, 1)] * 2
            attrs = {"mrope_section": sections, "mrope_layout": layout, "interleaved": interleaved, "domain": MS}
            case("MRotaryEmbedding", [R((2, 3, 4, size)), given, *caches], NARROW, (1,), **attrs)
            case("MRotaryEmbedding", [R((2, 4, 3 * size)), given, *caches], F32, (1,), num_heads=3, scale=2.0, **attrs)
            case(
                "MRotaryEmbedding",
                [R((2, 4, 3 * (size + 16))), given, *caches],
                F32,
                (1,),
                num_heads=3,
                scale=0.5,
                rotary_embedding_dim=size,
                **attrs,
            )
case(
    "MRotaryEmbedding",
    [R((2, 0, 24)), D(np.zeros((3, 2, 0))), R((5, 4)), R((5, 4))],
    F32,
    (1,),
    domain=MS,
    num_heads=3,
    mrope_section=[4, 0, 0],
)
case(
    "MRotaryEmbedding",
    [R((1, 2, 1, 8)), K([[[1]], [[0]], [[3]]]), R((5, 4)), R((5, 4))],
    F32,
    (1,),
    domain=MS,
    mrope_section=[1, 1, 2],
    runs=[[R((1, 2, 1, 8)), K([[[1]], [[0]], [[3]]]), R((9, 4)), R((9, 4))]],
)


def given_angles(angle, q, q_turned, k, k_turned):
    cosine, sine = (f(angle).astype(q.dtype).astype(np.float32)[:, None] for f in (np.cos, np.sin))
    return [q * cosine + q_turned * sine, k * cosine + k_turned * sine]


for batch, heads, kv_heads, rows, size in ((2, 3, 3, 5, 8), (1, 8, 1, 1, 256), (2, 1, 1, 0, 4), (3, 5, 2, 7, 3)):
    q, k = R((batch, heads, rows, size)), R((batch, kv_heads, rows, size))
    case(
        "GemmaRotaryEmbedding",
        [D(np.linspace(-40, 900, batch * rows * size).reshape(batch, rows, size), "float"), q, q, k, k],
        ("float16",),
        (1,),
        outputs=2,
        domain=MS,
        reference=given_angles,
    )


def by_distance(table, rows, keys, max_distance, is_bidirectional=0):
    """`table` is stored head by head."""
    rows, (buckets, heads) = int(np.ravel(rows)[0]), table.shape
    stored = table.reshape(heads, buckets)
    ahead = np.arange(rows)[None] - np.arange(rows)[:, None]
    first = np.zeros_like(ahead)
    if is_bidirectional:
        buckets //= 2
        first = np.where(ahead > 0, buckets, 0)
        distance = np.abs(ahead)
    else:
        distance = np.maximum(-ahead, 0)
    exact = buckets // 2
    with np.errstate(divide="ignore"):
        part = np.log(np.float32(distance) / np.float32(exact)) / np.log(np.float32(max_distance / exact))
    far = exact + np.maximum(part * np.float32(buckets - exact), 0).astype(np.int64)
    return [stored[:, first + np.where(distance < exact, distance, np.minimum(far, buckets - 1))][None]]


for both in (0, 1):
    for rows, buckets, heads, most in ((7, 8, 3, 20), (200, 32, 2, 128), (1, 4, 1, 9), (0, 8, 2, 20), (30, 6, 2, 5)):
        case(
            "RelativePositionBias",
            [R((buckets, heads)), K([rows]), K([rows])],
            HALVES,
            (1,),
            domain=MS,
            reference=by_distance,
            max_distance=most,
            is_bidirectional=both,
        )
case(
    "RelativePositionBias",
    [R((8, 3)), D(5), D(5)],
    F32,
    (1,),
    domain=MS,
    reference=by_distance,
    max_distance=20,
    runs=[[R((8, 3)), D(9), D(9)]],
)


def gated(query, query_bias, bias, weight, weight_bias, limit, offsets=None, num_heads=1):
    wide = [x.astype(np.float64) for x in (query, query_bias, bias, weight, weight_bias, limit)]
    query, query_bias, bias, weight, weight_bias, limit = wide
    if offsets is not None:
        laid = np.zeros((offsets.size, query.shape[-1]))
        laid[offsets.ravel()[: len(query)]] = query
        query = laid.reshape(*offsets.shape, -1)
    batch, rows, width = query.shape
    heads = (query + query_bias).reshape(batch, rows, num_heads, width // num_heads).transpose(0, 2, 1, 3)
    columns = (heads @ weight + weight_bias).reshape(batch, num_heads, rows, 2, weight.shape[1] // 2).sum(-1)
    first, second = (1 / (1 + np.exp(-columns[..., i : i + 1])) for i in (0, 1))
    return [(first * (second * limit - 1) + 2) * bias]


for batch, heads, rows, size, columns in ((2, 3, 5, 8, 8), (1, 2, 130, 64, 8), (3, 1, 1, 5, 2), (0, 2, 4, 8, 8)):
    rest = [
        R((heads * size,)),
        R((1, heads, rows, rows)),
        R((size, columns), -0.3, 0.3),
        R((columns,)),
        R((1, heads, 1, 1)),
    ]
    case(
        "GatedRelativePositionBias",
        [R((batch, rows, heads * size)), *rest],
        HALVES,
        (1,),
        domain=MS,
        reference=gated,
        num_heads=heads,
    )
    order = np.random.default_rng(rows).permutation(batch * rows).reshape(batch, rows).tolist()
    for tokens in {0, batch * rows // 2, batch * rows} if batch else ():
        case(
            "GatedRelativePositionBias",
            [R((tokens, heads * size)), *rest, D(order, "int32")],
            HALVES,
            (1,),
            domain=MS,
            reference=gated,
            num_heads=heads,
        )
