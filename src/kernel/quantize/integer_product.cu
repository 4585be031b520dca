/* integer_product.cu - products of matrices of 8-bit integers, summed in 32 bits that wrap. B is a
 * matrix, or (K_CONV) what the windows of an image see.
 *
 * A block sums a tile at a time: pieces of both sides go to shared memory (integer_tile.h), are
 * multiplied there (integer_sum.h), and on a GPU the next pieces are on their way meanwhile. Zero
 * points are taken off at the end, by the sums of the rows of A and of the columns of B. The
 * emulated device goes another way (integer_plain.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/integer.h"

#if K_HOST

#include "kernel/quantize/integer_plain.h"

K_BLOCK_KERNEL_WITHIN(128, K_INTEGER_LANES, mp_integer_args, args) {
    K_SHARED(uint32_t, shared);
    if (threadIdx.x == 0) {
        plain_all(&args, shared);
    }
}

#else

#include "kernel/quantize/integer_sum.h"

/* ---- results ---- */

/* The sum of an element of the tile without what zero points have added. */
K_FN int32_t without_zero(const mp_integer_args *args, const tile *t, int32_t r, int32_t c,
                          uint32_t sum) {
    const uint32_t a_zero = (uint32_t)i_zero(&args->side[0], t->at[0], t->row + r);
    const uint32_t b_zero = (uint32_t)i_zero(&args->side[1], t->at[1], t->column + c);
    sum += (uint32_t)args->k * a_zero * b_zero;
    return (int32_t)(sum - a_zero * t->b_sum[c] - b_zero * t->a_sum[r]);
}

#if K_WARP_MATRIX

/* Two neighbours of a row of the tile. */
K_FN void put_two(const mp_integer_args *args, const tile *t, int64_t matrix, int32_t r, int32_t c,
                  const uint32_t *sum) {
    const int64_t row = t->row + r, column = t->column + c;
    const int64_t place = (matrix * args->m + row) * args->n + column;
    int32_t whole[2];
    for (int e = 0; e < 2; e++) {
        whole[e] = column + e < args->n ? without_zero(args, t, r, c + e, sum[e]) : 0;
    }
    if (args->pairs) {
        i_put_pair(args, t->at, row, column, whole, place);
        return;
    }
#pragma unroll 1
    for (int e = 0; e < 2 && column + e < args->n; e++) {
        i_put(args, t->at, row, column + e, whole[e], place + e);
    }
}

/* Line `y` of the squares of all warps, by way of shared memory, whose tiles have been used: what
 * becomes of a sum is much text, which so is there once, and rows are written as they lie. */
K_FN void put_line(const mp_integer_args *args, const tile *t, int64_t matrix, int32_t y) {
#pragma unroll 1
    K_BLOCK_LOOP(i, S_LINE_ROWS * (TILE / 2)) {
        const int32_t line_row = (int32_t)i / (TILE / 2), c = (int32_t)i % (TILE / 2) * 2;
        const int32_t r = s_row_of(line_row, y);
        if (t->row + r < args->m && t->column + c < args->n) {
            put_two(args, t, matrix, r, c, t->a + line_row * PITCH + c);
        }
    }
}

K_FN void put_sums(const mp_integer_args *args, const tile *t, int64_t matrix, const sums *sum) {
#pragma unroll 1
    for (int32_t y = 0; y < HIGH; y++) {
        s_line_keep(t, (int32_t)threadIdx.x, y, sum);
        __syncthreads();
        put_line(args, t, matrix, y);
        __syncthreads();
    }
}

#else

/* Of sums that are all in shared memory. */
K_FN void put_tile(const mp_integer_args *args, const tile *t, int64_t matrix) {
    K_BLOCK_LOOP(i, TILE * TILE) {
        const int32_t r = (int32_t)(i / TILE), c = (int32_t)(i % TILE);
        const int64_t row = t->row + r, column = t->column + c;
        if (row < args->m && column < args->n) {
            i_put(args, t->at, row, column, without_zero(args, t, r, c, sum_at(t, (int32_t)i)),
                  (matrix * args->m + row) * args->n + column);
        }
    }
}

K_FN void put_sums(const mp_integer_args *args, const tile *t, int64_t matrix, const sums *sum) {
    sums_keep(t, (int32_t)threadIdx.x, sum);
    __syncthreads();
    put_tile(args, t, matrix);
}

#endif

/* ---- summing ---- */

