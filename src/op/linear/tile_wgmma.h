/* tile_wgmma.h - many rows times a matrix that is stored turned, in large tiles by groups of warps.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_TILE_WGMMA_H
#define MP_OP_TILE_WGMMA_H

#include "op/core/plan.h"

/* Whether the product is sooner so than by the library, whose activations count. */
bool mp_tile_wgmma_takes(const mp_planner *p, const mp_gemm *g);

/* Plans a product that is taken. */
mp_status mp_plan_tile_wgmma(mp_planner *p, const mp_gemm *g,
                             const mp_ref operands[MP_GEMM_OPERANDS]);

#endif
