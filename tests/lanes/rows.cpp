/* rows.cpp - few rows times a matrix, by tensor cores (MATRIX) or not, as it is stored or turned:
 * depths of one round of loads and of several, tails of columns, lanes beside the matrix, strips
 * that a block makes one after the other, clusters that share a strip, rows that the kernel makes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cluster.h"

#if MATRIX
#include "matrix.h"

#include "kernel/linear/few_rows_mma.cu"
#else
#include "kernel/linear/few_rows.cu"
#endif
#include "lanes.h"

namespace {
struct Product {
    int m, k, n, across, split;
    unsigned blocks; /* 0: one for each strip, or a cluster */
};

T number() {
    return T_store((float)(int)(next_random() % 17) - 8); /* sums of products are exact */
}

unsigned blocks_of(const Product *x) {
#if MATRIX
    const int columns = M_COLUMNS;
#else
    const int columns = x->across * F_COLUMNS;
#endif
    return x->blocks != 0 ? x->blocks : (unsigned)((x->n + columns - 1) / columns) << x->split;
}

/* What is multiplied: a itself, or what is made of it. */
double made_of(const Product *x, T *a, T *by, int row, int k) {
    double squares = 0;
    switch (K_BEFORE) {
    case K_BEFORE_GATE:
        return T_load(g_gated(K_GATE_SWISH, 1, a[k], a[x->k + k]));
    case K_BEFORE_NORM:
        for (int i = 0; i < x->k; i++) {
            squares += (double)T_load(a[i]) * T_load(a[i]);
        }
        return T_load(
            T_store((float)(T_load(a[k]) / sqrt(squares / x->k + 1e-5) * (double)T_load(by[k]))));
    default:
        return T_load(a[row * x->k + k]);
    }
}
} // namespace

static void check_product(const Product *x) {
    Buffer<T> a((size_t)(x->m * x->k * 2)), b((size_t)(x->k * x->n)), bias((size_t)x->n);
    Buffer<T> d((size_t)(x->m * x->n)), out((size_t)(x->m * x->n)), by((size_t)x->k);
    Buffer<T> sum((size_t)x->k);
    for (int i = 0; i < x->m * x->k * 2; i++) {
        a[(size_t)i] = number();
    }
    for (int i = 0; i < x->k * x->n; i++) {
        b[(size_t)i] = number();
    }
    for (int i = 0; i < x->m * x->n; i++) {
        d[(size_t)i] = number();
        out[(size_t)i] = T_store(-12345);
    }
    for (int i = 0; i < x->n; i++) {
        bias[(size_t)i] = number();
    }
    for (int i = 0; i < x->k; i++) {
        by[(size_t)i] = number();
    }
    mp_few_rows_args args = {};
    args.a = a.data();
    args.b = b.data();
    args.bias = x->k % 64 == 0 ? bias.data() : nullptr;
    args.d = x->n % 3 != 0 ? d.data() : nullptr;
    args.out = out.data();
    args.m = x->m;
    args.k = x->k;
    args.n = x->n;
    args.across = x->across;
    args.split = x->split;
    args.constant = x->m % 2;
    args.alpha = 0.5F;
    args.beta = 2;
    args.before.x = a.data();
    args.before.scale = by.data();
    args.before.sum = sum.data();
    args.before.columns = x->k;
    args.before.epsilon = 1e-5F;
    args.before.gate = K_GATE_SWISH;
    args.before.alpha = 1;
    run_blocks(
        blocks_of(x), K_FEW_ROWS_LANES, [&] { K_NAME(args); }, 1U << x->split);
    std::vector<double> made((size_t)(x->m * x->k));
    for (int i = 0; i < x->m * x->k; i++) {
        made[(size_t)i] = made_of(x, a.data(), by.data(), i / x->k, i % x->k);
    }
    for (int i = 0; i < x->m * x->n; i++) {
        const int row = i / x->n, column = i % x->n;
        double want = 0, size = 0;
        for (int k = 0; k < x->k; k++) {
            const double term =
                made[(size_t)(row * x->k + k)] *
                T_load(b[(size_t)(K_TURNED ? column * x->k + k : k * x->n + column)]);
            want += term / 2;
            size += fabs(term);
        }
        want += args.d != nullptr ? 2 * (double)T_load(d[(size_t)i]) : 0;
        want += args.bias != nullptr ? (double)T_load(bias[(size_t)column]) : 0;
        /* A row that is made may be off by a rounding; a rounding of the result. */
        const double step = sizeof(T) == 4                  ? 0x1p-23
                            : std::is_same<T, k_f16>::value ? 0x1p-11
                                                            : 0x1p-8;
        check(fabs(T_load(out[(size_t)i]) - want) <=
                  (K_BEFORE != 0 ? size * step / 64 : 0) + fabs(want) * step,
              "a sum", i);
    }
}

void run_tests() {
    static const Product products[] = {
#if MATRIX && K_BEFORE != 0
        {1, 96, 72, 1, 0, 0},
        {1, 608, 72, 1, K_BEFORE == K_BEFORE_GATE, 0}, /* a block's sum has one place here */
#elif MATRIX
        {K_ROWS, 32, 64, 1, 0, 0},
        {1, 64, 72, 1, 0, 0},
        {K_ROWS - 1, 1120, 72, 1, 0, 0},
        {3, 608, 88, 1, 1, 0},
        {K_ROWS - 2, 1184, 8, 1, 1, 0},
        {1, 192, 40, 1, 2, 0},
#elif K_TURNED
        {K_ROWS, 36, 20, 1, 0, 0},
        {1, 2052, 9, 1, 0, 1},
        {K_ROWS, 1024, 17, 1, 1, 0},
        {1, 3000, 8, 1, 1, 0},
#else
        {K_ROWS, 32, 64, 1, 0, 16},
        {K_ROWS, 515, 72, 4, 0, 3},
        {1, 2100, 40, 1, 0, 4},
        {1, 1029, 72, 8, 0, 2},
        {1, 1500, 24, 2, 0, 3},
        {K_ROWS, 1000, 72, 8, 1, 0},
        {1, 2000, 40, 4, 2, 0},
#endif
    };
    for (const Product &each : products) {
        check_product(&each);
    }
}
