/* matmul_nbits_test.c - MatMulNBits against plain loops, for few rows and many, every type, width
 * and kind of zero point.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct subject {
    int64_t m, k, n;
    int bits, block;
    int zeros; /* 0: none; 1: packed; 2: of A's type */
    bool bias, groups;
    uint32_t skew;
} subject;

/* Weight or zero point `i` of a row that begins at `row`. */
static int packed_at(const uint8_t *row, int bits, int64_t i) {
    return row[i * bits / 8] >> i * bits % 8 & ((1 << bits) - 1);
}

static void check(mp_device *device, const subject *s, mp_dtype type) {
    const int64_t blocks = (s->k - 1) / s->block + 1, blob = s->block * s->bits / 8;
    const int64_t zero_row = (blocks * s->bits + 7) / 8;
    void *a = op_numbers(type, 1, s->m * s->k);
    void *scale = op_memory(type, s->n * blocks);
    void *zero = op_memory(type, s->n * blocks);
    void *bias = op_numbers(type, 4, s->n);
    uint8_t *weight = malloc((size_t)(s->n * blocks * blob) + 1);
    uint8_t *packed = malloc((size_t)(s->n * zero_row) + 1);
    int32_t *group = malloc((size_t)s->k * sizeof *group);
    CHECK(weight != NULL && packed != NULL && group != NULL);
    for (int64_t i = 0; i < s->n * blocks * blob; i++) {
        weight[i] = (uint8_t)(i * 167 + (i >> 5) * 31);
    }
    for (int64_t i = 0; i < s->n * zero_row; i++) {
        packed[i] = (uint8_t)(i * 59 + 5);
    }
    for (int64_t i = 0; i < s->n * blocks; i++) {
        op_store_real(type, scale, i, 0.0625 * (double)(1 + i % 5));
        op_store_real(type, zero, i, 0.25 * (double)(i % 9));
    }
    for (int64_t i = 0; i < s->k; i++) {
        group[i] = (int32_t)((i * 7) % blocks);
    }
    const mp_attr attrs[] = {OP_INT("K", s->k), OP_INT("N", s->n), OP_INT("bits", s->bits),
                             OP_INT("block_size", s->block)};
    op_case c = {.domain = "com.microsoft",
                 .name = "MatMulNBits",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .align = s->skew != 0 ? 1 : 16,
                 .constant = s->m % 2 == 0 ? 0 : 1u << 1 | 1u << 2 | 1u << 3,
                 .skew = s->skew,
                 .in = {OP_TENSOR(type, a, s->m, s->k),
                        OP_TENSOR(MP_U8, weight, s->n, blocks, blob),
                        OP_TENSOR(type, scale, s->n, blocks)},
                 .in_count = 6,
                 .out_count = 1};
    if (s->zeros == 1) {
        c.in[3] = OP_TENSOR(MP_U8, packed, s->n, zero_row);
    } else if (s->zeros == 2) {
        c.in[3] = OP_TENSOR(type, zero, s->n, blocks);
    }
    c.in[4] = s->groups ? OP_TENSOR(MP_I32, group, s->k) : c.in[4];
    c.in[5] = s->bias ? OP_TENSOR(type, bias, s->n) : c.in[5];
    op_run(device, &c);
    CHECK(c.out[0].type == type);
    for (int64_t i = 0; i < s->m * s->n; i++) {
        const int64_t row = i / s->n, column = i % s->n;
        double sum = s->bias ? op_real(type, bias, column) : 0;
        double size = fabs(sum);
        for (int64_t k = 0; k < s->k; k++) {
            const int64_t block = s->groups ? group[k] : k / s->block;
            const int64_t at = column * blocks + block;
            const double z = s->zeros == 0   ? 1 << (s->bits - 1)
                             : s->zeros == 1 ? packed_at(packed + column * zero_row, s->bits, block)
                                             : op_real(type, zero, at);
            const int q = packed_at(weight + column * blocks * blob, s->bits, k);
            const double term =
                op_real(type, a, row * s->k + k) * (q - z) * op_real(type, scale, at);
            sum += term;
            size += fabs(term);
        }
        /* Each weight may have been rounded to the type, and so is the result. */
        const double off = fabs(op_real(type, c.out[0].data, i) - sum);
        if (!(off <= size * op_precision(type) * 2)) {
            test_fail(__FILE__, __LINE__, "element %lld of %s is off by %g of %g", (long long)i,
                      mp_dtype_name(type), off, size);
        }
    }
    op_close(device, &c);
    free(a);
    free(scale);
    free(zero);
    free(bias);
    free(weight);
    free(packed);
    free(group);
}

DEVICE_TEST(nbits_products) {
    static const subject subjects[] = {
        {1, 64, 9, 4, 32, 0, false, false, 0},    {1, 576, 40, 4, 32, 1, true, false, 0},
        {3, 300, 5, 4, 16, 1, false, false, 0},   {5, 300, 5, 8, 64, 1, true, false, 0},
        {6, 99, 3, 4, 32, 2, true, false, 0},     {2, 96, 7, 2, 32, 1, false, false, 0},
        {17, 64, 9, 4, 32, 1, true, false, 0},    {20, 300, 5, 8, 128, 0, false, false, 0},
        {18, 99, 3, 4, 16, 2, true, false, 0},    {40, 96, 7, 2, 16, 1, true, false, 0},
        {2, 96, 7, 4, 32, 1, false, true, 0},     {20, 99, 7, 4, 16, 0, true, true, 0},
        {3, 64, 9, 4, 32, 1, true, false, 4},     {20, 64, 9, 8, 32, 1, true, false, 4},
        {1, 17, 1, 4, 256, 0, false, false, 0},   {4, 1536, 70, 4, 32, 1, true, false, 0},
        {3, 1064, 33, 8, 64, 1, false, false, 0}, {1, 200, 300, 4, 128, 1, false, false, 0},
        {2, 4160, 9, 4, 64, 0, false, false, 0},  {1, 4160, 9, 8, 32, 0, true, false, 0},
        {4, 8192, 3, 4, 32, 1, false, false, 0}, /* more than a block holds of A, in float */
    };
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects); i++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            check(device, &subjects[i], types[t]);
        }
    }
}

DEVICE_TEST(nbits_refuses_what_does_not_fit) {
    const float x[64] = {0};
    static const struct {
        int64_t k, bits, block;
        const char *says;
    } wrong[] = {{32, 3, 16, "weights of 3 bits"},
                 {32, 4, 24, "block_size is 24"},
                 {32, 4, 8, "block_size is 8"},
                 {16, 4, 16, "does not go with weights for K = 16"},
                 {32, 8, 16, "weights of shape 1x2x8"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("K", wrong[i].k), OP_INT("N", 1),
                                 OP_INT("bits", wrong[i].bits),
                                 OP_INT("block_size", wrong[i].block)};
        mp_plan *plan = NULL;
        const op_case c = {.domain = "com.microsoft",
                           .name = "MatMulNBits",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 4,
                           .in = {op_f32(x, 1, 32), OP_TENSOR(MP_U8, x, 1, 2, 8), op_f32(x, 1, 2)},
                           .in_count = 3,
                           .out_count = 1};
        CHECK(op_plan(device, &c, &plan) != MP_OK);
        CHECK_STR_HAS(mp_error_message(), wrong[i].says);
    }
}
