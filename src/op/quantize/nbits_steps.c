/* nbits_steps.c - products with packed weights as steps of any operator's plan.
 *
 * With few rows the weights are read as they are, which is what such a product waits for. With more
 * they are written out as numbers for library math. Weights that are not integers are codes: places
 * in a table of values, which lies among the device's tables.
 * Kernels: quantize/nbits_rows.cu, quantize/nbits_unpack.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/nbits_steps.h"

#include "op/core/upload_steps.h"
#include "op/pointwise/narrow.h"

enum { ROWS_MAX = 16, LANES = 128, GROUP_LANES = 32, CODES_MAX = 256 };

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

static mp_status launch(mp_planner *p, const mp_packed *packed, const char *word, mp_grid grid,
                        const mp_nbits_args *args, mp_ref a, mp_ref bias, mp_ref out) {
    const bool coded = packed->values.place != MP_PLACE_NONE;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "%s_%s_%s", coded ? "codes" : "nbits", word,
                          mp_dtype_word(packed->type)));
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_nbits_args, a, a), MP_BIND(mp_nbits_args, bias, bias),
        MP_BIND(mp_nbits_args, w.weight, packed->weight),
        MP_BIND(mp_nbits_args, w.scale, packed->scale),
        MP_BIND(mp_nbits_args, w.zero, packed->zero),
        MP_BIND(mp_nbits_args, w.group, packed->group),
        MP_BIND(mp_nbits_args, w.values, packed->values),
        MP_BIND(mp_nbits_args, w.factor, packed->factor), MP_BIND(mp_nbits_args, out, out));
}

static mp_nbits_args args_of(const mp_planner *p, const mp_packed *packed, int64_t m) {
    mp_nbits_args args = {.m = m, .w = packed->w};
    args.w.aligned = p->align >= 16 && packed->w.k % K_NBITS_PIECE == 0;
    return args;
}

mp_status mp_plan_unpack(mp_planner *p, const mp_packed *packed, mp_ref out) {
    const mp_nbits_args args = args_of(p, packed, 0);
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

mp_status mp_plan_packed_product(mp_planner *p, const mp_packed *packed, mp_ref a, int64_t m,
                                 mp_ref bias, mp_ref out) {
    if (m > ROWS_MAX || packed->group.place != MP_PLACE_NONE) {
        return by_library(p, packed, a, m, bias, out);
    }
    const mp_nbits_args args = args_of(p, packed, m);
    const int64_t columns = (int64_t)LANES / GROUP_LANES * K_NBITS_COLUMNS;
    return launch(p, packed, "rows", mp_plan_grid_rows(p, MP_CEIL_DIV(args.w.n, columns), LANES),
                  &args, a, bias, out);
}
