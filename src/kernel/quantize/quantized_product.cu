/* quantized_product.cu - bytes times the transposed weights of each direction, tile by tile: parts
 * of 128 bytes of the rows of both sides pass through shared memory, sums of a tile stay there. A
 * lane takes 4 x 4 sums at a time.
 *
 *     a, w   [64][33] words     one more, so that rows lie in other banks
 *     sum    [64][64]
 *     a_sum, w_sum  [64]
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/quantized_lstm.h"

enum { SIDE = 64, WORDS = 32, PITCH = WORDS + 1, EACH = 4, APART = SIDE / EACH };

typedef struct product_tile {
    uint32_t *a, *w;
    int32_t *sum, *a_sum, *w_sum;
    int64_t direction, row, column;
} product_tile;

K_FN product_tile product_layout(uint32_t *shared) {
    product_tile t;
    t.a = shared;
    t.w = t.a + SIDE * PITCH;
    t.sum = (int32_t *)(t.w + SIDE * PITCH);
    t.a_sum = t.sum + SIDE * SIDE;
    t.w_sum = t.a_sum + SIDE;
    return t;
}

K_FN void product_load(const mp_quantized_product_args *args, const product_tile *t, int64_t k) {
    const int64_t depth = args->w.depth;
    const int32_t wide = depth % 4 == 0;
    const uint8_t *a = (const uint8_t *)args->a;
    const uint8_t *w = (const uint8_t *)args->w.weight + t->direction * args->w.columns * depth;
    K_BLOCK_LOOP(i, SIDE * WORDS) {
        const int64_t r = i / WORDS, word = i % WORDS, at = k + word * 4;
        const int64_t row = t->row + r, column = t->column + r;
        t->a[r * PITCH + word] = row < args->rows ? q_word(a + row * depth, at, depth, wide) : 0;
        t->w[r * PITCH + word] =
            column < args->w.columns ? q_weights(&args->w, w + column * depth, at, wide) : 0;
    }
}

K_FN void product_add(const product_tile *t) {
    K_BLOCK_LOOP(r, SIDE) {
        int32_t a = t->a_sum[r], w = t->w_sum[r];
        for (int32_t word = 0; word < WORDS; word++) {
            a = q_sum_unsigned(t->a[r * PITCH + word], a);
            w = q_sum_signed(t->w[r * PITCH + word], w);
        }
        t->a_sum[r] = a;
        t->w_sum[r] = w;
    }
    K_BLOCK_LOOP(i, APART * APART) {
        const int32_t down = (int32_t)(i / APART) * EACH, across = (int32_t)(i % APART);
        int32_t sum[EACH][EACH];
        for (int32_t r = 0; r < EACH; r++) {
            for (int32_t c = 0; c < EACH; c++) {
                sum[r][c] = t->sum[(down + r) * SIDE + across + c * APART];
            }
        }
        for (int32_t word = 0; word < WORDS; word++) {
            for (int32_t r = 0; r < EACH; r++) {
                for (int32_t c = 0; c < EACH; c++) {
                    sum[r][c] = q_products(t->a[(down + r) * PITCH + word],
                                           t->w[(across + c * APART) * PITCH + word], sum[r][c]);
                }
            }
        }
        for (int32_t r = 0; r < EACH; r++) {
            for (int32_t c = 0; c < EACH; c++) {
                t->sum[(down + r) * SIDE + across + c * APART] = sum[r][c];
            }
        }
    }
}

K_FN void product_write(const mp_quantized_product_args *args, const product_tile *t) {
    const q_parameter p = {((const float *)args->parameter)[0],
                           ((const float *)args->parameter)[1]};
    float *out = (float *)args->out + t->direction * args->rows * args->w.columns;
    K_BLOCK_LOOP(i, SIDE * SIDE) {
        const int64_t r = i / SIDE, c = i % SIDE;
        const int64_t row = t->row + r, column = t->column + c;
        if (row < args->rows && column < args->w.columns) {
            out[row * args->w.columns + column] =
                q_value(&args->w, t->direction, column, p, t->sum[i], t->a_sum[r], t->w_sum[c]);
        }
    }
}

K_BLOCK_KERNEL_UP_TO(256, mp_quantized_product_args, args) {
    K_SHARED(uint32_t, shared);
    product_tile t = product_layout(shared);
    const int64_t tiles = args.tiles_down * args.tiles_across;
    for (int64_t i = blockIdx.x; i < args.directions * tiles; i += gridDim.x) {
        t.direction = i / tiles;
        t.row = i % tiles / args.tiles_across * SIDE;
        t.column = i % tiles % args.tiles_across * SIDE;
        K_BLOCK_LOOP(n, SIDE * SIDE + 2 * SIDE) {
            t.sum[n] = 0; /* and the two behind it */
        }
        __syncthreads();
        for (int64_t k = 0; k < args.w.depth; k += WORDS * 4) {
            product_load(&args, &t, k);
            __syncthreads();
            product_add(&t);
            __syncthreads();
        }
        product_write(&args, &t);
        __syncthreads();
    }
}
