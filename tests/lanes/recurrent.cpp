/* recurrent.cpp - the steps of LSTM, GRU and RNN by tensor cores or (BY_STEPS) by a block for a few
 * entries, against plain loops: units that the last block has fewer of or none, more entries than a
 * right operand has, rows that share a warp's columns and those that do not, rows of R that begin
 * anywhere, entries that end early, both directions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cluster.h"
#include "lanes.h"
#include "matrix.h"

#if BY_STEPS
#include "kernel/recurrent/recurrent_steps.cu"
typedef mp_recurrent_args Args;
#else
#include "kernel/recurrent/recurrent_mma.cu"
typedef mp_recurrent_mma_args Args;
#endif

namespace {

enum { STEPS = 3 };

struct Subject {
    int32_t gates;
    bool linear; /* a GRU that resets behind its product */
    int64_t batch, hidden;
    int32_t directions, blocks, entries; /* entries of a group */
    bool usual, has_lengths;
};

struct Network {
    std::vector<T> projected, bias, recurrence, h_first, c_first, y, y_h, y_c;
    std::vector<int32_t> lengths;
    std::vector<uint32_t> meeting;
    Args args;
    unsigned blocks, lanes;
    unsigned together;
};

double real(const std::vector<T> &of, int64_t i) {
    return (double)T_load(of[(size_t)i]);
}

std::vector<T> numbers(int64_t count, float scale) {
    std::vector<T> made;
    for (int64_t i = 0; i < count; i++) {
        made.push_back(T_store((TC)(small_number() * scale)));
    }
    return made;
}

Network network_of(const Subject &s) {
    const int64_t rows = s.gates * s.hidden, states = s.directions * s.batch * s.hidden;
    Network n;
    n.projected = numbers(s.directions * STEPS * s.batch * rows, 1);
    n.bias = numbers(s.directions * 2 * rows, 1);
    n.recurrence = numbers(s.directions * rows * s.hidden, 0.25F);
    n.h_first = numbers(states, 1);
    n.c_first = numbers(states, 1);
    n.y.resize((size_t)(STEPS * states));
    n.y_h.resize((size_t)states);
    n.y_c.resize((size_t)states);
    for (int64_t entry = 0; entry < s.batch; entry++) {
        n.lengths.push_back((int32_t)(entry % 3 == 0 ? STEPS : STEPS - entry % 4));
    }
    return n;
}

#if BY_STEPS
void describe_launch(const Subject &s, Network *n) {
    Args *args = &n->args;
    args->recurrence = n->recurrence.data();
    args->step_count = STEPS;
    args->unit_blocks = 1;
    args->lanes = s.blocks == 1 ? 4 : 16;
    args->wide = s.hidden % 8 == 0;
    n->blocks = (unsigned)(s.directions * ((s.batch + ROWS - 1) / ROWS));
    n->lanes = 64;
    n->together = 1;
}
#else
void describe_launch(const Subject &s, Network *n) {
    Args *args = &n->args;
    const int32_t high = K_RECURRENT_MMA_TILES(sizeof(T)) * 16;
    args->recurrence = n->recurrence.data();
    args->entry_groups = (s.batch + s.entries - 1) / s.entries;
    args->blocks = s.blocks;
    args->entries = s.entries;
    args->sides = (s.entries + 7) / 8;
    args->units = (int32_t)((s.hidden + s.blocks - 1) / s.blocks);
    args->depth_warps = (int32_t)((s.hidden + K_RECURRENT_MMA_DEPTH - 1) / K_RECURRENT_MMA_DEPTH);
    args->tile_warps = (args->units * s.gates + high - 1) / high;
    args->pitch = args->depth_warps * K_RECURRENT_MMA_DEPTH;
    args->wide = s.hidden % (16 / (int64_t)sizeof(T)) == 0;
    const size_t groups = (size_t)(s.directions * args->entry_groups);
    n->meeting.assign(groups * (size_t)(K_RECURRENT_MMA_APART + 3 * args->sides * 8 * args->pitch),
                      0);
    args->meeting = n->meeting.data();
    n->blocks = (unsigned)(s.directions * args->entry_groups * s.blocks);
    n->lanes = (unsigned)(args->depth_warps * args->tile_warps * 32);
    n->together = (unsigned)s.blocks;
}
#endif

void describe(const Subject &s, Network *n) {
    Args *args = &n->args;
    *args = {};
    describe_launch(s, n);
    k_cell *cell = &args->cell;
    cell->projected = n->projected.data();
    cell->bias = n->bias.data();
    cell->lengths = s.has_lengths ? n->lengths.data() : nullptr;
    cell->h_first = n->h_first.data();
    cell->c_first = n->c_first.data();
    cell->y = n->y.data();
    cell->y_h = n->y_h.data();
    cell->y_c = n->y_c.data();
    cell->steps = STEPS;
    cell->batch = s.batch;
    cell->hidden = s.hidden;
    cell->x_step = s.batch;
    cell->x_batch = 1;
    cell->y_step = s.directions * s.batch * s.hidden;
    cell->y_direction = cell->s_direction = s.batch * s.hidden;
    cell->y_batch = cell->s_batch = s.hidden;
    cell->directions = s.directions;
    cell->kind = s.gates;
    cell->linear_before_reset = s.linear;
    for (int d = 0; d < 2; d++) {
        cell->act[d][0].kind = s.gates == 1 ? K_ACT_TANH : K_ACT_SIGMOID;
        cell->act[d][1].kind = s.usual ? K_ACT_TANH : K_ACT_SOFTSIGN;
        cell->act[d][2].kind = K_ACT_TANH;
    }
}

