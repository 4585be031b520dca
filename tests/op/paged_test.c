/* paged_test.c - PagedAttention and SparsePagedAttention where tables, lengths, slots and chosen
 * keys are out of range, what becomes of the caches, and what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { HEADS = 2, SIZE = 8, WIDTH = HEADS * SIZE, BLOCKS = 3, ROOM = 4, BATCH = 2, TOKENS = 3 };

/* Values as float16. */
static uint16_t *halves(uint64_t seed, int64_t count) {
    return op_numbers(MP_F16, seed, count);
}

static op_case paged(const mp_attr *attrs, size_t attr_count, const uint16_t *x, uint16_t *cache,
                     const int32_t *starts, const int32_t *past, const int32_t *table) {
    return (op_case){.domain = "com.microsoft",
                     .name = "PagedAttention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = attr_count,
                     .in = {OP_TENSOR(MP_F16, x, TOKENS, WIDTH),
                            OP_TENSOR(MP_F16, x, TOKENS, WIDTH),
                            OP_TENSOR(MP_F16, x, TOKENS, WIDTH),
                            OP_TENSOR(MP_F16, cache, BLOCKS, ROOM, HEADS, SIZE),
                            OP_TENSOR(MP_F16, cache, BLOCKS, ROOM, HEADS, SIZE),
                            OP_TENSOR(MP_I32, starts, BATCH + 1), OP_TENSOR(MP_I32, past, BATCH),
                            OP_TENSOR(MP_I32, table, BATCH, 2)},
                     .in_count = 8,
                     .out_count = 3};
}

/* What is out of range is left out; nothing is read or written elsewhere, and all is finite. */
DEVICE_TEST(paged_survives_wild_tables_and_lengths) {
    static const int32_t starts[][BATCH + 1] = {{0, 1, 3},  {0, 1, INT32_MAX}, {0, 3, 1},
                                                {-5, 1, 3}, {0, 0, 0},         {INT32_MIN, 2, 3}};
    static const int32_t past[][BATCH] = {{2, 3}, {INT32_MAX, -1}, {INT32_MIN, 8}, {7, 100}};
    static const int32_t tables[][BATCH * 2] = {
        {0, 1, 2, 0}, {-1, INT32_MAX, 3, INT32_MIN}, {100, 0, -7, 2}};
    const int32_t slots[TOKENS] = {INT32_MIN, INT32_MAX, BLOCKS * ROOM};
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", HEADS),
                             OP_INT("do_rotary", 1)};
    uint16_t *x = halves(1, TOKENS * WIDTH), *cache = halves(2, BLOCKS * ROOM * WIDTH);
    for (int64_t n = 0; n < 6 * 4 * 3 * 2; n++) {
        op_case c = paged(attrs, 3, x, cache, starts[n % 6], past[n / 6 % 4], tables[n / 24 % 3]);
        c.in[8] = c.in[9] = OP_TENSOR(MP_F16, cache, 5, SIZE / 2);
        c.in_count = 10;
        if (n / 72 == 1) {
            c.in[10] = OP_TENSOR(MP_I32, slots, TOKENS);
            c.in_count = 11;
        }
        op_run(device, &c);
        for (int64_t i = 0; i < TOKENS * WIDTH; i++) {
            CHECK(isfinite(op_real(MP_F16, c.out[0].data, i)));
        }
        CHECK(n / 72 == 0 || op_same(&c.out[1], cache));
        op_close(device, &c);
    }
    free(x);
    free(cache);
}

