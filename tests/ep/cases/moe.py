# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: MoE against the CPU provider where that has the form, otherwise against NumPy; QMoE against
NumPy."""

import functools

import ml_dtypes
import numpy as np

from cases.kit import F32, D, R, case

FLOATS = ("float", "float16", "bfloat16")
MS = {"domain": "com.microsoft", "opsets": (1,), "slack": 4}


def active(x, gate, kind, fusion, alpha, beta, limit):
    sigmoid = lambda y: 1 / (1 + np.exp(-y))  # noqa: E731
    if kind != "swiglu":
        forms = {"relu": np.maximum(x, 0), "silu": x * sigmoid(x), "identity": x}
        forms["gelu"] = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
        return forms[kind] * (1 if gate is None else gate)
    half = x.shape[-1] // 2
    g, linear = ((x, gate), (x[..., 0::2], x[..., 1::2]), (x[..., :half], x[..., half:]))[fusion]
    g, linear = np.minimum(g, limit), np.clip(linear, -limit, limit)
    return g * sigmoid(alpha * g) * (linear + beta)


def chosen(scores, k, sparse, normalize, mix):
    """[(expert, weight)] of a row."""
    order = np.argsort(-scores, kind="stable")[:k]
    if sparse:
        weights = []
        for j, best in enumerate(order):
            near = scores[best] - scores <= 0.02 * np.maximum(np.abs(scores), scores[best])
            near[order[:j]] = False
            weights.append(1 / np.exp(scores[near] - scores[best]).sum())
        return list(zip(order, weights, strict=True))
    shares = np.exp(scores - scores.max())
    weights = (shares / shares.sum() if mix is None else mix)[order]
    return list(zip(order, weights / weights.sum() if normalize else weights, strict=True))


def mixture(x, scores, first, second, third=None, mix=None, *, k=1, activation_type="relu", swiglu_fusion=0,
            activation_alpha=1.0, activation_beta=0.0, swiglu_limit=np.inf, normalize_routing_weights=0,
            use_sparse_mixer=0):
    """Matrices are pairs of weights [experts, n, k] and biases, or None."""
    rows = x.reshape(-1, x.shape[-1]).astype(float)
    out = np.zeros_like(rows)
    for number, row in enumerate(rows):
        own = None if mix is None else mix[number].astype(float)
        pairs = chosen(scores[number].astype(float), k, use_sparse_mixer, normalize_routing_weights, own)
        for expert, weight in pairs:
            apply = lambda y, matrix: matrix[0][expert] @ y + (0 if matrix[1] is None else matrix[1][expert])  # noqa: B023,E731
            inner = active(apply(row, first), None if third is None else apply(row, third), activation_type,
                           swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
            out[number] += weight * apply(inner, second)
    return [out.reshape(x.shape)]


# ---- MoE ----


def moe_rows(x, scores, w1, b1, w2, b2=None, w3=None, b3=None, **attrs):
    return mixture(x, scores, (w1, b1), (w2, b2), None if w3 is None else (w3, b3), **attrs)


def moe(rows, hidden, inter, experts, types=F32, bias=True, third=False, alone=False, runs=(), **attrs):
    wide = inter * 2 if attrs.get("swiglu_fusion") else inter
    inputs = lambda rows: [  # noqa: E731
        R((*rows, hidden), -1, 1), R((int(np.prod(rows)), experts), -2, 2), R((experts, wide, hidden), -1, 1),
        R((experts, wide), -1, 1) if bias else None, R((experts, hidden, inter), -1, 1),
        *([R((experts, hidden), -1, 1) if bias else None] if bias or third else []),
        *([R((experts, inter, hidden), -1, 1)] if third else []),
        *([R((experts, inter), -1, 1)] if third and bias else [])]
    # The CPU provider's float16 is far from its float; of equal scores it takes the last expert.
    for names in (types[:1], types[1:]):
        case("MoE", inputs(rows), names, runs=[inputs(more) for more in runs], **MS, **attrs,
             reference=moe_rows if alone or names != F32 else None)


for kind in ("relu", "gelu", "silu", "identity"):
    moe((3,), 16, 24, 4, FLOATS, activation_type=kind, k=2)
    moe((2, 5), 12, 7, 3, activation_type=kind, k=1, normalize_routing_weights=1)
    moe((5,), 16, 24, 4, FLOATS, third=True, alone=True, activation_type=kind, k=2)
for fusion in (0, 1, 2):
    form = {"activation_type": "swiglu", "swiglu_fusion": fusion, "k": 2, "third": fusion == 0, "alone": fusion != 1}
    moe((3,), 16, 24, 4, FLOATS, **form)
    moe((30,), 16, 24, 4, **form, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.5)
    moe((9,), 9, 5, 4, bias=False, **form, normalize_routing_weights=1)
for experts in (1, 2, 8, 130):
    for rows in ((1,), (40,), (300,)):
        moe(rows, 20, 12, experts, activation_type="silu", k=min(experts, 4), normalize_routing_weights=1)
moe((200,), 72, 130, 5, FLOATS, activation_type="gelu", k=2)
moe((200,), 72, 136, 5, FLOATS, activation_type="gelu", k=2)
moe((300,), 64, 40, 4, FLOATS, alone=True, activation_type="swiglu", swiglu_fusion=1, k=2)
moe((60,), 200, 72, 4, FLOATS, third=True, alone=True, activation_type="silu", k=2)
for form in ({"activation_type": "gelu"}, {"activation_type": "swiglu", "swiglu_fusion": 1}, {"bias": False}):
    moe((300,), 192, 256, 3, FLOATS, alone=True, k=2, **form)  # many rows in whole lines of 128 bytes
moe((30,), 8, 4, 1030, FLOATS, activation_type="silu", k=2)  # more experts than one block sorts
moe((0,), 16, 24, 4, k=2)
moe((3,), 16, 24, 4, k=2, runs=[(30,), (3,)])
moe((40,), 16, 24, 8, FLOATS, alone=True, activation_type="silu", k=2, use_sparse_mixer=1)

# ---- QMoE ----


def fields(data, bits, columns):
    """Packed along the last axis."""
    spread = data[..., None] >> np.arange(0, 8, bits) & ((1 << bits) - 1)
    return spread.reshape(*data.shape[:-1], -1)[..., :columns].astype(float)


def numbers(kind, bits, k, block, weights, scales, zeros, factor):
    """The weights [experts, n, k] that are meant."""
    each = block if block > 0 else k
    if kind == "fp8":
        if block <= 0:
            return weights * factor[:, None, None]
        return weights * scales.repeat(block, 1)[:, : weights.shape[1]].repeat(block, 2)[..., :k]
    if kind != "int":
        codes = fields(weights, 4, k).astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(float)
        return codes * scales.repeat(each, 2)[..., :k] * factor[:, None, None]
    scales = scales.reshape(*weights.shape[:2], -1).astype(float)
    if zeros is None:
        moved = fields(weights, bits, k) - (1 << (bits - 1))
    elif block > 0:
        moved = fields(weights, bits, k) - fields(zeros, bits, scales.shape[2]).repeat(block, 2)[..., :k]
    else:
        moved = fields(weights, bits, k) - fields(zeros, bits, weights.shape[1])[..., None]
    return moved * scales.repeat(each, 2)[..., :k]


def quantized(*inputs, hidden, inter, **attrs):
    x, scores, *rest = list(inputs) + [None] * (21 - len(inputs))
    kind, block = attrs.pop("quant_type", "int"), attrs.pop("block_size", -1)
    block = {"fp4": 32, "nvfp4": 16}.get(kind, block)
    every = attrs.pop("expert_weight_bits", 4)
    attrs.pop("weights_prepacked", None)
    matrices = []
    for place, k in enumerate((hidden, inter, hidden)):
        weights, scales, bias = rest[place * 3 : place * 3 + 3]
        bits = attrs.pop(f"fc{place + 1}_expert_weight_bits", every)
        factor = rest[13 + place] if place < 2 else None
        matrices.append(None if weights is None else
                        (numbers(kind, bits, k, block, weights, scales, rest[9 + place], factor), bias))
    first, second, third = matrices
    return mixture(x, scores, first, second, third, rest[12], **attrs)


@functools.cache
def matrix(kind, bits, experts, n, k, block, zero, scale_type, seed):
    """Weights, scales, zero points, global scales."""
    random = np.random.default_rng(seed)
    blocks = -(-k // block) if block > 0 else 1
    factor = D(random.uniform(0.05, 0.2, experts), "float")
    if kind == "fp8":
        weights = D(random.uniform(-4, 4, (experts, n, k)), "float8e4m3fn")
        square = D(random.uniform(0.05, 0.2, (experts, -(-n // block), blocks)), scale_type) if block > 0 else None
        return weights, square, None, None if block > 0 else factor
    weights = D(random.integers(0, 256, (experts, n, k * bits // 8), "uint8"), "uint8")
    if kind != "int":
        return weights, D(2.0 ** random.integers(-2, 2, (experts, n, blocks)), scale_type), None, factor
    scales = D(random.uniform(0.01, 0.1, (experts, n, blocks) if block > 0 else (experts, n)), scale_type)
    row = (experts, n, -(-blocks * bits // 8)) if block > 0 else (experts, -(-n * bits // 8))
    return weights, scales, D(random.integers(0, 256, row, "uint8"), "uint8") if zero else None, None


def qmoe(rows, hidden, inter, experts, types=F32, kind="int", bits=(4, 4, 4), block=-1, zero=False, bias=False,
         third=False, mix=False, scale_type="float", by_cpu=False, **attrs):
    wide = inter * 2 if attrs.get("swiglu_fusion") else inter
    shapes = ((wide, hidden), (hidden, inter), (inter, hidden))[: 3 if third else 2]
    parts = [matrix(kind, bits[i], experts, *shape, block, zero, scale_type, i) for i, shape in enumerate(shapes)]
    parts += [(None,) * 4] * (3 - len(parts))
    count = int(np.prod(rows))
    inputs = [R((*rows, hidden), -1, 1), R((count, experts), -2, 2)]
    for place, (weights, scales, _, _) in enumerate(parts):
        with_bias = bias and place < len(shapes)
        inputs += [weights, scales, R((experts, shapes[place][0]), -1, 1) if with_bias else None]
    inputs += [part[2] for part in parts] + [R((count, experts), 0, 1) if mix else None]
    inputs += [part[3] for part in parts[:2]]
    while inputs[-1] is None:
        inputs.pop()
    attrs |= {"block_size": block} if block > 0 and kind != "nvfp4" else {}
    attrs |= {"quant_type": kind} if kind != "int" else {"expert_weight_bits": bits[0]}
    attrs |= {f"fc{i + 1}_expert_weight_bits": bits[i] for i in (1, 2) if bits[i] != bits[0] and (i < 2 or third)}
    by_numbers = lambda *given, **more: quantized(*given, hidden=hidden, inter=inter, **more)  # noqa: E731
    case("QMoE", inputs, types, reference=None if by_cpu else by_numbers, **MS, **attrs)


for bits in (2, 4, 8):
    for block in (-1, 16, 32):
        for zero in (False, True):
            for rows in ((3,), (2, 25)):
                qmoe(rows, 64, 32, 4, FLOATS, bits=(bits,) * 3, block=block, zero=zero, bias=True, k=2,
                     activation_type="silu")
    qmoe((5,), 40, 24, 3, bits=(bits,) * 3, zero=True, scale_type="float16", activation_type="gelu")
    qmoe((5,), 64, 32, 3, bits=(bits,) * 3, block=32, third=True, k=2, activation_type="silu", zero=True)
for block in (-1, 16, 32):  # the CPU provider normalises weights whatever the model says
    for zero in (False, True):
        for form in ({"activation_type": "silu"}, {"activation_type": "swiglu", "swiglu_fusion": 1}):
            form |= {"k": 2, "normalize_routing_weights": 1, "by_cpu": True}
            qmoe((9,), 64, 32, 4, block=block, zero=zero, bias=True, **form)
            qmoe((9,), 64, 32, 4, bits=(8,) * 3, zero=zero, **form)
qmoe((7,), 64, 32, 4, bits=(4, 8, 2), block=16, third=True, bias=True, k=2, activation_type="silu")
qmoe((7,), 32, 32, 4, bits=(4, 8, 4), k=2, weights_prepacked=0)
qmoe((40,), 64, 32, 4, FLOATS, block=32, mix=True, k=2, scale_type="bfloat16", normalize_routing_weights=1)
qmoe((7,), 64, 32, 4, block=32, mix=True, k=2)
qmoe((7,), 64, 32, 8, block=32, k=2, use_sparse_mixer=1)
for bits in (2, 4, 8):
    qmoe((300,), 72, 40, 4, FLOATS, bits=(bits,) * 3, zero=True, bias=True, k=2, activation_type="relu")
qmoe((300,), 96, 64, 4, FLOATS, block=32, zero=True, third=True, k=2, activation_type="silu")
qmoe((0,), 64, 32, 4, block=32, k=2)
for fusion in (1, 2):
    qmoe((7,), 64, 32, 4, FLOATS, block=32, k=2, activation_type="swiglu", swiglu_fusion=fusion, activation_alpha=1.702,
         activation_beta=1.0, swiglu_limit=7.0, bias=True)
for rows in ((3,), (60,)):
    for scale_type in FLOATS:
        qmoe(rows, 48, 40, 4, FLOATS, "fp8", block=16, scale_type=scale_type, k=2, bias=True, activation_type="silu")
    qmoe(rows, 48, 40, 4, FLOATS, "fp8", block=128, third=True, k=2, activation_type="silu")
    qmoe(rows, 48, 37, 4, FLOATS, "fp8", k=2, bias=True)
    qmoe(rows, 64, 96, 4, FLOATS, "fp4", block=32, scale_type="float8e8m0", k=2, bias=True, activation_type="silu")
    qmoe(rows, 64, 48, 4, FLOATS, "nvfp4", block=16, scale_type="float8e4m3fn", k=2, activation_type="swiglu",
         swiglu_fusion=1)

# Many rows in whole lines of 128 bytes, whose scales are of the type of x.
for kind in FLOATS[1:]:
    for bits in (4, 8):
        many = {"types": (kind,), "scale_type": kind, "bits": (bits, 4, 4), "k": 2}
        for block in (-1, 32, 64, 128):
            qmoe((300,), 192, 256, 3, **many, block=block, zero=True, bias=block < 64, activation_type="silu")
        qmoe((230,), 320, 128, 3, **many, block=32, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702,
             activation_beta=1.0, swiglu_limit=7.0, bias=True)
        qmoe((230,), 128, 320, 3, **many, third=True, activation_type="relu")

# Few rows, whose scales are of the type of x: rows that share an expert, several turns of all lanes along k, blocks of
# whole chunks, zero points within a byte, and experts that are more than lanes.
for kind in FLOATS:
    for bits in (4, 8):
        few = {"types": (kind,), "scale_type": kind, "bits": (bits,) * 3}
        for rows in ((1,), (2,), (2, 3), (16,)):
            qmoe(rows, 64, 96, 4, **few, zero=True, bias=True, k=2, activation_type="gelu")
        for block in (32, 64, 128):
            for zero in (False, True):
                qmoe((3,), 384, 256, 8, **few, block=block, zero=zero, bias=True, k=3, activation_type="silu",
                     normalize_routing_weights=1)
        qmoe((1,), 1184, 2144, 3, **few, block=32, zero=True, k=2, activation_type="relu")
        qmoe((4,), 96, 33 * 32, 5, **few, block=32, third=True, bias=True, k=4, activation_type="silu")
        qmoe((2,), 64, 32, 130, **few, block=32, bias=True, k=8, activation_type="identity")
        qmoe((2,), 64, 32, 8, **few, third=True, k=2, use_sparse_mixer=1, activation_type="relu")
        qmoe((3,), 64, 32, 8, **few, mix=True, k=2, normalize_routing_weights=1, bias=True)
        for fusion in (0, 1, 2):
            qmoe((2,), 96, 64, 4, **few, block=32, k=2, activation_type="swiglu", swiglu_fusion=fusion,
                 third=fusion == 0, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0, bias=True)
qmoe((3,), 64, 96, 4, ("float16",), scale_type="float16", bits=(4, 8, 4), third=True, k=2, activation_type="silu")
