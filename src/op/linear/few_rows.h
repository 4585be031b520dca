/* few_rows.h - products of few rows, and of some, by kernels of ours, others by library math.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FEW_ROWS_H
#define MP_OP_FEW_ROWS_H

#include "op/rows/before_steps.h"

/* As mp_plan_gemm. */
mp_status mp_plan_rows(mp_planner *p, const mp_gemm *gemm, const mp_ref operands[MP_GEMM_OPERANDS]);

/* The same by the kernels for more rows than a few, or the library. */
mp_status mp_plan_some_rows(mp_planner *p, const mp_gemm *gemm,
                            const mp_ref operands[MP_GEMM_OPERANDS]);

/* As mp_plan_rows, of rows that are made before: A is what `before` says. */
mp_status mp_plan_made_rows(mp_planner *p, const mp_gemm *gemm,
                            const mp_ref operands[MP_GEMM_OPERANDS], const mp_before *before);

#endif
