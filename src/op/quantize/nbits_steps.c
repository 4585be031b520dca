/* nbits_steps.c - products with packed weights as steps of any operator's plan.
 *
 * With few rows the weights are read as they are, which is what such a product waits for. With more
 * they are written out as numbers for library math. Weights that are not integers are codes: places
 * in a table of values, which lies among the device's tables.
 * Kernels: quantize/nbits_few.cu, quantize/nbits_mma.cu, quantize/nbits_rows.cu,
 * quantize/nbits_split.cu, quantize/nbits_stream.cu, quantize/nbits_tile.cu,
 * quantize/nbits_unpack.cu, quantize/nbits_unpack_flat.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/nbits_steps.h"

#include "kernel/core/index_args.h"
#include "op/core/upload_steps.h"
#include "op/pointwise/gated_steps.h"
#include "op/pointwise/narrow.h"
#include "op/quantize/nbits_cut.h"
#include "op/quantize/nbits_stream_cut.h"

/* Beyond so many rows weights are written out for the library. Measured on an H100, of 4,096 x
 * 4,096 codes, us: eight rows of floats 58, and 72 that way; five of halves 52, and 49. */
enum { ROWS_MAX = 8, HALF_ROWS_MAX = 4 };
enum { LANES = 128, GROUP_LANES = 32, CODES_MAX = 256, STAGED_MAX = 72 << 10 };

/* ---- what the weights are ---- */

mp_status mp_packed_block(k_nbits *w, int64_t block) {
    const bool one = block >= w->k;
    if (block < 1 || (!one && block % K_NBITS_PIECE != 0)) {
        return MP_FAIL(UNSUPPORTED,
                       "blocks of %lld of %lld weights; multiples of %d are supported, and one for "
                       "all",
                       (long long)block, (long long)w->k, K_NBITS_PIECE);
    }
    w->block = block;
    w->blocks = MP_CEIL_DIV(w->k, block);
    w->block_shift = -1;
    for (int shift = 0; shift < 63; shift++) {
        w->block_shift = (int64_t)1 << shift == block ? shift : w->block_shift;
    }
    return MP_OK;
}

mp_status mp_packed_integers(k_nbits *w, mp_dtype type, int64_t bits, int64_t block) {
    if (bits != 2 && bits != 4 && bits != 8) {
        return MP_FAIL(UNSUPPORTED, "weights of %lld bits; 2, 4 and 8 are supported",
                       (long long)bits);
    }
    if (block < 16 || block > 1 << 20 || (block & (block - 1)) != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "block_size is %lld; it is a power of two from 16 on",
                       (long long)block);
    }
    MP_TRY(mp_packed_block(w, block));
    w->bits = (int32_t)bits;
    w->middle = 1 << (bits - 1);
    w->scale_type = mp_scale_word(type);
    w->weight_row = w->blocks * (block * bits / 8);
    w->zero_row = (w->blocks * bits + 7) / 8;
    return MP_OK;
}

mp_status mp_packed_codes(mp_planner *p, mp_packed *packed, const float *values, int count) {
    uint64_t words[CODES_MAX / 2];
    memcpy(words, values, (size_t)count * sizeof *values);
    return mp_plan_upload(p, words, count / 2, &packed->values);
}

mp_status mp_packed_codes_of(mp_planner *p, mp_packed *packed, mp_dtype narrow) {
    const int count = 1 << mp_dtype_bits(narrow);
    float values[CODES_MAX];
    for (int code = 0; code < count; code++) {
        values[code] = mp_narrow_value(narrow, (uint32_t)code);
    }
    return mp_packed_codes(p, packed, values, count);
}

mp_status mp_packed_count(const mp_planner *p, int i, const char *what, int64_t columns,
                          int64_t each) {
    const mp_tensor *tensor = i >= 0 ? mp_plan_in(p, i) : NULL;
    int64_t want = 0;
    char text[MP_SHAPE_TEXT];
    return tensor == NULL || (!__builtin_mul_overflow(columns, each, &want) &&
                              mp_shape_count(&tensor->shape) == want)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s do not fit %lld times %lld values", what,
                         mp_shape_text(&tensor->shape, text), (long long)columns, (long long)each);
}

