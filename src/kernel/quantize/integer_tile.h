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

#include "kernel/core/late.h"
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
    int32_t *corner;         /* 3 * TILE; of the windows that the columns see, by dimension */
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

/* As it is in memory, zeros beyond the row: what is asked for is not looked at before it is kept.
 * `words` is what the side says, a constant where that was looked at before. */
K_FN i_four a_ask(const mp_integer_args *args, const tile *t, int64_t first, int32_t i,
                  int32_t words) {
    const int32_t r = i / (WORDS / 4), w = i % (WORDS / 4) * 4;
    const int64_t k = first + w * 4, left = t->row + r < args->m ? args->k - k : 0;
    const uint8_t *at = t->from_a + (t->row + r) * args->k + k;
    i_four piece = t_none();
    if (words == 4) {
        k_fetch(at, left > 0, piece.of);
        return piece;
    }
    for (int e = 0; e < 4; e++) {
        piece.of[e] = words ? i_ask(at + e * 4, left > e * 4) : i_bytes(at + e * 4, left - e * 4);
    }
    return piece;
}

K_FN void a_keep(const mp_integer_args *args, const tile *t, int64_t first, int32_t i,
                 const i_four *piece) {
    const int32_t r = i / (WORDS / 4), w = i % (WORDS / 4) * 4;
    const int64_t left = args->k - first - w * 4;
    for (int e = 0; e < 4; e++) {
        t->a[t_cell(w + e, r)] = piece->of[e] ^ i_flip(args->side[0].flip, left - e * 4);
    }
}

/* ---- B: a piece is four columns at one place along k ---- */

#if K_CONV
/* Finds the windows of the tile's columns, once for all that is summed. */
K_FN void b_find(const mp_integer_args *args, const tile *t) {
    K_BLOCK_LOOP(c, TILE) {
        int32_t corner[3];
        i_corner(&args->window, t->column + c, corner);
        for (int d = 0; d < 3; d++) {
            t->corner[d * TILE + c] = corner[d];
        }
    }
}

/* The bytes of all are asked for before one is looked at. */
K_FN i_four b_ask(const mp_integer_args *args, const tile *t, int64_t first, int32_t i,
                  int32_t words) {
    (void)words;
    const k_integer_window *window = &args->window;
    const int64_t k = first + i / ACROSS * 4;
    int32_t corner[SQUARE][3], at[4][SQUARE];
    uint32_t byte[4][SQUARE];
    i_four piece = t_none();
    K_UNROLL
    for (int d = 0; d < 3; d++) {
        const i_four of =
            *(const i_four *)(const void *)(t->corner + d * TILE + i % ACROSS * SQUARE);
        K_UNROLL
        for (int c = 0; c < SQUARE; c++) {
            corner[c][d] = (int32_t)of.of[c];
        }
    }
    K_UNROLL
    for (int e = 0; e < 4; e++) {
        int32_t place[3];
        const int64_t channel = i_place(window, k + e < args->k ? k + e : 0, place);
        const uint8_t *from = t->from_b + channel * window->channel;
        K_UNROLL
        for (int c = 0; c < SQUARE; c++) {
            at[e][c] = i_offset(window, corner[c], place);
            byte[e][c] = window->channel > 0 ? from[at[e][c] < 0 ? 0 : at[e][c]] : 0;
        }
    }
    K_UNROLL
    for (int e = 0; e < 4; e++) {
        K_UNROLL
        for (int c = 0; c < SQUARE; c++) {
            const uint32_t flipped = (byte[e][c] ^ args->side[1].flip) & 0xffu;
            const uint32_t seen = at[e][c] < 0 ? t->padding : flipped;
            piece.of[c] |= k + e < args->k ? seen << e * 8 : 0u;
        }
    }
    return piece;
}

K_FN i_four b_turned(const mp_integer_args *args, int64_t k, const i_four *piece) {
    (void)args;
    (void)k;
    return *piece;
}
#else
K_FN void b_find(const mp_integer_args *args, const tile *t) {
    (void)args;
    (void)t;
}

/* Rows along k, as they are in memory, zeros beyond the matrix. */
K_FN i_four b_ask(const mp_integer_args *args, const tile *t, int64_t first, int32_t i,
                  int32_t words) {
    const int64_t k = first + i / ACROSS * 4, column = t->column + i % ACROSS * SQUARE;
    const int64_t left = args->n - column;
    i_four piece = t_none();
    for (int e = 0; e < 4; e++) {
        const uint8_t *at = t->from_b + (k + e) * args->n + column;
        const int is = k + e < args->k && left > 0;
        piece.of[e] = words ? i_ask(at, is) : i_bytes(at, is ? left : 0);
    }
    return piece;
}

K_FN i_four b_turned(const mp_integer_args *args, int64_t k, const i_four *piece) {
    uint32_t row[4];
    i_four turned = t_none();
    for (int e = 0; e < 4; e++) {
        row[e] = piece->of[e] ^ (k + e < args->k ? args->side[1].flip : 0u);
    }
    i_transpose(row, turned.of);
    return turned;
}
#endif

K_FN void b_keep(const mp_integer_args *args, const tile *t, int64_t first, int32_t i,
                 const i_four *piece) {
    const int32_t w = i / ACROSS;
    *(i_four *)(void *)(t->b + t_cell(w, i % ACROSS * SQUARE)) =
        b_turned(args, first + w * 4, piece);
}

#endif
