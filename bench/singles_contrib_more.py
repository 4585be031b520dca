# SPDX-License-Identifier: Apache-2.0
"""Models of one operator each of com.microsoft, as singles.py has them: the operators that singles_contrib.py has not,
and other forms of those that it has. Heads are those of Llama-3-8B, layers those of BERT-base and Whisper, of hybrids
with linear attention and of sparse attention.
"""

import ml_dtypes
import numpy as np
from single_case import Constant, Weights, case, ints, numbers
from singles_contrib import FLAT, HEADS, MS, TOKENS, angles, bytes_, int32, scales

PAGE = 256  # tokens of a block of a cache
IN_PLACE = {"outputs": 3, "shared": ((1, 3), (2, 4))}  # caches are written where they are read
STREAMS, WIDE, IMAGE = (2, 512, 4, 2048), (8, 512, 4096), (8, 64, 56, 56)
E4M3 = ml_dtypes.float8_e4m3fn


def ms(name, op, *inputs, **more):
    """A case of com.microsoft; inputs that are left out at the end are not there."""
    while inputs[-1] is None:
        inputs = inputs[:-1]
    return case(name, op, *inputs, domain=MS, **more)


def one(value):
    return np.array(value, np.float32)


def signed(*shape):
    """Bytes around 0."""
    return ints(*shape, most=128, kind=np.int8) - np.int8(64)


def float8(*shape):
    """Few different values, since they are made one by one."""
    return Constant(np.resize(np.random.default_rng(3).uniform(-2, 2, 65521).astype(E4M3), shape))


def gains(*shape):
    return scales(*shape, least=0.5, most=2)


def starts(batch, rows):
    """Where each sequence of a packed batch begins."""
    return np.arange(batch + 1, dtype=np.int32) * np.int32(rows)


def three(*shape):
    """Queries, keys and values of one shape."""
    return [shape] * 3


def fresh(*tokens):
    """Queries, keys and values of Llama's heads."""
    return [(*tokens, 4096), (*tokens, 1024), (*tokens, 1024)]


def grouped(name, batch, rows, past, *, packed=False, cache=None, sink=None, norms=(None, None), **attributes):
    """GroupQueryAttention with rotary positions; `cache` is the past where it has codes; `packed`: in one input."""
    sides = [(batch, rows, 6144), None, None] if packed else fresh(batch, rows)
    step = None if cache is None else one([0.02])
    cache = (batch, 8, past, 128) if cache is None else cache
    return ms(name, "GroupQueryAttention", *sides, cache, cache, int32(*[past + rows - 1] * batch),
              np.array(past + rows, np.int32), *angles(4096, 64), None, None, sink, step, step, *norms, outputs=3,
              do_rotary=1, floats=[12, 13], **HEADS, **attributes)


