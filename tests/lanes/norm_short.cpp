/* norm_short.cpp - rows of which some lanes of a warp, a warp or several have one each, and several
 * in turn.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/norm_short.cu"
#include "lanes.h"

namespace {

struct Rows {
    int64_t rows, columns, skip_rows; /* skip_rows: 0 for nothing that is added */
    int32_t width;
    unsigned lanes, blocks;
    int64_t add_rows; /* of what is added besides: 0 for nothing, 1, or all */
    bool within;      /* whether sums are kept between numbers */
};

float next_value() {
    return (float)(next_random() % 2001) / 1000 - 1;
}

void check_rows(const Rows &of) {
    const size_t count = (size_t)(of.rows * of.columns);
    const int64_t skips = of.skip_rows > 0 ? of.skip_rows : 1;
    Buffer<float> x(count), skip((size_t)(skips * of.columns)), scale((size_t)of.columns),
        bias((size_t)of.columns), out(count), sum(count), add(count);
    Buffer<uint8_t> found(K_FOUND_PIECES);
    std::vector<float> mean((size_t)of.rows);
    std::fill_n(found.data(), (size_t)K_FOUND_PIECES, (uint8_t)0);
    found[77] = 1;
    for (size_t i = 0; i < count; i++) {
        x[i] = next_value();
        add[i] = next_value();
    }
    for (size_t i = 0; i < (size_t)(skips * of.columns); i++) {
        skip[i] = next_value();
    }
    for (size_t i = 0; i < (size_t)of.columns; i++) {
        scale[i] = next_value();
        bias[i] = next_value();
    }
    mp_norm_args args = {};
    args.x = x.data();
    args.skip = of.skip_rows > 0 ? skip.data() : nullptr;
    args.skip_rows = skips;
    args.add = of.add_rows > 0 ? add.data() : nullptr;
    args.add_step = of.add_rows > 1 ? of.columns : 0;
    args.found = of.within ? found.data() : nullptr;
    args.most[0] = 9;
    args.most[1] = 0.5F;
    args.scale = scale.data();
    args.bias = bias.data();
    args.out = out.data();
    args.sum = sum.data();
    args.mean = mean.data();
    args.rows = of.rows;
    args.columns = of.columns;
    args.epsilon = 1e-5F;
    args.centred = 1;
    args.width = of.width;
    run_blocks(of.blocks, of.lanes, [&] { norm_short(args); });
    for (int64_t row = 0; row < of.rows; row++) {
        double all = 0, squares = 0;
        for (int64_t c = 0; c < of.columns; c++) {
            const size_t i = (size_t)(row * of.columns + c);
            const size_t its = (size_t)(row % skips * of.columns + c);
            float want = x[i] + (of.skip_rows > 0 ? skip[its] : 0);
            want += of.add_rows > 0 ? add[of.add_rows > 1 ? i : (size_t)c] : 0;
            want = of.within ? std::fmax(std::fmin(want, 0.5F), -0.5F) : want;
            check(sum[i] == want, "a sum", (int64_t)i);
            all += want;
        }
        const double middle = all / (double)of.columns;
        for (int64_t c = 0; c < of.columns; c++) {
            const double off = sum[(size_t)(row * of.columns + c)] - middle;
            squares += off * off;
        }
        const double inverse = 1 / std::sqrt(squares / (double)of.columns + 1e-5);
        check(std::fabs(mean[(size_t)row] - middle) < 1e-5, "a mean", row);
        for (int64_t c = 0; c < of.columns; c++) {
            const size_t i = (size_t)(row * of.columns + c);
            const double want = (sum[i] - middle) * inverse * scale[(size_t)c] + bias[(size_t)c];
            check(std::fabs(out[i] - want) < 1e-4, "an element", (int64_t)i);
        }
    }
}

} // namespace

void run_tests() {
    check_rows({11, 48, 11, 4, 32, 1, 0, false});
    check_rows({11, 48, 0, 4, 64, 2, 0, true});
    check_rows({9, 384, 3, 32, 64, 2, 1, false});
    check_rows({7, 768, 7, 64, 64, 3, 7, false});
    check_rows({5, 760, 2, 64, 64, 1, 5, true});
    check_rows({2, 4, 2, 1, 32, 1, 1, false});
}
