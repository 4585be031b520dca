/* own_parts_test.c - operators that the compiler makes over parts of rows: heads of which a part is
 * rotated, halves of which either is the gate, new heads of caches; and what they refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

/* ---- rotation ---- */

enum { BATCH = 2, ROWS = 3, HEADS = 2, BEFORE = 5 /* elements of a row before the heads */ };

/* Element `d` of a head whose first `rotated` elements are turned by halves. */
static double turned(mp_dtype type, const void *head, int64_t at, const void *cosine,
                     const void *sine, int64_t row, int64_t rotated, int64_t d) {
    const int64_t half = rotated / 2, angle = row * rotated + d % half;
    const double x = op_real(type, head, at + d);
    if (d >= rotated) {
        return x;
    }
    const double other =
        d < half ? -op_real(type, head, at + d + half) : op_real(type, head, at + d - half);
    return x * op_real(type, cosine, angle) + other * op_real(type, sine, angle);
}

/* Both halves of a row are alike. */
static void *angles(mp_dtype type, uint64_t seed, int64_t rotated) {
    void *all = op_numbers(type, seed, (int64_t)ROWS * rotated);
    for (int64_t i = 0; i < ROWS * rotated; i++) {
        const int64_t d = i % rotated;
        op_store_real(type, all, i, op_real(type, all, d < rotated / 2 ? i : i - rotated / 2));
    }
    return all;
}

/* The same of neighbours, by angles that are there once. */
static double turned_pair(mp_dtype type, const void *head, int64_t at, const void *cosine,
                          const void *sine, int64_t row, int64_t rotated, int64_t d) {
    const int64_t angle = row * (rotated / 2) + d / 2;
    const double x = op_real(type, head, at + d);
    if (d >= rotated) {
        return x;
    }
    const double other =
        d % 2 == 0 ? -op_real(type, head, at + d + 1) : op_real(type, head, at + d - 1);
    return x * op_real(type, cosine, angle) + other * op_real(type, sine, angle);
}

/* Heads in rows, and angles of each row: queries, and keys where there are two sides. */
static void check_pairs(mp_device *device, mp_dtype type, int64_t size, int64_t rotated,
                        int sides) {
    const mp_attr alone[] = {OP_INT("interleaved", 1), OP_INT("turned", 1)};
    const mp_attr both[] = {OP_INT("interleaved", 1), OP_INT("key_turned", 1), OP_INT("turned", 1)};
    const int64_t count = BATCH * ROWS * HEADS * size;
    void *x[] = {op_numbers(type, 1, count), op_numbers(type, 4, count)};
    void *cosine = op_numbers(type, 2, ROWS * rotated / 2);
    void *sine = op_numbers(type, 3, ROWS * rotated / 2);
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = sides == 1 ? "RotaryHalves" : "RotaryPair",
                 .version = 1,
                 .attrs = sides == 1 ? alone : both,
                 .attr_count = sides == 1 ? 2 : 3,
                 .in_count = sides + 2,
                 .out_count = sides};
    for (int side = 0; side < sides; side++) {
        c.in[side] = OP_TENSOR(type, x[side], BATCH, ROWS, HEADS, size);
    }
    c.in[sides] = OP_TENSOR(type, cosine, 1, 1, ROWS, rotated / 2);
    c.in[sides + 1] = OP_TENSOR(type, sine, 1, 1, ROWS, rotated / 2);
    op_run(device, &c);
    for (int64_t i = 0; i < sides * count; i++) {
        const int side = (int)(i / count);
        const int64_t at = i % count, row = at / size % ROWS, head = at / size / ROWS % HEADS;
        const int64_t from = ((at / size / ROWS / HEADS * ROWS + row) * HEADS + head) * size;
        op_check_close(op_real(type, c.out[side].data, at),
                       turned_pair(type, x[side], from, cosine, sine, row, rotated, at % size),
                       4 * op_precision(type), "rotated", at);
    }
    op_close(device, &c);
    void *all[] = {x[0], x[1], cosine, sine};
    for (size_t i = 0; i < MP_COUNT_OF(all); i++) {
        free(all[i]);
    }
}

