/* nbits_chain_test.c - ChainMatMulNBits against plain loops, one product after the other: one row,
 * which a GPU takes through all of them at once, and others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include "base/macros.h"
#include "kernel/quantize/nbits_chain_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 2, EACH = 4, MOST = IN + EACH * K_CHAIN_LINKS, SUM = 1 };
enum { SWISH, GELU, GELU_TANH };

typedef struct part {
    int64_t n;
    const char *what; /* 'n': its row is normed; 'g': one half gates the other; 'b': a bias */
} part;

static bool is(const part *p, char what) {
    return strchr(p->what, what) != NULL;
}

typedef struct subject {
    int64_t m, k;
    int bits, block, gate;
    bool skip;
    int count;
    part part[K_CHAIN_LINKS];
} subject;

/* Numbers, and by how much each may be off, as standard deviations go: what is rounded on the way
 * is off by either sign. */
typedef struct row {
    double *value, *off;
    int64_t count;
} row;

static row row_of(int64_t count) {
    const row made = {calloc((size_t)count + 1, sizeof(double)),
                      calloc((size_t)count + 1, sizeof(double)), count};
    CHECK(made.value != NULL && made.off != NULL);
    return made;
}

static void row_free(row *r) {
    free(r->value);
    free(r->off);
    *r = (row){0};
}

static void round_at(mp_dtype type, row *r, int64_t i, double value, double off) {
    r->value[i] = op_rounded(type, value);
    r->off[i] = off + fabs(value) * op_precision(type) / 2;
}

