/* attention_mma_test.c - attention by tensor cores against plain loops: sizes of heads, lengths
 * that end within a tile, masks of each kind, shared heads, layouts that are read where they lie.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { TILES = 2 /* bit of sdpa_kernel */ };

typedef struct attention {
    int64_t batch, heads, kv_heads, rows, keys, head, value;
    mp_dtype type;
    bool causal;
    double softcap;
    mp_dtype mask;         /* MP_NONE: no mask */
    int64_t mask_dim[4];   /* 1 where it repeats */
    double mask_low;       /* 0: -inf; what is added to keys that are left out */
    bool mask_all;         /* all keys of the first entry are */
    const int64_t *length; /* [batch], or NULL */
    int64_t every;         /* one of so many queries is looked at; 0: all are */
    bool heads_last;       /* [batch, rows, heads * size] */
} attention;

typedef struct tensors {
    void *q, *k, *v, *mask;
} tensors;

/* Where the heads of a tensor lie. */
static int64_t place(const attention *a, int64_t heads, int64_t rows, int64_t size, int64_t b,
                     int64_t h, int64_t i) {
    return a->heads_last ? ((b * rows + i) * heads + h) * size
                         : ((b * heads + h) * rows + i) * size;
}

static int64_t mask_count(const attention *a) {
    return a->mask_dim[0] * a->mask_dim[1] * a->mask_dim[2] * a->mask_dim[3];
}

/* Every third key is left out, and all of row 2, or of the first entry. */
static void *make_mask(const attention *a) {
    if (a->mask == MP_NONE) {
        return NULL;
    }
    void *mask = op_memory(a->mask, mask_count(a));
    for (int64_t i = 0; i < mask_count(a); i++) {
        const int64_t row = i / a->mask_dim[3] % a->mask_dim[2];
        const bool first = i < mask_count(a) / a->mask_dim[0];
        const bool out = i % 3 == 1 || row == 2 || (a->mask_all && first);
        if (a->mask == MP_BOOL) {
            ((uint8_t *)mask)[i] = !out;
        } else {
            const double low = a->mask_low == 0 ? -(double)INFINITY : a->mask_low;
            op_store_real(a->mask, mask, i, out ? low : (double)op_value(9, i));
        }
    }
    return mask;
}

static tensors make_tensors(const attention *a) {
    return (tensors){op_numbers(a->type, 1, a->batch * a->heads * a->rows * a->head),
                     op_numbers(a->type, 2, a->batch * a->kv_heads * a->keys * a->head),
                     op_numbers(a->type, 3, a->batch * a->kv_heads * a->keys * a->value),
                     make_mask(a)};
}

static void free_tensors(tensors *t) {
    free(t->q);
    free(t->k);
    free(t->v);
    free(t->mask);
}

/* The score once its mask has been added. */
static double masked(const attention *a, const tensors *t, const int64_t at[4], double score) {
    if (a->mask == MP_NONE) {
        return score;
    }
    int64_t i = 0;
    for (int d = 0; d < 4; d++) {
        i = i * a->mask_dim[d] + (a->mask_dim[d] == 1 ? 0 : at[d]);
    }
    if (a->mask == MP_BOOL) {
        return ((const uint8_t *)t->mask)[i] != 0 ? score : -(double)INFINITY;
    }
    return score + op_real(a->mask, t->mask, i);
}

static double score_of(const attention *a, const tensors *t, int64_t b, int64_t h, int64_t i,
                       int64_t j) {
    const int64_t length = a->length != NULL ? a->length[b] : a->keys;
    const int64_t before = a->length != NULL ? length - a->rows : 0;
    const int64_t q = place(a, a->heads, a->rows, a->head, b, h, i);
    const int64_t k = place(a, a->kv_heads, a->keys, a->head, b, h / (a->heads / a->kv_heads), j);
    double dot = 0;
    if (j >= length || (a->causal && j > i + before)) {
        return -(double)INFINITY;
    }
    for (int64_t d = 0; d < a->head; d++) {
        dot += op_real(a->type, t->q, q + d) * op_real(a->type, t->k, k + d);
    }
    dot /= sqrt((double)a->head);
    dot = a->softcap > 0 ? a->softcap * tanh(dot / a->softcap) : dot;
    return masked(a, t, (int64_t[]){b, h, i, j}, dot);
}

