/* ordered_steps.h - matrices in cuBLASLt's orders, as steps of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ORDERED_STEPS_H
#define MP_OP_ORDERED_STEPS_H

#include "kernel/quantize/ordered_args.h"
#include "op/core/op.h"

typedef struct mp_matrices {
    int64_t count, rows, columns;
} mp_matrices;

/* Of the last two dimensions; a vector is a row. */
mp_matrices mp_matrices_of(const mp_shape *shape);

/* The attribute `name`, an order that matrices of that size can have. Fails: INVALID_ARGUMENT,
 * UNSUPPORTED. */
mp_status mp_order_read(const mp_planner *p, const char *name, int64_t fallback, int64_t rows,
                        int64_t columns, int32_t *out);

/* Attributes of orders that can be one only. */
typedef struct mp_order_rule {
    const char *name;
    int64_t order;
} mp_order_rule;

/* Fails: UNSUPPORTED. */
mp_status mp_orders_check(const mp_planner *p, const mp_order_rule *rules, size_t count);

/* Checks that these inputs, those that there are, have one value. */
mp_status mp_single_scales(const mp_planner *p, const int *inputs, size_t count);

/* Where the tensors of mp_ordered_args are; MP_NOWHERE for what there is not. */
typedef struct mp_reorder {
    mp_dtype type; /* MP_F32 or MP_F16: of what is not bytes */
    mp_ref x, x_scale, add, add_scale, out, out_scale;
} mp_reorder;

/* Bytes as bytes in the order COL; what else is wanted is set by the caller. */
mp_ordered_args mp_ordered_bytes(const mp_matrices *m);

mp_status mp_plan_reorder(mp_planner *p, const mp_ordered_args *args, const mp_reorder *c);

/* Bytes at x from one order to another, in scratch memory unless they are in it already. */
mp_status mp_plan_in_order(mp_planner *p, const mp_matrices *m, int32_t from, int32_t to, mp_ref x,
                           mp_ref *out);

/* Rows of bytes times a constant matrix of bytes in order COL, [in, out], with a float bias,
 * rounded to bytes again. */
typedef struct mp_ordered_product {
    int64_t rows, in, out;
    mp_ref x, bias;
    int weights, x_scale, weight_scale, out_scale; /* inputs; weights may have a scale a column */
} mp_ordered_product;

mp_status mp_plan_ordered_product(mp_planner *p, const mp_ordered_product *x, mp_ref *bytes);

/* `prepare` of such weights: the same in rows. */
mp_status mp_ordered_prepare(mp_planner *p, int i);

#endif
