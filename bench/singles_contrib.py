# SPDX-License-Identifier: Apache-2.0
"""Models of one operator each, as singles.py has them: those of com.microsoft, and what else of ai.onnx has a kernel of
its own. Sizes are those of models that have the operator: BERT-base and Llama-3-8B's heads, images of diffusion models
and of detectors.
"""

import numpy as np
from single_case import Constant, Weights, case, ints, numbers

TOKENS, IMAGE, FLAT = (8, 512, 768), (2, 64, 64, 320), (16, 1024, 1024)
MS = "com.microsoft"
HEADS = {"num_heads": 32, "kv_num_heads": 8}
EXPERTS, WIDTH, HIDDEN = 8, 1024, 4096


def bytes_(*shape):
    """Weights of packed integers, or codes."""
    return Constant(ints(*shape, most=256, kind=np.uint8))


def scales(*shape, least=0.001, most=0.002):
    return Constant(np.random.default_rng(2).uniform(least, most, shape).astype(np.float32))


def unit(batch, tokens, heads, size):
    """Vectors of heads whose squares sum up to about 1, so that states stay small."""
    vectors = np.random.default_rng(5).standard_normal((batch, tokens, heads * size)) * size**-0.5
    return vectors.astype(np.float32)


def angles(length, half):
    turned = np.arange(length)[:, None] / 10000 ** (np.arange(half) / half)
    return [Constant(np.cos(turned).astype(np.float32)), Constant(np.sin(turned).astype(np.float32))]


def int32(*values):
    return numbers(*values, kind=np.int32)


def group_query(name, batch, tokens, past):
    """Queries, keys and values apart, with rotary embedding, over caches that hold `past` tokens."""
    total = past + tokens
    query, key, cache = (batch, tokens, 4096), (batch, tokens, 1024), (batch, 8, past, 128)
    return case(name, "GroupQueryAttention", query, key, key, cache, cache, int32(*[total - 1] * batch),
                np.array(total, np.int32), *angles(4096, 64), domain=MS, outputs=3, do_rotary=1, **HEADS)


