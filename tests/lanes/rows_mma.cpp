/* rows_mma.cpp - tiles of rows times a matrix by tensor cores, of warps or of groups of them: tails
 * of rows, columns and k, more chunks than a ring has, a matrix stored turned, what follows, and
 * blocks of a cluster. What lies behind rows is NaN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "lanes.h"

#if BY_GROUPS
#include "group.h"

#if BY_TILES
#include "kernel/linear/tile_wgmma.cu"
enum { R_LANES = W_LANES };
#else
#include "kernel/linear/rows_wgmma.cu"
#endif
#else
#include "kernel/linear/rows_mma.cu"
#endif

namespace {

struct Subject {
    int32_t m, n, chunks; /* the last of 64 bytes along k; for groups and odd m a piece more */
    int32_t splits_log, activation;
    bool has_bias, has_d;
};

T number() {
    return T_store((float)((int)(next_random() % 65) - 32) / 32);
}

/* Rows of `columns` with `pitch` elements from one to the next, NaN between them. */
void fill(Buffer<T> &to, int64_t rows, int64_t columns, int64_t pitch) {
    for (int64_t i = 0; i < rows * pitch; i++) {
        to[(size_t)i] = i % pitch < columns ? number() : T_store(NAN);
    }
}

double activated(int32_t activation, double x) {
    switch (activation) {
    case K_ACTIVATE_RELU:
        return x < 0 ? 0 : x;
    case K_ACTIVATE_GELU:
        return x * 0.5 * (1 + erf(x * sqrt(0.5)));
    case K_ACTIVATE_GELU_TANH:
        return x * 0.5 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case K_ACTIVATE_SWISH:
        return x / (1 + exp(-1.702F * x));
    default:
        return x;
    }
}

void check_product(const Subject *s) {
    const int64_t pack = 16 / (int64_t)sizeof(T);
    const int64_t k = (int64_t)s->chunks * 4 * pack + (BY_GROUPS ? s->m % 2 * pack : 0);
    const int64_t lda = k + pack, ldc = s->n + pack;
    const int64_t lines = K_TURNED ? s->n : k, length = K_TURNED ? k : s->n, ldb = length + pack;
    Buffer<T> a((size_t)(s->m * lda)), b((size_t)(lines * ldb)), bias((size_t)s->n),
        d((size_t)(s->m * ldc)), out((size_t)(s->m * ldc));
    fill(a, s->m, k, lda);
    fill(b, lines, length, ldb);
    fill(bias, 1, s->n, s->n);
    fill(d, s->m, s->n, ldc);
    for (int64_t i = 0; i < s->m * ldc; i++) {
        out[(size_t)i] = T_store(77);
    }
    mp_rows_mma_args args = {};
    args.a = a.data();
    args.b = b.data();
    args.bias = s->has_bias ? bias.data() : nullptr;
    args.d = s->has_d ? d.data() : nullptr;
    args.out = out.data();
    args.lda = lda;
    args.ldb = ldb;
    args.ldc = ldc;
    args.m = s->m;
    args.n = s->n;
    args.k_bytes = (int32_t)(k * (int64_t)sizeof(T));
    args.row_tiles = (s->m + K_ROWS - 1) / K_ROWS;
    args.splits_log = s->splits_log;
    args.constant = s->n % 16 == 0;
    args.activation = s->activation;
    args.alpha = 0.5F;
    args.beta = 2;
    args.activation_alpha = 1.702F;
    const int32_t tiles = args.row_tiles * ((s->n + K_COLUMNS - 1) / K_COLUMNS);
    run_blocks((unsigned)tiles << s->splits_log, R_LANES, [&] { K_NAME(args); },
               1u << s->splits_log);
    for (int64_t i = 0; i < s->m * ldc; i++) {
        const int64_t row = i / ldc, column = i % ldc;
        if (column >= s->n) {
            check(T_load(out[(size_t)i]) == 77, "what lies behind a row", i);
            continue;
        }
        double sum = 0, size = 0;
        for (int64_t j = 0; j < k; j++) {
            const double term = (double)T_load(a[(size_t)(row * lda + j)]) *
                                T_load(b[(size_t)(K_TURNED ? column * ldb + j : j * ldb + column)]);
            sum += term;
            size += fabs(term);
        }
        sum = sum * 0.5 + (s->has_bias ? T_load(bias[(size_t)column]) : 0) +
              (s->has_d ? 2 * T_load(d[(size_t)i]) : 0);
        const double want = activated(s->activation, sum),
                     off = fabs(T_load(out[(size_t)i]) - want);
        const double step = sizeof(T) == 4                  ? 0x1p-22
                            : std::is_same<T, k_f16>::value ? 0x1p-10
                                                            : 0x1p-8;
        check(off <= size * 1e-6 + (1e-2 + fabs(want)) * step, "a result", i);
    }
}

} // namespace

void run_tests() {
    static const Subject subjects[] = {
        {K_ROWS, K_COLUMNS, 8, 0, K_ACTIVATE_NONE, false, false},
        {K_ROWS + 9, K_COLUMNS + 8, 3, 0, K_ACTIVATE_GELU, true, false},
        {9, 8, 1, 0, K_ACTIVATE_RELU, true, true},
#if BY_TILES /* lanes are many */
        {70, K_COLUMNS, 17, 0, K_ACTIVATE_NONE, false, true},
        {K_ROWS + 1, 24, 9, 0, K_ACTIVATE_GELU_TANH, true, true},
        {12, K_COLUMNS - 8, 15, 0, K_ACTIVATE_SWISH, true, false},
#else
        {K_ROWS - 3, 2 * K_COLUMNS, 37, 0, K_ACTIVATE_NONE, false, true},
        {K_ROWS + 1, K_COLUMNS + 24, 9, 1, K_ACTIVATE_GELU_TANH, true, true},
        {12, K_COLUMNS - 8, 33, 2, K_ACTIVATE_SWISH, true, false},
#endif
    };
    for (const Subject &each : subjects) {
        check_product(&each);
    }
}
