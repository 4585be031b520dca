/* moe_test.c - mixtures of experts on tensors that are not aligned, with rows that hold NaN, and
 * what the operators refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { EXPERTS = 3, HIDDEN = 9, INTER = 7 };

/* The two best of a row's scores, and the shares of a softmax that they have. */
static void choose(const float *scores, int best[2], double share[2]) {
    double sum = 0;
    best[0] = best[1] = -1;
    for (int e = 0; e < EXPERTS; e++) {
        sum += exp((double)scores[e]);
        best[0] = best[0] < 0 || scores[e] > scores[best[0]] ? e : best[0];
    }
    for (int e = 0; e < EXPERTS; e++) {
        if (e != best[0]) {
            best[1] = best[1] < 0 || scores[e] > scores[best[1]] ? e : best[1];
        }
    }
    for (int j = 0; j < 2; j++) {
        share[j] = exp((double)scores[best[j]]) / sum;
    }
}

/* Element `column` of what an expert makes of a row; relu between. */
static double expected(const float *x, const float *first, const float *second, int expert,
                       int column) {
    double sum = 0;
    for (int i = 0; i < INTER; i++) {
        double inner = 0;
        for (int h = 0; h < HIDDEN; h++) {
            inner += (double)x[h] * (double)first[(expert * INTER + i) * HIDDEN + h];
        }
        sum += (inner > 0 ? inner : 0) * (double)second[(expert * HIDDEN + column) * INTER + i];
    }
    return sum;
}

static void check(mp_device *device, int rows, uint32_t skew) {
    float *x = op_numbers(MP_F32, 1, (int64_t)rows * HIDDEN);
    float *scores = op_numbers(MP_F32, 2, (int64_t)rows * EXPERTS);
    float *first = op_numbers(MP_F32, 3, (int64_t)EXPERTS * INTER * HIDDEN);
    float *second = op_numbers(MP_F32, 4, (int64_t)EXPERTS * HIDDEN * INTER);
    for (int i = 0; i < rows * EXPERTS; i++) {
        scores[i] += (float)i * 0x1p-12F; /* none are equal */
    }
    scores[0] = NAN; /* the other rows know nothing of it */
    const mp_attr attrs[] = {OP_INT("k", 2)};
    op_case c = {.domain = "com.microsoft",
                 .name = "MoE",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {op_f32(x, rows, HIDDEN),
                        op_f32(scores, rows, EXPERTS),
                        op_f32(first, EXPERTS, INTER, HIDDEN),
                        {.type = MP_NONE},
                        op_f32(second, EXPERTS, HIDDEN, INTER)},
                 .in_count = 5,
                 .out_count = 1};
    op_run(device, &c);
    const float *out = c.out[0].data;
    for (int row = 1; row < rows; row++) {
        int best[2];
        double share[2];
        choose(scores + row * EXPERTS, best, share);
        for (int column = 0; column < HIDDEN; column++) {
            double want = 0;
            for (int j = 0; j < 2; j++) {
                want += share[j] * expected(x + row * HIDDEN, first, second, best[j], column);
            }
            op_check_close((double)out[row * HIDDEN + column], want, 1e-5, "row", row);
        }
    }
    op_close(device, &c);
    free(x);
    free(scores);
    free(first);
    free(second);
}

DEVICE_TEST(moe_of_rows_that_are_not_aligned) {
    check(device, 4, 0);
    check(device, 4, 4);
    check(device, 30, 0);
    check(device, 30, 4);
    check(device, 300, 4); /* too many routes to sort by counting */
}

static void refused(mp_device *device, const op_case *c, const char *says) {
    mp_plan *plan = NULL;
    CHECK(op_plan(device, c, &plan) != MP_OK);
    CHECK_STR_HAS(mp_error_message(), says);
}

