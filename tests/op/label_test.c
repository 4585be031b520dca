/* label_test.c - LabelEncoder against a search from the front: every type of keys with every type
 * of values, lists and tensors, labels that are not there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static const mp_dtype types[] = {MP_F32, MP_F64, MP_I16, MP_I32, MP_I64};

static op_case label_case(const mp_attr *attrs, size_t attr_count, op_tensor x) {
    return (op_case){.domain = "ai.onnx.ml",
                     .name = "LabelEncoder",
                     .version = 4,
                     .attrs = attrs,
                     .attr_count = attr_count,
                     .in = {x},
                     .in_count = 1,
                     .out_count = 1};
}

/* A tensor attribute over host memory. */
static mp_attr tensor_attr(const char *name, mp_dtype type, const void *data, int64_t count) {
    return (mp_attr){
        .name = name,
        .kind = MP_ATTR_TENSOR,
        .tensor = {.type = type, .shape = {.rank = 1, .dim = {count}}, .data = (mp_addr)data}};
}

/* Distinct keys in no order, negative ones too; the last ones are the least and the largest. */
static void *make_keys(mp_dtype type, int64_t count) {
    void *keys = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t key = i * 37 % 1009 - 504;
        if (op_is_float(type)) {
            op_store_real(type, keys, i, (double)key * 0.25);
        } else {
            op_store_whole(type, keys, i, key);
        }
    }
    if (!op_is_float(type) && count > 2) {
        const int bits = (int)mp_dtype_size(type) * 8;
        op_store_whole(type, keys, count - 1, INT64_MIN >> (64 - bits));
        op_store_whole(type, keys, count - 2, INT64_MAX >> (64 - bits));
    }
    return keys;
}

static bool same_value(mp_dtype type, const void *a, int64_t i, const void *b, int64_t j) {
    const size_t size = mp_dtype_size(type);
    return memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)j * size, size) ==
           0;
}

/* Every other key is asked for, and each with something that is no key behind it. */
static void check_table(mp_device *device, mp_dtype from, mp_dtype to, int64_t entries,
                        bool with_default) {
    const int64_t count = entries + 3;
    void *keys = make_keys(from, entries);
    void *values = op_numbers(to, 9, entries);
    void *fallback = op_memory(to, 1);
    void *x = make_keys(from, count);
    if (op_is_float(to)) {
        op_store_real(to, fallback, 0, with_default ? 6.5 : -0.0);
    } else {
        op_store_whole(to, fallback, 0, with_default ? 77 : -1);
    }
    for (int64_t i = 0; i < count; i += 3) {
        if (op_is_float(from)) {
            op_store_real(from, x, i, 1000.5 + (double)i);
        } else {
            op_store_whole(from, x, i, 2000 + i);
        }
    }
    const mp_attr attrs[] = {tensor_attr("keys_tensor", from, keys, entries),
                             tensor_attr("values_tensor", to, values, entries),
                             tensor_attr("default_tensor", to, fallback, 1)};
    op_case c = label_case(attrs, with_default ? 3 : 2, OP_TENSOR(from, x, count));
    c.align = 1;
    c.skew = sizeof(int64_t); /* the largest element; each tensor begins there */
    op_run(device, &c);
    CHECK(c.out[0].type == to);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        while (at < entries && !same_value(from, keys, at, x, i)) {
            at++;
        }
        CHECK(same_value(to, c.out[0].data, i, at < entries ? values : fallback,
                         at < entries ? at : 0));
    }
    op_close(device, &c);
    free(x);
    free(fallback);
    free(values);
    free(keys);
}

DEVICE_TEST(labels_of_every_type) {
    static const int64_t entries[] = {0, 1, 7, 700};
    for (size_t from = 0; from < MP_COUNT_OF(types); from++) {
        for (size_t to = 0; to < MP_COUNT_OF(types); to++) {
            for (size_t i = 0; i < MP_COUNT_OF(entries); i++) {
                check_table(device, types[from], types[to], entries[i], (from + to + i) % 2 == 0);
            }
        }
    }
}

/* What is not a number is found, whatever its bits, and zeros have no sign. */
DEVICE_TEST(labels_of_odd_floats) {
    const float keys[] = {NAN, 0.0F, INFINITY, -INFINITY};
    const double wide_keys[] = {(double)NAN, -0.0, (double)INFINITY, -(double)INFINITY};
    const float x[] = {-NAN, -0.0F, 0.0F, -INFINITY, INFINITY, 1};
    const double wide_x[] = {-(double)NAN, -0.0, 0.0, -(double)INFINITY, (double)INFINITY, 1};
    const int64_t want[] = {1, 2, 2, 4, 3, -5};
    for (int wide = 0; wide < 2; wide++) {
        const mp_attr attrs[] = {wide != 0 ? tensor_attr("keys_tensor", MP_F64, wide_keys, 4)
                                           : (mp_attr){.name = "keys_floats",
                                                       .kind = MP_ATTR_FLOATS,
                                                       .floats = keys,
                                                       .count = 4},
                                 OP_INTS("values_int64s", 1, 2, 3, 4), OP_INT("default_int64", -5)};
        op_case c =
            label_case(attrs, 3, wide != 0 ? OP_TENSOR(MP_F64, wide_x, 2, 3) : op_f32(x, 2, 3));
        op_run(device, &c);
        CHECK(op_same(&c.out[0], want));
        CHECK_EQ_INT(c.out[0].shape.rank, 2);
        op_close(device, &c);
    }
}

/* Of equal keys the first counts, as in ONNX Runtime (the schema of version 4 says the last);
 * nothing is asked of an empty tensor. */
DEVICE_TEST(labels_twice_and_none) {
    const int64_t x[] = {2, 1};
    const int64_t want[] = {20, 10};
    const mp_attr attrs[] = {OP_INTS("keys_int64s", 1, 2, 1), OP_INTS("values_int64s", 10, 20, 30)};
    op_case c = label_case(attrs, 2, op_i64(x, 2));
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
    c.in[0] = op_i64(x, 0, 3);
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[1], 3);
    op_close(device, &c);
}

DEVICE_TEST(labels_that_do_not_fit) {
    const int64_t x[] = {1, 2, 3};
    const int32_t narrow[] = {1, 2, 3};
    mp_plan *plan = NULL;
    mp_attr attrs[] = {OP_INTS("keys_int64s", 1, 2, 3), OP_INTS("values_int64s", 1, 2),
                       tensor_attr("default_tensor", MP_I32, narrow, 1)};
    op_case c = label_case(attrs, 2, op_i64(x, 3));
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "3 keys and 2 values");
    c.in[0] = OP_TENSOR(MP_I32, narrow, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "keys of type int64");
    c.in[0] = op_i64(x, 3);
    attrs[1] = (mp_attr)OP_INTS("values_int64s", 1, 2, 3);
    c.attr_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "default_tensor");
    attrs[2] = tensor_attr("default_tensor", MP_I64, x, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "2 elements");
    attrs[1] = tensor_attr("values_tensor", MP_BOOL, narrow, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "values of type bool");
}
