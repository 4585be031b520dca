/* integer_matmul.c - MatMulInteger, QLinearMatMul and those of com.microsoft that give floats.
 *
 * They differ in what becomes of the sums: see K_INTEGER_I32 and its neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/linear/product.h"
#include "op/quantize/integer_steps.h"
#include "op/quantize/quantize_steps.h"

/* The tensors of a product; NULL for those that it does not have. */
typedef struct sides {
    const mp_shape *shape[2];
    mp_dtype type[2];
    const mp_tensor *zero[2], *scale[2];
} sides;

static const char *const zero_names[] = {"a zero point of A", "a zero point of B"};
static const char *const scale_names[] = {"a scale of A", "a scale of B"};

static mp_status read_side(const sides *s, int i, int64_t lines, int64_t matrices,
                           k_integer_side *out) {
    out->flip = mp_integer_flip(s->type[i]);
    MP_TRY(mp_integer_lines(s->zero[i], zero_names[i], lines, matrices, &out->zero_step,
                            &out->zero_batch));
    return mp_integer_lines(s->scale[i], scale_names[i], lines, matrices, &out->scale_step,
                            &out->scale_batch);
}

/* All but what becomes of the sums. `out` gets the shape of the result. */
static mp_status read_product(const sides *s, mp_integer_args *args, mp_shape *out) {
    mp_product x;
    int64_t stride[2][MP_RANK_MAX];
    MP_TRY(mp_product_read(s->shape[0], s->shape[1], &x));
    *out = x.out;
    args->m = x.m;
    args->n = x.n;
    args->k = x.k;
    if (mp_shape_count(out) == 0) {
        return MP_OK;
    }
    MP_TRY(read_side(s, 0, x.m, mp_shape_count(&x.a_batch), &args->side[0]));
    MP_TRY(read_side(s, 1, x.n, mp_shape_count(&x.b_batch), &args->side[1]));
    const k_integer_side *a = &args->side[0];
    if (mp_shape_count(&x.b_batch) == 1 && a->zero_step == 0 && a->scale_step == 0) {
        args->m *= mp_shape_count(&x.batch); /* one B for all: every row of A is one of a matrix */
        x.batch.rank = x.a_batch.rank = x.b_batch.rank = 0;
    }
    mp_shape_broadcast_strides(&x.a_batch, &x.batch, stride[0]);
    mp_shape_broadcast_strides(&x.b_batch, &x.batch, stride[1]);
    MP_TRY(mp_layout_make(&x.batch, stride, 2, &args->batch));
    return MP_OK;
}

static mp_ref ref_of(const mp_planner *p, int input) {
    return mp_plan_in(p, input) != NULL ? MP_IN(input) : MP_NOWHERE;
}

static mp_status plan_to_int32(mp_planner *p) {
    const mp_tensor *in = p->in;
    const sides s = {.shape = {&in[0].shape, &in[1].shape},
                     .type = {in[0].type, in[1].type},
                     .zero = {mp_plan_in(p, 2), mp_plan_in(p, 3)}};
    mp_integer_args args = {.kind = K_INTEGER_I32};
    mp_shape shape;
    MP_TRY(read_product(&s, &args, &shape));
    MP_TRY(mp_plan_output(p, 0, MP_I32, &shape));
    const mp_integer_refs refs = {
        .matrix = {MP_IN(0), MP_IN(1)}, .zero = {ref_of(p, 2), ref_of(p, 3)}, .out = MP_OUT(0)};
    return mp_shape_count(&shape) > 0 ? mp_plan_integer(p, "product", &args, &refs) : MP_OK;
}

static mp_status plan_to_byte(mp_planner *p) {
    const mp_tensor *in = p->in;
    const sides s = {.shape = {&in[0].shape, &in[3].shape},
                     .type = {in[0].type, in[3].type},
                     .zero = {mp_plan_in(p, 2), mp_plan_in(p, 5)},
                     .scale = {&in[1], &in[4]}};
    mp_integer_args args = {.kind = K_INTEGER_BYTE,
                            .scale_type = mp_integer_scale(in[1].type),
                            .out_flip = mp_integer_flip(in[7].type) & 0xffu};
    mp_shape shape;
    if (mp_shape_count(&in[6].shape) != 1 || mp_shape_count(&in[7].shape) != 1) {
        return MP_FAIL(UNSUPPORTED,
                       "scale and zero point of the result have %lld and %lld values; "
                       "one each is supported",
                       (long long)mp_shape_count(&in[6].shape),
                       (long long)mp_shape_count(&in[7].shape));
    }
    MP_TRY(read_product(&s, &args, &shape));
    MP_TRY(mp_plan_output(p, 0, in[7].type, &shape));
    const mp_integer_refs refs = {.matrix = {MP_IN(0), MP_IN(3)},
                                  .zero = {ref_of(p, 2), ref_of(p, 5)},
                                  .scale = {MP_IN(1), MP_IN(4)},
                                  .out_scale = MP_IN(6),
                                  .out_zero = MP_IN(7),
                                  .out = MP_OUT(0)};
    return mp_shape_count(&shape) > 0 ? mp_plan_integer(p, "product", &args, &refs) : MP_OK;
}