/* TF32, which products of floats are rounded to, has the digits of float16. */
static double precision_of(const attention *a) {
    return op_precision(a->type == MP_F32 ? MP_F16 : a->type);
}

static void check_query(const attention *a, const tensors *t, const op_tensor *y, int64_t b,
                        int64_t h, int64_t i, double *score) {
    const int64_t at = place(a, a->heads, a->rows, a->value, b, h, i);
    double top = -(double)INFINITY;
    double sum = 0;
    for (int64_t j = 0; j < a->keys; j++) {
        score[j] = score_of(a, t, b, h, i, j);
        top = score[j] > top ? score[j] : top;
    }
    for (int64_t j = 0; j < a->keys; j++) {
        score[j] = score[j] == -(double)INFINITY ? 0 : exp(score[j] - top);
        sum += score[j];
    }
    for (int64_t d = 0; d < a->value; d++) {
        double want = 0;
        for (int64_t j = 0; j < a->keys && sum > 0; j++) {
            const int64_t v =
                place(a, a->kv_heads, a->keys, a->value, b, h / (a->heads / a->kv_heads), j);
            want += score[j] / sum * op_real(a->type, t->v, v + d);
        }
        op_check_close(op_real(a->type, y->data, at + d), want, 2 * precision_of(a), "attention",
                       at + d);
    }
}

static op_tensor tensor_of(const attention *a, const void *data, int64_t heads, int64_t rows,
                           int64_t size) {
    return a->heads_last ? OP_TENSOR(a->type, data, a->batch, rows, heads * size)
                         : OP_TENSOR(a->type, data, a->batch, heads, rows, size);
}

static void check_attention(mp_device *device, const attention *a) {
    const mp_attr attrs[] = {OP_INT("is_causal", a->causal), OP_FLOAT("softcap", (float)a->softcap),
                             OP_INT("q_num_heads", a->heads), OP_INT("kv_num_heads", a->kv_heads)};
    tensors t = make_tensors(a);
    op_case c = {.name = "Attention",
                 .version = 24,
                 .attrs = attrs,
                 .attr_count = a->heads_last ? 4 : 2,
                 .options = {.sdpa_kernel = TILES, .tf32 = true},
                 .in = {tensor_of(a, t.q, a->heads, a->rows, a->head),
                        tensor_of(a, t.k, a->kv_heads, a->keys, a->head),
                        tensor_of(a, t.v, a->kv_heads, a->keys, a->value)},
                 .in_count = 7,
                 .out_count = 1};
    if (a->mask != MP_NONE) {
        c.in[3] = op_tensor_of(a->mask, t.mask, 4, a->mask_dim);
    }
    if (a->length != NULL) {
        c.in[6] = op_i64(a->length, a->batch);
    }
    double *score = calloc((size_t)a->keys, sizeof *score);
    CHECK(score != NULL);
    op_run(device, &c);
    for (int64_t i = 0; i < a->batch * a->heads * a->rows; i += MP_MAX(a->every, 1)) {
        check_query(a, &t, &c.out[0], i / a->rows / a->heads, i / a->rows % a->heads, i % a->rows,
                    score);
    }
    op_close(device, &c);
    free(score);
    free_tensors(&t);
}

static const mp_dtype types[] = {MP_F16, MP_BF16};

DEVICE_TEST(attention_mma_sizes_of_heads) {
    static const int64_t sizes[][2] = {{32, 32}, {64, 64},   {80, 80},   {96, 96}, {128, 128},
                                       {72, 40}, {192, 128}, {256, 256}, {16, 64}};
    for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
        for (size_t k = 0; k < MP_COUNT_OF(types); k++) {
            const attention a = {.batch = 1,
                                 .heads = 2,
                                 .kv_heads = 2,
                                 .rows = 37,
                                 .keys = 150,
                                 .head = sizes[i][0],
                                 .value = sizes[i][1],
                                 .type = types[k],
                                 .heads_last = k == 0};
            check_attention(device, &a);
        }
    }
}

