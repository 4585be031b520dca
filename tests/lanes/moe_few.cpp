/* moe_few.cpp - a few rows times the packed integers of their experts, by the two kernels that sort
 * no routes, as a GPU's lanes run them: rows that share experts, columns and chunks that do not
 * come out even, more experts than lanes, zero points of blocks and of columns. OUT: the last
 * products. SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#if OUT
#define K_DOTS 1
#include "kernel/quantize/moe_few_out.cu"
#else
#include "kernel/quantize/moe_few_in.cu"
#endif
#include "lanes.h"

#include <algorithm>

namespace {

struct Subject {
    int32_t rows, k, experts, columns, chunks, shift; /* shift: of a block's length; 31 for one */
    bool has_zeros, across, has_bias, normalize;
};

T element() {
    return T_store(small_number());
}

struct Matrix {
    Buffer<uint8_t> weight, zero;
    Buffer<T> scale, bias;
    k_moe_few m = {};

    Matrix(const Subject *s, int32_t n)
        : weight((size_t)(s->experts * n * s->chunks * K_BITS * 4)),
          zero((size_t)(s->experts * n * (s->chunks + 1))),
          scale((size_t)(s->experts * n * s->chunks)), bias((size_t)(s->experts * n)) {
        const int32_t all = s->chunks * F_CHUNK;
        const int64_t columns = s->experts * n;
        fill_with(weight, columns * s->chunks * K_BITS * 4, [] { return (uint8_t)next_random(); });
        fill_with(zero, columns * (s->chunks + 1), [] { return (uint8_t)next_random(); });
        fill_with(scale, columns * s->chunks, [] {
            return T_store((float)(1 + next_random() % 7) / (K_BITS == 8 ? 2048 : 64));
        });
        fill_with(bias, columns, element);
        m.weight = weight.data();
        m.scale = scale.data();
        m.zero = s->has_zeros ? zero.data() : nullptr;
        m.bias = s->has_bias ? bias.data() : nullptr;
        m.n = n;
        m.chunks = s->chunks;
        m.blocks = s->shift == 31 ? 1 : (all + (1 << s->shift) - 1) >> s->shift;
        m.block_shift = s->shift;
        m.middle = 1 << (K_BITS - 1);
        m.zero_across = s->across;
        m.zero_row = ((s->across ? n : m.blocks) * K_BITS + 7) / 8;
    }

    double at(int64_t expert, int64_t column, int64_t k) const {
        const int64_t row = expert * m.n + column, block = k >> m.block_shift;
        const uint32_t mask = (1u << K_BITS) - 1;
        const int64_t bit = (row * m.chunks * F_CHUNK + k) * K_BITS;
        const int64_t place = (m.zero_across ? column : block) * K_BITS;
        const int64_t from = (m.zero_across ? expert : row) * m.zero_row;
        const uint32_t q = weight[(size_t)(bit / 8)] >> bit % 8 & mask;
        const double base =
            m.zero ? zero[(size_t)(from + place / 8)] >> place % 8 & mask : m.middle;
        return (q - base) * T_load(scale[(size_t)(row * m.blocks + block)]);
    }

    double product(int64_t expert, int64_t column, const T *x) const {
        double sum = m.bias ? T_load(bias[(size_t)(expert * m.n + column)]) : 0;
        for (int64_t k = 0; k < m.chunks * F_CHUNK; k++) {
            sum += T_load(x[k]) * at(expert, column, k);
        }
        return sum;
    }
};

/* The experts of a row from the best on. */
std::vector<int32_t> order_of(const Buffer<T> &scores, int64_t row, int32_t experts) {
    std::vector<int32_t> order;
    for (int32_t e = 0; e < experts; e++) {
        order.push_back(e);
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return T_load(scores[(size_t)(row * experts + a)]) >
               T_load(scores[(size_t)(row * experts + b)]);
    });
    return order;
}

void near(double found, double want, int64_t at) {
    check(std::fabs(found - want) <= 1e-4 + std::fabs(want) * (sizeof(T) == 4 ? 1e-5 : 1e-2),
          "a sum", at);
}

#if OUT
void check_row(const Subject *s, const Matrix &first, const Buffer<T> &scores, const Buffer<T> &x,
               const Buffer<T> &out, int64_t row) {
    const std::vector<int32_t> order = order_of(scores, row, s->experts);
    double all = 0, picked = 0;
    std::vector<double> share;
    for (int32_t e = 0; e < s->experts; e++) {
        share.push_back(exp((double)T_load(scores[(size_t)(row * s->experts + order[(size_t)e])])));
        all += share.back();
        picked += e < s->k ? share.back() : 0;
    }
    for (int64_t c = 0; c < s->columns; c++) {
        double want = 0;
        for (int32_t j = 0; j < s->k; j++) {
            const T *own = x.data() + (row * s->k + j) * s->chunks * F_CHUNK;
            want += share[(size_t)j] / (s->normalize ? picked : all) *
                    first.product(order[(size_t)j], c, own);
        }
        near(T_load(out[(size_t)(row * s->columns + c)]), want, c);
    }
}
#else
void check_row(const Subject *s, const Matrix &first, const Matrix &other, const Buffer<T> &scores,
               const Buffer<T> &x, const Buffer<T> &out, int64_t row) {
    const std::vector<int32_t> order = order_of(scores, row, s->experts);
    const T *own = x.data() + row * s->chunks * F_CHUNK;
    for (int64_t i = 0; i < s->k * s->columns; i++) {
        const int64_t e = order[(size_t)(i / s->columns)], c = i % s->columns;
        double want = first.product(e, K_DOTS == 2 ? 2 * c : c, own);
        want = want < 0 ? 0 : want;
        want *= K_DOTS == 2 ? other.product(e, 2 * c + 1, own) : 1;
        near(T_load(out[(size_t)(row * s->k * s->columns + i)]), want, i);
    }
}
#endif

void check_subject(const Subject *s) {
    const Matrix first(s, s->columns * K_DOTS), other(s, s->columns * K_DOTS);
    const int64_t rows = OUT ? s->rows * s->k : s->rows, routes = OUT ? s->rows : s->rows * s->k;
    Buffer<T> x((size_t)(rows * s->chunks * F_CHUNK)), scores((size_t)(s->rows * s->experts)),
        out((size_t)(routes * s->columns));
    fill_with(x, rows * s->chunks * F_CHUNK, element);
    fill_with(scores, s->rows * s->experts, element);
    mp_moe_few_args args = {};
    args.from = {scores.data(), nullptr, s->experts, s->k, s->normalize, 0};
    args.x = x.data();
    args.out = out.data();
    args.first = first.m;
    args.other = other.m;
    args.rows = s->rows;
    args.columns = s->columns;
    args.stride = K_DOTS;
    args.apart = K_DOTS - 1;
    args.between = {K_MOE_RELU, K_MOE_APART, 1, 0, 2};
    run_blocks(3, 64, [&] { K_NAME(args); });
    for (int64_t row = 0; row < s->rows; row++) {
#if OUT
        check_row(s, first, scores, x, out, row);
#else
        check_row(s, first, other, scores, x, out, row);
#endif
    }
}

} // namespace

void run_tests() {
    static const Subject subjects[] = {{1, 2, 3, 5, 1, 31, false, false, false, false},
                                       {1, 1, 8, 8, 33, 5, true, false, true, false},
                                       {2, 2, 40, 3, 70, 6, true, false, true, true},
                                       {3, 3, 4, 9, 4, 31, true, true, true, true},
                                       {2, 8, 70, 4, 130, 7, false, false, true, false}};
    for (const Subject &s : subjects) {
        check_subject(&s);
    }
}
