/* integer_sum.h - the sums of a tile: of products, and of the lines, by which zero points are taken
 * off in the end.
 *
 * From 8.0 on tensor cores make them: eight warps share the tile, two by four, and each holds its
 * sums in registers, in squares of 16 x 8. A GPU before that has a lane multiply four rows by four
 * columns; where tiles are small, GROUPS lanes share the words of one such square.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INTEGER_SUM_H
#define MP_KERNEL_INTEGER_SUM_H

#include "kernel/core/warp_matrix.h"
#include "kernel/quantize/integer_tile.h"

/* ---- lines ---- */

/* Those of a side are wanted where the other one has a zero point. */
K_FN void add_lines(const mp_integer_args *args, const tile *t) {
    const int32_t from = i_has_zero(&args->side[1]) ? 0 : TILE;
    const int32_t to = i_has_zero(&args->side[0]) ? 2 * TILE : TILE;
    K_BLOCK_LOOP(n, to - from) {
        const int32_t i = from + (int32_t)n, line = i % TILE;
        const uint32_t *words = i < TILE ? t->a : t->b;
        uint32_t total = t->a_sum[i]; /* b_sum is behind it */
        for (int w = 0; w < WORDS; w++) {
            total = i_dot(words[t_cell(w, line)], 0x01010101u, total);
        }
        t->a_sum[i] = total;
    }
}

#if K_WARP_MATRIX

/* ---- by tensor cores ---- */

enum {
    HIGH = TILE / 32, /* squares of a warp, one below the other */
    WIDE = TILE / 32, /* and beside each other */
};

typedef struct sums {
    int32_t of[HIGH][WIDE][4];
} sums;

/* Eight words along k. Lines are counted in eights: the place of one among them, like that of a
 * word among four, is only added, so that the rest is known when the text is compiled. */
K_FN void multiply_eight(const tile *t, int32_t lane, int32_t first, sums *out) {
    const int32_t row = lane / 128 * (TILE / 2), column = lane / 32 % 4 * (TILE / 4);
    const uint32_t *of_a = t->a + lane % 4 * PITCH + lane % 32 / 4;
    const uint32_t *of_b = t->b + lane % 4 * PITCH + lane % 32 / 4;
    uint32_t b[WIDE][2];
#pragma unroll
    for (int x = 0; x < WIDE; x++) {
        b[x][0] = of_b[t_cell(first, column + x * 8)];
        b[x][1] = of_b[t_cell(first + 4, column + x * 8)];
    }
#pragma unroll
    for (int y = 0; y < HIGH; y++) {
        const uint32_t a[4] = {
            of_a[t_cell(first, row + y * 16)], of_a[t_cell(first, row + y * 16 + 8)],
            of_a[t_cell(first + 4, row + y * 16)], of_a[t_cell(first + 4, row + y * 16 + 8)]};
#pragma unroll
        for (int x = 0; x < WIDE; x++) {
            k_mma_i8(out->of[y][x], a, b[x]);
        }
    }
}

K_FN void multiply(const tile *t, int32_t lane, sums *out) {
#pragma unroll
    for (int32_t w = 0; w < WORDS; w += 8) {
        multiply_eight(t, lane, w, out);
    }
}

/* ---- a line of the warps' squares in shared memory ---- */

enum { S_LINE_ROWS = 2 * 16 }; /* two warps have squares below each other */

/* The row of the tile that row `r` of line `y` is. */
K_FN int32_t s_row_of(int32_t r, int32_t y) {
    return r / 16 * (TILE / 2) + y * 16 + r % 16;
}

/* Writes line `y` where the words of A were, rows PITCH apart. */
K_FN void s_line_keep(const tile *t, int32_t lane, int32_t y, const sums *sum) {
    uint32_t *corner = t->a + (lane / 128 * 16 + lane % 32 / 4) * PITCH +
                       lane / 32 % 4 * (TILE / 4) + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < HIGH; h++) {
#pragma unroll
        for (int x = 0; x < WIDE * 4; x++) {
            if (h == y) {
                corner[x % 4 / 2 * 8 * PITCH + x / 4 * 8 + x % 2] =
                    (uint32_t)sum->of[h][x / 4][x % 4];
            }
        }
    }
}

#else

/* ---- by words ---- */

enum { SQUARES = ACROSS * ACROSS };
enum { GROUPS = SQUARES < K_INTEGER_LANES ? K_INTEGER_LANES / SQUARES : 1 };

typedef struct sums {
    uint32_t of[SQUARE * SQUARE];
} sums;

K_FN void multiply(const tile *t, int32_t lane, sums *out) {
    const int32_t square = lane % SQUARES;
    const int32_t row = square / ACROSS * SQUARE, column = square % ACROSS * SQUARE;
    for (int32_t w = lane / SQUARES; w < WORDS; w += GROUPS) {
        const i_four x = *(const i_four *)(const void *)(t->a + t_cell(w, row));
        const i_four y = *(const i_four *)(const void *)(t->b + t_cell(w, column));
        for (int i = 0; i < SQUARE * SQUARE; i++) {
            out->of[i] = i_dot(x.of[i / SQUARE], y.of[i % SQUARE], out->of[i]);
        }
    }
}

/* To where every lane finds a lane's sums in the end: [group][row][column]. */
K_FN void sums_keep(const tile *t, int32_t lane, const sums *sum) {
    const int32_t square = lane % SQUARES;
    uint32_t *place = t->sum + lane / SQUARES * (TILE * TILE) + square / ACROSS * SQUARE * TILE +
                      square % ACROSS * SQUARE;
    for (int i = 0; i < SQUARE * SQUARE; i++) {
        place[i / SQUARE * TILE + i % SQUARE] = sum->of[i];
    }
}

K_FN uint32_t sum_at(const tile *t, int32_t i) {
    uint32_t sum = 0;
    for (int g = 0; g < GROUPS; g++) {
        sum += t->sum[g * (TILE * TILE) + i];
    }
    return sum;
}

#endif

#endif
