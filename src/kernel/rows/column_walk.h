/* column_walk.h - sums over rows of whole aligned packs of 16 bytes, by lanes one below the other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_COLUMN_WALK_H
#define MP_KERNEL_COLUMN_WALK_H

#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"

/* Packs on their way to a lane, of many rows and of few. */
enum { AT_ONCE = K_HOST ? 1 : 8, FEW = K_HOST ? 1 : 4 };

typedef struct K_ALIGN(16) c_sums {
    K_SUM at[K_PACK];
} c_sums;

K_FN void c_add(c_sums *sums, const k_pack *pack) {
    float value[K_PACK];
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        T_unpack(pack->words.at[i], value + i * K_WORD);
    }
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        sums->at[i] += (K_SUM)value[i];
    }
}

/* Adds rows row, row + step, ... of the columns at x, `count` of them: those before `end`. The
 * first one stands in for those that there are not, so that no load waits for a branch. */
K_FN void c_some(c_sums *sums, const T *x, int64_t line, int32_t row, int32_t end, int32_t step,
                 int count) {
    k_pack pack[AT_ONCE];
    K_UNROLL
    for (int k = 0; k < count; k++) {
        const int32_t at = row + k * step < end ? row + k * step : row;
        pack[k].words = ((const k_pack *)(x + at * line))->words;
    }
    K_UNROLL
    for (int k = 0; k < count; k++) {
        K_UNROLL
        for (int i = 0; i < 4; i++) {
            pack[k].words.at[i] = row + k * step < end ? pack[k].words.at[i] : 0;
        }
        c_add(sums, &pack[k]);
    }
}

/* Rows first, first + step, ... before end of the columns at x. */
K_FN c_sums c_walk(const T *x, int64_t line, int32_t first, int32_t end, int32_t step) {
    c_sums sums = {{0}};
    int32_t row = first;
    K_ONE_COPY
    for (; row < end - (AT_ONCE - 1) * step; row += AT_ONCE * step) {
        c_some(&sums, x, line, row, end, step, AT_ONCE);
    }
    K_ONE_COPY
    for (; row < end; row += FEW * step) {
        c_some(&sums, x, line, row, end, step, FEW);
    }
    return sums;
}

/* Of the numbers that `below` lanes have of a column, each `columns` behind the last: those of
 * lanes part, part + parts, ... As many as a pack has elements, since so many times more numbers
 * than lanes there are. */
K_FN K_SUM c_part(const K_SUM *column, uint32_t columns, uint32_t part, uint32_t parts,
                  uint32_t below) {
    K_SUM sum = 0;
    K_UNROLL
    for (uint32_t k = 0; k < K_PACK; k++) {
        const uint32_t row = part + k * parts;
        sum += row < below ? column[row * columns] : 0;
    }
    return sum;
}

/* The sum of a column's parts. */
K_FN K_SUM c_join(const K_SUM *column, uint32_t columns, uint32_t parts) {
    K_SUM sum = 0;
    for (uint32_t part = 0; part < parts; part++) {
        sum += column[part * columns];
    }
    return sum;
}

#endif
