/* recurrent_group_test.c - LSTM, GRU and RNN of many sizes against plain loops, so that on a GPU
 * every way for blocks to share the steps is taken: one block, clusters, cooperative launches. The
 * same bytes come from a second run and from a captured graph that is launched twice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/kernel_cache.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN_X, IN_W, IN_R, IN_B, IN_LENGTHS, IN_H, IN_C, INS, GATES_MAX = 4, INPUT = 3, OUTS = 3 };

typedef struct network {
    mp_dtype type;
    const char *name;
    int64_t gates, directions, steps, batch, hidden;
    bool linear_before_reset;
    bool tf32;
} network;

/* Each input as the device gets it, and as numbers. */
typedef struct data {
    void *raw[INS];
    double *real[INS];
    int64_t count[INS];
} data;

static data make_data(const network *n) {
    const int64_t rows = n->directions * n->gates * n->hidden;
    const int64_t states = n->directions * n->batch * n->hidden;
    data d = {.count = {n->steps * n->batch * INPUT, rows * INPUT, rows * n->hidden, rows * 2,
                        n->batch, states, states}};
    for (int i = 0; i < INS; i++) {
        const double divisor = i == IN_R ? 32 : 4; /* sums stay small, and every number is exact */
        d.real[i] = calloc((size_t)d.count[i], sizeof(double));
        d.raw[i] = op_memory(i == IN_LENGTHS ? MP_I32 : n->type, d.count[i]);
        CHECK(d.real[i] != NULL);
        for (int64_t k = 0; k < d.count[i]; k++) {
            if (i == IN_LENGTHS) {
                ((int32_t *)d.raw[i])[k] = (int32_t)(k % 3 == 0 ? n->steps : k % (n->steps + 1));
                continue;
            }
            d.real[i][k] = (double)op_value((uint64_t)i + 1, k) / divisor;
            op_store_real(n->type, d.raw[i], k, d.real[i][k]);
        }
    }
    return d;
}

static void free_data(data *d) {
    for (int i = 0; i < INS; i++) {
        free(d->raw[i]);
        free(d->real[i]);
    }
}

/* ---- plain loops ---- */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Row `row` of all directions, its W x or R v with the bias of that. */
static double product(const network *n, const data *in, int64_t d, int64_t gate, int64_t unit,
                      int which, const double *v) {
    const int64_t row = (d * n->gates + gate) * n->hidden + unit;
    const int64_t size = which == IN_W ? INPUT : n->hidden;
    const int64_t biases = (d * 2 + (which == IN_R)) * n->gates + gate;
    double sum = in->real[IN_B][biases * n->hidden + unit];
    for (int64_t k = 0; k < size; k++) {
        sum += in->real[which][row * size + k] * v[k];
    }
    return sum;
}

static double both(const network *n, const data *in, int64_t d, int64_t gate, int64_t unit,
                   const double *x, const double *v) {
    return product(n, in, d, gate, unit, IN_W, x) + product(n, in, d, gate, unit, IN_R, v);
}

static double next_of(const network *n, const data *in, int64_t d, int64_t u, const double *x,
                      const double *h, const double *reset, double *c) {
    if (n->gates == 4) {
        const double input = sigmoid(both(n, in, d, 0, u, x, h));
        const double forget = sigmoid(both(n, in, d, 2, u, x, h));
        c[u] = forget * c[u] + input * tanh(both(n, in, d, 3, u, x, h));
        return sigmoid(both(n, in, d, 1, u, x, h)) * tanh(c[u]);
    }
    if (n->gates == 1) {
        return tanh(both(n, in, d, 0, u, x, h));
    }
    const double update = sigmoid(both(n, in, d, 0, u, x, h));
    const double w = product(n, in, d, 2, u, IN_W, x);
    const double part = n->linear_before_reset
                            ? sigmoid(both(n, in, d, 1, u, x, h)) * product(n, in, d, 2, u, IN_R, h)
                            : product(n, in, d, 2, u, IN_R, reset);
    return (1 - update) * tanh(w + part) + update * h[u];
}

