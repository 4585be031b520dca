/* recurrent_test.c - LSTM, GRU and RNN against plain loops: every way to queue their steps, both
 * layouts, all types, sequences of several lengths.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GATES_MAX = 4 };

/* A network of two directions with every optional input. */
typedef struct network {
    const char *name;
    int gates;
    mp_dtype type;
    int64_t steps, batch, input, hidden;
    bool batch_first, linear_before_reset;
    uint32_t skew;
} network;

enum { DIRECTIONS = 2 };

typedef struct data {
    void *x, *w, *r, *b, *h, *c, *p;
    int32_t *lengths;
} data;

/* Weights that keep sums small: exact multiples of 1/64. */
static void *small_numbers(mp_dtype type, uint64_t seed, int64_t count) {
    void *out = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        op_store_real(type, out, i, (double)op_value(seed, i) / 8);
    }
    return out;
}

static data make_data(const network *n) {
    const int64_t rows = DIRECTIONS * n->gates * n->hidden;
    const int64_t states = DIRECTIONS * n->batch * n->hidden;
    data d = {small_numbers(n->type, 1, n->steps * n->batch * n->input),
              small_numbers(n->type, 2, rows * n->input),
              small_numbers(n->type, 3, rows * n->hidden),
              small_numbers(n->type, 4, rows * 2),
              small_numbers(n->type, 5, states),
              small_numbers(n->type, 6, states),
              small_numbers(n->type, 7, DIRECTIONS * 3 * n->hidden),
              malloc((size_t)n->batch * sizeof(int32_t))};
    CHECK(d.lengths != NULL);
    for (int64_t b = 0; b < n->batch; b++) {
        d.lengths[b] = (int32_t)(b % 3 == 0 ? n->steps : b % (n->steps + 1));
    }
    return d;
}

