/* rows.cpp - few rows times a matrix by 256 lanes: depths of one round of loads and of several,
 * lanes beside the matrix, slabs that a block makes one after the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/few_rows.cu"
#include "lanes.h"

typedef struct product {
    int m, k, n, across;
    unsigned blocks;
} product;

static float number() {
    return (float)(int)(next_random() % 17) - 8; /* sums of products are exact */
}

static void check_product(const product *x) {
    Buffer<float> a((size_t)(x->m * x->k)), b((size_t)(x->k * x->n)), bias((size_t)x->n);
    Buffer<float> out((size_t)(x->m * x->n));
    for (int i = 0; i < x->m * x->k; i++) {
        a[(size_t)i] = number();
    }
    for (int i = 0; i < x->k * x->n; i++) {
        b[(size_t)i] = number();
    }
    for (int i = 0; i < x->n; i++) {
        bias[(size_t)i] = number();
    }
    mp_few_rows_args args = {};
    args.a = a.data();
    args.b = b.data();
    args.bias = bias.data();
    args.out = out.data();
    args.m = x->m;
    args.k = x->k;
    args.n = x->n;
    args.across = x->across;
    args.constant = 1;
    args.alpha = 1;
    run_blocks(x->blocks, K_FEW_ROWS_LANES, [&] { few_rows(args); });
    for (int i = 0; i < x->m * x->n; i++) {
        const int row = i / x->n, column = i % x->n;
        float sum = bias[(size_t)column];
        for (int k = 0; k < x->k; k++) {
            sum += a[(size_t)(row * x->k + k)] * b[(size_t)(k * x->n + column)];
        }
        check(out[(size_t)i] == sum, "a sum", i);
    }
}

void run_tests() {
    static const product products[] = {
        {K_ROWS, 32, 256, 1, 64}, {K_ROWS, 515, 264, 4, 3}, {1, 2100, 36, 1, 4},
        {1, 1029, 100, 8, 2},     {1, 1500, 64, 2, 8},
    };
    for (const product &each : products) {
        check_product(&each);
    }
}
