# SPDX-License-Identifier: Apache-2.0
"""int8 matrices in cuBLASLt's orders, which no CPU provider has: against NumPy, that makes the orders its own way."""

import math

import numpy as np

from cases.kit import D, case

COL, ROW, COL32, TURING, AMPERE = range(5)
FLOATS = ("float", "float16")
MS = {"domain": "com.microsoft", "opsets": (1,)}


def places(order, rows, columns):
    """The row and column of each element, as they lie in memory: loops over what the order steps through."""
    turns = [base + 8 * part + half for base in (0, 2, 4, 6) for part in range(4) for half in (0, 1)]
    walks = {
        ROW: lambda: [(r, c) for r in range(rows) for c in range(columns)],
        COL: lambda: [(r, c) for c in range(columns) for r in range(rows)],
        COL32: lambda: [(r, t + c) for t in range(0, columns, 32) for r in range(rows) for c in range(32)],
        TURING: lambda: [(s + odd + 2 * r, t + four + c) for t in range(0, columns, 32) for s in range(0, rows, 8)
                         for odd in (0, 1) for four in range(0, 32, 4) for r in range(4) for c in range(4)],
        AMPERE: lambda: [(s + r, t + c) for t in range(0, columns, 32) for s in range(0, rows, 32) for r in turns
                         for c in range(32)],
    }
    return tuple(np.array(walks[order]()).reshape(-1, 2).T)


def stacked(x):
    return x.reshape(-1, *((1,) * (2 - min(x.ndim, 2))), *x.shape[-2:])


def ordered(x, order):
    """From rows to an order."""
    if x.size == 0:
        return x
    return np.stack([matrix[places(order, *matrix.shape)] for matrix in stacked(x)]).reshape(x.shape)


def plain(x, order):
    if x.size == 0:
        return x
    out = np.empty_like(stacked(x))
    for matrix, to in zip(stacked(x), out, strict=True):
        to[places(order, *matrix.shape)] = matrix.reshape(-1)
    return out.reshape(x.shape)


def as_bytes(x, scale):
    return np.clip(np.rint(x / scale), -128, 127).astype(np.int8)


def quantized(x, scale, *, order_input, order_output):
    return [ordered(as_bytes(plain(x.astype(np.float32), order_input), scale), order_output)]


def dequantized(x, scale, *, order_input, order_output, to):
    return [ordered(plain(x, order_input).astype(np.float32) * scale, order_output)]


def gelu(x, scale, out_scale, **_):
    numbers = x.astype(np.float64) * scale
    erf = np.vectorize(math.erf)(numbers / math.sqrt(2)) if x.size else numbers
    return [as_bytes(0.5 * numbers * (1 + erf), out_scale)]


def norm(x, scale, gamma, beta, out_scale, *, order_X=ROW, order_Y=ROW, epsilon=1e-5, axis=-1):  # noqa: N803
    numbers = plain(x, order_X).astype(np.float64) * scale
    off = numbers - numbers.mean(-1, keepdims=True)
    y = off / np.sqrt((off**2).mean(-1, keepdims=True) + epsilon) * gamma
    return [ordered(as_bytes(y if beta is None else y + beta, out_scale), order_Y)]


def product(a, scale_a, b, scale_b, scale_y, bias=None, c=None, scale_c=None, *, order_A, order_B, order_Y):  # noqa: N803
    turned = b.reshape(*b.shape[:-2], b.shape[-1], b.shape[-2])  # what lies there is the transpose
    weights = plain(b, COL) if order_B == COL else np.swapaxes(plain(turned, order_B), -1, -2)
    y = plain(a, order_A).astype(float) @ weights.astype(float) * float(scale_a) * np.asarray(scale_b, float)
    y = y if bias is None else y + bias
    y = y if c is None else y + plain(c, order_Y).astype(float) * float(scale_c)
    return [ordered(as_bytes(y, float(scale_y)), order_Y)]


def some_bytes(*shape, seed=1):
    return D(np.random.default_rng(seed).integers(-128, 128, shape), "int8")


# ---- orders ----
# Scales are powers of two, and numbers a share of a byte, so that nothing is near a half.

SHAPES = {ROW: [(3, 5, 7), (7,), (0, 3)], COL: [(3, 5, 7), (9, 4)], COL32: [(3, 5, 64), (64,)], TURING: [(3, 24, 64)],
          AMPERE: [(2, 64, 96)]}
for order, shapes in SHAPES.items():
    for shape in shapes:
        values = np.random.default_rng(2).integers(-200, 200, shape) * 0.7685
        for kind in FLOATS:
            case("QuantizeWithOrder", [D(values, kind), D(0.5, "float")], ("int8",), reference=quantized, **MS,
                 order_input=ROW, order_output=order)
        for kind in FLOATS:
            case("DequantizeWithOrder", [some_bytes(*shape), D(0.5, "float")], (kind,), reference=dequantized, **MS,
                 order_input=order, order_output=ROW, to=kind)
        same = {"order_X": order, "order_Y": order}
        case("QOrderedGelu", [some_bytes(*shape), D(1 / 32, "float"), D(0.03, "float")], ("int8",), reference=gelu,
             **MS, **same)
        lines = [D(np.linspace(0.5, 2, shape[-1]), "float"), D(np.linspace(-1, 1, shape[-1]), "float")]
        case("QOrderedLayerNormalization", [some_bytes(*shape), D(0.25, "float"), *lines, D(1 / 32, "float")],
             ("int8",), reference=norm, **MS, **same)
        line = D(np.linspace(0.5, 2, shape[-1]), "float16")
        case("QOrderedLayerNormalization", [some_bytes(*shape), D(0.25, "float"), line, None, D(0.02, "float")],
             ("int8",), reference=norm, **MS, **same)
case("QuantizeWithOrder", [D(np.linspace(-60, 60, 2048).reshape(4, 8, 64), "float"), D(1.0, "float")], ("int8",),
     reference=quantized, order_input=COL32, order_output=TURING, **MS)
case("QOrderedGelu", [some_bytes(5, 9), D(1 / 32, "float"), D(0.03, "float")], ("int8",), reference=gelu, **MS)

# ---- products ----
for b_batch in ((), (1,), (2,)):
    for lines in (False, True):
        for more in range(4):
            bias = D(np.linspace(-9, 9, 33), "float") if more & 1 else None
            c = [some_bytes(*(2,) * (more > 2), 5, 33, seed=3), D(0.25, "float")] if more & 2 else []
            scale = D(np.linspace(1, 2, 33) / 64, "float") if lines else D(1 / 32, "float")
            inputs = [some_bytes(2, 5, 19), D(1 / 16, "float"), some_bytes(*b_batch, 19, 33), scale, D(1.7, "float")]
            inputs += [bias, *c] if bias or c else []
            case("QOrderedMatMul", inputs, ("int8",), reference=product, order_A=ROW, order_B=COL, order_Y=ROW, **MS)
for order, m, n in ((TURING, 5, 64), (AMPERE, 40, 96)):
    for c in ([], [None, some_bytes(m, n, seed=3), D(0.25, "float")]):
        inputs = [some_bytes(2, m, 64), D(1 / 16, "float"), some_bytes(64, n), D(1 / 32, "float"), D(32.0, "float"), *c]
        case("QOrderedMatMul", inputs, ("int8",), reference=product, order_A=COL32, order_B=order, order_Y=COL32, **MS)
