# SPDX-License-Identifier: Apache-2.0
"""Normalisation as com.microsoft has it: of embeddings, of groups with channels last."""

import numpy as np

from cases.kit import F32, D, P, R, case

MS = {"opsets": (1,), "domain": "com.microsoft"}
HALF = ("float", "float16")


# ---- EmbedLayerNormalization ----
def embedded(ids, segment_ids, words, positions, segments, gamma, beta, mask=None, position_ids=None, epsilon=1e-12,
             mask_index_type=0):
    total = words.astype(np.float64)[ids]
    total = total + positions[np.arange(ids.shape[1]) if position_ids is None else position_ids]
    if segments is not None:
        total = total + segments[0 if segment_ids is None else segment_ids]
    off = total - total.mean(axis=-1, keepdims=True)
    normal = off / np.sqrt((off * off).mean(axis=-1, keepdims=True) + epsilon) * gamma + beta
    index = np.zeros(len(ids))
    if mask is not None:
        index = np.where((mask == 0).any(axis=1), (mask == 0).argmax(axis=1), mask.shape[1])
    return [normal, index, total]


def first(count):
    return lambda *x, **attributes: embedded(*x, **attributes)[:count]


IDS = D([[0, 3, 7, 1, 1], [9, 9, 2, 0, 4]], "int32")
KIND = D([[0, 0, 1, 1, 1], [0, 1, 0, 1, 0]], "int32")
SEEN = D([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
TURNED = D([[4, 3, 2, 1, 0], [0, 2, 4, 6, 5]], "int32")


def table(kind, *shape):
    """Of sizes that are known, as the schema wants those of embeddings."""
    values = np.random.default_rng(shape).uniform(-3, 3, shape)
    return D(values.astype(np.float16 if kind == "float16" else np.float32).tolist(), kind)


def tables_of(kind, rows, hidden):
    return [*(table(kind, count, hidden) for count in rows), table(kind, hidden), table(kind, hidden)]


for kind in HALF:
    for hidden in (64, 100, 33, 1027):
        tables = tables_of(kind, (10, 7, 2), hidden)
        attrs = {"types": (kind,), "slack": 8, **MS}
        lone = [None, *tables[:2], None, *tables[3:]]
        case("EmbedLayerNormalization", [IDS, KIND, *tables, SEEN], outputs=2, epsilon=1e-5, reference=first(2),
             **attrs)
        case("EmbedLayerNormalization", [IDS, KIND, *tables, SEEN, TURNED], outputs=3, reference=embedded, epsilon=1e-3,
             **attrs)
        case("EmbedLayerNormalization", [IDS, *lone], outputs=2, reference=first(2), **attrs)
        case("EmbedLayerNormalization", [IDS, *lone, None, D([[6, 5, 4, 3, 2]], "int32")], outputs=3,
             reference=embedded, **attrs)
        case("EmbedLayerNormalization", [IDS, None, *tables], outputs=2, reference=first(2), **attrs)
    tables = tables_of(kind, (5, 4), 2000)
    case("EmbedLayerNormalization", [D([[1, 2, 3, 4]], "int32"), None, *tables[:2], None, *tables[2:],
                                     D([[1, 0, 1, 0]], "int32")], **attrs, outputs=2, reference=first(2), note="a hole")
# The CPU provider, whose mask index is a count of ones; with these masks it is the same.
tables = tables_of("float", (10, 5, 2), 48)
case("EmbedLayerNormalization", [IDS, KIND, *tables, SEEN], F32, outputs=2, slack=8, **MS)
case("EmbedLayerNormalization", [IDS, KIND, *tables], F32, outputs=2, slack=8, epsilon=1e-5, **MS)
case("EmbedLayerNormalization", [D(np.zeros((0, 5)), "int32"), None, *tables], F32, outputs=2,
     reference=lambda *x, **_: [np.zeros((0, 5, 48)), np.zeros(0)], **MS)


# ---- GroupNorm, SkipGroupNorm ----
def group_norm(x, gamma, beta, groups, activation, epsilon=1e-5, channels_last=1):
    moved = np.moveaxis(x.astype(np.float64), -1, 1) if channels_last else x.astype(np.float64)
    rows = moved.reshape(len(x), groups, -1)
    off = rows - rows.mean(axis=2, keepdims=True)
    normal = (off / np.sqrt((off * off).mean(axis=2, keepdims=True) + epsilon)).reshape(moved.shape)
    shape = (-1, *[1] * (x.ndim - 2))
    normal = normal * gamma.reshape(shape).astype(np.float64) + beta.reshape(shape)
    normal = normal / (1 + np.exp(-normal)) if activation else normal
    return [np.moveaxis(normal, 1, -1) if channels_last else normal]


def skip_group_norm(x, gamma, beta, skip, bias=None, channels_last=1, **attributes):
    if skip.shape != x.shape:
        skip = skip.reshape(len(x), *([1] * (x.ndim - 2) + [-1] if channels_last else [-1] + [1] * (x.ndim - 2)))
    total = x.astype(np.float64) + skip
    if bias is not None:
        total = total + bias.reshape((-1,) if channels_last else (-1, *[1] * (x.ndim - 2)))
    total = total.astype(x.dtype)
    return [*group_norm(total, gamma, beta, channels_last=channels_last, **attributes), total]


def shaped(batch, pixels, channels, last):
    return (batch, *pixels, channels) if last else (batch, channels, *pixels)


SIZES = ((2, (4, 5), 320, 32), (1, (3, 3), 6, 3), (2, (1, 1), 16, 4), (2, (17, 9), 40, 5), (1, (64, 48), 24, 2))
SIZES += ((2, (3, 2), 2560, 32), (3, (2, 2), 7, 7), (1, (130, 1), 2, 1))
for last in (1, 0):
    for batch, pixels, channels, groups in SIZES:
        shape = shaped(batch, pixels, channels, last)
        vector = R((channels,))
        wide = D(np.linspace(-2, 2, channels), "float")  # a scale of float for all types, as most models have it
        for activation in (0, 1):
            attrs = {"groups": groups, "activation": activation, "channels_last": last, "slack": 8, **MS}
            case("GroupNorm", [R(shape), wide, wide], HALF, reference=group_norm, **attrs)
            case("SkipGroupNorm", [R(shape), wide, wide, R(shape), vector], HALF, outputs=2, reference=skip_group_norm,
                 **attrs)
        case("GroupNorm", [R(shape), vector, vector], HALF, reference=group_norm, epsilon=0.1, **attrs)
        narrow = D(np.linspace(-2, 2, channels), "float16")
        case("GroupNorm", [R(shape), narrow, narrow], HALF, reference=group_norm, **attrs)
        flat, single = (batch, channels), shaped(batch, (1, 1), channels, last)
        case("SkipGroupNorm", [R(shape), wide, wide, R(flat)], HALF, outputs=2, reference=skip_group_norm, **attrs)
        case("SkipGroupNorm", [R(shape), wide, wide, R(single), vector], HALF,
             reference=lambda *x, **a: skip_group_norm(*x, **a)[:1], **attrs)
    shape = shaped(2, (6, 5), 12, last)
    attrs = {"groups": 3, "activation": 0, "channels_last": last, **MS}
    case("GroupNorm", [R(shape, 999, 1001), P((12,)), R((12,))], F32, reference=group_norm, slack=200,
         note="far from zero", **attrs)
    case("GroupNorm", [R(shaped(0, (6, 5), 12, last)), P((12,)), R((12,))], F32, reference=lambda x, *_, **__: [x],
         **attrs)
    case("GroupNorm", [R(shape), R((12,)), R((12,))], F32, reference=group_norm, slack=8,
         runs=[[R(shaped(1, (3, 50), 9, last)), R((9,)), R((9,))]], note="shapes change", **attrs)
