/* planes.cpp - convolutions of each channel by itself with channels first: several small planes of
 * a block, or bands of one, however many lanes load neighbours and elements at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "divider.h"
#include "kernel/linear/depthwise_planes.cu"
#include "lanes.h"

#include <algorithm>
#include <cmath>

namespace {

struct Image {
    int32_t planes, in_h, in_w, pad_h, pad_w;
    int32_t together, groups; /* planes and groups of rows of a block */
};

/* What a plan says of an image whose rows are one tile, with `each` elements a load. */
mp_planes_args args_of(const Image &m, int32_t each, int32_t across_log) {
    mp_planes_args a = {};
    a.all_planes = a.channels = m.planes;
    a.in_h = m.in_h;
    a.in_w = m.in_w;
    a.pad_h = m.pad_h;
    a.pad_w = m.pad_w;
    a.out_h = (m.in_h + 2 * m.pad_h - K_SIZE) / K_STRIDE + 1;
    a.out_w = (m.in_w + 2 * m.pad_w - K_SIZE) / K_STRIDE + 1;
    a.planes = m.together;
    a.strips = (a.out_w + STRIP - 1) / STRIP;
    a.groups = m.groups;
    a.tiles = 1;
    a.bands = (a.out_h + ROWS * m.groups - 1) / (ROWS * m.groups);
    a.in_rows = K_PLANES_SIDE(m.groups * ROWS, K_SIZE, K_STRIDE);
    a.columns = K_PLANES_SIDE(a.strips * STRIP, K_SIZE, K_STRIDE);
    a.pitch = (a.columns + (each == 4 ? K_PLANES_APART_WIDE : K_PLANES_APART) + 3) / 4 * 4;
    a.across_log = across_log;
    a.each = each;
    a.taps = K_SIZE * K_SIZE;
    a.by_tiles = divider(1);
    a.by_bands = divider((uint32_t)a.bands);
    a.by_channels = divider((uint32_t)a.channels);
    a.by_groups = divider((uint32_t)a.groups);
    a.by_strips = divider((uint32_t)a.strips);
    a.by_in_rows = divider((uint32_t)a.in_rows);
    a.count = (int64_t)((a.all_planes + a.planes - 1) / a.planes) * a.bands;
    return a;
}

double expected(const mp_planes_args &a, int32_t plane, int32_t row, int32_t column) {
    const T *x = (const T *)a.x + (size_t)plane * (size_t)(a.in_h * a.in_w);
    double sum = T_load(((const T *)a.bias)[plane]);
    for (int32_t k = 0; k < TAPS; k++) {
        const int32_t y = row * K_STRIDE - a.pad_h + k / K_SIZE;
        const int32_t c = column * K_STRIDE - a.pad_w + k % K_SIZE;
        if (y >= 0 && y < a.in_h && c >= 0 && c < a.in_w) {
            sum += (double)T_load(x[y * a.in_w + c]) * T_load(((const T *)a.w)[plane * TAPS + k]);
        }
    }
    return sum;
}

void check_image(const Image &m, int32_t each, int32_t across_log) {
    mp_planes_args a = args_of(m, each, across_log);
    Buffer<T> x((size_t)(m.planes * m.in_h * m.in_w)), w((size_t)(m.planes * TAPS));
    Buffer<T> bias((size_t)m.planes), y((size_t)(m.planes * a.out_h * a.out_w));
    const auto number = [] { return T_store(small_number()); };
    fill_with(x, m.planes * m.in_h * m.in_w, number);
    fill_with(w, m.planes * TAPS, number);
    fill_with(bias, m.planes, number);
    a.x = x.data();
    a.w = w.data();
    a.bias = bias.data();
    a.y = y.data();
    run_blocks(2, K_PLANES_LANES, [&] { depthwise_planes(a); });
    for (int32_t i = 0; i < m.planes * a.out_h * a.out_w; i++) {
        const int32_t line = i / a.out_w;
        const double want = expected(a, line / a.out_h, line % a.out_h, i % a.out_w);
        check(std::fabs(T_load(y[(size_t)i]) - want) <= 0.01 * std::max(1.0, std::fabs(want)),
              "an output", i);
    }
}

} // namespace

void run_tests() {
    static const Image images[] = {
        {5, 9, 28, 2, 2, 2, 3}, {3, 21, 12, 1, 1, 1, 2}, {4, 7, 20, 0, 3, 3, 2}};
    for (const Image &m : images) {
        for (int32_t each = 1; each <= 2 * K_WORD; each *= 2) {
            for (int32_t log = 0; log <= 7 && each * (int32_t)sizeof(T) <= 8; log += 2) {
                check_image(m, each, log);
                check_image(m, each, 7 - log);
            }
            if (K_WORD == 1) {
                break;
            }
        }
    }
}
