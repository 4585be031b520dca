/* gate_test.c - operators of com.microsoft that weigh rows and streams by gates, on tensors that
 * are not aligned; hashes of n-grams of batches whose starts are wrong; and what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static const char *const domain = "com.microsoft";

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

static double gate_of(const char *kind, double x) {
    const double share = 1 / (1 + exp(-x));
    return strcmp(kind, "sigmoid") == 0 ? share : x * share;
}

static void check_gated_norm(mp_device *device, int64_t columns, const char *kind, uint32_t skew) {
    enum { ROWS = 3 };
    float *x = op_numbers(MP_F32, 1, ROWS * columns);
    float *scale = op_numbers(MP_F32, 2, columns);
    float *gate = op_numbers(MP_F32, 3, ROWS * columns);
    const mp_attr attrs[] = {OP_TEXT("activation", kind), OP_FLOAT("epsilon", 0.25F)};
    op_case c = {.domain = domain,
                 .name = "GatedRMSNorm",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {op_f32(x, 1, ROWS * columns), op_f32(scale, columns),
                        op_f32(gate, 1, ROWS * columns)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < ROWS * columns; i++) {
        double squares = 0;
        for (int64_t n = 0; n < columns; n++) {
            squares += pow((double)x[i / columns * columns + n], 2);
        }
        const double want = (double)x[i] / sqrt(squares / (double)columns + 0.25) *
                            (double)scale[i % columns] * gate_of(kind, (double)gate[i]);
        op_check_close((double)((const float *)c.out[0].data)[i], want, 2e-6, "gated norm", i);
    }
    op_close(device, &c);
    free(x);
    free(scale);
    free(gate);
}

DEVICE_TEST(gate_norm_of_rows_that_are_not_aligned) {
    for (int64_t columns = 1; columns < 5000; columns = columns * 3 + 2) {
        check_gated_norm(device, columns, "silu", 0);
        check_gated_norm(device, columns, "sigmoid", 4);
    }
}

DEVICE_TEST(gate_norms_refuse) {
    float x[256] = {0};
    mp_attr attrs[] = {OP_TEXT("activation", "silu"), OP_INT("num_branches", 0)};
    op_case c = {.domain = domain,
                 .name = "GatedRMSNorm",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_f32(x, 2, 6), op_f32(x, 4), op_f32(x, 2, 6)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "a multiple of the scale's");
    attrs[0].s = "relu";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "activation is");
    c.name = "BranchwiseRMSNorm";
    c.in_count = 2;
    c.in[0] = op_f32(x, 6);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "num_branches 0");
    attrs[1].i = 3;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "3 branches of 2");
    c.name = "EngramGate";
    c.in[0] = c.in[1] = op_f32(x, 1, 2, 3, 4);
    c.in[2] = op_f32(x, 1, 2, 4);
    c.in[3] = c.in[4] = op_f32(x, 3, 4);
    c.in_count = 5;
    c.out_count = 2;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "conv_norm_scale");
}

static void check_post_mix(mp_device *device, int64_t streams, int64_t columns, uint32_t skew) {
    enum { ROWS = 2 };
    float *x = op_numbers(MP_F32, 1, ROWS * streams * columns);
    float *block = op_numbers(MP_F32, 2, ROWS * columns);
    float *gate = op_numbers(MP_F32, 3, ROWS * streams);
    float *mix = op_numbers(MP_F32, 4, ROWS * streams * streams);
    op_case c = {.domain = domain,
                 .name = "HyperConnectionPostMix",
                 .version = 1,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {op_f32(x, ROWS, streams, columns), op_f32(block, ROWS, columns),
                        op_f32(gate, ROWS, streams), op_f32(mix, ROWS, streams, streams)},
                 .in_count = 4,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < ROWS * streams * columns; i++) {
        const int64_t h = i % columns, k = i / columns % streams, r = i / columns / streams;
        double want = (double)gate[r * streams + k] * (double)block[r * columns + h];
        for (int64_t s = 0; s < streams; s++) {
            want += (double)mix[(r * streams + s) * streams + k] *
                    (double)x[(r * streams + s) * columns + h];
        }
        op_check_close((double)((const float *)c.out[0].data)[i], want, 1e-6, "mixed", i);
    }
    op_close(device, &c);
    free(x);
    free(block);
    free(gate);
    free(mix);
}

DEVICE_TEST(gate_streams_in_vectors_and_elements) {
    check_post_mix(device, 3, 8, 0);
    check_post_mix(device, 3, 8, 4);
    check_post_mix(device, 6, 7, 0);
    check_post_mix(device, 9, 12, 0);
}

DEVICE_TEST(gate_streams_refuse) {
    float x[64] = {0};
    op_case c = {.domain = domain,
                 .name = "GatedAdd",
                 .version = 1,
                 .in = {op_f32(x, 2, 3), op_f32(x, 2, 3), op_f32(x, 1, 1)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "a gate of shape 1x1");
    c.name = "ScaledSiLU";
    c.in_count = 2;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "must be a scalar");
    c.name = "HyperConnectionPreMix";
    c.in[0] = op_f32(x, 2, 3, 4);
    c.in[1] = op_f32(x, 3, 2);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "gates of shape 3x2");
    c.name = "HyperConnectionPostMix";
    c.in_count = 3;
    c.in[1] = op_f32(x, 2, 3);
    c.in[2] = op_f32(x, 2, 3);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "block_output and stream_mix");
}

/* ---- n-grams ---- */

