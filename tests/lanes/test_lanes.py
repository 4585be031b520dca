# SPDX-License-Identifier: Apache-2.0
"""Kernels as a GPU runs them, on threads: the text is compiled as C++ with a stand-in for CUDA (cuda.h), and each lane
of a block is a thread. So exchanges between lanes, and paths that the emulated device has not, are tried without a GPU,
and the thread sanitizer sees what lacks a barrier.
"""

import subprocess
from pathlib import Path

import needs
import pytest

HERE = Path(__file__).resolve().parent
SRC = HERE.parents[1] / "src"
INCLUDES = [f"-I{SRC}", f"-I{SRC.parent / 'include'}"]
FLAGS = ["-std=c++17", "-O1", "-g", "-w", "-fpermissive", *INCLUDES, f"-I{HERE}", "-include", str(HERE / "cuda.h")]
C_FLAGS = ["-std=gnu11", "-O1", "-g", "-w", *INCLUDES]
# Of plans, where a program runs a kernel with the numbers that they give it.
PLANS = {
    "stem.cpp": ["op/linear/conv_stem_cut.c", "op/core/shape.c", "base/dtype.c", "base/escape.c", "base/status.c"],
    "excite.cpp": ["op/linear/squeeze_excite_cut.c"],
    "nbits_chain.cpp": ["op/quantize/nbits_chain_cut.c"],
}
# What writes the texts of fused kernels, and what some of them compute: its number, how inputs are read, terms.
WRITER = [*(f"op/fused/{name}.c" for name in ("expression", "expression_text", "function", "fused_row_source",
                                               "fused_source", "fused_writer", "row_pass", "stand_in")),
          "op/core/shape.c", "base/dtype.c", "base/escape.c", "base/status.c"]
WAYS = (
    (0, "wsr", "x0=T x1=T x2=T:row t0=mul(x0,x2) t1=add(t0,x1) t2=rowmax(t1) t3=sub(t1,t2) t4=exp(t3) t5=rowsum(t4) "
               "t6=div(t4,t5) -> t6 t2"),
    (0, "wvr", "x0=T x1=T x2=T:row t0=mul(x0,x2) t1=add(x1,t0) t2=rowmax(t1) t3=sub(t1,t2) t4=exp(t3) t5=rowsum(t4) "
               "t6=div(t4,t5) -> t6 t2"),
    (1, "wc", "x0=T x1=T t0=rowmean(x0) t1=sub(x0,t0) t2=mul(t1,t1) t3=rowmean(t2) t4=sqrt(t3) t5=div(t1,t4) "
              "t6=mul(t5,x1) t7=rowmin(t6) -> t6 t3 t7"),
)
# Kernels of packed weights: bits of a weight, rows, what is done before, type.
NBITS = (
    *(("mma", *each) for each in ((4, 1, 0, "f16"), (4, 4, 0, "bf16"), (4, 8, 0, "f16"), (8, 1, 0, "bf16"),
                                  (8, 4, 0, "f16"), (8, 8, 0, "bf16"), (4, 1, 1, "bf16"), (4, 1, 2, "f16"),
                                  (2, 1, 0, "f16"), (2, 1, 0, "bf16"))),
    *(("stream", *each) for each in ((4, 1, 0, "f16"), (4, 1, 1, "bf16"), (8, 1, 0, "bf16"), (8, 1, 1, "f16"))),
    *(("tile", *each) for each in ((4, 8, 0, "f16"), (4, 16, 0, "bf16"), (4, 64, 0, "f16"), (8, 8, 0, "bf16"),
                                   (8, 32, 0, "f16"), (4, 8, 0, "f32"), (4, 16, 0, "f32"), (8, 16, 0, "f32"))),
    *(("few", *each) for each in ((4, 1, 0, "f32"), (4, 4, 0, "f16"), (8, 4, 0, "f32"), (8, 1, 1, "f32"),
                                  (2, 1, 0, "f16"), (2, 4, 0, "bf16"))),
)
NBITS_KINDS = ("FEW", "STREAM", "TILE")  # which of the texts it is; else nbits_mma.cu
NBITS_SPLIT = {"nbits_split": "quantize/nbits_split.cu"}  # what makes the rows that a tile has of floats
# Products of some rows: rows and columns of a tile, whether B is stored turned, type.
ROWS_MMA = ((16, 32, 0, "f32"), (16, 32, 1, "bf16"), (32, 32, 0, "f16"), (32, 32, 1, "f32"), (32, 64, 0, "bf16"),
            (32, 64, 1, "f16"), (64, 48, 0, "f16"), (64, 48, 0, "f32"), (64, 48, 1, "f32"))
