# SPDX-License-Identifier: Apache-2.0
"""Element types that are only stored, and operators on quantised values."""

import numpy as np

from cases.kit import ALL, F32, INF, NAN, SHAPES, D, K, R, V, case

FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
FOUR_BITS = ("int4", "uint4")
TWO_BITS = ("int2", "uint2")
STORED = FLOAT8 + FOUR_BITS
SCALES = ("float", "float16", "bfloat16")
CAST_NEWEST = 25

# ---- casts ----
# Not 480 to float8e4m3fn and 61440 to float8e5m2 without `saturate`: the CPU provider gives 448 and NaN there, where
# ONNX's rule of rounding first gives NaN and inf.
EDGES = [0.0, -0.0, 0.25, 0.5, -0.5, 0.75, 1.0, 1.0625, 1.1875, -1.5, 2.5, 3.5, -2.5, 6.9, 7.4, -8.4, 100.0, 448.0]
EDGES += [449.0, 465.0, 1000.0, -1000.0, 57344.0, 60000.0, 61439.0, 0.001, 0.002, 1e-5, 1e-6, 7e-6, NAN, INF, -INF]
for name in STORED:
    case("Cast", [V(EDGES)], ("float", "float16", "bfloat16", "double"), (CAST_NEWEST,), to=name)
    case("Cast", [R((3, 5))], ALL, (CAST_NEWEST,), to=name)
    for shape in SHAPES:
        case("Cast", [R(shape)], F32, (21,), to=name)
    for wide in ALL:
        case("Cast", [R((3, 7))], (name,), (CAST_NEWEST,), to=wide)
    for other in STORED:
        if other != name:
            case("Cast", [R((1027,))], (name,), (CAST_NEWEST,), to=other)
    case("CastLike", [R((3, 5)), D([1, 2], name)], F32, (21, CAST_NEWEST))
for name in FLOAT8:
    case("Cast", [V(EDGES)], F32, (19, CAST_NEWEST), to=name, saturate=0)
    case("Cast", [V([1, 300, -70000, 1 << 30])], ("int32", "int64"), (19,), to=name)
for name in TWO_BITS:
    case("Cast", [R((3, 5), -2, 1)], ("float", "int64", "bfloat16"), (CAST_NEWEST,), to=name)
    case("Cast", [R((3, 5), -2, 1)], (name,), (CAST_NEWEST,), to="int8")
for name in ("IsNaN", "IsInf"):
    case(name, [V(EDGES)], FLOAT8, (20,))
case("IsInf", [V(EDGES)], ("float8e5m2",), (20,), detect_negative=0)
case("IsInf", [V(EDGES)], ("float8e5m2",), (20,), detect_positive=0)

# ---- moved and not looked at ----
for name in STORED:
    case("Identity", [R((3, 5))], (name,), (21, CAST_NEWEST))
    case("Reshape", [R((3, 4)), K([2, -1])], (name,), (21, CAST_NEWEST))
    case("Flatten", [R((3, 1, 5))], (name,), (21,), axis=1)
    case("Squeeze", [R((3, 1, 5)), K([1])], (name,), (21,))
    case("Unsqueeze", [R((3, 5)), K([0])], (name,), (21,))
    case("Shape", [R((3, 1, 5))], (name,), (21, CAST_NEWEST), start=1)
    case("Size", [R((3, 1, 5))], (name,), (21, CAST_NEWEST))
for name in FLOAT8:
    case("Transpose", [R((3, 4, 5))], (name,), (21, 25), perm=[2, 0, 1])

