/* integer_tile.h - tiles of two matrices of 8-bit integers in shared memory, as words of four
 * neighbours along k, as signed bytes. B is a matrix, or (K_CONV) what the windows of an image see.
 *
 * Words of one place along k lie beside each other, those of a line (a row of A, a column of B)
 * PITCH apart. Every four places along k the lines change places in groups of eight: so four words
 * of eight lines each go to 32 banks, both those that a warp stores (four neighbours along k at
 * once) and those that tensor cores want (integer_sum.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INTEGER_TILE_H
#define MP_KERNEL_INTEGER_TILE_H

#include "kernel/quantize/integer.h"

enum {
    TILE = K_TILE,
    PITCH = TILE + 8,
    SQUARE = K_INTEGER_SIDE,
    ACROSS = TILE / SQUARE,
    WORDS = K_INTEGER_DEPTH(K_TILE),
    A_PIECES = TILE * WORDS / SQUARE,
    B_PIECES = ACROSS * WORDS,
};

typedef struct tile {
    uint32_t *a, *b;         /* WORDS * PITCH each */
    uint32_t *a_sum, *b_sum; /* TILE each */
    uint32_t *sum;           /* where sums are not in registers */
    const uint8_t *from_a, *from_b;
    int64_t row, column; /* of the tile's corner */
    int64_t at[2];       /* which matrix of A, of B */
    uint32_t padding;    /* what B has beyond an image */
} tile;

/* Where a word lies. */
K_FN int32_t t_cell(int32_t word, int32_t line) {
    return word * PITCH + (line ^ (word >> 2 & 3) << 3);
}

K_FN i_four t_none(void) {
    i_four none;
    for (int e = 0; e < 4; e++) {
        none.of[e] = 0;
    }
    return none;
}

/* ---- A: a piece is four words of a row ---- */

K_FN i_four a_piece(const mp_integer_args *args, const tile *t, int64_t first, int32_t i) {
    const int32_t r = i / (WORDS / 4), w = i % (WORDS / 4) * 4;
    const k_integer_side *side = &args->side[0];
    const int64_t k = first + w * 4, left = args->k - k;
    i_four piece = t_none();
    if (t->row + r >= args->m || left <= 0) {
        return piece;
    }
    const uint8_t *at = t->from_a + (t->row + r) * args->k + k;
    if (side->words == 4) {
        piece = *(const i_four *)(const void *)at;
        for (int e = 0; e < 4; e++) {
            piece.of[e] ^= side->flip;
        }
        return piece;
    }
    for (int e = 0; e < 4; e++) {
        if (left > e * 4) {
            piece.of[e] = i_word(at + e * 4, left - e * 4, side->words, side->flip);
        }
    }
    return piece;
}

K_FN void a_keep(const tile *t, int32_t i, const i_four *piece) {
    const int32_t r = i / (WORDS / 4), w = i % (WORDS / 4) * 4;
    for (int e = 0; e < 4; e++) {
        t->a[t_cell(w + e, r)] = piece->of[e];
    }
}

/* ---- B: a piece is four columns at one place along k ---- */

#if K_CONV
K_FN i_four b_piece(const mp_integer_args *args, const tile *t, int64_t first, int32_t i) {
    const k_integer_window *window = &args->window;
    const int64_t k = first + i / ACROSS * 4, column = t->column + i % ACROSS * SQUARE;
    int32_t corner[SQUARE][3];
    i_four piece = t_none();
    for (int c = 0; c < SQUARE; c++) {
        i_corner(window, column + c, corner[c]);
    }
    for (int e = 0; e < 4; e++) {
        int32_t place[3];
        const int64_t channel = i_place(window, k + e, place);
        for (int c = 0; c < SQUARE; c++) {
            uint32_t byte = 0;
            if (k + e < args->k && column + c < args->n) {
                const int32_t at = i_offset(window, corner[c], place);
                byte = at < 0 ? t->padding
                              : (t->from_b[channel * window->channel + at] ^ args->side[1].flip) &
                                    0xffu;
            }
            piece.of[c] |= byte << e * 8;
        }
    }
    return piece;
}
#else
K_FN i_four b_piece(const mp_integer_args *args, const tile *t, int64_t first, int32_t i) {
    const int64_t k = first + i / ACROSS * 4, column = t->column + i % ACROSS * SQUARE;
    const int64_t left = args->n - column;
    uint32_t row[4] = {0, 0, 0, 0};
    i_four piece = t_none();
    for (int e = 0; e < 4; e++) {
        if (k + e < args->k && left > 0) {
            row[e] = i_word(t->from_b + (k + e) * args->n + column, left, args->side[1].words,
                            args->side[1].flip);
        }
    }
    i_transpose(row, piece.of);
    return piece;
}
#endif

K_FN void b_keep(const tile *t, int32_t i, const i_four *piece) {
    *(i_four *)(void *)(t->b + t_cell(i / ACROSS, i % ACROSS * SQUARE)) = *piece;
}

#endif