/* ---- the work ---- */

static bool are_codes(const mp_packed *packed) {
    return packed->values.place != MP_PLACE_NONE;
}

static const mp_before nothing; /* all of it MP_NOWHERE */

static mp_status launch_with(mp_planner *p, const mp_packed *packed, const mp_kernel *kernel,
                             mp_grid grid, const mp_nbits_args *args, mp_ref a,
                             const mp_before *before, mp_ref bias, mp_ref out) {
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_nbits_args, a, a),
                     MP_BIND(mp_nbits_args, bias, bias),
                     MP_BIND(mp_nbits_args, w.weight, packed->weight),
                     MP_BIND(mp_nbits_args, w.scale, packed->scale),
                     MP_BIND(mp_nbits_args, w.zero, packed->zero),
                     MP_BIND(mp_nbits_args, w.group, packed->group),
                     MP_BIND(mp_nbits_args, w.values, packed->values),
                     MP_BIND(mp_nbits_args, w.factor, packed->factor),
                     MP_BIND(mp_nbits_args, out, out), MP_BEFORE_BINDS(mp_nbits_args, before));
}

static mp_status launch(mp_planner *p, const mp_packed *packed, const char *word, mp_grid grid,
                        const mp_nbits_args *args, mp_ref a, mp_ref bias, mp_ref out) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "%s_%s_%s", are_codes(packed) ? "codes" : "nbits", word,
                          mp_dtype_word(packed->type)));
    return launch_with(p, packed, kernel, grid, args, a, &nothing, bias, out);
}

static mp_nbits_args args_of(const mp_planner *p, const mp_packed *packed, int64_t m) {
    mp_nbits_args args = {.m = m, .w = packed->w};
    args.w.aligned = p->align >= 16 && packed->w.k % K_NBITS_PIECE == 0;
    return args;
}

static mp_nbits_work work_of(const mp_packed *packed, int64_t m) {
    return (mp_nbits_work){.m = m,
                           .n = packed->w.n,
                           .k = packed->w.k,
                           .bits = packed->w.bits,
                           .size = (int)mp_dtype_size(packed->type),
                           .zeros = packed->zero.place != MP_PLACE_NONE,
                           .gated = packed->gated};
}

/* Whether scales are of A's type, one for each block of a column, and zero points packed likewise.
 */
static bool has_simple_blocks(const mp_packed *packed, const mp_nbits_args *args) {
    const k_nbits *w = &args->w;
    return w->aligned && packed->group.place == MP_PLACE_NONE && w->block_shift >= 0 &&
           w->side <= 1 && !w->zero_across && w->scale_type == mp_scale_word(packed->type) &&
           packed->factor.place == MP_PLACE_NONE &&
           (packed->zero.place == MP_PLACE_NONE || w->zero_packed);
}

/* The same, and weights integers. */
static bool is_simple(const mp_packed *packed, const mp_nbits_args *args) {
    return has_simple_blocks(packed, args) && !args->w.swapped && !are_codes(packed);
}

/* Whether weights are a half or a whole byte, for which there are more kernels. */
static bool is_wide(const k_nbits *w) {
    return w->bits == 4 || w->bits == 8;
}

/* Whether rows follow one another without gaps, so that all of them are one. */
static bool is_flat(const mp_packed *packed, const mp_nbits_args *args) {
    const k_nbits *w = &args->w;
    const bool has_kernel = are_codes(packed) ? w->bits == 4 : is_wide(w) && !w->swapped;
    return has_simple_blocks(packed, args) && has_kernel && w->blocks * w->block == w->k &&
           w->weight_row * 8 == w->k * w->bits &&
           (packed->zero.place == MP_PLACE_NONE || w->blocks * w->bits == w->zero_row * 8);
}

