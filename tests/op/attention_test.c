/* attention_test.c - Attention against plain loops: every way to compute it, caches, masks,
 * lengths, rows that see nothing, tensors without alignment.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ANY_WAY = 0, FEW = 1, TILES = 2, PRODUCTS = 16 }; /* bits of sdpa_kernel */

/* An Attention with heads first. */
typedef struct attention {
    int64_t batch, heads, kv_heads, rows, fresh, past, head, value;
    mp_dtype type;
    bool causal;
    double softcap;
    const uint8_t *flags;   /* [rows][keys], or NULL */
    const float *added;     /* [heads][rows][keys] of float, or NULL */
    const int64_t *lengths; /* [batch], or NULL */
    int way;
    uint32_t skew;
} attention;

typedef struct tensors {
    void *q, *k, *v, *past_k, *past_v;
} tensors;

static int64_t keys_of(const attention *a) {
    return a->past + a->fresh;
}

static tensors make_tensors(const attention *a) {
    const int64_t kv = a->batch * a->kv_heads;
    return (tensors){op_numbers(a->type, 1, a->batch * a->heads * a->rows * a->head),
                     op_numbers(a->type, 2, kv * a->fresh * a->head),
                     op_numbers(a->type, 3, kv * a->fresh * a->value),
                     op_numbers(a->type, 4, kv * a->past * a->head),
                     op_numbers(a->type, 5, kv * a->past * a->value)};
}

static void free_tensors(tensors *t) {
    free(t->q);
    free(t->k);
    free(t->v);
    free(t->past_k);
    free(t->past_v);
}

/* Element `d` of key or value `j` of key head `unit`. */
static double cached(const attention *a, const void *past, const void *fresh, int64_t size,
                     int64_t unit, int64_t j, int64_t d) {
    return j < a->past ? op_real(a->type, past, (unit * a->past + j) * size + d)
                       : op_real(a->type, fresh, (unit * a->fresh + j - a->past) * size + d);
}

static bool sees(const attention *a, int64_t b, int64_t i, int64_t j) {
    const int64_t length = a->lengths != NULL ? a->lengths[b] : keys_of(a);
    const int64_t before = a->lengths != NULL ? length - a->rows : a->past;
    return j < length && (!a->causal || j <= i + before) &&
           (a->flags == NULL || a->flags[i * keys_of(a) + j] != 0);
}

/* Scores of one query, -inf for keys that it does not see. */
static double scores_of(const attention *a, const tensors *t, int64_t b, int64_t h, int64_t i,
                        double *score) {
    const int64_t unit = b * a->kv_heads + h / (a->heads / a->kv_heads);
    double top = -(double)INFINITY;
    for (int64_t j = 0; j < keys_of(a); j++) {
        double dot = 0;
        for (int64_t d = 0; d < a->head; d++) {
            dot += op_real(a->type, t->q, ((b * a->heads + h) * a->rows + i) * a->head + d) *
                   cached(a, t->past_k, t->k, a->head, unit, j, d);
        }
        dot /= sqrt((double)a->head);
        dot = a->softcap > 0 ? a->softcap * tanh(dot / a->softcap) : dot;
        if (a->added != NULL) {
            dot += (double)a->added[(h * a->rows + i) * keys_of(a) + j];
        }
        score[j] = sees(a, b, i, j) ? dot : -(double)INFINITY;
        top = score[j] > top ? score[j] : top;
    }
    return top;
}

static void check_query(const attention *a, const tensors *t, const op_tensor *y, int64_t b,
                        int64_t h, int64_t i, double *score) {
    const int64_t unit = b * a->kv_heads + h / (a->heads / a->kv_heads);
    const double top = scores_of(a, t, b, h, i, score);
    /* Scores of the products way are rounded to the type, and so are its weights. */
    const double bound = 4 * op_precision(a->type) + (a->type == MP_F64 ? 1e-13 : 2e-5);
    double sum = 0;
    for (int64_t j = 0; j < keys_of(a); j++) {
        score[j] = score[j] == -(double)INFINITY ? 0 : exp(score[j] - top);
        sum += score[j];
    }
    for (int64_t d = 0; d < a->value; d++) {
        double want = 0;
        for (int64_t j = 0; j < keys_of(a) && sum > 0; j++) {
            want += score[j] / sum * cached(a, t->past_v, t->v, a->value, unit, j, d);
        }
        const int64_t at = ((b * a->heads + h) * a->rows + i) * a->value + d;
        op_check_close(op_real(a->type, y->data, at), want, bound, "attention", at);
    }
}