static void free_data(data *d) {
    free(d->x);
    free(d->w);
    free(d->r);
    free(d->b);
    free(d->h);
    free(d->c);
    free(d->p);
    free(d->lengths);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Where element (time or direction, entry) of x, of y and of states begins, in both layouts. */
static int64_t x_at(const network *n, int64_t t, int64_t b) {
    return (n->batch_first ? b * n->steps + t : t * n->batch + b) * n->input;
}
static int64_t y_at(const network *n, int64_t t, int64_t d, int64_t b) {
    return (n->batch_first ? (b * n->steps + t) * DIRECTIONS + d
                           : (t * DIRECTIONS + d) * n->batch + b) *
           n->hidden;
}
static int64_t s_at(const network *n, int64_t d, int64_t b) {
    return (n->batch_first ? b * DIRECTIONS + d : d * n->batch + b) * n->hidden;
}

static double value(const network *n, const void *from, int64_t i) {
    return op_real(n->type, from, i);
}

/* W x, and R v, of one gate and unit. */
static double w_part(const network *n, const data *in, int64_t d, int g, int64_t u, int64_t x) {
    const int64_t row = (d * n->gates + g) * n->hidden + u;
    double sum = value(n, in->b, (d * 2 * n->gates + g) * n->hidden + u);
    for (int64_t i = 0; i < n->input; i++) {
        sum += value(n, in->w, row * n->input + i) * value(n, in->x, x + i);
    }
    return sum;
}
static double r_part(const network *n, const data *in, int64_t d, int g, int64_t u,
                     const double *v) {
    const int64_t row = (d * n->gates + g) * n->hidden + u;
    double sum = value(n, in->b, ((d * 2 + 1) * n->gates + g) * n->hidden + u);
    for (int64_t i = 0; i < n->hidden; i++) {
        sum += value(n, in->r, row * n->hidden + i) * v[i];
    }
    return sum;
}

static void lstm_step(const network *n, const data *in, int64_t d, int64_t x, const double *h,
                      double *c, double *out) {
    for (int64_t u = 0; u < n->hidden; u++) {
        double sum[GATES_MAX];
        for (int g = 0; g < 4; g++) {
            sum[g] = w_part(n, in, d, g, u, x) + r_part(n, in, d, g, u, h);
        }
        const double pi = value(n, in->p, (d * 3) * n->hidden + u);
        const double po = value(n, in->p, (d * 3 + 1) * n->hidden + u);
        const double pf = value(n, in->p, (d * 3 + 2) * n->hidden + u);
        const double input = sigmoid(sum[0] + pi * c[u]);
        const double forget = sigmoid(sum[2] + pf * c[u]);
        c[u] = forget * c[u] + input * tanh(sum[3]);
        out[u] = sigmoid(sum[1] + po * c[u]) * tanh(c[u]);
    }
}

static void gru_step(const network *n, const data *in, int64_t d, int64_t x, const double *h,
                     double *reset, double *out) {
    for (int64_t u = 0; u < n->hidden; u++) {
        reset[u] = sigmoid(w_part(n, in, d, 1, u, x) + r_part(n, in, d, 1, u, h));
        reset[u] *= n->linear_before_reset ? 1 : h[u];
    }
    for (int64_t u = 0; u < n->hidden; u++) {
        const double z = sigmoid(w_part(n, in, d, 0, u, x) + r_part(n, in, d, 0, u, h));
        const double part = n->linear_before_reset ? reset[u] * r_part(n, in, d, 2, u, h)
                                                   : r_part(n, in, d, 2, u, reset);
        out[u] = (1 - z) * tanh(w_part(n, in, d, 2, u, x) + part) + z * h[u];
    }
}

static void rnn_step(const network *n, const data *in, int64_t d, int64_t x, const double *h,
                     double *out) {
    for (int64_t u = 0; u < n->hidden; u++) {
        out[u] = tanh(w_part(n, in, d, 0, u, x) + r_part(n, in, d, 0, u, h));
    }
}

static void check_row(const network *n, const op_tensor *got, int64_t at, const double *want,
                      const char *what) {
    /* States are rounded to the type at every step where products are the library's. */
    const double bound = 8 * op_precision(n->type) + (n->type == MP_F64 ? 1e-13 : 1e-5);
    for (int64_t u = 0; u < n->hidden; u++) {
        op_check_close(op_real(n->type, got->data, at + u), want[u], bound, what, at + u);
    }
}

/* One direction of one entry. */
static void check_sequence(const network *n, const data *in, const op_case *c, int64_t d, int64_t b,
                           double *memory) {
    double *h = memory, *cell = memory + n->hidden, *out = memory + 2 * n->hidden;
    double *zero = memory + 3 * n->hidden;
    const int64_t length = in->lengths[b];
    for (int64_t u = 0; u < n->hidden; u++) {
        h[u] = value(n, in->h, s_at(n, d, b) + u);
        cell[u] = value(n, in->c, s_at(n, d, b) + u);
        zero[u] = 0;
    }
    for (int64_t k = 0; k < n->steps; k++) {
        const int64_t t = d == 1 && k < length ? length - 1 - k : k;
        if (k >= length) {
            check_row(n, &c->out[0], y_at(n, t, d, b), zero, "y behind the end");
            continue;
        }
        if (n->gates == 4) {
            lstm_step(n, in, d, x_at(n, t, b), h, cell, out);
        } else if (n->gates == 3) {
            gru_step(n, in, d, x_at(n, t, b), h, cell, out);
        } else {
            rnn_step(n, in, d, x_at(n, t, b), h, out);
        }
        memcpy(h, out, (size_t)n->hidden * sizeof *h);
        check_row(n, &c->out[0], y_at(n, t, d, b), h, "y");
    }
    check_row(n, &c->out[1], s_at(n, d, b), length > 0 ? h : zero, "y_h");
    if (n->gates == 4) {
        check_row(n, &c->out[2], s_at(n, d, b), length > 0 ? cell : zero, "y_c");
    }
}

static op_case case_of(const network *n, const data *in, const mp_attr *attrs, size_t attr_count) {
    const int64_t rows = n->gates * n->hidden;
    const int64_t x0 = n->batch_first ? n->batch : n->steps;
    const int64_t x1 = n->batch_first ? n->steps : n->batch;
    const int64_t s0 = n->batch_first ? n->batch : DIRECTIONS;
    const int64_t s1 = n->batch_first ? DIRECTIONS : n->batch;
    op_case c = {.name = n->name,
                 .version = n->type == MP_BF16 ? 22 : 14,
                 .attrs = attrs,
                 .attr_count = attr_count,
                 .align = n->skew != 0 ? 1 : 16,
                 .skew = n->skew,
                 .in = {OP_TENSOR(n->type, in->x, x0, x1, n->input),
                        OP_TENSOR(n->type, in->w, DIRECTIONS, rows, n->input),
                        OP_TENSOR(n->type, in->r, DIRECTIONS, rows, n->hidden),
                        OP_TENSOR(n->type, in->b, DIRECTIONS, 2 * rows),
                        OP_TENSOR(MP_I32, in->lengths, n->batch),
                        OP_TENSOR(n->type, in->h, s0, s1, n->hidden)},
                 .in_count = n->gates == 4 ? 8 : 6,
                 .out_count = n->gates == 4 ? 3 : 2};
    if (n->gates == 4) {
        c.in[6] = OP_TENSOR(n->type, in->c, s0, s1, n->hidden);
        c.in[7] = OP_TENSOR(n->type, in->p, DIRECTIONS, 3 * n->hidden);
    }
    return c;
}

static void check_network(mp_device *device, const network *n) {
    data in = make_data(n);
    const mp_attr attrs[] = {
        OP_INT("hidden_size", n->hidden), OP_TEXT("direction", "bidirectional"),
        OP_INT("layout", n->batch_first), OP_INT("linear_before_reset", n->linear_before_reset)};
    double *memory = calloc((size_t)n->hidden * 4, sizeof *memory);
    CHECK(memory != NULL);
    op_case c = case_of(n, &in, attrs, MP_COUNT_OF(attrs));
    op_run(device, &c);
    for (int64_t i = 0; i < DIRECTIONS * n->batch; i++) {
        check_sequence(n, &in, &c, i / n->batch, i % n->batch, memory);
    }
    op_close(device, &c);
    free(memory);
    free_data(&in);
}

/* RNN, LSTM, GRU that resets after the product, GRU that resets before. */
static void check_kinds(mp_device *device, network n) {
    static const struct {
        const char *name;
        int gates;
        bool linear;
    } kinds[] = {{"RNN", 1, false}, {"LSTM", 4, false}, {"GRU", 3, true}, {"GRU", 3, false}};
    for (size_t i = 0; i < MP_COUNT_OF(kinds); i++) {
        n.name = kinds[i].name;
        n.gates = kinds[i].gates;
        n.linear_before_reset = kinds[i].linear;
        check_network(device, &n);
    }
}

DEVICE_TEST(recurrent_types_and_layouts) {
    static const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        for (int layout = 0; layout < 2; layout++) {
            check_kinds(device, (network){.type = types[i],
                                          .steps = 4,
                                          .batch = 3,
                                          .input = 5,
                                          .hidden = 12,
                                          .batch_first = layout != 0});
        }
    }
}

