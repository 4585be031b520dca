/* group_query_test.c - GroupQueryAttention and RotaryEmbedding against plain loops: caches with
 * room, lengths and positions out of range, pieces of each size.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* ---- GroupQueryAttention ---- */

/* One token of two entries whose caches are filled to different lengths and have room behind. */
DEVICE_TEST(group_query_fills_the_cache_in_place) {
    enum { HEAD = 8, HEADS = 4, KV = 2, ROOM = 12, PACKED = (HEADS + 2 * KV) * HEAD };
    const int32_t lengths[2] = {3, 10};
    const int32_t total = 11;
    float *packed = op_numbers(MP_F32, 1, 2 * PACKED);
    float *keys = op_numbers(MP_F32, 2, 2 * KV * ROOM * HEAD);
    float *values = op_numbers(MP_F32, 3, 2 * KV * ROOM * HEAD);
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", KV)};
    op_case c = {.domain = "com.microsoft",
                 .name = "GroupQueryAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_f32(packed, 2, 1, PACKED),
                        {0},
                        {0},
                        op_f32(keys, 2, KV, ROOM, HEAD),
                        op_f32(values, 2, KV, ROOM, HEAD),
                        OP_TENSOR(MP_I32, lengths, 2),
                        OP_TENSOR(MP_I32, &total, 1)},
                 .in_count = 7,
                 .out_count = 3};
    op_run(device, &c);
    const float *present[2] = {c.out[1].data, c.out[2].data};
    for (int64_t i = 0; i < 2 * KV * ROOM * HEAD; i++) {
        const int64_t b = i / (KV * ROOM * HEAD), h = i / (ROOM * HEAD) % KV;
        const int64_t row = i / HEAD % ROOM, d = i % HEAD;
        const float *fresh = packed + b * PACKED + (HEADS + h) * HEAD + d;
        CHECK(present[0][i] == (row == lengths[b] ? fresh[0] : keys[i]));
        CHECK(present[1][i] == (row == lengths[b] ? fresh[(ptrdiff_t)KV * HEAD] : values[i]));
    }
    for (int64_t b = 0; b < 2; b++) {
        for (int64_t h = 0; h < HEADS; h++) {
            double weight[ROOM];
            double sum = 0;
            const int64_t unit = (b * KV + h / 2) * ROOM;
            for (int64_t j = 0; j <= lengths[b]; j++) {
                double dot = 0;
                for (int64_t d = 0; d < HEAD; d++) {
                    dot += (double)packed[b * PACKED + h * HEAD + d] *
                           (double)present[0][(unit + j) * HEAD + d];
                }
                weight[j] = exp(dot / sqrt(HEAD));
                sum += weight[j];
            }
            for (int64_t d = 0; d < HEAD; d++) {
                double want = 0;
                for (int64_t j = 0; j <= lengths[b]; j++) {
                    want += weight[j] / sum * (double)present[1][(unit + j) * HEAD + d];
                }
                const int64_t at = (b * HEADS + h) * HEAD + d;
                op_check_close((double)((const float *)c.out[0].data)[at], want, 2e-5, "y", at);
            }
        }
    }
    op_close(device, &c);
    free(packed);
    free(keys);
    free(values);
}

/* What a new token's element `d` is, rotated by row `at` of the caches, which are of half a head.
 */
static double rotated(const float *x, const float *cosine, const float *sine, int64_t head,
                      int64_t at, int64_t d, bool interleaved) {
    const int64_t half = head / 2, pair = interleaved ? d / 2 : d % half;
    const bool second = interleaved ? d % 2 == 1 : d >= half;
    const int64_t other = interleaved ? d ^ 1 : second ? d - half : d + half;
    return (double)x[d] * (double)cosine[at * half + pair] +
           (second ? 1 : -1) * (double)x[other] * (double)sine[at * half + pair];
}

