/* line.cpp - convolutions of lines of each channel by itself with channels last: tiles of a line
 * and of several short ones, windows in parts, dilation, odd channels; what lies beside a window is
 * infinite, and must not be multiplied.
 * SPDX-License-Identifier: Apache-2.0 */
#include "divider.h"
#include "kernel/linear/depthwise_line.cu"
#include "lanes.h"

#include <algorithm>
#include <cmath>

namespace {

struct Line {
    int32_t images, channels, in, taps, dilation, pad, pad_end;
    int32_t strips_log, held_taps;
};

mp_depthwise_line_args args_of(const Line &m) {
    mp_depthwise_line_args a = {};
    a.channels = m.channels;
    a.in = m.in;
    a.out = m.in + m.pad + m.pad_end - (m.taps - 1) * m.dilation;
    a.taps = m.taps;
    a.dilation = m.dilation;
    a.pad = m.pad;
    a.classes = std::min(m.dilation, a.out);
    a.lines = m.images * a.classes;
    a.strips_log = m.strips_log;
    a.held_taps = m.held_taps;
    const int32_t tile = STRIP << m.strips_log, pixels = (a.out + m.dilation - 1) / m.dilation;
    const int32_t together = 1 << (K_LINE_STRIPS_LOG - m.strips_log);
    a.tiles = (pixels + tile - 1) / tile;
    a.packs = (m.channels + CHANNELS - 1) / CHANNELS;
    a.aligned = m.channels % PACK == 0;
    a.activation = K_ACTIVATE_LEAKY_RELU;
    a.alpha = 0.5F;
    a.count = (int64_t)((a.lines + together - 1) / together) * a.tiles * a.packs;
    a.by_packs = divider((uint32_t)a.packs);
    a.by_tiles = divider((uint32_t)a.tiles);
    a.by_classes = divider((uint32_t)a.classes);
    return a;
}

double expected(const mp_depthwise_line_args &a, int32_t image, int32_t pixel, int32_t c) {
    double sum = T_load(((const T *)a.bias)[c]);
    for (int32_t k = 0; k < a.taps; k++) {
        const int32_t at = pixel - a.pad + k * a.dilation;
        if (at >= 0 && at < a.in) {
            sum += (double)T_load(((const T *)a.x)[(image * a.in + at) * a.channels + c]) *
                   T_load(((const T *)a.w)[k * a.channels + c]);
        }
    }
    const int64_t place = (int64_t)(image * a.out + pixel) * a.channels + c;
    sum += T_load(((const T *)a.residual)[place]);
    return sum < 0 ? sum / 2 : sum;
}

void check_line(const Line &m, bool infinite) {
    mp_depthwise_line_args a = args_of(m);
    const int32_t count_in = m.images * m.in * m.channels;
    const int32_t count_out = m.images * a.out * m.channels;
    Buffer<T> x((size_t)count_in), w((size_t)(m.taps * m.channels)), bias((size_t)m.channels);
    Buffer<T> residual((size_t)count_out), y((size_t)count_out);
    const auto number = [] { return T_store(small_number()); };
    fill_with(x, count_in, number);
    fill_with(w, m.taps * m.channels, number);
    fill_with(bias, m.channels, number);
    fill_with(residual, count_out, number);
    for (int32_t i = 0; infinite && i < m.channels; i++) {
        x[(size_t)(m.in / 2 * m.channels + i)] = T_store(INFINITY);
    }
    for (int32_t i = 0; infinite && i < m.taps * m.channels; i++) {
        w[(size_t)i] = T_store(1.0F); /* times infinity no NaN */
    }
    a.x = x.data();
    a.w = w.data();
    a.bias = bias.data();
    a.residual = residual.data();
    a.y = y.data();
    run_blocks(2, K_LINE_LANES, [&] { depthwise_line(a); });
    for (int32_t i = 0; i < count_out; i++) {
        const int32_t place = i / m.channels;
        const double want = expected(a, place / a.out, place % a.out, i % m.channels);
        const double made = T_load(y[(size_t)i]);
        check(made == want || std::fabs(made - want) <= 0.02 * std::max(1.0, std::fabs(want)),
              "an output", i);
    }
}

} // namespace

void run_tests() {
    static const Line lines[] = {
        {1, 40, 150, 31, 1, 15, 15, 3, 31}, {3, 8, 20, 4, 1, 3, 0, 0, 4},
        {2, 33, 70, 7, 3, 9, 9, 1, 7},      {1, 36, 60, 21, 1, 30, 9, 2, 8},
        {1, 16, 37, 2, 40, 20, 20, 0, 2},
    };
    for (const Line &m : lines) {
        check_line(m, false);
        check_line(m, true);
    }
}