DEVICE_TEST(recurrent_of_one_step) {
    check_kinds(device,
                (network){.type = MP_F32, .steps = 1, .batch = 2, .input = 6, .hidden = 40});
}

/* R is too large for one block: many share the units of a step. */
DEVICE_TEST(recurrent_by_many_blocks) {
    check_kinds(device,
                (network){.type = MP_F32, .steps = 2, .batch = 5, .input = 2, .hidden = 370});
}

/* Many entries and a large R: products by the library. */
DEVICE_TEST(recurrent_by_products) {
    check_kinds(device,
                (network){.type = MP_F32, .steps = 2, .batch = 17, .input = 2, .hidden = 370});
    check_kinds(device, (network){.type = MP_F64,
                                  .steps = 3,
                                  .batch = 200,
                                  .input = 2,
                                  .hidden = 9,
                                  .batch_first = true});
}

DEVICE_TEST(recurrent_without_alignment) {
    check_kinds(
        device,
        (network){.type = MP_F16, .steps = 3, .batch = 2, .input = 8, .hidden = 16, .skew = 4});
    check_kinds(device, (network){.type = MP_F32, .steps = 3, .batch = 1, .input = 1, .hidden = 1});
}

/* A length beyond the steps or below 0 is cut. */
DEVICE_TEST(recurrent_lengths_out_of_range) {
    network n = {
        .name = "RNN", .gates = 1, .type = MP_F32, .steps = 3, .batch = 2, .input = 2, .hidden = 3};
    const mp_attr attrs[] = {OP_INT("hidden_size", 3), OP_TEXT("direction", "bidirectional")};
    data in = make_data(&n);
    double memory[4 * 3];
    in.lengths[0] = INT32_MAX;
    in.lengths[1] = INT32_MIN;
    op_case c = case_of(&n, &in, attrs, 2);
    op_run(device, &c);
    in.lengths[0] = 3;
    in.lengths[1] = 0;
    for (int64_t i = 0; i < 4; i++) {
        check_sequence(&n, &in, &c, i / 2, i % 2, memory);
    }
    op_close(device, &c);
    free_data(&in);
}