static double active_of(int gate, double x) {
    return gate == SWISH  ? x / (1 + exp(-x))
           : gate == GELU ? 0.5 * x * (1 + erf(x / sqrt(2)))
                          : 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* ---- the reference ---- */

static row product_of(mp_dtype type, const subject *s, const part *p, const op_tensor *in,
                      const row *from) {
    const int64_t k = from->count, blocks = k / s->block;
    const uint8_t *weight = in[0].data;
    row made = row_of(p->n);
    for (int64_t n = 0; n < p->n; n++) {
        double sum = is(p, 'b') ? op_real(type, in[2].data, n) : 0, off = 0, size = fabs(sum);
        for (int64_t i = 0; i < k; i++) {
            const int64_t bit = (n * k + i) * s->bits;
            const int q = weight[bit / 8] >> bit % 8 & ((1 << s->bits) - 1);
            const double w =
                (q - (1 << (s->bits - 1))) * op_real(type, in[1].data, n * blocks + i / s->block);
            sum += w * from->value[i];
            size += fabs(w * from->value[i]);
            off += w * w * from->off[i] * from->off[i];
        }
        round_at(type, &made, n, sum, sqrt(off) + size * 1e-6);
    }
    return made;
}

static row gated_of(mp_dtype type, const subject *s, const row *halves) {
    const int64_t count = halves->count / 2;
    row made = row_of(count);
    for (int64_t i = 0; i < count; i++) {
        const double active = active_of(s->gate, halves->value[i]), x = halves->value[count + i];
        round_at(type, &made, i, active * x,
                 1.2 * halves->off[i] * fabs(x) + halves->off[count + i] * fabs(active));
    }
    return made;
}

static row normed_of(mp_dtype type, const row *x, const void *scale, row *left) {
    const int64_t count = x->count;
    row made = row_of(count);
    double squares = 0, offs = 0;
    for (int64_t i = 0; i < count; i++) {
        made.value[i] = x->value[i] + (left->count > 0 ? left->value[i] : 0);
        made.off[i] = x->off[i] + (left->count > 0 ? left->off[i] : 0);
        squares += made.value[i] * made.value[i];
        offs += made.off[i] * made.off[i];
    }
    const double inverse = 1 / sqrt(squares / (double)count + 1e-5);
    row_free(left);
    *left = row_of(count);
    for (int64_t i = 0; i < count; i++) {
        const double value = made.value[i], off = made.off[i], by = op_real(type, scale, i);
        round_at(type, left, i, value, off);
        round_at(type, &made, i, value * inverse * by,
                 fabs(inverse * by) * (off + fabs(value) * sqrt(offs / (squares + 1e-9))));
    }
    return made;
}

static void check_row(const op_tensor *out, int64_t at, const row *want) {
    for (int64_t i = 0; i < want->count; i++) {
        const double off = fabs(op_real(out->type, out->data, at + i) - want->value[i]);
        if (!(off <= 8 * want->off[i])) {
            test_fail(__FILE__, __LINE__, "element %lld of %s is off by %g of %g, which may be %g",
                      (long long)at + i, mp_dtype_name(out->type), off, want->value[i],
                      want->off[i]);
        }
    }
}

/* Row `m` of what was made. */
static void check_results(mp_dtype type, const subject *s, const op_case *c, int64_t m) {
    row at = row_of(s->k), left = {0};
    for (int64_t i = 0; i < s->k; i++) {
        at.value[i] = op_real(type, c->in[0].data, m * s->k + i);
    }
    for (int i = 0; i < s->count; i++) {
        const op_tensor *in = &c->in[IN + EACH * i];
        if (is(&s->part[i], 'n') && s->skip && left.count == 0) {
            left = row_of(at.count);
            for (int64_t e = 0; e < at.count; e++) {
                left.value[e] = op_real(type, c->in[1].data, m * at.count + e);
            }
        }
        if (is(&s->part[i], 'n')) {
            row made = normed_of(type, &at, in[3].data, &left);
            row_free(&at);
            at = made;
        }
        row made = product_of(type, s, &s->part[i], in, &at);
        row_free(&at);
        at = made;
        if (is(&s->part[i], 'g')) {
            made = gated_of(type, s, &at);
            row_free(&at);
            at = made;
        }
    }
    check_row(&c->out[0], m * at.count, &at);
    if (c->out_count > SUM) {
        check_row(&c->out[SUM], m * left.count, &left);
    }
    row_free(&at);
    row_free(&left);
}

/* ---- a run ---- */

/* The inputs of a product of rows of k elements. */
static void fill_part(mp_dtype type, const subject *s, const part *p, int64_t k, op_tensor *in) {
    const int64_t blocks = k / s->block, bytes = s->block * s->bits / 8;
    uint8_t *weight = malloc((size_t)(p->n * k));
    void *scale = op_memory(type, p->n * blocks), *norm = op_memory(type, k);
    CHECK(weight != NULL);
    for (int64_t i = 0; i < p->n * blocks * bytes; i++) {
        weight[i] = (uint8_t)((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) >> 37);
    }
    for (int64_t i = 0; i < p->n * blocks; i++) { /* results are about as large as the row */
        op_store_real(type, scale, i,
                      (0.5 + 0.125 * (double)(i % 7)) / sqrt((double)k) / (1 << (s->bits - 1)));
    }
    for (int64_t i = 0; i < k; i++) {
        op_store_real(type, norm, i, 0.75 + 0.125 * (double)(i % 5));
    }
    in[0] = OP_TENSOR(MP_U8, weight, p->n, blocks, bytes);
    in[1] = OP_TENSOR(type, scale, p->n, blocks);
    in[2] = is(p, 'b') ? OP_TENSOR(type, op_numbers(type, 9, p->n), p->n) : in[2];
    in[3] = is(p, 'n') ? OP_TENSOR(type, norm, k) : in[3];
    if (!is(p, 'n')) {
        free(norm);
    }
}

static void check(mp_device *device, const subject *s, mp_dtype type) {
    static const char *const gates[] = {"swish", "gelu", "gelu_tanh"};
    int gated = 0;
    int64_t k = s->k, width = 0;
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "ChainMatMulNBits",
                 .version = 1,
                 .attr_count = 5,
                 .align = 16,
                 .in = {OP_TENSOR(type, op_numbers(type, 1, s->m * k), s->m, k)},
                 .in_count = IN + EACH * s->count,
                 .out_count = 1};
    for (int i = 0; i < s->count; i++) {
        const part *p = &s->part[i];
        width = is(p, 'n') && width == 0 ? k : width;
        fill_part(type, s, p, k, &c.in[IN + EACH * i]);
        gated |= (is(p, 'g') ? 1 : 0) << i;
        k = is(p, 'g') ? p->n / 2 : p->n;
    }
    for (int i = IN; i < c.in_count; i++) {
        c.constant |= c.in[i].data != NULL ? 1u << i : 0;
    }
    if (s->skip) {
        c.in[1] = OP_TENSOR(type, op_numbers(type, 3, s->m * width), s->m, width);
        c.out_count = 2;
    }
    const mp_attr attrs[] = {OP_INT("bits", s->bits), OP_INT("block_size", s->block),
                             OP_INT("gated", gated), OP_FLOAT("epsilon", 1e-5f),
                             OP_TEXT("gate", gates[s->gate])};
    c.attrs = attrs;
    op_run(device, &c);
    for (int64_t m = 0; m < s->m; m++) {
        check_results(type, s, &c, m);
    }
    op_close(device, &c);
    for (int i = 0; i < c.in_count; i++) {
        free((void *)(uintptr_t)c.in[i].data);
    }
}

