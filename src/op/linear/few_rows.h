/* few_rows.h - products of few rows by a kernel of ours, others by library math.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FEW_ROWS_H
#define MP_OP_FEW_ROWS_H

#include "op/core/op.h"

/* As mp_plan_gemm. */
mp_status mp_plan_rows(mp_planner *p, const mp_gemm *gemm, const mp_ref operands[MP_GEMM_OPERANDS]);

#endif