/* Keys are rotated on their way into caches with room, behind different lengths. */
static void check_rotated_in_place(mp_device *device, bool interleaved) {
    enum { HEAD = 16, HEADS = 3, KV = 3, ROOM = 7, PLACES = 9, ROWS = 2, BATCH = 2 };
    enum { PACKED = (HEADS + 2 * KV) * HEAD };
    const int32_t lengths[BATCH] = {1, 6}, total = 7;
    float *packed = op_numbers(MP_F32, 1, (int64_t)BATCH * ROWS * PACKED);
    float *keys = op_numbers(MP_F32, 2, (int64_t)BATCH * KV * ROOM * HEAD);
    float *values = op_numbers(MP_F32, 3, (int64_t)BATCH * KV * ROOM * HEAD);
    float *cosine = op_numbers(MP_F32, 4, PLACES * HEAD / 2);
    float *sine = op_numbers(MP_F32, 5, PLACES * HEAD / 2);
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("kv_num_heads", KV),
                             OP_INT("do_rotary", 1), OP_INT("rotary_interleaved", interleaved)};
    op_case c = {.domain = "com.microsoft",
                 .name = "GroupQueryAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .align = 16,
                 .in = {op_f32(packed, BATCH, ROWS, PACKED),
                        {0},
                        {0},
                        op_f32(keys, BATCH, KV, ROOM, HEAD),
                        op_f32(values, BATCH, KV, ROOM, HEAD),
                        OP_TENSOR(MP_I32, lengths, BATCH),
                        OP_TENSOR(MP_I32, &total, 1),
                        op_f32(cosine, PLACES, HEAD / 2),
                        op_f32(sine, PLACES, HEAD / 2)},
                 .in_count = 9,
                 .out_count = 3};
    op_run(device, &c);
    const float *present[2] = {c.out[1].data, c.out[2].data};
    for (int64_t i = 0; i < (int64_t)BATCH * KV * ROOM * HEAD; i++) {
        const int64_t b = i / (KV * ROOM * HEAD), h = i / (ROOM * HEAD) % KV;
        const int64_t at = i / HEAD % ROOM, d = i % HEAD, row = at - (lengths[b] + 1 - ROWS);
        const bool is_new = row >= 0 && row < ROWS;
        const float *key =
            packed + ((b * ROWS + (is_new ? row : 0)) * (HEADS + 2 * KV) + HEADS + h) * HEAD;
        const double want =
            is_new ? rotated(key, cosine, sine, HEAD, at, d, interleaved) : (double)keys[i];
        op_check_close((double)present[0][i], want, 1e-6, "key", i);
        CHECK(present[1][i] == (is_new ? key[KV * HEAD + d] : values[i]));
    }
    op_close(device, &c);
    free(packed);
    free(keys);
    free(values);
    free(cosine);
    free(sine);
}

DEVICE_TEST(group_query_rotates_into_the_cache) {
    check_rotated_in_place(device, false);
    check_rotated_in_place(device, true);
}

/* ---- a new token whose attention does it all ---- */

enum { NEW_BATCH = 2, NEW_ROOM = 150, NEW_PLACES = 170 };

/* `positions`: NULL, or those of the tokens; `window`: keys that are seen, or -1. */
typedef struct new_tokens {
    mp_dtype type;
    int64_t head, heads, kv_heads, window;
    int32_t lengths[NEW_BATCH], total;
    const int64_t *positions;
    bool packed, normed, still; /* still: nothing is rotated */
} new_tokens;

/* Sides of the new tokens, which lie in one row or apart, and what else a case reads. */
typedef struct new_values {
    void *row[3], *cache[2], *angle[2], *scale[2];
} new_values;

static int64_t new_width(const new_tokens *n, int side) {
    const int64_t all = n->heads + 2 * n->kv_heads;
    return n->head * (n->packed ? all : side == 0 ? n->heads : n->kv_heads);
}

/* Element `d` of a head of a side. */
static double new_element(const new_tokens *n, const new_values *v, int side, int64_t entry,
                          int64_t head, int64_t d) {
    const int64_t first = !n->packed || side == 0 ? 0 : n->heads + (side - 1) * n->kv_heads;
    const int64_t at = entry * new_width(n, side) + (first + head) * n->head + d;
    return op_real(n->type, v->row[n->packed ? 0 : side], at);
}

