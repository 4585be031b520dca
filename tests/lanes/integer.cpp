/* integer.cpp - products of bytes by 256 lanes, without tensor cores: tails, signs, zero points,
 * and rows that are read by words or not; of windows (K_CONV) strides, dilations and borders.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/integer_product.cu"
#include "lanes.h"

#include "divider.h"

static int32_t value_of(bool is_unsigned, uint8_t byte) {
    return is_unsigned ? byte : (int8_t)byte;
}

static void fill(uint8_t *bytes, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)next_random();
    }
}

/* One matrix of m x n, whose sums are wanted. */
static mp_integer_args args_of(const void *a, const void *b, void *out, int64_t m, int64_t n,
                               int64_t k, const bool is_unsigned[2]) {
    mp_integer_args args = {};
    args.a = a;
    args.b = b;
    args.out = out;
    args.m = m;
    args.n = n;
    args.k = k;
    args.kind = K_INTEGER_I32;
    args.tiles_down = (m + K_TILE - 1) / K_TILE;
    args.tiles_across = (n + K_TILE - 1) / K_TILE;
    args.tiles = args.tiles_down * args.tiles_across;
    args.batch.rank = 1;
    args.batch.wide = 1;
    args.batch.dim[0] = 1;
    for (int side = 0; side < 2; side++) {
        args.side[side].flip = is_unsigned[side] ? 0x80808080U : 0;
    }
    return args;
}

#if K_CONV

typedef struct windows {
    int64_t m, channels;
    int32_t in[3], kernel[3], stride[3], dilation[3], pad[3];
    bool is_unsigned[2], has_zeros;
} windows;

/* What the window number `column` sees at row k; the zero point beyond the image. */
static int32_t seen(const windows *x, const mp_integer_args *args, const uint8_t *image, int64_t k,
                    int64_t column, int32_t zero) {
    int64_t at = 0, size = 1;
    bool inside = true;
    for (int d = 2; d >= 0; d--) {
        const int64_t place = column % args->window.out[d] * x->stride[d] - x->pad[d] +
                              k % x->kernel[d] * x->dilation[d];
        column /= args->window.out[d];
        k /= x->kernel[d];
        inside = inside && place >= 0 && place < x->in[d];
        at += place * size;
        size *= x->in[d];
    }
    return inside ? value_of(x->is_unsigned[1], image[k * size + at]) : zero;
}

static void check_windows(const windows *x) {
    mp_integer_args args = {};
    int64_t n = 1, k = x->channels;
    args.window.channels = x->channels;
    args.window.channel = 1;
    for (int d = 0; d < 3; d++) {
        const int32_t reach = (x->kernel[d] - 1) * x->dilation[d] + 1;
        args.window.in[d] = x->in[d];
        args.window.kernel[d] = x->kernel[d];
        args.window.out[d] = (x->in[d] + 2 * x->pad[d] - reach) / x->stride[d] + 1;
        args.window.stride[d] = x->stride[d];
        args.window.dilation[d] = x->dilation[d];
        args.window.pad[d] = x->pad[d];
        args.window.by_kernel[d] = divider((uint32_t)x->kernel[d]);
        args.window.by_out[d] = divider((uint32_t)args.window.out[d]);
        args.window.channel *= x->in[d];
        n *= args.window.out[d];
        k *= x->kernel[d];
    }
    Buffer<uint8_t> a((size_t)(x->m * k)), b((size_t)(x->channels * args.window.channel)), zero(2);
    std::vector<int32_t> out((size_t)(x->m * n));
    fill(a.data(), x->m * k);
    fill(b.data(), x->channels * args.window.channel);
    fill(zero.data(), 2);
    const k_integer_window window = args.window;
    args = args_of(a.data(), b.data(), out.data(), x->m, n, k, x->is_unsigned);
    args.window = window;
    int32_t zeros[2] = {0, 0};
    for (int side = 0; side < 2 && x->has_zeros; side++) {
        args.side[side].zero = zero.data() + side;
        zeros[side] = value_of(x->is_unsigned[side], zero[side]);
    }
    run_blocks(2, K_INTEGER_LANES, [&] { integer_product(args); });
    for (int64_t i = 0; i < x->m * n; i++) {
        int32_t sum = 0;
        for (int64_t e = 0; e < k; e++) {
            sum += (value_of(x->is_unsigned[0], a[i / n * k + e]) - zeros[0]) *
                   (seen(x, &args, b.data(), e, i % n, zeros[1]) - zeros[1]);
        }
        check(out[i] == sum, "a sum", i);
    }
}

void run_tests() {
    static const windows all[] = {
        {33, 5, {1, 9, 11}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {false, true}, true},
        {64, 20, {1, 1, 130}, {1, 1, 3}, {1, 1, 2}, {1, 1, 3}, {0, 0, 4}, {false, false}, true},
        {7, 2, {5, 6, 7}, {2, 3, 2}, {1, 2, 1}, {2, 1, 1}, {1, 0, 1}, {true, true}, false},
        {70, 64, {1, 1, 70}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {true, false}, true},
    };
    for (const windows &each : all) {
        check_windows(&each);
    }
}

#else

typedef struct product {
    int64_t m, n, k;
    size_t skew;
    bool is_unsigned[2], has_zeros;
} product;

static int32_t words_of(const product *x, int64_t row) {
    return x->skew != 0 ? 0 : row % 16 == 0 ? 4 : row % 4 == 0 ? 1 : 0;
}

static void check_product(const product *x) {
    Buffer<uint8_t> a((size_t)(x->m * x->k), x->skew), b((size_t)(x->k * x->n), x->skew);
    Buffer<uint8_t> zero[2] = {Buffer<uint8_t>((size_t)x->m), Buffer<uint8_t>((size_t)x->n)};
    std::vector<int32_t> out((size_t)(x->m * x->n));
    fill(a.data(), x->m * x->k);
    fill(b.data(), x->k * x->n);
    fill(zero[0].data(), x->m);
    fill(zero[1].data(), x->n);
    mp_integer_args args =
        args_of(a.data(), b.data(), out.data(), x->m, x->n, x->k, x->is_unsigned);
    for (int side = 0; side < 2; side++) {
        args.side[side].words = words_of(x, side == 0 ? x->k : x->n);
        args.side[side].zero = x->has_zeros ? zero[side].data() : nullptr;
        args.side[side].zero_step = 1;
    }
    run_blocks(2, K_INTEGER_LANES, [&] { integer_product(args); });
    for (int64_t i = 0; i < x->m * x->n; i++) {
        const int64_t row = i / x->n, column = i % x->n;
        const int32_t row_zero = x->has_zeros ? value_of(x->is_unsigned[0], zero[0][row]) : 0;
        const int32_t column_zero = x->has_zeros ? value_of(x->is_unsigned[1], zero[1][column]) : 0;
        int32_t sum = 0;
        for (int64_t k = 0; k < x->k; k++) {
            sum += (value_of(x->is_unsigned[0], a[row * x->k + k]) - row_zero) *
                   (value_of(x->is_unsigned[1], b[k * x->n + column]) - column_zero);
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

#endif
