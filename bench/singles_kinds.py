# SPDX-License-Identifier: Apache-2.0
"""Models of one operator each, as singles.py has them, of types other than float and float16: doubles, integers, bytes
and booleans, which post-processing, tokens, masks and quantised images are made of.
"""

import numpy as np
from onnx import TensorProto
from single_case import Constant, case, ints, numbers

FLAT, IMAGE, PIXELS = (8, 1024, 1024), (8, 32, 112, 112), (8, 3, 720, 1280)
I32, I64, U8, I8, F64 = np.int32, np.int64, np.uint8, np.int8, np.float64
INTEGERS = {"i32": I32, "i64": I64}


def doubles(*shape):
    return lambda: np.random.default_rng(7).standard_normal(shape)


def weights(*shape):
    return Constant(doubles(*shape)() * 0.05)


def some(kind, *shape, most=99):
    """Values from 1 on, so that what divides is not zero."""
    return lambda: ints(*shape, most=most, kind=kind) + kind(1)


def of_integers(op, *inputs, name=None, **attributes):
    """A case for each type of integers; `inputs` are shapes of values and arrays."""
    for suffix, kind in INTEGERS.items():
        yield case(f"{name or op.lower()}_{suffix}", op,
                   *[some(kind, *given) if isinstance(given, tuple) else given for given in inputs], **attributes)


def of_bytes(op, shape, *inputs, name=None, kind=U8, **attributes):
    return case(f"{name or op.lower()}_{'u8' if kind is U8 else 'i8'}", op, some(kind, *shape), *inputs, **attributes)


def of_doubles(op, *inputs, name=None, **attributes):
    return case(f"{name or op.lower()}_f64", op,
                *[doubles(*given) if isinstance(given, tuple) else given for given in inputs], **attributes)


def mask(*shape):
    return lambda: ints(*shape, most=2).astype(bool)


