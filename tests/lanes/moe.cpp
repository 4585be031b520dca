/* moe.cpp - routes times their experts' weights by tensor cores: experts without routes, tails of
 * routes, columns and k, fewer and more chunks than a ring has, biases, what comes between, weights
 * of 2, 4 and 8 bits with blocks and zero points, and codes. BY_GROUPS: by products of groups of
 * warps, TILES: in large tiles, SOME: weights as the left operand. PLACE: routes that one block
 * sorts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#if BY_GROUPS
#include "group.h"
#endif

#if PLACE
#include "kernel/quantize/moe_place.cu"
#elif TILES
#include "kernel/quantize/moe_wgmma.cu"
#elif SOME
#include "kernel/quantize/moe_some.cu"
#elif PACKED
#include "kernel/quantize/moe_mma_packed.cu"
#else
#include "kernel/quantize/moe_mma.cu"
#endif
#include "lanes.h"

#include <algorithm>

namespace {

#if TILES
enum { COLUMNS = K_MOE_WGMMA_COLUMNS, LANES = K_MOE_WGMMA_LANES };
#elif !PLACE
enum { COLUMNS = K_MOE_COLUMNS, LANES = SOME ? K_MOE_SOME_LANES : K_MOE_LANES };
#endif

#if PLACE
void check_places(int64_t routes, int64_t experts, int64_t tile) {
    std::vector<k_pair> pairs((size_t)routes), sorted((size_t)routes), want;
    std::vector<int64_t> first((size_t)experts + 1, -1), tiles((size_t)experts + 1, -1);
    for (int64_t i = 0; i < routes; i++) {
        const uint64_t expert = next_random() % (uint64_t)experts;
        pairs[(size_t)i] = {expert % 3 == 1 ? expert - 1 : expert, i}; /* some have no routes */
    }
    want = pairs;
    std::stable_sort(want.begin(), want.end(),
                     [](const k_pair &a, const k_pair &b) { return a.key < b.key; });
    mp_moe_place_args args = {};
    args.pairs = pairs.data();
    args.sorted = sorted.data();
    args.first = first.data();
    args.tiles = tiles.data();
    args.routes = routes;
    args.experts = experts;
    args.tile = tile;
    run_blocks(1, 64, [&] { K_NAME(args); });
    int64_t before = 0, tiles_before = 0;
    for (int64_t e = 0; e <= experts; e++) {
        check(first[(size_t)e] == before, "where an expert's routes begin", e);
        check(tiles[(size_t)e] == tiles_before, "where an expert's tiles begin", e);
        const int64_t own = std::count_if(pairs.begin(), pairs.end(), [&](const k_pair &pair) {
            return pair.key == (uint64_t)e;
        });
        before += own;
        tiles_before += (own + tile - 1) / tile;
    }
    for (size_t i = 0; i < sorted.size(); i++) {
        check(sorted[i].key == want[i].key && sorted[i].index == want[i].index, "a route",
              (int64_t)i);
    }
}
#else

struct Subject {
    int64_t routes, experts, n, k, share;
    int32_t bits, kind;
    int64_t block; /* 0: one scale a column */
    bool has_bias, has_zeros;
    int64_t parts = 1;
};

T element() {
    return T_store(small_number());
}

struct Weights {
    Buffer<T> plain, narrow; /* narrow: the scales of texts that know their type */
    Buffer<uint8_t> packed, zeros;
    Buffer<float> scales, values;
    k_nbits w = {};

    explicit Weights(const Subject *s)
        : plain((size_t)(s->experts * s->n * s->k)), narrow((size_t)(s->experts * s->n * 8)),
          packed((size_t)(s->experts * s->n * s->k * s->bits / 8)),
          zeros((size_t)(s->experts * s->n * 8)), scales((size_t)(s->experts * s->n * 8)),
          values(256) {
        const int64_t columns = s->experts * s->n;
        fill_with(plain, columns * s->k, element);
        fill_with(packed, columns * s->k * s->bits / 8, [] { return (uint8_t)next_random(); });
        fill_with(scales, columns * 8, [] { return (float)(1 + next_random() % 7) / 64; });
        fill_with(zeros, columns * 8, [] { return (uint8_t)(next_random() % 4 * 0x55); });
        fill_with(values, 256, small_number);
        w.weight = K_WEIGHTS == K_NBITS_PLAIN ? (const void *)plain.data() : packed.data();
        for (int64_t i = 0; i < columns * 8; i++) {
            narrow[(size_t)i] = T_store(scales[(size_t)i]);
        }
        w.scale = TILES || SOME ? (const void *)narrow.data() : scales.data();
        w.zero = s->has_zeros ? zeros.data() : nullptr;
        w.values = values.data();
        w.n = s->n;
        w.k = s->k;
        w.block = s->block ? s->block : s->k;
        w.blocks = (s->k + w.block - 1) / w.block;
        w.block_shift = s->block ? __builtin_ctz((unsigned)s->block) : TILES ? 62 : -1;
        w.weight_row = s->k * s->bits / 8;
        w.zero_row = (w.blocks * s->bits + 7) / 8;
        w.side = 1;
        w.side_rows = s->n;
        w.bits = s->bits;
        w.middle = 1 << (s->bits - 1);
        w.zero_packed = 1;
        w.aligned = 1;
        w.scale_type = K_SCALE_F32;
    }

