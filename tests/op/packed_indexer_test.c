/* packed_indexer_test.c - PackedSparseAttentionIndexer where lengths, positions and counts are out
 * of range, and what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

enum {
    SIZE = 4,
    HEADS = 2,
    BATCH = 2,
    TOKENS = 5,
    RATIO = 3,
    ROOM = 6,
    WAITING = 2 * RATIO - 1,
    UPDATES = 2,
    ANGLES = 9,
    MOST = 512
};

typedef struct lists {
    const int32_t *starts, *past, *state, *wanted;
    const int64_t *positions;
} lists;

static op_case packed(const mp_attr *attrs, size_t attr_count, bool gated, const float *x,
                      const lists *l) {
    const int64_t width = gated ? 2 * SIZE : SIZE;
    op_case c = {.domain = "com.microsoft",
                 .name = "PackedSparseAttentionIndexer",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = attr_count,
                 .in = {op_f32(x, TOKENS, HEADS * SIZE), op_f32(x, TOKENS, width), op_f32(x, SIZE),
                        op_f32(x, SIZE), op_f32(x, ANGLES, 2), op_f32(x, ANGLES, 2),
                        OP_TENSOR(MP_I32, l->starts, BATCH + 1), OP_TENSOR(MP_I32, l->past, BATCH)},
                 .in_count = 16,
                 .out_count = gated ? 6 : 7};
    c.in[12] = op_f32(x, BATCH, ROOM, SIZE);
    c.in[13] = op_f32(x, BATCH, WAITING, width);
    c.in[15] = OP_TENSOR(MP_I32, l->state, BATCH, 2);
    if (gated) {
        c.in[8] = op_f32(x, TOKENS, width);
        c.in[9] = op_f32(x, RATIO, width);
        c.in[10] = op_f32(x, TOKENS, HEADS);
        c.in[11] = OP_TENSOR(MP_I64, l->positions, TOKENS);
        c.in[14] = c.in[13];
    } else {
        c.in[16] = OP_TENSOR(MP_I32, l->wanted, BATCH);
        c.in_count = 17;
        c.out_absent = 1u << 4;
    }
    return c;
}

static void check_choice(const op_case *c, int64_t places, int64_t below) {
    const int32_t *chosen = c->out[0].data, *counts = c->out[1].data;
    for (int64_t i = 0; i < TOKENS * places; i++) {
        const bool counted = i % places < counts[i / places];
        CHECK(counted ? chosen[i] >= 0 && chosen[i] < below : chosen[i] == -1);
    }
    const int32_t *state = c->out[5].data;
    for (int64_t b = 0; b < BATCH; b++) {
        CHECK(state[2 * b] >= 0 && state[2 * b] <= ROOM);
        CHECK(state[2 * b + 1] >= 0 && state[2 * b + 1] <= WAITING);
    }
}

DEVICE_TEST(packed_indexer_survives_wild_numbers) {
    enum { LEAST = INT32_MIN, GREATEST = INT32_MAX };
    static const int32_t starts[][BATCH + 1] = {{0, 2, 5}, {0, GREATEST, 5}, {LEAST, 2, 5},
                                                {0, 4, 2}, {0, 5, 5},        {5, 0, LEAST}};
    static const int32_t past[][BATCH] = {{4, 9}, {LEAST, GREATEST}, {0, -1}};
    static const int32_t states[][BATCH * 2] = {
        {1, 1, 3, 0}, {LEAST, GREATEST, GREATEST, LEAST}, {6, 5, 7, -1}, {5, 2, 0, 6}};
    static const int32_t wanted[BATCH] = {GREATEST, LEAST};
    static const int64_t positions[TOKENS] = {INT64_MIN, INT64_MAX, -1, 40, 0};
    const mp_attr tokens[] = {OP_TEXT("policy_mode", "qsa"), OP_INT("compress_ratio", RATIO),
                              OP_INT("state_capacity", ROOM), OP_INT("token_budget", 2 * RATIO),
                              OP_INT("state_update_capacity", UPDATES)};
    const mp_attr keys[] = {OP_TEXT("policy_mode", "csa"), OP_INT("compress_ratio", RATIO),
                            OP_INT("state_capacity", ROOM), OP_INT("index_topk", 4)};
    float *x = op_numbers(MP_F32, 1, MOST);
    for (int64_t n = 0; n < 24; n++) {
        const lists l = {starts[n % 6], past[n % 3 == 0 ? 0 : n % 4 % 3], states[n / 6], wanted,
                         positions};
        op_case c = packed(tokens, 5, false, x, &l);
        op_run(device, &c);
        check_choice(&c, 3 * RATIO - 1, ROOM * RATIO + RATIO);
        op_close(device, &c);
        c = packed(keys, 4, true, x, &l);
        op_run(device, &c);
        check_choice(&c, 4, ROOM);
        op_close(device, &c);
    }
    free(x);
}

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

DEVICE_TEST(packed_indexer_refuses) {
    static const int32_t starts[BATCH + 1] = {0, 2, 5}, past[BATCH] = {4, 9},
                                        state[] = {1, 1, 3, 0};
    static const int64_t positions[TOKENS] = {0};
    mp_attr attrs[] = {OP_TEXT("policy_mode", "qsa"), OP_INT("compress_ratio", RATIO),
                       OP_INT("state_capacity", ROOM), OP_INT("token_budget", RATIO),
                       OP_INT("state_update_capacity", UPDATES)};
    const lists l = {starts, past, state, past, positions};
    float *x = op_numbers(MP_F32, 1, MOST);
    const op_case good = packed(attrs, 5, false, x, &l);
    op_case c = good;
    attrs[4].i = 9;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "state_update_capacity is 9");
    attrs[4].i = UPDATES;
    attrs[2].i = 0;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "state_capacity of 0");
    attrs[2].i = ROOM + 1;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_key_state of shape 2x6x4");
    attrs[2].i = ROOM;
    c.in_count = 16;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "state_update_capture_count is needed");
    c = good;
    c.in[7] = OP_TENSOR(MP_I32, past, 1);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_sequence_lengths of shape 1");
    c = good;
    c.in[13] = op_f32(x, BATCH, RATIO, SIZE);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_kv_buffer of shape 2x3x4");
    c = good;
    c.in[14] = c.in[13];
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_gate_buffer must be left out");
    c = good;
    c.out_absent = 0;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "present_gate_buffer must be left out");
    c = good;
    c.in[6] = OP_TENSOR(MP_I32, starts, 1);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "cumulative_sequence_lengths of shape 1");
    free(x);
}