# ---- QuantizeLinear ----
WHOLE = {"int8": (10, 13, 19, 21, 23, 25), "uint8": (10, 13, 19, 21, 23, 25), "int16": (21, 25), "uint16": (21, 25)}
WHOLE |= {"int4": (21, 23, 25), "uint4": (21, 25)}
VALUES = [0.0, -0.0, 0.25, 0.75, 1.25, -0.25, -0.75, -1.25, 30.0, -30.0, 2.4, 7.6, -64.0, 63.75, 64.0, 127.5, 128.0]
VALUES += [INF, -INF, NAN, 3.0, 5.0, 1e9, -1e9, 0.3, 9000.0, -17000.0]
FINITE = [v for v in VALUES if abs(v) < 60000.0]
for name, opsets in WHOLE.items():
    zero = D(3, name)
    case("QuantizeLinear", [V(VALUES), D(0.5, "float"), zero], F32, opsets)
    case("QuantizeLinear", [V(FINITE), V(0.5), zero], SCALES, tuple(v for v in opsets if v >= 19))
    case("QuantizeLinear", [R((5, 7), -9, 9), D(0.25, "float"), D(0, name)], F32, opsets)
    case("QuantizeLinear", [R((2, 3, 5), -9, 9), V([0.5, 0.125, 2.0]), D([1, 2, 3], name)], SCALES, (21,))
    case("QuantizeLinear", [R((2, 3, 4, 6), -9, 9), V([0.5, 0.125, 2.0]), D([1, 2, 3], name)], SCALES, (21,))
    case("QuantizeLinear", [R((1027,), -9, 9), V(0.1), zero], SCALES, (21,))
for name in FLOAT8:
    case("QuantizeLinear", [V(EDGES), D(1.0, "float"), D(0, name)], F32, (19, 21, 23, 25))
    case("QuantizeLinear", [R((3, 5)), V(0.01), D(0, name)], SCALES, (19, 23))
    case("QuantizeLinear", [V([5.0, 300.0, -9000.0, NAN]), V(0.01), D(0, name)], F32, (19, 25), saturate=0)
case("QuantizeLinear", [R((2, 3, 4)), V([0.5, 0.125, 2.0, 0.1])], F32, (13, 21), axis=-1)
case("QuantizeLinear", [R((4, 3)), V([0.5, 0.125, 2.0, 0.1]), D([1, 2, 3, 4], "int8")], F32, (13, 21), axis=0)
case("QuantizeLinear", [R((2, 5, 3)), R((2, 3, 3), 0.1, 1)], SCALES, (21, 23, 25), axis=1, block_size=2)
case("QuantizeLinear", [R((5, 70)), R((5, 3), 0.1, 1), D([[1] * 3] * 5, "int4")], SCALES, (21,), axis=1, block_size=32)
case("QuantizeLinear", [R((6,)), R((2,), 0.1, 1)], F32, (21,), axis=0, block_size=3)
case("QuantizeLinear", [R((2, 3)), V(0.5)], F32, (21,), output_dtype="int16")
case("QuantizeLinear", [R((2, 3)), V(0.5)], F32, (21,), output_dtype="int4")
for shape in SHAPES:
    case("QuantizeLinear", [R(shape, -90, 90), V(0.5), D(7, "uint8")], F32)
case("QuantizeLinear", [R((2, 3)), V(0.5)], F32, runs=[[R((7, 5)), V(0.25)], [R((2, 3)), V(0.5)]])
case("QuantizeLinear", [V([1.0, 0.0, -1.0]), V(0.0), D(0, "int8")], F32, note="scale 0")
case("QuantizeLinear", [R((3, 5)), V([0.5, 0.25, 0.125]), D([1, 2, 3], "int8")], ("float", "float16"), (1,), axis=0,
     domain="com.microsoft")
case("QuantizeLinear", [R((3, 5)), V(0.5), D(1, "int4")], ("float", "float16"), (1,), domain="com.microsoft")

# ---- DequantizeLinear ----
SCALE = D(0.3, "float")


def cycle(*shape):
    """-2 to 1 over and over, which every type has in its own way."""
    return (np.arange(np.prod(shape)) % 4 - 2).reshape(shape).tolist()