    double at(int64_t column, int64_t k) const {
        const int64_t block = k / w.block;
        if (K_WEIGHTS == K_NBITS_PLAIN) {
            return T_load(plain[(size_t)(column * w.k + k)]);
        }
        const uint32_t mask = (1u << w.bits) - 1;
        const int64_t bit = k * w.bits, zero = block * w.bits;
        const uint32_t q = packed[(size_t)(column * w.weight_row + bit / 8)] >> bit % 8 & mask;
        const double base =
            w.zero ? zeros[(size_t)(column * w.zero_row + zero / 8)] >> zero % 8 & mask : w.middle;
        const double meant = K_WEIGHTS == K_NBITS_CODE ? values[q] : q - base;
        return T_load(T_store((float)(meant * scales[(size_t)(column * w.blocks + block)])));
    }
};

double between(int32_t kind, double x, double beside) {
    switch (kind) {
    case K_MOE_RELU:
        return x < 0 ? 0 : x;
    case K_MOE_GELU:
        return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
    case K_MOE_SILU:
        return x / (1 + exp(-x));
    case K_MOE_SWIGLU:
        x = std::min(x, 2.0);
        beside = std::max(-2.0, std::min(beside, 2.0));
        return x / (1 + exp(-1.5 * x)) * (beside + 0.5);
    default:
        return x;
    }
}

void check_products(const Subject *s) {
    const Weights weights(s);
    const int64_t rows = (s->routes + s->share - 1) / s->share, halves = s->kind == K_MOE_SWIGLU;
    Buffer<T> a((size_t)(rows * s->k)), bias((size_t)(s->experts * s->n)),
        out((size_t)(s->routes * (s->n >> halves)));
    Buffer<float> sums((size_t)(s->parts * s->routes * s->n));
    std::vector<k_pair> sorted((size_t)s->routes);
    std::vector<int64_t> first, tiles;
    fill_with(a, rows * s->k, element);
    fill_with(bias, s->experts * s->n, element);
    fill_with(out, s->routes * (s->n >> halves), [] { return T_store(77); });
    for (int64_t i = 0; i < s->routes; i++) { /* of the second expert none; most of the last */
        const uint64_t chance = next_random() % (uint64_t)(2 * s->experts);
        const uint64_t expert = std::min(chance, (uint64_t)s->experts - 1);
        sorted[(size_t)i] = {expert == 1 ? 0 : expert, i};
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const k_pair &x, const k_pair &y) { return x.key < y.key; });
    int64_t before = 0;
    for (int64_t e = 0; e <= s->experts; e++) {
        const int64_t at =
            std::find_if(sorted.begin(), sorted.end(),
                         [&](const k_pair &pair) { return pair.key >= (uint64_t)e; }) -
            sorted.begin();
        if (e > 0) {
            before += (at - first.back() + K_ROWS - 1) / K_ROWS;
        }
        first.push_back(at);
        tiles.push_back(before);
    }
    mp_moe_product_args args = {};
    args.a = a.data();
    args.bias = s->has_bias ? bias.data() : nullptr;
    args.sorted = sorted.data();
    args.first = first.data();
    args.tiles = tiles.data();
    args.out = s->parts > 1 ? (void *)sums.data() : out.data();
    args.parts = s->parts;
    args.routes = s->routes;
    args.share = s->share;
    args.experts = s->experts;
    args.tiles_max = (s->routes + K_ROWS - 1) / K_ROWS + s->experts;
    args.tiles_across = (s->n + COLUMNS - 1) / COLUMNS;
    args.w = weights.w;
    args.between = {s->kind, s->kind == K_MOE_SWIGLU ? K_MOE_PAIRS : K_MOE_APART, 1.5F, 0.5F, 2};
    args.even = 1;
    run_blocks(3, LANES, [&] { K_NAME(args); });
    for (int64_t i = 0; s->parts > 1 && i < s->routes * s->n; i++) { /* as moe_combine.cu does */
        float sum = 0;
        for (int64_t part = 0; part < s->parts; part++) {
            sum += sums[(size_t)(part * s->routes * s->n + i)];
        }
        out[(size_t)i] = T_store(sum);
    }
    for (const k_pair &pair : sorted) {
        for (int64_t column = 0; column < s->n; column += 2) {
            double sum[2] = {0, 0}, size = 0;
            for (int64_t c = 0; c < 2; c++) {
                const int64_t at = (int64_t)pair.key * s->n + column + c;
                for (int64_t k = 0; k < s->k; k++) {
                    const double term =
                        T_load(a[(size_t)(pair.index / s->share * s->k + k)]) * weights.at(at, k);
                    sum[c] += term;
                    size += fabs(term);
                }
                sum[c] += s->has_bias ? T_load(bias[(size_t)at]) : 0;
            }
            for (int64_t c = 0; c < 2 >> halves; c++) {
                const double want = between(s->kind, sum[c], sum[1]);
                const int64_t at = (pair.index * s->n + column + c) >> halves;
                const double step = sizeof(T) == 4                  ? 0x1p-22
                                    : std::is_same<T, k_f16>::value ? 0x1p-10
                                                                    : 0x1p-8;
                const double off = fabs(T_load(out[(size_t)at]) - want);
                check(off <= size * 4e-6 + (1e-2 + fabs(want)) * step, "a result", at);
            }
        }
    }
}
#endif

} // namespace

