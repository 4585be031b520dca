/* sparse_indexer_test.c - SparseAttentionIndexer: what is refused, and where new rows of its cache
 * go.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

enum { SIZE = 4, HEADS = 2, BATCH = 2, ROWS = 3, PAST = 5, RATIO = 2, ANGLES = 20, MOST = 64 };

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

static op_case tokens(const mp_attr *attrs, size_t attr_count, const float *x) {
    return (op_case){.domain = "com.microsoft",
                     .name = "SparseAttentionIndexer",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = attr_count,
                     .in = {op_f32(x, BATCH, ROWS, HEADS * SIZE),
                            op_f32(x, BATCH, ROWS, SIZE),
                            op_f32(x, SIZE),
                            op_f32(x, SIZE),
                            op_f32(x, ANGLES, 2),
                            op_f32(x, ANGLES, 2),
                            {0},
                            op_f32(x, BATCH, PAST, SIZE)},
                     .in_count = 8,
                     .out_count = 2};
}

DEVICE_TEST(sparse_indexer_refuses) {
    mp_attr attrs[] = {OP_TEXT("policy_mode", "qsa"), OP_INT("compress_ratio", RATIO),
                       OP_INT("token_budget", 4)};
    const int32_t length[] = {3}, negative[] = {-1};
    const int64_t positions[BATCH * ROWS] = {0};
    float *x = op_numbers(MP_F32, 1, BATCH * ROWS * MOST);
    const op_case good = tokens(attrs, 3, x);
    op_case c = good;
    attrs[0].s = "both";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "policy_mode is \"both\"");
    attrs[0].s = "csa";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT,
                "token_budget is 4 where policy_mode is csa");
    attrs[0].s = "qsa";
    attrs[2].i = 3;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "token_budget 3");
    attrs[2].i = 4;
    attrs[1].i = 0;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "compress_ratio is 0");
    attrs[1].i = RATIO;
    c.in[2] = op_f32(x, 3);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "query_norm_weight of shape 3");
    c = good;
    c.in[0] = op_f32(x, 1, 1, 2049);
    c.in[2] = op_f32(x, 2049);
    CHECK_FAILS(plan_of(device, &c), UNSUPPORTED, "heads of 2049 elements");
    c = good;
    c.in[1] = op_f32(x, BATCH, ROWS, 2 * SIZE);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "key of shape 2x3x8; it must be 2x3x4");
    c = good;
    c.in[4] = c.in[5] = op_f32(x, 3, ANGLES, 2);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "cos_cache of shape 3x20x2");
    c = good;
    c.in[6] = OP_TENSOR(MP_I64, positions, BATCH, ROWS);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "mask of shape 2x3; it must be 2x8");
    c = good;
    c.in[11] = OP_TENSOR(MP_I64, positions, BATCH, ROWS);
    c.in_count = 12;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "position_ids must be left out");
    c = good;
    c.in[12] = OP_TENSOR(MP_I32, length, 1);
    c.in_count = 13;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "3 rows come behind the 3");
    c.in[12] = OP_TENSOR(MP_I32, negative, 1);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_sequence_length is -1");
    attrs[0].s = "csa";
    attrs[2] = (mp_attr)OP_INT("index_topk", 4);
    c = good;
    c.in[1] = op_f32(x, BATCH, ROWS, 2 * SIZE);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "gate is needed where");
    c.in[8] = c.in[1];
    c.in[9] = op_f32(x, RATIO, 2 * SIZE);
    c.in[10] = op_f32(x, BATCH, ROWS, HEADS);
    c.in[11] = OP_TENSOR(MP_I64, positions, BATCH, ROWS);
    c.in[13] = op_f32(x, 2, BATCH, 4, 2 * SIZE);
    c.in_count = 14;
    c.out_count = 3;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_proj_buffer has 4 tokens");
    c.in[13] = op_f32(x, 2, 1, 3, 2 * SIZE);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_proj_buffer of shape 2x1x3x8");
    free(x);
}

/* A cache with room gets the new rows behind those that count, and keeps all others. */
DEVICE_TEST(sparse_indexer_fills_its_cache) {
    enum { USED = 1 };
    const mp_attr attrs[] = {OP_TEXT("policy_mode", "qsa"), OP_INT("compress_ratio", RATIO),
                             OP_INT("token_budget", 4)};
    const int32_t length[] = {USED};
    float *x = op_numbers(MP_F32, 1, BATCH * ROWS * MOST), want[BATCH * PAST * SIZE];
    op_case c = tokens(attrs, 3, x);
    c.in[12] = OP_TENSOR(MP_I32, length, 1);
    c.in_count = 13;
    memcpy(want, x, sizeof want);
    for (int64_t b = 0; b < BATCH; b++) {
        memcpy(want + (b * PAST + USED) * SIZE, x + b * ROWS * SIZE, sizeof *x * ROWS * SIZE);
    }
    op_run(device, &c);
    CHECK(op_same(&c.out[1], want));
    op_close(device, &c);
    free(x);
}
