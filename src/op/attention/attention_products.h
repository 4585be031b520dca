/* attention_products.h - attention by products of matrices.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ATTENTION_PRODUCTS_H
#define MP_OP_ATTENTION_PRODUCTS_H

#include "op/attention/attention_steps.h"

/* As mp_plan_attention, by a product, a softmax and a product: for long sequences, double, debug
 * output. */
mp_status mp_plan_attention_products(mp_planner *p, const mp_attention *a);

/* The softmax alone, of scores of `args` that something else made: rule, masks and type are those
 * of `a`. `debug` may be MP_NOWHERE. */
mp_status mp_plan_attention_softmax(mp_planner *p, const mp_attention *a,
                                    const mp_attention_softmax_args *args, mp_ref scores,
                                    mp_ref weights, mp_ref debug);

#endif
