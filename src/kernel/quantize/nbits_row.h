/* nbits_row.h - one row times packed integers by tensor cores, chunk by chunk. The row lies in
 * packs of eight elements in the order of p_units(); in shared memory there may be behind them the
 * sum of each chunk, times P_UNIT, by which zero points are taken off behind the products.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_ROW_H
#define MP_KERNEL_NBITS_ROW_H

#include "kernel/core/row_lanes.h"
#include "kernel/quantize/nbits_pair.h"

#define n_product K_JOIN(k_mma_, K_T0)

/* Pack `i` of the row, and the sum of each chunk, of whose four packs neighbouring lanes have one
 * each. All lanes of a warp call. */
K_FN void n_row_put(k_pack *row, int32_t packs, int32_t i, k_pack pack) {
    float *sums = (float *)(void *)(row + packs);
    float sum = 0;
    K_UNROLL
    for (int32_t w = 0; w < 4; w++) {
        float two[K_WORD];
        T_unpack(pack.words.at[w], two);
        sum += two[0] + two[1];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (i < packs) {
        k_pack turned;
        p_units_turned(pack.words.at, turned.words.at);
        row[i].words = turned.words;
        if (i % 4 == 0) {
            sums[i / 4] = sum * P_UNIT;
        }
    }
}

enum {
    N_ROW_PARTS = K_NBITS_CHUNK / K_PACK,           /* of a chunk: what a lane has in a product */
    N_ROW_PIECES = K_NBITS_CHUNK * K_BITS / 8 / 16, /* of 16 bytes, of a chunk of weights */
};

/* A chunk of weights. */
typedef union n_weights {
    struct K_ALIGN(16) {
        uint32_t at[4];
    } pieces[N_ROW_PIECES];
    p_words parts[N_ROW_PARTS];
} n_weights;

/* Adds the products of part `i` of chunks, one of each lane and of either half of the left
 * operand's rows; sums of the second kind are P_HIGH times what they should be. `mask`: of the bits
 * of two weights in a word. */
K_FN void n_products(const n_weights *weights, int32_t i, const k_pack *x, uint32_t mask,
                     float (*sum)[4]) {
    uint32_t p[2][4];
    p_units(weights[0].parts[i], mask, p[0]);
    p_units(weights[1].parts[i], mask, p[1]);
    K_UNROLL
    for (int32_t k = 0; k < 2; k++) {
        const uint32_t a[4] = {p[0][k * 2], p[1][k * 2], p[0][k * 2 + 1], p[1][k * 2 + 1]};
        n_product(sum[k], a, x->words.at + k * 2);
    }
}

/* A column: its packed weights, zero points, which may be NULL, and scales. */
typedef struct n_column {
    const uint8_t *weight, *zero;
    const T *scale;
    int32_t k, block_shift;
} n_column;

/* A sum that is not finite, once more by plain products: a chunk's sum of the row is not either,
 * and zero points times it are taken off where single products may stay. `middle`: the zero point
 * of a column that has none. */
K_FN float n_again(const n_column *column, int32_t middle, const k_pack *packs) {
    enum { MASK = (1 << K_BITS) - 1 };
    const T *row = (const T *)(const void *)packs;
    float total = 0;
    K_ONE_COPY
    for (int32_t k = 0; k < column->k && total == total; k++) {
        const int32_t block = k >> column->block_shift, bit = k * K_BITS, of = block * K_BITS;
        const int32_t q = column->weight[bit / 8] >> bit % 8 & MASK;
        const int32_t z = column->zero != 0 ? column->zero[of / 8] >> of % 8 & MASK : middle;
        total += (float)(q - z) * T_load(column->scale[block]) * T_load(row[p_units_place(k)]);
    }
    return total;
}

#endif
