/* integer_product.cu - products of matrices of 8-bit integers, summed in 32 bits that wrap. B is a
 * matrix, or (K_CONV) what the windows of an image see.
 *
 * Tiles of both sides lie in shared memory as words of four neighbours along k, as signed bytes:
 *     a [word][row], b [word][column]
 * A lane multiplies 4 rows by 4 columns; where tiles are small, GROUPS lanes share the words of one
 * such square. Zero points are taken off at the end, by the sums of the rows of A and of the
 * columns of B. On a GPU a block has K_INTEGER_LANES lanes and sums stay in registers; the emulated
 * device keeps them where they all end: in shared memory, behind the tiles.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/quantize/integer.h"

enum {
    TILE = K_TILE,
    PITCH = TILE + 4, /* keeps squares aligned and puts words into other banks */
    SQUARE = K_INTEGER_SIDE,
    ACROSS = TILE / SQUARE,
    SQUARES = ACROSS * ACROSS,
    GROUPS = K_INTEGER_LANES / SQUARES,
    WORDS = K_INTEGER_WORDS / TILE,
};

typedef struct tile {
    uint32_t *a, *b;         /* WORDS * PITCH each */
    uint32_t *a_sum, *b_sum; /* TILE each */
    uint32_t *sum;           /* GROUPS * TILE * TILE */
    const uint8_t *from_a, *from_b;
    int64_t row, column; /* of the tile's corner */
    int64_t at[2];       /* which matrix of A, of B */
    uint32_t padding;    /* what B has beyond an image, four times */
} tile;

/* ---- loading ---- */

K_FN void load_a(const mp_integer_args *args, const tile *t, int64_t first) {
    const uint32_t flip = args->side[0].flip;
    K_BLOCK_LOOP(i, TILE * WORDS) {
        const int64_t r = i / WORDS, w = i % WORDS, k = first + w * 4;
        const int64_t left = args->k - k;
        uint32_t word = 0;
        if (t->row + r < args->m && left > 0) {
            const uint8_t *at = t->from_a + (t->row + r) * args->k + k;
            word = i_word(at, left, args->side[0].words, flip);
        }
        t->a[w * PITCH + r] = word;
    }
}

/* Four rows along k and four columns at a time. */
#if K_CONV
K_FN void load_square(const mp_integer_args *args, const tile *t, int64_t k, int64_t column,
                      uint32_t *word) {
    const k_integer_window *window = &args->window;
    int32_t corner[SQUARE][3];
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
            word[c] |= byte << e * 8;
        }
    }
}
#else
K_FN void load_square(const mp_integer_args *args, const tile *t, int64_t k, int64_t column,
                      uint32_t *word) {
    uint32_t row[4] = {0, 0, 0, 0};
    const int64_t left = args->n - column;
    for (int e = 0; e < 4; e++) {
        if (k + e < args->k && left > 0) {
            row[e] = i_word(t->from_b + (k + e) * args->n + column, left, args->side[1].words,
                            args->side[1].flip);
        }
    }
    i_transpose(row, word);
}
#endif

K_FN void load_b(const mp_integer_args *args, const tile *t, int64_t first) {
    K_BLOCK_LOOP(i, ACROSS * WORDS) {
        const int64_t w = i / ACROSS, c = i % ACROSS * SQUARE;
        i_four all;
        for (int e = 0; e < SQUARE; e++) {
            all.of[e] = 0;
        }
        load_square(args, t, first + w * 4, t->column + c, all.of);
        *(i_four *)(void *)(t->b + w * PITCH + c) = all;
    }
}

/* ---- summing ---- */

/* Rows of `sum` are `pitch` apart. */
K_FN void multiply(const tile *t, int64_t lane, uint32_t *sum, int32_t pitch) {
    const int64_t square = lane % SQUARES;
    const uint32_t *a = t->a + square / ACROSS * SQUARE;
    const uint32_t *b = t->b + square % ACROSS * SQUARE;
    uint32_t total[SQUARE * SQUARE];
    for (int i = 0; i < SQUARE * SQUARE; i++) {
        total[i] = sum[i / SQUARE * pitch + i % SQUARE];
    }
    for (int64_t w = lane / SQUARES; w < WORDS; w += GROUPS) {
        const i_four x = *(const i_four *)(const void *)(a + w * PITCH);
        const i_four y = *(const i_four *)(const void *)(b + w * PITCH);
        for (int i = 0; i < SQUARE * SQUARE; i++) {
            total[i] = i_dot(x.of[i / SQUARE], y.of[i % SQUARE], total[i]);
        }
    }
    for (int i = 0; i < SQUARE * SQUARE; i++) {
        sum[i / SQUARE * pitch + i % SQUARE] = total[i];
    }
}

