/* rows_tile.h - the tile of a product of some rows that a block makes, and the units in which lanes
 * finish its results: K_ROWS x K_COLUMNS of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROWS_TILE_H
#define MP_KERNEL_ROWS_TILE_H

#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"

enum {
    R_SIZE = sizeof(T),
    R_PITCH = K_ROWS_MMA_PITCH(K_COLUMNS), /* floats of a row of sums */
    R_UNIT = 4,                            /* results of a lane at a time */
    R_ACROSS = K_COLUMNS / R_UNIT,
    R_WORDS = R_UNIT * R_SIZE / 4, /* of a unit in memory */
};

/* What a lane moves at once: sums of a unit; the unit as it is in memory. */
typedef struct K_ALIGN(16) r_four {
    float at[R_UNIT];
} r_four;

typedef struct K_ALIGN(R_UNIT * sizeof(T)) r_words {
    uint32_t at[R_WORDS];
} r_words;

/* The block's tile. */
typedef struct r_tile {
    const mp_rows_mma_args *args;
    int32_t row, column;   /* its first */
    int32_t rows, columns; /* that there are from there on */
    int32_t rank;          /* the block among those of its tile */
} r_tile;

K_FN r_tile r_tile_of(const mp_rows_mma_args *args) {
    const uint32_t tile = blockIdx.x >> args->splits_log;
    const uint32_t across = tile / (uint32_t)args->row_tiles;
    r_tile at;
    at.args = args;
    at.row = (int32_t)(tile - across * (uint32_t)args->row_tiles) * K_ROWS;
    at.column = (int32_t)across * K_COLUMNS;
    at.rows = args->m - at.row;
    at.columns = args->n - at.column;
    at.rank = (int32_t)blockIdx.x & ((1 << args->splits_log) - 1);
    return at;
}

#endif
