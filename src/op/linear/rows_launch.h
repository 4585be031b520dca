/* rows_launch.h - what the kernels for products of some rows have in common: their arguments, and
 * what follows on the way to memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROWS_LAUNCH_H
#define MP_OP_ROWS_LAUNCH_H

#include "op/core/plan.h"

/* Whether library math has the product's activation; these kernels have all that are numbered. */
bool mp_library_activates(const mp_gemm *gemm);

/* How a product is cut: rows of a block's tile, tiles, and blocks that share one's sums. */
typedef struct mp_rows_cut {
    int32_t rows, splits;
    int64_t tiles;
    uint32_t lanes, shared_bytes;
} mp_rows_cut;

/* The step, by a kernel of mp_rows_mma_args. */
mp_status mp_rows_launch(mp_planner *p, const mp_gemm *gemm,
                         const mp_ref operands[MP_GEMM_OPERANDS], const mp_kernel *kernel,
                         const mp_rows_cut *cut);

#endif
