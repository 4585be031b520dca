/* multi_head_test.c - MultiHeadAttention: what it refuses, and lengths, flags and beams out of
 * range against plain loops, with aligned tensors and others, by each kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { BATCH = 4, HEADS = 2, HEAD = 8, ROOM = 12, USED = 9, WIDTH = HEADS * HEAD };
enum { KEYS = USED + 1, FILTER = -20 };

typedef struct decoder {
    float *x[3], *past[2];
    const int32_t *mask, *beams;
    int way;
    uint32_t skew;
} decoder;

static double row_of(const decoder *t, int side, int64_t b, int64_t h, int64_t j, int64_t d) {
    if (j == USED) {
        return (double)t->x[1 + side][b * WIDTH + h * HEAD + d];
    }
    const int64_t beam = t->beams[b * ROOM + j];
    const int64_t from = beam >= 0 && beam < 2 ? b / 2 * 2 + beam : b;
    return (double)t->past[side][((from * HEADS + h) * ROOM + j) * HEAD + d];
}

static void check_head(const decoder *t, const float *y, int64_t b, int64_t h) {
    double weight[KEYS];
    double sum = 0;
    for (int64_t j = 0; j < KEYS; j++) {
        double dot = 0;
        for (int64_t d = 0; d < HEAD; d++) {
            dot += (double)t->x[0][b * WIDTH + h * HEAD + d] * row_of(t, 0, b, h, j, d);
        }
        const bool padded = j >= t->mask[b];
        weight[j] = exp(dot / sqrt(HEAD) + (padded ? FILTER : 0));
        sum += weight[j];
    }
    for (int64_t d = 0; d < HEAD; d++) {
        double want = 0;
        for (int64_t j = 0; j < KEYS; j++) {
            want += weight[j] / sum * row_of(t, 1, b, h, j, d);
        }
        const int64_t at = b * WIDTH + h * HEAD + d;
        op_check_close((double)y[at], want, 2e-5, "y", at);
    }
}

static void check_decoder(mp_device *device, const decoder *t) {
    const int32_t used = USED;
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_FLOAT("mask_filter_value", FILTER)};
    op_case c = {.domain = "com.microsoft",
                 .name = "MultiHeadAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .options = {.sdpa_kernel = t->way},
                 .align = t->skew != 0 ? 1 : 16,
                 .skew = t->skew,
                 .in = {op_f32(t->x[0], BATCH, 1, WIDTH),
                        op_f32(t->x[1], BATCH, 1, WIDTH),
                        op_f32(t->x[2], BATCH, 1, WIDTH),
                        {0},
                        OP_TENSOR(MP_I32, t->mask, BATCH),
                        {0},
                        op_f32(t->past[0], BATCH, HEADS, ROOM, HEAD),
                        op_f32(t->past[1], BATCH, HEADS, ROOM, HEAD),
                        OP_TENSOR(MP_I32, &used, 1),
                        OP_TENSOR(MP_I32, t->beams, BATCH / 2, 2, ROOM)},
                 .in_count = 10,
                 .out_count = 3};
    op_run(device, &c);
    for (int64_t i = 0; i < BATCH * HEADS * ROOM * HEAD; i++) {
        const int64_t b = i / (HEADS * ROOM * HEAD), h = i / (ROOM * HEAD) % HEADS;
        const int64_t row = i / HEAD % ROOM, d = i % HEAD;
        for (int side = 0; side < 2; side++) {
            const float fresh = t->x[1 + side][b * WIDTH + h * HEAD + d];
            const float want = row == USED ? fresh : t->past[side][i];
            CHECK(((const float *)c.out[1 + side].data)[i] == want);
        }
    }
    for (int64_t b = 0; b < BATCH; b++) {
        for (int64_t h = 0; h < HEADS; h++) {
            check_head(t, c.out[0].data, b, h);
        }
    }
    op_close(device, &c);
}

/* Beams that no group has are one's own; lengths beyond all keys are all of them. */
DEVICE_TEST(multi_head_survives_wild_beams_and_lengths) {
    static const int ways[] = {0, 2, 16};
    const int32_t mask[BATCH] = {5, INT32_MAX, INT32_MIN, 10};
    int32_t beams[BATCH * ROOM];
    decoder t = {.mask = mask, .beams = beams};
    for (int i = 0; i < BATCH * ROOM; i++) {
        static const int32_t values[] = {0, 1, -1, 2, INT32_MAX, INT32_MIN, 1};
        beams[i] = values[i % 7];
    }
    for (int i = 0; i < 3; i++) {
        t.x[i] = op_numbers(MP_F32, (uint64_t)i, (int64_t)BATCH * WIDTH);
    }
    for (int i = 0; i < 2; i++) {
        t.past[i] = op_numbers(MP_F32, (uint64_t)i + 5, (int64_t)BATCH * HEADS * ROOM * HEAD);
    }
    for (size_t i = 0; i < MP_COUNT_OF(ways); i++) {
        t.way = ways[i];
        t.skew = i == 1 ? 4 : 0;
        check_decoder(device, &t);
    }
    for (int i = 0; i < 3; i++) {
        free(t.x[i]);
    }
    free(t.past[0]);
    free(t.past[1]);
}