/* Whole packs of pairs, some of a head, and single ones. */
DEVICE_TEST(rotary_halves_of_neighbours) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        for (int sides = 1; sides <= 2; sides++) {
            check_pairs(device, types[i], 64, 64, sides);
            check_pairs(device, types[i], 64, 16, sides);
            check_pairs(device, types[i], 80, 24, sides);
            check_pairs(device, types[i], 7, 6, sides);
        }
    }
}

/* Cosines have as many dimensions of 1 in front as sines, or two more. */
static void check_rotary(mp_device *device, mp_dtype type, int64_t size, int64_t rotated,
                         bool has_more) {
    const int64_t width = BEFORE + HEADS * size;
    const mp_attr attrs[] = {OP_INTS("part", BEFORE, HEADS, size, size)};
    void *x = op_numbers(type, 1, BATCH * ROWS * width);
    void *cosine = angles(type, 2, rotated), *sine = angles(type, 3, rotated);
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "RotaryHalves",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {OP_TENSOR(type, x, BATCH, ROWS, width),
                        has_more ? OP_TENSOR(type, cosine, 1, 1, ROWS, rotated)
                                 : OP_TENSOR(type, cosine, ROWS, rotated),
                        OP_TENSOR(type, sine, ROWS, rotated)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < BATCH * HEADS * ROWS * size; i++) {
        const int64_t row = i / size % ROWS, head = i / size / ROWS % HEADS;
        const int64_t from = (i / size / ROWS / HEADS * ROWS + row) * width + BEFORE + head * size;
        op_check_close(op_real(type, c.out[0].data, i),
                       turned(type, x, from, cosine, sine, row, rotated, i % size),
                       4 * op_precision(type), "rotated", i);
    }
    op_close(device, &c);
    free(x);
    free(cosine);
    free(sine);
}

DEVICE_TEST(rotary_halves_of_a_part_of_each_head) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        check_rotary(device, types[i], 64, 32, false);
        check_rotary(device, types[i], 80, 32, false);
        check_rotary(device, types[i], 64, 64, true);
        check_rotary(device, types[i], 7, 2, true);
    }
}

/* ---- normalised before ---- */

static const float epsilons[] = {0.5F, 0.25F}; /* of queries, keys */

/* A head that lies from `at` on, over its root mean square, rounded as it would be in memory. */
static void *normed(mp_dtype type, const void *x, int64_t at, const void *weight, int64_t size,
                    float epsilon) {
    void *y = op_numbers(type, 0, size);
    double squares = 0;
    for (int64_t d = 0; d < size; d++) {
        squares += op_real(type, x, at + d) * op_real(type, x, at + d);
    }
    for (int64_t d = 0; d < size; d++) {
        op_store_real(type, y, d,
                      op_real(type, x, at + d) / sqrt(squares / (double)size + (double)epsilon) *
                          (weight != NULL ? op_real(type, weight, d) : 1));
    }
    return y;
}

typedef struct pair_case {
    int64_t size, rotated, key_size;
    bool weights; /* of queries, too */
} pair_case;

/* Queries put first, and keys that lie in rows. */
static void check_side(const op_case *c, int side, const pair_case *at, const void *weight) {
    const mp_dtype type = c->in[0].type;
    const int64_t size = side ? at->key_size : at->size;
    const int64_t width = BEFORE + HEADS * size;
    for (int64_t line = 0; line < BATCH * HEADS * ROWS; line++) {
        const int64_t row = line % ROWS, head = line / ROWS % HEADS;
        const int64_t from =
            side ? (line / ROWS / HEADS * ROWS + row) * width + BEFORE + head * size : line * size;
        const char *lies = (const char *)c->in[side].data + (size_t)from * mp_dtype_size(type);
        void *plain = normed(type, lies, 0, weight, size, epsilons[side]);
        for (int64_t d = 0; d < size; d++) {
            op_check_close(op_real(type, c->out[side].data, line * size + d),
                           turned(type, weight != NULL ? plain : lies, 0, c->in[2].data,
                                  c->in[3].data, row, at->rotated, d),
                           8 * op_precision(type), side ? "key" : "query", line * size + d);
        }
        free(plain);
    }
}