static mp_status unpack_flat(mp_planner *p, const mp_packed *packed, const mp_nbits_args *given,
                             mp_ref out) {
    const int64_t each = 16 / (int64_t)mp_dtype_size(packed->type); /* of what a lane writes */
    const int bits = (int)given->w.bits;
    mp_nbits_args args = *given;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "%s_unpack_%d_%s", are_codes(packed) ? "codes" : "nbits",
                          bits, mp_dtype_word(packed->type)));
    args.w.k *= args.w.n; /* which is what numbers there is memory for */
    mp_grid grid = mp_plan_grid_stream(p, args.w.k / each, 1, K_STREAM_AHEAD);
    if (are_codes(packed)) { /* blocks stay, since each makes its tables */
        enum { TURNS = 16 };
        grid.blocks = MP_MIN(grid.blocks, (uint32_t)p->device->info.multiprocessors * TURNS);
        grid.shared_bytes = (uint32_t)(K_NBITS_TABLES << bits) * (uint32_t)sizeof(float);
    }
    return launch_with(p, packed, kernel, grid, &args, MP_NOWHERE, &nothing, MP_NOWHERE, out);
}

mp_status mp_plan_unpack(mp_planner *p, const mp_packed *packed, mp_ref out) {
    const mp_nbits_args args = args_of(p, packed, 0);
    if (is_flat(packed, &args)) {
        return unpack_flat(p, packed, &args, out);
    }
    const int64_t pieces = MP_CEIL_DIV(args.w.k, K_NBITS_PIECE);
    return launch(p, packed, "unpack", mp_plan_grid(p, args.w.n * pieces, 1), &args, MP_NOWHERE,
                  MP_NOWHERE, out);
}

static mp_status by_library(mp_planner *p, const mp_packed *packed, mp_ref a, int64_t m,
                            mp_ref bias, mp_ref out) {
    const k_nbits *w = &packed->w;
    const mp_shape shape = {.rank = 2, .dim = {w->n, w->k}};
    mp_ref numbers;
    MP_TRY(mp_plan_scratch_shape(p, &shape, packed->type, &numbers));
    MP_TRY(mp_plan_unpack(p, packed, numbers));
    const mp_gemm gemm = {.type = packed->type,
                          .trans_b = true,
                          .tf32 = p->node->options.tf32,
                          .bias = bias.place != MP_PLACE_NONE,
                          .m = m,
                          .n = w->n,
                          .k = w->k,
                          .lda = w->k,
                          .ldb = w->k,
                          .ldc = w->n,
                          .batch = 1,
                          .alpha = 1,
                          .align = p->align};
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = a, [MP_GEMM_B] = numbers, [MP_GEMM_C] = out, [MP_GEMM_BIAS] = bias};
    return mp_plan_gemm(p, &gemm, operands);
}

/* ---- the fewest rows ---- */

/* Of shared memory, for the rows of A with a gap of 16 bytes behind each chunk, and for tables. */
static int64_t staged_bytes(const mp_packed *packed, int64_t m) {
    const int64_t chunk = K_NBITS_CHUNK * (int64_t)mp_dtype_size(packed->type) + 16;
    const int64_t chunks = MP_CEIL_DIV(packed->w.k, K_NBITS_CHUNK);
    const int64_t tables = are_codes(packed) ? K_NBITS_FEW_TABLES : 0;
    return chunks <= STAGED_MAX ? (m == 1 ? 1 : K_NBITS_ROWS) * chunks * chunk + tables : INT64_MAX;
}

/* Whether chunks lie within blocks. */
static bool is_plain(const mp_packed *packed, const mp_nbits_args *args) {
    return is_simple(packed, args) && args->w.block % K_NBITS_CHUNK == 0;
}

