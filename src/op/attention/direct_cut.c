/* direct_cut.c - how attention_direct.cu cuts its work. A unit of time is what one of a
 * multiprocessor's four schedulers takes for the products of 16 rows with a step of keys and of
 * values. A warp by itself waits for what it has asked for, so that its step takes as long as those
 * of two. Blocks that come up at a time share the way by which tiles are loaded. The figures are
 * fitted to twelve cuts of attention over 1,024 keys on an H100, causal or not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/direct_cut.h"

#include "kernel/attention/attention_args.h"

enum {
    STEP = 64, /* keys that time is counted by */
    SCHEDULERS = 4,
    WARPS_BUSY = 2, /* of a scheduler, below which it waits */
    SETS_MAX = 4,
    ROW_WARPS_MAX = 8,
    SHORT = 64,          /* head */
    HALF = 2,            /* bytes of an element that time is counted by */
    BLOCK_RESERVE = 1024 /* bytes of shared memory that each block takes beside its own */
};

static const double load_time = 0.5;     /* of a step's keys and values, while products go on */
static const double wide_factor = 1.2;   /* warps of 32 rows are few, and wait longer */
static const double barrier_time = 0.15; /* of a tile */
static const double alone_time = 1;      /* the same where no other block goes on meanwhile */
static const double copy_time = 0.01;    /* of a row of keys or values, by one warp */
static const double block_time = 5;      /* before the first tile and after the last one */
static const double meet_time = 0.75;    /* of a set of warps that hands on 16 rows */

int32_t mp_direct_added(const mp_direct_work *work, const mp_direct_cut *cut) {
    return work->added ? (int32_t)MP_ALIGN_UP(work->keys, (int64_t)cut->share * cut->sets) : 0;
}

static size_t shared_bytes(const mp_direct_work *work, const mp_direct_cut *cut) {
    enum { LANES = 32, STATE = 4 /* floats of a lane beside its sums */ };
    const int64_t pitch = (int64_t)work->head * work->size + 16;
    const int64_t rows = (int64_t)cut->rows * cut->row_warps;
    const int64_t keys = (int64_t)cut->share * cut->sets;
    const int64_t tiles = (work->keys > keys ? 2 : 1) * 2 * keys * pitch;
    const int64_t sums =
        (int64_t)(cut->sets - 1) * cut->row_warps * LANES * (work->head / 2 + STATE) * 4;
    return (size_t)(rows * cut->sets * K_DIRECT_ROW_BYTES + mp_direct_added(work, cut) * 4 +
                    rows * pitch + MP_MAX(tiles, sums));
}

/* Of a tile, while `blocks` blocks go on. */
static double tile_time(const mp_direct_work *work, const mp_direct_cut *cut, int64_t blocks) {
    const int64_t warps = MP_CEIL_DIV(blocks * cut->row_warps * cut->sets, SCHEDULERS);
    const double factor = cut->rows == K_MMA_ROWS ? 1 : wide_factor;
    const double products = (double)MP_MAX(warps, WARPS_BUSY) * cut->rows / K_MMA_ROWS * factor;
    const double load = (double)(blocks * cut->sets) * load_time;
    const double barrier = blocks > 1 ? barrier_time : alone_time;
    return (products + load) * work->size / HALF * cut->share / STEP + barrier;
}

/* Tiles of a block of causal work, as many as all `count` of them: half, and what of its last ones
 * it does not see. */
static double causal_tiles(const mp_direct_cut *cut, double count) {
    const int64_t rows = (int64_t)cut->rows * cut->row_warps;
    const int64_t keys = (int64_t)cut->share * cut->sets;
    int64_t common = rows, rest = keys; /* to become the largest divisor of both */
    while (rest > 0) {
        const int64_t next = common % rest;
        common = rest;
        rest = next;
    }
    const double unseen = ((double)rows / (double)keys + 1 - (double)common / (double)keys) / 2;
    return MP_MIN(count / 2 + unseen, count);
}

/* By which a block's few lanes ask for its first tiles more slowly than these come. */
static double copies_time(const mp_direct_work *work, const mp_direct_cut *cut) {
    const int64_t keys = (int64_t)cut->share * cut->sets;
    const double rows = (double)MP_MIN(MP_ALIGN_UP(work->keys, keys), 2 * keys);
    const double asked = copy_time * 2 * rows / (cut->row_warps * cut->sets);
    const double loaded = load_time * rows / STEP;
    return MP_MAX(asked - loaded, 0) * work->size / HALF;
}