static void check_present(const attention *a, const op_tensor *present, const void *past,
                          const void *fresh, int64_t size) {
    for (int64_t unit = 0; unit < a->batch * a->kv_heads; unit++) {
        for (int64_t j = 0; j < keys_of(a); j++) {
            for (int64_t d = 0; d < size; d++) {
                const int64_t at = (unit * keys_of(a) + j) * size + d;
                CHECK(op_real(a->type, present->data, at) ==
                      cached(a, past, fresh, size, unit, j, d));
            }
        }
    }
}

static op_case case_of(const attention *a, const tensors *t, const mp_attr *attrs) {
    const int64_t keys = keys_of(a);
    op_case c = {.name = "Attention",
                 .version = 24,
                 .attrs = attrs,
                 .attr_count = 2,
                 .options = {.sdpa_kernel = a->way},
                 .align = a->skew != 0 ? 1 : 16,
                 .skew = a->skew,
                 .in = {OP_TENSOR(a->type, t->q, a->batch, a->heads, a->rows, a->head),
                        OP_TENSOR(a->type, t->k, a->batch, a->kv_heads, a->fresh, a->head),
                        OP_TENSOR(a->type, t->v, a->batch, a->kv_heads, a->fresh, a->value)},
                 .in_count = 7,
                 .out_count = a->past > 0 ? 3 : 1};
    if (a->flags != NULL) {
        c.in[3] = OP_TENSOR(MP_BOOL, a->flags, a->rows, keys);
    } else if (a->added != NULL) {
        c.in[3] = op_f32(a->added, 1, a->heads, a->rows, keys);
    }
    if (a->past > 0) {
        c.in[4] = OP_TENSOR(a->type, t->past_k, a->batch, a->kv_heads, a->past, a->head);
        c.in[5] = OP_TENSOR(a->type, t->past_v, a->batch, a->kv_heads, a->past, a->value);
    }
    if (a->lengths != NULL) {
        c.in[6] = op_i64(a->lengths, a->batch);
    }
    return c;
}

static void check_attention(mp_device *device, const attention *a) {
    const mp_attr attrs[] = {OP_INT("is_causal", a->causal),
                             OP_FLOAT("softcap", (float)a->softcap)};
    tensors t = make_tensors(a);
    double *score = calloc((size_t)keys_of(a) + 1, sizeof *score);
    CHECK(score != NULL);
    op_case c = case_of(a, &t, attrs);
    op_run(device, &c);
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t h = 0; h < a->heads; h++) {
            for (int64_t i = 0; i < a->rows; i++) {
                check_query(a, &t, &c.out[0], b, h, i, score);
            }
        }
    }
    if (a->past > 0) {
        check_present(a, &c.out[1], t.past_k, t.k, a->head);
        check_present(a, &c.out[2], t.past_v, t.v, a->value);
    }
    op_close(device, &c);
    free(score);
    free_tensors(&t);
}

static const mp_dtype fused_types[] = {MP_F32, MP_F16, MP_BF16};
static const int ways[] = {FEW, TILES, PRODUCTS};

DEVICE_TEST(attention_every_way_and_type) {
    for (size_t w = 0; w < MP_COUNT_OF(ways); w++) {
        for (size_t i = 0; i < MP_COUNT_OF(fused_types); i++) {
            const attention a = {.batch = 2,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .rows = 3,
                                 .fresh = 21,
                                 .head = 16,
                                 .value = 24,
                                 .type = fused_types[i],
                                 .way = ways[w]};
            check_attention(device, &a);
        }
    }
    const attention wide = {.batch = 1,
                            .heads = 2,
                            .kv_heads = 1,
                            .rows = 5,
                            .fresh = 9,
                            .head = 3,
                            .value = 2,
                            .type = MP_F64};
    check_attention(device, &wide);
}

