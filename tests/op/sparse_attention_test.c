/* sparse_attention_test.c - SparseAttention where lists of blocks and lengths are out of range,
 * what is passed over, and what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum {
    HEADS = 4,
    KV = 2,
    SIZE = 8,
    BLOCK = 8,
    BLOCKS = 5,
    ROOM = BLOCKS * BLOCK,
    BATCH = 2,
    ROWS_MOST = 33,
    MOST = 6 /* of a layout's columns */
};

static op_case sparse(const mp_attr *attrs, size_t attr_count, int64_t rows, const float *x,
                      const float *cache, const int32_t *starts, const int32_t *columns,
                      const int32_t *total, const int32_t *lengths) {
    return (op_case){.domain = "com.microsoft",
                     .name = "SparseAttention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = attr_count,
                     .in = {op_f32(x, BATCH, rows, HEADS * SIZE), op_f32(x, BATCH, rows, KV * SIZE),
                            op_f32(x, BATCH, rows, KV * SIZE), op_f32(cache, BATCH, KV, ROOM, SIZE),
                            op_f32(cache, BATCH, KV, ROOM, SIZE),
                            OP_TENSOR(MP_I32, starts, 2, BLOCKS + 1),
                            OP_TENSOR(MP_I32, columns, 2, MOST), OP_TENSOR(MP_I32, total, 1),
                            OP_TENSOR(MP_I32, lengths, BATCH)},
                     .in_count = 9,
                     .out_count = 3};
}

/* What is out of range is left out; nothing is read or written elsewhere, and all is finite. */
DEVICE_TEST(sparse_attention_survives_wild_blocks_and_lengths) {
    static const int32_t starts[][2 * (BLOCKS + 1)] = {
        {0, -7, INT32_MAX, INT32_MIN, 5, 2, 0, 1, 2, 3, 4, 5},
        {INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, 0, -1, 7, -1, 7, -1, 7}};
    static const int32_t columns[2 * MOST] = {INT32_MAX, 0,         -1, INT32_MIN, 4, 1000,
                                              3,         INT32_MIN, 2,  5,         1, INT32_MAX};
    static const int32_t lengths[][BATCH] = {{1, 9}, {INT32_MAX, INT32_MIN}, {0, -1}, {100, 20}};
    static const int32_t rows[] = {1, 3, ROWS_MOST}; /* by lists, and by tiles */
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", KV),
                             OP_INT("sparse_block_size", BLOCK), OP_INT("do_rotary", 1)};
    float *x = op_numbers(MP_F32, 1, BATCH * ROWS_MOST * HEADS * SIZE);
    float *cache = op_numbers(MP_F32, 2, BATCH * KV * ROOM * SIZE);
    for (int64_t n = 0; n < 6; n++) {
        const int32_t count = rows[n % 3], total = n % 2 ? ROOM : count;
        op_case c =
            sparse(attrs, 4, count, x, cache, starts[n / 3], columns, &total, lengths[n % 4]);
        c.in[9] = c.in[10] = op_f32(cache, ROOM, SIZE / 2);
        c.in_count = 11;
        op_run(device, &c);
        for (int64_t i = 0; i < BATCH * count * HEADS * SIZE; i++) {
            CHECK(isfinite(op_real(MP_F32, c.out[0].data, i)));
        }
        op_close(device, &c);
    }
    free(x);
    free(cache);
}

/* A block that no query sees is not looked at: nothing comes of what is there. */
DEVICE_TEST(sparse_attention_passes_over_blocks) {
    enum { LARGE = 64, LENGTH = 3 * LARGE, KEYS = BATCH * KV * LENGTH * SIZE };
    static const int32_t starts[] = {0, 1, 2, 4, 0, 1, 2, 4}, columns[] = {0, 0, 0, 2, 0, 0, 0, 2};
    static const int32_t total = LENGTH, lengths[BATCH] = {LENGTH, LENGTH - 7};
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", KV),
                             OP_INT("sparse_block_size", LARGE)};
    float *x = op_numbers(MP_F32, 1, BATCH * ROWS_MOST * HEADS * SIZE);
    float *cache = op_numbers(MP_F32, 2, KEYS);
    for (int64_t i = 0; i < KEYS; i++) {
        cache[i] = i / SIZE % LENGTH / LARGE == 1 ? NAN : cache[i];
    }
    for (int32_t rows = 1; rows <= ROWS_MOST; rows += ROWS_MOST - 1) { /* by lists, by tiles */
        op_case c = sparse(attrs, 3, rows, x, cache, starts, columns, &total, lengths);
        c.in[3] = c.in[4] = op_f32(cache, BATCH, KV, LENGTH, SIZE);
        c.in[5] = OP_TENSOR(MP_I32, starts, 2, 4);
        c.in[6] = OP_TENSOR(MP_I32, columns, 2, 4);
        op_run(device, &c);
        for (int64_t i = 0; i < (int64_t)BATCH * rows * HEADS * SIZE; i++) {
            CHECK(isfinite(op_real(MP_F32, c.out[0].data, i)));
        }
        op_close(device, &c);
    }
    free(x);
    free(cache);
}

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

DEVICE_TEST(sparse_attention_refuses) {
    const int32_t starts[2 * (BLOCKS + 1)] = {0}, columns[2 * MOST] = {0}, lengths[BATCH] = {1, 9};
    int32_t total = 9;
    mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", KV),
                       OP_INT("sparse_block_size", BLOCK), OP_INT("do_rotary", 0)};
    float *x = op_numbers(MP_F32, 1, BATCH * HEADS * SIZE * 2);
    float *cache = op_numbers(MP_F32, 2, BATCH * KV * ROOM * SIZE);
    const op_case good = sparse(attrs, 4, 1, x, cache, starts, columns, &total, lengths);
    op_case c = good;
    total = 0;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "total_sequence_length is 0 for 1");
    total = ROOM + 1;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "total_sequence_length is 41");
    total = 9;
    attrs[2].i = 0;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "sparse_block_size is 0");
    attrs[2].i = 1;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "block_row_indices of shape 2x6");
    attrs[2].i = BLOCK;
    c.in[6] = OP_TENSOR(MP_I32, columns, 1, MOST);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "block_col_indices of shape 1x6");
    c = good;
    c.in[8] = OP_TENSOR(MP_I32, lengths, 1);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "key_total_sequence_lengths of shape 1");
    c = good;
    c.in[4] = op_f32(cache, BATCH, KV, SIZE, ROOM);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "past_key and past_value need");
    c = good;
    c.in[0] = op_f32(x, BATCH, HEADS * SIZE);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "they must be rows");
    c = good;
    attrs[3].i = 1;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "do_rotary needs");
    c.in[9] = c.in[10] = op_f32(cache, 8, SIZE / 2);
    c.in_count = 11;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "cos_cache has 8 rows for 9 positions");
    free(x);
    free(cache);
}
