/* strip.cpp - convolutions of long lines of each channel by itself with channels first: several
 * tiles of a line, windows of all remainders of four; what lies beside a window is infinite, and
 * must not be multiplied.
 * SPDX-License-Identifier: Apache-2.0 */
#include "divider.h"
#include "kernel/linear/depthwise_strip.cu"
#include "lanes.h"

#include <algorithm>
#include <cmath>

namespace {

struct Line {
    int32_t planes, in, taps, pad, pad_end, strips;
};

mp_planes_args args_of(const Line &m) {
    mp_planes_args a = {};
    a.all_planes = a.channels = m.planes;
    a.in_w = m.in;
    a.out_w = m.in + m.pad + m.pad_end - m.taps + 1;
    a.pad_w = m.pad;
    a.taps = m.taps;
    a.strips = m.strips;
    a.tiles = (a.out_w + STRIP * m.strips - 1) / (STRIP * m.strips);
    a.activation = K_ACTIVATE_LEAKY_RELU;
    a.alpha = 0.5F;
    a.count = (int64_t)m.planes * a.tiles;
    a.by_tiles = divider((uint32_t)a.tiles);
    a.by_channels = divider((uint32_t)m.planes);
    return a;
}

double expected(const mp_planes_args &a, int32_t plane, int32_t column) {
    double sum = T_load(((const T *)a.bias)[plane]);
    for (int32_t k = 0; k < a.taps; k++) {
        const int32_t at = column - a.pad_w + k;
        if (at >= 0 && at < a.in_w) {
            sum += (double)T_load(((const T *)a.x)[plane * a.in_w + at]) *
                   T_load(((const T *)a.w)[plane * a.taps + k]);
        }
    }
    sum += T_load(((const T *)a.residual)[plane * a.out_w + column]);
    return sum < 0 ? sum / 2 : sum;
}

void check_line(const Line &m, bool infinite) {
    mp_planes_args a = args_of(m);
    const int32_t count = m.planes * a.out_w;
    Buffer<T> x((size_t)(m.planes * m.in)), w((size_t)(m.planes * m.taps));
    Buffer<T> bias((size_t)m.planes), residual((size_t)count), y((size_t)count);
    const auto number = [] { return T_store(small_number()); };
    const auto one = [] { return T_store(1.0F); }; /* times infinity no NaN */
    fill_with(x, m.planes * m.in, number);
    fill_with(w, m.planes * m.taps, number);
    fill_with(bias, m.planes, number);
    fill_with(residual, count, number);
    if (infinite) {
        fill_with(w, m.planes * m.taps, one);
        x[(size_t)m.in / 2] = T_store(INFINITY);
    }
    a.x = x.data();
    a.w = w.data();
    a.bias = bias.data();
    a.residual = residual.data();
    a.y = y.data();
    run_blocks(2, K_STRIP_LANES, [&] { depthwise_strip(a); });
    for (int32_t i = 0; i < count; i++) {
        const double want = expected(a, i / a.out_w, i % a.out_w), made = T_load(y[(size_t)i]);
        check(made == want || std::fabs(made - want) <= 0.02 * std::max(1.0, std::fabs(want)),
              "an output", i);
    }
}

} // namespace

void run_tests() {
    static const Line lines[] = {
        {3, 700, 31, 15, 15, 32},  {2, 2400, 4, 3, 0, 76},  {1, 300, 2, 0, 0, 19},
        {2, 90, 141, 130, 99, 12}, {1, 500, 33, 16, 16, 8},
    };
    for (const Line &m : lines) {
        check_line(m, false);
        check_line(m, true);
    }
}