K_FN void add_lines(const tile *t) {
    K_BLOCK_LOOP(i, 2 * TILE) {
        const uint32_t *from = i < TILE ? t->a + i : t->b + (i - TILE);
        uint32_t *sum = i < TILE ? t->a_sum + i : t->b_sum + (i - TILE);
        uint32_t total = *sum;
        for (int w = 0; w < WORDS; w++) {
            total = i_dot(from[w * PITCH], 0x01010101u, total);
        }
        *sum = total;
    }
}

/* Where every lane finds a lane's sums in the end: [group][row][column]. */
K_FN uint32_t *place_of(const tile *t, int64_t lane) {
    const int64_t square = lane % SQUARES;
    return t->sum + lane / SQUARES * (TILE * TILE) + square / ACROSS * SQUARE * TILE +
           square % ACROSS * SQUARE;
}

K_FN void sum_tile(const mp_integer_args *args, const tile *t) {
    const int lines = i_has_zero(&args->side[0]) || i_has_zero(&args->side[1]);
#if K_HOST
    K_BLOCK_LOOP(i, GROUPS * TILE * TILE) {
        t->sum[i] = 0;
    }
#else
    uint32_t sum[SQUARE * SQUARE] = {0};
#endif
    K_BLOCK_LOOP(i, 2 * TILE) {
        t->a_sum[i] = 0; /* b_sum is behind it */
    }
    for (int64_t first = 0; first < args->k; first += WORDS * 4) {
        load_a(args, t, first);
        load_b(args, t, first);
        __syncthreads();
#if K_HOST
        K_BLOCK_LOOP(lane, K_INTEGER_LANES) {
            multiply(t, lane, place_of(t, lane), TILE);
        }
#else
        multiply(t, threadIdx.x, sum, SQUARE);
#endif
        if (lines) {
            add_lines(t);
        }
        __syncthreads();
    }
#if !K_HOST
    uint32_t *place = place_of(t, threadIdx.x);
    for (int r = 0; r < SQUARE; r++) {
        for (int c = 0; c < SQUARE; c++) {
            place[r * TILE + c] = sum[r * SQUARE + c];
        }
    }
#endif
    __syncthreads();
}

/* ---- results ---- */

K_FN void put_tile(const mp_integer_args *args, const tile *t, int64_t matrix) {
    K_BLOCK_LOOP(i, TILE * TILE) {
        const int64_t r = i / TILE, c = i % TILE;
        const int64_t row = t->row + r, column = t->column + c;
        if (row >= args->m || column >= args->n) {
            continue;
        }
        uint32_t sum = 0;
        for (int g = 0; g < GROUPS; g++) {
            sum += t->sum[g * (TILE * TILE) + i];
        }
        const uint32_t a_zero = (uint32_t)i_zero(&args->side[0], t->at[0], row);
        const uint32_t b_zero = (uint32_t)i_zero(&args->side[1], t->at[1], column);
        sum += (uint32_t)args->k * a_zero * b_zero;
        sum -= a_zero * t->b_sum[c] + b_zero * t->a_sum[r];
        i_put(args, t->at, row, column, (int32_t)sum, (matrix * args->m + row) * args->n + column);
    }
}

K_BLOCK_KERNEL(mp_integer_args, args) {
    K_SHARED(uint32_t, shared);
    tile t;
    t.a = shared;
    t.b = t.a + WORDS * PITCH;
    t.a_sum = t.b + WORDS * PITCH;
    t.b_sum = t.a_sum + TILE;
    t.sum = t.b_sum + TILE;
    for (int64_t i = blockIdx.x; i < args.tiles; i += gridDim.x) {
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
        sum_tile(&args, &t);
        put_tile(&args, &t, matrix);
        __syncthreads();
    }
}