static void check_pair(mp_device *device, mp_dtype type, const pair_case *at) {
    const int64_t width = BEFORE + HEADS * at->key_size;
    const mp_attr attrs[] = {OP_FLOAT("epsilon", epsilons[0]), OP_FLOAT("key_epsilon", epsilons[1]),
                             OP_INTS("key_part", BEFORE, HEADS, at->key_size, at->key_size)};
    void *q = op_numbers(type, 1, BATCH * HEADS * ROWS * at->size);
    void *k = op_numbers(type, 2, BATCH * ROWS * width);
    void *cosine = angles(type, 3, at->rotated), *sine = angles(type, 4, at->rotated);
    void *weights[] = {op_numbers(type, 5, at->size), op_numbers(type, 6, at->key_size)};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "RotaryPair",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {OP_TENSOR(type, q, BATCH, HEADS, ROWS, at->size),
                        OP_TENSOR(type, k, BATCH, ROWS, width),
                        OP_TENSOR(type, cosine, ROWS, at->rotated),
                        OP_TENSOR(type, sine, ROWS, at->rotated),
                        {.type = MP_NONE},
                        OP_TENSOR(type, weights[1], at->key_size)},
                 .in_count = 6,
                 .out_count = 2};
    if (at->weights) {
        c.in[4] = OP_TENSOR(type, weights[0], at->size);
    }
    op_run(device, &c);
    check_side(&c, 0, at, at->weights ? weights[0] : NULL);
    check_side(&c, 1, at, weights[1]);
    op_close(device, &c);
    void *all[] = {q, k, cosine, sine, weights[0], weights[1]};
    for (size_t i = 0; i < MP_COUNT_OF(all); i++) {
        free(all[i]);
    }
}

/* In one launch, or in two: keys of other sizes, heads of no packs. */
DEVICE_TEST(rotary_pairs_of_normalised_heads) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    static const pair_case cases[] = {
        {64, 32, 64, true}, {64, 64, 64, false}, {64, 32, 96, true}, {7, 2, 7, true}};
    for (size_t i = 0; i < MP_COUNT_OF(types) * MP_COUNT_OF(cases); i++) {
        check_pair(device, types[i % MP_COUNT_OF(types)], &cases[i / MP_COUNT_OF(types)]);
    }
}

DEVICE_TEST(rotary_halves_refuse_weights_of_other_sizes) {
    float some[64] = {0};
    op_case bad = {
        .domain = MP_OWN_DOMAIN,
        .name = "RotaryHalves",
        .version = 1,
        .in = {op_f32(some, 1, 2, 3, 8), op_f32(some, 3, 4), op_f32(some, 3, 4), op_f32(some, 4)},
        .in_count = 4,
        .out_count = 1};
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, "heads of 8 elements");
    bad.in[3] = OP_TENSOR(MP_F16, some, 8);
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, "of type float16");
    bad.in[3] = op_f32(some, 1, 8);
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, "are normalised by");
}

DEVICE_TEST(rotary_halves_refuse) {
    float some[64] = {0};
    op_case good = {.domain = MP_OWN_DOMAIN,
                    .name = "RotaryHalves",
                    .version = 1,
                    .in = {op_f32(some, 1, 2, 3, 8), op_f32(some, 3, 4), op_f32(some, 3, 4)},
                    .in_count = 3,
                    .out_count = 1};
    static const char *const length = "of one even length, at most that of a head";
    op_case bad = good;
    bad.in[1].shape.dim[1] = bad.in[2].shape.dim[1] = 10;
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, length);
    bad.in[1].shape.dim[1] = bad.in[2].shape.dim[1] = 3;
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, length);
    const mp_attr paired = OP_INT("interleaved", 1);
    bad.attrs = &paired;
    bad.attr_count = 1;
    bad.in[1].shape.dim[1] = bad.in[2].shape.dim[1] = 5;
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, "at most half that of a head");
    bad = good;
    bad.in[1].shape.dim[1] = 2;
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, length);
    bad = good;
    bad.in[1].shape.dim[0] = bad.in[2].shape.dim[0] = 2;
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, "does not repeat");
    bad = good;
    bad.in[1] = op_f32(some, 1, 2, 3, 4);
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, length);
    bad.in[1] = op_f32(some, 1, 1, 1, 3, 4);
    CHECK_FAILS(plan_of(device, &bad), INVALID_ARGUMENT, length);
}

/* ---- halves ---- */