DEVICE_TEST(multi_head_refuses) {
    float x[512] = {0};
    int32_t number = 3;
    int32_t zeros[64] = {0};
    const mp_attr attrs[] = {OP_INT("num_heads", 2)};
    mp_plan *plan = NULL;
    const op_tensor none = {.type = MP_NONE};
    const op_tensor q = op_f32(x, 2, 3, 16);
    const op_case whole = {.domain = "com.microsoft",
                           .name = "MultiHeadAttention",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 1,
                           .in = {q, q, q},
                           .in_count = 3,
                           .out_count = 1};
    op_case c = whole;
    c.attr_count = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "num_heads is 0");
    c = whole;
    c.in[0] = op_f32(x, 2, 3, 2, 3, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "three are needed beside a key");
    c = whole;
    c.in[0] = op_f32(x, 2, 3, 15);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "num_heads heads");
    c = whole;
    c.in[1] = op_f32(x, 2, 3, 15);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not go together");
    c.in[1] = c.in[2] = op_f32(x, 2, 3, 4, 8);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not go together");
    c.in[2] = op_f32(x, 2, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "three dimensions, or four");
    c.in[2] = none;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a key without a value");
    c.in[0] = op_f32(x, 2, 3, 2, 2, 4);
    c.in[1] = none;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a query alone");
    c = whole;
    c.in[3] = op_f32(x, 47);
    c.in_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a bias of shape");
    c.in[3] = none;
    c.in[4] = OP_TENSOR(MP_I32, zeros, 4);
    c.in_count = 5;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a mask of shape");
    c.in[4] = OP_TENSOR(MP_I32, zeros, 2, 1);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a mask of shape");
    c.in[4] = OP_TENSOR(MP_I32, zeros, 2, 1, 3, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a mask of shape");
    c.in[4] = none;
    c.in[5] = op_f32(x, 1, 1, 1, 3);
    c.in_count = 6;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "attention_bias of shape");
    c.in[5] = op_f32(x, 3, 1, 3, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a mask of type float");
    c.in[5] = none;
    c.in[6] = op_f32(x, 2, 2, 5, 8);
    c.in_count = 7;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "past_key and past_value");
    c.in[7] = op_f32(x, 2, 2, 5, 8);
    c.in[8] = OP_TENSOR(MP_I32, &number, 1);
    c.in_count = 9;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "between 0 and 2");
    number = -1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "past_sequence_length is -1");
    number = 2;
    c.in[0] = op_f32(x, 2, 1, 16); /* more queries heed no beams */
    c.in[9] = OP_TENSOR(MP_I32, zeros, 1, 3, 5);
    c.in_count = 10;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "cache_indirection of shape");
    c.in[9] = OP_TENSOR(MP_I32, zeros, 1, 2, 1);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "cache_indirection of shape");
}
