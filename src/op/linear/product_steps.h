/* product_steps.h - many matrix products, as steps of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PRODUCT_STEPS_H
#define MP_OP_PRODUCT_STEPS_H

#include "op/core/plan.h"

/* The alignment that holds for an address and for steps of `elements` from it. */
int32_t mp_align_after(int32_t align, int64_t elements, mp_dtype type);

/* A product for each point of `space`: view 0 steps over A, view 1 over B, in elements; results lie
 * one behind the other in output 0. `gemm` says all but batch, steps and what they leave of the
 * alignment. Batches that both sides step through evenly are one call; what is left outside is a
 * loop. Fails: UNSUPPORTED for too many calls. */
mp_status mp_plan_products(mp_planner *p, const mp_gemm *gemm, const mp_space *space);

#endif
