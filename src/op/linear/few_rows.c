/* few_rows.c - see few_rows.h.
 *
 * A product of few rows takes as long as its matrix takes to come, and a library's, which is made
 * for more, waits for that several times in turn.
 * Kernel: linear/few_rows.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/few_rows.h"

#include "kernel/linear/linear_args.h"
#include "op/linear/rows_mma.h"

enum {
    COLUMNS_MIN = 256, /* below, there are few blocks */
    DEPTH_MIN = 32,
    DEPTH_MAX = 1 << 14, /* beyond, k is worth dealing to several blocks */
    PACK_BYTES = 16,
    STRIP_MIN = 4,        /* packs side by side: of fewer, memory is read by too small pieces ... */
    SMALL_MAX = 20 << 20, /* ... which a matrix of so many bytes outweighs by a sooner start */
    SEVERAL_MAX = 2 << 20, /* the same of several rows */
};

/* As many lanes side by side as leave a block for each multiprocessor. */
static int32_t across_of(const mp_planner *p, int64_t packs) {
    int32_t across = 1;
    while (across < K_FEW_ROWS_ACROSS &&
           packs / (across * 2) >= (int64_t)p->device->info.multiprocessors) {
        across *= 2;
    }
    return across;
}

/* Measured on an H200 beside cuBLASLt, us: one row times 2,048 x 2,048 halves 5.6 and 6.0, floats
 * 7.5 and 8.3; 2,048 x 5,632 halves and back 12.9 and 10.5; 4,096 x 16,384 halves 34 and 38; four
 * rows times 2,048 x 2,048 halves 9.2 and 6.3. */
static bool is_sooner(const mp_planner *p, const mp_gemm *g) {
    const int64_t row = g->n * (int64_t)mp_dtype_size(g->type), bytes = g->k * row;
    return g->m == 1 ? bytes <= SMALL_MAX || across_of(p, row / PACK_BYTES) >= STRIP_MIN
                     : bytes <= SEVERAL_MAX;
}

/* Whether the kernel can. */
static bool can_take(const mp_gemm *g) {
    const bool is_kept = g->type == MP_F32 || g->type == MP_F16 || g->type == MP_BF16;
    return is_kept && g->m <= K_FEW_ROWS && g->batch == 1 && !g->trans_a && !g->trans_b &&
           g->activation == MP_ACTIVATION_NONE && g->lda == g->k && g->ldb == g->n &&
           g->ldc == g->n && g->align >= PACK_BYTES &&
           g->n * (int64_t)mp_dtype_size(g->type) % PACK_BYTES == 0 && g->n >= COLUMNS_MIN &&
           g->k >= DEPTH_MIN && g->k <= DEPTH_MAX;
}

/* `before`: what A is made of, instead of its operand; or NULL. */
static mp_status launch(mp_planner *p, const mp_gemm *gemm, const mp_ref operands[MP_GEMM_OPERANDS],
                        const mp_before *before) {
    static const mp_before nothing = {.x = {MP_PLACE_NONE, 0, 0}};
    const int64_t size = (int64_t)mp_dtype_size(gemm->type), pack = PACK_BYTES / size;
    const int64_t packs = gemm->n / pack;
    const int rows = gemm->m == 1 ? 1 : K_FEW_ROWS;
    const char *word = mp_dtype_word(gemm->type);
    mp_few_rows_args args = {
        .n = gemm->n,
        .k = gemm->k,
        .m = (int32_t)gemm->m,
        .across = across_of(p, packs),
        .constant = mp_plan_is_constant(p, operands[MP_GEMM_B]),
        .alpha = gemm->alpha,
        .beta = gemm->beta,
    };
    mp_grid grid = mp_plan_grid_rows(p, MP_CEIL_DIV(packs, args.across), K_FEW_ROWS_LANES);
    grid.shared_bytes = (uint32_t)(K_FEW_ROWS_LANES * rows * pack * (int64_t)sizeof(float));
    const mp_kernel *kernel = NULL;
    if (before != NULL) {
        args.before = before->args;
        grid.shared_bytes += (uint32_t)(gemm->k * size);
        MP_TRY(mp_plan_kernel(p, &kernel, "%s_row_%s", mp_before_word(before), word));
    } else {
        before = &nothing;
        MP_TRY(mp_plan_kernel(p, &kernel, "few_rows_%d_%s", rows, word));
    }
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_few_rows_args, a, operands[MP_GEMM_A]),
                     MP_BIND(mp_few_rows_args, b, operands[MP_GEMM_B]),
                     MP_BIND(mp_few_rows_args, bias, operands[MP_GEMM_BIAS]),
                     MP_BIND(mp_few_rows_args, d, operands[MP_GEMM_D]),
                     MP_BIND(mp_few_rows_args, out, operands[MP_GEMM_C]),
                     MP_BEFORE_BINDS(mp_few_rows_args, before));
}

mp_status mp_plan_rows(mp_planner *p, const mp_gemm *gemm,
                       const mp_ref operands[MP_GEMM_OPERANDS]) {
    if (can_take(gemm) && is_sooner(p, gemm)) {
        return launch(p, gemm, operands, NULL);
    }
    return mp_rows_mma_takes(p, gemm) ? mp_plan_rows_mma(p, gemm, operands)
                                      : mp_plan_gemm(p, gemm, operands);
}

mp_status mp_plan_made_rows(mp_planner *p, const mp_gemm *gemm,
                            const mp_ref operands[MP_GEMM_OPERANDS], const mp_before *before) {
    if (can_take(gemm) && mp_before_fits(p, before, K_FEW_ROWS_LANES)) {
        return launch(p, gemm, operands, before);
    }
    mp_ref with[MP_GEMM_OPERANDS];
    memcpy(with, operands, sizeof with);
    MP_TRY(mp_plan_before(p, before, &with[MP_GEMM_A]));
    return mp_plan_rows(p, gemm, with);
}