static const network small_lstm = {
    .name = "LSTM", .gates = 4, .type = MP_F32, .steps = 3, .batch = 2, .input = 2, .hidden = 3};

/* Y is left out, the states are not. */
DEVICE_TEST(recurrent_with_outputs_left_out) {
    network n = small_lstm;
    const mp_attr attrs[] = {OP_INT("hidden_size", 3), OP_TEXT("direction", "bidirectional")};
    data in = make_data(&n);
    op_case all = case_of(&n, &in, attrs, 2);
    op_case few = case_of(&n, &in, attrs, 2);
    few.out_absent = 1;
    op_run(device, &all);
    op_run(device, &few);
    CHECK(op_same(&few.out[1], all.out[1].data));
    CHECK(op_same(&few.out[2], all.out[2].data));
    op_close(device, &all);
    op_close(device, &few);
    free_data(&in);
}

/* The states at the end are zeros, not those at the beginning. */
DEVICE_TEST(recurrent_without_steps) {
    static const char *const names[] = {"RNN", "GRU", "LSTM"};
    const int gates[] = {1, 3, 4};
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        const network n = {.name = names[i],
                           .gates = gates[i],
                           .type = MP_F32,
                           .steps = 0,
                           .batch = 2,
                           .input = 2,
                           .hidden = 3};
        const mp_attr attrs[] = {OP_INT("hidden_size", 3), OP_TEXT("direction", "bidirectional")};
        data in = make_data(&n);
        op_case c = case_of(&n, &in, attrs, 2);
        op_run(device, &c);
        CHECK_EQ_INT(c.out[0].shape.dim[0], 0);
        for (int k = 1; k < c.out_count; k++) {
            for (int64_t e = 0; e < mp_shape_count(&c.out[k].shape); e++) {
                CHECK_EQ_INT(((const uint32_t *)c.out[k].data)[e], 0);
            }
        }
        op_close(device, &c);
        free_data(&in);
    }
}

DEVICE_TEST(recurrent_refuses_a_clip_that_is_not_above_0) {
    static const float clips[] = {0, -1, NAN};
    network n = small_lstm;
    data in = make_data(&n);
    mp_plan *plan = NULL;
    for (size_t i = 0; i < MP_COUNT_OF(clips); i++) {
        const mp_attr attrs[] = {OP_INT("hidden_size", 3), OP_TEXT("direction", "bidirectional"),
                                 OP_FLOAT("clip", clips[i])};
        op_case c = case_of(&n, &in, attrs, 3);
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "clip is");
    }
    free_data(&in);
}

DEVICE_TEST(recurrent_refuses) {
    network n = small_lstm;
    const char names[] = "Sigmoid\0Tanh\0Swish\0Tanh\0Tanh\0Tanh";
    mp_attr attrs[] = {OP_INT("hidden_size", 3),
                       OP_TEXT("direction", "bidirectional"),
                       {.name = "activations", .kind = MP_ATTR_STRINGS, .s = names, .count = 6}};
    data in = make_data(&n);
    mp_plan *plan = NULL;
    op_case c = case_of(&n, &in, attrs, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "Swish");
    attrs[2].count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "activations has 3");
    c.attr_count = 2;
    attrs[1].s = "sideways";
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "sideways");
    attrs[1].s = "bidirectional";
    attrs[0].i = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "hidden_size");
    attrs[0].i = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "needed");
    attrs[0].i = 3;
    c.in[1].shape.dim[2] = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "W is of shape");
    free_data(&in);
}