CASES = dict([
    # Element by element.
    *[made for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "GreaterOrEqual", "Mod")
      for made in of_integers(op, FLAT, FLAT, name=f"{op.lower()}_pairs")],
    *[made for op in ("Abs", "Neg", "Sign") for made in of_integers(op, FLAT)],
    *of_integers("Add", FLAT, (1024,), name="add_row"),
    *of_integers("Mul", FLAT, (1,), name="mul_one"),
    *of_integers("Equal", FLAT, (1,), name="equal_one"),
    *[case(f"where_{suffix}", "Where", mask(*FLAT), some(kind, *FLAT), some(kind, *FLAT))
      for suffix, kind in (("i64", I64), ("u8", U8))],
    *[case(f"clip_{suffix}", "Clip", some(kind, *FLAT), np.array(5, kind), np.array(50, kind))
      for suffix, kind in (("i64", I64), ("u8", U8), ("i8", I8))],
    *[of_doubles(op, FLAT) for op in ("Exp", "Sqrt", "Tanh", "Sigmoid", "Erf", "Relu", "Abs")],
    *[of_doubles(op, FLAT, FLAT) for op in ("Add", "Mul", "Div")],
    *[case(op.lower(), op, mask(*FLAT), mask(*FLAT)) for op in ("Or", "Xor")],
    # Casts: from, to.
    *[case(f"cast_{name}", "Cast", values, to=to) for name, values, to in (
        ("u8_f32", some(U8, *PIXELS), TensorProto.FLOAT), ("u8_f16", some(U8, *PIXELS), TensorProto.FLOAT16),
        ("i64_f32", some(I64, *FLAT), TensorProto.FLOAT), ("i64_i32", some(I64, *FLAT), TensorProto.INT32),
        ("i32_i64", some(I32, *FLAT), TensorProto.INT64), ("i64_bool", some(I64, *FLAT), TensorProto.BOOL),
        ("bool_f32", mask(*FLAT), TensorProto.FLOAT), ("bool_i64", mask(*FLAT), TensorProto.INT64),
        ("f64_f32", doubles(*FLAT), TensorProto.FLOAT), ("i8_i32", some(I8, *FLAT), TensorProto.INT32))],
    # Reductions and orders.
    *[made for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd")
      for made in of_integers(op, FLAT, numbers(-1), name=f"{op.lower()}_last")],
    *of_integers("ReduceSum", FLAT, numbers(0), name="reducesum_first"),
    *of_integers("ReduceSum", FLAT, numbers(0, 1, 2), name="reducesum_all"),
    of_bytes("ReduceMax", FLAT, numbers(-1), name="reducemax_last"),
    of_bytes("ReduceMin", FLAT, numbers(1), name="reducemin_middle", kind=I8),
    *[of_doubles(op, FLAT, numbers(axis), name=f"{op.lower()}_{axis}")
      for op in ("ReduceSum", "ReduceMax") for axis in (0, 2)],
    of_doubles("ReduceMean", IMAGE, numbers(2, 3), name="reducemean_image"),
    *of_integers("CumSum", FLAT, np.array(2), name="cumsum_last"),
    of_doubles("CumSum", FLAT, np.array(0), name="cumsum_first"),
    of_doubles("ArgMax", FLAT, name="argmax_last", axis=-1),
    *[case(f"topk_10_{name}", "TopK", values, numbers(10), outputs=2) for name, values in (
        ("i32", ints(64, 50000, most=1 << 30, kind=I32)), ("i64", ints(64, 50000, most=1 << 40)),
        ("f64", doubles(64, 50000)))],
    # Rows, norms, windows, products.
    of_doubles("Softmax", FLAT, name="softmax_last", axis=-1),
    of_doubles("LogSoftmax", FLAT, name="logsoftmax_first", axis=0),
    of_doubles("LayerNormalization", (8, 512, 768), weights(768), weights(768)),
    of_doubles("BatchNormalization", IMAGE, weights(32), weights(32), weights(32), Constant(np.ones(32))),
    of_doubles("InstanceNormalization", IMAGE, weights(32), weights(32)),
    of_doubles("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    of_doubles("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1] * 4),
    of_doubles("GlobalAveragePool", IMAGE),
    *[of_bytes("MaxPool", IMAGE, kind=kind, kernel_shape=[2, 2], strides=[2, 2]) for kind in (U8, I8)],
    of_doubles("MatMul", (1024, 1024), weights(1024, 1024)),
    of_doubles("MatMul", (1, 1024), weights(1024, 4096), name="matmul_row"),
    of_doubles("MatMul", (64, 128, 64), (64, 64, 128), name="matmul_batched"),
    of_doubles("Gemm", (256, 1024), weights(1024, 1024), weights(1024)),
    of_doubles("Conv", (2, 32, 56, 56), weights(32, 32, 3, 3), pads=[1] * 4),
    of_doubles("Conv", (2, 64, 56, 56), weights(64, 1, 3, 3), name="conv_depthwise", pads=[1] * 4, group=64),
    of_doubles("ConvTranspose", (2, 32, 28, 28), weights(32, 32, 2, 2), strides=[2, 2]),
    of_doubles("LSTM", (50, 4, 64), weights(1, 256, 64), weights(1, 256, 64), outputs=3, hidden_size=64),
    of_doubles("GRU", (50, 4, 64), weights(1, 192, 64), weights(1, 192, 64), outputs=2, hidden_size=64),
    # Copies: what counts is how wide an element is.
    *[case(f"transpose_nhwc_{name}", "Transpose", values, perm=[0, 2, 3, 1]) for name, values in (
        ("u8", some(U8, *PIXELS)), ("i64", some(I64, *IMAGE)), ("bool", mask(*IMAGE)))],
    of_bytes("Transpose", (8, 720, 1280, 3), name="transpose_nchw", perm=[0, 3, 1, 2]),
    of_bytes("Transpose", (4096, 4096), name="transpose_2d", perm=[1, 0]),
    of_bytes("Transpose", (32, 12, 64, 256), name="transpose_0213", perm=[0, 2, 1, 3]),
    of_bytes("Concat", IMAGE, some(U8, *IMAGE), name="concat_channel", axis=1),
    of_bytes("Concat", (1 << 20, 5), some(U8, 1 << 20, 3), name="concat_last", axis=-1),
    *of_integers("Concat", (8, 512), (8, 1), name="concat_token", axis=-1),
    of_bytes("Split", (8, 512, 3 * 256), name="split_last", outputs=3, axis=-1, num_outputs=3),
    of_bytes("Slice", PIXELS, numbers(10, 10), numbers(650, 1200), numbers(2, 3), name="slice_crop"),
    of_bytes("Slice", PIXELS, numbers(-1), numbers(-9), numbers(1), numbers(-1), name="slice_bgr"),
    of_bytes("Pad", PIXELS, numbers(0, 0, 8, 8, 0, 0, 8, 8), name="pad_constant"),
    of_bytes("Expand", (8, 1, 1024), numbers(8, 1024, 1024)),
    of_bytes("Tile", (8, 64, 1000), numbers(1, 16, 1)),
    of_bytes("Gather", (50000, 256), ints(8192, most=50000), name="gather_rows"),
    of_bytes("Resize", PIXELS, None, None, numbers(8, 3, 360, 640), name="resize_nearest", mode="nearest"),
    of_doubles("Resize", (2, 16, 56, 56), None, None, numbers(2, 16, 112, 112), name="resize_twice", mode="linear"),
    case("resize_nearest_i32", "Resize", some(I32, 2, 16, 56, 56), None, None, numbers(2, 16, 112, 112),
         mode="nearest"),
    *of_integers("Gather", (50000,), ints(1 << 20, most=50000), name="gather_values"),
    *of_integers("Gather", (4, 512, 512), np.array(0), name="gather_first_token", axis=1),
    *of_integers("GatherElements", FLAT, ints(8, 1024, 100, most=1024), name="gatherelements", axis=2),
    *of_integers("GatherND", (8, 1024, 64), np.stack([ints(8192, most=8), ints(8192, most=1024, seed=2)], 1)),
    *of_integers("ScatterElements", FLAT, ints(8, 1024, 100, most=1024), (8, 1024, 100), axis=2),
    *of_integers("ScatterND", (100000, 16), ints(8192, 1, most=100000), (8192, 16)),
    *of_integers("Slice", FLAT, numbers(0), numbers(1024), numbers(2), numbers(2), name="slice_step"),
    *of_integers("Trilu", FLAT, upper=1),
    *of_integers("Expand", (8, 1, 1024), numbers(8, 512, 1024)),
    *of_integers("Compress", (1 << 20,), mask(1 << 20), axis=0),
    case("nonzero_bool", "NonZero", mask(2048, 2048)),
    *of_integers("NonZero", (1 << 20,)),
    case("onehot_i64", "OneHot", ints(4096, most=1000), np.array(1000), numbers(0, 1)),
    case("range_i64", "Range", np.array(0), np.array(1 << 20), np.array(1)),
    case("constantofshape", "ConstantOfShape", numbers(8, 1024, 1024)),
    case("reversesequence_i64", "ReverseSequence", ints(512, 64, 64, most=99), ints(64, most=512), batch_axis=1,
         time_axis=0),
    case("depthtospace_u8", "DepthToSpace", some(U8, 8, 48, 180, 320), blocksize=4),
    case("isinf_f64", "IsInf", doubles(*FLAT)),
    # Quantised: 8 bits, one scale, a scale for each channel or block.
    *[case(f"quantizelinear_{name}", "QuantizeLinear", FLAT, np.array(0.1, np.float32), np.array(0, kind), opset=21)
      for name, kind in (("i8", I8), ("u16", np.uint16))],
    case("dequantizelinear_i32", "DequantizeLinear", some(I32, *FLAT), np.array(0.1, np.float32), np.array(0, I32)),
    case("dequantize_channel_i8", "DequantizeLinear", some(I8, *IMAGE), np.full(32, 0.1, np.float32), np.zeros(32, I8),
         axis=1),
    case("convinteger", "ConvInteger", some(U8, 4, 32, 56, 56), Constant(some(I8, 32, 32, 3, 3)()), pads=[1] * 4),
])
FLOAT_ONLY = set(CASES)
