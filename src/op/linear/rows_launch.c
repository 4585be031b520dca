/* rows_launch.c - see rows_launch.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/rows_launch.h"

#include "base/macros.h"
#include "kernel/linear/linear_args.h"

bool mp_library_activates(const mp_gemm *g) {
    return g->activation == MP_ACTIVATION_NONE || g->activation == MP_ACTIVATION_RELU ||
           (g->activation == MP_ACTIVATION_GELU_TANH && mp_dtype_size(g->type) == 2);
}

static int32_t log_of(int32_t splits) {
    int32_t log = 0;
    while (1 << log < splits) {
        log++;
    }
    return log;
}

mp_status mp_rows_launch(mp_planner *p, const mp_gemm *g, const mp_ref operands[MP_GEMM_OPERANDS],
                         const mp_kernel *kernel, const mp_rows_cut *cut) {
    const mp_rows_mma_args args = {
        .lda = g->lda,
        .ldb = g->ldb,
        .ldc = g->ldc,
        .m = (int32_t)g->m,
        .n = (int32_t)g->n,
        .k_bytes = (int32_t)(g->k * (int64_t)mp_dtype_size(g->type)),
        .row_tiles = (int32_t)MP_CEIL_DIV(g->m, cut->rows),
        .splits_log = log_of(cut->splits),
        .constant = mp_plan_is_constant(p, operands[MP_GEMM_B]),
        .activation = (int32_t)g->activation,
        .activation_alpha = g->activation_alpha,
        .activation_beta = g->activation_beta,
        .alpha = g->alpha,
        .beta = g->beta,
    };
    const mp_grid grid = {.blocks = (uint32_t)(cut->tiles * cut->splits),
                          .lanes = cut->lanes,
                          .shared_bytes = cut->shared_bytes,
                          .meets = cut->splits > 1 ? (uint32_t)cut->splits : 0};
    const mp_ref none = MP_NOWHERE;
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_rows_mma_args, a, operands[MP_GEMM_A]),
                     MP_BIND(mp_rows_mma_args, b, operands[MP_GEMM_B]),
                     MP_BIND(mp_rows_mma_args, bias, g->bias ? operands[MP_GEMM_BIAS] : none),
                     MP_BIND(mp_rows_mma_args, d, g->beta != 0 ? operands[MP_GEMM_D] : none),
                     MP_BIND(mp_rows_mma_args, out, operands[MP_GEMM_C]));
}