DEVICE_TEST(attention_of_odd_sizes) {
    static const int64_t sizes[][2] = {{1, 1}, {5, 9}, {17, 8}, {72, 33}, {256, 7}, {40, 256}};
    for (size_t w = 0; w < MP_COUNT_OF(ways); w++) {
        for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
            const attention a = {.batch = 1,
                                 .heads = 3,
                                 .kv_heads = 1,
                                 .rows = 3,
                                 .fresh = 11,
                                 .head = sizes[i][0],
                                 .value = sizes[i][1],
                                 .type = MP_F32,
                                 .way = ways[w]};
            check_attention(device, &a);
        }
    }
}

DEVICE_TEST(attention_without_alignment) {
    for (size_t w = 0; w < MP_COUNT_OF(ways); w++) {
        const attention a = {.batch = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .rows = 2,
                             .fresh = 5,
                             .past = 6,
                             .head = 16,
                             .value = 8,
                             .type = MP_F16,
                             .way = ways[w],
                             .skew = 2};
        check_attention(device, &a);
    }
}

DEVICE_TEST(attention_splits_long_caches) {
    const int64_t lengths[] = {1100, 3};
    for (int64_t rows = 1; rows < 4; rows += 2) {
        attention a = {.batch = 2,
                       .heads = 2,
                       .kv_heads = 2,
                       .rows = rows,
                       .fresh = 1100,
                       .head = 8,
                       .value = 8,
                       .type = MP_F32,
                       .way = FEW};
        check_attention(device, &a);
        a.lengths = lengths;
        a.causal = true;
        check_attention(device, &a);
    }
}

/* Heads that attention_decode.cu has, rows that fill a block and more, keys that end in a tile. */
DEVICE_TEST(attention_of_new_tokens) {
    static const int64_t heads[] = {64, 80, 96, 128, 256};
    static const int64_t lengths[] = {1, 203};
    for (size_t i = 0; i < MP_COUNT_OF(heads) * 4; i++) {
        const bool ragged = i % 4 == 3;
        const attention a = {.batch = 2,
                             .heads = i % 4 == 1 ? 12 : 6,
                             .kv_heads = i % 4 == 2 ? 6 : 2,
                             .rows = ragged ? 3 : 1,
                             .fresh = ragged ? 203 : 1,
                             .past = ragged ? 0 : (int64_t)(i * 37),
                             .head = heads[i / 4],
                             .value = heads[i / 4],
                             .type = i % 2 == 0 ? MP_F16 : MP_BF16,
                             .way = FEW,
                             .causal = ragged,
                             .lengths = ragged ? lengths : NULL};
        check_attention(device, &a);
    }
    for (int64_t group = 1; group <= 16; group += 5) { /* caches that blocks share */
        const attention a = {.batch = 1,
                             .heads = group,
                             .kv_heads = 1,
                             .rows = 1,
                             .fresh = 500,
                             .head = 64,
                             .value = 64,
                             .type = MP_F16,
                             .way = FEW};
        check_attention(device, &a);
    }
}

DEVICE_TEST(attention_tiles_have_ragged_ends) {
    for (int causal = 0; causal < 2; causal++) {
        const attention a = {.batch = 1,
                             .heads = 4,
                             .kv_heads = 2,
                             .rows = 67,
                             .fresh = 67,
                             .past = 30,
                             .head = 8,
                             .value = 12,
                             .type = MP_F32,
                             .causal = causal != 0,
                             .softcap = 1.5,
                             .way = TILES};
        check_attention(device, &a);
    }
}

