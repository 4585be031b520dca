/* fused_rows.cpp - kernels whose text is written for expressions with reductions: rows that a lane,
 * a part of a warp or a block shares, kept and long ones, of whole packs and others.
 *
 * WAY 0 is a softmax of x * y + m with a mask m that is repeated and y for each row, and the
 * largest element; WAY 1 is a norm with a scale, the variance, and the least result. What stands in
 * for the text (row_stand_in.cu) gives its bits, from the table TABLE.
 * SPDX-License-Identifier: Apache-2.0 */
#include TEXT
#include "divider.h"
#include "lanes.h"

#include <cmath>
#include <cstring>

extern "C" void row_stand_in(const mp_fused_args args);

namespace {

alignas(8) const unsigned char table[] = {
#include TABLE
};

constexpr int32_t BATCH = 2, INNER = 3, ROWS = BATCH * INNER;
constexpr double BOUND = sizeof(T) == 4 ? 2e-6 : 5e-3;

struct Case {
    int32_t columns, width;
    unsigned lanes, blocks;
    size_t skew;
};

double value_of(T x) {
    return (double)T_load(x);
}

void fill(Buffer<T> &x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        x[i] = T_store((float)(next_random() % 257) / 64 - 2);
    }
}

void near(T got, double want, const char *what, int64_t at) {
    check(std::fabs(value_of(got) - want) <= BOUND * std::fmax(1, std::fabs(want)), what, at);
}

/* The mask is one of BATCH, for INNER rows each. */
k_walk walk_of(int32_t columns) {
    k_walk walk = {};
    walk.count = (int64_t)ROWS * columns;
    walk.length = (uint32_t)columns;
    walk.by_length = divider((uint32_t)columns);
    walk.levels = 2;
    walk.level[0].dim = INNER;
    walk.level[0].divider = divider(INNER);
    walk.level[1].dim = BATCH;
    walk.level[1].stride[0] = (uint32_t)columns;
    walk.level[1].divider = divider(BATCH);
    return walk;
}

void check_softmax(const Case &c, Buffer<T> &x, Buffer<T> &mask, Buffer<T> &by, Buffer<T> &out,
                   Buffer<T> &largest) {
    for (int64_t row = 0; row < ROWS; row++) {
        double most = -INFINITY, sum = 0;
        auto at = [&](int64_t i) {
            return value_of(x[row * c.columns + i]) * value_of(by[row]) +
                   value_of(mask[row / INNER * c.columns + i]);
        };
        for (int64_t i = 0; i < c.columns; i++) {
            most = std::fmax(most, at(i));
        }
        for (int64_t i = 0; i < c.columns; i++) {
            sum += std::exp(at(i) - most);
        }
        for (int64_t i = 0; i < c.columns; i++) {
            near(out[row * c.columns + i], std::exp(at(i) - most) / sum, "an element", i);
        }
        near(largest[row], most, "the largest", row);
    }
}

void check_norm(const Case &c, Buffer<T> &x, Buffer<T> &scale, Buffer<T> &out, Buffer<T> &variance,
                Buffer<T> &least) {
    for (int64_t row = 0; row < ROWS; row++) {
        double mean = 0, squares = 0, low = INFINITY;
        auto at = [&](int64_t i) { return value_of(x[row * c.columns + i]); };
        for (int64_t i = 0; i < c.columns; i++) {
            mean += at(i) / c.columns;
        }
        for (int64_t i = 0; i < c.columns; i++) {
            squares += (at(i) - mean) * (at(i) - mean) / c.columns;
        }
        for (int64_t i = 0; i < c.columns; i++) {
            const double want = (at(i) - mean) / std::sqrt(squares) * value_of(scale[i]);
            near(out[row * c.columns + i], want, "an element", i);
            low = std::fmin(low, want);
        }
        near(variance[row], squares, "the variance", row);
        near(least[row], low, "the least", row);
    }
}

/* The bits of what the text wrote, which is in args, and of what its stand-in writes. */
void check_stand_in(const Case &c, mp_fused_args args) {
    const size_t sizes[] = {(size_t)ROWS * (size_t)c.columns, ROWS, ROWS};
    Buffer<T> out(sizes[0], c.skew), first(ROWS), second(ROWS);
    T *const made[] = {out.data(), first.data(), second.data()};
    void *text[3];
    for (int i = 0; i < 3; i++) {
        text[i] = args.out[i];
        args.out[i] = made[i];
    }
    run_blocks(c.blocks, c.lanes, [&] { row_stand_in(args); });
    for (int i = 0; i < 3; i++) {
        check(std::memcmp(made[i], text[i], sizes[i] * sizeof(T)) == 0, "bits of output", i);
    }
}

void check_rows(const Case &c) {
    const size_t count = (size_t)ROWS * (size_t)c.columns;
    Buffer<T> x(count, c.skew), y(count, c.skew), row(ROWS), out(count, c.skew), first(ROWS),
        second(ROWS);
    fill(x, count);
    fill(y, count);
    fill(row, ROWS);
    mp_fused_args args = {};
    args.in[0] = x.data();
    args.in[1] = y.data();
    args.in[2] = row.data();
    args.out[0] = out.data();
    args.out[1] = first.data();
    args.out[2] = second.data();
    args.stand_in = table;
    args.walk = walk_of(c.columns);
    args.rows = ROWS;
    args.columns = c.columns;
    args.width = c.width;
    run_blocks(c.blocks, c.lanes, [&] { fused_rows(args); });
#if WAY == 0
    check_softmax(c, x, y, row, out, first);
#else
    check_norm(c, x, y, out, first, second);
#endif
    check_stand_in(c, args);
}

} // namespace

void run_tests() {
    const int32_t kept = F_KEEP;
    for (size_t skew = 0; skew < 2; skew++) {
        check_rows({kept, 1, 32, 1, skew});
        check_rows({kept - 1, 1, 32, 2, skew});
        check_rows({2, 1, 32, 1, skew});
        check_rows({kept * 4, 4, 32, 1, skew});
        check_rows({kept * 4 - 3, 4, 64, 1, skew});
        check_rows({kept * 32 - kept / 2, 32, 64, 2, skew});
        check_rows({kept * 32 - 1, 32, 128, 1, skew});
        check_rows({kept * 64, 64, 64, 4, skew});
        check_rows({kept * 128 - 5, 128, 128, 2, skew});
        if (LONG) {
            check_rows({kept * 128 + 3, 64, 64, 3, skew});
            check_rows({kept * 200, 64, 64, 6, skew});
        }
    }
}