def nbits(name, rows, inner, outer, bits=4, block=32):
    return case(name, "MatMulNBits", (rows, inner), bytes_(outer, inner // block, block * bits // 8),
                scales(outer, inner // block), domain=MS, K=inner, N=outer, bits=bits, block_size=block)


def experts(name, rows, k=2):
    return case(name, "MoE", (rows, WIDTH), (rows, EXPERTS), Weights(EXPERTS, HIDDEN, WIDTH), Weights(EXPERTS, HIDDEN),
                Weights(EXPERTS, WIDTH, HIDDEN), Weights(EXPERTS, WIDTH), domain=MS, activation_type="gelu", k=k)


def packed_experts(name, rows, bits):
    per = 8 // bits
    return case(name, "QMoE", (rows, WIDTH), (rows, EXPERTS), bytes_(EXPERTS, HIDDEN, WIDTH // per),
                scales(EXPERTS, HIDDEN), None, bytes_(EXPERTS, WIDTH, HIDDEN // per), scales(EXPERTS, WIDTH), None,
                domain=MS, activation_type="gelu", k=2, expert_weight_bits=bits)


def boxes(count):
    corners = np.random.default_rng(3).uniform(0, 1, (1, count, 2)).astype(np.float32)
    sizes = np.random.default_rng(4).uniform(0.02, 0.1, (1, count, 2)).astype(np.float32)
    return np.concatenate([corners, corners + sizes], axis=-1)


def regions(count, most):
    corners = np.random.default_rng(3).uniform(0, most / 2, (count, 2)).astype(np.float32)
    sizes = np.random.default_rng(4).uniform(8, most / 2, (count, 2)).astype(np.float32)
    return np.concatenate([corners, corners + sizes], axis=-1)


CASES = dict([
    *[case(op.lower(), op, FLAT) for op in ("Cos", "Sign", "Selu", "Identity", "Dropout")],
    case("mod", "Mod", FLAT, FLAT, fmod=1),
    case("prelu", "PRelu", (8, 64, 112, 112), Weights(64, 1, 1)),
    case("equal", "Equal", FLAT, FLAT),
    case("and", "And", ints(*FLAT, most=2).astype(bool), ints(*FLAT, most=2).astype(bool)),
    case("sum_3", "Sum", FLAT, FLAT, FLAT),
    case("reduceprod_last", "ReduceProd", FLAT, numbers(-1)),
    case("reducemin_first", "ReduceMin", FLAT, numbers(0)),
    case("reducesumsquare_all", "ReduceSumSquare", FLAT),
    case("argmin_first", "ArgMin", FLAT, axis=0),
    case("globalmaxpool", "GlobalMaxPool", (8, 64, 112, 112)),
    case("maxpool_2x2_indices", "MaxPool", (8, 64, 112, 112), outputs=2, kernel_shape=[2, 2], strides=[2, 2]),
    case("rmsnorm", "RMSNormalization", (8, 512, 4096), Weights(4096), opset=23),
    case("rmsnorm_row", "RMSNormalization", (1, 1, 4096), Weights(4096), opset=23),
    case("groupnormalization", "GroupNormalization", (2, 320, 64, 64), Weights(320), Weights(320), num_groups=32,
         opset=21),
    case("attention_4d", "Attention", (2, 12, 512, 64), (2, 12, 512, 64), (2, 12, 512, 64), is_causal=1,
         opset=23),
    case("rotary_4d", "RotaryEmbedding", (2, 32, 512, 128), *angles(512, 64), ints(2, 512, most=512), opset=23),
    case("nonmaxsuppression", "NonMaxSuppression", boxes(8400), (1, 20, 8400), np.array(100),
         np.array([0.5], np.float32), np.array([0.3], np.float32)),
    case("roialign", "RoiAlign", (1, 256, 200, 200), regions(512, 200), ints(512, most=1), output_height=7,
         output_width=7, sampling_ratio=2),
    case("deformconv", "DeformConv", (2, 64, 56, 56), Weights(64, 64, 3, 3), (2, 18, 56, 56), pads=[1] * 4),
    case("dequantizelinear", "DequantizeLinear", ints(*FLAT, most=256, kind=np.uint8), scales(), Constant(
        np.array(3, np.uint8)), opset=21),
    case("dequantize_blocks", "DequantizeLinear", ints(4096, 4096, most=256, kind=np.uint8), scales(4096, 128), axis=1,
         block_size=32, opset=21),
    case("randomnormallike", "RandomNormalLike", FLAT),
    case("stft", "STFT", (16, 48000, 1), np.array(160), None, np.array(400)),
    case("scatternd_add", "ScatterND", (50000, 256), ints(8192, 1, most=50000), (8192, 256), reduction="add"),
    case("scatterelements_add", "ScatterElements", FLAT, ints(16, 1024, 256, most=1024), (16, 1024, 256), axis=2,
         reduction="add"),
    group_query("gqa_prompt_512", 1, 512, 0),
    group_query("gqa_prompt_2k", 1, 2048, 0),
    group_query("gqa_token_2k", 1, 1, 2047),
    group_query("gqa_8_tokens_2k", 8, 1, 2047),
    case("attention_projected", "Attention", TOKENS, Weights(768, 2304), Weights(2304), domain=MS, num_heads=12),
    case("packedattention", "PackedAttention", (4096, 768), Weights(768, 2304), Weights(2304),
         ints(8, 512, most=1, kind=np.int32) + np.arange(4096, dtype=np.int32).reshape(8, 512),
         np.arange(9, dtype=np.int32) * 512, domain=MS, num_heads=12),
    case("packedmultihead", "PackedMultiHeadAttention", (4096, 768), (4096, 768), (4096, 768), None,
         np.arange(4096, dtype=np.int32).reshape(8, 512), np.arange(9, dtype=np.int32) * 512, domain=MS, num_heads=12),
    case("multihead_bias", "MultiHeadAttention", TOKENS, TOKENS, TOKENS, None, None, (1, 12, 512, 512), domain=MS,
         num_heads=12),
    case("multihead_mask", "MultiHeadAttention", TOKENS, TOKENS, TOKENS, None,
         Constant(np.full(8, 400, np.int32)), domain=MS, num_heads=12),
    case("qattention", "QAttention", ints(8, 128, 768, most=99, kind=np.int8),
         Constant(ints(768, 2304, most=99, kind=np.int8)), Weights(2304), scales(), scales(), domain=MS, num_heads=12),
    case("longformer", "LongformerAttention", (2, 2048, 768), Weights(768, 2304), Weights(2304), (2, 2048),
         Weights(768, 2304), Weights(2304), Constant(np.eye(1, 2048, dtype=np.int32).repeat(2, 0)), domain=MS,
         num_heads=12, window=256),
    case("decodermasked", "DecoderMaskedMultiHeadAttention", (4, 1, 2048), (4, 1, 2048), (4, 1, 2048), None, None,
         (4, 32, 1024, 64), (4, 32, 1024, 64), int32(900), domain=MS, outputs=3, num_heads=32,
         past_present_share_buffer=1),
    case("linearattention", "LinearAttention", (2, 512, 1024), unit(2, 512, 8, 128), (2, 512, 1024), None,
         scales(2, 512, 8, least=-0.2, most=-0.01), scales(2, 512, 8, least=0, most=1), domain=MS, outputs=2,
         q_num_heads=8, kv_num_heads=8, update_rule="gated_delta"),
    case("causalconv", "CausalConvWithState", (2, 2048, 512), Weights(2048, 1, 4), Weights(2048), domain=MS, outputs=2,
         activation="silu"),
    *[nbits(f"nbits4_{rows}_rows", rows, 4096, 4096) for rows in (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048)],
    *[nbits(f"nbits4_{rows}x4096x14336", rows, 4096, 14336) for rows in (1, 8, 64)],
    *[nbits(f"nbits8_{rows}_rows", rows, 4096, 4096, 8) for rows in (1, 16, 512)],
    nbits("nbits2_1_row", 1, 4096, 4096, 2),
    nbits("nbits4_block128", 1, 4096, 4096, 4, 128),
    *[case(f"bnb4_{rows}_rows", "MatMulBnb4", (rows, 4096), bytes_(4096 * 4096 // 2), scales(4096 * 4096 // 64),
           domain=MS, K=4096, N=4096, block_size=64, quant_type=1) for rows in (1, 128)],
    case("gatherblock", "GatherBlockQuantized", bytes_(32000, 1024), ints(8, 512, most=32000), scales(32000, 64),
         domain=MS, bits=4, block_size=32, quantize_axis=1, gather_axis=0),
    experts("moe_1_row", 1), experts("moe_64_rows", 64), experts("moe_1k_rows", 1024),
    *[packed_experts(f"qmoe{bits}_{rows}_rows", rows, bits) for bits in (4, 8) for rows in (1, 64, 1024)],
    case("groupnorm_nhwc", "GroupNorm", IMAGE, scales(320), scales(320), domain=MS, activation=1, groups=32,
         channels_last=1, floats=[1, 2]),
    case("skipgroupnorm", "SkipGroupNorm", IMAGE, scales(320), scales(320), IMAGE, Weights(320), domain=MS, outputs=2,
         activation=1, groups=32, channels_last=1, floats=[1, 2]),
    case("nhwcconv", "NhwcConv", (8, 56, 56, 64), Weights(64, 3, 3, 64), Weights(64), domain=MS, kernel_shape=[3, 3],
         pads=[1] * 4),
    case("fusedconv", "FusedConv", (8, 64, 56, 56), Weights(64, 64, 3, 3), Weights(64), domain=MS, kernel_shape=[3, 3],
         pads=[1] * 4, activation="Relu"),
    case("fusedmatmul", "FusedMatMul", (96, 512, 64), (96, 512, 64), domain=MS, transB=1, alpha=0.125),
    case("biassplitgelu", "BiasSplitGelu", (2, 4096, 2560), Weights(2560), domain=MS),
    case("biasadd", "BiasAdd", (2, 4096, 320), Weights(320), (2, 4096, 320), domain=MS),
    case("biassoftmax", "BiasSoftmax", (8, 12, 512, 512), (8, 1, 1, 512), domain=MS, axis=3, is_inner_broadcast=0),
    case("biasdropout", "BiasDropout", TOKENS, Weights(768), TOKENS, domain=MS),
    case("embedlayernorm", "EmbedLayerNormalization", ints(8, 512, most=30522, kind=np.int32),
         ints(8, 512, most=2, kind=np.int32), Weights(30522, 768), Weights(512, 768), Weights(2, 768), Weights(768),
         Weights(768), domain=MS, outputs=2),
    case("skiprmsnorm", "SkipSimplifiedLayerNormalization", (8, 512, 4096), (8, 512, 4096), Weights(4096), domain=MS),
    case("rotary", "RotaryEmbedding", (1, 2048, 4096), ints(1, 2048, most=2048), *angles(2048, 64), domain=MS,
         num_heads=32),
    case("relativeposition", "RelativePositionBias", Weights(32, 12), np.array(512), np.array(512), domain=MS,
         max_distance=128),
    case("gatedrelative", "GatedRelativePositionBias", (8, 512, 768), Weights(768), (1, 12, 512, 512), Weights(64, 8),
         Weights(8), Weights(1, 12, 1, 1), domain=MS, num_heads=12),
    case("rfft", "Rfft", (64, 4096), domain=MS, signal_ndim=1, normalized=0, onesided=1),
    case("inverse", "Inverse", (256, 32, 32), domain=MS),
    case("ngramrepeat", "NGramRepeatBlock", ints(16, 512, most=50257), (16, 50257), domain=MS, ngram_size=3),
    case("removepadding", "RemovePadding", TOKENS, Constant(np.full(8, 400, np.int32)), domain=MS, outputs=4),
    case("qorderedmatmul", "QOrderedMatMul", ints(1024, 768, most=99, kind=np.int8), scales(),
         Constant(ints(768, 3072, most=99, kind=np.int8)), scales(), scales(), domain=MS, order_A=1, order_B=0,
         order_Y=1),
    case("dequantize_half", "DequantizeLinear", ints(*FLAT, most=256, kind=np.uint8), scales(), Constant(
        np.array(3, np.uint8)), domain=MS),
])
HALF_ONLY = {name for name, (op, *_) in CASES.items()
             if op in ("GroupQueryAttention", "QMoE")} | {"dequantize_half"}
FLOAT_ONLY = {"nonmaxsuppression", "ngramrepeat", "qorderedmatmul", "and"}