/* Whether there are codes for which the kernel looks them up. */
static bool are_few_codes(const mp_packed *packed, const mp_nbits_args *args) {
    const k_nbits *w = &args->w;
    return are_codes(packed) && packed->type == MP_F32 && w->bits == 4 && w->swapped &&
           has_simple_blocks(packed, args) && packed->zero.place == MP_PLACE_NONE &&
           w->block % K_NBITS_CHUNK == 0;
}

static bool is_few(const mp_planner *p, const mp_packed *packed, const mp_nbits_args *args) {
    const int64_t room = MP_MIN((int64_t)p->device->info.shared_bytes_max, STAGED_MAX);
    return (is_plain(packed, args) || are_few_codes(packed, args)) && args->m <= K_NBITS_ROWS &&
           staged_bytes(packed, args->m) <= room;
}

static bool are_constants(const mp_planner *p, const mp_packed *packed) {
    return mp_plan_is_constant(p, packed->weight) && mp_plan_is_constant(p, packed->scale) &&
           mp_plan_is_constant(p, packed->zero);
}

/* Columns that a group of lanes works on: two share what is read of a row, which of floats is as
 * much work as their weights, where there are groups enough all the same. */
static int few_columns(const mp_planner *p, const mp_packed *packed, int rows, bool made) {
    enum { LANES_ENOUGH = 384 };
    const k_nbits *w = &packed->w;
    if (rows > 1 || are_codes(packed)) {
        return 2;
    }
    return packed->type == MP_F32 && is_wide(w) && !made &&
                   w->n / 2 * GROUP_LANES >= (int64_t)p->device->info.multiprocessors * LANES_ENOUGH
               ? 2
               : 1;
}

/* Lanes that share a column: fewer than a warp where all of it is on its way at once with fewer,
 * and there are enough groups all the same. Lanes of different groups read the same of A. */
static int32_t few_width(const mp_planner *p, const k_nbits *w, int rows, int columns) {
    enum { LEAST = 8, LANES_ENOUGH = 512 };
    const int64_t groups = MP_CEIL_DIV(w->n, columns);
    const int64_t chunks = MP_CEIL_DIV(w->k, K_NBITS_CHUNK);
    int32_t width = GROUP_LANES;
    while (width > LEAST && chunks <= (int64_t)width / 2 * K_NBITS_FEW_AHEAD(w->bits, rows) &&
           groups * width / 2 >= (int64_t)p->device->info.multiprocessors * LANES_ENOUGH) {
        width /= 2;
    }
    return width;
}

static mp_status by_chunks(mp_planner *p, const mp_packed *packed, const mp_nbits_args *given,
                           mp_ref a, const mp_before *before, mp_ref bias, mp_ref out) {
    const int rows = given->m == 1 ? 1 : K_NBITS_ROWS;
    mp_nbits_args args = *given;
    args.constant = are_constants(p, packed);
    const int columns = few_columns(p, packed, rows, before != NULL);
    args.width = few_width(p, &args.w, rows, columns);
    const int64_t blocks = MP_CEIL_DIV(args.w.n, (int64_t)columns * (K_NBITS_LANES / args.width));
    mp_grid grid = mp_plan_grid_rows(p, blocks, K_NBITS_LANES);
    grid.shared_bytes = (uint32_t)staged_bytes(packed, args.m);
    const char *word = mp_dtype_word(packed->type);
    const mp_kernel *kernel = NULL;
    if (before != NULL) {
        args.before = before->args;
        MP_TRY(mp_plan_kernel(p, &kernel, "nbits_%s_%d_%s", mp_before_word(before),
                              (int)args.w.bits, word));
    } else {
        before = &nothing;
        MP_TRY(mp_plan_kernel(p, &kernel, "%s_few_%d_%dx%d_%s",
                              are_codes(packed) ? "codes" : "nbits", (int)args.w.bits, rows,
                              columns, word));
    }
    return launch_with(p, packed, kernel, grid, &args, a, before, bias, out);
}

