/* nbits.cpp - rows times packed weights, also codes, by tensor cores, by those with blocks that
 * stay (STREAM), by tiles of more rows (TILE), or without tensor cores (FEW): tails of rows,
 * columns, chunks and stages, more of them than a lane or a warp has at once, blocks and zero
 * points of any pitch, rows that the kernel makes itself, halves of which one gates the other,
 * blocks of a cluster. SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#if TILE
#include "cluster.h"

#include "divider.h"
#include "kernel/quantize/nbits_tile.cu"

extern "C" void nbits_split(const mp_nbits_split_args args);
#elif FEW
#include "kernel/quantize/nbits_few.cu"
#elif STREAM
#include "kernel/quantize/nbits_stream.cu"
#else
#include "kernel/quantize/nbits_mma.cu"
#endif
#include "lanes.h"

namespace {
enum { MIDDLE = 1 << (K_BITS - 1), MASK = (1 << K_BITS) - 1 };

struct Subject {
    int64_t m, k, n, block;
    bool has_zeros, has_bias;
    bool gated;         /* STREAM, TILE: the result's left half times its right one */
    int32_t splits_log; /* TILE */
    bool is_infinite;   /* one element of the first row is, and of the second one no number */
    bool is_rough;      /* TILE: two parts of a float are enough */
};

struct Launch {
    unsigned blocks, lanes, together; /* together: blocks of a cluster */
};

/* Of floats all bits count. */
float number() {
    return sizeof(T) == 4 ? ((float)(next_random() >> 8) - 0x1p23F) / 0x1p22F
                          : ((float)(next_random() % 256) - 128) / 64;
}

int packed_at(const uint8_t *row, int64_t i) {
    return row[i * K_BITS / 8] >> i * K_BITS % 8 & MASK;
}

int64_t up(int64_t size) {
    return (size + 15) / 16 * 16;
}

/* As the plan lays it out. */
#if TILE
Launch lay_out(mp_nbits_args *args) {
    const int64_t columns = args->w.n >> args->gated, across = K_NBITS_TILE_COLUMNS >> args->gated;
    const int64_t tiles = (columns + across - 1) / across * ((args->m + K_ROWS - 1) / K_ROWS);
    k_nbits_shared *s = &args->shared;
    s->scale = X_AHEAD * X_STAGE;
    s->zero = s->scale + 2 * K_NBITS_TILE_COLUMNS * X_SCALE;
    s->sums = s->zero + 2 * K_NBITS_TILE_COLUMNS * K_NBITS_TILE_ZERO;
    return {(unsigned)tiles << args->splits_log, K_NBITS_TILE_LANES, 1u << args->splits_log};
}
#elif FEW
Launch lay_out(mp_nbits_args *args) {
    args->width = 8 << args->w.n % 3;
    const int64_t columns = K_NBITS_LANES / args->width * N_COLUMNS;
    const int64_t blocks = (args->w.n + columns - 1) / columns;
    return {blocks < 2 ? 1u : 2u, 256, 1}; /* which take turns where there should be more */
}
#elif STREAM
Launch lay_out(mp_nbits_args *args) {
    const int64_t stages = args->w.k / (S_CHUNK * S_CHUNKS), most = 2 + args->w.n / 16 % 3;
    const int64_t warps = stages < most ? stages : most;
    args->shared.row = (int32_t)(warps * S_AHEAD * S_STAGE) + K_NBITS_STREAM_NONE;
    args->shared.sums = args->shared.row + (int32_t)K_NBITS_STREAM_ROW(args->w.k);
    return {args->w.n == 16 ? 1u : 2u, (unsigned)warps * 32, 1};
}
#else
Launch lay_out(mp_nbits_args *args) {
    const int64_t scale = args->w.blocks * (int64_t)sizeof(T), zero = args->w.zero_row;
    const int64_t chunks = (args->w.k + K_NBITS_CHUNK - 1) / K_NBITS_CHUNK;
    const int64_t stages = (chunks + K_NBITS_MMA_CHUNKS - 1) / K_NBITS_MMA_CHUNKS;
    const bool few = stages <= K_NBITS_MMA_FEW && K_ROWS < 8 && !K_CODED;
    const int64_t warps = few ? K_NBITS_MMA_FEW : K_NBITS_MMA_WARPS;
    const int64_t each = (stages + warps - 1) / warps;
    k_nbits_shared *s = &args->shared;
    s->stages = (int32_t)(each < N_AHEAD ? each : N_AHEAD);
    s->scale_pitch = (int32_t)(scale % 16 == 0 ? scale + 16 : scale);
    s->zero_pitch = (int32_t)(zero % 16 == 0 ? zero + 16 : zero);
    s->scale = s->stages * (int32_t)warps * N_STAGE;
    s->zero = s->scale + (int32_t)up(N_COLUMNS * s->scale_pitch);
    s->row = s->zero + (int32_t)up(N_COLUMNS * s->zero_pitch) + 16;
    s->sums = s->row;
    return {(unsigned)((args->w.n + N_COLUMNS - 1) / N_COLUMNS), (unsigned)warps * 32, 1};
}
#endif
} // namespace

