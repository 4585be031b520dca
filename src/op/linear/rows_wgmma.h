/* rows_wgmma.h - products of some rows by a kernel of ours for GPUs of compute capability 9.0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROWS_WGMMA_H
#define MP_OP_ROWS_WGMMA_H

#include "op/core/plan.h"

/* Whether groups of warps can multiply it here, by 16 bytes of all rows at a time. */
bool mp_rows_wgmma_can(const mp_planner *p, const mp_gemm *gemm);

/* Whether it can, and is sooner done than library math. */
bool mp_rows_wgmma_takes(const mp_planner *p, const mp_gemm *gemm);

/* Whether products with a constant B [k, n] gain by one that is stored turned: kernels have a row's
 * neighbours along k then, and the library multiplies floats sooner. */
bool mp_wants_turned(const mp_planner *p, mp_dtype type, int64_t k, int64_t n);

mp_status mp_plan_rows_wgmma(mp_planner *p, const mp_gemm *gemm,
                             const mp_ref operands[MP_GEMM_OPERANDS]);

#endif
