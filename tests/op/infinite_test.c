/* infinite_test.c - sums of halves, whether any of them is infinite, and what is kept between two
 * numbers by that, and normalised.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/row_args.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* Whether a byte says so; all bytes are 0 or 1. */
static bool any_found(const op_tensor *found) {
    const uint8_t *byte = found->data;
    bool any = false;
    CHECK_EQ_INT(mp_shape_count(&found->shape), K_FOUND_PIECES);
    for (int i = 0; i < K_FOUND_PIECES; i++) {
        CHECK(byte[i] <= 1);
        any = any || byte[i] != 0;
    }
    return any;
}

/* `at`: the element of x that is to be `value`; none where it is negative. `off`: tensors that are
 * not aligned. */
static void check_sum(mp_device *device, const mp_shape *shape, const mp_shape *more_shape,
                      int64_t at, double value, bool off) {
    const int64_t count = mp_shape_count(shape);
    void *x = op_numbers(MP_F16, 1, count + 1);
    void *more = op_numbers(MP_F16, 2, mp_shape_count(more_shape) + 1);
    bool want = false;
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "SumInfinite",
                 .version = 1,
                 .align = off ? 1 : 16,
                 .skew = off ? 2 : 0,
                 .in = {{MP_F16, *shape, x}, {MP_F16, *more_shape, more}},
                 .in_count = 2,
                 .out_count = 2};
    if (at >= 0) {
        op_store_real(MP_F16, x, at, value);
        op_store_real(MP_F16, more, op_place(shape, more_shape, at), fabs(value) > 1e4 ? value : 0);
    }
    op_run(device, &c);
    for (int64_t i = 0; i < count; i++) {
        const double sum = op_rounded(
            MP_F16, op_real(MP_F16, x, i) + op_real(MP_F16, more, op_place(shape, more_shape, i)));
        op_check_close(op_real(MP_F16, c.out[1].data, i), sum, 0, "sum", i);
        want = want || isinf(sum);
    }
    CHECK_EQ_INT(any_found(&c.out[0]), want);
    CHECK_EQ_INT(want, at >= 0 && !isnan(value) && fabs(value) > 4e4);
    op_close(device, &c);
    free(x);
    free(more);
}

DEVICE_TEST(sum_finds_what_is_infinite) {
    const mp_shape shapes[] = {{.rank = 2, .dim = {1, 1}},    {.rank = 2, .dim = {3, 7}},
                               {.rank = 2, .dim = {128, 64}}, {.rank = 3, .dim = {2, 33, 130}},
                               {.rank = 2, .dim = {70, 999}}, {.rank = 3, .dim = {1, 300, 512}}};
    const double values[] = {(double)INFINITY, (double)-INFINITY, 65504, -50000, 20000,
                             (double)NAN};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t count = mp_shape_count(&shapes[i]);
        for (int off = 0; off < 2; off++) {
            check_sum(device, &shapes[i], &shapes[i], -1, 0, off != 0);
            check_sum(device, &shapes[i], &shapes[i], 0, values[i], off != 0);
            check_sum(device, &shapes[i], &shapes[i], count - 1, (double)INFINITY, off != 0);
            check_sum(device, &shapes[i], &shapes[i], count / 2, values[i], off != 0);
        }
    }
}

DEVICE_TEST(sum_finds_nothing_in_nothing_and_adds_what_broadcasts) {
    const mp_shape none = {.rank = 2, .dim = {0, 8}}, wide = {.rank = 3, .dim = {2, 5, 24}};
    const mp_shape one = {.rank = 3, .dim = {1, 5, 24}};
    check_sum(device, &none, &none, -1, 0, false);
    check_sum(device, &wide, &one, -1, 0, false);
    check_sum(device, &wide, &one, 200, (double)-INFINITY, false);
}

/* `found`: which byte is 1, none where it is negative; `held`: whether what is normalised is asked
 * for, too. */
static void check_held(mp_device *device, int64_t rows, int64_t columns, int found, bool held,
                       bool off) {
    const int64_t count = rows * columns;
    uint8_t bytes[K_FOUND_PIECES] = {0};
    void *x = op_numbers(MP_F16, 3, count + 1), *scale = op_numbers(MP_F16, 4, columns);
    double most = 4;
    const mp_attr attrs[] = {OP_FLOAT("epsilon", 0.01f), OP_FLOAT("most", 4.0f),
                             OP_FLOAT("most_found", 1.5f)};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "HeldRMSNormalization",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .align = off ? 1 : 16,
                 .in = {OP_TENSOR(MP_F16, x, 1, rows, columns),
                        OP_TENSOR(MP_BOOL, bytes, K_FOUND_PIECES),
                        OP_TENSOR(MP_F16, scale, columns)},
                 .in_count = 3,
                 .out_count = held ? 2 : 1};
    if (found >= 0) {
        bytes[found] = 1;
        most = 1.5;
    }
    for (int64_t r = 0; r < rows; r++) {
        op_store_real(MP_F16, x, r * columns, r % 2 == 0 ? (double)INFINITY : -9);
    }
    op_run(device, &c);
    for (int64_t r = 0; r < rows; r++) {
        double squares = 0;
        for (int64_t i = r * columns; i < (r + 1) * columns; i++) {
            squares += pow(fmax(fmin(op_real(MP_F16, x, i), most), -most), 2) / (double)columns;
        }
        for (int64_t i = r * columns; i < (r + 1) * columns; i++) {
            const double kept = fmax(fmin(op_real(MP_F16, x, i), most), -most);
            const double want = kept / sqrt(squares + 0.01) * op_real(MP_F16, scale, i % columns);
            op_check_close(op_real(MP_F16, c.out[0].data, i), want, op_precision(MP_F16), "normed",
                           i);
            if (held) {
                op_check_close(op_real(MP_F16, c.out[1].data, i), kept, 0, "held", i);
            }
        }
    }
    op_close(device, &c);
    free(x);
    free(scale);
}

DEVICE_TEST(rows_are_held_and_normalised) {
    const int64_t columns[] = {8, 64, 65, 512, 1032, 13000};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        check_held(device, 5, columns[i], -1, true, false);
        check_held(device, 5, columns[i], 0, true, false);
        check_held(device, 5, columns[i], K_FOUND_PIECES - 1, false, false);
        check_held(device, 3, columns[i], 77, true, true);
    }
    check_held(device, 0, 64, 1, true, false);
}

DEVICE_TEST(held_rows_refuse_what_does_not_fit) {
    const uint8_t bytes[K_FOUND_PIECES] = {0};
    const uint16_t x[24] = {0};
    mp_plan *plan = NULL;
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "HeldRMSNormalization",
                 .version = 1,
                 .in = {OP_TENSOR(MP_F16, x, 2, 12), OP_TENSOR(MP_BOOL, bytes, K_FOUND_PIECES),
                        OP_TENSOR(MP_F16, x, 2)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "with a scale of shape 2");
    c.in[2] = OP_TENSOR(MP_F16, x, 12);
    c.in[1] = OP_TENSOR(MP_BOOL, bytes, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "rows of shape 2x12");
}
