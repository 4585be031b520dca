/* integer.cpp - products of bytes by 256 lanes, without tensor cores: tails, signs, zero points,
 * and rows that are read by words or not. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/integer_product.cu"
#include "lanes.h"

typedef struct product {
    int64_t m, n, k;
    size_t skew;
    bool is_unsigned[2], has_zeros;
} product;

static int32_t value_of(const product *x, int side, uint8_t byte) {
    return x->is_unsigned[side] ? byte : (int8_t)byte;
}

static void fill(uint8_t *bytes, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)next_random();
    }
}

static int32_t words_of(const product *x, int64_t row) {
    return x->skew != 0 ? 0 : row % 16 == 0 ? 4 : row % 4 == 0 ? 1 : 0;
}

static void check_product(const product *x) {
    Buffer<uint8_t> a((size_t)(x->m * x->k), x->skew), b((size_t)(x->k * x->n), x->skew);
    Buffer<uint8_t> zero[2] = {Buffer<uint8_t>((size_t)x->m), Buffer<uint8_t>((size_t)x->n)};
    std::vector<int32_t> out((size_t)(x->m * x->n));
    mp_integer_args args = {};
    fill(a.data(), x->m * x->k);
    fill(b.data(), x->k * x->n);
    fill(zero[0].data(), x->m);
    fill(zero[1].data(), x->n);
    args.a = a.data();
    args.b = b.data();
    args.out = out.data();
    args.m = x->m;
    args.n = x->n;
    args.k = x->k;
    args.kind = K_INTEGER_I32;
    args.tiles_down = (x->m + K_TILE - 1) / K_TILE;
    args.tiles_across = (x->n + K_TILE - 1) / K_TILE;
    args.tiles = args.tiles_down * args.tiles_across;
    args.batch.rank = 1;
    args.batch.wide = 1;
    args.batch.dim[0] = 1;
    for (int side = 0; side < 2; side++) {
        args.side[side].words = words_of(x, side == 0 ? x->k : x->n);
        args.side[side].flip = x->is_unsigned[side] ? 0x80808080U : 0;
        args.side[side].zero = x->has_zeros ? zero[side].data() : nullptr;
        args.side[side].zero_step = 1;
    }
    run_blocks(2, K_INTEGER_LANES, [&] { integer_product(args); });
    for (int64_t i = 0; i < x->m * x->n; i++) {
        const int64_t row = i / x->n, column = i % x->n;
        const int32_t row_zero = x->has_zeros ? value_of(x, 0, zero[0][row]) : 0;
        const int32_t column_zero = x->has_zeros ? value_of(x, 1, zero[1][column]) : 0;
        int32_t sum = 0;
        for (int64_t k = 0; k < x->k; k++) {
            sum += (value_of(x, 0, a[row * x->k + k]) - row_zero) *
                   (value_of(x, 1, b[k * x->n + column]) - column_zero);
        }
        check(out[i] == sum, "a sum", i);
    }
}

void run_tests() {
    static const product products[] = {
        {64, 64, 64, 0, {false, false}, false}, {33, 37, 129, 0, {true, false}, true},
        {70, 66, 80, 0, {true, true}, true},    {5, 6, 64, 0, {true, false}, true},
        {65, 67, 65, 1, {true, true}, true},    {64, 68, 68, 0, {false, true}, true},
        {3, 8, 0, 0, {true, true}, true},       {100, 32, 208, 0, {true, true}, false},
    };
    for (const product &each : products) {
        check_product(&each);
    }
}
