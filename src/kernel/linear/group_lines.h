/* group_lines.h - lines of 128 bytes along k that a group of four warps copies into shared memory,
 * as group_matrix.h wants right operands, and from which it takes left ones.
 *
 * A chunk is K_ROWS_WGMMA_CHUNK bytes along k: of a matrix whose rows lie along k a piece of each,
 * of others some whole rows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GROUP_LINES_H
#define MP_KERNEL_GROUP_LINES_H

#include "kernel/core/group_matrix.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/linear/linear_args.h"

enum {
    L_GROUP = 128,
    L_CHUNK = K_ROWS_WGMMA_CHUNK,
    L_PIECE = 16, /* bytes of a copy */
    L_PIECES = L_CHUNK / L_PIECE,
    L_LINES = L_GROUP / L_PIECES, /* that a group copies at once */
    L_DEPTH = L_CHUNK / sizeof(T),
    L_STEP = 32, /* bytes along k of a product */
    L_STEPS = L_CHUNK / L_STEP,
};

/* The first place in a block's shared memory where lines may begin. */
K_FN uint8_t *l_ring(uint8_t *shared) {
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(shared);
    return shared + (-place & (K_ROWS_WGMMA_ALIGN - 1));
}

/* Lines that a lane copies a piece of each: where that of its first line of the first chunk lies,
 * what it is to L_LINES lines further and to the next chunk, and how many lines, from the lane's
 * first on, there are. */
typedef struct l_side {
    const uint8_t *from;
    int64_t lines, chunk;
    int32_t left;
} l_side;

/* Within lines: where piece `piece` of line `line` lies. */
K_FN int32_t l_spot(int32_t line, int32_t piece) {
    return line * L_CHUNK + (piece ^ (line & 7)) * L_PIECE;
}

/* Lines from `first` on, `pitch` bytes apart, that a chunk has L_CHUNK bytes of. */
K_FN l_side l_side_of(const void *matrix, int64_t pitch, int32_t first, int32_t count,
                      int32_t lane) {
    const int32_t line = lane / L_PIECES, piece = lane % L_PIECES;
    l_side x;
    x.from = (const uint8_t *)matrix + (first + line) * pitch + piece * L_PIECE;
    x.lines = L_LINES * pitch;
    x.chunk = L_CHUNK;
    x.left = count - line;
    return x;
}

/* `count` lines of a chunk to `to`, where the lane's first piece lies; those that are not there
 * become 0, and all of them where `is` is 0. */
K_FN void l_fill(const l_side *side, int32_t chunk, int32_t count, int32_t left, int is,
                 uint8_t *to) {
    const uint8_t *from = side->from + chunk * side->chunk;
    left = is ? left : 0;
    K_UNROLL
    for (int32_t i = 0; i < count; i += L_LINES) {
        const int there = i < left;
        k_copy_begin(to + i * L_CHUNK, there ? from : side->from, there ? L_PIECE : 0);
        from += side->lines;
    }
}

/* Where a lane begins to load the left operands of 64 lines. */
K_FN int32_t l_left_of(int32_t lane) {
    return l_spot(lane / 32 * 16 + lane % 16, lane % 32 / 16);
}

/* The left operands of 64 lines: of floats what TF32 keeps, and of the right ones products see no
 * more. `left`: l_left_of(). */
K_FN void l_load(const uint8_t *lines, int32_t left, uint32_t (*a)[4]) {
    K_UNROLL
    for (int32_t step = 0; step < L_STEPS; step++) {
        k_matrices_load(a[step], lines + (left ^ step * L_STEP));
    }
    K_UNROLL
    for (int32_t i = 0; sizeof(T) == 4 && i < L_STEPS * 4; i++) {
        a[i / 4][i % 4] = k_near_tf32(k_float_of_bits(a[i / 4][i % 4]));
    }
}

#endif
