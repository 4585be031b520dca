/* moe_some.cu - up to K_MOE_SOME routes of an expert times its packed integers of K_BITS bits by
 * tensor cores. Weights are their left operand, columns of the result its rows, and routes are the
 * columns of their right one.
 *
 * A warp has 32 of a tile's K_MOE_COLUMNS columns, and a lane (g, t) of it columns g, g + 8, g + 16
 * and g + 24. A stage has of each column four pieces of 16 bytes, of which t is the lane's: it
 * copies them to shared memory, finds them there, and turns eights of them into operands. Which
 * elements along k share a product is its own business, as long as routes are read alike: a stage
 * of those has
 *     the eight `e` of piece t of route r at ((e * K_MOE_SOME + r) * 4 + t) * 16
 * so that what a warp reads at once lies side by side.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/quantize/moe_sums.h"

#if K_WARP_MATRIX

#include "kernel/quantize/nbits_numbers.h"

enum {
    S_WARP = 32,
    S_PIECE = 16,                            /* bytes */
    S_PIECES = 4,                            /* of a column of a stage */
    S_HELD = 4,                              /* columns of a lane */
    S_BESIDE = S_WARP / S_PIECES,            /* between them */
    S_EACH = S_PIECE * 8 / K_BITS,           /* weights of a piece */
    S_EIGHTS = S_EACH / 8,                   /* of them */
    S_DEPTH = S_EACH * S_PIECES,             /* of a stage */
    S_A_PIECES = S_DEPTH / 8,                /* of a route of a stage */
    S_APART = K_MOE_SOME_LANES / S_A_PIECES, /* routes that the block copies at once */
    S_ROWS = K_MOE_SOME / S_APART,           /* of which a lane copies a piece */
    S_SIDE = 8,                              /* routes of a product */
    S_FEWEST = 2,                            /* products beside one another that are always made */
    S_WIDE = K_MOE_SOME / S_SIDE,
    S_A = K_MOE_SOME_A(K_BITS),
    S_STAGE = K_MOE_SOME_STAGE(K_BITS),
    S_AHEAD = K_MOE_SOME_AHEAD(K_BITS),
};
static_assert(S_A == K_MOE_SOME * S_DEPTH * 2 &&
                  S_STAGE == S_A + K_MOE_COLUMNS * S_PIECES * S_PIECE,
              "a stage has routes and weights");
static_assert(K_MOE_SOME * M_PITCH * 4 <= K_MOE_SOME_HELD(K_BITS),
              "sums find room where the ring was");

typedef struct K_ALIGN(16) s_piece {
    uint32_t words[4];
} s_piece;

/* What a lane's piece of a column has in common, as it comes from memory: to convert it would be to
 * wait for it. */
typedef struct s_raw {
    T scale;
    uint32_t zero; /* the byte that it is in */
} s_raw;

/* The same as it is used. */
typedef struct s_common {
    p_base base;
    uint32_t scale; /* twice */
} s_common;

/* What a lane does. */
typedef struct s_place {
    const mp_moe_product_args *args;
    m_tile tile;
    uint8_t *ring;
    int32_t first, chunks; /* of the part of K */
    int32_t rows;          /* routes that are multiplied */
    int32_t warp, g, t;
    const uint8_t *w[S_HELD]; /* the lane's piece of the part's first chunk */
    uint32_t column[S_HELD];  /* of all experts; the last one where there is none */
    const T *a[S_ROWS];       /* likewise of routes; NULL for none */
    int32_t a_line, a_piece;
    uint32_t mask;
} s_place;

K_FN s_place s_place_of(const mp_moe_product_args *args, const m_tile *tile, uint8_t *ring,
                        int64_t column, int32_t part) {
    const k_nbits *w = &args->w;
    const int32_t lane = (int32_t)threadIdx.x % S_WARP;
    const int32_t chunks = (int32_t)((w->k + S_DEPTH - 1) / S_DEPTH), parts = (int32_t)args->parts;
    s_place at;
    at.args = args;
    at.tile = *tile;
    at.ring = ring;
    at.first = chunks * part / parts;
    at.chunks = chunks * (part + 1) / parts - at.first;
    at.rows = tile->count > S_FEWEST * S_SIDE ? K_MOE_SOME : S_FEWEST * S_SIDE;
    at.warp = (int32_t)threadIdx.x / S_WARP;
    at.g = lane / S_PIECES;
    at.t = lane % S_PIECES;
    at.mask = p_mask(w);
    const uint32_t last = (uint32_t)w->n - 1, before = (uint32_t)(tile->expert * w->n);
    K_UNROLL
    for (int32_t i = 0; i < S_HELD; i++) {
        const uint32_t own = (uint32_t)column + (uint32_t)(at.warp * S_WARP + i * S_BESIDE + at.g);
        at.column[i] = before + (own < last ? own : last);
        at.w[i] = (const uint8_t *)w->weight + at.column[i] * w->weight_row +
                  (at.first * S_PIECES + at.t) * S_PIECE;
    }
    at.a_line = (int32_t)threadIdx.x / S_A_PIECES;
    at.a_piece = (int32_t)threadIdx.x % S_A_PIECES;
    K_UNROLL
    for (int32_t j = 0; j < S_ROWS; j++) {
        const int32_t r = at.a_line + j * S_APART;
        at.a[j] = 0;
        if (r < tile->count) {
            const uint32_t row = (uint32_t)tile->routes[r].index / (uint32_t)args->share;
            at.a[j] = (const T *)args->a + row * w->k + at.first * S_DEPTH + at.a_piece * 8;
        }
    }
    return at;
}

