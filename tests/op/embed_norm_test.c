/* embed_norm_test.c - EmbedLayerNormalization against loops, with rows that are no multiple of what
 * a lane takes, and with ids that only a broken model has.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { BATCH = 2, SEQUENCE = 3, WORDS = 5, SEGMENTS = 2, POSITIONS = 4 };

static int64_t near(int64_t id, int64_t count) {
    return id < 0 ? 0 : id >= count ? count - 1 : id;
}

static void check(mp_device *device, mp_dtype type, int64_t hidden, int32_t align) {
    const int32_t ids[BATCH * SEQUENCE] = {0, 4, 2, 5, -1, INT32_MAX};
    const int32_t kinds[BATCH * SEQUENCE] = {0, 1, 1, -7, 2, INT32_MIN};
    const int32_t places[SEQUENCE] = {3, 9, -2}, mask[BATCH * SEQUENCE] = {1, 1, 1, 1, 0, 0};
    void *words = op_numbers(type, 1, WORDS * hidden),
         *positions = op_numbers(type, 2, POSITIONS * hidden),
         *segments = op_numbers(type, 3, SEGMENTS * hidden), *gamma = op_numbers(type, 4, hidden);
    double *sum = calloc((size_t)hidden, sizeof *sum);
    const mp_attr attrs[] = {OP_FLOAT("epsilon", 0.01f)};
    op_case c = {
        .domain = "com.microsoft",
        .name = "EmbedLayerNormalization",
        .version = 1,
        .attrs = attrs,
        .attr_count = 1,
        .align = align,
        .skew = align == 1 ? 4 : 0,
        .in = {OP_TENSOR(MP_I32, ids, BATCH, SEQUENCE), OP_TENSOR(MP_I32, kinds, BATCH, SEQUENCE),
               OP_TENSOR(type, words, WORDS, hidden), OP_TENSOR(type, positions, POSITIONS, hidden),
               OP_TENSOR(type, segments, SEGMENTS, hidden), OP_TENSOR(type, gamma, hidden),
               OP_TENSOR(type, gamma, hidden), OP_TENSOR(MP_I32, mask, BATCH, SEQUENCE),
               OP_TENSOR(MP_I32, places, 1, SEQUENCE)},
        .in_count = 9,
        .out_count = 3};
    op_run(device, &c);
    for (int64_t r = 0; r < BATCH * SEQUENCE; r++) {
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < hidden; i++) {
            sum[i] = op_real(type, words, near(ids[r], WORDS) * hidden + i) +
                     op_real(type, positions, near(places[r % SEQUENCE], POSITIONS) * hidden + i) +
                     op_real(type, segments, near(kinds[r], SEGMENTS) * hidden + i);
            mean += sum[i] / (double)hidden;
        }
        for (int64_t i = 0; i < hidden; i++) {
            squares += pow(sum[i] - mean, 2) / (double)hidden;
        }
        for (int64_t i = 0; i < hidden; i++) {
            const double scale = op_real(type, gamma, i);
            const double want = (sum[i] - mean) / sqrt(squares + 0.01) * scale + scale;
            op_check_close(op_real(type, c.out[2].data, r * hidden + i), sum[i], op_precision(type),
                           "sum", r * hidden + i);
            op_check_close(op_real(type, c.out[0].data, r * hidden + i), want,
                           op_precision(type) + 2e-5, "embedded", r * hidden + i);
        }
    }
    CHECK(op_same(&c.out[1], (const int32_t[]){3, 1}));
    op_close(device, &c);
    free(words);
    free(positions);
    free(segments);
    free(gamma);
    free(sum);
}

DEVICE_TEST(embeddings_are_added_and_normalised) {
    const int64_t hidden[] = {1, 3, 8, 40, 33, 1000};
    for (size_t k = 0; k < MP_COUNT_OF(hidden); k++) {
        for (int32_t align = 1; align <= 16; align += 15) {
            check(device, MP_F32, hidden[k], align);
            check(device, MP_F16, hidden[k], align);
        }
    }
}

DEVICE_TEST(embeddings_refuse_what_does_not_fit) {
    const float x[24] = {0};
    const int32_t ids[6] = {0};
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "EmbedLayerNormalization",
                 .version = 1,
                 .in = {OP_TENSOR(MP_I32, ids, 2, 3),
                        {.type = MP_NONE},
                        op_f32(x, 5, 4),
                        op_f32(x, 2, 4),
                        {.type = MP_NONE},
                        op_f32(x, 4),
                        op_f32(x, 4)},
                 .in_count = 7,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT,
                "2 position embeddings for sequences of 3 words");
    c.in[3] = op_f32(x, 3, 4);
    c.in[8] = OP_TENSOR(MP_I32, ids, 3, 2);
    c.in_count = 9;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "position_ids of shape 3x2");
    c.in_count = 7;
    c.in[5] = op_f32(x, 5);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "gamma of shape 5; 4 is needed");
    c.in[3] = op_f32(x, 3, 5);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "position_embedding of shape 3x5");
    c.in[2] = op_f32(x, 20);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "word_embedding of shape 20");
    c.in[2] = op_f32(x, 0, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "word_embedding of shape 0x4");
}