DEVICE_TEST(moe_refuses_what_does_not_fit) {
    static const float x[512] = {0};
    static const struct {
        int64_t k, sparse, fusion, scores, first, second;
        const char *activation, *says;
    } wrong[] = {{1, 0, 0, 2, 16, 8, "tanh", "activation_type is 'tanh'"},
                 {1, 0, 3, 2, 16, 8, "swiglu", "swiglu_fusion is 3"},
                 {1, 0, 0, 2, 16, 8, "swiglu", "swiglu needs fc3"},
                 {4, 0, 0, 2, 16, 8, "relu", "k is 4 of 3 experts"},
                 {1, 1, 0, 2, 16, 8, "relu", "use_sparse_mixer with k = 1"},
                 {1, 0, 0, 1, 16, 8, "relu", "router_probs of shape 1x3"},
                 {1, 0, 0, 2, 15, 8, "relu", "weights of shape 3x15x8 in input 2"},
                 {1, 0, 0, 2, 16, 0, "relu", "fc2_experts_weights of shape 3x0x16"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("k", wrong[i].k),
                                 OP_INT("use_sparse_mixer", wrong[i].sparse),
                                 OP_INT("swiglu_fusion", wrong[i].fusion),
                                 OP_TEXT("activation_type", wrong[i].activation)};
        const op_case c = {.domain = "com.microsoft",
                           .name = "MoE",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 4,
                           .in = {op_f32(x, 2, 8),
                                  op_f32(x, wrong[i].scores, 3),
                                  op_f32(x, 3, wrong[i].first, 8),
                                  {.type = MP_NONE},
                                  op_f32(x, 3, wrong[i].second, 16)},
                           .in_count = 5,
                           .out_count = 1};
        refused(device, &c, wrong[i].says);
    }
}

DEVICE_TEST(moe_refuses_quantised_weights_that_do_not_fit) {
    static const float x[512] = {0};
    static const struct {
        const char *type;
        mp_dtype stored, scale;
        int64_t bits, packed, rows, scales, act;
        const char *says;
    } wrong[] = {
        {"int3", MP_U8, MP_F32, 4, 0, 16, 16, 0, "quant_type is 'int3'"},
        {"int", MP_U8, MP_F32, 4, 1, 16, 16, 0, "packed for another kernel"},
        {"int", MP_U8, MP_F32, 3, 0, 16, 16, 0, "weights of 3 bits"},
        {"int", MP_F8E4M3FN, MP_F32, 4, 0, 16, 16, 0, "fc1 has weights of float8e4m3fn"},
        {"int", MP_U8, MP_F32, 4, 0, 8, 16, 0, "fc1 has weights of shape 3x8x8"},
        {"int", MP_U8, MP_F8E8M0, 4, 0, 16, 16, 0, "fc1 has scales of float8e8m0"},
        {"int", MP_U8, MP_F32, 4, 0, 16, 15, 0, "scales of shape 3x15"},
        {"nvfp4", MP_U8, MP_F8E4M3FN, 4, 0, 16, 16, 0, "fc1 has no global scale"},
        {"int", MP_U8, MP_F32, 4, 0, 16, 16, 1, "input 17 is a scale for quantised activations"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_TEXT("quant_type", wrong[i].type),
                                 OP_INT("expert_weight_bits", wrong[i].bits),
                                 OP_INT("weights_prepacked", wrong[i].packed)};
        op_case c = {.domain = "com.microsoft",
                     .name = "QMoE",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 3,
                     .in = {op_f32(x, 2, 16),
                            op_f32(x, 2, 3),
                            OP_TENSOR(wrong[i].stored, x, 3, wrong[i].rows, 8),
                            OP_TENSOR(wrong[i].scale, x, 3, wrong[i].scales),
                            {.type = MP_NONE},
                            OP_TENSOR(wrong[i].stored, x, 3, 16, 8),
                            OP_TENSOR(wrong[i].scale, x, 3, 16)},
                     .in_count = 7,
                     .out_count = 1};
        if (wrong[i].act != 0) {
            c.in[17] = op_f32(x, 1);
            c.in_count = 18;
        }
        refused(device, &c, wrong[i].says);
    }
}