/* The busiest multiprocessor's time. Of causal work the first block, which has all keys, is by
 * itself in the end. */
static double time_of(const mp_device_info *info, const mp_direct_work *work,
                      const mp_direct_cut *cut) {
    const int64_t blocks =
        work->units * MP_CEIL_DIV(work->rows, (int64_t)cut->rows * cut->row_warps);
    const int64_t busy = MP_CEIL_DIV(blocks, MP_MAX(info->multiprocessors, 1));
    const int64_t turns = busy / cut->resident, left = busy % cut->resident;
    const int64_t count = MP_CEIL_DIV(work->keys, (int64_t)cut->share * cut->sets);
    const double tiles = (double)count;
    const double rest =
        block_time + copies_time(work, cut) + meet_time * (cut->sets - 1) * cut->rows / K_MMA_ROWS;
    const double each = (double)turns * tile_time(work, cut, cut->resident) +
                        (left > 0 ? tile_time(work, cut, left) : 0);
    const double seen = work->causal ? causal_tiles(cut, tiles) : tiles;
    const double all = (double)(turns + (left > 0)) * rest + each * seen;
    const double longest = tiles * tile_time(work, cut, 1) + rest;
    return MP_MAX(all, work->causal ? longest : 0);
}

/* The best cut so far, or that one. Of equal ones the first has most blocks. */
static void consider(const mp_device_info *info, const mp_direct_work *work, mp_direct_cut cut,
                     mp_direct_cut *best, double *least) {
    const bool plain = info->arch == 0; /* loops, which share nothing */
    const size_t bytes = plain ? 0 : shared_bytes(work, &cut);
    if (bytes > info->shared_bytes_max) {
        return;
    }
    const size_t room = (info->shared_bytes_max + BLOCK_RESERVE) / (bytes + BLOCK_RESERVE);
    const int64_t warps = K_DIRECT_WARPS(work->head, cut.rows, work->size, work->masked);
    const int64_t fit = warps / (cut.row_warps * cut.sets);
    cut.resident = plain ? 1 : (int32_t)MP_MIN(fit, (int64_t)room);
    const double time = time_of(info, work, &cut);
    if (best->rows == 0 || time < *least) {
        *least = time;
        *best = cut;
        best->shared_bytes = (uint32_t)bytes;
    }
}

/* All ways to cut with a kernel whose warps have so many rows. */
static void consider_all(const mp_device_info *info, const mp_direct_work *work, int32_t rows,
                         mp_direct_cut *best, double *least) {
    const int32_t keys = K_DIRECT_KEYS(work->head, rows, work->size);
    const int32_t warps = K_DIRECT_WARPS(work->head, rows, work->size, work->masked);
    for (int32_t sets = 1; sets <= SETS_MAX; sets *= 2) {
        for (int32_t each = 1; each <= MP_MIN(warps / sets, ROW_WARPS_MAX); each++) {
            for (int32_t share = STEP; share >= keys; share -= keys) {
                consider(info, work, (mp_direct_cut){rows, each, sets, share, 0, 0}, best, least);
            }
        }
    }
}

/* Of shorter heads, wide warps were the faster ones where work is causal and fills the device, by a
 * tenth, and else the slower ones by a fifth; the model does not say why. */
static bool is_wide(const mp_device_info *info, const mp_direct_work *work) {
    const int64_t blocks = work->units * MP_CEIL_DIV(work->rows, (int64_t)4 * 2 * K_MMA_ROWS);
    return work->head <= SHORT && work->causal && blocks >= info->multiprocessors;
}

mp_direct_cut mp_direct_cut_for(const mp_device_info *info, const mp_direct_work *work) {
    const bool both = work->size == HALF && !work->masked; /* kernels there are */
    const bool wide = both && is_wide(info, work);
    mp_direct_cut best = {0};
    double least = 0;
    if (!wide) {
        consider_all(info, work, K_MMA_ROWS, &best, &least);
    }
    if (wide || (both && work->head > SHORT)) {
        consider_all(info, work, 2 * K_MMA_ROWS, &best, &least);
    }
    return best;
}