static double gated(const char *gate, double x, double by) {
    const double share = 1 / (1 + exp(-x));
    return strcmp(gate, "swish") == 0 ? x * share * by
                                      : share * (strcmp(gate, "sigmoid") == 0 ? by : tanh(by));
}

static void check_halves(mp_device *device, mp_dtype type, int64_t half, bool last,
                         const char *how) {
    const mp_attr attrs[] = {OP_FLOAT("alpha", 1), OP_TEXT("gate", how), OP_INT("last", last)};
    void *x = op_numbers(type, 4, ROWS * 2 * half);
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "GatedHalves",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {OP_TENSOR(type, x, ROWS, 2 * half)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < ROWS * half; i++) {
        const int64_t left = i / half * 2 * half + i % half;
        const double gate = op_real(type, x, left + (last ? half : 0));
        const double by = op_real(type, x, left + (last ? 0 : half));
        op_check_close(op_real(type, c.out[0].data, i), gated(how, gate, by),
                       4 * op_precision(type), how, i);
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(gated_halves_of_which_either_is_the_gate) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    static const char *const gates[] = {"swish", "sigmoid", "sigmoid_tanh"};
    for (size_t i = 0; i < 6 * MP_COUNT_OF(types); i++) {
        check_halves(device, types[i / 6], 24, i % 2 == 1, gates[i / 2 % 3]);
        check_halves(device, types[i / 6], 7, i % 2 == 1, gates[i / 2 % 3]);
    }
}

/* ---- rows over their length ---- */

static void check_lengths(mp_device *device, mp_dtype type, int64_t columns, float least) {
    const mp_attr attr = OP_FLOAT("least", least);
    void *x = op_numbers(type, 7, ROWS * columns);
    for (int64_t i = 0; i < columns; i++) {
        op_store_real(type, x, columns + i, 0);
    }
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "LpNormalization",
                 .version = 1,
                 .attrs = &attr,
                 .attr_count = 1,
                 .in = {OP_TENSOR(type, x, ROWS, columns)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t row = 0; row < ROWS; row++) {
        double squares = 0;
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
            squares += op_real(type, x, i) * op_real(type, x, i);
        }
        const double by = fmax(sqrt(squares), (double)least);
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
            op_check_close(op_real(type, c.out[0].data, i), op_real(type, x, i) / by,
                           4 * op_precision(type), "of length 1", i);
        }
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(rows_over_their_length_or_a_number) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        check_lengths(device, types[i], 32, 1e-12F);
        check_lengths(device, types[i], 32, 100); /* longer than a row */
        check_lengths(device, types[i], 32, 0);   /* of zeros no number */
        check_lengths(device, types[i], 7, 0);
        check_lengths(device, types[i], 7, 1e-3F);
        check_lengths(device, types[i], 5000, 1e-3F);
    }
}

/* ---- caches ---- */

DEVICE_TEST(caches_refuse_parts_beyond_rows) {
    float some[256] = {0};
    mp_attr part = OP_INTS("value_part", 8, 2, 8, 8);
    const op_tensor past = op_f32(some, 1, 2, 3, 8), fresh = op_f32(some, 1, 2, 1, 8);
    const op_tensor rows = op_f32(some, 1, 1, 20), table = op_f32(some, 1, 8);
    const op_case grow = {.domain = MP_OWN_DOMAIN,
                          .name = "GrowCaches",
                          .version = 1,
                          .attrs = &part,
                          .attr_count = 1,
                          .in = {past, fresh, past, rows},
                          .in_count = 4,
                          .out_count = 2};
    op_case rotate = grow;
    rotate.name = "RotaryCaches";
    const op_tensor in[] = {fresh, fresh, table, table, past, past, rows};
    memcpy(rotate.in, in, sizeof in);
    rotate.in_count = 7;
    rotate.out_count = 3;
    CHECK_FAILS(plan_of(device, &grow), INVALID_ARGUMENT, "value_part does not lie within");
    CHECK_FAILS(plan_of(device, &rotate), INVALID_ARGUMENT, "value_part does not lie within");
    part = (mp_attr)OP_INTS("value_part", 0, 1, 8, 8); /* of one head */
    CHECK_FAILS(plan_of(device, &grow), INVALID_ARGUMENT, "differ beside axis 2");
    CHECK_FAILS(plan_of(device, &rotate), INVALID_ARGUMENT, "differ beside axis 2");
}
