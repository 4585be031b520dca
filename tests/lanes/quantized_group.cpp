/* quantized_group.cpp - the steps of an LSTM with recurrent weights of 8 bits by a block and by
 * clusters of blocks, against plain loops: units that the last block has fewer of or none, rows of
 * R that end within a word, both signs of weights, entries that end early, both directions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cluster.h"
#include "lanes.h"

#include "kernel/recurrent/quantized_group.cu"

namespace {

enum { LANES = 128, STEPS = 5 };

struct Subject {
    int64_t batch, hidden;
    int32_t directions, blocks, lanes;
    bool is_signed, has_lengths;
};

struct Network {
    std::vector<float> projected, bias, scale, y, y_h, y_c;
    std::vector<uint8_t> weight, zero;
    std::vector<int32_t> lengths;
    mp_quantized_group_args args;
};

float next_value() {
    return (float)(next_random() % 2001) / 1000 - 1;
}

Network network_of(const Subject &s) {
    const size_t d = (size_t)s.directions, rows = 4 * (size_t)s.hidden, batch = (size_t)s.batch;
    Network n;
    n.projected.resize(d * STEPS * batch * rows);
    n.bias.resize(d * 2 * rows);
    n.scale.assign(d, 0.01F);
    n.zero.assign(d, s.is_signed ? 3 : 130);
    n.weight.resize(d * rows * (size_t)s.hidden);
    n.y.resize(STEPS * d * batch * (size_t)s.hidden);
    n.y_h.resize(d * batch * (size_t)s.hidden);
    n.y_c = n.y_h;
    for (float &x : n.projected) {
        x = next_value();
    }
    for (float &x : n.bias) {
        x = next_value();
    }
    for (uint8_t &x : n.weight) {
        x = (uint8_t)next_random();
    }
    for (int64_t entry = 0; entry < s.batch; entry++) {
        n.lengths.push_back((int32_t)(STEPS - entry * 2));
    }
    return n;
}

void describe(const Subject &s, Network *n) {
    mp_quantized_group_args *args = &n->args;
    *args = {};
    args->blocks = s.blocks;
    args->units = (int32_t)((s.hidden + s.blocks - 1) / s.blocks);
    args->lanes = s.lanes;
    args->pitch = (int32_t)K_QUANTIZED_GROUP_PITCH(s.hidden);
    args->wide = s.hidden % 4 == 0;
    args->r = {n->weight.data(), n->scale.data(), n->zero.data(), 4 * s.hidden, s.hidden, 0,
               s.is_signed};
    k_cell *cell = &args->cell;
    cell->projected = n->projected.data();
    cell->bias = n->bias.data();
    cell->lengths = s.has_lengths ? n->lengths.data() : nullptr;
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
    cell->kind = K_CELL_LSTM;
    for (int d = 0; d < 2; d++) {
        cell->act[d][0].kind = K_ACT_SIGMOID;
        cell->act[d][1].kind = cell->act[d][2].kind = K_ACT_TANH;
    }
}

double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Gate `g` of a unit: W x, biases, and R h of the state as bytes. */
double gate_of(const Subject &s, const Network &n, int64_t d, int64_t time, int64_t entry,
               int64_t row, const std::vector<double> &h, double scale, double zero) {
    double sum =
        n.projected[(size_t)(((d * STEPS + time) * s.batch + entry) * 4 * s.hidden + row)] +
        n.bias[(size_t)((d * 2) * 4 * s.hidden + row)] +
        n.bias[(size_t)((d * 2 + 1) * 4 * s.hidden + row)];
    for (int64_t k = 0; k < s.hidden; k++) {
        const uint8_t byte = n.weight[(size_t)((d * 4 * s.hidden + row) * s.hidden + k)];
        const double w = s.is_signed ? (int8_t)byte - 3 : byte - 130;
        const double place = rint(h[(size_t)(entry * s.hidden + k)] / scale) + zero;
        sum += (fmin(fmax(place, 0), 255) - zero) * scale * w * 0.01F;
    }
    return sum;
}

void check_direction(const Subject &s, const Network &n, int64_t d) {
    const size_t count = (size_t)(s.batch * s.hidden);
    std::vector<double> h(count), c(count);
    for (int64_t step = 0; step < STEPS; step++) {
        double least = 0, most = 0;
        for (double x : h) {
            least = fmin(least, x);
            most = fmax(most, x);
        }
        const double scale = most == least ? 1 : (most - least) / 255, zero = rint(-least / scale);
        const std::vector<double> before = h;
        for (int64_t i = 0; i < (int64_t)count; i++) {
            const int64_t entry = i / s.hidden, unit = i % s.hidden;
            const int64_t length = s.has_lengths ? n.lengths[(size_t)entry] : STEPS;
            if (step >= length) {
                continue;
            }
            const int64_t time = d == 1 ? length - 1 - step : step;
            double gate[4];
            for (int64_t g = 0; g < 4; g++) {
                gate[g] = gate_of(s, n, d, time, entry, g * s.hidden + unit, before, scale, zero);
            }
            c[(size_t)i] = sigmoid(gate[2]) * c[(size_t)i] + sigmoid(gate[0]) * tanh(gate[3]);
            h[(size_t)i] = sigmoid(gate[1]) * tanh(c[(size_t)i]);
            const size_t at = (size_t)((time * s.directions + d) * (int64_t)count + i);
            check(fabs(n.y[at] - h[(size_t)i]) < 2e-3, "a state", (int64_t)at);
        }
    }
    for (size_t i = 0; i < count; i++) {
        const bool is = !s.has_lengths || n.lengths[i / (size_t)s.hidden] > 0;
        check(!is || fabs(n.y_h[(size_t)d * count + i] - h[i]) < 2e-3, "the last state",
              (int64_t)i);
        check(!is || fabs(n.y_c[(size_t)d * count + i] - c[i]) < 2e-3, "the last cell", (int64_t)i);
    }
}

void check_network(const Subject &s) {
    Network n = network_of(s);
    describe(s, &n);
    run_blocks((unsigned)(s.directions * s.blocks), LANES, [&] { K_NAME(n.args); },
               (unsigned)s.blocks);
    for (int64_t d = 0; d < s.directions; d++) {
        check_direction(s, n, d);
    }
}

} // namespace

void run_tests() {
    static const Subject subjects[] = {
        {1, 36, 1, 2, 1, true, false}, {3, 21, 2, 4, 4, false, true},
        {1, 33, 1, 8, 2, true, false}, {2, 20, 2, 1, 1, false, false},
        {1, 3, 1, 4, 8, true, false},
    };
    for (const Subject &each : subjects) {
        check_network(each);
    }
}
