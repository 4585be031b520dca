/* where_test.c - Where, Pow and Range.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Where ---- */

static const mp_shape triples[][3] = {
    {{2, {33, 5}}, {2, {33, 5}}, {2, {33, 5}}},
    {{2, {4, 1}}, {2, {1, 5}}, {3, {3, 1, 1}}},
    {{0, {0}}, {2, {3, 4}}, {0, {0}}},
    {{1, {4}}, {0, {0}}, {2, {3, 4}}},
    {{0, {0}}, {0, {0}}, {0, {0}}},
    {{2, {0, 4}}, {1, {4}}, {2, {1, 1}}},
};

static void check_where(mp_device *device, mp_dtype type, const mp_shape *shapes) {
    uint8_t *condition = op_numbers(MP_U8, 1, mp_shape_count(&shapes[0]));
    void *x = op_numbers(type, 2, mp_shape_count(&shapes[1]));
    void *y = op_numbers(type, 3, mp_shape_count(&shapes[2]));
    for (int64_t i = 0; i < mp_shape_count(&shapes[0]); i++) {
        condition[i] = condition[i] % 2;
    }
    op_case c = {
        .name = "Where",
        .version = 16,
        .in = {{MP_BOOL, shapes[0], condition}, {type, shapes[1], x}, {type, shapes[2], y}},
        .in_count = 3,
        .out_count = 1};
    op_run(device, &c);
    const mp_shape *out = &c.out[0].shape;
    const size_t size = mp_dtype_size(type);
    for (int64_t i = 0; i < mp_shape_count(out); i++) {
        const bool first = condition[op_place(out, &shapes[0], i)] != 0;
        const char *from = first ? x : y;
        const int64_t at = op_place(out, &shapes[first ? 1 : 2], i);
        CHECK(memcmp((const char *)c.out[0].data + (size_t)i * size, from + (size_t)at * size,
                     size) == 0);
    }
    op_close(device, &c);
    free(condition);
    free(x);
    free(y);
}

DEVICE_TEST(where_picks) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        for (size_t k = 0; k < MP_COUNT_OF(triples); k++) {
            check_where(device, op_types[t], triples[k]);
        }
    }
}

/* ---- Pow ---- */

static const double bases[] = {0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, 10, -3, 7};
static const double exponents[] = {0, 1, 2, 3, -1, -2, 0.5, 4, 5, -0.5};
enum { BASES = MP_COUNT_OF(bases), EXPONENTS = MP_COUNT_OF(exponents) };

/* A whole base is raised in double and cut off; what has no whole value gives the lowest. */
static double whole_power(mp_dtype type, double power) {
    const double limit = type == MP_I64 ? 0x1p63 : 0x1p31;
    return power >= -limit && power < limit ? trunc(power) : -limit;
}

static void check_pow(mp_device *device, mp_dtype base, mp_dtype exponent) {
    void *x = op_memory(base, BASES);
    void *y = op_memory(exponent, EXPONENTS);
    char what[64];
    (void)snprintf(what, sizeof what, "%s to the %s", mp_dtype_name(base), mp_dtype_name(exponent));
    for (int i = 0; i < BASES; i++) {
        op_store_real(base, x, i, bases[i]);
    }
    for (int i = 0; i < EXPONENTS; i++) {
        op_store_real(exponent, y, i, exponents[i]);
    }
    op_case c = {.name = "Pow",
                 .version = 15,
                 .in = {OP_TENSOR(base, x, BASES, 1), OP_TENSOR(exponent, y, EXPONENTS)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < BASES * EXPONENTS; i++) {
        const double power =
            pow(op_real(base, x, i / EXPONENTS), op_real(exponent, y, i % EXPONENTS));
        const double got = op_real(base, c.out[0].data, i);
        if (op_is_float(base)) {
            op_check_close(got, op_rounded(base, power), op_precision(base) * 2, what, i);
        } else {
            op_check_close(got, whole_power(base, power), 0, what, i);
        }
    }
    op_close(device, &c);
    free(x);
    free(y);
}

DEVICE_TEST(pow_of_all_pairs_of_types) {
    const mp_dtypes types = op_types_of("Pow", 15);
    for (int f = 0; op_types[f] != MP_NONE; f++) {
        for (int t = 0; op_types[t] != MP_NONE; t++) {
            if ((types & MP_BIT(op_types[f])) != 0 && (types & MP_BIT(op_types[t])) != 0) {
                check_pow(device, op_types[f], op_types[t]);
            }
        }
    }
}

DEVICE_TEST(pow_broadcasts) {
    const float x[] = {1, 2, 3, 4, 5, 6};
    const int64_t y[] = {2, 3, 2, 3, 2, 3};
    const struct {
        op_tensor base, exponent;
        int64_t base_step, exponent_step; /* 0 repeats */
    } forms[] = {{op_f32(x, 6), op_i64(y, 1), 1, 0},
                 {op_f32(x, 1), op_i64(y, 2), 0, 1},
                 {op_f32(x, 2), op_i64(y, 2), 1, 1}};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        op_case c = {.name = "Pow",
                     .version = 13,
                     .in = {forms[f].base, forms[f].exponent},
                     .in_count = 2,
                     .out_count = 1};
        op_run(device, &c);
        for (int64_t i = 0; i < mp_shape_count(&c.out[0].shape); i++) {
            op_check_close(
                op_real(MP_F32, c.out[0].data, i),
                pow((double)x[i * forms[f].base_step], (double)y[i * forms[f].exponent_step]), 1e-6,
                "Pow", i);
        }
        op_close(device, &c);
    }
}