/* The same of a query or a key as it is rotated. */
static double new_normed(const new_tokens *n, const new_values *v, int side, int64_t entry,
                         int64_t head, int64_t d) {
    const double x = new_element(n, v, side, entry, head, d);
    double squares = 0;
    for (int64_t i = 0; n->normed && i < n->head; i++) {
        const double y = new_element(n, v, side, entry, head, i);
        squares += y * y;
    }
    const double inverse = 1 / sqrt(squares / (double)n->head + 1e-6);
    return n->normed ? op_rounded(n->type, x * inverse * op_real(n->type, v->scale[side], d)) : x;
}

/* The same rotated, as an element of the type. */
static double new_turned(const new_tokens *n, const new_values *v, int side, int64_t entry,
                         int64_t head, int64_t d) {
    const int64_t half = n->head / 2, pair = d % half;
    const int64_t given = n->positions != NULL ? n->positions[entry] : n->lengths[entry];
    const int64_t at = MP_MIN(MP_MAX(given, 0), NEW_PLACES - 1) * half + pair;
    const double x = new_normed(n, v, side, entry, head, pair);
    const double y = new_normed(n, v, side, entry, head, pair + half);
    const double c = op_real(n->type, v->angle[0], at), s = op_real(n->type, v->angle[1], at);
    if (n->still) {
        return d < half ? x : y;
    }
    return op_rounded(n->type, d < half ? x * c - y * s : x * s + y * c);
}

static void check_new_caches(const new_tokens *n, const new_values *v, const op_case *c) {
    for (int64_t i = 0; i < NEW_BATCH * n->kv_heads * NEW_ROOM * n->head; i++) {
        const int64_t d = i % n->head, row = i / n->head % NEW_ROOM;
        const int64_t head = i / n->head / NEW_ROOM % n->kv_heads;
        const int64_t entry = i / n->head / NEW_ROOM / n->kv_heads;
        const bool is_new = row == MP_MIN(MP_MAX(n->lengths[entry], 0), NEW_ROOM - 1);
        const double key =
            is_new ? new_turned(n, v, 1, entry, head, d) : op_real(n->type, v->cache[0], i);
        const double value =
            is_new ? new_element(n, v, 2, entry, head, d) : op_real(n->type, v->cache[1], i);
        op_check_close(op_real(n->type, c->out[1].data, i), key,
                       n->normed ? 4 * op_precision(n->type) : 0, "key", i);
        CHECK(op_real(n->type, c->out[2].data, i) == value);
    }
}

/* Over the caches as they are then. */
static void check_new_heads(const new_tokens *n, const new_values *v, const op_case *c) {
    for (int64_t line = 0; line < NEW_BATCH * n->heads; line++) {
        const int64_t entry = line / n->heads, head = line % n->heads;
        const int64_t length = MP_MIN((int64_t)n->lengths[entry], n->total - 1) + 1;
        const int64_t unit =
            (entry * n->kv_heads + head * n->kv_heads / n->heads) * NEW_ROOM * n->head;
        double weight[NEW_ROOM], sum = 0;
        const int64_t first = n->window > 0 ? MP_MAX(length - n->window, 0) : 0;
        for (int64_t key = first; key < length; key++) {
            double dot = 0;
            for (int64_t d = 0; d < n->head; d++) {
                dot += new_turned(n, v, 0, entry, head, d) *
                       op_real(n->type, c->out[1].data, unit + key * n->head + d);
            }
            weight[key] = exp(dot / sqrt((double)n->head));
            sum += weight[key];
        }
        for (int64_t d = 0; d < n->head; d++) {
            double want = 0;
            for (int64_t key = first; key < length; key++) {
                want +=
                    weight[key] / sum * op_real(n->type, c->out[2].data, unit + key * n->head + d);
            }
            op_check_close(op_real(n->type, c->out[0].data, line * n->head + d), want,
                           4 * op_precision(n->type), "y", line * n->head + d);
        }
    }
}