static mp_status check_bias(const mp_tensor *bias, int64_t columns) {
    char text[MP_SHAPE_TEXT];
    return bias == NULL || mp_shape_count(&bias->shape) == columns
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "a bias of shape %s does not go with %lld columns",
                         mp_shape_text(&bias->shape, text), (long long)columns);
}

static mp_status plan_to_float(mp_planner *p) {
    const mp_tensor *in = p->in;
    const mp_dtype to = in[2].type;
    const sides s = {.shape = {&in[0].shape, &in[1].shape},
                     .type = {in[0].type, in[1].type},
                     .zero = {mp_plan_in(p, 4), mp_plan_in(p, 5)},
                     .scale = {&in[2], &in[3]}};
    mp_integer_args args = {.kind = to == MP_F16 ? K_INTEGER_F16 : K_INTEGER_F32,
                            .scale_type = mp_integer_scale(to)};
    mp_shape shape;
    MP_TRY(read_product(&s, &args, &shape));
    MP_TRY(check_bias(mp_plan_in(p, 6), args.n));
    MP_TRY(mp_plan_output(p, 0, to, &shape));
    const mp_integer_refs refs = {.matrix = {MP_IN(0), MP_IN(1)},
                                  .zero = {ref_of(p, 4), ref_of(p, 5)},
                                  .scale = {MP_IN(2), MP_IN(3)},
                                  .bias = ref_of(p, 6),
                                  .out = MP_OUT(0)};
    return mp_shape_count(&shape) > 0 ? mp_plan_integer(p, "product", &args, &refs) : MP_OK;
}

/* A comes in float and is quantised first. */
static mp_status plan_dynamic(mp_planner *p) {
    const mp_tensor *in = p->in;
    const int64_t count = mp_shape_count(&in[0].shape);
    const sides s = {.shape = {&in[0].shape, &in[1].shape},
                     .type = {MP_U8, in[1].type},
                     .zero = {NULL, mp_plan_in(p, 3)},
                     .scale = {NULL, &in[2]}};
    mp_integer_args args = {.kind = K_INTEGER_F32, .scale_type = K_SCALE_F32};
    mp_shape shape;
    MP_TRY(read_product(&s, &args, &shape));
    MP_TRY(check_bias(mp_plan_in(p, 4), args.n));
    MP_TRY(mp_plan_output(p, 0, MP_F32, &shape));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    mp_quantized a;
    MP_TRY(mp_plan_scratch(p, (size_t)count, &a.values));
    MP_TRY(mp_plan_scratch(p, sizeof(float), &a.scale));
    MP_TRY(mp_plan_scratch(p, 1, &a.zero));
    MP_TRY(mp_plan_dynamic_quantize(p, MP_IN(0), count, &a));
    const mp_integer_refs refs = {.matrix = {a.values, MP_IN(1)},
                                  .zero = {a.zero, ref_of(p, 3)},
                                  .scale = {a.scale, MP_IN(2)},
                                  .bias = ref_of(p, 4),
                                  .out = MP_OUT(0)};
    return mp_plan_integer(p, "product", &args, &refs);
}

/* Which dimensions of batches merge is a matter of sizes that a session may not know. */
static mp_status accept_batches(const mp_planner *p) {
    for (int i = 0; i < p->in_count; i++) {
        MP_TRY(mp_rank_accept(&p->in[i].shape, K_RANK_MAX + 2, "an input"));
    }
    return MP_OK;
}

/* ---- the rows ---- */

enum {
    BYTES = MP_BIT(MP_I8) | MP_BIT(MP_U8),
    F32 = MP_BIT(MP_F32),
    SCALES = F32 | MP_BIT(MP_F16) | MP_BIT(MP_BF16),
    INT32 = MP_BIT(MP_I32),
};

#define ROW(in_domain, op_name, from, to, function, ...)                          \
    {                                                                             \
        .domain = (in_domain), .name = (op_name), .since = (from), .until = (to), \
        .plan = (function), .accept = accept_batches, .types = {                  \
            __VA_ARGS__                                                           \
        }                                                                         \
    }

static const mp_op ops[] = {
    ROW("", "MatMulInteger", 10, 10, plan_to_int32, {"T1", BYTES}, {"T2", BYTES}, {"T3", INT32}),
    ROW("", "QLinearMatMul", 10, 10, plan_to_byte, {"T1", BYTES}, {"T2", BYTES}, {"T3", BYTES}),
    ROW("", "QLinearMatMul", 21, 21, plan_to_byte, {"TS", SCALES}, {"T1", BYTES}, {"T2", BYTES},
        {"T3", BYTES}),
    ROW("com.microsoft", "MatMulIntegerToFloat", 1, 1, plan_to_float, {"T1", BYTES}, {"T2", BYTES},
        {"T3", F32 | MP_BIT(MP_F16)}),
    ROW("com.microsoft", "DynamicQuantizeMatMul", 1, 1, plan_dynamic, {"T1", F32}, {"T2", BYTES}),
};

const mp_op_family mp__family_integer_matmul = {"integer_matmul", ops, MP_COUNT_OF(ops)};