void run_tests() {
#if PLACE
    check_places(1, 1, 4);
    check_places(7, 5, 2);
    check_places(300, 9, 32);
    check_places(1000, 3, 128);
#else
    static const Subject subjects[] = {
#if TILES
        {K_ROWS, 3, COLUMNS, 128, 1, 4, K_MOE_IDENTITY, 0, false, false},
        {K_ROWS + 5, 3, COLUMNS + 8, 128, 2, 4, K_MOE_RELU, 0, true, true},
        {2 * K_ROWS, 4, 40, 256, 2, 8, K_MOE_GELU, 32, true, true},
        {19, 2, 2 * COLUMNS, 448, 4, 8, K_MOE_SWIGLU, 64, true, false},
        {9, 2, 24, 512, 1, 4, K_MOE_SWIGLU, 128, false, true},
        {3 * K_ROWS, 2, COLUMNS + 56, 192, 1, 8, K_MOE_SILU, 64, false, true},
#elif SOME
        {K_ROWS, 3, K_MOE_COLUMNS, 32, 1, 4, K_MOE_IDENTITY, 0, false, false},
        {K_ROWS + 5, 3, K_MOE_COLUMNS + 6, 224, 2, 4, K_MOE_RELU, 0, true, true},
        {2 * K_ROWS, 4, 34, 192, 2, 8, K_MOE_GELU, 32, true, true},
        {19, 2, 2 * K_MOE_COLUMNS, 1056, 4, 8, K_MOE_SWIGLU, 0, true, false},
        {9, 2, 30, 544, 1, 4, K_MOE_SWIGLU, 64, false, true},
        {11, 2, 70, 480, 1, 8, K_MOE_IDENTITY, 256, false, true, 2},
        {K_ROWS + 1, 2, 24, 736, 1, 4, K_MOE_IDENTITY, 0, false, true, 4},
#else
        {K_ROWS, 3, K_MOE_COLUMNS, 8, 1, 4, K_MOE_IDENTITY, 0, false, false},
        {K_ROWS + 5, 3, K_MOE_COLUMNS + 6, 72, 2, 4, K_MOE_RELU, 0, true, true},
        {2 * K_ROWS, 4, 34, 200, 2, 8, K_MOE_GELU, 32, true, true},
        {21, 3, 66, 64, 1, 2, K_MOE_SILU, 16, false, true},
        {19, 2, 2 * K_MOE_COLUMNS, 328, 4, 8, K_MOE_SWIGLU, 0, true, false},
        {9, 2, 30, 520, 1, 4, K_MOE_SWIGLU, 64, false, true},
        {11, 2, 70, 456, 1, 8, K_MOE_IDENTITY, 32, false, true, 2},
        {K_ROWS + 1, 2, 24, 712, 1, 4, K_MOE_IDENTITY, 0, false, true, 4},
#endif
    };
    for (Subject each : subjects) {
#if defined(K_BITS)
        each.bits = K_BITS;
#endif
        check_products(&each);
    }
#endif
}
