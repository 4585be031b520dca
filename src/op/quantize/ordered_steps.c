/* ordered_steps.c - matrices in cuBLASLt's orders, as steps of any operator's plan.
 * Kernel: quantize/ordered.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/ordered_steps.h"

#include "op/quantize/integer_steps.h"
#include "op/quantize/quantize_steps.h"

mp_matrices mp_matrices_of(const mp_shape *shape) {
    const int32_t rank = shape->rank;
    return (mp_matrices){.count = rank > 2 ? mp_shape_span(shape, 0, rank - 2) : 1,
                         .rows = rank > 1 ? shape->dim[rank - 2] : 1,
                         .columns = rank > 0 ? shape->dim[rank - 1] : 1};
}

mp_status mp_order_read(const mp_planner *p, const char *name, int64_t fallback, int64_t rows,
                        int64_t columns, int32_t *out) {
    static const struct {
        int64_t rows, columns; /* that sizes are multiples of */
    } tiles[K_ORDERS] = {{1, 1}, {1, 1}, {1, 32}, {8, 32}, {32, 32}};
    const int64_t order = mp_node_int(p->node, name, fallback);
    if (order < 0 || order >= K_ORDERS) {
        return MP_FAIL(INVALID_ARGUMENT, "%s is %lld; orders are 0 to 4", name, (long long)order);
    }
    if (rows % tiles[order].rows != 0 || columns % tiles[order].columns != 0) {
        return MP_FAIL(UNSUPPORTED,
                       "%lld x %lld elements in order %lld, which has tiles of %lld x %lld",
                       (long long)rows, (long long)columns, (long long)order,
                       (long long)tiles[order].rows, (long long)tiles[order].columns);
    }
    *out = (int32_t)order;
    return MP_OK;
}

mp_status mp_orders_check(const mp_planner *p, const mp_order_rule *rules, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int64_t order = mp_node_int(p->node, rules[i].name, rules[i].order);
        if (order != rules[i].order) {
            return MP_FAIL(UNSUPPORTED, "%s is %lld; %lld is supported", rules[i].name,
                           (long long)order, (long long)rules[i].order);
        }
    }
    return MP_OK;
}

mp_status mp_single_scales(const mp_planner *p, const int *inputs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const mp_tensor *scale = mp_plan_in(p, inputs[i]);
        if (scale != NULL && mp_shape_count(&scale->shape) != 1) {
            return MP_FAIL(UNSUPPORTED, "the scale in input %d has %lld values; one is supported",
                           inputs[i], (long long)mp_shape_count(&scale->shape));
        }
    }
    return MP_OK;
}

mp_status mp_plan_reorder(mp_planner *p, const mp_ordered_args *args, const mp_reorder *c) {
    const mp_kernel *kernel = NULL;
    if (args->count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "ordered_%s", mp_dtype_word(c->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args->count, 1), *args, MP_BIND(mp_ordered_args, x, c->x),
        MP_BIND(mp_ordered_args, x_scale, c->x_scale), MP_BIND(mp_ordered_args, add, c->add),
        MP_BIND(mp_ordered_args, add_scale, c->add_scale), MP_BIND(mp_ordered_args, out, c->out),
        MP_BIND(mp_ordered_args, out_scale, c->out_scale));
}

mp_ordered_args mp_ordered_bytes(const mp_matrices *m) {
    return (mp_ordered_args){.count = m->count * m->rows * m->columns,
                             .rows = m->rows,
                             .columns = m->columns,
                             .x_bytes = 1,
                             .out_bytes = 1};
}

mp_status mp_plan_in_order(mp_planner *p, const mp_matrices *m, int32_t from, int32_t to, mp_ref x,
                           mp_ref *out) {
    mp_ordered_args args = mp_ordered_bytes(m);
    *out = x;
    if (from == to || args.count == 0) {
        return MP_OK;
    }
    args.x_order = from;
    args.out_order = to;
    MP_TRY(mp_plan_scratch_of(p, args.count, MP_I8, out));
    const mp_reorder c = {.type = MP_F32, .x = x, .out = *out};
    return mp_plan_reorder(p, &args, &c);
}

mp_status mp_ordered_prepare(mp_planner *p, int i) {
    if (p->in[i].shape.rank != 2) {
        return MP_OK;
    }
    const mp_matrices m = mp_matrices_of(&p->in[i].shape);
    mp_ordered_args args = mp_ordered_bytes(&m);
    args.x_order = K_ORDER_COL;
    args.out_order = K_ORDER_ROW;
    const mp_reorder c = {.type = MP_F32, .x = MP_IN(i), .out = MP_OUT(0)};
    MP_TRY(mp_plan_output(p, 0, MP_I8, &p->in[i].shape));
    return mp_plan_reorder(p, &args, &c);
}

mp_status mp_plan_ordered_product(mp_planner *p, const mp_ordered_product *x, mp_ref *bytes) {
    const mp_matrices m = {1, x->in, x->out};
    const bool ready = mp_node_prepared(p->node, x->weights);
    const mp_shape one = {.rank = 0};
    const mp_shape shape = {.rank = 2, .dim = {x->rows, x->out}};
    int64_t stride[2][MP_RANK_MAX] = {{0}};
    mp_integer_args args = {
        .kind = K_INTEGER_F32, .scale_type = K_SCALE_F32, .m = x->rows, .n = x->out, .k = x->in};
    mp_integer_refs refs = {.scale = {MP_IN(x->x_scale), MP_IN(x->weight_scale)}, .bias = x->bias};
    refs.matrix[0] = x->x;
    MP_TRY(mp_integer_lines(&p->in[x->weight_scale], "a scale of weights", args.n, 1,
                            &args.side[1].scale_step, &args.side[1].scale_batch));
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_I8, bytes));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_layout_make(&one, stride, 2, &args.batch));
    MP_TRY(mp_plan_in_order(p, &m, ready ? K_ORDER_ROW : K_ORDER_COL, K_ORDER_ROW,
                            MP_IN(x->weights), &refs.matrix[1]));
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &refs.out));
    MP_TRY(mp_plan_integer(p, "product", &args, &refs));
    const mp_matrices rows = {1, x->rows, x->out};
    mp_ordered_args round = mp_ordered_bytes(&rows);
    const mp_reorder c = {
        .type = MP_F32, .x = refs.out, .out = *bytes, .out_scale = MP_IN(x->out_scale)};
    round.x_bytes = 0;
    return mp_plan_reorder(p, &round, &c);
}