/* ---- Range ---- */

static op_case range_of(mp_dtype type, const void *three) {
    const size_t size = mp_dtype_size(type);
    op_case c = {.name = "Range", .version = 11, .in_count = 3, .out_count = 1};
    for (int i = 0; i < 3; i++) {
        c.in[i] = op_tensor_of(type, (const char *)three + (size_t)i * size, 0, NULL);
    }
    return c;
}

DEVICE_TEST(range_counts) {
    static const struct {
        double start, limit, delta;
        int64_t count;
    } forms[] = {{0, 5, 1, 5}, {2, 11, 3, 3},       {10, 4, -2, 3}, {3, 3, 1, 0},
                 {5, 0, 1, 0}, {-100, 100, 1, 200}, {0, 7, 10, 1},  {7, -8, -5, 3}};
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        const mp_dtype type = op_types[t];
        for (size_t f = 0; f < MP_COUNT_OF(forms) && (op_types_of("Range", 11) & MP_BIT(type)) != 0;
             f++) {
            double three[3];
            op_store_real(type, three, 0, forms[f].start);
            op_store_real(type, three, 1, forms[f].limit);
            op_store_real(type, three, 2, forms[f].delta);
            op_case c = range_of(type, three);
            op_run(device, &c);
            CHECK_EQ_INT(c.out[0].shape.rank, 1);
            CHECK_EQ_INT(c.out[0].shape.dim[0], forms[f].count);
            for (int64_t i = 0; i < forms[f].count; i++) {
                op_check_close(op_real(type, c.out[0].data, i),
                               forms[f].start + (double)i * forms[f].delta, 0, "Range", i);
            }
            op_close(device, &c);
        }
    }
}

DEVICE_TEST(range_of_fractions_and_to_the_ends) {
    const float parts[] = {0.5f, 2.0f, 0.4f};
    op_case c = range_of(MP_F32, parts);
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[0], 4);
    op_check_close(op_real(MP_F32, c.out[0].data, 3), 1.7, 1e-6, "Range", 3);
    op_close(device, &c);
    const int64_t far[] = {INT64_MIN, INT64_MAX, INT64_MAX};
    c = range_of(MP_I64, far);
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[0], 3);
    CHECK_EQ_INT(op_whole(MP_I64, c.out[0].data, 2), INT64_MAX - 1);
    op_close(device, &c);
}

DEVICE_TEST(range_refuses_what_has_no_end) {
    const int32_t still[] = {0, 5, 0};
    const float lost[] = {0, INFINITY, 1};
    const float nan[] = {0, NAN, 1};
    const int64_t vast[] = {INT64_MIN, INT64_MAX, 1};
    mp_plan *plan = NULL;
    op_case c = range_of(MP_I32, still);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "in steps of 0 has no end");
    c = range_of(MP_F32, lost);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "has no end");
    c = range_of(MP_F32, nan);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "has no end");
    c = range_of(MP_I64, vast);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "too many");
    c.in[0] = op_i64(vast, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "start must be a scalar");
}
