# SPDX-License-Identifier: Apache-2.0
"""What adds a bias before it does something else; masks of bits. Of what drops elements, what drops none: how often
and where elements are dropped is tested in C."""

import math

import numpy as np

from cases.kit import F32, FLOATS, INF, D, K, R, V, case

MS = {"opsets": (1,), "domain": "com.microsoft"}
HALF = ("float", "float16")
IEEE = ("float", "float16", "double")
SHAPES = ((2, 3, 320), (1, 5, 7), (2, 2, 36), (3, 64), (0, 2, 4), (2, 0, 8))


def erf(x):
    return np.vectorize(math.erf)(x) if x.size else x


# ---- BiasAdd, BiasSplitGelu ----
def bias_add(x, bias, skip):
    return [x.astype(np.float64) + bias + skip]


def split_gelu(x, bias):
    left, right = np.split(x.astype(np.float64) + bias, 2, axis=-1)
    return [left * 0.5 * right * (1 + erf(right / math.sqrt(2)))]


for shape in SHAPES:
    case("BiasAdd", [R(shape), R(shape[-1:]), R(shape)], HALF, reference=bias_add, **MS)
    wide = (*shape[:-1], 2 * shape[-1])
    if len(shape) == 3:  # as ONNX Runtime's schema wants it
        case("BiasSplitGelu", [R(wide), R(wide[-1:])], HALF, reference=split_gelu, **MS)
again = [[R((4, 1, 6)), R((6,)), R((4, 1, 6))], [R((1, 9)), R((9,)), R((1, 9))]]
case("BiasAdd", [R((2, 3, 4)), R((4,)), R((2, 3, 4))], HALF, reference=bias_add, runs=again[:1], **MS)
case("BiasSplitGelu", [V([[[-40.0, 2.0, 1.0, -40.0, 40.0, 0.0]]]), V([0.0] * 6)], HALF, reference=split_gelu, **MS)


# ---- BiasSoftmax ----
def bias_softmax(x, bias, axis=1, is_inner_broadcast=0):
    axis = axis % x.ndim if axis != x.ndim else axis
    columns = math.prod(x.shape[axis:])
    rows = x.astype(np.float64).reshape(-1, columns)
    own = bias.astype(np.float64).reshape(-1, columns)
    times = len(rows) // len(own)
    rows = rows + (np.repeat(own, times, axis=0) if is_inner_broadcast else np.tile(own, (times, 1)))
    with np.errstate(all="ignore"):
        powers = np.exp(rows - rows.max(axis=1, keepdims=True))
        return [(powers / powers.sum(axis=1, keepdims=True)).reshape(x.shape)]


for columns in (1, 3, 8, 33, 64, 100, 600, 1024, 1027, 4100, 40000):
    kinds = IEEE if columns in (33, 64) else HALF
    few = (2, 3, 2, columns) if columns < 2000 else (1, 2, 2, columns)
    for inner in (0, 1):
        row = (few[0], 1, 1, columns) if inner else (1, 1, few[2], columns)
        attrs = {"axis": 3, "is_inner_broadcast": inner, "reference": bias_softmax, "slack": 4, **MS}
        case("BiasSoftmax", [R(few), R(row)], kinds, **attrs)
case("BiasSoftmax", [R((4, 3, 5, 7)), R((4, 1, 5, 7))], IEEE, axis=2, is_inner_broadcast=1, slack=4,
     reference=bias_softmax, **MS)
case("BiasSoftmax", [R((4, 3, 5, 7)), R((3, 5, 7))], F32, axis=-2, is_inner_broadcast=0, slack=4,
     reference=bias_softmax, **MS)
case("BiasSoftmax", [R((6, 5)), R((6, 5))], F32, is_inner_broadcast=1, slack=4, reference=bias_softmax, **MS)
case("BiasSoftmax", [R((6, 5)), R((1, 5))], F32, is_inner_broadcast=0, slack=4, reference=bias_softmax, **MS)
case("BiasSoftmax", [R((2, 0, 5)), R((1, 5))], F32, is_inner_broadcast=0, axis=2, slack=4,
     reference=lambda x, bias, **_: [x], **MS)
case("BiasSoftmax", [R((2, 2, 3)), V([[0.0, -INF, 1.0], [-INF, -INF, -INF]], None)], IEEE, axis=2, slack=4,
     is_inner_broadcast=0, note="masked", reference=bias_softmax, **MS)
case("BiasSoftmax", [R((700, 8)), R((7, 8))], F32, is_inner_broadcast=1, slack=4, reference=bias_softmax,
     runs=[[R((30, 9)), R((3, 9))]], note="many short rows", **MS)


# ---- the forms of Dropout where nothing is dropped ----
def all_kept(x):
    return np.full((x.size + 31) // 32, 0xFFFFFFFF, np.uint32)


def whole_words(x):
    """Bits beyond the last element are 0."""
    return np.packbits(np.ones(x.size, bool), bitorder="little").tobytes().ljust(len(all_kept(x)) * 4, b"\0")


def plain(x, *rest, **attributes):
    return [x, all_kept(x)]


def biased(x, bias, residual=None, ratio=None, mode=None):
    return [x.astype(np.float64) + bias + (0 if residual is None else residual), np.ones(x.shape, bool)]


def biased_bits(x, *rest):
    return [biased(x, *rest)[0], np.frombuffer(whole_words(x), np.uint32)]


HALF_OF = K(np.float32(0.5), "float")
NEVER, ALWAYS = K(np.bool_(False), "bool"), D(np.bool_(True), "bool")
for shape in ((3, 4), (2, 32), (5, 1027), (0, 3)):
    case("BitmaskDropout", [R(shape)], FLOATS, outputs=2, reference=plain, **MS)
    case("BitmaskDropout", [R(shape), HALF_OF, NEVER], F32, outputs=2, reference=plain, **MS)
    case("BitmaskDropout", [R(shape), D(np.float32(0), "float"), ALWAYS], F32, outputs=2, reference=plain, **MS)
    case("BitmaskDropout", [R(shape)], F32, reference=lambda x: [x], **MS)
    for name, reference in (("BiasDropout", biased), ("BitmaskBiasDropout", biased_bits)):
        for bias in (shape[-1:], shape):
            kinds = FLOATS if bias == shape[-1:] else F32
            case(name, [R(shape), R(bias)], kinds, outputs=2, reference=reference, **MS)
            case(name, [R(shape), R(bias), R(shape), HALF_OF, NEVER], kinds, outputs=2, reference=reference, **MS)
        case(name, [R(shape), R(bias), None, D(np.float16(0), "float16"), ALWAYS], F32, outputs=2,
             reference=reference, **MS)
        case(name, [R(shape), R(bias), R(shape)], F32, reference=lambda *x, of=reference: of(*x)[:1], **MS)