/* A few at a time. */
static mp_status by_turns(mp_planner *p, const mp_packed *packed, mp_ref a, int64_t m, mp_ref bias,
                          mp_ref out) {
    const uint64_t size = mp_dtype_size(packed->type);
    for (int64_t row = 0; row < m; row += K_NBITS_ROWS) {
        const mp_nbits_args args = args_of(p, packed, MP_MIN(m - row, (int64_t)K_NBITS_ROWS));
        MP_TRY(by_chunks(p, packed, &args, mp_ref_at(a, (uint64_t)(row * args.w.k) * size), NULL,
                         bias, mp_ref_at(out, (uint64_t)(row * args.w.n) * size)));
    }
    return MP_OK;
}

/* ---- few rows by tensor cores ---- */

enum {
    MMA_ARCH = 80,
    MMA_MOST = 1 << 24, /* columns and rows of weights: a block's places are numbers of 32 bits */
    MMA_FIXED = 1 << 10 /* shared memory that the kernel has beside */
};

/* How far columns of so many bytes lie apart in shared memory: a multiple of the banks would have
 * them all in the same ones. */
static int64_t mma_pitch(int64_t bytes) {
    return bytes % 16 == 0 ? bytes + 16 : bytes;
}

/* Which of the kernel's instances takes so many rows. */
static int mma_rows(const mp_packed *packed, int64_t m) {
    return m == 1 ? 1 : m <= 4 && !are_codes(packed) ? 4 : K_NBITS_MMA_ROWS;
}

/* Of a block: those without a stage would take the room of other blocks. */
static int64_t mma_warps(const mp_packed *packed, int64_t m) {
    const int64_t stages = MP_CEIL_DIV(packed->w.k, K_NBITS_CHUNK * K_NBITS_MMA_CHUNKS);
    const bool few =
        stages <= K_NBITS_MMA_FEW && !are_codes(packed) && mma_rows(packed, m) < K_NBITS_MMA_ROWS;
    return few ? K_NBITS_MMA_FEW : K_NBITS_MMA_WARPS;
}

/* What lies where, one behind the other. False: it is too much. */
static bool mma_lay_out(const mp_planner *p, const mp_packed *packed, bool made,
                        mp_nbits_args *args) {
    const k_nbits *w = &packed->w;
    const int rows = mma_rows(packed, args->m);
    const int64_t size = (int64_t)mp_dtype_size(packed->type);
    const int64_t columns = K_NBITS_MMA_COLUMNS(w->bits, rows);
    const int64_t stages = MP_CEIL_DIV(w->k, K_NBITS_CHUNK * K_NBITS_MMA_CHUNKS);
    const int64_t warps = mma_warps(packed, args->m), each = MP_CEIL_DIV(stages, warps);
    const int64_t ahead = MP_MIN(each, K_NBITS_MMA_AHEAD(w->bits, rows));
    const int64_t scale = mma_pitch(w->blocks * size), zero = mma_pitch(w->zero_row);
    const int64_t scale_at = ahead * warps * K_NBITS_MMA_STAGE(w->bits, rows);
    const int64_t zero_at = scale_at + MP_CEIL_DIV(columns * scale, 16) * 16;
    const bool zeros = packed->zero.place != MP_PLACE_NONE; /* read up to the end of a stage */
    const int64_t row_at = zero_at + (zeros ? MP_CEIL_DIV(columns * zero, 16) * 16 + 16 : 0);
    const int64_t table_at = row_at + (made ? w->k * size : 0);
    const int64_t bytes = table_at + (are_codes(packed) ? K_NBITS_MMA_TABLES : 0);
    args->shared = (k_nbits_shared){.bytes = (int32_t)bytes,
                                    .stages = (int32_t)ahead,
                                    .scale = (int32_t)scale_at,
                                    .zero = (int32_t)zero_at,
                                    .row = (int32_t)row_at,
                                    .scale_pitch = (int32_t)scale,
                                    .zero_pitch = (int32_t)zero,
                                    .sums = (int32_t)table_at};
    return bytes <= (int64_t)p->device->info.shared_bytes_max - MMA_FIXED;
}

