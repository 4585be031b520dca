/* nbits_row.h - a row in shared memory that packed integers are multiplied with by tensor cores:
 * packs of eight elements in the order of p_units(), and behind them the sum of each chunk, times
 * P_UNIT, by which zero points are taken off behind the products.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_ROW_H
#define MP_KERNEL_NBITS_ROW_H

#include "kernel/core/row_lanes.h"
#include "kernel/quantize/nbits_pair.h"

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