/* New rows are in the caches where their table says. A token of no request is 0. */
DEVICE_TEST(paged_fills_its_caches) {
    const int32_t starts[BATCH + 1] = {0, 1, 2}, past[BATCH] = {2, 5}, table[] = {2, -1, 0, 1};
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", HEADS)};
    uint16_t *x = halves(1, TOKENS * WIDTH), *cache = halves(2, BLOCKS * ROOM * WIDTH);
    op_case c = paged(attrs, 2, x, cache, starts, past, table);
    op_run(device, &c);
    memcpy(cache + (ptrdiff_t)(2 * ROOM + 2) * WIDTH, x, WIDTH * sizeof *x);
    memcpy(cache + (ptrdiff_t)(1 * ROOM + 1) * WIDTH, x + WIDTH, WIDTH * sizeof *x);
    CHECK(op_same(&c.out[1], cache) && op_same(&c.out[2], cache));
    for (int64_t h = 0; h < HEADS; h++) {
        double weight[3], total = 0;
        for (int64_t j = 0; j < 3; j++) {
            double dot = 0;
            for (int64_t d = 0; d < SIZE; d++) {
                dot += op_real(MP_F16, x, h * SIZE + d) *
                       op_real(MP_F16, cache, (2 * ROOM + j) * WIDTH + h * SIZE + d);
            }
            weight[j] = exp(dot / sqrt(SIZE));
            total += weight[j];
        }
        for (int64_t d = 0; d < SIZE; d++) {
            double want = 0;
            for (int64_t j = 0; j < 3; j++) {
                want += weight[j] / total *
                        op_real(MP_F16, cache, (2 * ROOM + j) * WIDTH + h * SIZE + d);
            }
            op_check_close(op_real(MP_F16, c.out[0].data, h * SIZE + d), want, 2e-3, "paged", d);
            CHECK(op_real(MP_F16, c.out[0].data, 2 * WIDTH + h * SIZE + d) == 0);
        }
    }
    op_close(device, &c);
    free(x);
    free(cache);
}

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

DEVICE_TEST(paged_refuses) {
    const int32_t starts[BATCH + 1] = {0, 1, 3}, past[BATCH] = {2, 3}, table[] = {0, 1, 2, 0};
    mp_attr attrs[] = {OP_INT("num_heads", HEADS),      OP_INT("kv_num_heads", HEADS),
                       OP_INT("do_rotary", 0),          OP_TEXT("kv_cache_layout", "SEPARATE"),
                       OP_TEXT("k_quant_type", "NONE"), OP_TEXT("k_cache_dtype", ""),
                       OP_INT("v_head_size", 0)};
    uint16_t *x = halves(1, TOKENS * WIDTH * 64), *cache = halves(2, BLOCKS * ROOM * WIDTH);
    const float scale[1] = {1};
    const op_case good = paged(attrs, 7, x, cache, starts, past, table);
    op_case c = good;
    c.out_count = 2;
    CHECK_FAILS(plan_of(device, &c), UNSUPPORTED, "grow as inputs alone");
    c.out_count = 3;
    attrs[3].s = "BOTH";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "kv_cache_layout is");
    attrs[3].s = "LATENT";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "left out just where");
    attrs[3].s = "SEPARATE";
    attrs[1].i = 3;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "num_heads is 2 and kv_num_heads 3");
    attrs[1].i = HEADS;
    c.in[2] = OP_TENSOR(MP_F16, x, TOKENS, SIZE);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "they must be rows");
    c.in[0] = c.in[1] = c.in[2] = OP_TENSOR(MP_F16, x, 1, HEADS * 769);
    CHECK_FAILS(plan_of(device, &c), UNSUPPORTED, "heads of 769 elements");
    c = good;
    attrs[6].i = SIZE / 2;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "v_head_size is 4");
    attrs[6].i = 0;
    attrs[5].s = "int4";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "a cache of float16");
    attrs[5].s = "";
    attrs[4].s = "PER_TENSOR";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "k_quant_type is");
    attrs[4].s = "NONE";
    c.in[14] = op_f32(scale, 1);
    c.in_count = 15;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "with 1 scales");
    c = good;
    c.in[4] = OP_TENSOR(MP_F16, cache, BLOCKS, ROOM, SIZE, HEADS);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "the caches need one shape");
    c = good;
    c.in[7] = OP_TENSOR(MP_I32, table, 1, 4);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "block_table a row for each");
    c = good;
    c.in[12] = OP_TENSOR(MP_F16, x, SIZE);
    c.in_count = 13;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "both or none of them");
    c = good;
    c.in[11] = OP_TENSOR(MP_F16, x, SIZE);
    c.in_count = 12;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "head_sink");
    attrs[2].i = 1;
    CHECK_FAILS(plan_of(device, &good), INVALID_ARGUMENT, "do_rotary needs");
    free(x);
    free(cache);
}

