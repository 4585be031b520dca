/* rows_mma.h - products of some rows, a dozen to some hundred, by a kernel of ours with tensor
 * cores and with what follows on the way to memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROWS_MMA_H
#define MP_OP_ROWS_MMA_H

#include "op/core/plan.h"

/* Whether the kernel can, and is taken to be sooner than library math. */
bool mp_rows_mma_takes(const mp_planner *p, const mp_gemm *gemm);

/* As mp_plan_gemm, of a product that it takes. */
mp_status mp_plan_rows_mma(mp_planner *p, const mp_gemm *gemm,
                           const mp_ref operands[MP_GEMM_OPERANDS]);

#endif