/* Whether the kernel is for such weights: integers, of 2 bits only where one row is given and
 * pieces of 16 bytes end with it; or codes of 4 bits. */
static bool suits_mma(const mp_packed *packed, bool made, const mp_nbits_args *args) {
    const k_nbits *w = &packed->w;
    if (are_codes(packed)) {
        return w->bits == 4 && !made && has_simple_blocks(packed, args) &&
               packed->zero.place == MP_PLACE_NONE && w->block % K_NBITS_CHUNK == 0;
    }
    return is_plain(packed, args) &&
           (is_wide(w) || (w->bits == 2 && !made && args->m == 1 && w->weight_row % 16 == 0));
}

/* Whether the kernel is for this; sets what `args` says of shared memory. */
static bool is_mma(const mp_planner *p, const mp_packed *packed, bool made, mp_nbits_args *args) {
    const k_nbits *w = &packed->w;
    return p->device->info.arch >= MMA_ARCH &&
           (packed->type == MP_F16 || packed->type == MP_BF16) && suits_mma(packed, made, args) &&
           args->m <= K_NBITS_MMA_ROWS && w->k <= MMA_MOST && w->n <= MMA_MOST &&
           mma_lay_out(p, packed, made, args);
}

/* Those that is_mma() has found right. */
static mp_status by_mma(mp_planner *p, const mp_packed *packed, mp_nbits_args *args, mp_ref a,
                        const mp_before *before, mp_ref bias, mp_ref out) {
    const int rows = mma_rows(packed, args->m), bits = args->w.bits;
    const int64_t blocks = MP_CEIL_DIV(args->w.n, K_NBITS_MMA_COLUMNS(bits, rows));
    const char *word = mp_dtype_word(packed->type);
    const mp_kernel *kernel = NULL;
    mp_grid grid = mp_plan_grid_rows(p, blocks, (uint32_t)mma_warps(packed, args->m) * 32);
    grid.shared_bytes = (uint32_t)args->shared.bytes;
    args->constant = are_constants(p, packed);
    if (before != NULL) {
        args->before = before->args;
        MP_TRY(
            mp_plan_kernel(p, &kernel, "nbits_mma_%s_%d_%s", mp_before_word(before), bits, word));
    } else {
        before = &nothing;
        MP_TRY(mp_plan_kernel(p, &kernel, "%s_mma_%d_%d_%s", are_codes(packed) ? "codes" : "nbits",
                              bits, rows, word));
    }
    return launch_with(p, packed, kernel, grid, args, a, before, bias, out);
}

/* ---- one row and many weights ---- */

/* `made`: the kernel makes its row itself. */
static bool is_stream(const mp_planner *p, const mp_packed *packed, const mp_nbits_args *args,
                      bool made, mp_nbits_stream_cut *cut) {
    const mp_nbits_work work = work_of(packed, args->m);
    return (packed->type == MP_F16 || packed->type == MP_BF16) && is_plain(packed, args) &&
           is_wide(&packed->w) &&
           mp_nbits_stream_cut_for(&p->device->info, &work, packed->w.block_shift, made, cut);
}

static mp_status by_stream(mp_planner *p, const mp_packed *packed, const mp_nbits_stream_cut *cut,
                           mp_nbits_args *args, mp_ref a, const mp_before *before, mp_ref bias,
                           mp_ref out) {
    const int bits = args->w.bits;
    const char *word = mp_dtype_word(packed->type);
    const mp_kernel *kernel = NULL;
    const mp_grid grid = {
        .blocks = cut->blocks, .lanes = cut->lanes, .shared_bytes = (uint32_t)cut->shared.bytes};
    args->shared = cut->shared;
    args->constant = are_constants(p, packed);
    args->gated = packed->gated;
    args->gate = packed->gate;
    args->alpha = packed->alpha;
    if (before != NULL) {
        args->before = before->args;
        MP_TRY(mp_plan_kernel(p, &kernel, "nbits_stream_norm_%d_%s", bits, word));
    } else {
        before = &nothing;
        MP_TRY(mp_plan_kernel(p, &kernel, "nbits_stream_%d_%s", bits, word));
    }
    return launch_with(p, packed, kernel, grid, args, a, before, bias, out);
}