static void check_new_tokens(mp_device *device, const new_tokens *n) {
    const int64_t caches = NEW_BATCH * n->kv_heads * NEW_ROOM * n->head, half = n->head / 2;
    new_values v;
    const mp_attr attrs[] = {OP_INT("num_heads", n->heads), OP_INT("kv_num_heads", n->kv_heads),
                             OP_INT("do_rotary", !n->still),
                             OP_INT("local_window_size", n->window)};
    for (int i = 0; i < 3; i++) {
        v.row[i] = op_numbers(n->type, 1 + (uint64_t)i, NEW_BATCH * new_width(n, i));
    }
    for (int i = 0; i < 2; i++) {
        v.cache[i] = op_numbers(n->type, 4 + (uint64_t)i, caches);
        v.angle[i] = op_numbers(n->type, 6 + (uint64_t)i, NEW_PLACES * half);
        v.scale[i] = op_numbers(n->type, 8 + (uint64_t)i, n->head);
    }
    op_case c = {.domain = "com.microsoft",
                 .name = "GroupQueryAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .in = {OP_TENSOR(n->type, v.row[0], NEW_BATCH, 1, new_width(n, 0)),
                        {0},
                        {0},
                        OP_TENSOR(n->type, v.cache[0], NEW_BATCH, n->kv_heads, NEW_ROOM, n->head),
                        OP_TENSOR(n->type, v.cache[1], NEW_BATCH, n->kv_heads, NEW_ROOM, n->head),
                        OP_TENSOR(MP_I32, n->lengths, NEW_BATCH),
                        OP_TENSOR(MP_I32, &n->total, 1),
                        OP_TENSOR(n->type, v.angle[0], NEW_PLACES, half),
                        OP_TENSOR(n->type, v.angle[1], NEW_PLACES, half)},
                 .in_count = 9,
                 .out_count = 3};
    for (int i = 1; i < 3 && !n->packed; i++) {
        c.in[i] = OP_TENSOR(n->type, v.row[i], NEW_BATCH, 1, new_width(n, i));
    }
    if (n->positions != NULL) {
        c.in[c.in_count++] = op_i64(n->positions, NEW_BATCH, 1);
    }
    if (n->normed) {
        c.in_count = 16;
        c.in[14] = OP_TENSOR(n->type, v.scale[0], n->head);
        c.in[15] = OP_TENSOR(n->type, v.scale[1], n->head);
    }
    mp_plan *plan = NULL;
    CHECK_OK(op_plan(device, &c, &plan));
    /* The past of each side, and attention; what blocks find is added up where they cannot meet. */
    const int steps = mp_plan_step_count(plan);
    CHECK(steps == 3 || (steps == 4 && device->info.cluster_blocks_max <= 1));
    mp_plan_release(plan);
    op_run(device, &c);
    check_new_caches(n, &v, &c);
    check_new_heads(n, &v, &c);
    op_close(device, &c);
    for (int i = 0; i < 3; i++) {
        free(v.row[i]);
    }
    for (int i = 0; i < 2; i++) {
        free(v.cache[i]);
        free(v.angle[i]);
        free(v.scale[i]);
    }
}

DEVICE_TEST(group_query_of_a_new_token_is_one_launch) {
    static const int64_t heads[] = {64, 128};
    static const int64_t positions[] = {NEW_PLACES + 3, 9};
    for (size_t i = 0; i < MP_COUNT_OF(heads) * 4; i++) {
        const int64_t head = heads[i / 4];
        const new_tokens n = {.type = i % 2 == 0 ? MP_F16 : MP_BF16,
                              .head = head,
                              .heads =
                                  i % 4 == 1 ? 12 : 3, /* more than a block has of a key head */
                              .kv_heads = i % 4 == 1 ? 1 : 3,
                              .window = i % 4 == 3 ? 20 : -1,
                              .lengths = {5, 100},
                              .total = i % 4 == 2 ? NEW_ROOM - 1 : 101,
                              .positions = i % 3 == 0 ? positions : NULL,
                              .packed = i % 2 == 0,
                              .normed = i >= 6,
                              .still = i == 5 || i == 6};
        check_new_tokens(device, &n);
    }
    new_tokens n = {
        .type = MP_F16, .head = 64, .heads = 2, .kv_heads = 1, .window = -1, .total = 1};
    check_new_tokens(device, &n); /* the first of all */
    n.lengths[0] = INT32_MAX;
    n.lengths[1] = INT32_MIN;
    n.total = NEW_ROOM;
    check_new_tokens(device, &n);
}

