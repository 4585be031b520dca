# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of 8-bit integers."""

import itertools

import numpy as np

from cases.kit import F32, D, R, V, case

BYTES = ("int8", "uint8")


def spread(seed, shape, kind):
    """Values over the whole range of uint8, over half of that of int8: without VNNI, the CPU provider adds pairs of
    products of the one with the other in 16 bits, which saturate."""
    low, high = (-64, 64) if kind == "int8" else (0, 256)
    return D(np.random.default_rng(seed).integers(low, high, shape), kind)


def small(seed, shape, kind):
    """Values near the middle, so that sums fit a result of 8 bits with the scales below."""
    low = -20 if kind == "int8" else 100
    return D(np.random.default_rng(seed).integers(low, low + 40, shape), kind)


# ---- MatMulInteger ----
SHAPES = (
    ((3, 4), (4, 5)),
    ((1, 7), (7, 1)),
    ((33, 64), (64, 40)),
    ((65, 129), (129, 67)),
    ((5,), (5, 3)),
    ((3, 5), (5,)),
    ((2, 3, 4), (4, 8)),
    ((2, 3, 4), (2, 4, 8)),
    ((2, 1, 3, 8), (5, 8, 2)),
    ((3, 8), (2, 8, 4)),
    ((0, 4), (4, 5)),
)
for (a, b), left, right in itertools.product(SHAPES, BYTES, BYTES):
    case("MatMulInteger", [spread(1, a, left), spread(2, b, right)], F32, (10,))
for left, right in itertools.product(BYTES, BYTES):
    a, b = spread(1, (35, 20), left), spread(2, (20, 37), right)
    case("MatMulInteger", [a, b, D(7, left)], F32, (10,))
    case("MatMulInteger", [a, b, None, D(9, right)], F32, (10,))
    case("MatMulInteger", [a, b, D(7, left), D(100, right)], F32, (10,))
    case("MatMulInteger", [a, b, D(7, left), spread(3, (37,), right)], F32, (10,), note="a zero point for each column")
    case("MatMulInteger", [spread(1, (2, 3, 20), left), spread(2, (2, 20, 5), right), D(3, left),
                           spread(3, (2, 1, 5), right)], F32, (10,), note="again for each matrix")

# ---- QLinearMatMul ----
for left, right in (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")):
    for a, b in (((3, 4), (4, 5)), ((33, 65), (65, 34)), ((2, 3, 4), (2, 4, 5)), ((0, 4), (4, 5))):
        inputs = [small(1, a, left), V(0.02), D(3, left), small(2, b, right), V(0.5), D(5, right), V(3.0), D(9, left)]
        case("QLinearMatMul", inputs, F32, (10, 21))
    inputs = [small(1, (3, 8), left), V(0.02), D(3, left), small(2, (8, 4), right), V([0.5, 0.25, 1.0, 2.0]),
              small(3, (4,), right), V(3.0), D(9, left)]
    case("QLinearMatMul", inputs, F32, (10, 21), note="scales for each column")

# ---- ConvInteger and QLinearConv ----
CONVS = (
    ((1, 3, 8), (4, 3, 3), {}),
    ((2, 3, 17), (5, 3, 4), {"pads": [2, 1], "strides": [2]}),
    ((1, 8, 70), (70, 8, 11), {"pads": [15, 15], "dilations": [3]}),
    ((1, 1, 33), (1, 1, 3), {"pads": [1, 1], "strides": [2]}),
    ((2, 3, 7, 9), (4, 3, 3, 3), {}),
    ((1, 4, 9, 10), (6, 2, 3, 3), {"group": 2, "pads": [1, 0, 2, 1]}),
    ((1, 4, 9, 10), (4, 1, 3, 2), {"group": 4, "strides": [2, 3], "dilations": [2, 1]}),
    ((1, 4, 9, 10), (6, 4, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 4, 9, 10), (6, 4, 1, 1), {}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"pads": [0, 1, 0, 1, 0, 1]}),
    ((0, 3, 8, 8), (4, 3, 3, 3), {}),
)
for (x, w, attrs), weights in itertools.product(CONVS, BYTES):
    inputs = [spread(1, x, "uint8"), spread(2, w, weights)]
    case("ConvInteger", [*inputs, D(131, "uint8")], F32, (10,), **attrs)
    case("ConvInteger", inputs, F32, (10,), **attrs)