/* Ids of no request have the hash 0; sizes that are not positive give the offset alone. */
DEVICE_TEST(ngram_hash_survives_wild_starts_and_sizes) {
    enum { TOKENS = 5, BATCH = 2, HEADS = 2 };
    static const int32_t wild[][BATCH + 1] = {{0, 2, -8}, {0, 2, INT32_MAX}, {0, 2, 1}};
    const int64_t ids[TOKENS] = {3, 4, 5, 6, 7}, multipliers[2] = {1, 100};
    const int64_t sizes[HEADS] = {100000, 0}, offsets[HEADS] = {1, 9};
    const int64_t past[BATCH] = {2, INT64_MIN};
    const int32_t counts[BATCH] = {INT32_MAX, INT32_MIN};
    const mp_attr attrs[] = {OP_INT("max_ngram_size", 2), OP_INT("n_head_per_ngram", HEADS),
                             OP_INT("pad_id", -1), OP_INT("state_update_capacity", 3)};
    for (size_t n = 0; n < MP_COUNT_OF(wild); n++) {
        op_case c = {.domain = domain,
                     .name = "VarlenNGramHashMapping",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 4,
                     .in = {op_i64(ids, TOKENS),
                            op_i64(multipliers, 2),
                            op_i64(sizes, HEADS),
                            OP_TENSOR(MP_I32, wild[n], BATCH + 1),
                            op_i64(past, BATCH, 1),
                            op_i64(offsets, HEADS),
                            {0},
                            {0},
                            {0},
                            OP_TENSOR(MP_I32, counts, BATCH)},
                     .in_count = 10,
                     .out_count = 4,
                     .out_absent = 1u << 2};
        op_run(device, &c);
        const int64_t *hash = c.out[0].data, *present = c.out[1].data, *update = c.out[3].data;
        CHECK(hash[0] == (3 ^ 200) + 1 && hash[1] == 9 && hash[2] == (4 ^ 300) + 1);
        for (int64_t i = 4; i < TOKENS * HEADS; i++) {
            CHECK(hash[i] == 0);
        }
        CHECK(present[0] == 4 && present[1] == INT64_MIN);
        CHECK(update[0] == 3 && update[1] == 4 && update[2] == -1 && update[3] == -1);
        op_close(device, &c);
    }
}

DEVICE_TEST(ngram_hash_refuses) {
    const int32_t ids[8] = {0};
    mp_attr attrs[] = {OP_INT("max_ngram_size", 2), OP_INT("n_head_per_ngram", 1),
                       OP_INT("pad_id", 0), OP_INT("state_update_capacity", 0)};
    op_case c = {.domain = domain,
                 .name = "VarlenNGramHashMapping",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .in = {OP_TENSOR(MP_I32, ids, 4), OP_TENSOR(MP_I32, ids, 2),
                        OP_TENSOR(MP_I32, ids, 1), OP_TENSOR(MP_I32, ids, 3)},
                 .in_count = 4,
                 .out_count = 3};
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "need segment_ids");
    c.out_count = 2;
    c.in[4] = OP_TENSOR(MP_I32, ids, 2, 2);
    c.in_count = 5;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_ids of shape 2x2 where 2x1");
    c.in_count = 4;
    attrs[3].i = 1;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "state_update_capacity is 1");
    c.in[0] = OP_TENSOR(MP_I32, ids, 2, 2);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "one that is packed has one");
    attrs[2].i = INT64_MAX;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "pad_id");
    attrs[0].i = INT64_MAX;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "multipliers and vocab_sizes");
}