/* Lengths and positions that no cache has are taken as the nearest. */
DEVICE_TEST(group_query_survives_wild_lengths) {
    enum { HEAD = 8 };
    const int32_t lengths[2] = {INT32_MAX, INT32_MIN};
    const int32_t total = 6;
    float *x = op_numbers(MP_F32, 1, 2 * 3 * HEAD);
    float *cache = op_numbers(MP_F32, 2, 2 * 5 * HEAD);
    const mp_attr attrs[] = {OP_INT("num_heads", 1), OP_INT("kv_num_heads", 1),
                             OP_INT("do_rotary", 1), OP_INT("local_window_size", 3),
                             OP_INT("sliding_window_cache", 1)};
    op_case c = {.domain = "com.microsoft",
                 .name = "GroupQueryAttention",
                 .version = 1,
                 .attrs = attrs,
                 .in = {op_f32(x, 2, 1, 3 * HEAD),
                        {0},
                        {0},
                        op_f32(cache, 2, 1, 5, HEAD),
                        op_f32(cache, 2, 1, 5, HEAD),
                        OP_TENSOR(MP_I32, lengths, 2),
                        OP_TENSOR(MP_I32, &total, 1),
                        op_f32(cache, 10, 4),
                        op_f32(cache, 10, 4)},
                 .in_count = 9,
                 .out_count = 3};
    for (c.attr_count = 3; c.attr_count <= 5; c.attr_count += 2) {
        op_run(device, &c);
        for (int64_t i = 0; i < 2 * HEAD; i++) {
            CHECK(isfinite(((const float *)c.out[0].data)[i]));
        }
        for (int64_t i = 0; i < 2 * 5 * HEAD; i++) {
            CHECK(isfinite(((const float *)c.out[1].data)[i]));
        }
        op_close(device, &c);
    }
    free(x);
    free(cache);
}

/* What a session asks before there are shapes. */
TEST(group_query_accepts_by_attributes_and_types) {
    const mp_op *op = mp_op_find("com.microsoft", "GroupQueryAttention", 1);
    static const mp_attr attrs[][3] = {
        {OP_INT("num_heads", 4), OP_INT("kv_num_heads", 2), OP_INT("do_rotary", 0)},
        {OP_INT("num_heads", 4), OP_INT("kv_num_heads", 3), OP_INT("do_rotary", 0)},
        {OP_INT("num_heads", 4), OP_INT("kv_num_heads", 2), OP_INT("do_rotary", 1)},
        {OP_INT("num_heads", 4), OP_INT("kv_num_heads", 2), OP_INT("local_window_size", 0)},
        {OP_INT("num_heads", 4), OP_INT("kv_num_heads", 2), OP_INT("sliding_window_cache", 1)}};
    static const char *const sentences[] = {NULL, "not a multiple", "cos_cache",
                                            "local_window_size", "sliding_window_cache"};
    mp_tensor in[17] = {{.type = MP_F32}, {.type = MP_F32}, {.type = MP_F32}};
    in[5].type = in[6].type = MP_I32;
    for (size_t i = 0; i < MP_COUNT_OF(attrs); i++) {
        const mp_node node = {
            .op = op, .version = 1, .name = "", .attrs = attrs[i], .attr_count = 3};
        const mp_planner p = {.node = &node, .in = in, .in_count = 7, .out_count = 3};
        CHECK((op->accept(&p) == MP_OK) == (i == 0));
        CHECK(i == 0 || strstr(mp_error_message(), sentences[i]) != NULL);
    }
    mp_node node = {.op = op, .version = 1, .name = "", .attrs = attrs[0], .attr_count = 3};
    mp_planner p = {.node = &node, .in = in, .in_count = 7, .out_count = 4};
    CHECK_FAILS(op->accept(&p), UNSUPPORTED, "output_qk");
    node.out_absent = 1u << 3;
    CHECK_OK(op->accept(&p));
    p.in_count = 17;
    in[14].type = MP_F32;
    CHECK_FAILS(op->accept(&p), INVALID_ARGUMENT, "q_norm_weight and k_norm_weight");
    in[15].type = MP_F32;
    CHECK_OK(op->accept(&p));
    in[16].type = MP_F32;
    CHECK_FAILS(op->accept(&p), UNSUPPORTED, "input 16");
    in[14].type = in[15].type = in[16].type = MP_NONE;
    in[3].type = in[4].type = MP_I8;
    CHECK_FAILS(op->accept(&p), UNSUPPORTED, "past_key of type int8 with k_quant_type NONE");
}

