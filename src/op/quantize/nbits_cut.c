/* nbits_cut.c - see nbits_cut.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/nbits_cut.h"

#include "base/macros.h"

enum {
    ARCH = 80,                /* whose tensor cores the kernel is written for */
    NEAR = 1 << 24,           /* of columns and of k: places are numbers of 32 bits */
    FIXED = 1 << 10,          /* shared memory that the device keeps for itself */
    ROWS_MIN = 2,             /* one row has kernels of its own */
    FEW = K_NBITS_MMA_ROWS,   /* up to so many rows, ... */
    FEW_COUNT_MIN = 48 << 20, /* ... with fewer weights than these, blocks are done sooner that have
                               * fewer columns each */
    FLOAT_FEW = K_NBITS_ROWS, /* up to so many rows of floats have a kernel of their own, ... */
    FLOAT_MOST = 32,          /* ... and each tile of theirs unpacks weights for few rows */
};

/* Up to how many rows: beyond, weights are unpacked and left to the library's products sooner,
 * which are made at twice the rate, but write numbers out and read them again. Measured on an H100.
 */
static int64_t rows_max(const mp_nbits_work *work) {
    const int64_t weights = work->n * work->k;
    const int64_t most = weights >= 32 << 20 ? 128 : weights >= 1 << 19 ? 64 : 32;
    return work->size == 4 ? MP_MIN(most, FLOAT_MOST) : most;
}

/* Whether there are so few rows that other kernels are sooner. */
static bool are_few(const mp_nbits_work *work) {
    return work->size == 4 ? work->m <= FLOAT_FEW
                           : work->m <= FEW && work->n * work->k < FEW_COUNT_MIN;
}

/* Lays out shared memory for tiles of so many rows; its bytes. */
static int64_t lay_out(const mp_nbits_work *work, int32_t rows, mp_nbits_cut *cut) {
    const int32_t columns = K_NBITS_TILE_COLUMNS * 2; /* of two spans */
    const int32_t size = work->size;
    const int32_t scale =
        K_NBITS_TILE_AHEAD(work->bits, rows, size) * K_NBITS_TILE_STAGE(work->bits, rows, size);
    const int32_t zero = scale + columns * K_NBITS_TILE_SCALE(size);
    const int32_t bias = zero + (work->zeros ? columns * K_NBITS_TILE_ZERO : 0);
    cut->rows = rows;
    cut->shared = (k_nbits_shared){
        .bytes = bias + K_NBITS_TILE_COLUMNS * size, .scale = scale, .zero = zero, .sums = bias};
    return cut->shared.bytes;
}

/* What takes its time on a multiprocessor, in parts of what a stage takes from memory. */
enum {
    STAGE = 64,
    STAGE_ALONE = 80, /* of a block that has nobody beside while it waits for its own lanes */
    GIVEN_ROW = 1,    /* of a tile, whose sums another block finishes */
    BESIDE = 192,     /* to begin, to meet and to end; blocks beside one another do so together */
    TOGETHER = 2,     /* blocks that find room */
};

/* How many blocks share the sums of a tile, that multiprocessors are done soonest. */
static int32_t splits_log_of(const mp_device_info *info, int64_t k, int64_t tiles, int32_t rows) {
    const int64_t stages = MP_CEIL_DIV(k, K_NBITS_CHUNK * K_NBITS_TILE_CHUNKS);
    const int64_t most = MP_MIN(info->cluster_blocks_max, K_NBITS_TILE_SPLITS_MAX);
    int32_t best = 0;
    int64_t least = INT64_MAX;
    for (int32_t log = 0; log == 0 || 1 << log <= MP_MIN(most, stages); log++) {
        const int64_t turns = MP_CEIL_DIV(tiles << log, (int64_t)info->multiprocessors);
        const int64_t each = MP_CEIL_DIV(stages, (int64_t)1 << log);
        const int64_t cost =
            turns * (each * (turns == 1 ? STAGE_ALONE : STAGE) + (log > 0 ? rows * GIVEN_ROW : 0)) +
            MP_CEIL_DIV(turns, TOGETHER) * BESIDE;
        if (cost < least) {
            least = cost;
            best = log;
        }
    }
    return best;
}

bool mp_nbits_cut_for(const mp_device_info *info, const mp_nbits_work *work, mp_nbits_cut *out) {
    const int64_t room = (int64_t)info->shared_bytes_max - FIXED;
    const int64_t columns = work->gated ? work->n / 2 : work->n;
    const int64_t across = work->gated ? K_NBITS_TILE_COLUMNS / 2 : K_NBITS_TILE_COLUMNS;
    if (info->arch < ARCH || work->m < ROWS_MIN || work->n > NEAR || work->k > NEAR ||
        work->m > rows_max(work) || work->n * work->k / 128 * work->bits > UINT32_MAX / 2 ||
        are_few(work)) {
        return false;
    }
    int32_t rows = K_NBITS_MMA_ROWS;
    while (rows < work->m && rows < K_NBITS_TILE_ROWS(work->size)) {
        rows *= 2;
    }
    while (lay_out(work, rows, out) > room && rows > K_NBITS_MMA_ROWS) {
        rows /= 2;
    }
    const int64_t tiles = MP_CEIL_DIV(columns, across) * MP_CEIL_DIV(work->m, (int64_t)rows);
    out->splits_log = splits_log_of(info, work->k, tiles, rows);
    out->blocks = (uint32_t)(tiles << out->splits_log);
    return out->shared.bytes <= room;
}