DEVICE_TEST(attention_mma_lengths) {
    static const int64_t lengths[] = {1, 17, 49, 128, 197, 300};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        for (size_t k = 0; k < MP_COUNT_OF(lengths); k++) {
            const attention a = {.batch = 1,
                                 .heads = 1,
                                 .kv_heads = 1,
                                 .rows = lengths[i],
                                 .keys = lengths[k],
                                 .head = 32,
                                 .value = 32,
                                 .type = MP_F16,
                                 .causal = i % 2 != 0};
            check_attention(device, &a);
        }
    }
}

/* Floats take this way from some work on. */
DEVICE_TEST(attention_mma_of_floats) {
    static const int64_t sizes[][2] = {{32, 32},   {64, 64}, {96, 96},
                                       {128, 128}, {72, 40}, {16, 64}};
    static const int64_t lengths[][2] = {{137, 150}, {150, 137}, {130, 288}};
    for (size_t i = 0; i < MP_COUNT_OF(sizes) * MP_COUNT_OF(lengths); i++) {
        const int64_t *size = sizes[i % MP_COUNT_OF(sizes)];
        const int64_t *length = lengths[i / MP_COUNT_OF(sizes)];
        const attention a = {.batch = 1,
                             .heads = 2,
                             .kv_heads = 2,
                             .rows = length[0],
                             .keys = length[1],
                             .head = size[0],
                             .value = size[1],
                             .type = MP_F32,
                             .causal = i % 4 == 1,
                             .heads_last = i % 2 == 0};
        check_attention(device, &a);
    }
}

/* Three heads of Q to one of K and V, under a soft limit. */
static attention shared_heads(mp_dtype type, int64_t batch, bool causal) {
    return (attention){.batch = batch,
                       .heads = 6,
                       .kv_heads = 2,
                       .rows = 45,
                       .keys = 45,
                       .head = 64,
                       .value = 64,
                       .type = type,
                       .causal = causal,
                       .softcap = 1.5,
                       .heads_last = true};
}

DEVICE_TEST(attention_mma_of_floats_by_rules) {
    const int64_t lengths[] = {70, 0, 133};
    for (int causal = 0; causal < 2; causal++) {
        attention a = shared_heads(MP_F32, 3, causal != 0);
        check_attention(device, &a);
        a.keys = 133;
        a.length = lengths;
        a.heads_last = false;
        check_attention(device, &a);
    }
}

DEVICE_TEST(attention_mma_masks_of_floats) {
    enum { BATCH = 2, HEADS = 2, ROWS = 70 };
    static const int64_t dims[][4] = {
        {BATCH, 1, 1, 0}, {1, 1, ROWS, 0}, {BATCH, HEADS, ROWS, 0}, {1, 1, ROWS, 1}};
    static const mp_dtype masks[] = {MP_BOOL, MP_F32};
    static const int64_t keys[] = {160, 131};
    for (size_t i = 0; i < MP_COUNT_OF(dims) * MP_COUNT_OF(masks) * MP_COUNT_OF(keys); i++) {
        const int64_t *dim = dims[i % MP_COUNT_OF(dims)];
        attention a = {.batch = BATCH,
                       .heads = HEADS,
                       .kv_heads = 1,
                       .rows = ROWS,
                       .keys = keys[i / MP_COUNT_OF(dims) / MP_COUNT_OF(masks)],
                       .head = 32,
                       .value = 32,
                       .type = MP_F32,
                       .mask = masks[i / MP_COUNT_OF(dims) % MP_COUNT_OF(masks)],
                       .mask_dim = {dim[0], dim[1], dim[2], dim[3]}};
        a.mask_dim[3] = a.mask_dim[3] == 1 ? 1 : a.keys;
        check_attention(device, &a);
        a.causal = true;
        check_attention(device, &a);
    }
}

