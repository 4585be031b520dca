/* ordered.h - where an element of a matrix lies in cuBLASLt's orders, and how bytes are rounded.
 *
 * But for COL and ROW, columns come in tiles of 32, one tile behind the other:
 *     COL32           a row of 32 after the other
 *     COL4_4R2_8C     in parts of 8 rows: even rows, then odd ones; of each 4 columns at a time, of
 *                     4 rows
 *     COL32_2R_4R4    in parts of 32 rows, which take turns: 0, 1, 8, 9, 16, 17, 24, 25, 2, 3, ...
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ORDERED_H
#define MP_KERNEL_ORDERED_H

#include "kernel/core/prelude.h"
#include "kernel/quantize/ordered_args.h"

K_FN int64_t o_place(int32_t order, int64_t rows, int64_t columns, int64_t row, int64_t column) {
    const int64_t tile = column / 32 * 32 * rows, in = column % 32;
    switch (order) {
    case K_ORDER_COL:
        return column * rows + row;
    case K_ORDER_COL32:
        return tile + row * 32 + in;
    case K_ORDER_COL4_4R2_8C:
        return tile + row / 8 * 256 + row % 2 * 128 + in / 4 * 16 + row % 8 / 2 * 4 + in % 4;
    case K_ORDER_COL32_2R_4R4: {
        const int64_t r = row % 32;
        return tile + row / 32 * 1024 + ((r % 8 / 2 * 4 + r / 8) * 2 + r % 2) * 32 + in;
    }
    default:
        return row * columns + column;
    }
}

/* To the nearest, halves to even; NaN is the lowest. */
K_FN int8_t o_byte(float x) {
    const float from_below = x > -128.0f ? x : -128.0f;
    return (int8_t)rintf(from_below < 127.0f ? from_below : 127.0f);
}

K_FN float o_scale(const void *scale) {
    return scale ? *(const float *)scale : 1.0f;
}

#endif
