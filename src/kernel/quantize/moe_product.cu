/* moe_product.cu - many routes an expert: tiles of both sides lie in shared memory as floats,
 *     a [depth][route], w [depth][column]
 * and a lane multiplies 4 routes by 4 columns. On a GPU a block has K_MOE_LANES lanes and sums stay
 * in registers; the emulated device keeps them behind the tiles.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/moe.h"

enum {
    PIECE = K_NBITS_PIECE,
    TILE = K_MOE_TILE,
    DEPTH = K_MOE_DEPTH,
    PITCH = TILE + 4, /* keeps squares aligned and puts depths into other banks */
    SIDE = 4,
    ACROSS = TILE / SIDE,
    PIECES = DEPTH / PIECE, /* of a row */
};

typedef struct m_shared {
    float *a, *w; /* DEPTH * PITCH each */
    float *sum;   /* TILE * TILE */
} m_shared;

K_FN void load(const mp_moe_product_args *args, const m_tile *t, const m_shared *s, int64_t column,
               int64_t k) {
    const k_nbits *w = &args->w;
    K_BLOCK_LOOP(i, 2 * TILE * PIECES) {
        const int64_t r = i / PIECES % TILE, first = i % PIECES * PIECE;
        const int of_a = i < (int64_t)TILE * PIECES;
        float *to = (of_a ? s->a : s->w) + first * PITCH + r;
        float x[PIECE] = {0};
        if (k + first < w->k && of_a && r < t->count) {
            w_elements(m_row(args, t, r), k + first, w->k, w->aligned, x);
        } else if (k + first < w->k && !of_a && column + r < w->n) {
            w_numbers(w, t->expert, t->expert * w->n + column + r, k + first, x);
        }
        K_UNROLL for (int e = 0; e < PIECE; e++) {
            to[e * PITCH] = x[e];
        }
    }
}

/* Adds to the sums of square number `i`, which lie `pitch` apart from row to row. */
K_FN void add(const m_shared *s, int64_t i, float *sum, int pitch) {
    const float *a = s->a + i / ACROSS * SIDE, *w = s->w + i % ACROSS * SIDE;
    K_UNROLL for (int d = 0; d < DEPTH; d++) {
        K_UNROLL for (int r = 0; r < SIDE; r++) {
            K_UNROLL for (int c = 0; c < SIDE; c++) {
                sum[r * pitch + c] += a[d * PITCH + r] * w[d * PITCH + c];
            }
        }
    }
}

K_FN void put(const mp_moe_product_args *args, const m_tile *t, int64_t column, int64_t i,
              const float *sum, int pitch) {
    const int64_t row = i / ACROSS * SIDE;
    column += i % ACROSS * SIDE;
    K_UNROLL for (int r = 0; r < SIDE; r++) {
        K_UNROLL for (int c = 0; c < SIDE; c += 2) {
            if (row + r < t->count && column + c < args->w.n) {
                m_put(args, t, row + r, column + c, sum[r * pitch + c], sum[r * pitch + c + 1]);
            }
        }
    }
}

#if K_HOST
K_FN float *sums_of(const m_shared *s, int64_t i) {
    return s->sum + i / ACROSS * SIDE * TILE + i % ACROSS * SIDE;
}

K_FN void multiply(const mp_moe_product_args *args, const m_tile *t, const m_shared *s,
                   int64_t column) {
    K_BLOCK_LOOP(i, TILE * TILE) {
        s->sum[i] = 0;
    }
    for (int64_t k = 0; k < args->w.k; k += DEPTH) {
        load(args, t, s, column, k);
        __syncthreads();
        K_BLOCK_LOOP(i, ACROSS * ACROSS) {
            add(s, i, sums_of(s, i), TILE);
        }
        __syncthreads();
    }
    K_BLOCK_LOOP(i, ACROSS * ACROSS) {
        put(args, t, column, i, sums_of(s, i), TILE);
    }
}
#else
K_FN void multiply(const mp_moe_product_args *args, const m_tile *t, const m_shared *s,
                   int64_t column) {
    float sum[SIDE * SIDE] = {0};
    for (int64_t k = 0; k < args->w.k; k += DEPTH) {
        load(args, t, s, column, k);
        __syncthreads();
        if (threadIdx.x / ACROSS * SIDE < t->count) {
            add(s, threadIdx.x, sum, SIDE);
        }
        __syncthreads();
    }
    put(args, t, column, threadIdx.x, sum, SIDE);
}
#endif

K_BLOCK_KERNEL_UP_TO(K_MOE_LANES, mp_moe_product_args, args) {
    K_SHARED(float, shared);
    const m_shared s = {shared, shared + DEPTH * PITCH, shared + 2 * DEPTH * PITCH};
    for (int64_t i = blockIdx.x; i < args.tiles_max * args.tiles_across; i += gridDim.x) {
        const m_tile t = m_tile_at(&args, i / args.tiles_across, TILE);
        if (t.count > 0) { /* the same for all lanes */
            multiply(&args, &t, &s, i % args.tiles_across * TILE);
        }
        __syncthreads();
    }
}