/* ---- keys that tokens choose ---- */

static op_case sparse(const mp_attr *attrs, size_t attr_count, const uint16_t *x, uint16_t *cache,
                      const int32_t *starts, const int32_t *past, const int32_t *table,
                      const int32_t *indices, const int32_t *counts) {
    op_case c = paged(attrs, attr_count, x, cache, starts, past, table);
    c.name = "SparsePagedAttention";
    c.in[9] = OP_TENSOR(MP_I32, indices, TOKENS, 2);
    c.in[10] = OP_TENSOR(MP_I32, counts, TOKENS);
    c.in_count = 11;
    return c;
}

DEVICE_TEST(paged_survives_wild_choices) {
    static const int32_t indices[TOKENS * 2] = {INT32_MIN, INT32_MAX, -1, 1000, 0, 2};
    static const int32_t counts[][TOKENS] = {
        {INT32_MAX, INT32_MAX, INT32_MAX}, {INT32_MIN, -1, 0}, {2, 2, 2}};
    static const int32_t lengths[][BATCH] = {{INT32_MAX, INT32_MIN}, {1, 2}};
    static const int32_t starts[][BATCH + 1] = {{0, 1, 3}, {0, 1, INT32_MAX}};
    static const int32_t past[BATCH] = {INT32_MAX, 3}, table[] = {0, 1, -9, INT32_MAX};
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", HEADS),
                             OP_TEXT("selected_kv_source", "auxiliary"),
                             OP_INT("auxiliary_kv_shared", 1)};
    uint16_t *x = halves(1, TOKENS * WIDTH), *cache = halves(2, BLOCKS * ROOM * WIDTH);
    for (int64_t n = 0; n < 3 * 2 * 2 * 3; n++) {
        const bool beside = n / 12 > 0;
        op_case c = sparse(attrs, beside ? 4 : 2, x, cache, starts[n / 3 % 2], past, table, indices,
                           counts[n % 3]);
        if (beside) { /* and with no tokens at all */
            c.in[11] = OP_TENSOR(MP_F16, cache, BATCH, n / 12 == 1 ? 3 : 0, HEADS, SIZE);
            c.in[13] = OP_TENSOR(MP_I32, lengths[n / 6 % 2], BATCH);
            c.in_count = 14;
        }
        op_run(device, &c);
        for (int64_t i = 0; i < TOKENS * WIDTH; i++) {
            CHECK(isfinite(op_real(MP_F16, c.out[0].data, i)));
            CHECK(n / 12 < 2 || op_real(MP_F16, c.out[0].data, i) == 0);
        }
        op_close(device, &c);
    }
    free(x);
    free(cache);
}

DEVICE_TEST(paged_refuses_choices) {
    const int32_t starts[BATCH + 1] = {0, 1, 3}, past[BATCH] = {2, 3}, table[] = {0, 1, 2, 0};
    const int32_t indices[TOKENS * 2] = {0};
    mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", HEADS),
                       OP_TEXT("selected_kv_source", "main"),
                       OP_TEXT("attention_mode", "selected_only")};
    uint16_t *x = halves(1, TOKENS * WIDTH), *cache = halves(2, BLOCKS * ROOM * WIDTH);
    op_case c = sparse(attrs, 4, x, cache, starts, past, table, indices, indices);
    c.in[11] = OP_TENSOR(MP_F16, cache, BATCH, 3, HEADS, SIZE);
    c.in_count = 12;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "auxiliary inputs must be left out");
    attrs[2].s = "auxiliary";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "auxiliary_key needs");
    c.in[10] = OP_TENSOR(MP_I32, indices, TOKENS + 1);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "selected_indices and selected_counts");
    attrs[3].s = "all";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "selected_only or local_plus_selected");
    free(x);
    free(cache);
}