static void check_row(const network *n, const void *got, int64_t at, const double *want,
                      const char *what) {
    const double bound = 8 * op_precision(n->type) + (n->tf32 ? 4e-3 : 2e-5);
    for (int64_t u = 0; u < n->hidden; u++) {
        op_check_close(op_real(n->type, got, at * n->hidden + u), want[u], bound, what, at + u);
    }
}

/* One direction of one entry. `memory`: four times `hidden`. */
static void check_sequence(const network *n, const data *in, void *const *out, int64_t d, int64_t b,
                           double *memory) {
    double *h = memory, *c = h + n->hidden, *next = c + n->hidden, *reset = next + n->hidden;
    const int64_t state = d * n->batch + b, length = ((const int32_t *)in->raw[IN_LENGTHS])[b];
    const size_t size = (size_t)n->hidden * sizeof *h;
    memcpy(h, in->real[IN_H] + state * n->hidden, size);
    memcpy(c, in->real[IN_C] + state * n->hidden, size);
    for (int64_t k = 0; k < n->steps; k++) {
        const int64_t t = d == 1 && k < length ? length - 1 - k : k;
        const double *x = in->real[IN_X] + (t * n->batch + b) * INPUT;
        for (int64_t u = 0; u < n->hidden && n->gates == 3; u++) {
            reset[u] = k < length ? h[u] * sigmoid(both(n, in, d, 1, u, x, h)) : 0;
        }
        for (int64_t u = 0; u < n->hidden; u++) {
            next[u] = k < length ? next_of(n, in, d, u, x, h, reset, c) : 0;
        }
        check_row(n, out[0], (t * n->directions + d) * n->batch + b, next, "y");
        memcpy(h, k < length ? next : h, k < length ? size : 0);
    }
    memset(next, 0, size);
    check_row(n, out[1], state, length > 0 ? h : next, "y_h");
    if (n->gates == 4) {
        check_row(n, out[2], state, length > 0 ? c : next, "y_c");
    }
}

/* ---- on the device ---- */

typedef struct queued {
    mp_device *device;
    mp_stream *stream;
    mp_plan *plan;
    mp_addr in[INS], out[OUTS], scratch;
    size_t in_size[INS], out_size[OUTS], scratch_size;
} queued;

static mp_addr take(mp_device *device, size_t size) {
    mp_addr addr = 0;
    CHECK_OK(device->ops->alloc(device, size, &addr));
    return addr;
}

static void open_queued(queued *q, const op_case *c) {
    const mp_device_ops *ops = q->device->ops;
    CHECK_OK(ops->stream_create(q->device, &q->stream));
    CHECK_OK(op_plan(q->device, c, &q->plan));
    for (int i = 0; i < c->in_count; i++) {
        CHECK_OK(mp_shape_bytes(&c->in[i].shape, c->in[i].type, &q->in_size[i]));
        q->in[i] = take(q->device, q->in_size[i]);
        CHECK_OK(ops->copy(q->device, q->stream, q->in[i], (mp_addr)c->in[i].data, q->in_size[i]));
    }
    for (int i = 0; i < c->out_count; i++) {
        const mp_tensor *out = mp_plan_output_at(q->plan, i);
        CHECK_OK(mp_shape_bytes(&out->shape, out->type, &q->out_size[i]));
        q->out[i] = take(q->device, q->out_size[i]);
    }
    q->scratch_size = mp_plan_scratch_bytes(q->plan) + 1;
    q->scratch = take(q->device, q->scratch_size);
}

static void close_queued(queued *q) {
    for (int i = 0; i < INS; i++) {
        if (q->in[i] != 0) {
            q->device->ops->free(q->device, q->in[i], q->in_size[i]);
        }
    }
    for (int i = 0; i < OUTS; i++) {
        if (q->out[i] != 0) {
            q->device->ops->free(q->device, q->out[i], q->out_size[i]);
        }
    }
    q->device->ops->free(q->device, q->scratch, q->scratch_size);
    mp_plan_release(q->plan);
    q->device->ops->stream_destroy(q->device, q->stream);
}