/* So many that groups of warps take them, where there are such. */
DEVICE_TEST(attention_mma_of_many_keys) {
    static const int64_t sizes[][2] = {{64, 64}, {40, 56}, {128, 128}, {104, 128}};
    static const int64_t lengths[][2] = {{64, 192}, {131, 333}, {200, 200}, {70, 448}};
    for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
        for (size_t k = 0; k < MP_COUNT_OF(types); k++) {
            const attention a = {.batch = 1,
                                 .heads = 2,
                                 .kv_heads = k == 0 ? 1 : 2,
                                 .rows = lengths[(i + k) % 4][0],
                                 .keys = lengths[(i + k) % 4][1],
                                 .head = sizes[i][0],
                                 .value = sizes[i][1],
                                 .type = types[k],
                                 .causal = (i + k) % 3 != 0,
                                 .heads_last = i % 2 == 0,
                                 .every = 13};
            check_attention(device, &a);
        }
    }
}

/* Of long heads blocks have twice the rows where there are many. */
DEVICE_TEST(attention_mma_of_many_keys_and_rows) {
    const int64_t lengths[] = {100, 1, 64, 0};
    attention a = {.batch = 4,
                   .heads = 28,
                   .kv_heads = 28,
                   .rows = 66,
                   .keys = 100,
                   .head = 128,
                   .value = 128,
                   .type = MP_F16,
                   .causal = true,
                   .every = 101};
    check_attention(device, &a);
    a.kv_heads = 14;
    a.causal = false;
    a.length = lengths;
    check_attention(device, &a);
}

/* Short heads of so many rows that groups of warps take turns, where there are such. */
DEVICE_TEST(attention_mma_by_turns) {
    const int64_t lengths[] = {257, 1, 0};
    attention a = {.batch = 3,
                   .heads = 36,
                   .kv_heads = 36,
                   .rows = 66,
                   .keys = 257,
                   .head = 64,
                   .value = 8,
                   .type = MP_F16,
                   .heads_last = true,
                   .every = 53};
    check_attention(device, &a);
    a.heads_last = false;
    a.head = 8;
    a.length = lengths;
    check_attention(device, &a);
    a.length = NULL;
    a.type = MP_BF16;
    a.kv_heads = 18;
    a.keys = 1025;
    check_attention(device, &a);
}

/* Causal ones of as many rows, by blocks of one group. */
DEVICE_TEST(attention_mma_of_short_heads_where_causal) {
    attention a = {.batch = 3,
                   .heads = 48,
                   .kv_heads = 48,
                   .rows = 66,
                   .keys = 520,
                   .head = 8,
                   .value = 8,
                   .type = MP_BF16,
                   .causal = true,
                   .every = 53};
    check_attention(device, &a);
    a.batch = 1;
    a.kv_heads = 24;
    a.rows = 384;
    check_attention(device, &a);
}

/* Enough of them that a block has as many rows as it may. */
DEVICE_TEST(attention_mma_of_many_heads) {
    const attention a = {.batch = 6,
                         .heads = 96,
                         .kv_heads = 96,
                         .rows = 130,
                         .keys = 70,
                         .head = 8,
                         .value = 8,
                         .type = MP_F16,
                         .heads_last = true};
    check_attention(device, &a);
}

DEVICE_TEST(attention_mma_shared_heads) {
    for (int causal = 0; causal < 2; causal++) {
        attention a = shared_heads(MP_BF16, 2, causal != 0);
        check_attention(device, &a);
        a.rows = 5;
        check_attention(device, &a);
    }
}