enum { A_EACH = A_PIECES / K_INTEGER_LANES, B_EACH = B_PIECES / K_INTEGER_LANES };

/* What a lane brings to shared memory. */
typedef struct pieces {
    i_four a[A_EACH], b[B_EACH];
} pieces;

K_FN void ask_a(const mp_integer_args *args, const tile *t, int64_t first, int32_t words,
                pieces *out) {
#pragma unroll
    for (int e = 0; e < A_EACH; e++) {
        out->a[e] = a_ask(args, t, first, (int32_t)threadIdx.x + e * K_INTEGER_LANES, words);
    }
}

K_FN void ask_b(const mp_integer_args *args, const tile *t, int64_t first, int32_t words,
                pieces *out) {
#pragma unroll
    for (int e = 0; e < B_EACH; e++) {
        out->b[e] = b_ask(args, t, first, (int32_t)threadIdx.x + e * K_INTEGER_LANES, words);
    }
}

/* One branch for all: those between loads would have each wait for its own. */
K_FN void ask(const mp_integer_args *args, const tile *t, int64_t first, pieces *out) {
    if (args->side[0].words == 4) {
        ask_a(args, t, first, 4, out);
    } else {
        ask_a(args, t, first, args->side[0].words, out);
    }
    if (K_CONV || args->side[1].words) {
        ask_b(args, t, first, 1, out);
    } else {
        ask_b(args, t, first, 0, out);
    }
}

K_FN void keep(const mp_integer_args *args, const tile *t, int64_t first, const pieces *kept) {
    const int32_t lane = (int32_t)threadIdx.x;
#pragma unroll
    for (int e = 0; e < A_EACH; e++) {
        a_keep(args, t, first, lane + e * K_INTEGER_LANES, &kept->a[e]);
    }
#pragma unroll
    for (int e = 0; e < B_EACH; e++) {
        b_keep(args, t, first, lane + e * K_INTEGER_LANES, &kept->b[e]);
    }
}

K_FN void do_tile(const mp_integer_args *args, const tile *t, int64_t matrix) {
    const int32_t lane = (int32_t)threadIdx.x;
    pieces next;
    sums sum = {};
    ask(args, t, 0, &next);
    for (int64_t first = 0; first < args->k; first += WORDS * 4) {
        keep(args, t, first, &next);
        __syncthreads();
        if (first + WORDS * 4 < args->k) {
            ask(args, t, first + WORDS * 4, &next);
        }
        multiply(t, lane, &sum);
        add_lines(args, t);
        __syncthreads();
    }
    put_sums(args, t, matrix, &sum);
}

/* Without tensor cores a block has lanes for tiles of 64; no plan asks for larger ones then. */
#if K_WARP_MATRIX || K_TILE <= 64
#define HAS_LANES 1
#else
#define HAS_LANES 0
#endif

K_BLOCK_KERNEL_WITHIN(128, K_INTEGER_LANES, mp_integer_args, args) {
    K_SHARED(uint32_t, shared);
    tile t;
    t.a = shared;
    t.b = t.a + WORDS * PITCH;
    t.a_sum = t.b + WORDS * PITCH;
    t.b_sum = t.a_sum + TILE;
    t.corner = (int32_t *)(t.b_sum + TILE);
    t.sum = (uint32_t *)t.corner + 3 * TILE;
    for (int64_t i = blockIdx.x; HAS_LANES && i < args.tiles; i += gridDim.x) {
        const int64_t rest = i / args.tiles_across, matrix = rest / args.tiles_down;
        t.column = i % args.tiles_across * TILE;
        t.row = rest % args.tiles_down * TILE;
        k_offsets(&args.batch, matrix, 2, t.at);
        t.from_a = (const uint8_t *)args.a + t.at[0] * args.m * args.k;
#if K_CONV
        t.from_b = (const uint8_t *)args.b + t.at[1] * args.window.channels * args.window.channel;
        t.padding = (uint32_t)i_zero(&args.side[1], t.at[1], 0) & 0xffu;
#else
        t.from_b = (const uint8_t *)args.b + t.at[1] * args.k * args.n;
        t.padding = 0;
#endif
        K_BLOCK_LOOP(line, 2 * TILE) {
            t.a_sum[line] = 0; /* b_sum is behind it */
        }
        b_find(&args, &t);
        __syncthreads();
        do_tile(&args, &t, matrix);
        __syncthreads();
    }
}

#endif