for name in ("int8", "uint8"):
    case("DequantizeLinear", [R((3, 5), -90, 90), SCALE, V(2)], (name,), (10, 13, 19, 21, 23, 25))
for name in ("int8", "uint8", "int16", "uint16", "int32", *STORED, *TWO_BITS):
    opsets = (25,) if name in TWO_BITS else (21, 25)
    zero = [D(1, name)] if name != "int32" and name not in FLOAT8 else []
    case("DequantizeLinear", [D(cycle(1027), name), V(0.3), *zero], SCALES, opsets)
    case("DequantizeLinear", [D(cycle(2, 3, 5), name), V([0.5, 0.3, 2.0])], SCALES, opsets)
    case("DequantizeLinear", [D(cycle(2, 3, 16), name), V([0.5, 0.3, 2.0])], SCALES, opsets)
    case("DequantizeLinear", [D(cycle(2, 4), name), V([[0.5, 0.3], [2.0, 3.0]])], SCALES, opsets, axis=1, block_size=2)
case("DequantizeLinear", [V([(1 << 31) - 1, -(1 << 31), 16777217]), SCALE], ("int32",), (10, 13, 19))
case("DequantizeLinear", [R((3, 5), -90, 90), D([0.5] * 5, "float"), D([1, 2, 3, 4, 5], "int8")], ("int8",), (13, 21),
     axis=-1)
case("DequantizeLinear", [R((5, 3), 0, 7), D([[0.5] * 3] * 3, "float"), D([[1] * 3] * 3, "uint4")], ("uint4",),
     (21, 25), axis=0, block_size=2)
case("DequantizeLinear", [R((3, 5), -90, 90), D(0.3, "float"), None], ("int8",), (23, 25), output_dtype="float16")
case("DequantizeLinear", [R((3, 5), -90, 90), D(0.3, "float16"), None], ("int8",), (23, 25), output_dtype="float")
for shape in SHAPES:
    case("DequantizeLinear", [R(shape, -90, 90), SCALE], ("int8", "int4"))
case("DequantizeLinear", [R((3, 5), -90, 90), D(0.3, "float16"), V(2)], ("int8", "uint8", "int16", "int4"), (1,),
     domain="com.microsoft")
case("DequantizeLinear", [R((3, 2), -90, 90), D([0.3, 1, 2], "float")], ("int8", "int32"), (1,), axis=0,
     domain="com.microsoft")

# ---- DynamicQuantizeLinear ----
for shape in (*SHAPES, (8193,), (40000,)):
    case("DynamicQuantizeLinear", [R(shape, -3, 7)], F32, (11,), outputs=3)
for low, high in ((1, 2), (-2, -1), (0, 0), (-1e30, 1e-30)):
    case("DynamicQuantizeLinear", [R((50, 7), low, high)], F32, (11,), outputs=3)
for values in ([NAN, 1.0, 2.0], [1.0, NAN], [INF, 1.0], [-INF, 1.0], [3e38, -3e38], [1e-45, 0.0], 5.0):
    case("DynamicQuantizeLinear", [V(values)], F32, (11,), outputs=3)

# ---- MatMulNBits ----


def packed(seed, *shape):
    return D(np.random.default_rng(seed).integers(0, 256, shape), "uint8")


def by_numbers(a, weights, scales, zeros=None, group=None, bias=None, *, K, N, bits, block_size):  # noqa: N803
    """For what the CPU provider refuses, and for g_idx with two bits or packed zero points, which it does not heed."""

    def fields(data, columns):
        return (data[..., None] >> np.arange(0, 8, bits) & ((1 << bits) - 1)).reshape(N, -1)[:, :columns].astype(float)

    blocks = scales.shape[1]
    if zeros is None:
        zeros = np.full((N, blocks), 1 << (bits - 1))
    elif zeros.dtype == np.uint8:
        zeros = fields(zeros, blocks)
    at = np.arange(K) // block_size if group is None else group
    numbers = (fields(weights, K) - zeros[:, at]) * scales[:, at].astype(float)
    return [a.astype(float) @ numbers.T + (0 if bias is None else bias)]


