/* infinite.c - what the compiler makes of sums of halves that are kept from being infinite, as T5
 * does it between its layers:
 *
 *     SumInfinite            x + more, and for each piece of the sum whether any of it is infinite
 *     HeldRMSNormalization   x between two numbers, which depend on that; and of this, rows over
 *                            their root mean square, times a scale
 *
 * No model names them.
 * Kernel: rows/sum_infinite.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/op.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/rows/norm_steps.h"

/* ---- SumInfinite ---- */

enum { FOUND, SUM };

/* Lanes for a piece of so many packs of 16 bytes. */
static uint32_t lanes_for(int64_t packs) {
    uint32_t lanes = 32;
    while (lanes < K_FOUND_LANES && lanes < packs) {
        lanes *= 2;
    }
    return lanes;
}

static mp_status plan_sum_infinite(mp_planner *p) {
    const mp_tensor *x = &p->in[0], *more = &p->in[1];
    const mp_dtype type = x->type;
    const mp_shape found = {.rank = 1, .dim = {K_FOUND_PIECES}};
    const bool alike = mp_shape_equal(&x->shape, &more->shape);
    mp_shape shape;
    mp_ref sum = MP_OUT(SUM);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_shape_broadcast(&x->shape, &more->shape, &shape));
    MP_TRY(mp_plan_output(p, FOUND, MP_BOOL, &found));
    MP_TRY(mp_plan_output(p, SUM, type, &shape));
    const int64_t count = mp_shape_count(&shape), pack = 16 / (int64_t)mp_dtype_size(type);
    const int64_t packs = MP_CEIL_DIV(MP_CEIL_DIV(count, pack), K_FOUND_PIECES);
    const mp_sum_infinite_args args = {
        .count = count, .piece = packs * pack, .packed = p->align >= 16};
    const mp_grid grid = mp_plan_grid_rows(p, K_FOUND_PIECES, lanes_for(packs));
    if (!alike && count > 0) {
        MP_TRY(mp_pointwise2(p, "add", type, (mp_operand){MP_IN(0), &x->shape},
                             (mp_operand){MP_IN(1), &more->shape}, sum, &shape, 0, 0));
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "sum_infinite_%s", mp_dtype_word(type)));
    return MP_LAUNCH(p, kernel, grid, args,
                     MP_BIND(mp_sum_infinite_args, x, alike ? MP_IN(0) : sum),
                     MP_BIND(mp_sum_infinite_args, more, alike ? MP_IN(1) : MP_NOWHERE),
                     MP_BIND(mp_sum_infinite_args, sum, alike ? sum : MP_NOWHERE),
                     MP_BIND(mp_sum_infinite_args, found, MP_OUT(FOUND)));
}

/* ---- HeldRMSNormalization ---- */

enum { NORMED, HELD };

static mp_status plan_held_norm(mp_planner *p) {
    const mp_tensor *x = &p->in[0], *found = &p->in[1], *scale = &p->in[2];
    const int last = x->shape.rank - 1;
    char text[MP_SHAPE_TEXT], other[MP_SHAPE_TEXT];
    if (last < 0 || mp_shape_count(&found->shape) != K_FOUND_PIECES || scale->shape.rank != 1 ||
        scale->shape.dim[0] != x->shape.dim[last]) {
        return MP_FAIL(INVALID_ARGUMENT, "rows of shape %s with a scale of shape %s",
                       mp_shape_text(&x->shape, text), mp_shape_text(&scale->shape, other));
    }
    mp_norm n = {.type = x->type,
                 .out_type = x->type,
                 .x = MP_IN(0),
                 .found = MP_IN(1),
                 .scale = MP_IN(2),
                 .out = MP_OUT(NORMED),
                 .sum = p->out_count > HELD ? MP_OUT(HELD) : MP_NOWHERE};
    n.args = (mp_norm_args){
        .rows = mp_shape_span(&x->shape, 0, last),
        .columns = x->shape.dim[last],
        .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
        .most = {mp_node_float(p->node, "most", 0), mp_node_float(p->node, "most_found", 0)}};
    MP_TRY(mp_plan_output(p, NORMED, x->type, &x->shape));
    MP_TRY(mp_plan_output(p, HELD, x->type, &x->shape));
    return mp_plan_norm(p, &n);
}

/* ---- the rows ---- */

static const mp_attr_def held_attrs[] = {
    {"epsilon", MP_ATTR_FLOAT}, {"most", MP_ATTR_FLOAT}, {"most_found", MP_ATTR_FLOAT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "SumInfinite",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F16)}},
     .plan = plan_sum_infinite},
    {.domain = MP_OWN_DOMAIN,
     .name = "HeldRMSNormalization",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F16)}},
     .attrs = held_attrs,
     .plan = plan_held_norm},
};

const mp_op_family mp__family_infinite = {"infinite", ops, MP_COUNT_OF(ops)};