/* Every byte of outputs and scratch memory is something else before. */
static void spoil(queued *q) {
    const mp_device_ops *ops = q->device->ops;
    for (int i = 0; i < OUTS; i++) {
        if (q->out[i] != 0) {
            CHECK_OK(ops->fill(q->device, q->stream, q->out[i], 0x5b, 1, q->out_size[i]));
        }
    }
    CHECK_OK(ops->fill(q->device, q->stream, q->scratch, 0x5b, 1, q->scratch_size));
}

static void download(queued *q, void **to) {
    for (int i = 0; i < OUTS; i++) {
        if (q->out[i] != 0) {
            CHECK_OK(q->device->ops->copy(q->device, q->stream, (mp_addr)to[i], q->out[i],
                                          q->out_size[i]));
        }
    }
    CHECK_OK(q->device->ops->stream_synchronize(q->device, q->stream));
}

static void check_again(queued *q, mp_graph_exec *graph, void *const *first, void **again) {
    spoil(q);
    CHECK_OK(graph != NULL ? q->device->ops->graph_launch(q->device, graph, q->stream)
                           : mp_plan_run(q->plan, q->stream, q->in, q->out, q->scratch));
    download(q, again);
    for (int i = 0; i < OUTS; i++) {
        CHECK(q->out[i] == 0 || memcmp(first[i], again[i], q->out_size[i]) == 0);
    }
}

/* Runs it, once more, and twice as a graph. `out` is what the first run gave. */
static void run_all(queued *q, void **out) {
    const mp_device_ops *ops = q->device->ops;
    mp_graph_exec *graph = NULL;
    void *again[OUTS] = {NULL, NULL, NULL};
    for (int i = 0; i < OUTS; i++) {
        out[i] = malloc(q->out_size[i] + 1);
        again[i] = malloc(q->out_size[i] + 1);
        CHECK(out[i] != NULL && again[i] != NULL);
    }
    spoil(q);
    CHECK_OK(mp_plan_run(q->plan, q->stream, q->in, q->out, q->scratch));
    download(q, out);
    check_again(q, NULL, out, again);
    CHECK_OK(ops->capture_begin(q->device, q->stream));
    CHECK_OK(mp_plan_run(q->plan, q->stream, q->in, q->out, q->scratch));
    CHECK_OK(ops->capture_end(q->device, q->stream, &graph));
    check_again(q, graph, out, again);
    check_again(q, graph, out, again);
    ops->graph_destroy(q->device, graph);
    for (int i = 0; i < OUTS; i++) {
        free(again[i]);
    }
}

static void check_network(mp_device *device, const network *n) {
    data in = make_data(n);
    const int64_t rows = n->gates * n->hidden;
    const mp_attr attrs[] = {OP_INT("hidden_size", n->hidden),
                             OP_TEXT("direction", n->directions == 2 ? "bidirectional" : "forward"),
                             OP_INT("linear_before_reset", n->linear_before_reset)};
    const op_case c = {.name = n->name,
                       .version = n->type == MP_BF16 ? 22 : 14,
                       .options = {.tf32 = n->tf32},
                       .attrs = attrs,
                       .attr_count = MP_COUNT_OF(attrs),
                       .in = {OP_TENSOR(n->type, in.raw[IN_X], n->steps, n->batch, INPUT),
                              OP_TENSOR(n->type, in.raw[IN_W], n->directions, rows, INPUT),
                              OP_TENSOR(n->type, in.raw[IN_R], n->directions, rows, n->hidden),
                              OP_TENSOR(n->type, in.raw[IN_B], n->directions, 2 * rows),
                              OP_TENSOR(MP_I32, in.raw[IN_LENGTHS], n->batch),
                              OP_TENSOR(n->type, in.raw[IN_H], n->directions, n->batch, n->hidden),
                              OP_TENSOR(n->type, in.raw[IN_C], n->directions, n->batch, n->hidden)},
                       .in_count = n->gates == 4 ? 7 : 6,
                       .out_count = n->gates == 4 ? 3 : 2};
    queued q = {.device = device};
    void *out[OUTS] = {NULL, NULL, NULL};
    double *memory = calloc((size_t)n->hidden * 4, sizeof *memory);
    CHECK(memory != NULL);
    open_queued(&q, &c);
    run_all(&q, out);
    for (int64_t i = 0; i < n->directions * n->batch; i++) {
        /* Of a large network some sequences will do. */
        if (n->hidden * n->batch <= 1024 || i % 5 == 0) {
            check_sequence(n, &in, out, i / n->batch, i % n->batch, memory);
        }
    }
    close_queued(&q);
    for (int i = 0; i < OUTS; i++) {
        free(out[i]);
    }
    free(memory);
    free_data(&in);
}