DEVICE_TEST(nbits_chains) {
    static const subject subjects[] = {
        {1, 64, 4, 32, SWISH, true, 4, {{64, ""}, {256, "ng"}, {64, ""}, {96, "n"}}},
        {1, 576, 4, 32, SWISH, true, 4, {{576, ""}, {3072, "ng"}, {576, ""}, {960, "n"}}},
        {1, 576, 4, 32, GELU, true, 3, {{576, "b"}, {512, "ng"}, {576, ""}}},
        {1, 128, 8, 32, GELU_TANH, true, 4, {{256, ""}, {640, "ng"}, {256, ""}, {48, "n"}}},
        {1, 256, 4, 64, SWISH, true, 3, {{1024, "ng"}, {256, ""}, {384, "nb"}}},
        {1, 256, 8, 128, SWISH, false, 2, {{512, "ngb"}, {256, "b"}}},
        {1, 192, 4, 32, SWISH, false, 1, {{80, "n"}}},
        {1, 1024, 4, 128, SWISH, true, 2, {{256, "n"}, {1024, ""}}},
        {1, 768, 4, 32, SWISH, true, 2, {{96, ""}, {32, "ng"}}},
        /* an odd number of chunks */
        {3, 64, 4, 32, SWISH, true, 4, {{64, ""}, {256, "ng"}, {64, ""}, {96, "n"}}},
        {20, 128, 4, 32, GELU, true, 3, {{512, "ng"}, {128, ""}, {64, "n"}}},
        {2, 64, 8, 32, SWISH, false, 2, {{128, "g"}, {64, "ng"}}},
        {0, 64, 4, 32, SWISH, true, 4, {{64, ""}, {256, "ng"}, {64, ""}, {96, "n"}}},
    };
    static const mp_dtype types[] = {MP_F16, MP_BF16, MP_F32};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types); i++) {
        check(device, &subjects[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)]);
    }
}

