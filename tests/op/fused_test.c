/* fused_test.c - expressions as one kernel, against loops; their text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/expression.h"
#include "op/op_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- as text ---- */

static void check_round_trip(const char *text) {
    mp_expression e;
    char *again = NULL;
    CHECK_OK(mp_expression_read(text, &e));
    CHECK_OK(mp_expression_write(&e, &again));
    CHECK(strcmp(text, again) == 0);
    free(again);
}

TEST(fused_expression_comes_back_as_it_was) {
    check_round_trip("x0=f32 x1=f32 t0=add(x0,x1) -> t0");
    check_round_trip("x0=f16 x1=bool n0=f16:3fc00000 t0=mul(x0,n0) t1=where(x1,t0,x0) "
                     "t2=leaky_relu(t1;3dcccccd;00000000) t3=cast.i32(t2) -> t1 t3");
    check_round_trip("x0=i64 x1=i64 t0=less(x0,x1) t1=not(t0) -> t1");
}

TEST(fused_expression_that_is_wrong_says_where) {
    static const char *const wrong[] = {
        "",
        "x0=f32",
        "x0=f32 -> x0",                            /* an input is no output */
        "x0=f32 t0=add(x0,x1) -> t0",              /* no x1 */
        "x0=f32 x1=f16 t0=add(x0,x1) -> t0",       /* types differ */
        "x0=f32 t0=nosuch(x0) -> t0",              /* no such function */
        "x0=bool t0=exp(x0) -> t0",                /* not for this type */
        "x0=f32 t1=exp(x0) -> t1",                 /* registers come in order */
        "x0=f32 t0=exp(x0,x0) -> t0",              /* one operand */
        "x0=f32 t0=where(x0,x0,x0) -> t0",         /* the condition is no bool */
        "x0=f32 t0=neg(x0) t1=cast.f32(t0) -> t1", /* it is one */
        "x0=f99 -> x0",
        "x0=f32 t0=exp(x0) ->",
        "x0=f32 t0=exp(x0) -> t9",
        "x0=f32 t0=exp(x99999999999) -> t0",
        "n0=i64:00000000 t0=neg(n0) -> t0", /* numbers are floats */
    };
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        mp_expression e;
        CHECK_FAILS(mp_expression_read(wrong[i], &e), INVALID_ARGUMENT, "expression");
    }
}

/* ---- running ---- */

enum { TENSORS = 3 };

typedef struct fused_case {
    const char *expression;
    int in_count, out_count;
    mp_dtype types[TENSORS];
    /* Output o of element values x. */
    double (*reference)(const double *x, int o);
} fused_case;

static double chain(const double *x, int o) {
    const double sum = x[0] + x[1];
    return o == 0 ? (double)(float)sum : fmax(sum * 1.5, 0) - x[2];
}

static double halves(const double *x, int o) {
    (void)o;
    return 1 / (1 + exp(-(x[0] * x[1]))) + x[2];
}

static double chosen(const double *x, int o) {
    return o == 0 ? (x[1] < x[2] ? x[1] : x[2] * 2) : (x[1] < x[2] && x[0] != 0);
}

static double cut(const double *x, int o) {
    return o == 0 ? trunc(x[0] * x[1]) : trunc(x[0] * x[1]) + x[2];
}

/* What a value between is as float16. */
static double rounded(const double *x, int o) {
    const double product = op_rounded(MP_F16, x[0] * x[1]);
    return o == 0 ? product : op_rounded(MP_F16, product * x[2]) - product;
}

static const fused_case fused_cases[] = {
    {"x0=f16 x1=f16 x2=f16 t0=mul(x0,x1) t1=cast.f16(t0) t2=mul(t1,x2) t3=cast.f16(t2) "
     "t4=sub(t3,t1) "
     "-> t1 t4",
     3,
     2,
     {MP_F16, MP_F16, MP_F16},
     rounded},
    {"x0=f32 x1=f32 x2=f32 n0=f32:3fc00000 t0=add(x0,x1) t1=mul(t0,n0) t2=relu(t1) t3=sub(t2,x2) "
     "-> t0 t3",
     3,
     2,
     {MP_F32, MP_F32, MP_F32},
     chain},
    {"x0=f64 x1=f64 x2=f64 t0=mul(x0,x1) t1=sigmoid(t0) t2=add(t1,x2) -> t2",
     3,
     1,
     {MP_F64, MP_F64, MP_F64},
     halves},
    {"x0=f16 x1=f16 x2=f16 t0=mul(x0,x1) t1=sigmoid(t0) t2=add(t1,x2) -> t2",
     3,
     1,
     {MP_F16, MP_F16, MP_F16},
     halves},
    {"x0=bf16 x1=bf16 x2=bf16 t0=mul(x0,x1) t1=sigmoid(t0) t2=add(t1,x2) -> t2",
     3,
     1,
     {MP_BF16, MP_BF16, MP_BF16},
     halves},
    {"x0=bool x1=i32 x2=i32 t0=less(x1,x2) t1=add(x2,x2) t2=where(t0,x1,t1) t3=and(t0,x0) -> t2 t3",
     3,
     2,
     {MP_BOOL, MP_I32, MP_I32},
     chosen},
    {"x0=bool x1=i64 x2=i64 t0=less(x1,x2) t1=add(x2,x2) t2=where(t0,x1,t1) t3=and(t0,x0) -> t2 t3",
     3,
     2,
     {MP_BOOL, MP_I64, MP_I64},
     chosen},
    {"x0=f32 x1=f32 x2=i8 t0=mul(x0,x1) t1=cast.i32(t0) t2=cast.i32(x2) t3=add(t1,t2) "
     "t4=cast.f16(t3) -> t1 t4",
     3,
     2,
     {MP_F32, MP_F32, MP_I8},
     cut},
};

