/* ordered_matmul.c - QOrderedMatMul: a product of int8 matrices in cuBLASLt's orders.
 *
 * Both sides are brought into rows and multiplied as other products of bytes are; what becomes of
 * the sums is one more pass, which writes them in the order that is wanted.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/quantize/integer_steps.h"
#include "op/quantize/ordered_steps.h"
#include "op/quantize/quantize_steps.h"

enum { A, SCALE_A, B, SCALE_B, SCALE_Y, BIAS, C, SCALE_C };

typedef struct product {
    mp_matrices a, b;
    mp_shape shape;
    int32_t order_a, order_b; /* that of B is its transpose's, but for COL */
    bool add;
} product;

static mp_status read_sides(const mp_planner *p, product *x) {
    const mp_shape *a = &p->in[A].shape;
    const mp_shape *b = &p->in[B].shape;
    char left[MP_SHAPE_TEXT];
    char right[MP_SHAPE_TEXT];
    x->a = mp_matrices_of(a);
    x->b = mp_matrices_of(b);
    if (a->rank < 2 || b->rank < 2 || x->a.columns != x->b.rows ||
        (x->b.count != 1 && x->b.count != x->a.count)) {
        return MP_FAIL(INVALID_ARGUMENT, "A of shape %s and B of shape %s cannot be multiplied",
                       mp_shape_text(a, left), mp_shape_text(b, right));
    }
    x->shape = *a;
    x->shape.dim[a->rank - 1] = x->b.columns;
    MP_TRY(mp_order_read(p, "order_A", K_ORDER_ROW, x->a.rows, x->a.columns, &x->order_a));
    MP_TRY(mp_order_read(p, "order_A", K_ORDER_ROW, x->a.rows, x->b.columns, &x->order_a));
    MP_TRY(mp_order_read(p, "order_B", K_ORDER_COL, x->b.columns, x->b.rows, &x->order_b));
    const bool plain = x->order_a == K_ORDER_ROW && x->order_b == K_ORDER_COL;
    const bool tiled = x->order_a == K_ORDER_COL32 && x->order_b > K_ORDER_COL32;
    return plain || tiled ? MP_OK
                          : MP_FAIL(UNSUPPORTED,
                                    "order_A is %d and order_B %d; a product is of 1 and 0, or of "
                                    "2 and 3 or 4",
                                    x->order_a, x->order_b);
}

static mp_status check_product(const mp_planner *p, product *x) {
    static const int scales[] = {SCALE_A, SCALE_Y, SCALE_C};
    const mp_tensor *bias = mp_plan_in(p, BIAS);
    const mp_tensor *c = mp_plan_in(p, C);
    const int64_t order = mp_node_int(p->node, "order_Y", x->order_a);
    const int64_t matrix = x->a.rows * x->b.columns;
    MP_TRY(mp_single_scales(p, scales, MP_COUNT_OF(scales)));
    if (order != x->order_a) {
        return MP_FAIL(UNSUPPORTED, "order_Y is %lld and order_A %d; they are the same",
                       (long long)order, x->order_a);
    }
    if (bias != NULL && mp_shape_count(&bias->shape) != x->b.columns) {
        return MP_FAIL(INVALID_ARGUMENT, "a bias of %lld values for %lld columns",
                       (long long)mp_shape_count(&bias->shape), (long long)x->b.columns);
    }
    x->add = c != NULL && mp_plan_in(p, SCALE_C) != NULL;
    if (x->add && mp_shape_count(&c->shape) != matrix &&
        mp_shape_count(&c->shape) != matrix * x->a.count) {
        char text[MP_SHAPE_TEXT];
        char of[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "C of shape %s does not go with Y of shape %s",
                       mp_shape_text(&c->shape, text), mp_shape_text(&x->shape, of));
    }
    return MP_OK;
}

/* The product at `sums`, in float, with its bias. */
static mp_status multiply(mp_planner *p, const product *x, mp_ref a, mp_ref b, mp_ref sums) {
    const bool one = x->b.count == 1;
    const mp_shape batch = {.rank = one ? 0 : 1, .dim = {x->a.count}};
    int64_t stride[2][MP_RANK_MAX] = {{1}, {1}};
    mp_integer_args args = {.kind = K_INTEGER_F32,
                            .scale_type = K_SCALE_F32,
                            .m = one ? x->a.count * x->a.rows : x->a.rows,
                            .n = x->b.columns,
                            .k = x->a.columns};
    MP_TRY(mp_integer_lines(&p->in[SCALE_B], "a scale of B", args.n, x->b.count,
                            &args.side[1].scale_step, &args.side[1].scale_batch));
    MP_TRY(mp_layout_make(&batch, stride, 2, &args.batch));
    const mp_integer_refs refs = {.matrix = {a, b},
                                  .scale = {MP_IN(SCALE_A), MP_IN(SCALE_B)},
                                  .bias = mp_plan_in(p, BIAS) != NULL ? MP_IN(BIAS) : MP_NOWHERE,
                                  .out = sums};
    return mp_plan_integer(p, "product", &args, &refs);
}

static mp_status plan_matmul(mp_planner *p) {
    product x = {.add = false};
    mp_ref a, b, sums;
    MP_TRY(read_sides(p, &x));
    MP_TRY(check_product(p, &x));
    MP_TRY(mp_plan_output(p, 0, MP_I8, &x.shape));
    if (mp_shape_count(&x.shape) == 0) {
        return MP_OK;
    }
    const mp_matrices turned = {x.b.count, x.b.columns, x.b.rows};
    MP_TRY(mp_plan_in_order(p, &x.a, x.order_a, K_ORDER_ROW, MP_IN(A), &a));
    if (x.order_b == K_ORDER_COL) {
        MP_TRY(mp_plan_in_order(p, &x.b, K_ORDER_COL, K_ORDER_ROW, MP_IN(B), &b));
    } else {
        MP_TRY(mp_plan_in_order(p, &turned, x.order_b, K_ORDER_COL, MP_IN(B), &b));
    }
    MP_TRY(mp_plan_scratch_shape(p, &x.shape, MP_F32, &sums));
    MP_TRY(multiply(p, &x, a, b, sums));
    const mp_matrices y = {x.a.count, x.a.rows, x.b.columns};
    mp_ordered_args args = mp_ordered_bytes(&y);
    const bool each = x.add && mp_shape_count(&p->in[C].shape) == args.count;
    args.x_bytes = 0;
    args.x_order = K_ORDER_ROW;
    args.add_order = args.out_order = x.order_a;
    args.add_step = each ? y.rows * y.columns : 0;
    const mp_reorder c = {.type = MP_F32,
                          .x = sums,
                          .add = x.add ? MP_IN(C) : MP_NOWHERE,
                          .add_scale = x.add ? MP_IN(SCALE_C) : MP_NOWHERE,
                          .out = MP_OUT(0),
                          .out_scale = MP_IN(SCALE_Y)};
    return mp_plan_reorder(p, &args, &c);
}

static const mp_attr_def attrs[] = {
    {"order_A", MP_ATTR_INT}, {"order_B", MP_ATTR_INT}, {"order_Y", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "QOrderedMatMul",
     .since = 1,
     .until = 1,
     .types = {{"Q", MP_BIT(MP_I8)}, {"S", MP_BIT(MP_F32)}},
     .attrs = attrs,
     .plan = plan_matmul},
};

const mp_op_family mp__family_ordered_matmul = {"ordered_matmul", ops, MP_COUNT_OF(ops)};
