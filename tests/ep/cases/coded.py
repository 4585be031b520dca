# SPDX-License-Identifier: Apache-2.0
"""Products with weights that are floats of 4 and 8 bits: MatMulBnb4 against the CPU provider, others against NumPy."""

import ml_dtypes
import numpy as np

from cases.kit import F32, D, K, R, V, case

FLOATS = ("float", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
E4M3 = ml_dtypes.float8_e4m3fn
E2M1 = ml_dtypes.float4_e2m1fn


def codes(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


# ---- MatMulBnb4 ----


def bnb4(rows, k, n, block, types=F32, reference=None, transB=1, **attrs):  # noqa: N803
    count = n * k
    inputs = [R((*rows, k if transB else n)), K(codes(1, -(-count // 2)), "uint8"), R((-(-count // block),), 0.01, 2)]
    case("MatMulBnb4", inputs, types, (1,), slack=8, domain="com.microsoft", reference=reference, K=k, N=n,
         block_size=block, transB=transB, **attrs)


BNB_CODES = [[0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]]
BNB_CODES[0] = BNB_CODES[0] + [-value for value in BNB_CODES[0]]


def bnb4_backward(a, weights, absmax, *, K, N, block_size, quant_type, transB):  # noqa: N803
    """A . weights as they are stored, which the CPU provider leaves out."""
    flat = np.stack([weights >> 4, weights & 15], 1).reshape(-1)[: N * K]
    numbers = np.array(BNB_CODES[quant_type])[flat] * absmax.astype(float)[np.arange(N * K) // block_size]
    numbers = numbers.reshape(N, K)
    return [a.astype(float) @ (numbers.T if transB else numbers)]


for kind in (0, 1):
    for rows in ((1,), (2, 3), (17,), (0,)):
        bnb4(rows, 64, 33, 32, quant_type=kind)
        bnb4(rows, 96, 12, 16, FLOATS, quant_type=kind)
        bnb4(rows, 50, 7, 16, quant_type=kind)  # blocks go on in the next row
        bnb4(rows, 33, 4, 64, FLOATS, quant_type=kind)
        bnb4(rows, 48, 40, 16, FLOATS, bnb4_backward, transB=0, quant_type=kind)
        bnb4(rows, 15, 9, 16, F32, bnb4_backward, transB=0, quant_type=kind)

for rows in (1, 3, 8, 9):  # rows of weights follow one another without gaps
    bnb4((rows,), 544, 700, 32, FLOATS, quant_type=1)
    bnb4((rows,), 2304, 35, 64, FLOATS, quant_type=0)

# ---- float4 and float8 ----


def blocks_of(scales, k, block):
    return np.repeat(scales.astype(float), block, 1)[:, :k]


def fp4_product(a, weights, scales, factor, _=None, bias=None, *, block_size=16):
    codes_of = np.stack([weights & 15, weights >> 4], 2).reshape(weights.shape[0], -1)
    numbers = codes_of.astype(np.uint8).view(E2M1).astype(float) * float(factor.reshape(()))
    numbers *= blocks_of(scales.view(E4M3), a.shape[-1], block_size)
    return [a.astype(float) @ numbers.T + (0 if bias is None else bias.astype(float))]


def fp8_product(a, weights, scales, factor=None, bias=None, *, block_size=128):
    numbers = weights.astype(float) * blocks_of(scales, a.shape[-1], block_size)
    if factor is not None:
        scale = float(factor.reshape(()))
        rounded = np.clip(a.astype(np.float32) / np.float32(scale), -448, 448).astype(E4M3)
        a = rounded.astype(float) * scale
    return [a.astype(float) @ numbers.T + (0 if bias is None else bias.astype(float))]


def fp4(rows, k, n, block=None, bias=False, low=0.0):
    scales = np.random.default_rng(2).uniform(0.05, 4, (n, -(-k // (block or 16)))).astype(E4M3).view(np.uint8)
    inputs = [R((*rows, k)), K(codes(1, n, k // 2), "uint8"), D(scales, "uint8"), D([0.25] if low else 0.25, "float")]
    inputs += [D(1.0, "float") if low else None, V(np.linspace(-2, 2, n))] if bias else []
    case("MatMulBlockQuantizedFp4Weight", inputs, HALVES, (1,), slack=4, domain="com.microsoft", reference=fp4_product,
         **({"block_size": block} if block else {}))


def fp8(rows, k, n, block=None, bias=False, scaled=False):
    random = np.random.default_rng(3)
    scales = random.uniform(0.05, 4, (n, -(-k // (block or 128))))
    inputs = [R((*rows, k)), D(random.uniform(-20, 20, (n, k)), "float8e4m3fn"), D(scales, "float")]
    inputs += [D(0.0123, "float") if scaled else None] if scaled or bias else []
    inputs += [V(np.linspace(-2, 2, n))] if bias else []
    case("MatMulBlockQuantizedFp8Weight", inputs, HALVES, (1,), slack=4, domain="com.microsoft", reference=fp8_product,
         **({"block_size": block} if block else {}))


for rows in ((1,), (3,), (2, 9), (0,)):
    for bias in (False, True):
        fp4(rows, 64, 33, bias=bias, low=bias)
        fp4(rows, 50, 5, bias=bias)
        fp4(rows, 96, 8, 32, bias=bias)
        fp4(rows, 48, 8, 24, bias=bias)
        for scaled in (False, True):
            fp8(rows, 256, 12, bias=bias, scaled=scaled)
            fp8(rows, 77, 5, bias=bias, scaled=scaled)
            fp8(rows, 96, 8, 32, bias=bias, scaled=scaled)
            fp8(rows, 77, 8, 77, bias=bias, scaled=scaled)  # one block

# ---- GemmFloat8 ----

NUMBERS = {"float": 1, "float16": 10, "bfloat16": 16, "float8e4m3fn": 17, "float8e5m2": 19}
LARGEST = {17: 448, 19: 57344}


def gemm_float8(a, b, c=None, scale_a=None, scale_b=None, scale_y=None, *, dtype=1, alpha=1, beta=0, transA=0,  # noqa: N803
                transB=0, activation="NONE"):  # noqa: N803
    product = (a.T if transA else a).astype(float) @ (b.T if transB else b).astype(float) * alpha
    for scale in (scale_a, scale_b):
        product = product if scale is None else product * float(scale.reshape(()))
    product = product + (beta * c.astype(float) if beta else 0)
    if activation == "RELU":
        product = np.maximum(product, 0)
    if activation == "GELU":
        product = 0.5 * product * (1 + np.tanh(np.sqrt(2 / np.pi) * (product + 0.044715 * product**3)))
    product = product if scale_y is None else product * float(scale_y.reshape(()))
    return [np.clip(product, -LARGEST[dtype], LARGEST[dtype]) if dtype in LARGEST else product]


def float8_case(left, right, to, m=5, k=16, n=7, bias=None, scales=(None, None, None), **attrs):
    """`bias` is a type and a shape."""
    random = np.random.default_rng(5)
    a = (k, m) if attrs.get("transA") else (m, k)
    b = (n, k) if attrs.get("transB") else (k, n)
    inputs = [D(random.uniform(-3, 3, a), left), D(random.uniform(-3, 3, b), right)]
    inputs += [D(random.uniform(-3, 3, bias[1]), bias[0]) if bias else None]
    inputs += [None if scale is None else D(scale, "float") for scale in scales]
    while inputs[-1] is None:
        inputs.pop()
    case("GemmFloat8", inputs, (to,), (1,), slack=4, domain="com.microsoft", reference=gemm_float8,
         dtype=NUMBERS[to], **attrs)


for left in NUMBERS:
    for right in NUMBERS:
        for to in ("float", "float16", "bfloat16"):
            float8_case(left, right, to)
            float8_case(left, right, to, transB=1, bias=(to, (5, 7)), scales=(0.5, 2.0, [0.25]), alpha=0.5, beta=2.0)
for bias in ("float", "float16", "bfloat16"):
    for shape in ((5, 7), (7,), (1, 7), (5, 1), ()):
        float8_case("float8e4m3fn", "float8e5m2", "float", bias=(bias, shape), beta=0.5, scales=(3.0, 0.5, 2.0))
for activation in ("RELU", "GELU", "NONE"):
    for flips in ({"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1}):
        float8_case("float8e5m2", "float8e4m3fn", "float16", activation=activation, scales=(0.1, None, None), **flips)
        float8_case("float16", "float16", "float16", activation=activation, **flips)
for to in ("float8e4m3fn", "float8e5m2"):
    for right in NUMBERS:
        float8_case("float8e4m3fn", right, to, transB=1)
        float8_case("float8e5m2", "float8e4m3fn", to, activation="RELU", scales=(64.0, 2.0, 4.0))  # beyond the range
float8_case("bfloat16", "bfloat16", "bfloat16", alpha=0.5, bias=("bfloat16", (7,)))  # beta is 0
for m, k, n in ((0, 4, 4), (4, 0, 4), (4, 4, 0)):
    float8_case("float8e4m3fn", "float8e5m2", "float", m, k, n, scales=(0.5, 2.0, 3.0), bias=("float", (n,)), beta=1.0)