/* ---- some rows ---- */

static bool is_tile(const mp_planner *p, const mp_packed *packed, const mp_nbits_args *args,
                    mp_nbits_cut *cut) {
    const mp_nbits_work work = work_of(packed, args->m);
    return is_plain(packed, args) && is_wide(&packed->w) &&
           mp_nbits_cut_for(&p->device->info, &work, cut);
}

/* Rows of floats in so many parts. */
static mp_status split(mp_planner *p, int64_t m, int64_t k, int32_t parts, mp_ref rows,
                       mp_ref *out) {
    const int64_t packs = k / K_NBITS_PIECE;
    const mp_nbits_split_args args = {.count = m * packs,
                                      .packs = (uint32_t)packs,
                                      .parts = parts,
                                      .by_packs = mp_divider((uint32_t)packs)};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_scratch_of(p, m * k * K_NBITS_TILE_PARTS(4), MP_BF16, out));
    MP_TRY(mp_plan_kernel(p, &kernel, "nbits_split"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_nbits_split_args, x, rows),
                     MP_BIND(mp_nbits_split_args, out, *out));
}

static mp_status by_tile(mp_planner *p, const mp_packed *packed, const mp_nbits_cut *cut, mp_ref a,
                         int64_t m, mp_ref bias, mp_ref out) {
    const mp_grid grid = {.blocks = cut->blocks,
                          .lanes = K_NBITS_TILE_LANES,
                          .shared_bytes = (uint32_t)cut->shared.bytes,
                          .meets = cut->splits_log > 0 ? 1u << cut->splits_log : 0};
    mp_nbits_args args = args_of(p, packed, m);
    const mp_kernel *kernel = NULL;
    if (packed->type == MP_F32) {
        args.parts = p->node->options.tf32 ? 2 : K_NBITS_TILE_PARTS(4);
        MP_TRY(split(p, m, args.w.k, args.parts, a, &a));
    }
    args.shared = cut->shared;
    args.splits_log = cut->splits_log;
    args.constant = are_constants(p, packed);
    args.gated = packed->gated;
    args.gate = packed->gate;
    args.alpha = packed->alpha;
    MP_TRY(mp_plan_kernel(p, &kernel, "nbits_tile_%d_%d_%s", (int)args.w.bits, (int)cut->rows,
                          mp_dtype_word(packed->type)));
    return launch_with(p, packed, kernel, grid, &args, a, &nothing, bias, out);
}

/* ---- all ---- */

static mp_status product(mp_planner *p, const mp_packed *packed, const mp_before *before, mp_ref a,
                         int64_t m, mp_ref bias, mp_ref out) {
    return before != NULL ? mp_plan_made_packed(p, packed, before, m, bias, out)
                          : mp_plan_packed_product(p, packed, a, m, bias, out);
}

/* All of the result, and then of its halves one. */
static mp_status gated_behind(mp_planner *p, const mp_packed *packed, const mp_before *before,
                              mp_ref a, int64_t m, mp_ref bias, mp_ref out) {
    const mp_shape whole = {.rank = 2, .dim = {m, packed->w.n}};
    const mp_shape half = {.rank = 2, .dim = {m, packed->w.n / 2}};
    mp_packed plain = *packed;
    mp_ref numbers;
    plain.gated = false;
    MP_TRY(mp_plan_scratch_shape(p, &whole, packed->type, &numbers));
    MP_TRY(product(p, &plain, before, a, m, bias, numbers));
    const mp_gate gate = {.kind = packed->gate, .alpha = packed->alpha};
    return mp_plan_gated(p, packed->type, &gate, numbers, &half, out);
}