DEVICE_TEST(group_query_refuses) {
    const int32_t lengths[1] = {0};
    const int32_t total = 0;
    float x[32] = {0};
    const mp_attr attrs[] = {OP_INT("num_heads", 2), OP_INT("kv_num_heads", 1),
                             OP_INT("do_rotary", 1)};
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "GroupQueryAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_f32(x, 1, 1, 32),
                        {0},
                        {0},
                        {0},
                        {0},
                        OP_TENSOR(MP_I32, lengths, 1),
                        OP_TENSOR(MP_I32, &total, 1)},
                 .in_count = 7,
                 .out_count = 3};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "total_sequence_length");
    c.out_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "output_qk");
    c.out_count = 3;
    c.in[0].shape.dim[2] = 31;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "query");
    const int32_t one = 1;
    c.in[0].shape.dim[2] = 32;
    c.in[1] = op_f32(x, 1, 1, 8);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "key and value");
    c.in[1] = (op_tensor){.type = MP_NONE};
    c.in[4] = op_f32(x, 1, 1, 1, 8);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "both be given");
    c.in[3] = OP_TENSOR(MP_F16, x, 1, 1, 1, 8);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "query's type");
    c.in[3] = c.in[4] = (op_tensor){.type = MP_NONE};
    c.in[6].data = &one;
    c.attr_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "cos_cache");
}

DEVICE_TEST(group_query_refuses_quantised_caches) {
    static const char *const names[] = {"PER_TENSOR", "PER_CHANNEL", "PER_TOKEN"};
    const int32_t lengths[1] = {0}, total = 1;
    float x[64] = {0};
    mp_plan *plan = NULL;
    mp_attr attrs[] = {OP_INT("num_heads", 2), OP_INT("kv_num_heads", 1),
                       OP_TEXT("k_quant_type", names[0]), OP_TEXT("v_quant_type", names[1]),
                       OP_INT("kv_cache_bit_width", 8)};
    op_case c = {.domain = "com.microsoft",
                 .name = "GroupQueryAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 5,
                 .in = {op_f32(x, 1, 1, 32),
                        {0},
                        {0},
                        OP_TENSOR(MP_I8, x, 1, 1, 4, 8),
                        OP_TENSOR(MP_I8, x, 1, 1, 4, 8),
                        OP_TENSOR(MP_I32, lengths, 1),
                        OP_TENSOR(MP_I32, &total, 1),
                        {0},
                        {0},
                        {0},
                        {0},
                        {0},
                        op_f32(x, 1),
                        op_f32(x, 8)},
                 .in_count = 14,
                 .out_count = 3};
    CHECK_OK(op_plan(device, &c, &plan));
    mp_plan_release(plan);
    c.in[13] = op_f32(x, 7);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "input 13 must be the 8 scales");
    c.in[12].type = MP_NONE;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "input 12 must be the 1 scales");
    c.in[12] = op_f32(x, 1);
    c.in[13] = op_f32(x, 8);
    c.in[4].type = MP_U8;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "past_key of type int8");
    c.in[3].type = MP_U8;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "kv_cache_bit_width 8");
    attrs[4].i = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "past_key and past_value must be");
    attrs[3].s = names[2];
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "v_quant_type PER_TOKEN");
    op_close(device, &c);
}

