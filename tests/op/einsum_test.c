/* einsum_test.c - equations that are none or do not fit, and a few against loops in every mode of
 * the device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

static void check_fails(mp_device *device, const char *equation, const char *sentence) {
    const float x[64] = {0};
    const mp_attr attrs[] = {OP_TEXT("equation", equation)};
    mp_plan *plan = NULL;
    const op_case c = {.name = "Einsum",
                       .version = 12,
                       .attrs = attrs,
                       .attr_count = 1,
                       .in = {op_f32(x, 2, 3), op_f32(x, 3, 4)},
                       .in_count = 2,
                       .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, sentence);
}

DEVICE_TEST(einsum_refuses_what_is_no_equation) {
    check_fails(device, "", "names 0 dimensions of an input of shape 2x3");
    check_fails(device, "ij", "has fewer terms than there are inputs");
    check_fails(device, "ij->ij", "has fewer terms than there are inputs");
    check_fails(device, "ij,jk,kl->il", "has more terms than there are inputs");
    check_fails(device, "ij,kk->ij", "gives one letter the sizes 3 and 4");
    check_fails(device, "ij,ik->j", "gives one letter the sizes 2 and 3");
    check_fails(device, "ijk,jk->i", "names 3 dimensions of an input of shape 2x3");
    check_fails(device, "i...j...,jk->i", "two ellipses in one input");
    check_fails(device, "ij,jk->ii", "twice in its output");
    check_fails(device, "ij,jk->......", "twice in its output");
    check_fails(device, "ij,jk->iz", "a letter in its output that no input has");
    check_fails(device, "...j,jk->k", "an ellipsis in an input and none in its output");
    check_fails(device, "i1,jk->i", "something else than letters");
    check_fails(device, "ij,jk->i->k", "something else than letters");
    check_fails(device, "ij-,jk", "something else than letters");
    check_fails(device, "i.j,jk", "something else than letters");
    check_fails(device, "abcdefghijklmnopqrstuvwx,jk->a",
                "names more dimensions than an input has");
}

DEVICE_TEST(einsum_of_matrices_of_a_batch_turned) {
    enum { B = 3, I = 5, J = 7, K = 4 };
    float *x = op_numbers(MP_F32, 1, (int64_t)B * I * J),
          *y = op_numbers(MP_F32, 2, (int64_t)B * J * K);
    const mp_attr attrs[] = {OP_TEXT("equation", "ibj,jkb->kbi")};
    op_case c = {.name = "Einsum",
                 .version = 12,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, I, B, J), op_f32(y, J, K, B)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t at = 0; at < (int64_t)K * B * I; at++) {
        const int64_t k = at / (B * I), b = at / I % B, i = at % I;
        double sum = 0;
        for (int64_t j = 0; j < J; j++) {
            sum += (double)x[(i * B + b) * J + j] * (double)y[(j * K + k) * B + b];
        }
        op_check_close((double)((const float *)c.out[0].data)[at], sum, 1e-5, "einsum", at);
    }
    op_close(device, &c);
    free(x);
    free(y);
}

/* NumPy takes ellipses of different lengths, and a size of one for any. */
DEVICE_TEST(einsum_spreads_ellipses) {
    const float x[] = {1, 2, 3}, y[] = {10, 20, 30, 40};
    const mp_attr attrs[] = {OP_TEXT("equation", "...i,...i->...")};
    op_case c = {.name = "Einsum",
                 .version = 12,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 3), op_f32(y, 2, 2, 1)},
                 .in_count = 2,
                 .out_count = 1};
    const float want[] = {60, 120, 180, 240};
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
}