def coded(name, cache, **attributes):
    return grouped(name, 1, 1, 2047, cache=cache, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", **attributes)


def pages(batch, rows, past):
    """The shape of caches in blocks; starts, pasts and blocks of the sequences."""
    most = -(-(rows + past) // PAGE)
    table = np.random.default_rng(6).permutation(batch * most).reshape(batch, most)
    return (batch * most, PAGE, 8, 128), [starts(batch, rows), int32(*[past] * batch), table.astype(np.int32)]


def paged(name, batch, rows, past, codes=None, **attributes):
    shape, places = pages(batch, rows, past)
    cache, step = (codes(*shape), one([0.02])) if codes else (shape, None)
    return ms(name, "PagedAttention", *fresh(batch * rows), cache, cache, *places, *angles(4096, 64), *[None] * 4,
              step, step, int32(rows, past + rows, past + rows), do_rotary=1, floats=[14, 15], **IN_PLACE, **HEADS,
              **attributes)


def chosen(batch, rows, past, most):
    """Of each token `most` of those before it and itself, in order; and how many they are."""
    random = np.random.default_rng(8)
    seen = np.tile(np.arange(past + 1, past + rows + 1), batch)
    counts = np.minimum(seen, most).astype(np.int32)
    places = np.full((len(seen), most), -1, np.int32)
    for row, known, count in zip(places, seen, counts, strict=True):
        row[:count] = np.sort(random.choice(known, count, replace=False))
    return [Constant(places), counts]


def sparse_paged(name, batch, rows, past, most):
    cache, places = pages(batch, rows, past)
    return ms(name, "SparsePagedAttention", *fresh(batch * rows), cache, cache, *places, None,
              *chosen(batch, rows, past, most), None, None, None, *angles(4096, 64), do_rotary=1, **IN_PLACE, **HEADS)


def dynamic_sparse(name, batch, rows, past, most):
    total = past + rows
    return ms(name, "DynamicSparseAttention", *fresh(batch, rows), *[(batch, 8, total, 128)] * 2, None, None,
              *chosen(batch, rows, past, most), int32(*[total - 1] * batch), int32(total), *angles(4096, 64), outputs=3,
              do_rotary=1, **HEADS)


def layouts(count, blocks, local=16, stride=8):
    """Which blocks each block of queries sees: its neighbours, and every stride-th; where the rows begin, columns."""
    row, column = np.indices((blocks, blocks))
    masks = [(column <= row) & ((row - column < local) | ((column + n + 1) % stride == 0)) for n in range(count)]
    begins = np.stack([np.cumsum([0, *mask.sum(1)]) for mask in masks]).astype(np.int32)
    columns = np.full((count, begins.max()), -1, np.int32)
    for line, mask in zip(columns, masks, strict=True):
        line[:mask.sum()] = np.nonzero(mask)[1]
    return [begins, columns]


def block_sparse(name, batch, rows, total, room=4096, block=64):
    return ms(name, "SparseAttention", *fresh(batch, rows), *[(batch, 8, room, 128)] * 2, *layouts(8, room // block),
              int32(total), int32(*[total] * batch), *angles(room, 64), do_rotary=1, sparse_block_size=block,
              **IN_PLACE, **HEADS)


def by_budget(name, batch, rows, past, heads=4, size=128):
    """An indexer that takes whole groups of tokens."""
    return ms(name, "SparseAttentionIndexer", (batch, rows, heads * size), (batch, rows, size), gains(size),
              gains(size), *angles(8192, 64), None, (batch, past, size), outputs=2, policy_mode="qsa",
              compress_ratio=16, token_budget=512)


def by_windows(lead, past, rows, heads=64, size=128, ratio=4):
    """What an indexer of windows reads, `past` of them being behind it: queries, keys, gains and angles; gates, weights
    and positions; the shape of tokens that wait for their window."""
    wait = ratio - 1 if past else 0
    positions = np.arange(past * ratio + wait, past * ratio + wait + rows)
    return ([(*lead, heads * size), (*lead, 2 * size), gains(size), gains(size), *angles(8192, 32)],
            [(*lead, 2 * size), Weights(ratio, 2 * size), (*lead, heads), np.resize(positions, lead)],
            (2 * ratio - 1, 2 * size))


def windows(name, rows, past, size=128):
    tokens, gates, (wait, wide) = by_windows((1, rows), past, rows)
    return ms(name, "SparseAttentionIndexer", *tokens, None, (1, past, size), *gates, None, (2, 1, wait, wide),
              outputs=3, policy_mode="csa", compress_ratio=4, index_topk=512)


def packed_windows(name, batch, rows, past, size=128, room=2048):
    tokens, gates, waiting = by_windows((batch * rows,), past, rows)
    lengths = int32(*[past, waiting[0] if past else 0] * batch).reshape(batch, 2)
    return ms(name, "PackedSparseAttentionIndexer", *tokens, starts(batch, rows), int32(*[gates[3][0]] * batch),
              *gates, (batch, room, size), *[(batch, *waiting)] * 2, lengths, outputs=6, policy_mode="csa",
              compress_ratio=4, index_topk=512, state_capacity=room)


def gated_delta(name, batch, rows, keys=16, values=32, size=128):
    """GatedDeltaNet of a packed batch as Qwen3-Next has it; decays, rates and states are floats."""
    tokens = batch * rows
    return ms(name, "GatedDeltaNet", (tokens, keys, size), (tokens, keys, size), (tokens, values, size),
              starts(batch, rows), (tokens, values), (tokens, values), (batch, values, size, size), scales(values),
              scales(values), outputs=2, floats=[4, 5, 6, 7, 8], qk_l2_norm=1, gate_activation="qwen",
              beta_activation="sigmoid")


def decoder(name, rows, *, across=0, past=0, batch=4):
    """DecoderAttention, tokens first, behind a past or across to 512 tokens."""
    cache = (batch, 12, past, 64) if past else None
    flags = [np.array(bool(flag)) for flag in (across, past, past, 0)]
    return ms(name, "DecoderAttention", (rows, batch, 768), (512, batch, 768), Weights(768, 768), Weights(768, 1536),
              Weights(2304), None, cache, cache, *flags, outputs=3, num_heads=12)


def ordered_side(width):
    return Constant(signed(768, width))


def padded(batch, rows, kept):
    """Places of the tokens that are kept, before those of padding."""
    places = np.arange(batch * rows, dtype=np.int32).reshape(batch, rows)
    return np.concatenate([places[:, :kept].ravel(), places[:, kept:].ravel()]).reshape(batch, rows)


CASES = dict([
    # Caches that grow, for decoders.
    *[paged(f"paged_prompt_{label}", 1, rows, 0) for label, rows in (("512", 512), ("2k", 2048))],
    *[paged(f"paged_{label}_2k", batch, 1, 2047) for label, batch in (("token", 1), ("8_tokens", 8))],
    paged("paged_8_tokens_window", 8, 1, 2047, local_window_size=1024),
    paged("paged_8_tokens_int8", 8, 1, 2047, signed, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR"),
    sparse_paged("sparsepaged_prompt", 1, 512, 0, 256), sparse_paged("sparsepaged_8_tokens", 8, 1, 2047, 512),
    dynamic_sparse("dynamicsparse_prompt", 1, 512, 0, 256), dynamic_sparse("dynamicsparse_8_tokens", 8, 1, 2047, 512),
    block_sparse("blocksparse_prompts", 2, 1024, 1024), block_sparse("blocksparse_2_tokens", 2, 1, 4096),
    by_budget("indexer_prompt", 1, 2048, 0), by_budget("indexer_8_tokens", 8, 1, 4095),
    windows("indexer_windows_prompt", 512, 1024), windows("indexer_windows_token", 1, 1024),
    packed_windows("packedindexer_prompts", 2, 256, 1024), packed_windows("packedindexer_8_tokens", 8, 1, 1024),
    *[grouped(f"gqa_packed_{label}", batch, rows, past, packed=True)
      for label, batch, rows, past in (("prompt_2k", 1, 2048, 0), ("8_tokens_2k", 8, 1, 2047))],
    *[grouped(f"gqa_{kind}_{label}", 1, rows, past, **more)
      for label, rows, past in (("prompt_2k", 2048, 0), ("token_2k", 1, 2047))
      for kind, more in (("window", {"local_window_size": 512}), ("softcap", {"softcap": 50.0}),
                         ("smooth", {"smooth_softmax": 1}), ("sink", {"sink": Weights(32)}),
                         ("normed", {"norms": (gains(128), gains(128))}))],
    coded("gqa_int8_token_2k", signed(1, 8, 2047, 128), kv_cache_bit_width=8),
    coded("gqa_int4_token_2k", ints(1, 8, 2047, 64, most=256, kind=np.uint8), kv_cache_bit_width=4),
    ms("decodermaskedself", "DecoderMaskedSelfAttention", (4, 1, 2048), Weights(2048, 6144), Weights(6144), None,
       (2, 4, 32, 1024, 64), None, int32(900), outputs=2, num_heads=32, past_present_share_buffer=1),
    decoder("decoderattention_token", 1, past=511), decoder("decoderattention_prompt", 128),
    decoder("decoderattention_cross", 128, across=1),
    # Attention of encoders: forms of its inputs.
    ms("mha_packed_qkv", "MultiHeadAttention", (8, 512, 12, 3, 64), num_heads=12),
    ms("mha_packed_kv", "MultiHeadAttention", TOKENS, (8, 512, 12, 2, 64), num_heads=12),
    ms("mha_qkv_bias", "MultiHeadAttention", *three(*TOKENS), Weights(2304), num_heads=12),
    ms("mha_padding", "MultiHeadAttention", *three(*TOKENS), None,
       Constant(np.tile(np.arange(512) < 400, (8, 1)).astype(np.int32)), num_heads=12),
    ms("mha_past_token", "MultiHeadAttention", *three(8, 1, 768), None, None, None, *[(8, 12, 511, 64)] * 2, outputs=3,
       num_heads=12),
    ms("mha_past_prompt", "MultiHeadAttention", *three(1, 128, 768), None, None, None, *[(1, 12, 384, 64)] * 2,
       outputs=3, num_heads=12, unidirectional=1),
    ms("mha_cross_128_to_1500", "MultiHeadAttention", (4, 128, 1024), *[(4, 1500, 1024)] * 2, num_heads=16),
    ms("mha_cross_cached", "MultiHeadAttention", (8, 1, 1024), *[(8, 16, 1500, 64)] * 2, num_heads=16),
    ms("restorepadding", "RestorePadding", (3200, 768), padded(8, 512, 400)),
    # Linear attention, gates, streams, hashes.
    gated_delta("gateddeltanet_prompt", 1, 1024), gated_delta("gateddeltanet_8_tokens", 8, 1),
    ms("linearattentiongate", "LinearAttentionGate", (8, 512, 32), scales(32), scales(32, least=-3, most=-0.1),
       (8, 512, 32), outputs=2, floats=[1, 2]),
    ms("varlencausalconv", "VarlenCausalConvWithState", (2048, 2048), Weights(2048, 1, 4), starts(4, 512),
       Weights(2048), (4, 2048, 3), outputs=2, activation="silu"),
    ms("branchwisermsnorm", "BranchwiseRMSNorm", STREAMS, Weights(4, 2048)),
    ms("gatedrmsnorm", "GatedRMSNorm", WIDE, Weights(128), WIDE, activation="silu"),
    ms("engramgate", "EngramGate", STREAMS, STREAMS, (2, 512, 2048), *[Weights(4, 2048)] * 3, outputs=2),
    ms("gatedadd", "GatedAdd", WIDE, WIDE, (8, 512, 1)),
    ms("scaledsilu", "ScaledSiLU", WIDE, alpha=1.702),
    ms("hyperpremix", "HyperConnectionPreMix", STREAMS, (2, 512, 4)),
    ms("hyperpostmix", "HyperConnectionPostMix", STREAMS, (2, 512, 2048), (2, 512, 4), (2, 512, 4, 4)),
    *[ms(name, op, ints(*shape, most=100000), numbers(1, 1000003, 20011), numbers(*range(100003, 100035, 2)), *more,
         outputs=2, max_ngram_size=3, n_head_per_ngram=8, pad_id=0)
      for name, op, shape, more in (("ngramhash", "NGramHashMapping", (8, 2048), ()),
                                    ("varlenngramhash", "VarlenNGramHashMapping", (16384,), [starts(8, 2048)]))],
    # Positions and norms.
    ms("mrotary", "MRotaryEmbedding", (1, 2048, 4096), ints(3, 1, 2048, most=2048), *angles(2048, 64), num_heads=32,
       mrope_section=[16, 24, 24]),
    ms("gemmarotary", "GemmaRotaryEmbedding", (1, 2048, 256), *[(1, 8, 2048, 256)] * 2, *[(1, 1, 2048, 256)] * 2,
       outputs=2, floats=[0]),
    case("simplifiedlayernorm", "SimplifiedLayerNormalization", WIDE, Weights(4096)),
    ms("skiplayernorm_bias", "SkipLayerNormalization", TOKENS, TOKENS, *[Weights(768)] * 3),
    ms("skiplayernorm_sum", "SkipLayerNormalization", TOKENS, TOKENS, *[Weights(768)] * 3, outputs=(0, 3)),
    ms("skiprmsnorm_sum", "SkipSimplifiedLayerNormalization", WIDE, WIDE, Weights(4096), outputs=(0, 3)),
    ms("skiprmsnorm_bias", "SkipSimplifiedLayerNormalization", WIDE, WIDE, *[Weights(4096)] * 2),
    ms("embedlayernorm_alone", "EmbedLayerNormalization", ints(8, 512, most=30522, kind=np.int32), None,
       Weights(30522, 768), Weights(512, 768), None, Weights(768), Weights(768), outputs=2),
    # Bytes from end to end, in rows.
    ms("qorderedattention", "QOrderedAttention", signed(8, 128, 768), one(1 / 32), *[one(0.03)] * 3,
       *[ordered_side(768)] * 3, *[one(0.001)] * 3, *[Weights(768)] * 3, one(0.5), one(1 / 127), one(0.03),
       num_heads=12, order_input=1, order_weight=0, order_output=1, qkv_hidden_sizes=[768] * 3),
    ms("qorderedlongformer", "QOrderedLongformerAttention", signed(2, 1024, 768), one(1 / 32), ordered_side(2304),
       one(0.001), Weights(2304), one(1), one(0.03), np.zeros((2, 1024), np.float16), ordered_side(2304), one(0.001),
       Weights(2304), one(0.03), Constant(np.eye(1, 1024, dtype=np.int32).repeat(2, 0)), one(0.01), num_heads=12,
       window=256, order_input=1, order_weight=0, order_global_weight=0, order_output=1),
    ms("qorderedlayernorm", "QOrderedLayerNormalization", signed(*TOKENS), one(0.03), Weights(768), Weights(768),
       one(0.002), floats=[1, 4], order_X=1, order_Y=1),
    ms("qorderedgelu", "QOrderedGelu", signed(*FLAT), one(0.03), one(0.02), order_X=1, order_Y=1),
    ms("quantizewithorder", "QuantizeWithOrder", FLAT, one(0.03), floats=[1], order_input=1, order_output=1),
    *[ms(f"dequantizewithorder_to_{label}", "DequantizeWithOrder", signed(*FLAT), one(0.03), floats=[1], order_input=1,
         order_output=1, to=to) for label, to in (("float", 1), ("half", 10))],
    ms("quantize_half", "QuantizeLinear", FLAT, one(0.03), Constant(np.array(3, np.uint8))),
    # Weights in codes.
    *[ms(f"matmulfp4_{rows}_rows", "MatMulBlockQuantizedFp4Weight", (rows, 4096), bytes_(4096, 2048),
         Constant(gains(4096, 256).value.astype(E4M3).view(np.uint8)), one(0.01), floats=[3])
      for rows in (1, 16, 512)],
    *[ms(f"matmulfp8_{rows}_rows", "MatMulBlockQuantizedFp8Weight", (rows, 4096), float8(4096, 4096), scales(4096, 32),
         floats=[2]) for rows in (1, 16, 512)],
    ms("gemmfloat8", "GemmFloat8", float8(1024, 4096), float8(4096, 4096), (1024, 4096), one(0.1), one(0.1),
       floats=[3, 4], transB=1, beta=1.0, dtype=10),
    ms("gemmfloat8_of_halves", "GemmFloat8", (1024, 4096), Weights(4096, 4096), transB=1, dtype=10),
    # What is as in ai.onnx, or nearly so; spectra, windows, paths.
    ms("gelu_ms", "Gelu", FLAT),
    ms("trilu_ms", "Trilu", FLAT, np.array(1), upper=0),
    ms("gridsample_ms", "GridSample", (8, 32, 112, 112), (8, 112, 112, 2)),
    ms("bitmaskdropout", "BitmaskDropout", FLAT, outputs=2),
    ms("bitmaskbiasdropout", "BitmaskBiasDropout", TOKENS, Weights(768), TOKENS, outputs=2),
    ms("transposematmul", "TransposeMatMul", (96, 512, 64), (96, 512, 64), transB=1, alpha=0.125),
    ms("fusedmatmul_batches", "FusedMatMul", *[(512, 96, 64)] * 2, transBatchA=1, transBatchB=1, transB=1, alpha=0.125),
    ms("fusedmatmul_left", "FusedMatMul", (1024, 2048), Weights(1024, 4096), transA=1),
    ms("convtranspose_pads", "ConvTransposeWithDynamicPads", IMAGE, Weights(64, 64, 4, 4), numbers(1, 1, 1, 1),
       Weights(64), strides=[2, 2]),
    ms("complexmul", "ComplexMul", (16, 512, 1024, 2), (16, 512, 1024, 2)),
    ms("complexmulconj", "ComplexMulConj", (16, 512, 1024, 2), (512, 1024, 2)),
    ms("rfft_2d", "Rfft", (16, 256, 256), signal_ndim=2, normalized=0, onesided=1),
    ms("irfft", "Irfft", (64, 2049, 2), signal_ndim=1, normalized=0, onesided=1),
    ms("irfft_2d", "Irfft", (16, 256, 129, 2), signal_ndim=2, normalized=0, onesided=1),
    ms("unfoldtensor", "UnfoldTensor", (16, 48000), size=400, step=160),
    ms("dynamictimewarping", "DynamicTimeWarping", (448, 1500)),
])
HALVES = ("PagedAttention", "SparsePagedAttention", "SparseAttention", "GroupQueryAttention", "GemmFloat8",
          "MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", "GemmaRotaryEmbedding", "QuantizeLinear")
FLOATS = ("NGramHashMapping", "VarlenNGramHashMapping", "QOrderedAttention", "QOrderedLongformerAttention",
          "QOrderedGelu", "GridSample", "ConvTransposeWithDynamicPads", "DynamicTimeWarping")
HALF_ONLY = {name for name, (op, *_) in CASES.items() if op in HALVES} | {"dequantizewithorder_to_half"}
FLOAT_ONLY = {name for name, (op, *_) in CASES.items() if op in FLOATS} | {"dequantizewithorder_to_float"}