/* What is left beside the rows is repeated for all of them, or they for it. */
DEVICE_TEST(nbits_chains_repeat_rows) {
    enum { K = 64, MOST_ROWS = 4 };
    static const int64_t counts[][2] = {{3, 1}, {1, 4}, {1, 1}};
    static const mp_attr attrs[] = {OP_INT("block_size", 32), OP_INT("gated", 1),
                                    OP_TEXT("gate", "swish")};
    for (size_t n = 0; n < MP_COUNT_OF(counts); n++) {
        const int64_t x = counts[n][0], y = counts[n][1], rows = x > y ? x : y;
        const subject s = {rows, K, 4, 32, SWISH, true, 2, {{128, "ng"}, {K, ""}}};
        float *given[] = {op_numbers(MP_F32, 1, x * K), op_numbers(MP_F32, 3, y * K)};
        float wide[2][MOST_ROWS * K];
        op_case c = {.domain = MP_OWN_DOMAIN,
                     .name = "ChainMatMulNBits",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = MP_COUNT_OF(attrs),
                     .align = 16,
                     .in = {OP_TENSOR(MP_F32, given[0], x, K), OP_TENSOR(MP_F32, given[1], y, K)},
                     .in_count = IN + 2 * EACH,
                     .out_count = 2};
        fill_part(MP_F32, &s, &s.part[0], K, &c.in[IN]);
        fill_part(MP_F32, &s, &s.part[1], K, &c.in[IN + EACH]);
        op_run(device, &c);
        CHECK_EQ_INT(c.out[0].shape.dim[0], rows);
        for (int64_t i = 0; i < rows * K; i++) {
            wide[0][i] = given[0][x > 1 ? i : i % K];
            wide[1][i] = given[1][y > 1 ? i : i % K];
        }
        c.in[0] = OP_TENSOR(MP_F32, wide[0], rows, K);
        c.in[1] = OP_TENSOR(MP_F32, wide[1], rows, K);
        for (int64_t m = 0; m < rows; m++) {
            check_results(MP_F32, &s, &c, m);
        }
        op_close(device, &c);
        free(given[0]);
        free(given[1]);
        for (int i = IN; i < c.in_count; i++) {
            free((void *)(uintptr_t)c.in[i].data);
        }
    }
}

/* As a file may have it, which nobody has to believe. */
DEVICE_TEST(nbits_chains_refuse_others) {
    static const uint8_t weight[64 * 32];
    static const float numbers[64 * 2];
    static const struct {
        int64_t bits, block, gated, n;
        bool skip, norm, scale;
        int out_count;
        const char *part;
    } cases[] = {
        {3, 32, 0, 64, false, true, true, 1, "weights of 3 bits"},
        {4, 24, 0, 64, false, true, true, 1, "block_size is 24"},
        {4, 0, 0, 64, false, true, true, 1, "block_size is 0"},
        {8, 32, 0, 64, false, true, true, 1, "weights of shape"},
        {4, 32, 1, 63, false, true, true, 1, "of which half gate"},
        {4, 32, 0, 0, false, true, true, 1, "has 0 columns of 64"},
        {4, 32, 0, 64, false, true, false, 1, "has no weights"},
        {4, 32, 0, 64, false, true, true, 2, "no sum of one tensor"},
        {4, 32, 0, 64, true, false, true, 1, "without a norm"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(cases); i++) {
        const mp_attr attrs[] = {OP_INT("bits", cases[i].bits),
                                 OP_INT("block_size", cases[i].block),
                                 OP_INT("gated", cases[i].gated), OP_TEXT("gate", "swish")};
        op_case c = {.domain = MP_OWN_DOMAIN,
                     .name = "ChainMatMulNBits",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = MP_COUNT_OF(attrs),
                     .in = {OP_TENSOR(MP_F32, numbers, 1, 64)},
                     .in_count = IN + EACH,
                     .out_count = cases[i].out_count};
        mp_plan *plan = NULL;
        c.in[1] = cases[i].skip ? c.in[0] : c.in[1];
        c.in[IN] = OP_TENSOR(MP_U8, weight, cases[i].n, 2, 16);
        if (cases[i].scale) {
            c.in[IN + 1] = OP_TENSOR(MP_F32, numbers, cases[i].n, 2);
        }
        if (cases[i].norm) {
            c.in[IN + 3] = OP_TENSOR(MP_F32, numbers, 64);
        }
        const mp_status status = op_plan(device, &c, &plan);
        CHECK(status == MP_INVALID_ARGUMENT || status == MP_UNSUPPORTED);
        CHECK_STR_HAS(mp_error_message(), cases[i].part);
    }
}
