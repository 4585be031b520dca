# SPDX-License-Identifier: Apache-2.0
"""Models of one operator each of ai.onnx, or of a few in a row, where the device has work to do; and which tables of
such models there are.
"""

import numpy as np
import singles_contrib
import singles_contrib_more
import singles_kinds
import singles_shapes
from onnx import TensorProto
from single_case import Weights, case, ints, model_of, numbers

FLAT, IMAGE, TOKENS = (16, 1024, 1024), (8, 64, 112, 112), (16, 512, 768)

CASES = dict([
    *[case(op.lower(), op, FLAT)
      for op in ("Exp", "Erf", "Tanh", "Sigmoid", "Gelu", "Softplus", "Mish", "Round", "Sqrt", "Relu", "LeakyRelu",
                 "HardSwish", "Elu", "Abs")],
    *[case(op.lower(), op, FLAT, FLAT) for op in ("Add", "Mul", "Div", "Max")],
    case("pow", "Pow", FLAT, Weights(1)),
    case("add_row", "Add", FLAT, (1024,)),
    case("add_column", "Add", FLAT, (16, 1024, 1)),
    case("add_channel", "Add", IMAGE, (64, 1, 1)),
    case("clip", "Clip", FLAT, Weights(), Weights()),
    case("cast_i32", "Cast", FLAT, to=TensorProto.INT32),
    case("where", "Where", ints(*FLAT, most=2).astype(bool), FLAT, FLAT),
    case("less", "Less", FLAT, FLAT),
    case("isnan", "IsNaN", FLAT),
    *[case(f"{op.lower()}_last", op, FLAT, numbers(-1)) for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2")],
    case("reducesum_first", "ReduceSum", FLAT, numbers(0)),
    case("reducesum_middle", "ReduceSum", FLAT, numbers(1)),
    case("reducesum_all", "ReduceSum", FLAT),
    case("reducemean_image", "ReduceMean", IMAGE, numbers(2, 3)),
    case("reducemean_channel", "ReduceMean", IMAGE, numbers(1)),
    case("reducelogsumexp", "ReduceLogSumExp", FLAT, numbers(-1)),
    case("argmax_last", "ArgMax", FLAT, axis=-1),
    case("argmax_middle", "ArgMax", FLAT, axis=1),
    case("topk_10_of_50k", "TopK", (64, 50000), numbers(10), outputs=2),
    case("topk_100_of_1m", "TopK", (1, 1 << 20), numbers(100), outputs=2),
    case("topk_sort_4k", "TopK", (64, 4096), numbers(4096), outputs=2),
    case("softmax_128", "Softmax", (65536, 128), axis=-1),
    case("softmax_1k", "Softmax", FLAT, axis=-1),
    case("softmax_50k", "Softmax", (128, 50257), axis=-1),
    case("softmax_middle", "Softmax", FLAT, axis=1),
    case("logsoftmax_50k", "LogSoftmax", (128, 50257), axis=-1),
    case("layernorm_768", "LayerNormalization", TOKENS, Weights(768), Weights(768)),
    case("layernorm_odd", "LayerNormalization", (8192, 1001), Weights(1001), Weights(1001)),
    case("batchnorm", "BatchNormalization", IMAGE, Weights(64), Weights(64), Weights(64), np.ones(64, np.float32)),
    case("instancenorm", "InstanceNormalization", IMAGE, Weights(64), Weights(64)),
    case("lpnorm", "LpNormalization", FLAT),
    case("cumsum_last", "CumSum", FLAT, np.array(2)),
    case("cumsum_first", "CumSum", FLAT, np.array(0)),
    case("transpose_0213", "Transpose", (16, 512, 12, 64), perm=[0, 2, 1, 3]),
    case("transpose_2d", "Transpose", (4096, 4096), perm=[1, 0]),
    case("transpose_nhwc", "Transpose", IMAGE, perm=[0, 2, 3, 1]),
    case("transpose_nchw", "Transpose", (8, 112, 112, 64), perm=[0, 3, 1, 2]),
    case("transpose_210", "Transpose", FLAT, perm=[2, 1, 0]),
    case("concat_channel", "Concat", IMAGE, IMAGE, axis=1),
    case("concat_last", "Concat", (65536, 100), (65536, 28), axis=-1),
    case("split_last", "Split", TOKENS, outputs=3, axis=-1, num_outputs=3),
    case("slice_step", "Slice", FLAT, numbers(0), numbers(1024), numbers(2), numbers(2)),
    case("slice_inner", "Slice", FLAT, numbers(3), numbers(900), numbers(2)),
    case("gather_rows", "Gather", Weights(50000, 768), ints(16, 512, most=50000)),
    case("gather_columns", "Gather", FLAT, ints(512, most=1024), axis=2),
    case("gatherelements", "GatherElements", FLAT, ints(*FLAT, most=1024), axis=2),
    case("gathernd", "GatherND", (1024, 128, 128), ints(65536, 2, most=128)),
    case("scatternd", "ScatterND", (50000, 256), ints(8192, 1, most=50000), (8192, 256)),
    case("scatterelements", "ScatterElements", FLAT, ints(16, 1024, 256, most=1024), (16, 1024, 256), axis=2),
    case("expand", "Expand", (16, 1, 1024), numbers(16, 1024, 1024)),
    case("tile", "Tile", (16, 64, 1024), numbers(1, 16, 1)),
    case("pad_constant", "Pad", IMAGE, numbers(0, 0, 1, 1, 0, 0, 1, 1)),
    case("pad_reflect", "Pad", IMAGE, numbers(0, 0, 3, 3, 0, 0, 3, 3), mode="reflect"),
    case("resize_nearest", "Resize", (8, 64, 56, 56), None, np.array([1, 1, 2, 2], np.float32), mode="nearest",
         floats=[2]),
    case("resize_linear", "Resize", (8, 64, 56, 56), None, np.array([1, 1, 2, 2], np.float32), mode="linear",
         floats=[2]),
    case("resize_cubic", "Resize", (8, 16, 56, 56), None, np.array([1, 1, 2, 2], np.float32), mode="cubic",
         floats=[2]),
    case("maxpool_3x3", "MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("averagepool_3x3", "AveragePool", IMAGE, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
    case("globalaveragepool", "GlobalAveragePool", IMAGE),
    case("conv_3x3", "Conv", IMAGE, Weights(64, 64, 3, 3), pads=[1, 1, 1, 1]),
    case("conv_1x1", "Conv", IMAGE, Weights(256, 64, 1, 1)),
    case("conv_7x7", "Conv", (8, 3, 224, 224), Weights(64, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2]),
    case("conv_depthwise", "Conv", IMAGE, Weights(64, 1, 3, 3), pads=[1, 1, 1, 1], group=64),
    case("conv_depthwise_7x7", "Conv", IMAGE, Weights(64, 1, 7, 7), pads=[3, 3, 3, 3], group=64),
    case("conv_grouped", "Conv", IMAGE, Weights(64, 8, 3, 3), pads=[1, 1, 1, 1], group=8),
    case("conv_dilated", "Conv", IMAGE, Weights(64, 64, 3, 3), pads=[2, 2, 2, 2], dilations=[2, 2]),
    case("conv_1d", "Conv", (16, 256, 4000), Weights(256, 256, 5), pads=[2, 2]),
    case("conv_1d_depthwise", "Conv", (16, 256, 4000), Weights(256, 1, 31), pads=[15, 15], group=256),
    case("conv_3d", "Conv", (2, 32, 16, 56, 56), Weights(32, 32, 3, 3, 3), pads=[1] * 6),
    case("convtranspose_2x2", "ConvTranspose", (8, 64, 56, 56), Weights(64, 64, 2, 2), strides=[2, 2]),
    case("convtranspose_4x4", "ConvTranspose", (8, 64, 56, 56), Weights(64, 64, 4, 4), strides=[2, 2], pads=[1] * 4),
    case("matmul_square", "MatMul", (2048, 2048), (2048, 2048)),
    case("matmul_weights", "MatMul", TOKENS, Weights(768, 3072)),
    case("matmul_batched", "MatMul", (192, 512, 64), (192, 64, 512)),
    case("matmul_row", "MatMul", (1, 4096), Weights(4096, 16384)),
    case("gemm_bias", "Gemm", (4096, 1024), Weights(4096, 1024), Weights(4096), transB=1),
    case("gemm_128x768", "Gemm", (128, 768), Weights(768, 768), Weights(768)),
    case("gemm_128x3072x768", "Gemm", (128, 3072), Weights(3072, 768), (128, 768)),
    case("gemm_197x768", "Gemm", (197, 768), Weights(768, 768), Weights(768)),
    case("gemm_12x1536x384", "Gemm", (12, 1536), Weights(1536, 384), Weights(384)),
    case("ffn_128x768x3072", "Gemm", (128, 768), Weights(768, 3072), Weights(3072),
         behind=[("Gelu",), ("Gemm", Weights(3072, 768), Weights(768))]),
    case("ffn_12x384x1536", "Gemm", (12, 384), Weights(384, 1536), Weights(1536),
         behind=[("Gelu",), ("Gemm", Weights(1536, 384), Weights(384))]),
    case("einsum", "Einsum", (8, 128, 12, 64), (8, 128, 12, 64), equation="bihd,bjhd->bhij"),
    case("lstm", "LSTM", (100, 8, 128), Weights(1, 1024, 128), Weights(1, 1024, 256), outputs=3, hidden_size=256),
    case("gru", "GRU", (100, 8, 128), Weights(1, 768, 128), Weights(1, 768, 256), outputs=2, hidden_size=256),
    case("rnn", "RNN", (100, 8, 128), Weights(1, 256, 128), Weights(1, 256, 256), outputs=2, hidden_size=256),
    case("nonzero", "NonZero", ints(4096, 4096, most=2).astype(np.float32)),
    case("compress", "Compress", (1 << 20, 16), ints(1 << 20, most=2).astype(bool), axis=0),
    case("unique", "Unique", ints(1 << 20, most=1 << 16).astype(np.float32), outputs=4),
    case("onehot", "OneHot", ints(4096, most=1000), np.array(1000), np.array([0, 1], np.float32)),
    case("trilu", "Trilu", FLAT, upper=0),
    case("depthtospace", "DepthToSpace", IMAGE, blocksize=2),
    case("spacetodepth", "SpaceToDepth", IMAGE, blocksize=2),
    case("gridsample", "GridSample", (8, 32, 112, 112), (8, 112, 112, 2)),
    case("lrn", "LRN", (8, 64, 56, 56), size=5),
    case("reversesequence", "ReverseSequence", (512, 64, 256), ints(64, most=512), batch_axis=1, time_axis=0),
    case("hardmax", "Hardmax", FLAT),
    case("dft", "DFT", (64, 4096, 1), None, np.array(1)),
    case("quantizelinear", "QuantizeLinear", FLAT, np.array(0.1, np.float32), np.array(3, np.uint8)),
    case("quantize_channel", "QuantizeLinear", IMAGE, np.full(64, 0.1, np.float32), np.full(64, 3, np.uint8), axis=1),
    case("dynamicquantize", "DynamicQuantizeLinear", FLAT, outputs=3),
    case("matmulinteger_signed", "MatMulInteger", ints(2048, 768, most=99, kind=np.int8),
         ints(768, 3072, most=99, kind=np.int8)),
    case("matmulinteger", "MatMulInteger", ints(2048, 768, most=200, kind=np.uint8),
         ints(768, 3072, most=99, kind=np.int8)),
    case("skiplayernorm", "SkipLayerNormalization", TOKENS, TOKENS, Weights(768), Weights(768),
         domain="com.microsoft"),
    case("biasgelu", "BiasGelu", TOKENS, Weights(768), domain="com.microsoft"),
    case("fastgelu", "FastGelu", TOKENS, domain="com.microsoft"),
    case("quickgelu", "QuickGelu", FLAT, domain="com.microsoft"),
    case("attention_128", "MultiHeadAttention", (8, 128, 768), (8, 128, 768), (8, 128, 768), domain="com.microsoft",
         num_heads=12),
    case("attention_1k", "MultiHeadAttention", (2, 1024, 768), (2, 1024, 768), (2, 1024, 768), domain="com.microsoft",
         num_heads=12),
    case("attention_causal", "MultiHeadAttention", (2, 1024, 768), (2, 1024, 768), (2, 1024, 768),
         domain="com.microsoft", num_heads=12, unidirectional=1),
])
FLOAT_ONLY = {"dynamicquantize", "onehot", "nonzero", "unique", "dft", "matmulinteger", "matmulinteger_signed",
              "batchnorm", "isnan"}


TABLES = {"operators": CASES | singles_contrib.CASES, "shapes": singles_shapes.CASES, "kinds": singles_kinds.CASES,
          "contrib": singles_contrib_more.CASES}
ONE_KIND = FLOAT_ONLY.union(*(table.FLOAT_ONLY for table in (singles_contrib, singles_contrib_more, singles_shapes,
                                                             singles_kinds)))
HALF_ONLY = singles_contrib.HALF_ONLY | singles_contrib_more.HALF_ONLY
LEFT_OUT = {"f32": HALF_ONLY, "f16": ONE_KIND, "bf16": ONE_KIND}


def subjects(table, only, kinds):
    """(name, model, pairs of label and feed) of each row of a table whose name holds `only` or a part between
    commas, by kinds."""
    for name, row in TABLES[table].items():
        for kind in kinds:
            full = f"{name}_{kind}"
            if any(part in full for part in only.split(",")) and name not in LEFT_OUT[kind]:
                model, feed = model_of(name, row, kind)
                yield full, model, [("", feed)]