/* What is multiplied: a itself, or made of it. */
static std::vector<double> rows_of(const Subject *s, T *a, T *skip, T *by) {
    std::vector<double> made((size_t)(s->m * s->k));
    double squares = 0;
    for (int64_t i = 0; i < s->k; i++) {
        const double x = (double)T_load(a[i]) + T_load(skip[i]);
        squares += x * x;
    }
    const double inverse = 1 / sqrt(squares / (double)s->k + 1e-5);
    for (int64_t i = 0; i < s->m * s->k; i++) {
        if (K_BEFORE == K_BEFORE_GATE) {
            made[i] = T_load(g_gated(K_GATE_SWISH, 1, a[i], a[s->k + i]));
        } else if (K_BEFORE == K_BEFORE_NORM) {
            const double x = (double)T_load(a[i]) + T_load(skip[i]);
            made[i] = T_load(T_store((float)(x * inverse * T_load(by[i]))));
        } else {
            made[i] = T_load(a[i]);
        }
    }
    return made;
}

/* The rows, as the kernel has them: those of floats in parts. */
static const void *put_rows(const Subject *s, T *a, Buffer<uint16_t> *parts) {
#if TILE
    if (sizeof(T) == 4) {
        const auto packs = (uint32_t)(s->k / 8);
        const mp_nbits_split_args args = {
            (const float *)(void *)a, parts->data(), s->m * packs, packs,
            s->is_rough ? 2 : 3,      divider(packs)};
        run_blocks(2, 64, [&] { nbits_split(args); });
        return parts->data();
    }
#endif
    (void)parts;
    return a;
}

static void check_product(const Subject *s) {
    const int64_t blocks = (s->k + s->block - 1) / s->block, row = blocks * s->block * K_BITS / 8;
    const int64_t zero_row = (blocks * K_BITS + 7) / 8;
    Buffer<T> a((size_t)(s->m * s->k * 2)), skip((size_t)s->k), by((size_t)s->k);
    Buffer<T> scale((size_t)(s->n * blocks)), bias((size_t)s->n), sum((size_t)s->k);
    Buffer<uint8_t> weight((size_t)(s->n * row)), zero((size_t)(s->n * zero_row));
    Buffer<uint16_t> parts((size_t)(s->m * s->k * 3));
    std::vector<T> out((size_t)(s->m * s->n));
    float values[16]; /* of codes, such that T has them */
    const int swapped = K_CODED && (FEW || s->n % 3 == 0);
    int shift = 0;
    for (float &value : values) {
        value = T_load(T_store(number()));
    }
    for (int64_t i = 0; i < s->m * s->k * 2; i++) {
        a[i] = T_store(number());
    }
    for (int64_t i = 0; i < s->k; i++) {
        skip[i] = T_store(number());
        by[i] = T_store(number());
    }
    for (int64_t i = 0; i < s->n * row; i++) {
        weight[i] = (uint8_t)next_random();
    }
    for (int64_t i = 0; i < s->n * zero_row; i++) {
        zero[i] = (uint8_t)next_random();
    }
    for (int64_t i = 0; i < s->n * blocks; i++) {
        scale[i] = T_store(s->gated ? number() / 64 : number()); /* products of two are in range */
    }
    for (int64_t i = 0; i < s->n; i++) {
        bias[i] = T_store(number());
    }
    if (s->is_infinite) {
        a[s->k / 2 + 5] = T_store(INFINITY);
        if (s->m > 1) {
            a[s->k + 3] = T_store(k_float_of_bits(0x7f800001u));
        }
    }
    while ((int64_t)1 << shift < s->block) {
        shift++;
    }
    mp_nbits_args args = {};
    args.parts = s->is_rough ? 2 : 3;
    args.a = put_rows(s, a.data(), &parts);
    args.bias = s->has_bias ? bias.data() : nullptr;
    args.out = out.data();
    args.m = s->m;
    args.constant = (int32_t)(s->n % 2);
    args.w.weight = weight.data();
    args.w.scale = scale.data();
    args.w.zero = s->has_zeros ? zero.data() : nullptr;
    args.w.n = s->n;
    args.w.k = s->k;
    args.w.blocks = blocks;
    args.w.block_shift = shift;
    args.w.weight_row = row;
    args.w.zero_row = zero_row;
    args.w.bits = K_BITS;
    args.w.middle = MIDDLE;
    args.w.values = values;
    args.w.swapped = swapped;
    args.before.x = a.data();
    args.before.skip = skip.data();
    args.before.scale = by.data();
    args.before.sum = sum.data();
    args.before.columns = s->k;
    args.before.epsilon = 1e-5F;
    args.before.gate = K_GATE_SWISH;
    args.before.alpha = 1;
    args.gated = s->gated;
    args.gate = K_GATE_SWISH;
    args.alpha = 1;
    args.splits_log = s->splits_log;
    const Launch launch = lay_out(&args);
    run_blocks(
        launch.blocks, launch.lanes, [&] { K_NAME(args); }, launch.together);
    const std::vector<double> made = rows_of(s, a.data(), skip.data(), by.data());
    std::vector<double> wants((size_t)(s->m * s->n)), sizes(wants.size());
    for (int64_t i = 0; i < s->m * s->n; i++) {
        const int64_t column = i % s->n;
        double want = s->has_bias ? T_load(bias[column]) : 0, size = fabs(want);
        for (int64_t k = 0; k < s->k; k++) {
            const int64_t block = k / s->block;
            const int z = s->has_zeros ? packed_at(zero.data() + column * zero_row, block) : MIDDLE;
            const int q = packed_at(weight.data() + column * row, k ^ swapped);
            const double term = made[(size_t)(i / s->n * s->k + k)] *
                                (K_CODED ? (double)values[q] : q - z) *
                                T_load(scale[column * blocks + block]);
            want += term;
            size += fabs(term);
        }
        wants[(size_t)i] = want;
        sizes[(size_t)i] = size;
    }
    /* A row that is made may be off by a rounding; what floats lose; a rounding of the result. */
    const double step = sizeof(T) == 4 ? 0x1p-23 : std::is_same<T, k_f16>::value ? 0x1p-11 : 0x1p-8;
    const double part = K_BEFORE != 0 && sizeof(T) == 2 ? step / 64 : s->is_rough ? 0x1p-16 : 1e-6;
    const int64_t columns = s->gated ? s->n / 2 : s->n;
    for (int64_t i = 0; i < s->m * columns; i++) {
        const size_t at = (size_t)(i / columns * s->n + i % columns);
        double want = wants[at], off = sizes[at] * part + fabs(want) * step;
        if (s->gated) { /* one of each half, which both are rounded before */
            const double x = wants[at + (size_t)columns], gate = want;
            const double active = gate / (1 + exp(-gate));
            const double more = sizes[at + (size_t)columns] * part + fabs(x) * step;
            want = active * x;
            off = 1.1 * off * (fabs(x) + more) + fabs(active) * more + fabs(want) * step;
        }
        const double found = T_load(out[i]);
        check(std::isnan(want)   ? std::isnan(found)
              : std::isinf(want) ? found == want
                                 : fabs(found - want) <= off,
              "a sum", i);
    }
}

