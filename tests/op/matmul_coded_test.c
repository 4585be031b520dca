/* matmul_coded_test.c - products with weights of float8 on tensors that are not aligned, and what
 * the operators with coded weights refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"
#include "op/pointwise/narrow.h"

#include <math.h>
#include <stdlib.h>

static void check(mp_device *device, int64_t m, int64_t k, int64_t n, int64_t block,
                  uint32_t skew) {
    const int64_t blocks = (k - 1) / block + 1;
    void *a = op_numbers(MP_F16, 1, m * k);
    uint8_t *weight = malloc((size_t)(n * k));
    float *scale = malloc((size_t)(n * blocks) * sizeof *scale);
    CHECK(weight != NULL && scale != NULL);
    for (int64_t i = 0; i < n * k; i++) {
        weight[i] = (uint8_t)((i * 37 + 11) % 120 + (i % 3 == 0 ? 128 : 0));
    }
    for (int64_t i = 0; i < n * blocks; i++) {
        scale[i] = 0.125F * (float)(1 + i % 3);
    }
    const mp_attr attrs[] = {OP_INT("block_size", block)};
    op_case c = {.domain = "com.microsoft",
                 .name = "MatMulBlockQuantizedFp8Weight",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {OP_TENSOR(MP_F16, a, m, k), OP_TENSOR(MP_F8E4M3FN, weight, n, k),
                        op_f32(scale, n, blocks)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0, size = 0;
        for (int64_t at = 0; at < k; at++) {
            const double term = op_real(MP_F16, a, i / n * k + at) *
                                (double)mp_narrow_value(MP_F8E4M3FN, weight[i % n * k + at]) *
                                (double)scale[i % n * blocks + at / block];
            sum += term;
            size += fabs(term);
        }
        if (!(fabs(op_real(MP_F16, c.out[0].data, i) - sum) <= size * op_precision(MP_F16) * 2)) {
            test_fail(__FILE__, __LINE__, "element %lld is %g, not %g", (long long)i,
                      op_real(MP_F16, c.out[0].data, i), sum);
        }
    }
    op_close(device, &c);
    free(a);
    free(weight);
    free(scale);
}

DEVICE_TEST(coded_products_of_float8) {
    check(device, 1, 64, 9, 32, 0);
    check(device, 20, 64, 9, 32, 0);
    check(device, 3, 64, 9, 32, 2);
    check(device, 20, 64, 9, 32, 2);
    check(device, 3, 77, 5, 24, 0);
    check(device, 20, 77, 5, 1000, 2);
}

TEST(coded_values_of_narrow_floats) {
    CHECK(mp_narrow_value(MP_F4E2M1, 1) == 0.5F && mp_narrow_value(MP_F4E2M1, 15) == -6.0F);
    CHECK(mp_narrow_value(MP_F8E4M3FN, 1) == 0x1p-9F);
    CHECK(mp_narrow_value(MP_F8E4M3FN, 0xfe) == -448.0F &&
          isnan(mp_narrow_value(MP_F8E4M3FN, 0x7f)));
    CHECK(mp_narrow_value(MP_F8E5M2, 0x7c) == INFINITY && isnan(mp_narrow_value(MP_F8E5M2, 0xfd)));
    CHECK(isnan(mp_narrow_value(MP_F8E5M2FNUZ, 0x80)));
}

/* ---- refused ---- */

static void refused(mp_device *device, const op_case *c, const char *says) {
    mp_plan *plan = NULL;
    CHECK(op_plan(device, c, &plan) != MP_OK);
    CHECK_STR_HAS(mp_error_message(), says);
}

DEVICE_TEST(coded_refuses_what_does_not_fit) {
    static const float x[256] = {0};
    static const struct {
        int64_t k, kind, block, absmax;
        const char *says;
    } bnb[] = {{32, 2, 16, 4, "quant_type is 2"},
               {32, 1, 24, 4, "block_size is 24"},
               {16, 1, 16, 4, "does not go with weights for K = 16"},
               {32, 1, 16, 5, "absmax of shape 5"}};
    for (size_t i = 0; i < MP_COUNT_OF(bnb); i++) {
        const mp_attr attrs[] = {OP_INT("K", bnb[i].k), OP_INT("N", 2),
                                 OP_INT("quant_type", bnb[i].kind),
                                 OP_INT("block_size", bnb[i].block)};
        const op_case c = {
            .domain = "com.microsoft",
            .name = "MatMulBnb4",
            .version = 1,
            .attrs = attrs,
            .attr_count = 4,
            .in = {op_f32(x, 1, 32), OP_TENSOR(MP_U8, x, 32), op_f32(x, bnb[i].absmax)},
            .in_count = 3,
            .out_count = 1};
        refused(device, &c, bnb[i].says);
    }
    static const struct {
        int64_t k, block, scales;
        const char *says;
    } fp8[] = {{16, 16, 1, "does not go with float8e4m3fn weights"},
               {32, 12, 3, "blocks of 12 of 32 weights"},
               {32, 0, 1, "blocks of 0"},
               {32, 16, 3, "scales of shape 2x3"}};
    for (size_t i = 0; i < MP_COUNT_OF(fp8); i++) {
        const mp_attr attrs[] = {OP_INT("block_size", fp8[i].block)};
        const op_case c = {.domain = "com.microsoft",
                           .name = "MatMulBlockQuantizedFp8Weight",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 1,
                           .in = {OP_TENSOR(MP_F16, x, 1, fp8[i].k),
                                  OP_TENSOR(MP_F8E4M3FN, x, 2, 32), op_f32(x, 2, fp8[i].scales)},
                           .in_count = 3,
                           .out_count = 1};
        refused(device, &c, fp8[i].says);
    }
}