DEVICE_TEST(attention_mma_masks) {
    enum { BATCH = 2, HEADS = 2, ROWS = 19 };
    static const int64_t dims[][4] = {{BATCH, 1, 1, 0},
                                      {1, HEADS, ROWS, 0},
                                      {1, 1, ROWS, 0},
                                      {BATCH, HEADS, ROWS, 0},
                                      {1, 1, ROWS, 1}};
    static const mp_dtype masks[] = {MP_BOOL, MP_F16, MP_BF16, MP_F32};
    static const int64_t keys[] = {64, 131};
    for (size_t i = 0; i < MP_COUNT_OF(dims) * MP_COUNT_OF(masks) * MP_COUNT_OF(keys); i++) {
        const int64_t *dim = dims[i % MP_COUNT_OF(dims)];
        const mp_dtype mask = masks[i / MP_COUNT_OF(dims) % MP_COUNT_OF(masks)];
        attention a = {.batch = BATCH,
                       .heads = HEADS,
                       .kv_heads = 1,
                       .rows = ROWS,
                       .keys = keys[i / MP_COUNT_OF(dims) / MP_COUNT_OF(masks)],
                       .head = 32,
                       .value = 32,
                       .type = mask == MP_BF16 ? MP_BF16 : MP_F16,
                       .mask = mask,
                       .mask_dim = {dim[0], dim[1], dim[2], dim[3]}};
        a.mask_dim[3] = a.mask_dim[3] == 1 ? 1 : a.keys;
        check_attention(device, &a);
        a.causal = true;
        check_attention(device, &a);
    }
}

/* The masks of texts of several lengths, as BERT has them, and of a prompt: an entry may be nothing
 * but padding, and what is added may be the lowest number that there is. */
DEVICE_TEST(attention_mma_masks_of_texts) {
    enum { BATCH = 2, HEADS = 2 };
    static const struct {
        mp_dtype type, mask;
        double low;
    } kinds[] = {{MP_F16, MP_F16, 0},   {MP_F16, MP_F16, -65504},
                 {MP_F16, MP_BOOL, 0},  {MP_F16, MP_F32, -0x1.fffffep127},
                 {MP_BF16, MP_BF16, 0}, {MP_BF16, MP_BF16, -0x1.fep127},
                 {MP_F32, MP_F32, 0},   {MP_F32, MP_F32, -0x1.fffffep127},
                 {MP_F32, MP_BOOL, 0},  {MP_F16, MP_F64, -1e30}};
    static const int64_t dims[][2] = {{1, 1}, {1, 0}, {HEADS, 1}}; /* 0: as many as there are */
    static const int64_t lengths[][2] = {{48, 96}, {17, 1}, {16, 130}};
    for (size_t i = 0; i < MP_COUNT_OF(kinds) * MP_COUNT_OF(dims); i++) {
        const int64_t *dim = dims[i / MP_COUNT_OF(kinds)];
        const int64_t *length = lengths[(i + i / MP_COUNT_OF(kinds)) % MP_COUNT_OF(lengths)];
        const size_t kind = i % MP_COUNT_OF(kinds);
        attention a = {.batch = BATCH,
                       .heads = HEADS,
                       .kv_heads = i % 2 == 0 ? 1 : HEADS,
                       .rows = length[0],
                       .keys = length[1],
                       .head = i % 7 == 0 ? 96 : 64,
                       .value = 64,
                       .type = kinds[kind].type,
                       .causal = i % 5 == 0,
                       .mask = kinds[kind].mask,
                       .mask_dim = {BATCH, dim[0], dim[1] == 0 ? length[0] : 1, length[1]},
                       .mask_low = kinds[kind].low,
                       .mask_all = true,
                       .heads_last = i % 3 == 0};
        check_attention(device, &a);
    }
}

DEVICE_TEST(attention_mma_lengths_of_entries) {
    const int64_t lengths[] = {70, 0, 133};
    for (int causal = 0; causal < 2; causal++) {
        const attention a = {.batch = 3,
                             .heads = 2,
                             .kv_heads = 2,
                             .rows = 20,
                             .keys = 133,
                             .head = 64,
                             .value = 64,
                             .type = MP_F16,
                             .causal = causal != 0,
                             .length = lengths};
        check_attention(device, &a);
    }
}