/* ---- into shared memory ---- */

/* Begins to copy a chunk, zeros behind the end of K. */
K_FN void s_fill(const s_place *at, int32_t chunk, uint8_t *stage) {
    const k_nbits *w = &at->args->w;
    const int32_t at_k = (at->first + chunk) * S_DEPTH, left = (int32_t)w->k - at_k;
    if (chunk < at->chunks) { /* the same for all lanes */
        const int is = at->t * S_EACH < left, is_a = at->a_piece * 8 < left;
        uint8_t *weights =
            stage + S_A + (at->warp * S_WARP * S_PIECES + at->g * S_PIECES + at->t) * S_PIECE;
        uint8_t *rows = stage + ((at->a_piece % S_EIGHTS * K_MOE_SOME + at->a_line) * S_PIECES +
                                 at->a_piece / S_EIGHTS) *
                                    S_PIECE;
        K_UNROLL
        for (int32_t i = 0; i < S_HELD; i++) {
            k_copy_begin(weights + i * S_BESIDE * S_PIECES * S_PIECE,
                         is ? at->w[i] + chunk * (S_PIECES * S_PIECE) : (const uint8_t *)w->weight,
                         is ? S_PIECE : 0);
        }
        K_UNROLL
        for (int32_t j = 0; j < S_ROWS; j++) {
            const int there = is_a && at->a[j] != 0;
            if (j * S_APART < at->rows) { /* the same for all lanes */
                k_copy_begin(rows + j * S_APART * S_PIECES * S_PIECE,
                             there ? at->a[j] + chunk * S_DEPTH : (const T *)at->args->a,
                             there ? S_PIECE : 0);
            }
        }
    }
    k_copies_group();
}

/* ---- what blocks of weights have in common ---- */

/* The block of the lane's piece of a chunk; the first one behind the end of K. */
K_FN uint32_t s_block(const s_place *at, int32_t chunk) {
    const k_nbits *w = &at->args->w;
    const int32_t k = (at->first + chunk) * S_DEPTH + at->t * S_EACH;
    return w->blocks > 1 && k < (int32_t)w->k ? (uint32_t)k >> w->block_shift : 0;
}

K_FN uint32_t s_zero_place(const s_place *at, int32_t i, uint32_t block) {
    const k_nbits *w = &at->args->w;
    return w->zero_across ? at->column[i] - (uint32_t)(at->tile.expert * w->n) : block;
}

K_FN void s_ask(const s_place *at, int32_t chunk, s_raw *raw) {
    const k_nbits *w = &at->args->w;
    const uint32_t block = s_block(at, chunk);
    K_UNROLL
    for (int32_t i = 0; i < S_HELD; i++) {
        raw[i].scale = ((const T *)w->scale)[at->column[i] * (uint32_t)w->blocks + block];
        raw[i].zero = 0;
        if (w->zero != 0) {
            const uint32_t row = w->zero_across ? (uint32_t)at->tile.expert : at->column[i];
            raw[i].zero =
                ((const uint8_t *)w
                     ->zero)[row * (uint32_t)w->zero_row + s_zero_place(at, i, block) * K_BITS / 8];
        }
    }
}

/* Behind the end of K weights are zeros, whatever their scale is. */
K_FN void s_set(const s_place *at, int32_t chunk, const s_raw *raw, s_common *common) {
    const k_nbits *w = &at->args->w;
    const uint32_t block = s_block(at, chunk);
    const int is = (at->first + chunk) * S_DEPTH + at->t * S_EACH < (int32_t)w->k;
    K_UNROLL
    for (int32_t i = 0; i < S_HELD; i++) {
        const uint32_t zero = raw[i].zero >> s_zero_place(at, i, block) * K_BITS % 8;
        common[i].base = p_base_of(w->zero != 0 ? zero : (uint32_t)w->middle, at->mask);
        common[i].scale = is ? raw[i].scale.bits * 0x00010001u : 0;
    }
}

/* ---- products ---- */

#define s_product K_JOIN(k_mma_, K_T0)

/* The routes from `from` on, S_FEWEST products beside one another, times an eight of each column.
 */
K_FN void s_multiply(const s_place *at, const uint8_t *rows, int32_t from, uint32_t (*pairs)[4],
                     float (*sum)[S_WIDE][4]) {
    K_UNROLL
    for (int32_t n = from; n < from + S_FEWEST; n++) {
        const s_piece x =
            *(const s_piece *)(const void *)(rows + (n * S_SIDE + at->g) * S_PIECES * S_PIECE);
        uint32_t turned[4];
        p_turned(x.words, turned);
        K_UNROLL
        for (int32_t i = 0; i < S_HELD; i++) {
            const int32_t step = i / 2, tile = i % 2;
            const uint32_t *low = pairs[tile * 2] + step * 2,
                           *high = pairs[tile * 2 + 1] + step * 2;
            const uint32_t a[4] = {low[0], high[0], low[1], high[1]};
            s_product(sum[tile][n], a, turned + step * 2);
        }
    }
}