# Kernels of few rows: by tensor cores or not, rows, whether the right side is turned, what is done before, type.
ROWS = ((0, 1, 0, 0, "f32"), (0, 4, 0, 0, "f32"), (0, 1, 1, 0, "f32"), (0, 4, 1, 0, "f32"),
        (1, 8, 0, 0, "f16"), (1, 16, 0, 0, "bf16"), (1, 8, 1, 0, "bf16"), (1, 16, 1, 0, "f16"), (1, 8, 0, 1, "bf16"),
        (1, 8, 0, 2, "f16"))
# Products of bytes: rows and columns of a tile, chunks of a stage, rows and columns of a warp, bytes of a piece.
BYTES = ((128, 128, 1, 64, 32, 16), (128, 64, 1, 64, 32, 8), (64, 64, 2, 32, 32, 16), (64, 32, 4, 32, 32, 8),
         (32, 32, 8, 32, 32, 16))
# Attention whose scores are products: elements of a head, rows of a warp, type, whether there are masks.
DIRECT = ((64, 32, "f16", 0), (64, 16, "bf16", 0), (128, 32, "bf16", 0), (128, 16, "f16", 0), (64, 16, "f32", 0),
          (64, 16, "f16", 1), (80, 16, "bf16", 1), (64, 16, "f32", 1))
# The same by products of groups of warps.
GROUPS = ((48, 64, "f16", 0), (48, 128, "f16", 0), (64, 64, "f16", 0), (64, 128, "bf16", 0), (128, 64, "f16", 0),
          (128, 128, "bf16", 0), (64, 64, "f16", 1), (128, 64, "bf16", 1))
# Transforms of powers of two: whether real numbers are read (1) or made (2), bits of the complex length, type.
POWERS = (*((pairs, bits, "f32") for pairs in (0, 1, 2) for bits in (5, 6, 8, 9, 11, 12, 13)), (0, 7, "f32"),
          (1, 10, "f32"), (0, 10, "f64"), (1, 7, "f64"), (2, 12, "f64"))
