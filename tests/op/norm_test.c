/* norm_test.c - normalisation of channels, groups, chosen dimensions and sums against loops, with
 * rows shared by a few lanes, by a block and by several blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct moments {
    double mean, deviation;
} moments;

/* Of those elements of `x` whose entry in `row` is `which`. */
static moments moments_of(const float *x, const int64_t *row, int64_t count, int64_t which) {
    double sum = 0, squares = 0, mine = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += row[i] == which ? (double)x[i] : 0;
        mine += row[i] == which;
    }
    for (int64_t i = 0; i < count; i++) {
        squares += row[i] == which ? pow((double)x[i] - sum / mine, 2) : 0;
    }
    return (moments){sum / mine, sqrt(squares / mine)};
}

static void check(const op_case *c, const float *x, const int64_t *row, int64_t rows,
                  const int64_t *scale_at, const float *scale, const float *bias, double epsilon) {
    const int64_t count = mp_shape_count(&c->out[0].shape);
    for (int64_t r = 0; r < rows; r++) {
        const moments m = moments_of(x, row, count, r);
        for (int64_t i = 0; i < count; i++) {
            const double normal =
                ((double)x[i] - m.mean) / sqrt(m.deviation * m.deviation + epsilon);
            const double want =
                scale == NULL ? normal
                              : normal * (double)scale[scale_at[i]] + (double)bias[scale_at[i]];
            if (row[i] == r) {
                op_check_close((double)((const float *)c->out[0].data)[i], want, 2e-5, c->name, i);
            }
        }
    }
}

/* Channels C in `groups` groups; version 18 has a scale a group, 21 a scale a channel. */
static void check_channels(mp_device *device, const char *name, int version, int64_t groups,
                           int64_t channels, int64_t inner, int32_t align) {
    enum { N = 2 };
    const int64_t count = N * channels * inner;
    const bool by_group = version == 18;
    const int64_t scales = by_group ? groups : channels;
    float *x = op_numbers(MP_F32, 1, count), *scale = op_numbers(MP_F32, 2, scales),
          *bias = op_numbers(MP_F32, 3, scales);
    int64_t *row = calloc((size_t)count, sizeof *row), *at = calloc((size_t)count, sizeof *at);
    for (int64_t i = 0; i < count; i++) {
        const int64_t channel = i / inner % channels, group = channel / (channels / groups);
        row[i] = i / (channels * inner) * groups + group;
        at[i] = by_group ? group : channel;
    }
    const mp_attr attrs[] = {OP_INT("num_groups", groups), OP_FLOAT("epsilon", 0.01f)};
    op_case c = {.name = name,
                 .version = version,
                 .attrs = attrs,
                 .attr_count = 2,
                 .align = align,
                 .skew = align == 1 ? 4 : 0,
                 .in = {op_f32(x, N, channels, inner), op_f32(scale, scales), op_f32(bias, scales)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    check(&c, x, row, N * groups, at, scale, bias, 0.01);
    op_close(device, &c);
    free(x);
    free(scale);
    free(bias);
    free(row);
    free(at);
}

DEVICE_TEST(norm_of_channels_and_groups) {
    const int64_t inner[] = {1, 3, 8, 60, 1000, 9000, 16384, 40001};
    for (int k = 0; k < 8; k++) {
        for (int32_t align = 1; align <= 16; align += 15) {
            check_channels(device, "InstanceNormalization", 6, 4, 4, inner[k], align);
            check_channels(device, "GroupNormalization", 18, 2, 4, inner[k], align);
            check_channels(device, "GroupNormalization", 21, 2, 4, inner[k], align);
        }
    }
}

DEVICE_TEST(norm_of_chosen_dimensions) {
    enum { A = 3, B = 4, C = 5, COUNT = A * B * C };
    float *x = op_numbers(MP_F32, 4, COUNT);
    int64_t row[COUNT];
    const mp_attr attrs[] = {OP_INTS("axes", 0, -1)};
    op_case c = {.name = "MeanVarianceNormalization",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, A, B, C)},
                 .in_count = 1,
                 .out_count = 1};
    for (int64_t i = 0; i < COUNT; i++) {
        row[i] = i / C % B;
    }
    op_run(device, &c);
    check(&c, x, row, B, NULL, NULL, NULL, 0);
    op_close(device, &c);
    free(x);
}