mp_status mp_plan_packed_product(mp_planner *p, const mp_packed *packed, mp_ref a, int64_t m,
                                 mp_ref bias, mp_ref out) {
    mp_nbits_args args = args_of(p, packed, m);
    mp_nbits_stream_cut stream;
    mp_nbits_cut cut;
    if (is_stream(p, packed, &args, false, &stream)) {
        return by_stream(p, packed, &stream, &args, a, NULL, bias, out);
    }
    if (is_tile(p, packed, &args, &cut)) {
        return by_tile(p, packed, &cut, a, m, bias, out);
    }
    if (packed->gated) {
        return gated_behind(p, packed, NULL, a, m, bias, out);
    }
    if (is_mma(p, packed, false, &args)) {
        return by_mma(p, packed, &args, a, NULL, bias, out);
    }
    if (m > ROWS_MAX || packed->group.place != MP_PLACE_NONE) {
        return by_library(p, packed, a, m, bias, out);
    }
    const mp_nbits_args first = args_of(p, packed, MP_MIN(m, (int64_t)K_NBITS_ROWS));
    if (is_few(p, packed, &first)) {
        return by_turns(p, packed, a, m, bias, out);
    }
    if (m > HALF_ROWS_MAX && mp_dtype_size(packed->type) == 2) {
        return by_library(p, packed, a, m, bias, out);
    }
    const int64_t columns = (int64_t)LANES / GROUP_LANES * K_NBITS_COLUMNS;
    return launch(p, packed, "rows", mp_plan_grid_rows(p, MP_CEIL_DIV(args.w.n, columns), LANES),
                  &args, a, bias, out);
}

/* Whether so many blocks would make a norm's row, one behind the other on each multiprocessor, that
 * a step of its own is sooner done. */
static bool has_many_blocks(const mp_planner *p, const mp_packed *packed, const mp_before *before) {
    enum { BLOCKS_EACH = 8 };
    const int64_t blocks = packed->w.n / K_NBITS_MMA_COLUMNS(packed->w.bits, 1);
    return !before->is_gate && p->device->info.arch >= MMA_ARCH &&
           blocks > (int64_t)p->device->info.multiprocessors * BLOCKS_EACH;
}

mp_status mp_plan_made_packed(mp_planner *p, const mp_packed *packed, const mp_before *before,
                              int64_t m, mp_ref bias, mp_ref out) {
    mp_nbits_args args = args_of(p, packed, m);
    mp_nbits_stream_cut stream;
    mp_nbits_cut cut;
    mp_ref a = MP_NOWHERE;
    const bool may_make = packed->w.k % K_NBITS_CHUNK == 0 && !has_many_blocks(p, packed, before);
    if (!before->is_gate && is_stream(p, packed, &args, true, &stream) &&
        mp_before_fits(p, before, stream.lanes)) {
        return by_stream(p, packed, &stream, &args, a, before, bias, out);
    }
    if (is_tile(p, packed, &args, &cut)) {
        MP_TRY(mp_plan_before(p, before, &a));
        return by_tile(p, packed, &cut, a, m, bias, out);
    }
    if (packed->gated) {
        return gated_behind(p, packed, before, a, m, bias, out);
    }
    if (may_make && is_mma(p, packed, true, &args) &&
        mp_before_fits(p, before, mma_warps(packed, m) * 32)) {
        return by_mma(p, packed, &args, a, before, bias, out);
    }
    if (may_make && is_wide(&packed->w) && is_few(p, packed, &args) &&
        mp_before_fits(p, before, K_NBITS_LANES)) {
        return by_chunks(p, packed, &args, a, before, bias, out);
    }
    MP_TRY(mp_plan_before(p, before, &a));
    return mp_plan_packed_product(p, packed, a, m, bias, out);
}
