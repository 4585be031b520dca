# SPDX-License-Identifier: Apache-2.0
"""PagedAttention of com.microsoft: packed batches over caches in blocks, against NumPy."""

import ml_dtypes
import numpy as np

from cases.attention import MS
from cases.kit import D, K, R, case

HALVES = ("float16", "bfloat16")
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def rotated(x, positions, cosine, sine, interleaved, offset):
    half = cosine.shape[1]
    c, s = (t.astype(np.float64)[np.minimum(positions, len(t) - 1)][:, None] for t in (cosine, sine))
    part, out = x[..., offset : offset + 2 * half], x.copy()
    first, second = (part[..., 0::2], part[..., 1::2]) if interleaved else (part[..., :half], part[..., half:])
    turned = np.stack([first * c - second * s, first * s + second * c], -1 if interleaved else -2)
    out[..., offset : offset + 2 * half] = turned.reshape(part.shape)
    return out


def normed(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight.astype(np.float64)


def unpack(cache, kind):
    """Codes as numbers."""
    if kind in ("int4", "float4e2m1"):
        codes = np.stack([cache & 15, cache >> 4], -1).reshape(*cache.shape[:-1], -1).astype(np.int64)
        return np.where(codes > 7, codes - 16, codes) if kind == "int4" else FP4[codes & 7] * np.where(codes > 7, -1, 1)
    return cache.astype(np.float64)


def quantized(x, kind):
    """Numbers as codes, in the form of a row of the cache."""
    if kind == "float8e4m3fn":
        return np.clip(x, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    if kind == "int8":
        return np.clip(np.rint(x), -128, 127)
    if kind == "int4":
        codes = np.clip(np.rint(x), -8, 7).astype(np.int64) & 15
    else:
        codes = np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8).astype(np.int64)
    codes = np.concatenate([codes, codes * 0], -1)[..., : codes.shape[-1] + codes.shape[-1] % 2]
    return codes[..., 0::2] | codes[..., 1::2] << 4


def paged(q, k, v, k_cache, v_cache, starts, past, table, cosine=None, sine=None, slots=None, sink=None, q_norm=None,
          k_norm=None, k_scale=None, v_scale=None, bounds=None, num_heads=1, kv_num_heads=1, scale=None, softcap=0.0,
          local_window_size=-1, is_causal=1, do_rotary=0, rotary_interleaved=0, rotary_offset=0, qk_norm_epsilon=1e-6,
          k_quant_type="NONE", v_quant_type="NONE", k_cache_dtype="", v_cache_dtype="", kv_cache_layout="SEPARATE",
          v_head_size=0, codes=("", ""), choose=None):
    tokens, latent = len(q), kv_cache_layout == "LATENT"
    q = q.astype(np.float64)
    if k is None:
        size = q.shape[1] // (num_heads + 2 * kv_num_heads)
        q, k, v = np.split(q, [num_heads * size, (num_heads + kv_num_heads) * size], 1)
    size = q.shape[1] // num_heads
    value = v_head_size or size
    q = q.reshape(tokens, num_heads, size)
    new = [k.astype(np.float64).reshape(tokens, kv_num_heads, size)]
    new += [] if latent else [v.astype(np.float64).reshape(tokens, kv_num_heads, size)]
    owner = np.searchsorted(starts, np.arange(tokens), "right") - 1
    positions = past[owner] + np.arange(tokens) - starts[owner]
    if q_norm is not None:
        q, new[0] = normed(q, q_norm, qk_norm_epsilon), normed(new[0], k_norm, qk_norm_epsilon)
    if do_rotary:
        q, new[0] = (rotated(x, positions, cosine, sine, rotary_interleaved, rotary_offset) for x in (q, new[0]))
    block = k_cache.shape[1]
    caches = [x.astype(np.float64) if codes[0] in ("", "float8e4m3fn") else x.astype(np.int64)
              for x in ((k_cache,) if latent else (k_cache, v_cache))]
    scales = [np.ones(1) if x is None else x.astype(np.float64) for x in (k_scale, v_scale)]
    scales = [x.reshape(kv_num_heads, size) if x.size > 1 else x for x in scales]
    for t in range(tokens):
        slot = table[owner[t], positions[t] // block] * block + positions[t] % block if slots is None else slots[t]
        for cache, row, step, kind in zip(caches, new, scales, codes, strict=False):
            if slot >= 0:
                codes_of = quantized(np.float32(row[t]) / np.float32(step), kind) if kind else row[t]
                cache[slot // block, slot % block] = codes_of
    read = [unpack(x, kind) for x, kind in zip(caches, codes, strict=False)]
    read = [x[..., :size] * step for x, step in zip(read, scales, strict=False)]
    values = read[0][..., :value] if latent else read[1]
    out = np.zeros((tokens, num_heads, value))
    for t in range(tokens):
        length = past[owner[t]] + starts[owner[t] + 1] - starts[owner[t]]
        end = positions[t] + 1 if is_causal else length
        first = max(0, positions[t] + 1 - local_window_size) if local_window_size > 0 else 0
        keys, beside = np.arange(first, end), np.zeros((2, 0, kv_num_heads, size))
        if choose is not None:
            keys, beside = choose(t, owner[t], positions[t], length, keys)
        blocks = table[owner[t], keys // block]
        keys, blocks = keys[blocks >= 0], blocks[blocks >= 0]
        for h in range(num_heads):
            g = h // (num_heads // kv_num_heads)
            own = np.concatenate([read[0][blocks, keys % block, g], beside[0][:, g]])
            scores = own @ q[t, h] * (scale or size**-0.5)
            scores = softcap * np.tanh(scores / softcap) if softcap else scores
            top = max([*scores, *([] if sink is None else [sink[h]])], default=0)
            weights = np.exp(scores - top)
            total = weights.sum() + (0 if sink is None else np.exp(np.float64(sink[h]) - top))
            given = np.concatenate([values[blocks, keys % block, g], beside[1][:, g, :value]])
            out[t, h] = weights @ given / (total or 1)
    return [out.reshape(tokens, num_heads * value), *caches]


def entries(lengths, past, block, room, holes=False):
    """Starts, past lengths and a table of blocks in any order, with the inputs' types."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    most = max(-(-(n + p) // block) for n, p in zip(lengths, past, strict=True)) + 1
    table = np.random.default_rng(len(lengths)).permutation(room)[: len(lengths) * most].reshape(len(lengths), most)
    table[:, -1] = -1
    if holes:
        table[0, 0] = -1
    return [D(starts.tolist(), "int32"), D(list(past), "int32"), D(table.tolist(), "int32")]


def node(lengths, past, heads=4, kv=2, size=16, block=16, room=24, packed=False, rotary=0, slots=None, sink=False,
         norm=False, code="", each=False, bounds=None, value=0, holes=False, types=("float16",), slack=3, **attrs):
    tokens, width = sum(lengths), (size + 1) // 2 if code in ("int4", "float4e2m1") else size
    latent = bool(value)
    inputs = [R((tokens, heads * size)), R((tokens, kv * size)), None if latent else R((tokens, kv * size))]
    if packed:
        inputs = [None, None, None]
    shape, holder = (room, block, kv, width), {"int4": "uint8", "float4e2m1": "uint8"}.get(code, code)
    cache = R(shape)
    if code:
        low, high = {"uint8": (0, 256), "int8": (-128, 128)}.get(holder, (-16, 17))
        cache = D(np.random.default_rng(size).integers(low, high, shape), holder)
        scales = np.linspace(0.01, 0.03, kv * size).reshape(kv, 1, size).tolist() if each else [0.02]
        scale = D(scales if holder != "uint8" else (np.array(scales) * 20).tolist(), "float")
        attrs |= dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL" if each else "PER_TENSOR")
        if holder != code:
            attrs |= dict.fromkeys(("k_cache_dtype", "v_cache_dtype"), code)
    inputs += [cache, None if latent else cache, *entries(lengths, past, block, room, holes)]
    inputs += [R((60, rotary // 2), -1, 1)] * 2 if rotary else [None, None]
    inputs += [D(slots, "int32") if slots else None, R((heads,)) if sink else None]
    inputs += [R((size,), 0.5, 2)] * 2 if norm else [None, None]
    inputs += [scale, None if latent else scale] if code else [None, None]
    inputs.append(K(bounds, "int32") if bounds else None)
    while inputs[-1] is None:
        inputs.pop()
    if latent:
        attrs |= {"kv_cache_layout": "LATENT", "v_head_size": value, "scale": 0.25}
    if rotary:
        attrs["do_rotary"] = 1

    def reference(*given, **named):
        return paged(*given, **named, codes=(code, code))

    outputs = 2 if latent else 3
    for kind in types:
        if packed:  # ONNX Runtime's inference of shapes wants to know these
            values = np.random.default_rng(tokens).uniform(-3, 3, (tokens, (heads + 2 * kv) * size))
            inputs[0] = D(values.tolist(), kind)
        case("PagedAttention", list(inputs), (kind,), (1,), outputs=outputs, domain=MS,
             slack=slack, reference=reference, num_heads=heads, kv_num_heads=kv, **attrs)


# Tokens of some requests: one each, many, none; heads of odd sizes, grouped or not, packed or apart.
for heads, kv in ((4, 4), (4, 2), (9, 1), (6, 2)):
    node([1, 1, 1], [0, 20, 37], heads, kv, types=HALVES)
    node([5, 0, 1, 12], [3, 8, 20, 0], heads, kv, packed=True, types=HALVES)
for size in (8, 5, 64, 100, 256):
    node([1, 3], [30, 7], size=size)
    node([2, 1], [30, 7], size=size, packed=True, block=5, room=40)
node([1], [700], heads=2, kv=1, block=16, room=60, bounds=[1, 701], types=HALVES)
node([1, 2], [300, 100], heads=1, kv=1, block=16, room=60, sink=True, softcap=5.0)
node([40], [5], bounds=[0, 0], room=8)
node([0, 0], [4, 5])
# Rotary positions, norms, windows, sinks, masks that are not causal, slots, blocks that are missing.
for interleaved in (0, 1):
    node([5, 1], [3, 20], rotary=16, rotary_interleaved=interleaved, types=HALVES)
    node([5, 1], [3, 70], rotary=8, rotary_interleaved=interleaved, rotary_offset=8, packed=True, room=30)
node([5, 1], [3, 20], norm=True, types=HALVES)
node([5, 1], [3, 20], norm=True, rotary=16, packed=True, qk_norm_epsilon=0.25)
for window in (1, 4, 100):
    node([9, 1], [3, 20], local_window_size=window)
    node([9, 1], [3, 20], local_window_size=window, is_causal=0, sink=True)
node([9, 1], [3, 20], is_causal=0, types=HALVES)
node([5, 1], [3, 20], sink=True, types=HALVES)
node([5, 1], [3, 20], softcap=2.0, scale=0.7)
node([5, 1], [3, 20], slots=[380, 3, -1, 17, 100, 99])
node([5, 1], [20, 20], holes=True)
node([1, 1], [5, 20], holes=True, sink=True)
# Caches of codes.
for code in ("int8", "float8e4m3fn", "int4", "float4e2m1"):
    for each in (False, True):
        node([5, 1], [3, 20], code=code, each=each, types=HALVES, slack=6)
        node([1, 1], [3, 20], heads=2, kv=2, size=11, code=code, each=each, slack=6)
        node([1, 2], [200, 20], size=64, code=code, each=each, rotary=64, room=30, slack=6)
# Enough work for keys to be gathered: prompts of different lengths, behind a past or not, one token each.
for kind in HALVES:
    long = {"heads": 8, "kv": 2, "size": 64, "room": 60, "types": (kind,)}
    node([40, 3], [200, 0], **long, rotary=64)
    node([70, 0, 1, 33], [0, 9, 130, 20], **long, packed=True, sink=True, bounds=[70, 131])
    node([48, 48], [0, 100], **long, local_window_size=30)
    for cap in (5.0, 250.0, 1e6, 1e-6):
        node([90], [37], **long, softcap=cap, is_causal=0)
    node([1, 1, 1, 1], [233, 100, 7, 0], **(long | {"heads": 32, "room": 90, "size": 128}), norm=True)
    for code in ("int8", "float8e4m3fn", "int4", "float4e2m1"):
        node([40, 3], [200, 0], **long, code=code, each=True, slack=6)
# The same number of new tokens each: keys are read where they lie, if a block has whole tiles of them.
for kind in HALVES:
    for size, block in ((64, 32), (64, 48), (128, 16), (128, 64)):
        same = {"heads": 8, "kv": 2, "size": size, "block": block, "room": 32, "types": (kind,)}
        node([1, 1, 1], [0, 33, 5 * block - 1], **same, bounds=[1, 5 * block])
        node([2, 2], [3, 3 * block], **same, bounds=[2, 0], sink=True, rotary=size, packed=True)
        node([1, 1], [70, 2 * block], **same, bounds=[1, 0], local_window_size=40, holes=True)
        for each in (False, True):
            node([1, 1, 1], [0, 130, 2 * block], **same, bounds=[1, 0], code="int8", each=each, slack=6)
    node([1, 1], [9, 40], heads=64, kv=4, size=64, block=64, room=8, bounds=[1, 0], code="int8", types=(kind,), slack=6)
# Values that are the first elements of the keys.
node([5, 1], [3, 20], heads=4, kv=1, size=24, value=16, types=HALVES)
node([2, 1], [3, 20], heads=3, kv=1, size=576, value=512, rotary=64, rotary_offset=512, slack=6)
node([2, 1], [3, 20], heads=3, kv=1, size=24, value=9, code="int8", each=True, slack=6)


# SparsePagedAttention: tokens choose keys of the caches or of keys beside them.
def sparse(q, k, v, k_cache, v_cache, starts, past, table, slots, indices, counts, key=None, value=None, lengths=None,
           cosine=None, sine=None, sink=None, q_norm=None, k_norm=None, k_scale=None, v_scale=None, bounds=None,
           attention_mode="selected_only", selected_kv_source="main", auxiliary_kv_shared=0, **attrs):
    kv, size = k_cache.shape[2:]
    local = attention_mode != "selected_only"

    def choose(t, entry, position, length, seen):
        chosen = indices[t, : max(0, min(counts[t], indices.shape[1]))]
        keys, beside = seen if local else seen[:0], np.zeros((2, 0, kv, size))
        if selected_kv_source == "main":
            last = position if attrs.get("is_causal", 1) else length - 1
            chosen = [i for i in chosen if 0 <= i <= last and i not in keys]
            return np.concatenate([keys, chosen]).astype(np.int64), beside
        chosen = [i for i in chosen if 0 <= i < min(lengths[entry], key.shape[1])]
        pair = [np.broadcast_to(x[entry, chosen], (len(chosen), kv, size)) for x in
                (key, key if auxiliary_kv_shared else value)]
        return keys, np.stack(pair).astype(np.float64)

    return paged(q, k, v, k_cache, v_cache, starts, past, table, cosine, sine, slots, sink, q_norm, k_norm, k_scale,
                 v_scale, choose=choose, **attrs)


def chooser(lengths, past, heads=4, kv=2, size=16, most=7, source="main", local=False, beside_heads=None, shared=0,
            rotary=0, norm=False, sink=False, slots=None, code="", each=False, bounds=None, types=("float16",),
            counts=None, room=24, **attrs):
    tokens, cache, scale, codes = sum(lengths), R((room, 16, kv, size)), None, ("", "")
    generator = np.random.default_rng(tokens * size)
    if code:
        cache = D(generator.integers(-128, 128, (room, 16, kv, size)), code)
        scale = D(np.linspace(0.01, 0.03, kv * size).reshape(kv, 1, size).tolist() if each else [0.02], "float")
        attrs |= dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL" if each else "PER_TENSOR")
        codes = (code, code)
    inputs = [R((tokens, heads * size)), R((tokens, kv * size)), R((tokens, kv * size)), cache, cache,
              *entries(lengths, past, 16, room), D(slots, "int32") if slots else None]
    indices = np.array([generator.permutation(40)[:most] - 2 for _ in range(tokens)]).reshape(tokens, most)
    inputs += [D(indices.tolist(), "int32"), D(counts or [most - i % 3 for i in range(tokens)], "int32")]
    if source == "auxiliary":
        own = R((len(lengths), 30, beside_heads or kv, size))
        inputs += [own, None if shared else own, D([25 - 20 * i for i in range(len(lengths))], "int32")]
    else:
        inputs += [None, None, None]
    inputs += [R((60, rotary // 2), -1, 1)] * 2 if rotary else [None, None]
    inputs += [R((heads,)) if sink else None, *([R((size,), 0.5, 2)] * 2 if norm else [None, None]), scale, scale]
    inputs.append(K(bounds, "int32") if bounds else None)
    while inputs[-1] is None:
        inputs.pop()
    if local:
        attrs["attention_mode"] = "local_plus_selected"
    if source != "main":
        attrs |= {"selected_kv_source": source, "auxiliary_kv_shared": shared}
    if rotary:
        attrs["do_rotary"] = 1

    def reference(*given, **named):
        return sparse(*given, **named, codes=codes)

    case("SparsePagedAttention", inputs, types, (1,), outputs=3, domain=MS,
         slack=4, reference=reference, num_heads=heads, kv_num_heads=kv, **attrs)


for heads, kv in ((4, 2), (2, 2), (9, 1)):
    chooser([1, 1], [20, 37], heads, kv, types=HALVES)
    chooser([3, 0, 2], [20, 5, 30], heads, kv, local=True, local_window_size=4, types=HALVES)
    chooser([3, 2], [20, 30], heads, kv, source="auxiliary", local=True, local_window_size=4, types=HALVES)
for size in (5, 64, 100, 264):
    chooser([2, 1], [20, 37], size=size, local=True)
    chooser([2, 1], [20, 37], size=size, source="auxiliary", beside_heads=1, shared=1)
chooser([1], [700], heads=2, kv=1, local=True, room=60, bounds=[1, 701, 7, 0, 800], is_causal=0)
chooser([5, 1], [3, 20], is_causal=0)
chooser([5, 1], [3, 20], rotary=16, norm=True, sink=True, source="auxiliary")
chooser([5, 1], [3, 20], sink=True, softcap=2.0, scale=0.7, slots=[380, 3, -1, 17, 100, 99])
chooser([2, 1], [3, 20], counts=[-3, 100, 0], sink=True)
chooser([2, 1], [3, 20], counts=[0, 0, 0])
chooser([2, 1], [3, 20], most=0, counts=[1, 2, 3], local=True)
for each in (False, True):
    chooser([3, 2], [20, 30], code="int8", each=each, local=True, local_window_size=5, types=HALVES)
    chooser([3, 2], [20, 30], code="int8", each=each, source="auxiliary", local=True, types=HALVES)