/* x and a skip that is repeated, and the sum as a further output; rows of `h`. */
static void check_sum(mp_device *device, int64_t h) {
    enum { N = 2, S = 3 };
    const int64_t count = N * S * h;
    float *x = op_numbers(MP_F32, 5, count), *skip = op_numbers(MP_F32, 6, S * h),
          *gamma = op_numbers(MP_F32, 7, h), *beta = op_numbers(MP_F32, 8, h),
          *bias = op_numbers(MP_F32, 9, h);
    float *sum = calloc((size_t)count, sizeof *sum);
    int64_t *row = calloc((size_t)count, sizeof *row), *at = calloc((size_t)count, sizeof *at);
    const mp_attr attrs[] = {OP_FLOAT("epsilon", 0.01f)};
    op_case c = {.domain = "com.microsoft",
                 .name = "SkipLayerNormalization",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, N, S, h), op_f32(skip, S, h), op_f32(gamma, h), op_f32(beta, h),
                        op_f32(bias, h)},
                 .in_count = 5,
                 .out_count = 4};
    for (int64_t i = 0; i < count; i++) {
        sum[i] = x[i] + skip[i % (S * h)] + bias[i % h];
        row[i] = i / h;
        at[i] = i % h;
    }
    op_run(device, &c);
    check(&c, sum, row, N * S, at, gamma, beta, 0.01);
    CHECK(op_same(&c.out[3], sum));
    op_close(device, &c);
    free(x);
    free(skip);
    free(gamma);
    free(beta);
    free(bias);
    free(sum);
    free(row);
    free(at);
}

DEVICE_TEST(norm_of_a_sum) {
    const int64_t columns[] = {40, 41, 300, 515, 1027, 9001};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        check_sum(device, columns[i]);
    }
}

/* Three tensors that are added, of the operators that the compiler makes; the third has `rows` of
 * them, which are repeated where that is less. With no rows it is one that the second is multiplied
 * by instead. */
static void check_sum_of_three(mp_device *device, mp_dtype type, int64_t h, int64_t rows,
                               bool centred) {
    enum { N = 2, S = 3 };
    const int64_t count = N * S * h;
    void *x = op_numbers(type, 5, count), *skip = op_numbers(type, 6, count),
         *third = op_numbers(type, 7, count), *gamma = op_numbers(type, 8, h);
    const mp_attr attrs[] = {OP_FLOAT("epsilon", 0.01f), OP_INT("scaled", 1)};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = centred ? "SkipLayerNormalization" : "SkipSimplifiedLayerNormalization",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = rows == 0 ? 2 : 1,
                 .in = {OP_TENSOR(type, x, N, S, h), OP_TENSOR(type, skip, N, S, h),
                        OP_TENSOR(type, gamma, h), OP_TENSOR(type, third, rows / S, S, h)},
                 .in_count = 4,
                 .out_count = 4,
                 .out_absent = 6};
    if (rows == 0) {
        c.in[3] = OP_TENSOR(type, third, h);
    }
    if (centred) {
        c.in[4] = c.in[3];
        c.in[3] = (op_tensor){.type = MP_NONE};
        c.in_count = 5;
    }
    op_run(device, &c);
    for (int64_t r = 0; r < (int64_t)N * S; r++) {
        double mean = 0, squares = 0;
        for (int pass = 0; pass < 3; pass++) {
            for (int64_t i = r * h; i < (r + 1) * h; i++) {
                const double other = op_real(type, skip, i);
                const double v = op_real(type, x, i) +
                                 (rows == 0 ? other * op_real(type, third, i % h)
                                            : other + op_real(type, third, i % (rows * h)));
                if (pass == 0) {
                    mean += centred ? v / (double)h : 0;
                } else if (pass == 1) {
                    squares += (v - mean) * (v - mean) / (double)h;
                } else {
                    const double want =
                        (v - mean) / sqrt(squares + 0.01) * op_real(type, gamma, i % h);
                    op_check_close(op_real(type, c.out[0].data, i), want,
                                   2 * op_precision(type) + 1e-5, "normed", i);
                    op_check_close(op_real(type, c.out[3].data, i), v, op_precision(type), "sum",
                                   i);
                }
            }
        }
    }
    op_close(device, &c);
    free(x);
    free(skip);
    free(third);
    free(gamma);
}

