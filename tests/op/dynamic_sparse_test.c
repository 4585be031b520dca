/* dynamic_sparse_test.c - DynamicSparseAttention where lengths and choices are out of range, and
 * what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum {
    HEADS = 2,
    KV = 1,
    SIZE = 8,
    BATCH = 2,
    ROWS = 2,
    ROOM = 5,
    BESIDE = 3,
    MOST = 4,
    TOKENS = BATCH * ROWS,
    VALUES = TOKENS * HEADS * SIZE,
    CACHED = BATCH * KV * ROOM * SIZE /* more than any other input has */
};

static op_case dynamic(const mp_attr *attrs, size_t attr_count, const float *x,
                       const int32_t *indices, const int32_t *counts, const int32_t *lengths,
                       const int32_t *total) {
    return (op_case){.domain = "com.microsoft",
                     .name = "DynamicSparseAttention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = attr_count,
                     .in = {op_f32(x, BATCH, ROWS, HEADS * SIZE),
                            op_f32(x, BATCH, ROWS, KV * SIZE),
                            op_f32(x, BATCH, ROWS, KV * SIZE),
                            op_f32(x, BATCH, KV, ROOM, SIZE),
                            op_f32(x, BATCH, KV, ROOM, SIZE),
                            {0},
                            {0},
                            OP_TENSOR(MP_I32, indices, TOKENS, MOST),
                            OP_TENSOR(MP_I32, counts, TOKENS),
                            OP_TENSOR(MP_I32, lengths, BATCH),
                            OP_TENSOR(MP_I32, total, 1)},
                     .in_count = 11,
                     .out_count = 3};
}

/* What is out of range is left out; nothing is read or written elsewhere, and all is finite. */
DEVICE_TEST(dynamic_sparse_survives_wild_numbers) {
    enum { LEAST = INT32_MIN, GREATEST = INT32_MAX };
    static const int32_t indices[TOKENS * MOST] = {LEAST, GREATEST, -1, 0, 1,   5, 4, 3,
                                                   1000,  2,        0,  4, -77, 3, 0, 1};
    static const int32_t counts[][TOKENS] = {
        {GREATEST, LEAST, 4, -1}, {4, 4, 4, 4}, {LEAST, 0, GREATEST, GREATEST}};
    static const int32_t lengths[][BATCH] = {{1, 4}, {LEAST, GREATEST}, {-1, 5}, {0, 100}};
    static const int64_t positions[TOKENS] = {INT64_MIN, INT64_MAX, -1, 3};
    static const int32_t total = ROOM;
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS),
                             OP_INT("kv_num_heads", KV),
                             OP_INT("do_rotary", 1),
                             OP_TEXT("attention_mode", "local_plus_selected"),
                             OP_TEXT("selected_kv_source", "auxiliary"),
                             OP_INT("local_window_size", INT32_MAX),
                             OP_INT("auxiliary_kv_shared", 1)};
    float *x = op_numbers(MP_F32, 1, CACHED);
    for (int64_t n = 0; n < 12; n++) {
        const bool beside = n % 2 > 0;
        op_case c =
            dynamic(attrs, beside ? 7 : 3, x, indices, counts[n % 3], lengths[n / 3 % 4], &total);
        c.in[5] = beside ? op_f32(x, BATCH, KV, n % 4 > 1 ? BESIDE : 0, SIZE) : c.in[5];
        c.in[11] = c.in[12] = op_f32(x, 4, SIZE / 2);
        c.in[13] = OP_TENSOR(MP_I64, positions, BATCH, ROWS);
        c.in_count = 14;
        op_run(device, &c);
        for (int64_t i = 0; i < VALUES; i++) {
            CHECK(isfinite(op_real(MP_F32, c.out[0].data, i)));
        }
        op_close(device, &c);
    }
    free(x);
}

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

DEVICE_TEST(dynamic_sparse_refuses) {
    static const int32_t numbers[TOKENS * MOST] = {0};
    static const int64_t positions[TOKENS] = {0};
    int32_t total = ROOM;
    mp_attr attrs[] = {OP_INT("num_heads", HEADS),
                       OP_INT("kv_num_heads", KV),
                       OP_TEXT("attention_mode", "selected_only"),
                       OP_TEXT("selected_kv_source", "main"),
                       OP_INT("local_window_size", 2),
                       OP_INT("is_causal", 1)};
    float *x = op_numbers(MP_F32, 1, CACHED);
    const op_case good = dynamic(attrs, 6, x, numbers, numbers, numbers, &total);
    op_case c = good;
    total = ROOM + 1;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "total_sequence_length is 6");
    total = ROOM;
    attrs[2].s = "local_plus_selected";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "attention_mode is");
    attrs[3].s = "auxiliary";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "auxiliary_key of shape none");
    c.in[5] = op_f32(x, BATCH, KV, BESIDE, SIZE);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "auxiliary_value of shape none");
    attrs[4].i = 0;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "local_window_size 0");
    attrs[2].s = "selected_only";
    attrs[3].s = "main";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "it must be left out where");
    c = good;
    attrs[5].i = 0;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "is_causal is 0");
    attrs[5].i = 1;
    c.in[7] = OP_TENSOR(MP_I32, numbers, TOKENS + 1, 1);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "selected_indices of shape 5x1");
    c = good;
    c.in[8] = OP_TENSOR(MP_I32, numbers, BATCH);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "selected_counts of shape 2");
    c = good;
    c.in[9] = OP_TENSOR(MP_I32, numbers, TOKENS);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "seqlens_k of shape 4");
    c = good;
    c.in[13] = OP_TENSOR(MP_I64, positions, TOKENS);
    c.in_count = 14;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "position_ids of shape 4");
    c = good;
    c.in[4] = op_f32(x, BATCH, KV, SIZE, ROOM);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_key and past_value need");
    free(x);
}
