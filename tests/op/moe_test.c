/* moe_test.c - mixtures of experts on tensors that are not aligned, with rows that hold NaN, and
 * what the operators refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { EXPERTS = 3, BEST = 2 };

/* Rows times their best experts' matrices; relu between. */
typedef struct subject {
    int64_t rows, hidden, inter;
    uint32_t skew; /* bytes by which tensors are not aligned */
    mp_dtype type;
    bool biased; /* the second product is */
} subject;

typedef struct operands {
    void *x, *scores, *first, *second, *bias;
} operands;

/* Scores of which none are equal. */
static void *scores_of(const subject *s) {
    void *scores = op_memory(s->type, s->rows * EXPERTS);
    for (int64_t i = 0; i < s->rows * EXPERTS; i++) {
        op_store_real(s->type, scores, i, (double)((i * 7 + i / 3) % 31) / 16);
    }
    return scores;
}

/* The best of a row's scores, and the shares of a softmax that they have. */
static void choose(const subject *s, const void *scores, int64_t row, int *best, double *share) {
    double sum = 0, score[EXPERTS];
    for (int e = 0; e < EXPERTS; e++) {
        score[e] = op_real(s->type, scores, row * EXPERTS + e);
        sum += exp(score[e]);
    }
    best[0] = best[1] = -1;
    for (int e = 0; e < EXPERTS; e++) {
        best[0] = best[0] < 0 || score[e] > score[best[0]] ? e : best[0];
    }
    for (int e = 0; e < EXPERTS; e++) {
        if (e != best[0]) {
            best[1] = best[1] < 0 || score[e] > score[best[1]] ? e : best[1];
        }
    }
    for (int j = 0; j < BEST; j++) {
        share[j] = exp(score[best[j]]) / sum;
    }
}

/* What is between an expert's products for a row. */
static void find_inner(const subject *s, const operands *of, int64_t row, int expert,
                       double *inner) {
    for (int64_t i = 0; i < s->inter; i++) {
        double sum = 0;
        for (int64_t h = 0; h < s->hidden; h++) {
            sum += op_real(s->type, of->x, row * s->hidden + h) *
                   op_real(s->type, of->first, (expert * s->inter + i) * s->hidden + h);
        }
        inner[i] = sum > 0 ? op_rounded(s->type, sum) : 0;
    }
}

static void check_row(const subject *s, const operands *of, const void *out, int64_t row) {
    double *inner = malloc((size_t)(BEST * s->inter) * sizeof *inner), share[BEST];
    int best[BEST];
    choose(s, of->scores, row, best, share);
    for (int j = 0; j < BEST; j++) {
        find_inner(s, of, row, best[j], inner + j * s->inter);
    }
    for (int64_t column = 0; column < s->hidden; column++) {
        double want = 0, size = 0;
        for (int j = 0; s->biased && j < BEST; j++) {
            want += share[j] * op_real(s->type, of->bias, best[j] * s->hidden + column);
        }
        for (int64_t i = 0; i < BEST * s->inter; i++) {
            const int64_t expert = best[i / s->inter];
            const double term = share[i / s->inter] * inner[i] *
                                op_real(s->type, of->second,
                                        (expert * s->hidden + column) * s->inter + i % s->inter);
            want += term;
            size += fabs(term);
        }
        const double off = fabs(op_real(s->type, out, row * s->hidden + column) - want);
        const double step = s->type == MP_F32 ? 0x1p-11 : op_precision(s->type); /* of TF32 */
        if (!(off <= 4e-6 * size + (1e-2 + fabs(want) + size) * step)) {
            test_fail(__FILE__, __LINE__, "column %lld of row %lld of %s is off by %g",
                      (long long)column, (long long)row, mp_dtype_name(s->type), off);
        }
    }
    free(inner);
}

/* The other rows know nothing of a NaN among the first one's scores. */
static void check(mp_device *device, const subject *s) {
    const operands of = {op_numbers(s->type, 1, s->rows * s->hidden), scores_of(s),
                         op_numbers(s->type, 3, EXPERTS * s->inter * s->hidden),
                         op_numbers(s->type, 4, EXPERTS * s->hidden * s->inter),
                         op_numbers(s->type, 5, EXPERTS * s->hidden)};
    const mp_attr attrs[] = {OP_INT("k", BEST)};
    op_store_real(s->type, of.scores, 0, (double)NAN);
    op_case c = {.domain = "com.microsoft",
                 .name = "MoE",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .options = {.tf32 = true},
                 .align = s->skew != 0 ? 1 : 16,
                 .skew = s->skew,
                 .in = {OP_TENSOR(s->type, of.x, s->rows, s->hidden),
                        OP_TENSOR(s->type, of.scores, s->rows, EXPERTS),
                        OP_TENSOR(s->type, of.first, EXPERTS, s->inter, s->hidden),
                        {.type = MP_NONE},
                        OP_TENSOR(s->type, of.second, EXPERTS, s->hidden, s->inter),
                        OP_TENSOR(s->type, of.bias, EXPERTS, s->hidden)},
                 .in_count = s->biased ? 6 : 5,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t row = 1; row < s->rows; row++) {
        check_row(s, &of, c.out[0].data, row);
    }
    op_close(device, &c);
    free(of.x);
    free(of.scores);
    free(of.first);
    free(of.second);
    free(of.bias);
}

DEVICE_TEST(moe_of_rows_that_are_not_aligned) {
    static const subject subjects[] = {{4, 9, 7, 0, MP_F32, false},
                                       {4, 9, 7, 4, MP_F32, true},
                                       {30, 9, 7, 0, MP_F32, true},
                                       {30, 9, 7, 4, MP_F32, false},
                                       {300, 9, 7, 4, MP_F32, false}};
    for (size_t i = 0; i < MP_COUNT_OF(subjects); i++) {
        check(device, &subjects[i]);
    }
}

/* Of some routes an expert and of many; a long k, of which blocks have parts. */
DEVICE_TEST(moe_of_whole_pieces) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        check(device, &(subject){12, 16, 8, 0, types[i], true});
        check(device, &(subject){40, 72, 40, 0, types[i], true});
        check(device, &(subject){100, 24, 72, 0, types[i], true});
    }
    check(device, &(subject){10, 16, 1032, 0, MP_F16, true});
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