/* Nothing becomes of scores but weights, and rows have no gaps: any softmax will do. */
DEVICE_TEST(attention_products_of_plain_rows) {
    static const int64_t keys[] = {8, 136, 2056};
    for (size_t i = 0; i < MP_COUNT_OF(keys) * MP_COUNT_OF(fused_types); i++) {
        const attention a = {.batch = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .rows = 5,
                             .fresh = keys[i % MP_COUNT_OF(keys)],
                             .head = 8,
                             .value = 16,
                             .type = fused_types[i / MP_COUNT_OF(keys)],
                             .way = PRODUCTS};
        check_attention(device, &a);
    }
}

DEVICE_TEST(attention_products_in_parts) {
    /* More rows than a part has, which see more keys from part to part. */
    const attention a = {.batch = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .rows = 1030,
                         .fresh = 1030,
                         .head = 1,
                         .value = 1,
                         .type = MP_F32,
                         .causal = true,
                         .way = PRODUCTS};
    check_attention(device, &a);
}

DEVICE_TEST(attention_masks) {
    enum { ROWS = 5, KEYS = 19, HEADS = 2 };
    uint8_t flags[ROWS * KEYS];
    float added[HEADS * ROWS * KEYS];
    for (int i = 0; i < ROWS * KEYS; i++) {
        flags[i] = i % 3 != 1 && i / KEYS != 2; /* row 2 sees nothing */
    }
    for (int i = 0; i < HEADS * ROWS * KEYS; i++) {
        added[i] = i % 7 == 0 || i / KEYS == 4 ? -INFINITY : op_value(9, i);
    }
    for (size_t w = 0; w < MP_COUNT_OF(ways); w++) {
        attention a = {.batch = 2,
                       .heads = HEADS,
                       .kv_heads = 1,
                       .rows = ROWS,
                       .fresh = KEYS,
                       .head = 8,
                       .value = 8,
                       .type = MP_F32,
                       .way = ways[w],
                       .flags = flags};
        check_attention(device, &a);
        a.flags = NULL;
        a.added = added;
        check_attention(device, &a);
        a.causal = true;
        check_attention(device, &a);
    }
}

/* Lengths shorter than the queries leave the first of them without a key. */
DEVICE_TEST(attention_lengths) {
    const int64_t lengths[] = {2, 0, 9};
    for (size_t w = 0; w < MP_COUNT_OF(ways); w++) {
        for (int causal = 0; causal < 2; causal++) {
            const attention a = {.batch = 3,
                                 .heads = 2,
                                 .kv_heads = 2,
                                 .rows = 4,
                                 .fresh = 9,
                                 .head = 8,
                                 .value = 8,
                                 .type = MP_F32,
                                 .way = ways[w],
                                 .causal = causal != 0,
                                 .lengths = lengths};
            check_attention(device, &a);
        }
    }
}

/* Values of a tensor are not to be trusted: lengths beyond the cache are cut. */
DEVICE_TEST(attention_lengths_out_of_range) {
    const int64_t wild[] = {INT64_MAX, INT64_MIN};
    const int64_t cut[] = {9, 0};
    for (size_t w = 0; w < MP_COUNT_OF(ways); w++) {
        attention a = {.batch = 2,
                       .heads = 2,
                       .kv_heads = 2,
                       .rows = 4,
                       .fresh = 9,
                       .head = 8,
                       .value = 8,
                       .type = MP_F32,
                       .way = ways[w],
                       .lengths = wild};
        const mp_attr attrs[] = {OP_INT("is_causal", 0), OP_FLOAT("softcap", 0)};
        tensors t = make_tensors(&a);
        double score[16];
        op_case c = case_of(&a, &t, attrs);
        op_run(device, &c);
        a.lengths = cut;
        for (int64_t i = 0; i < 2 * 2 * 4; i++) {
            check_query(&a, &t, &c.out[0], i / 8, i / 4 % 2, i % 4, score);
        }
        op_close(device, &c);
        free_tensors(&t);
    }
}