double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* R v of a gate's row, with its bias. */
double product_of(const Subject &s, const Network &n, int64_t row, const double *v) {
    double sum = 0;
    for (int64_t k = 0; k < s.hidden; k++) {
        sum += real(n.recurrence, row * s.hidden + k) * v[k];
    }
    return sum;
}

void check_sequence(const Subject &s, const Network &n, int64_t d, int64_t entry) {
    const size_t hidden = (size_t)s.hidden;
    const int64_t state = (d * s.batch + entry) * s.hidden;
    const int64_t length = s.has_lengths ? n.lengths[(size_t)entry] : STEPS;
    const double bound = T_load(T_store(1.001F)) == 1 ? 6e-2 : 8e-3; /* of bfloat16, others */
    std::vector<double> h(hidden), c(hidden), reset(hidden);
    for (size_t u = 0; u < hidden; u++) {
        h[u] = real(n.h_first, state + (int64_t)u);
        c[u] = real(n.c_first, state + (int64_t)u);
    }
    const auto function = [&](double x) { return s.usual ? tanh(x) : x / (1 + fabs(x)); };
    for (int64_t step = 0; step < length; step++) {
        const int64_t time = d == 1 ? length - 1 - step : step;
        const int64_t x = ((d * STEPS + time) * s.batch + entry) * s.gates * s.hidden;
        const auto w = [&](int64_t g, size_t u) {
            return real(n.projected, x + g * s.hidden + (int64_t)u) +
                   real(n.bias, (d * 2 * s.gates + g) * s.hidden + (int64_t)u);
        };
        const auto r = [&](int64_t g, size_t u, const std::vector<double> &v) {
            const int64_t row = (d * s.gates + g) * s.hidden + (int64_t)u;
            return product_of(s, n, row, v.data()) +
                   real(n.bias, ((d * 2 + 1) * s.gates + g) * s.hidden + (int64_t)u);
        };
        const std::vector<double> before = h;
        for (size_t u = 0; u < hidden && s.gates == 3; u++) {
            reset[u] = before[u] * sigmoid(w(1, u) + r(1, u, before));
        }
        for (size_t u = 0; u < hidden; u++) {
            if (s.gates == 4) {
                c[u] = sigmoid(w(2, u) + r(2, u, before)) * c[u] +
                       sigmoid(w(0, u) + r(0, u, before)) * function(w(3, u) + r(3, u, before));
                h[u] = sigmoid(w(1, u) + r(1, u, before)) * tanh(c[u]);
            } else if (s.gates == 1) {
                h[u] = tanh(w(0, u) + r(0, u, before));
            } else {
                const double update = sigmoid(w(0, u) + r(0, u, before));
                const double part = s.linear ? sigmoid(w(1, u) + r(1, u, before)) * r(2, u, before)
                                             : r(2, u, reset);
                h[u] = (1 - update) * function(w(2, u) + part) + update * before[u];
            }
            const int64_t at =
                (time * s.directions + d) * s.batch * s.hidden + entry * s.hidden + (int64_t)u;
            check(fabs(real(n.y, at) - h[u]) < bound, "a state", at);
        }
    }
    for (size_t u = 0; u < hidden; u++) {
        const int64_t at = state + (int64_t)u;
        check(fabs(real(n.y_h, at) - (length > 0 ? h[u] : 0)) < bound, "the last state", at);
        check(s.gates != 4 || fabs(real(n.y_c, at) - (length > 0 ? c[u] : 0)) < 2 * bound,
              "the last cell", at);
    }
}

void check_network(const Subject &s) {
    Network n = network_of(s);
    describe(s, &n);
    run_blocks(
        n.blocks, n.lanes, [&] { K_NAME(n.args); }, n.together);
    for (int64_t i = 0; i < s.directions * s.batch; i++) {
        check_sequence(s, n, i / s.batch, i % s.batch);
    }
}

} // namespace

void run_tests() {
    static const Subject subjects[] = {
        {4, false, 3, 40, 1, 2, 3, true, false},  {4, false, 9, 12, 2, 1, 9, false, true},
        {3, false, 5, 33, 1, 2, 4, true, true},   {3, true, 9, 24, 1, 3, 8, false, false},
        {1, false, 5, 136, 1, 1, 5, true, false}, {3, false, 2, 3, 1, 4, 2, true, false},
    };
    for (const Subject &each : subjects) {
        check_network(each);
    }
}