K_FN void s_chunk(const s_place *at, const uint8_t *stage, const s_common *common,
                  float (*sum)[S_WIDE][4]) {
    const uint8_t *weights =
        stage + S_A + (at->warp * S_WARP * S_PIECES + at->g * S_PIECES + at->t) * S_PIECE;
    s_piece held[S_HELD];
    K_UNROLL
    for (int32_t i = 0; i < S_HELD; i++) {
        held[i] = *(const s_piece *)(const void *)(weights + i * S_BESIDE * S_PIECES * S_PIECE);
    }
    K_UNROLL
    for (int32_t e = 0; e < S_EIGHTS; e++) {
        const uint8_t *rows = stage + (e * K_MOE_SOME * S_PIECES + at->t) * S_PIECE;
        uint32_t pairs[S_HELD][4];
        K_UNROLL
        for (int32_t i = 0; i < S_HELD; i++) {
            p_words words;
            K_UNROLL
            for (int32_t j = 0; j < K_BITS / 4; j++) {
                words.at[j] = held[i].words[e * K_BITS / 4 + j];
            }
            p_pairs(words, common[i].base, pairs[i]);
            K_UNROLL
            for (int32_t j = 0; j < 4; j++) {
                pairs[i][j] = p_product(pairs[i][j], common[i].scale, 0);
            }
        }
        s_multiply(at, rows, 0, pairs, sum);
        if (at->rows > S_FEWEST * S_SIDE) { /* the same for all lanes */
            s_multiply(at, rows, S_FEWEST, pairs, sum);
        }
    }
}

K_FN void s_sum(const s_place *at, float (*sum)[S_WIDE][4]) {
    const int several = at->args->w.blocks > 1; /* of a column */
    s_raw raw[S_HELD];
    s_common common[S_HELD];
    int32_t place = 0, filled = S_AHEAD - 1; /* stages of the ring */
    s_ask(at, 0, raw);
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < S_AHEAD - 1; chunk++) {
        s_fill(at, chunk, at->ring + chunk * S_STAGE);
    }
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < at->chunks; chunk++) {
        if (several || chunk == 0) {
            s_set(at, chunk, raw, common);
        } else if ((at->first + chunk + 1) * S_DEPTH > (int32_t)at->args->w.k) {
            s_set(at, chunk, raw, common); /* the last one, which may go beyond */
        }
        if (several) {
            s_ask(at, chunk + 1, raw);
        }
        K_COPIES_WAIT(S_AHEAD - 2);
        __syncthreads();
        s_fill(at, chunk + S_AHEAD - 1, at->ring + filled * S_STAGE); /* all have read it */
        s_chunk(at, at->ring + place * S_STAGE, common, sum);
        filled = place;
        place = place + 1 < S_AHEAD ? place + 1 : 0;
    }
}

/* ---- the end ---- */

K_FN void s_put_all(const s_place *at, int64_t column, int32_t part, float (*sum)[S_WIDE][4]) {
    float *all = (float *)(void *)at->ring;
    K_COPIES_WAIT(0);
    __syncthreads();
    K_UNROLL
    for (int32_t i = 0; i < 2 * S_WIDE * 4; i++) {
        const int32_t tile = i / (S_WIDE * 4), n = i / 4 % S_WIDE, e = i % 4;
        const int32_t own = at->warp * S_WARP + (tile * 2 + e / 2) * S_BESIDE + at->g;
        all[(n * S_SIDE + at->t * 2 + e % 2) * M_PITCH + own] = sum[tile][n][e];
    }
    __syncthreads();
    m_put_sums(at->args, &at->tile, part, column, all);
    __syncthreads();
}

/* The block's tiles, one after the other. */
K_FN void s_make_all(const mp_moe_product_args *args, uint8_t *ring) {
    const int64_t across = args->tiles_across, parts = args->parts;
    K_ONE_COPY
    for (int64_t i = blockIdx.x; i < args->tiles_max * across * parts; i += gridDim.x) {
        const m_tile tile = m_tile_at(args, i / parts / across, K_MOE_SOME);
        if (tile.count > 0) { /* the same for all lanes */
            const int64_t column = i / parts % across * K_MOE_COLUMNS;
            const int32_t part = (int32_t)(i % parts);
            const s_place at = s_place_of(args, &tile, ring, column, part);
            float sum[2][S_WIDE][4] = {{{0}}};
            s_sum(&at, sum);
            s_put_all(&at, column, part, sum);
        }
    }
}

#endif

/* Blocks on a multiprocessor. */
#define S_BLOCKS 2

K_BLOCK_KERNEL_LATE_OF(K_MOE_SOME_LANES, S_BLOCKS, mp_moe_product_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    k_wait();
    s_make_all(&args, shared);
#else
    (void)args;
#endif
}