# A program: its file, and for each text of a kernel beside the one that it includes the name; what is defined for all.
PROGRAMS = {
    "integer_32": ("integer.cpp", "integer_product", {}, ["K_TILE=32", "K_CONV=0"]),
    "integer_64": ("integer.cpp", "integer_product", {}, ["K_TILE=64", "K_CONV=0"]),
    "integer_conv_32": ("integer.cpp", "integer_product", {}, ["K_TILE=32", "K_CONV=1"]),
    "integer_conv_64": ("integer.cpp", "integer_product", {}, ["K_TILE=64", "K_CONV=1"]),
    **{f"compact_{word}": ("compact.cpp", "compact_count", {"compact_scan": "move/compact_scan.cu",
                                                            "compact_write": "move/compact_write.cu"}, [f"K_T0={word}"])
       for word in ("f32", "i64", "u8")},
    **{f"rows_{matrix}_{rows}_{turned}_{before}_{word}":
       ("rows.cpp", "few_rows", {}, [f"K_T0={word}", f"MATRIX={matrix}", f"K_ROWS={rows}", f"K_TURNED={turned}",
                                     f"K_BEFORE={before}"])
       for matrix, rows, turned, before, word in ROWS},
    **{f"attention_{word}": ("attention.cpp", "attention_mma", {},
                             [f"K_T0={word}", f"K_HEAD={head}", f"K_FLOAT={int(word == 'f32')}", "DIRECT=0",
                              "BY_GROUPS=0", "BY_TURNS=0"])
       for word, head in (("f32", 96), ("f16", 64), ("bf16", 32))},
    **{f"attention_{'masked' if masked else 'direct'}_{head}_{rows}_{word}":
       ("attention.cpp", "attention_direct", {}, [f"K_T0={word}", f"K_HEAD={head}", f"K_ROWS={rows}",
                                                  f"K_FLOAT={int(word == 'f32')}", f"K_MASKED={masked}", "DIRECT=1",
                                                  "BY_GROUPS=0", "BY_TURNS=0"])
       for head, rows, word, masked in DIRECT},
    **{f"attention_group_{'masked_' * masked}{head}_{rows}_{word}":
       ("attention.cpp", "attention_group", {}, [f"K_T0={word}", f"K_HEAD={head}", f"K_ROWS={rows}", "K_FLOAT=0",
                                                 f"K_MASKED={masked}", "K_BLOCKS=0", "DIRECT=0", "BY_GROUPS=1",
                                                 "BY_TURNS=0"])
       for head, rows, word, masked in GROUPS},
    **{f"attention_blocks_{head}_{word}":
       ("attention_blocks.cpp", "attention_group", {}, [f"K_T0={word}", f"K_HEAD={head}", f"K_ROWS={head}", "K_FLOAT=0",
                                                        "K_MASKED=0", "K_BLOCKS=1"])
       for head, word in ((64, "bf16"), (128, "f16"))},
    **{f"attention_turns_{head}_{word}":
       ("attention.cpp", "attention_turns", {}, [f"K_T0={word}", f"K_HEAD={head}", "K_FLOAT=0", "K_MASKED=0",
                                                 "DIRECT=0", "BY_GROUPS=1", "BY_TURNS=1"])
       for head, word in ((48, "bf16"), (64, "f16"))},
    **{f"decode_{how}{head}_{word}": ("decode.cpp", "attention_decode", {},
                                      [f"K_T0={word}", f"K_HEAD={head}", f"K_MASKED={int(how == 'masked_')}",
                                       f"K_FRESH={int(how == 'fresh_')}", "K_PAGES=0", "K_CODES=0"])
       for how, word, head in (("", "f16", 64), ("", "bf16", 80), ("", "f16", 128), ("", "bf16", 256),
                               ("masked_", "f16", 64), ("masked_", "bf16", 128), ("fresh_", "f16", 64),
                               ("fresh_", "bf16", 128))},
    **{f"decode_{how}_{head}_{word}": ("decode_pages.cpp", "attention_decode", {},
                                       [f"K_T0={word}", f"K_HEAD={head}", "K_MASKED=0", "K_FRESH=0", "K_PAGES=1",
                                        f"K_CODES={int(how == 'codes')}"])
       for how in ("pages", "codes") for head, word in ((64, "f16"), (128, "bf16"), (128, "f16"))},
    "quantized_group": ("quantized_group.cpp", "quantized_group", {}, ["K_T0=f32"]),
    **{f"recurrent_mma_{word}": ("recurrent.cpp", "recurrent_mma", {}, [f"K_T0={word}", "BY_STEPS=0"])
       for word in ("f32", "f16", "bf16")},
    **{f"recurrent_steps_{word}": ("recurrent.cpp", "recurrent_steps", {}, [f"K_T0={word}", "BY_STEPS=1"])
       for word in ("f64", "f16")},
    **{f"fft_power_{pairs}_{bits}_{word}":
       ("fft_power.cpp", "fft_power", {}, [f"K_T0={word}", f"K_PAIRS={pairs}", f"K_BITS={bits}", "K_ACROSS=0"])
       for pairs, bits, word in POWERS},
    **{f"fft_across_{bits}":
       ("fft_power.cpp", "fft_power", {}, ["K_T0=f32", "K_PAIRS=0", f"K_BITS={bits}", "K_ACROSS=1"])
       for bits in (5, 7, 8, 10, 11)},
    "norm_short": ("norm_short.cpp", "norm_short", {}, ["K_T0=f32"]),
    **{
        f"relu_{size}_{word}": ("relu.cpp", "relu_attention", {}, [f"K_T0={word}", f"K_SIZE={size}"])
        for size in (16, 32)
        for word in ("f32", "f16")
    },
    **{f"talking_{word}": ("talking.cpp", "talking_heads", {}, [f"K_T0={word}"]) for word in ("f32", "f16")},
    **{f"gated_bias_{word}": ("gated_bias.cpp", "gated_bias", {}, [f"K_T0={word}"]) for word in ("f32", "f16")},
    **{f"group_norm_{rows}_{word}": ("group_norm.cpp", "group_stats", {"group_apply": "rows/group_apply.cu"},
                                     [f"K_T0={word}", "K_T1=f32", f"K_ROWS={rows}"])
       for rows in ("edged", "packed") for word in ("f32", "f16")},
    **{f"fold_{how}_{word}": ("fold.cpp", "fold", {}, [f"K_T0={word}", f"K_HOW={how}"])
       for how, word in (("sum", "f32"), ("sum", "f16"), ("sum", "f64"), ("max", "u8"), ("min", "f16"))},
    **{f"topk_words_{word}": ("topk_words.cpp", "topk_words", {}, [f"K_T0={word}"]) for word in ("b8", "b16", "b32")},
    **{f"lp_norm_{rows}": ("lp_norm.cpp", "lp_norm", {}, ["K_T0=f32", f"K_ROWS={rows}"])
       for rows in ("edged", "packed")},
    **{f"pointwise_{word}": ("stream.cpp", "pointwise", {}, [f"K_T0={word}", "K_EXPRESSION=x+1", "K_OUT_BOOL=0"])
       for word in ("f32", "u8")},
    "nms": ("nms.cpp", "nms_pick", {}, ["K_T0=f32"]),
    **{f"strip_{word}": ("strip.cpp", "depthwise_strip", {}, [f"K_T0={word}"]) for word in ("f32", "f16")},
    **{f"line_{word}": ("line.cpp", "depthwise_line", {}, [f"K_T0={word}"]) for word in ("f32", "f16", "bf16")},
    **{f"planes_{size}_{stride}_{word}":
       ("planes.cpp", "depthwise_planes", {}, [f"K_T0={word}", f"K_SIZE={size}", f"K_STRIDE={stride}"])
       for size, stride, word in ((5, 1, "f16"), (3, 2, "bf16"), (3, 1, "f32"))},
    "power": ("power.cpp", "power", {}, ["K_T0=f32", "K_T1=f32"]),
    **{f"quantize_{word}": ("quantize.cpp", "quantize", {}, [f"K_T0={word}"]) for word in ("f32", "f16")},
    **{f"stem_{wide}_{word}": ("stem.cpp", "conv_stem", {}, [f"K_T0={word}", f"K_WIDE={wide}",
                                                             f"LANES_BF16={int(word == 'bf16')}"])
       for wide, word in ((32, "f32"), (32, "f16"), (64, "f16"), (64, "bf16"))},
    **{f"conv_groups_{wide}_{word}": ("conv_groups.cpp", "conv_groups", {}, [f"K_T0={word}", f"K_WIDE={wide}",
                                                                             f"LANES_BF16={int(word == 'bf16')}"])
       for wide, word in ((32, "f32"), (32, "f16"), (64, "bf16"))},
    **{f"integer_rows_{rows}_{columns}_{piece}":
       ("integer_rows.cpp", "integer_rows", {}, [f"K_ROWS={rows}", f"K_COLUMNS={columns}", f"K_SPLIT={split}",
                                                 f"K_WARP_ROWS={high}", f"K_WARP_COLUMNS={wide}", f"K_PIECE={piece}"])
       for rows, columns, split, high, wide, piece in BYTES},
    **{f"shuffle_end_{each}": ("shuffle_end.cpp", "shuffle_end", {}, ["K_T0=f32", f"K_EACH={each}"])
       for each in (2, 4)},
    **{f"excite_{word}": ("excite.cpp", "squeeze_excite", {}, [f"K_T0={word}"]) for word in ("f32", "f16")},
    **{f"rows_mma_{rows}_{columns}_{turned}_{word}":
       ("rows_mma.cpp", "rows_mma", {}, [f"K_T0={word}", f"K_ROWS={rows}", f"K_COLUMNS={columns}",
                                         f"K_TURNED={turned}", "BY_GROUPS=0", "BY_TILES=0"])
       for rows, columns, turned, word in ROWS_MMA},
    **{f"rows_wgmma_{columns}_{turned}_{word}":
       ("rows_mma.cpp", "rows_wgmma", {}, [f"K_T0={word}", "K_ROWS=64", f"K_COLUMNS={columns}", f"K_TURNED={turned}",
                                           "BY_GROUPS=1", "BY_TILES=0"])
       for columns, turned, word in ((32, 1, "f32"), (64, 1, "bf16"), (64, 0, "f16"))},
    **{f"tile_wgmma_{columns}_{word}":
       ("rows_mma.cpp", "tile_wgmma", {}, [f"K_T0={word}", "K_ROWS=128", f"K_COLUMNS={columns}", "K_TURNED=1",
                                           "BY_GROUPS=1", "BY_TILES=1"])
       for columns, word in ((96, "f16"), (128, "f32"), (192, "bf16"))},
    **{f"delta_ahead_{word}_{state}": ("delta.cpp", "delta_ahead", {}, [f"K_T0={word}", f"K_T1={state}", "TOKEN=0"])
       for word, state in (("f32", "f32"), ("f16", "f32"), ("bf16", "bf16"))},
    **{f"delta_token_{word}": ("delta.cpp", "delta_token", {}, [f"K_T0={word}", "K_T1=f32", "TOKEN=1"])
       for word in ("f32", "f16", "bf16")},
    **{f"moe_{rows}_{weights}_{groups}_{word}":
       ("moe.cpp", "moe_mma", {}, [f"K_T0={word}", f"K_ROWS={rows}", f"K_WEIGHTS={weights}", f"BY_GROUPS={groups}",
                                   f"PACKED={int(weights < 2)}", "PLACE=0", "TILES=0", "SOME=0"])
       for rows, weights, groups, word in ((32, 2, 0, "f32"), (128, 2, 0, "bf16"), (32, 2, 0, "bf16"),
                                           (32, 0, 0, "f16"), (128, 0, 0, "bf16"), (32, 1, 0, "f16"),
                                           (128, 2, 1, "f16"), (128, 0, 1, "f16"), (128, 1, 1, "bf16"))},
    **{f"moe_{rows}_int{bits}_{groups}_{word}":
       ("moe.cpp", "moe_mma", {}, [f"K_T0={word}", f"K_ROWS={rows}", "K_WEIGHTS=0", f"K_BITS={bits}",
                                   f"BY_GROUPS={groups}", "PACKED=1", "PLACE=0", "TILES=0", "SOME=0"])
       for rows, bits, groups, word in ((128, 4, 0, "f16"), (128, 4, 1, "bf16"), (128, 8, 1, "f16"))},
    **{f"moe_some_int{bits}_{word}":
       ("moe.cpp", "moe_some", {}, [f"K_T0={word}", "K_ROWS=32", "K_WEIGHTS=0", f"K_BITS={bits}", "BY_GROUPS=0",
                                    "PACKED=1", "PLACE=0", "TILES=0", "SOME=1"])
       for bits, word in ((4, "f16"), (4, "bf16"), (8, "f16"), (8, "bf16"))},
    **{f"moe_wgmma_int{bits}_{word}":
       ("moe.cpp", "moe_wgmma", {}, [f"K_T0={word}", "K_ROWS=128", "K_WEIGHTS=0", f"K_BITS={bits}", "BY_GROUPS=1",
                                     "PACKED=1", "PLACE=0", "TILES=1", "SOME=0"])
       for bits, word in ((4, "f16"), (4, "bf16"), (8, "f16"), (8, "bf16"))},
    "moe_wgmma_f16": ("moe.cpp", "moe_wgmma", {}, ["K_T0=f16", "K_ROWS=128", "K_WEIGHTS=2", "BY_GROUPS=1", "PACKED=0",
                                                   "PLACE=0", "TILES=1", "SOME=0"]),
    **{f"moe_few_in_{bits}_{dots}_{word}":
       ("moe_few.cpp", "moe_few_in", {}, [f"K_T0={word}", f"K_BITS={bits}", f"K_DOTS={dots}", "OUT=0"])
       for bits, dots, word in ((4, 1, "f16"), (4, 2, "bf16"), (8, 1, "f32"), (8, 2, "f16"))},
    **{f"moe_few_out_{bits}_{word}":
       ("moe_few.cpp", "moe_few_out", {}, [f"K_T0={word}", f"K_BITS={bits}", "OUT=1"])
       for bits, word in ((4, "f16"), (8, "bf16"), (4, "f32"))},
    "moe_place": ("moe.cpp", "moe_place", {}, ["K_T0=f32", "PLACE=1", "PACKED=0", "BY_GROUPS=0", "TILES=0",
                                            "SOME=0"]),
    **{f"peer_sum_{word}": ("peer_sum.cpp", "peer_sum", {}, [f"K_T0={word}"]) for word in ("f16", "f32", "f64")},
    **{f"nbits_{text}_{bits}_{rows}_{before}_{word}":
       ("nbits.cpp", f"nbits_{text}", NBITS_SPLIT if (text, word) == ("tile", "f32") else {},
        [f"K_T0={word}", f"K_BITS={bits}", f"K_ROWS={rows}", f"K_BEFORE={before}", "K_CODED=0",
         f"K_COLUMNS={1 if rows == 1 else 2}", *(f"{kind}={int(text == kind.lower())}" for kind in NBITS_KINDS)])
       for text, bits, rows, before, word in NBITS},
    **{f"nbits_chain_{bits}_{word}":
       ("nbits_chain.cpp", "nbits_chain", {}, [f"K_T0={word}", f"K_BITS={bits}"])
       for bits, word in ((4, "f16"), (4, "bf16"), (8, "f16"), (8, "bf16"))},
    **{f"nbits_few_{bits}_1x2_f32":
       ("nbits.cpp", "nbits_few", {}, ["K_T0=f32", f"K_BITS={bits}", "K_ROWS=1", "K_BEFORE=0", "K_CODED=0",
                                       "K_COLUMNS=2", *(f"{kind}={int(kind == 'FEW')}" for kind in NBITS_KINDS)])
       for bits in (4, 8)},
    **{f"codes_few_{rows}_f32":
       ("nbits.cpp", "nbits_few", {}, ["K_T0=f32", "K_BITS=4", f"K_ROWS={rows}", "K_BEFORE=0", "K_CODED=1",
                                       "K_COLUMNS=2", *(f"{kind}={int(kind == 'FEW')}" for kind in NBITS_KINDS)])
       for rows in (1, 4)},
    **{f"codes_mma_{rows}_{word}":
       ("nbits.cpp", "nbits_mma", {}, [f"K_T0={word}", "K_BITS=4", f"K_ROWS={rows}", "K_BEFORE=0", "K_CODED=1",
                                       *(f"{kind}=0" for kind in NBITS_KINDS)])
       for rows, word in ((1, "f16"), (8, "f16"), (1, "bf16"), (8, "bf16"))},
}


