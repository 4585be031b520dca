/* lp_norm.cpp - rows over their norm, which lanes of a warp or all of a block share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/lp_norm.cu"
#include "lanes.h"

namespace {

void check_rows(int64_t rows, int64_t columns, int32_t p, int32_t width, unsigned lanes) {
    const size_t count = (size_t)(rows * columns);
    Buffer<float> x(count, L_WHOLE ? 0 : 1), out(count, L_WHOLE ? 0 : 3);
    for (size_t i = 0; i < count; i++) {
        x[i] = (int64_t)i / columns == 1 ? 0 : (float)(next_random() % 2001) / 1000 - 1;
        out[i] = -7;
    }
    mp_lp_norm_args args = {};
    args.x = x.data();
    args.out = out.data();
    args.rows = rows;
    args.columns = columns;
    args.inner = 1;
    args.stays = 1;
    args.p = p;
    args.width = width;
    run_blocks(2, lanes, [&] { lp_norm(args); });
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t c = 0; c < columns; c++) {
            const double value = x[(size_t)(row * columns + c)];
            sum += p == 1 ? std::fabs(value) : value * value;
        }
        const double norm = p == 1 ? sum : std::sqrt(sum);
        for (int64_t c = 0; c < columns; c++) {
            const size_t i = (size_t)(row * columns + c);
            const double want = norm == 0 ? 0 : x[i] / norm;
            check(std::fabs(out[i] - want) <= 1e-6 * std::fabs(want), "an element", (int64_t)i);
        }
    }
}

} // namespace

void run_tests() {
    for (int32_t p = 1; p <= 2; p++) {
        check_rows(9, 64, p, 2, 32);
        check_rows(5, 1024, p, 32, 64);
        check_rows(3, 1500, p, 64, 64);
        check_rows(70, 4, p, 1, 64);
        if (!L_WHOLE) {
            check_rows(5, 37, p, 4, 32);
            check_rows(3, 5001, p, 64, 64);
        }
    }
}