DEVICE_TEST(norm_of_a_sum_of_three) {
    const int64_t columns[] = {40, 41, 300, 515, 1024, 9001, 13000};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        for (int centred = 0; centred < 2; centred++) {
            check_sum_of_three(device, MP_F32, columns[i], 6, centred != 0);
            check_sum_of_three(device, MP_F16, columns[i], 6, centred != 0);
            check_sum_of_three(device, MP_F32, columns[i], 0, centred != 0);
            check_sum_of_three(device, MP_F16, columns[i], 0, centred != 0);
        }
    }
    check_sum_of_three(device, MP_BF16, 64, 0, true);
    check_sum_of_three(device, MP_BF16, 64, 6, true);
    check_sum_of_three(device, MP_F32, 40, 3, true);
    check_sum_of_three(device, MP_F32, 40, 3, false);
}

/* The scale's type is that of the result; the statistics are of float. */
static void check_mixed(mp_device *device, mp_dtype type, mp_dtype out_type, int64_t columns) {
    enum { ROWS = 3 };
    void *x = op_numbers(type, 10, ROWS * columns), *scale = op_numbers(out_type, 11, columns);
    op_case c = {.name = "SimplifiedLayerNormalization",
                 .version = 1,
                 .in = {OP_TENSOR(type, x, ROWS, columns), OP_TENSOR(out_type, scale, columns)},
                 .in_count = 2,
                 .out_count = 2};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].type, out_type);
    CHECK_EQ_INT(c.out[1].type, MP_F32);
    for (int64_t r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int64_t k = 0; k < columns; k++) {
            squares += pow(op_real(type, x, r * columns + k), 2) / (double)columns;
        }
        const double inverse = 1 / sqrt(squares + 1e-5);
        op_check_close(op_real(MP_F32, c.out[1].data, r), inverse, 1e-5, "inverse", r);
        for (int64_t i = r * columns; i < (r + 1) * columns; i++) {
            const double want =
                op_real(type, x, i) * inverse * op_real(out_type, scale, i % columns);
            op_check_close(op_real(out_type, c.out[0].data, i), want, op_precision(out_type) + 1e-5,
                           "mixed", i);
        }
    }
    op_close(device, &c);
    free(x);
    free(scale);
}

DEVICE_TEST(norm_of_mixed_types) {
    const mp_dtype pairs[][2] = {{MP_F32, MP_F16},  {MP_F16, MP_F32},   {MP_F32, MP_BF16},
                                 {MP_BF16, MP_F32}, {MP_BF16, MP_BF16}, {MP_F64, MP_F64}};
    for (int k = 0; k < 6; k++) {
        check_mixed(device, pairs[k][0], pairs[k][1], 40);
        check_mixed(device, pairs[k][0], pairs[k][1], 33);
    }
}

DEVICE_TEST(norm_refuses_what_does_not_fit) {
    const float x[24] = {0};
    const mp_attr three[] = {OP_INT("num_groups", 3)};
    mp_plan *plan = NULL;
    op_case c = {.name = "GroupNormalization",
                 .version = 21,
                 .attrs = three,
                 .attr_count = 1,
                 .in = {op_f32(x, 2, 4, 3), op_f32(x, 4), op_f32(x, 4)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not make num_groups=3 groups");
    c.name = "InstanceNormalization";
    c.version = 22;
    c.in[1] = op_f32(x, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "scale of shape 3; 4 values");
    c.in[0] = op_f32(x, 2, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "3 dimensions or more");
    c = (op_case){.domain = "com.microsoft",
                  .name = "SkipLayerNormalization",
                  .version = 1,
                  .in = {op_f32(x, 2, 3, 4), op_f32(x, 2, 1, 4), op_f32(x, 4)},
                  .in_count = 3,
                  .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "skip of shape 2x1x4");
}
