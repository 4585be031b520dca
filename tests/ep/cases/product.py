# SPDX-License-Identifier: Apache-2.0
"""Matrix products, convolutions, pooling."""

import itertools

from cases.kit import F32, FLOATS, R, case

# ---- matrix products ----
for a, b in (
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 4), (2, 4, 5)),
    ((2, 4), (3, 2, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((65, 33), (33, 70)),
    ((1, 128), (128, 1)),
    ((2, 1, 2, 1, 1, 1, 3, 4), (1, 2, 1, 1, 2, 1, 4, 2)),
):
    types = (*FLOATS, "int32", "int64", "uint32", "uint64") if a == (3, 4) else ("float", "double")
    case("MatMul", [R(a), R(b)], types, (1, 9, 13), slack=4)
case("MatMul", [R((3, 4)), R((4, 5))], F32, slack=4, runs=[[R((7, 4)), R((4, 2))], [R((1, 6)), R((6, 3))]])
for trans_a, trans_b in itertools.product((0, 1), repeat=2):
    a, b = ((4, 3) if trans_a else (3, 4)), ((5, 4) if trans_b else (4, 5))
    for bias in ([], [R((5,))], [R((3, 5))], [R((3, 1))], [R(())], [R((1, 5))]):
        attrs = {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 2.0}
        case("Gemm", [R(a), R(b), *bias], FLOATS if not bias else F32, (11, 13), slack=4, **attrs)
    case("Gemm", [R(a), R(b), R((5,))], F32, (7, 9, 13), slack=4, transA=trans_a, transB=trans_b)
case("Gemm", [R((0, 4)), R((4, 5)), R((5,))], F32)
case("Gemm", [R((3, 4)), R((4, 5)), R((5,))], F32, slack=4, runs=[[R((8, 4)), R((4, 2)), R((2,))]])

# ---- matrix products of com.microsoft ----
MS = {"domain": "com.microsoft", "opsets": (1,), "slack": 4}
for trans_a, trans_b in itertools.product((0, 1), repeat=2):
    a, b = ((4, 3) if trans_a else (3, 4)), ((5, 4) if trans_b else (4, 5))
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": 0.5}
    case("FusedMatMul", [R(a), R(b)], FLOATS, **MS, **attrs)
    case("TransposeMatMul", [R(a), R(b)], FLOATS, **MS, **attrs)
    for lead_a, lead_b in (((2,), ()), ((), (3,)), ((2, 3), (2, 3)), ((2, 1), (5,)), ((2, 1, 2), (3, 1))):
        case("FusedMatMul", [R((*lead_a, *a)), R((*lead_b, *b))], F32, **MS, **attrs)
    before_a = (a[0], 2, 3, a[1])
    before_b = (b[0], 2, 3, b[1])
    case("FusedMatMul", [R(before_a), R((2, 3, *b))], F32, **MS, **attrs, transBatchA=1)
    case("FusedMatMul", [R((2, 3, *a)), R(before_b)], F32, **MS, **attrs, transBatchB=1)
    case("FusedMatMul", [R(before_a), R(before_b)], FLOATS, **MS, **attrs, transBatchA=1, transBatchB=1)
    case("FusedMatMul", [R((a[0], 2, a[1])), R((b[0], 1, b[1]))], F32, **MS, **attrs, transBatchA=1, transBatchB=1)
case("FusedMatMul", [R((4,)), R((4, 5))], F32, **MS)
case("FusedMatMul", [R((2, 3, 4)), R((4,))], F32, **MS, alpha=2.0)
case("FusedMatMul", [R((2, 0, 4)), R((4, 5))], F32, **MS)
case("FusedMatMul", [R((2, 3, 0)), R((0, 5))], F32, **MS)
case("FusedMatMul", [R((3, 4)), R((4, 5))], F32, **MS, runs=[[R((7, 4)), R((4, 2))], [R((1, 6)), R((6, 3))]])
BENT = [("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.1}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}), ("Elu", {"activation_alpha": 0.5})]
for name, attrs in BENT:
    case("FusedGemm", [R((3, 4)), R((4, 5)), R((5,))], ("float", "float16", "double"), **MS, activation=name, **attrs)
case("FusedGemm", [R((4, 3)), R((5, 4)), R((3, 1))], F32, **MS, activation="Relu", transA=1, transB=1, alpha=0.5,
     beta=2.0)
case("FusedGemm", [R((3, 4)), R((4, 5))], F32, **MS, activation="Relu")
case("FusedGemm", [R((0, 4)), R((4, 5)), R((5,))], F32, **MS, activation="Sigmoid")
# Some rows, for tensor cores: tails of rows and columns, depths that are whole chunks or not
SHORT = ("float", "float16", "bfloat16")
case("MatMul", [R((3, 11, 320)), R((320, 72))], SHORT, slack=4)
case("MatMul", [R((200, 264)), R((264, 40))], SHORT, slack=4, runs=[[R((70, 264)), R((264, 168))]])
for bias in ([], [R((136,))], [R((50, 136))], [R((50, 1))]):
    case("Gemm", [R((50, 288)), R((136, 288)), *bias], SHORT, slack=4, transB=1, alpha=0.5)
case("FusedMatMul", [R((2, 33, 320)), R((72, 320))], SHORT, **MS, transB=1, alpha=0.25)
for name in ("Relu", "Sigmoid", "Tanh"):
    case("FusedGemm", [R((70, 64)), R((64, 200)), R((200,))], ("float", "float16"), **MS | {"slack": 8},
         activation=name)

# ---- convolution and pooling ----
NARROW = ("float", "float16", "bfloat16", "double")
case("Conv", [R((1, 3, 8)), R((4, 3, 3))], NARROW, (1, 11, 22), slack=4)
case("Conv", [R((2, 3, 7, 9)), R((4, 3, 3, 3)), R((4,))], NARROW, (1, 11, 22), slack=4)
for attrs in (
    {"strides": [2, 2]},
    {"pads": [1, 1, 1, 1]},
    {"pads": [0, 1, 2, 0]},
    {"pads": [2, 0, 1, 3], "strides": [2, 3]},
    {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID"},
    {"kernel_shape": [3, 3], "strides": [1, 2], "dilations": [1, 2]},
):
    case("Conv", [R((1, 4, 9, 10)), R((6, 4, 3, 3)), R((6,))], F32, slack=4, **attrs)
    case("Conv", [R((1, 4, 9, 10)), R((4, 1, 3, 3)), R((4,))], F32, slack=4, group=4, **attrs)
case("Conv", [R((1, 4, 9, 10)), R((8, 2, 1, 1))], F32, slack=4, group=2)
case("Conv", [R((2, 6, 5, 5)), R((6, 1, 5, 5))], NARROW, slack=4, group=6, pads=[2, 2, 2, 2])
case("Conv", [R((2, 6, 19, 37)), R((6, 1, 7, 7)), R((6,))], NARROW, slack=4, group=6, pads=[3, 3, 3, 3], strides=[2, 2])
case("Conv", [R((2, 3, 21, 18)), R((3, 1, 9, 4))], NARROW, slack=4, group=3, pads=[4, 1, 3, 2], dilations=[1, 3])
case("Conv", [R((1, 3, 33, 132)), R((3, 1, 3, 3))], NARROW, slack=4, group=3, pads=[0, 1, 2, 1])
# each channel by itself over three dimensions
case("Conv", [R((2, 3, 5, 6, 7)), R((3, 1, 3, 3, 3)), R((3,))], NARROW, slack=4, group=3, pads=[1, 1, 1, 1, 1, 1])
case("Conv", [R((1, 4, 6, 5, 11)), R((4, 1, 1, 2, 4))], NARROW, slack=4, group=4, pads=[0, 2, 1, 1, 0, 3],
     strides=[1, 2, 3], dilations=[1, 1, 2])
case("Conv", [R((2, 2, 4, 4, 4)), R((2, 1, 4, 1, 1)), R((2,))], NARROW, slack=4, group=2, pads=[5, 0, 0, 0, 0, 0],
     strides=[2, 1, 1])
# long windows of groups, which a GPU has as products
case("Conv", [R((2, 24, 19)), R((16, 12, 40)), R((16,))], NARROW, slack=8, group=2, pads=[20, 20])
case("Conv", [R((1, 16, 9, 11)), R((16, 8, 6, 7))], NARROW, slack=8, group=2, pads=[3, 3, 2, 3], dilations=[1, 2])
# groups of single pixels, which are products
for x, w, group in (((2, 24, 19), (48, 12, 1), 2), ((9, 64, 3, 2), (64, 8, 1, 1), 8),
                    ((1, 40, 3, 4, 2), (16, 20, 1, 1, 1), 2)):
    case("Conv", [R(x), R(w), R(w[:1])], NARROW, slack=4, group=group)
    case("Conv", [R(x), R(w)], ("float", "double"), slack=4, group=group)
case("FusedConv", [R((1, 16, 31)), R((16, 8, 33)), R((16,))], F32, **MS, group=2, pads=[16, 16], activation="Relu")
case("Conv", [R((1, 8, 6, 6)), R((16, 8, 1, 1)), R((16,))], NARROW, slack=4, note="1x1")
case("Conv", [R((1, 2, 4, 5, 6)), R((3, 2, 2, 3, 2)), R((3,))], ("float", "double"), slack=4, pads=[0, 1, 0, 1, 0, 1])
case("Conv", [R((0, 3, 8, 8)), R((4, 3, 3, 3))], F32, note="empty batch")
for x, w, attrs in (  # few channels, as networks begin with
    ((1, 3, 40, 48), (64, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    ((2, 3, 37, 50), (16, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((1, 3, 18, 70), (33, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 16, 32), (96, 3, 4, 4), {"strides": [4, 4]}),
    ((1, 4, 21, 26), (24, 4, 5, 3), {"pads": [4, 0, 1, 5], "strides": [1, 3], "dilations": [2, 1]}),
    ((2, 1, 300), (40, 1, 9), {"pads": [4, 4], "strides": [2]}),
):
    case("Conv", [R(x), R(w), R(w[:1])], NARROW, slack=4, **attrs)
    case("Conv", [R(x), R(w)], F32, slack=4, **attrs)
X, W, B, Z = R((2, 4, 7, 8)), R((6, 4, 3, 3)), R((6,)), R((2, 6, 7, 8))
for inputs in ([X, W], [X, W, B], [X, W, B, Z], [X, W, None, Z]):
    case("FusedConv", inputs, ("float", "float16", "double"), **MS, pads=[1, 1, 1, 1], activation="Relu")
for name, numbers in (("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.75]),
                      ("HardSigmoid", [0.25, 0.5])):
    attrs = {"activation_params": numbers} if numbers else {}
    case("FusedConv", [X, W, B, Z], F32, **MS, pads=[1, 1, 1, 1], activation=name, **attrs)
case("FusedConv", [X, W, B, Z], F32, **MS, pads=[1, 1, 1, 1])
case("FusedConv", [X, R((4, 2, 3, 3)), R((4,)), R((2, 4, 4, 4))], F32, **MS, pads=[1, 1, 1, 1], strides=[2, 2], group=2,
     activation="Relu", runs=[[X, R((4, 2, 3, 3)), R((4,)), R((2, 4, 4, 4))]])
FIRST, SECOND = [R((1, 3, 8, 8)), R((4, 3, 3, 3))], [R((2, 3, 12, 5)), R((4, 3, 3, 3))]
case("Conv", FIRST, F32, slack=4, runs=[SECOND, FIRST])
case("ConvTranspose", [R((1, 3, 5)), R((3, 4, 3))], F32, (1, 11, 22), slack=4)
case("ConvTranspose", [R((2, 3, 4, 5)), R((3, 4, 3, 3)), R((4,))], NARROW, (1, 11, 22), slack=4)
for attrs in (
    {"strides": [2, 2]},
    {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]},
    {"strides": [3, 2], "output_shape": [12, 10]},
    {"dilations": [2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
):
    case("ConvTranspose", [R((1, 4, 4, 5)), R((4, 2, 3, 3)), R((2,))], F32, slack=4, **attrs)
case("ConvTranspose", [R((1, 4, 4, 5)), R((4, 2, 2, 2)), R((4,))], F32, slack=4, group=2, strides=[2, 2])
for kernel in ([2, 2], [3, 4], [2, 3], [1, 2]):
    case("ConvTranspose", [R((2, 5, 3, 8)), R((5, 4, *kernel)), R((4,))], NARROW, slack=4, strides=kernel)
    case("ConvTranspose", [R((1, 3, 4, 5)), R((3, 2, *kernel))], NARROW, slack=4, strides=kernel)
case("ConvTranspose", [R((2, 3, 6)), R((3, 4, 2))], NARROW, slack=4, strides=[2])
POOLS = (
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [2, 3], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0]},
    {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 2], "auto_pad": "VALID"},
)
for attrs in POOLS:
    case("MaxPool", [R((2, 3, 7, 8))], NARROW if len(attrs) == 1 else F32, (10, 11, 12, 22), **attrs)
    case("AveragePool", [R((2, 3, 7, 8))], NARROW if len(attrs) == 1 else F32, (10, 11, 19, 22), **attrs)
    case("AveragePool", [R((2, 3, 7, 8))], F32, (11, 19, 22), count_include_pad=1, **attrs)
case("MaxPool", [R((1, 2, 9, 9))], F32, (10, 12, 22), kernel_shape=[3, 3], dilations=[2, 2])
case("MaxPool", [R((1, 2, 6, 6))], F32, (8, 12), outputs=2, kernel_shape=[2, 2], strides=[2, 2], note="indices")
case("MaxPool", [R((1, 2, 9))], F32, (1, 8, 12), kernel_shape=[3])
case("MaxPool", [R((1, 2, 4, 5, 6))], F32, (8, 12), kernel_shape=[2, 2, 2])
case("MaxPool", [R((1, 2, 7, 8))], F32, kernel_shape=[2, 2], runs=[[R((3, 2, 4, 4))], [R((1, 2, 7, 8))]])
case("AveragePool", [R((1, 2, 9))], F32, (7, 11), kernel_shape=[3])
case("AveragePool", [R((1, 2, 4, 5, 6))], F32, (11,), kernel_shape=[2, 2, 2])
case("MaxPool", [R((2, 3, 5, 6))], F32, (8, 12, 22), outputs=2, kernel_shape=[3, 2], pads=[1, 1, 1, 0], note="indices")
case("MaxPool", [R((2, 3, 3, 4, 5))], F32, (12, 22), outputs=2, kernel_shape=[2, 2, 3], strides=[1, 2, 2])
case("MaxPool", [R((1, 2, 5, 6))], ("int8", "uint8"), (12, 22), kernel_shape=[2, 3], pads=[1, 1, 0, 1])
case("MaxPool", [R((2, 2, 5, 6))], F32, (8, 22), outputs=2, kernel_shape=[2, 3], storage_order=1, note="column major")
case("MaxPool", [R((1, 2, 3, 5))], F32, (10, 22), kernel_shape=[4, 2], strides=[2, 3], ceil_mode=1, note="one window")
case("AveragePool", [R((1, 2, 9, 9))], FLOATS, (7, 22), kernel_shape=[9, 9], note="whole input")
case("AveragePool", [R((1, 2, 9, 9))], F32, (19, 22), kernel_shape=[3, 2], dilations=[2, 3], count_include_pad=1,
     pads=[1, 1, 2, 0], strides=[2, 2], ceil_mode=1)
for name in ("GlobalAveragePool", "GlobalMaxPool"):
    case(name, [R((2, 3, 5, 6))], NARROW, (1, 22), slack=2)
    case(name, [R((2, 3, 7))], F32)
    case(name, [R((1, 2, 3, 4, 5))], F32)
