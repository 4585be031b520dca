/* matmul_pair.cpp - two products with an activation between them by blocks alone and by those of a
 * cluster: tails of rows and of all columns, several parts between, a block of a cluster without
 * any column, what may be left out, and what must not spread from a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "divider.h"
#include "lanes.h"

#include "kernel/linear/matmul_pair.cu"

extern "C" {
#include "op/linear/matmul_pair_cut.h"
}

namespace {

struct Subject {
    int32_t rows, from, inner, to, splits_log, activation;
    bool has_biases, has_residual, has_scale;
};

T number() {
    return T_store((float)((int)(next_random() % 65) - 32) / 64);
}

Buffer<T> numbers(int64_t count) {
    Buffer<T> made((size_t)count);
    fill_with(made, count, number);
    return made;
}

double activated(int32_t activation, double x) {
    switch (activation) {
    case K_ACTIVATE_RELU:
        return x < 0 ? 0 : x;
    case K_ACTIVATE_SIGMOID:
        return 1 / (1 + exp(-x));
    case K_ACTIVATE_GELU:
        return x * 0.5 * (1 + erf(x * sqrt(0.5)));
    case K_ACTIVATE_HARD_SWISH:
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    default:
        return x;
    }
}

void check_pair(const Subject &s) {
    Buffer<T> x = numbers((int64_t)s.rows * s.from), w1 = numbers((int64_t)s.inner * s.from);
    Buffer<T> b1 = numbers(s.inner), w2 = numbers((int64_t)s.to * s.inner), b2 = numbers(s.to);
    Buffer<T> scale = numbers(s.to), residual = numbers((int64_t)s.rows * s.to);
    Buffer<T> out = numbers((int64_t)s.rows * s.to);
    const mp_pair_size size = {s.rows, s.from, s.inner, s.to, (int32_t)sizeof(T), 0};
    mp_pair_args args = {};
    const mp_pair_tile tile = {K_ROWS, s.splits_log, s.has_scale ? 64 : K_PAIR_INNER_MAX};
    const int64_t held = mp_pair_lay_out(&size, tile, &args);
    check(held <= 227 << 10, "shared memory", held);
    x[(size_t)s.from] = T_store(INFINITY); /* of row 1 alone */
    args.x = x.data();
    args.w1 = w1.data();
    args.b1 = s.has_biases ? b1.data() : nullptr;
    args.w2 = w2.data();
    args.b2 = s.has_biases ? b2.data() : nullptr;
    args.scale = s.has_scale ? scale.data() : nullptr;
    args.residual = s.has_residual ? residual.data() : nullptr;
    args.out = out.data();
    args.rows = s.rows;
    args.from = s.from;
    args.inner = s.inner;
    args.to = s.to;
    args.constant = s.has_scale;
    args.activation = s.activation;
    args.by_units = divider((uint32_t)(s.to / K_PAIR_UNIT));
    const int32_t tiles = (s.rows - 1) / K_ROWS + 1;
    run_blocks((unsigned)tiles << s.splits_log, K_PAIR_LANES, [&] { K_NAME(args); },
               1u << s.splits_log);
    const double step = sizeof(T) == 4                  ? 0x1p-11 /* what is between, as TF32 */
                        : std::is_same<T, k_f16>::value ? 0x1p-10
                                                        : 0x1p-7;
    std::vector<double> between((size_t)s.inner);
    for (int32_t r = 0; r < s.rows; r++) {
        for (int32_t h = 0; h < s.inner; h++) {
            double sum = s.has_biases ? (double)T_load(b1[(size_t)h]) : 0;
            for (int32_t k = 0; k < s.from; k++) {
                sum += (double)T_load(x[(size_t)(r * s.from + k)]) *
                       T_load(w1[(size_t)(h * s.from + k)]);
            }
            between[(size_t)h] = activated(s.activation, sum);
        }
        for (int32_t n = 0; n < s.to; n++) {
            const int64_t at = (int64_t)r * s.to + n;
            double sum = s.has_biases ? (double)T_load(b2[(size_t)n]) : 0, terms = 1;
            for (int32_t h = 0; h < s.inner; h++) {
                const double term = between[(size_t)h] * T_load(w2[(size_t)(n * s.inner + h)]);
                sum += term;
                terms += fabs(term);
            }
            sum *= s.has_scale ? (double)T_load(scale[(size_t)n]) : 1;
            sum += s.has_residual ? (double)T_load(residual[(size_t)at]) : 0;
            const double got = T_load(out[(size_t)at]);
            check(std::isfinite(sum) ? fabs(got - sum) <= terms * step : !std::isfinite(got),
                  "a result", at);
        }
    }
}

} // namespace

void run_tests() {
    const Subject subjects[] = {
        {K_ROWS + 5, 48, 104, 40, 0, K_ACTIVATE_GELU, true, true, true},
        {17, 24, 200, 8, 0, K_ACTIVATE_HARD_SWISH, false, false, false},
        {K_ROWS - 1, 64, 72, K_PAIR_OUTER_MAX(K_ROWS), 1, K_ACTIVATE_RELU, true, true, false},
        {9, 136, 48, 72, 2, K_ACTIVATE_SIGMOID, true, false, true},
    };
    for (const Subject &each : subjects) {
        check_pair(each);
    }
}
