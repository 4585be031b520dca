# SPDX-License-Identifier: Apache-2.0
"""GatherBlockQuantized: every kind of table with every type of scales, axes, blocks, indices out of range."""

from functools import partial

import numpy as np

from cases.kit import F32, D, V, case

SCALES = ("float", "float16", "bfloat16")
FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
# The last two are out of range, and give zeros.
PICKED = [[0, 2, -1], [1, -3, 2], [7, -4, 0]]


def table(kind, shape, seed=1):
    random = np.random.default_rng(seed)
    if kind == "int4":
        return D(random.integers(-8, 8, shape), kind)
    if kind == "uint4":
        return D(random.integers(0, 16, shape), kind)
    if kind == "uint8":
        return D(random.integers(0, 256, shape), kind)
    return D(random.uniform(-6, 6, shape), kind)


def unpacked(data, bits, columns):
    spread = data[..., None] >> np.arange(0, 8, bits) & ((1 << bits) - 1)
    return spread.reshape(*data.shape[:-1], -1)[..., :columns].astype(int)


def rows(packed, data, indices, scales, zeros=None, *, gather_axis, quantize_axis, block_size, bits):
    """For what the CPU provider lacks: tables of float4e2m1, and bfloat16."""
    if packed:
        zeros = unpacked(zeros, bits, scales.shape[-1])
        data = unpacked(data, bits, None)
    along = np.arange(data.shape[quantize_axis]) // (block_size or data.shape[quantize_axis])
    moved = data if zeros is None else data.astype(int) - np.take(zeros.astype(int), along, quantize_axis)
    numbers = moved * np.take(scales.astype(np.float32), along, quantize_axis)
    size = data.shape[gather_axis]
    valid = (indices >= -size) & (indices < size)
    picked = np.take(numbers, np.where(valid, indices, 0), gather_axis)
    after = data.ndim - 1 - gather_axis % data.ndim
    return [np.where(valid.reshape(indices.shape + (1,) * after), picked, 0)]


def block_case(kind, shape, gather, quantized, block, types=F32, zero=False, indices=PICKED, index_type="int64", bits=4,
               scales=None):
    """`shape` of the table, as stored."""
    packed = 8 // bits if kind == "uint8" else 1
    length = shape[quantized] * packed
    each = list(shape)
    each[quantized] = -(-length // (block or length))
    zeros = list(each)
    zeros[quantized] = -(-each[quantized] // packed)
    each = tuple(scales or each)
    values = np.random.default_rng(3).uniform(0.01, 2, each)
    for name in types:
        # With zero points of fixed shape, as ONNX Runtime compares the two early.
        inputs = [table(kind, shape), D(indices, index_type), D(values, name) if zero else V(values)]
        inputs += [table(kind, tuple(zeros), 2)] if zero else []
        alone = kind == "float4e2m1" or (zero and name == "bfloat16")
        case("GatherBlockQuantized", inputs, (name,), (1,), domain="com.microsoft", gather_axis=gather,
             quantize_axis=quantized, block_size=block, bits=bits,
             reference=partial(rows, kind == "uint8") if alone else None)


for kind in ("int4", "uint4", "uint8", *FLOAT8, "float4e2m1"):
    for index_type in ("int32", "int64"):
        block_case(kind, (3, 64), 0, 1, 16, SCALES, index_type=index_type)
    block_case(kind, (3, 5), 0, 1, 16, SCALES)  # a part of a block, odd rows
    block_case(kind, (3, 4, 36), 0, 2, 32)
    block_case(kind, (3, 64), 0, 1, 16, indices=2)
    block_case(kind, (3, 64), 0, 1, 16, indices=np.zeros((2, 0), int))
for kind in ("int4", "uint4"):
    for zero in (False, True):
        for gather, quantized in ((0, 2), (1, 2), (2, 2), (2, 0), (0, 0), (1, 0), (-1, 1), (1, -2), (-3, -1)):
            block_case(kind, (3, 5, 40), gather, quantized, 16, zero=zero)
        block_case(kind, (3, 128), 0, 1, 32, SCALES, zero=zero)
for bits in (2, 4, 8):
    for zero in (False, True):
        block_case("uint8", (3, 64), 0, 1, 16, SCALES, zero=zero, bits=bits)
        block_case("uint8", (3, 13), 0, 1, 16, zero=zero, bits=bits)
        block_case("uint8", (3, 2, 9), 0, 2, 16, zero=zero, bits=bits)
        block_case("uint8", (3, 96), 0, -1, 32, ("float", "float16"), zero=zero, bits=bits)
for kind in (*FLOAT8, "float4e2m1"):
    block_case(kind, (3, 5, 40), 0, 2, 0, SCALES)
    block_case(kind, (3, 5, 40), 1, 2, 16, scales=(1, 5, 3))
    block_case(kind, (3, 5, 40), 0, 2, 16, scales=(1, 1, 3))
    block_case(kind, (3, 40), 0, 1, 0, scales=(1, 1))
    block_case(kind, (3, 5, 40), 1, 0, 0, scales=(1, 5, 1))
    block_case(kind, (50, 7), 1, 0, 16)
