/* constant_test.c - ConstantOfShape with values of every width, and what it refuses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_test.h"

typedef struct value_row {
    mp_dtype type;
    uint64_t bits;
    size_t size;
} value_row;

DEVICE_TEST(constant_of_every_width) {
    static const value_row rows[] = {
        {MP_BOOL, 1, 1},
        {MP_I8, 0xfe, 1},
        {MP_F16, 0xc100, 2},
        {MP_I32, 0x80000001, 4},
        {MP_F32, 0x7fc00000, 4},
        {MP_I64, UINT64_MAX, 8},
        {MP_F64, 0x3fb999999999999a, 8},
    };
    static const int64_t shape[] = {3, 1, 1000};
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const mp_attr value = {.name = "value",
                               .kind = MP_ATTR_TENSOR,
                               .tensor = {.type = rows[i].type,
                                          .shape = {.rank = 1, .dim = {1}},
                                          .data = (mp_addr)&rows[i].bits}};
        op_case c = {.name = "ConstantOfShape", .version = 20, .in_count = 1, .out_count = 1};
        c.attrs = &value;
        c.attr_count = 1;
        c.in[0] = op_i64(shape, 3);
        op_run(device, &c);
        CHECK_EQ_INT(c.out[0].type, rows[i].type);
        CHECK_EQ_INT(c.out[0].shape.dim[2], 1000);
        for (size_t at = 0; at < 3000; at++) {
            const char *out = c.out[0].data;
            CHECK(memcmp(out + at * rows[i].size, &rows[i].bits, rows[i].size) == 0);
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(constant_of_shape_is_zero_by_default) {
    op_case c = {.name = "ConstantOfShape", .version = 9, .in_count = 1, .out_count = 1};
    c.in[0] = op_tensor_of(MP_I64, NULL, 1, (const int64_t[]){0}); /* a scalar */
    c.in[0].data = "";
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].type, MP_F32);
    CHECK_EQ_INT(c.out[0].shape.rank, 0);
    CHECK(*(const float *)c.out[0].data == 0);
    op_close(device, &c);
}

DEVICE_TEST(constant_of_shape_refuses) {
    static const int64_t negative[] = {2, -1}, huge[] = {INT64_MAX / 2, 3};
    static const float two[2];
    const mp_attr value = {
        .name = "value",
        .kind = MP_ATTR_TENSOR,
        .tensor = {.type = MP_F32, .shape = {.rank = 1, .dim = {2}}, .data = (mp_addr)two}};
    mp_plan *plan = NULL;
    op_case c = {.name = "ConstantOfShape", .version = 9, .in_count = 1, .out_count = 1};
    c.in[0] = op_i64(negative, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "-1 at 1");
    c.in[0] = op_i64(huge, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "ConstantOfShape");
    c.attrs = &value;
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "one element");
    op_close(device, &c);
}
