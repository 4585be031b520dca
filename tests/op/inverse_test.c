/* inverse_test.c - Inverse: the product with the matrix is the unit matrix, for matrices that fit
 * shared memory and that do not, and for many of them; and what has no inverse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* Elements that are small beside those on the diagonal, whose row is another one. */
static void *matrices(mp_dtype type, int64_t count, int64_t side) {
    void *x = op_memory(type, count * side * side);
    for (int64_t e = 0; e < count * side * side; e++) {
        const int64_t row = e / side % side, column = e % side;
        const double small = (double)op_value(7, e) / 4;
        const bool large = row == (column * 3 + 1) % side || side == 1;
        op_store_real(type, x, e, large ? small + (double)side : small);
    }
    return x;
}

static void check(mp_device *device, mp_dtype type, int64_t count, int64_t side, int32_t align) {
    void *x = matrices(type, count, side);
    op_case c = {.domain = "com.microsoft",
                 .name = "Inverse",
                 .version = 1,
                 .align = align,
                 .skew = align == 1 ? (uint32_t)mp_dtype_size(type) : 0,
                 .in = {OP_TENSOR(type, x, count, side, side)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    const double bound = (double)side * op_precision(type);
    for (int64_t e = 0; e < count * side * side; e++) {
        const int64_t matrix = e / side / side, row = e / side % side, column = e % side;
        double sum = 0;
        for (int64_t k = 0; k < side; k++) {
            sum += op_real(type, x, (matrix * side + row) * side + k) *
                   op_real(type, c.out[0].data, (matrix * side + k) * side + column);
        }
        op_check_close(sum, row == column ? 1 : 0, bound, "unit matrix", e);
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(inverse_times_matrix_is_the_unit_matrix) {
    const int64_t sides[] = {1, 2, 4, 5, 31, 70}; /* none has the factor 3 */
    for (size_t k = 0; k < MP_COUNT_OF(sides); k++) {
        check(device, MP_F32, 3, sides[k], 16);
        check(device, MP_F64, 3, sides[k], 1);
        check(device, MP_F16, 2, sides[k], 1);
    }
    check(device, MP_F32, 300, 4, 16);
    check(device, MP_F32, 2, 113, 16); /* beyond 48 KB */
    check(device, MP_F64, 9, 80, 16);
}

DEVICE_TEST(inverse_of_what_has_none_is_no_number) {
    const float x[3][4] = {{1, 2, 2, 4}, {2, 0, 0, 4}, {0, 0, 0, 0}};
    op_case c = {.domain = "com.microsoft",
                 .name = "Inverse",
                 .version = 1,
                 .in = {op_f32(x, 3, 2, 2)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    const float *out = c.out[0].data;
    for (int i = 0; i < 4; i++) {
        CHECK(isnan(out[i]) && isnan(out[8 + i]));
        op_check_close((double)out[4 + i], i == 0 ? 0.5 : i == 3 ? 0.25 : 0, 0, "beside it", i);
    }
    op_close(device, &c);
}

DEVICE_TEST(inverse_refuses_what_is_not_square) {
    const float x[12] = {0};
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "Inverse",
                 .version = 1,
                 .in = {op_f32(x, 3, 4)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "X of shape 3x4; square matrices");
    c.in[0] = op_f32(x, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "X of shape 4; square matrices");
    c.in[0] = op_f32(x, 0, 50000, 50000);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "at most 46340 rows");
}