case("ConvInteger", [spread(1, (1, 3, 8), "uint8"), spread(2, (4, 3, 3), "int8"), D(7, "uint8"), D(9, "int8")], F32,
     (10,), pads=[1, 1])
for (x, w, attrs), kinds in itertools.product(CONVS, (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))):
    inputs = [small(1, x, kinds[0]), V(0.02), D(3, kinds[0]), small(2, w, kinds[1]), V(0.5), D(5, kinds[1]), V(3.0),
              D(9, kinds[0])]
    case("QLinearConv", inputs, F32, (10,), **attrs)
    bias = D(list(range(-40, -40 + 7 * w[0], 7)), "int32")
    each = [*inputs[:4], R((w[0],), 0.1, 1), D([0] * w[0], kinds[1]), *inputs[6:], bias]
    case("QLinearConv", each, F32, (10,), note="for each filter", **attrs)

# ---- com.microsoft ----
MS = "com.microsoft"
for left, right in (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")):
    a, b = spread(1, (35, 20), left), spread(2, (20, 37), right)
    case("MatMulIntegerToFloat", [a, b, V(0.3), V(0.02)], F32, (1,), domain=MS)
    case("MatMulIntegerToFloat", [a, b, V(0.3), V(0.02), D(3, left), D(5, right), R((37,))], F32, (1,), domain=MS)
    case("MatMulIntegerToFloat", [a, b, V(0.3), R((37,), 0.01, 0.1), D(3, left), spread(3, (37,), right)], F32, (1,),
         domain=MS)
for kind in BYTES:
    b = spread(2, (20, 37), kind)
    case("DynamicQuantizeMatMul", [R((5, 20)), b, V(0.02)], F32, (1,), domain=MS)
    case("DynamicQuantizeMatMul", [R((2, 3, 20)), b, R((37,), 0.01, 0.1), spread(3, (37,), kind), R((37,))], F32, (1,),
         domain=MS)
    case("DynamicQuantizeMatMul", [R((500, 20)), b, V(0.02), D(3, kind)], F32, (1,), domain=MS)
for kind in BYTES:
    scale, zero = V(0.02), D(3, kind)
    for a, b in (((3, 5), (3, 5)), ((2, 3, 1), (4,)), ((1027,), ()), ((0, 3), (3,))):
        for name, out in (("QLinearAdd", 0.0501), ("QLinearMul", 0.0203)):
            other = [spread(2, b, kind), V(0.03), D(5, kind)]
            case(name, [spread(1, a, kind), scale, zero, *other, V(out), D(9, kind)], F32, (1,), domain=MS)
    for shape in ((3, 5), (1027,), (), (0, 2)):
        x = spread(1, shape, kind)
        case("QLinearSigmoid", [x, V(0.03), zero, V(0.0041), D(5, kind)], F32, (1,), domain=MS)
        case("QLinearLeakyRelu", [x, scale, zero, V(0.0143), D(5, kind)], F32, (1,), domain=MS, alpha=0.1)
    for axis, shapes in ((1, ((2, 3, 5), (2, 4, 5), (2, 1, 5))), (-1, ((3, 7), (3, 0), (3, 2))), (0, ((5,), (20,)))):
        each = [[spread(i, shape, kind), V(0.02 + 0.01 * (i % 2)), D(3 * i, kind)] for i, shape in enumerate(shapes)]
        case("QLinearConcat", [V(0.03), D(3, kind), *itertools.chain(*each)], F32, (1,), domain=MS, axis=axis)
    for last in (0, 1):
        x = spread(1, (2, 3, 5, 4), kind)
        case("QLinearGlobalAveragePool", [x, scale, zero, V(0.0071), D(5, kind)], F32, (1,), domain=MS,
             channels_last=last)