/* ---- RotaryEmbedding ---- */

static void check_rotary(mp_device *device, int64_t head, int64_t turned, bool interleaved,
                         uint32_t skew) {
    enum { BATCH = 2, HEADS = 3, ROWS = 4, PLACES = 6 };
    const int64_t half = turned / 2;
    const int64_t positions[BATCH * ROWS] = {0, 5, 2, -9, 1, 1, 100, 3};
    float *x = op_numbers(MP_F32, 1, BATCH * HEADS * ROWS * head);
    float *cosine = op_numbers(MP_F32, 2, PLACES * half);
    float *sine = op_numbers(MP_F32, 3, PLACES * half);
    const mp_attr attrs[] = {OP_INT("interleaved", interleaved),
                             OP_INT("rotary_embedding_dim", turned)};
    op_case c = {.name = "RotaryEmbedding",
                 .version = 23,
                 .attrs = attrs,
                 .attr_count = 2,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {op_f32(x, BATCH, HEADS, ROWS, head), op_f32(cosine, PLACES, half),
                        op_f32(sine, PLACES, half), op_i64(positions, BATCH, ROWS)},
                 .in_count = 4,
                 .out_count = 1};
    op_run(device, &c);
    const float *y = c.out[0].data;
    for (int64_t line = 0; line < BATCH * HEADS * ROWS; line++) {
        int64_t at = positions[line / (HEADS * ROWS) * ROWS + line % ROWS];
        at = at < 0 ? 0 : at < PLACES ? at : PLACES - 1;
        for (int64_t d = 0; d < head; d++) {
            const int64_t pair = interleaved ? d / 2 : d % half;
            const bool second = interleaved ? d % 2 == 1 : d >= half;
            const int64_t other = interleaved ? d ^ 1 : second ? d - half : d + half;
            double want = (double)x[line * head + d];
            if (d < turned) {
                want = want * (double)cosine[at * half + pair] +
                       (second ? 1 : -1) * (double)x[line * head + other] *
                           (double)sine[at * half + pair];
            }
            op_check_close((double)y[line * head + d], want, 1e-6, "rotary", line * head + d);
        }
    }
    op_close(device, &c);
    free(x);
    free(cosine);
    free(sine);
}

DEVICE_TEST(rotary_in_packs_and_pairs) {
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        check_rotary(device, 16, 16, interleaved != 0, 0);
        check_rotary(device, 24, 8, interleaved != 0, 0);
        check_rotary(device, 10, 6, interleaved != 0, 0);
        check_rotary(device, 7, 4, interleaved != 0, 0);
        check_rotary(device, 16, 16, interleaved != 0, 8);
    }
}

DEVICE_TEST(rotary_refuses) {
    float x[64] = {0};
    const int64_t positions[] = {0, 1};
    const mp_attr attrs[] = {OP_INT("rotary_embedding_dim", 10), OP_INT("num_heads", 3)};
    mp_plan *plan = NULL;
    op_case c = {
        .name = "RotaryEmbedding",
        .version = 23,
        .attrs = attrs,
        .attr_count = 1,
        .in = {op_f32(x, 1, 1, 2, 8), op_f32(x, 4, 4), op_f32(x, 4, 4), op_i64(positions, 1, 2)},
        .in_count = 4,
        .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "cannot be rotated");
    c.attr_count = 0;
    c.in[1].shape.dim[1] = c.in[2].shape.dim[1] = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "half as long");
    c.in[1].shape.dim[1] = c.in[2].shape.dim[1] = 4;
    c.in_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "position_ids");
    c.in[0] = op_f32(x, 1, 2, 8);
    c.attrs = attrs + 1;
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "num_heads");
}