/* LSTM, GRU that resets after the product, GRU that resets before, RNN. */
static void check_kinds(mp_device *device, network n) {
    static const struct {
        const char *name;
        int64_t gates;
        bool linear;
    } kinds[] = {{"LSTM", 4, false}, {"GRU", 3, true}, {"GRU", 3, false}, {"RNN", 1, false}};
    for (size_t i = 0; i < MP_COUNT_OF(kinds); i++) {
        n.name = kinds[i].name;
        n.gates = kinds[i].gates;
        n.linear_before_reset = kinds[i].linear;
        check_network(device, &n);
    }
    mp_kernel_cache_drop(device);
}

/* On a GPU all batches, otherwise those up to `slow_batch`. */
static void check_sizes(mp_device *device, mp_dtype type, int64_t hidden, int64_t slow_batch) {
    static const int64_t batches[] = {1, 2, 5, 16};
    for (size_t i = 0; i < MP_COUNT_OF(batches); i++) {
        for (int64_t directions = 1; directions <= 2; directions++) {
            if (device->info.warp > 1 || batches[i] <= slow_batch) {
                check_kinds(device, (network){.type = type,
                                              .steps = 4,
                                              .batch = batches[i],
                                              .hidden = hidden,
                                              .directions = directions});
            }
        }
    }
}

DEVICE_TEST(recurrent_group_small) {
    check_sizes(device, MP_F32, 1, 16);
    check_sizes(device, MP_F32, 3, 16);
    check_sizes(device, MP_F32, 64, 2);
}

DEVICE_TEST(recurrent_group_of_128) {
    check_sizes(device, MP_F32, 128, 1);
}

DEVICE_TEST(recurrent_group_of_200) {
    check_sizes(device, MP_F32, 200, 1);
}

DEVICE_TEST(recurrent_group_of_256) {
    check_sizes(device, MP_F32, 256, 1);
}

DEVICE_TEST(recurrent_group_of_384) {
    check_sizes(device, MP_F32, 384, 0);
}

DEVICE_TEST(recurrent_group_of_512) {
    check_sizes(device, MP_F32, 512, 0);
}

DEVICE_TEST(recurrent_group_of_1024) {
    check_sizes(device, MP_F32, 1024, 0);
}

DEVICE_TEST(recurrent_group_f16) {
    check_sizes(device, MP_F16, 7, 2);
    check_sizes(device, MP_F16, 130, 1);
    check_sizes(device, MP_F16, 512, 0);
    check_sizes(device, MP_F16, 1024, 0);
}

DEVICE_TEST(recurrent_group_bf16) {
    check_sizes(device, MP_BF16, 100, 1);
    check_sizes(device, MP_BF16, 600, 0);
}

/* By tensor cores, whose operands a group exchanges: more entries than one operand has, several
 * groups, rows of R that begin anywhere. */
DEVICE_TEST(recurrent_group_of_products) {
    network n = {.type = MP_F32, .steps = 3, .batch = 9, .hidden = 130, .directions = 2};
    n.tf32 = true;
    if (device->info.warp > 1) {
        check_kinds(device, n);
        n.batch = 70;
        n.hidden = 301;
        check_kinds(device, n);
        n.type = MP_F16;
        check_kinds(device, n);
        n.hidden = 1024;
        n.batch = 20;
        n.directions = 1;
        check_kinds(device, n);
    } else {
        n.hidden = 11;
        check_kinds(device, n);
    }
}

/* Many steps, and more entries than multiprocessors. */
DEVICE_TEST(recurrent_group_long_and_wide) {
    network n = {.type = MP_F32, .steps = 60, .batch = 3, .hidden = 33, .directions = 2};
    check_kinds(device, n);
    n.steps = 3;
    n.batch = 150;
    n.hidden = 20;
    check_kinds(device, n);
}