DEVICE_TEST(attention_keeps_nan) {
    for (size_t w = 0; w < MP_COUNT_OF(ways); w++) {
        float q[2 * 8];
        float k[3 * 8];
        for (int i = 0; i < 3 * 8; i++) {
            k[i] = op_value(1, i);
            q[i % 16] = i == 0 ? NAN : op_value(2, i); /* of the first query */
        }
        q[0] = NAN;
        op_case c = {.name = "Attention",
                     .version = 23,
                     .options = {.sdpa_kernel = ways[w]},
                     .in = {op_f32(q, 1, 1, 2, 8), op_f32(k, 1, 1, 3, 8), op_f32(k, 1, 1, 3, 8)},
                     .in_count = 3,
                     .out_count = 1};
        op_run(device, &c);
        for (int i = 0; i < 16; i++) {
            CHECK((isnan(((const float *)c.out[0].data)[i]) != 0) == (i < 8));
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(attention_of_nothing) {
    float x[8] = {1};
    op_case none = {.name = "Attention",
                    .version = 23,
                    .in = {op_f32(x, 1, 1, 2, 4), op_f32(x, 1, 1, 0, 4), op_f32(x, 1, 1, 0, 3)},
                    .in_count = 3,
                    .out_count = 1};
    op_run(device, &none);
    for (int i = 0; i < 6; i++) {
        CHECK(((const float *)none.out[0].data)[i] == 0);
    }
    op_close(device, &none);
    op_case empty = none;
    empty.in[0] = op_f32(x, 1, 1, 0, 4);
    empty.in[1] = empty.in[2] = op_f32(x, 1, 1, 2, 4);
    op_run(device, &empty);
    CHECK_EQ_INT(empty.out[0].shape.dim[2], 0);
    op_close(device, &empty);
}

/* The caches are left out, the scores behind them are not. */
DEVICE_TEST(attention_with_outputs_left_out) {
    const attention a = {.batch = 1,
                         .heads = 2,
                         .kv_heads = 2,
                         .rows = 3,
                         .fresh = 3,
                         .past = 4,
                         .head = 4,
                         .value = 4,
                         .type = MP_F32};
    const mp_attr attrs[] = {OP_INT("is_causal", 0), OP_FLOAT("softcap", 0)};
    tensors t = make_tensors(&a);
    double score[8];
    op_case c = case_of(&a, &t, attrs);
    c.out_count = 4;
    c.out_absent = 6;
    op_run(device, &c);
    for (int64_t i = 0; i < 2 * 3; i++) {
        check_query(&a, &t, &c.out[0], 0, i / 3, i % 3, score);
        (void)scores_of(&a, &t, 0, i / 3, i % 3, score);
        for (int64_t j = 0; j < 7; j++) {
            op_check_close((double)((const float *)c.out[3].data)[i * 7 + j], score[j], 1e-5,
                           "score", i * 7 + j);
        }
    }
    op_close(device, &c);
    free_tensors(&t);
}

DEVICE_TEST(attention_refuses) {
    const attention a = {.batch = 2,
                         .heads = 4,
                         .kv_heads = 2,
                         .rows = 3,
                         .fresh = 3,
                         .past = 4,
                         .head = 4,
                         .value = 4,
                         .type = MP_F32};
    const int64_t lengths[] = {1, 2};
    const mp_attr attrs[] = {OP_INT("is_causal", 0), OP_FLOAT("softcap", -1)};
    tensors t = make_tensors(&a);
    mp_plan *plan = NULL;
    op_case good = case_of(&a, &t, attrs);
    good.attr_count = 0;
    op_case bad = good;
    bad.attr_count = 2;
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "softcap");
    bad = good;
    bad.in[5].type = MP_NONE;
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "past_value");
    bad = good;
    bad.in[6] = op_i64(lengths, 2);
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "nonpad_kv_seqlen");
    bad = good;
    bad.in[4].shape.dim[3] = 5;
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "past_key");
    bad = good;
    bad.in[1].shape.dim[1] = bad.in[2].shape.dim[1] = 3;
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "multiple");
    bad = good;
    bad.in[3] = op_f32(t.q, 3, 4);
    bad.in[3].shape.dim[0] = 2;
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "mask");
    bad = good;
    bad.in[0].shape.rank = bad.in[1].shape.rank = bad.in[2].shape.rank = 3;
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "q_num_heads");
    free_tensors(&t);
}