/* Q, K and V within the rows of one product. */
DEVICE_TEST(attention_mma_of_parts) {
    enum { ROWS = 33, HEADS = 3, SIZE = 16, ROW = HEADS * 3 * SIZE };
    const float scale = 0.25F;
    const mp_attr attrs[] = {
        OP_INTS("q_part", 0, HEADS, SIZE, SIZE), OP_INTS("k_part", HEADS * SIZE, HEADS, SIZE, SIZE),
        OP_INTS("v_part", 2 * HEADS * SIZE, HEADS, SIZE, SIZE), OP_INTS("out_perm", 0, 2, 1, 3)};
    void *all = op_numbers(MP_F16, 5, (int64_t)ROWS * ROW);
    const op_tensor x = OP_TENSOR(MP_F16, all, 1, ROWS, ROW);
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "Attention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .in = {x, x, x, {.type = MP_NONE}, op_f32(&scale, 1)},
                 .in_count = 5,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t h = 0; h < HEADS; h++) {
        for (int64_t i = 0; i < ROWS; i++) {
            double sum = 0;
            double want[SIZE] = {0};
            for (int64_t j = 0; j < ROWS; j++) {
                double dot = 0;
                for (int64_t d = 0; d < SIZE; d++) {
                    dot += op_real(MP_F16, all, i * ROW + h * SIZE + d) *
                           op_real(MP_F16, all, j * ROW + (HEADS + h) * SIZE + d);
                }
                const double weight = exp(dot * (double)scale);
                sum += weight;
                for (int64_t d = 0; d < SIZE; d++) {
                    want[d] += weight * op_real(MP_F16, all, j * ROW + (2 * HEADS + h) * SIZE + d);
                }
            }
            for (int64_t d = 0; d < SIZE; d++) {
                const int64_t at = (i * HEADS + h) * SIZE + d;
                op_check_close(op_real(MP_F16, c.out[0].data, at), want[d] / sum,
                               2 * op_precision(MP_F16), "attention", at);
            }
        }
    }
    op_close(device, &c);
    free(all);
}

/* A NaN stays in its row; masks of the lowest number that there is leave a row as it would be
 * without them. */
DEVICE_TEST(attention_mma_of_extremes) {
    enum { ROWS = 18, KEYS = 20, SIZE = 8 };
    uint16_t *q = op_numbers(MP_BF16, 1, (int64_t)ROWS * SIZE);
    uint16_t *k = op_numbers(MP_BF16, 2, (int64_t)KEYS * SIZE);
    uint16_t *mask = op_memory(MP_BF16, (int64_t)ROWS * KEYS);
    op_store_real(MP_BF16, q, 0, (double)NAN);
    for (int64_t j = 0; j < KEYS; j++) {
        mask[KEYS + j] = 0xff7f; /* of the second row */
    }
    op_case c = {
        .name = "Attention",
        .version = 23,
        .options = {.sdpa_kernel = TILES},
        .in = {OP_TENSOR(MP_BF16, q, 1, 1, ROWS, SIZE), OP_TENSOR(MP_BF16, k, 1, 1, KEYS, SIZE),
               OP_TENSOR(MP_BF16, k, 1, 1, KEYS, SIZE), OP_TENSOR(MP_BF16, mask, ROWS, KEYS)},
        .in_count = 4,
        .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < (int64_t)ROWS * SIZE; i++) {
        CHECK((isnan(op_real(MP_BF16, c.out[0].data, i)) != 0) == (i < SIZE));
    }
    for (int64_t d = 0; d < SIZE; d++) {
        double mean = 0;
        for (int64_t j = 0; j < KEYS; j++) {
            mean += op_real(MP_BF16, k, j * SIZE + d) / KEYS;
        }
        op_check_close(op_real(MP_BF16, c.out[0].data, SIZE + d), mean, 2 * op_precision(MP_BF16),
                       "mean", d);
    }
    op_close(device, &c);
    free(q);
    free(k);
    free(mask);
}