def made(target, command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return target


def compiled(folder, source, name, options):
    """The object of a text in which the kernel has that name."""
    target = folder / f"{Path(source).stem}-{name}.o"
    return made(target, [needs.program("g++"), *FLAGS, *options, f"-DK_NAME={name}", "-x", "c++", "-c", source, "-o",
                         target])


def run_linked(folder, objects, options):
    linked = folder / "program"
    subprocess.run([needs.program("g++"), *options, *objects, "-o", linked, "-lpthread"], check=True)
    done = subprocess.run([linked], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


def compiled_plan(folder, source, options):
    target = folder / f"plan-{Path(source).stem}.o"
    return made(target, [needs.program("gcc"), *C_FLAGS, *options, "-c", SRC / source, "-o", target])


@pytest.mark.parametrize("word", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("is_long", [0, 1])
@pytest.mark.parametrize("case", WAYS, ids=[f"{way}_{readings}" for way, readings, _ in WAYS])
def test_rows_of_fused_kernels(case, is_long, word, tmp_path):
    way, readings, terms = case
    writer = made(tmp_path / "writer", [needs.program("gcc"), *C_FLAGS, HERE / "fused_text_main.c",
                                        *(SRC / source for source in WRITER), "-o", tmp_path / "writer"])
    expression = f"row=1{':long' * is_long} {terms.replace('T', word)}"
    for name, more in (("text", []), ("table", ["table"])):
        written = subprocess.run([writer, readings, expression, *more], capture_output=True, text=True, check=True)
        (tmp_path / name).write_text(written.stdout)
    options = ["-fsanitize=thread", f"-DWAY={way}", f"-DLONG={is_long}", f'-DTEXT="{tmp_path / "text"}"',
               f'-DTABLE="{tmp_path / "table"}"']
    objects = [compiled(tmp_path, HERE / "fused_rows.cpp", "fused_rows", options),
               compiled(tmp_path, SRC / "kernel/fused/row_stand_in.cu", "row_stand_in",
                        [*options[:1], "-DK_T0=f32", "-DK_T1=i64"]),
               compiled(tmp_path, HERE / "lanes.cpp", "unused", options[:1])]
    run_linked(tmp_path, objects, options[:1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_lanes(program, tmp_path):
    source, name, others, defines = PROGRAMS[program]
    options = ["-fsanitize=thread", *(f"-D{define}" for define in defines)]
    objects = [compiled(tmp_path, HERE / source, name, options),
               compiled(tmp_path, HERE / "lanes.cpp", "unused", options)]
    objects += [compiled(tmp_path, SRC / "kernel" / text, other, options) for other, text in others.items()]
    objects += [compiled_plan(tmp_path, plan, options[:1]) for plan in PLANS.get(source, [])]
    run_linked(tmp_path, objects, options)