/* Whole, repeated along each end or in the middle, one element; rows shorter and longer than a
 * pack, and a last pack that is not full. */
static const mp_shape shapes[][TENSORS] = {
    {{2, {33, 5}}, {2, {33, 5}}, {2, {33, 5}}},
    {{2, {33, 5}}, {1, {5}}, {0, {0}}},
    {{2, {33, 5}}, {2, {33, 1}}, {1, {5}}},
    {{2, {1, 257}}, {2, {19, 1}}, {2, {19, 257}}},
    {{4, {2, 3, 4, 5}}, {3, {3, 1, 1}}, {4, {2, 1, 4, 1}}},
    {{4, {2, 1, 4, 5}}, {4, {1, 3, 1, 5}}, {4, {2, 3, 4, 1}}},
    {{3, {7, 1, 64}}, {3, {1, 9, 64}}, {1, {1}}},
    {{1, {4099}}, {1, {4099}}, {1, {1}}},
    {{2, {3, 1}}, {2, {1, 2}}, {2, {3, 2}}},
    {{0, {0}}, {0, {0}}, {1, {1}}},
    {{2, {0, 4}}, {1, {4}}, {2, {1, 1}}},
};

static void check_fused(mp_device *device, const fused_case *f, const mp_shape *in, uint32_t skew) {
    const mp_attr expression = OP_TEXT("expression", f->expression);
    void *data[TENSORS];
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "Fused",
                 .version = 1,
                 .attrs = &expression,
                 .attr_count = 1,
                 .skew = skew,
                 .align = skew != 0 ? 1 : 16,
                 .in_count = f->in_count,
                 .out_count = f->out_count};
    for (int i = 0; i < f->in_count; i++) {
        data[i] = op_numbers(f->types[i], (uint64_t)i + 1, mp_shape_count(&in[i]));
        c.in[i] = (op_tensor){f->types[i], in[i], data[i]};
    }
    op_run(device, &c);
    for (int o = 0; o < f->out_count; o++) {
        const mp_shape *out = &c.out[o].shape;
        for (int64_t i = 0; i < mp_shape_count(out); i++) {
            double x[TENSORS];
            for (int k = 0; k < f->in_count; k++) {
                x[k] = op_real(f->types[k], data[k], op_place(out, &in[k], i));
            }
            op_check_close(op_real(c.out[o].type, c.out[o].data, i), f->reference(x, o),
                           op_precision(c.out[o].type), f->expression, i);
        }
    }
    op_close(device, &c);
    for (int i = 0; i < f->in_count; i++) {
        free(data[i]);
    }
}

DEVICE_TEST(fused_expressions_are_what_loops_give) {
    for (size_t k = 0; k < MP_COUNT_OF(fused_cases); k++) {
        for (size_t s = 0; s < MP_COUNT_OF(shapes); s++) {
            check_fused(device, &fused_cases[k], shapes[s], 0);
        }
        check_fused(device, &fused_cases[k], shapes[0], 8);
    }
}

DEVICE_TEST(fused_inputs_that_do_not_fit_are_refused) {
    static const mp_shape two[] = {{1, {3}}, {1, {4}}};
    op_refuse_fused(device, "x0=f32 x1=f32 t0=add(x0,x1) -> t0", two, 2, MP_INVALID_ARGUMENT,
                    "do not broadcast");
    op_refuse_fused(device, "x0=f32 x1=f32 t0=add(x0,x1) -> t0", two, 1, MP_INVALID_ARGUMENT,
                    "has 2 inputs");
    op_refuse_fused(device, "x0=f16 t0=exp(x0) -> t0", two, 1, MP_INVALID_ARGUMENT, "not float16");
    op_refuse_fused(device, "x0=f32 t0=exp(x0) t1=neg(x0) -> t0 t1:apart", two, 1,
                    MP_INVALID_ARGUMENT, "only the one output of elements lies apart");
}