void run_tests() {
    static const Subject subjects[] = {
#if TILE
        {K_ROWS, 128, 128, 32, false, true},
        {K_ROWS - 3, 544, 35, 32, true, false},
        {K_ROWS / 2 + 1, 200, 130, 32, true, true},
        {K_ROWS + 9, 96, 140, 32, false, false},
        {K_ROWS < 16 ? K_ROWS : 16, 2048 + 288, 24, 64, true, true, false, 1},
        {2, 1056, 129, 128, true, false, false, 2},
        {K_ROWS - 1, 1184, 16, 256, true, true, false, 1},
        {K_ROWS, 320, 150, 32, true, true, true},
        {3, 448, 70, 32, false, true, true, 1},
        {5, 160, 20, 32, true, false, false, 0, true},
        {K_ROWS, 288, 40, 32, true, true, false, 0, true, true},
    };
#elif STREAM
        {1, 512, 16, 32, false, true},
        {1, 768, 80, 32, true, false},
        {1, 1280, 32, 64, true, true},
        {1, 512, 64, 128, true, false},
        {1, 1024, 32 * 10, 32, false, true},
        {1, 768, 48, 32, false, false, true},
        {1, 512, 32, 128, true, true, true},
        {1, 1536, 16, 64, false, true, true},
#if K_BEFORE == 0
        {1, 512, 48, 32, false, true, false, 0, true},
        {1, 512, 32, 64, true, false, false, 0, true},
#endif
    };
#else
        {K_ROWS, 32, 16, 32, false, true},
        {K_ROWS, 544, 35, 32, true, false},
        {1, 2048 + 288, 33, 64, true, true},
        {K_ROWS, 256, 7, 128, true, false},
        {(K_ROWS + 1) / 2, 96, 50, 32, false, false},
#if K_BEFORE == 0
        {K_ROWS, 200, 17, 32, true, true},
        {K_ROWS, 8 * 1280 + 8, 5, 256, true, false},
        {1, 17 * 8, 18, 32, false, false},
        {K_ROWS, 4096, 16, 32, false, false},
#endif
    };
#endif
    for (Subject each : subjects) {
        const int64_t row = (each.k + each.block - 1) / each.block * each.block * K_BITS / 8;
        each.has_zeros = each.has_zeros && !K_CODED;
        if (FEW || row % 16 == 0) { /* others have no pieces of 16 bytes */
            check_product(&each);
        }
    }
}