def n_bits(rows, k, n, bits, block, types=F32, zero=None, bias=False, group=False, constant=False, **attrs):
    """`zero` is None, "packed" or "same", for one of A's type. What is `constant` is there to be prepacked."""
    blocks = -(-k // block)
    zeros = {None: None, "packed": packed(3, n, -(-blocks * bits // 8)), "same": R((n, blocks), 0, 1 << bits)}[zero]
    inputs = [R((*rows, k)), packed(1, n, blocks, block * bits // 8), R((n, blocks), 0.01, 0.1), zeros]
    random = np.random.default_rng(4)
    values = random.uniform(-2, 2, n)  # of fixed shape, which ONNX Runtime checks early
    inputs += [D(random.integers(0, blocks, k), "int32") if group else None] if bias or group else []
    inputs += [D(values, types[0])] if bias else []
    if constant:
        inputs[2] = D(random.uniform(0.01, 0.1, (n, blocks)), types[0])
        if zero == "same":
            inputs[3] = D(random.uniform(0, 1 << bits, (n, blocks)), types[0])
        inputs[1:] = [value and K(value.values, value.type) for value in inputs[1:]]
    alone = (group and (bits != 4 or zero == "packed")) or (bits == 8 and zero == "same") or "bfloat16" in types
    case("MatMulNBits", inputs, types, (1,), slack=8, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block,
         reference=by_numbers if alone else None, **attrs)


for bits in (4, 8):
    for rows in ((1,), (4,), (2, 3), (17,), (0,)):
        n_bits(rows, 64, 33, bits, 32)
    for rows in ((1,), (4,), (8,)):  # more than a stage, and columns beyond the last tile
        for types in (("float16",), ("bfloat16",)):
            n_bits(rows, 608, 35, bits, 32, types, zero="packed", constant=True)
            n_bits(rows, 2304, 17, bits, 128, types, constant=True)
    for rows in (2, 7, 8, 9, 16, 17, 31, 32, 33, 48, 64, 65):
        n_bits((rows,), 608, 130, bits, 32, ("float16",), zero="packed" if rows % 2 else None, bias=rows % 4 == 0,
               constant=True)
    for block in (16, 32, 64, 128, 256):
        n_bits((3,), 300, 5, bits, block)
        n_bits((20,), 300, 5, bits, block, zero="packed")
    n_bits((1,), 576, 40, bits, 32, zero="packed", bias=True)
    n_bits((5,), 96, 7, bits, 16, zero="packed", bias=True)
    n_bits((33,), 96, 7, bits, 16, zero="packed", bias=True)
    n_bits((2,), 96, 16, bits, 32, types=("float", "float16"), zero="packed")
    n_bits((40,), 96, 16, bits, 32, types=("float16",), bias=True)
n_bits((2,), 96, 16, 4, 32, zero="same")
n_bits((40,), 96, 16, 4, 32, zero="same")
n_bits((1,), 128, 8, 2, 32, zero="packed")
for bits in (2, 4, 8):
    for zero in (None, "packed", "same"):
        for rows in ((1,), (5,), (20,)):
            n_bits(rows, 160, 24, bits, 32, zero=zero, constant=True)
            n_bits(rows, 160, 24, bits, 16, zero=zero, bias=True, constant=True)
            n_bits(rows, 300, 9, bits, 128, zero=zero, bias=True)
        n_bits((3,), 256, 16, bits, 64, ("float16",), zero=zero, constant=True)
        for rows in ((2,), (20,)):
            n_bits(rows, 96, 16, bits, 32, zero=zero, group=True)
            n_bits(rows, 96, 16, bits, 32, zero=zero, bias=True, group=True, constant=True)
