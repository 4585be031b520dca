/* row_grid.h - how many lanes share a row.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROW_GRID_H
#define MP_OP_ROW_GRID_H

#include "kernel/core/index_args.h"
#include "op/core/plan.h"
#include "op/core/row_shape.h"

/* How many elements a lane keeps. */
static inline int64_t mp_row_keep(mp_dtype type) {
    return mp_dtype_size(type) == 8 ? K_ROW_KEEP / 4 : K_ROW_KEEP;
}

/* Whether to give each row one lane: rows are neighbours in memory, and enough of them to fill the
 * device. */
static inline bool mp_rows_apart(const mp_planner *p, mp_rows r) {
    return r.inner >= 8 && r.rows >= (int64_t)p->device->info.multiprocessors * 64;
}

/* The grid for a kernel with kernel/core/row_lanes.h, and the lanes that share a row of `columns`,
 * so many that they can keep it. With `apart`, columns are not neighbours but rows are, and each
 * has one lane.
 *
 * As few lanes as can keep a row have most on their way at once, and up to a warp of them need no
 * barriers. Two lanes read 32 bytes side by side, which is little if they do it eight times. Where
 * there are too few rows to fill the device, more lanes with less each are sooner done. */
static inline mp_grid mp_row_grid(const mp_planner *p, mp_dtype type, int64_t rows, int64_t columns,
                                  bool apart, int32_t *width) {
    enum { LANES = 128, WARP = 32, MOST = K_ROW_LANES_MAX, PAIR = 2, PAIR_PACKS = 4 };
    const int64_t pack = 16 / (int64_t)mp_dtype_size(type);
    const int64_t keep = mp_row_keep(type);
    const int64_t touched = columns + (columns % pack != 0 ? pack - 1 : 0);
    const bool spare = rows < (int64_t)p->device->info.multiprocessors * 8;
    const int64_t each = spare ? keep / 4 : keep;
    int32_t share = 1;
    while (!apart && share < MOST && share * each < touched) {
        share *= 2;
    }
    if (share == PAIR && touched > PAIR * PAIR_PACKS * pack) {
        share *= 2;
    }
    *width = share;
    const int64_t groups = share <= WARP ? LANES / share : 1; /* more than a warp is a block */
    return mp_plan_grid_rows(p, MP_CEIL_DIV(rows, groups), (uint32_t)(share * groups));
}

/* The same for kernels of short rows, of which `share` lanes keep one: blocks so small that all
 * multiprocessors have some. */
static inline uint32_t mp_short_row_lanes(const mp_planner *p, int64_t rows, int64_t share) {
    enum { WARP = 32, BLOCK = 128 };
    const int64_t processors = p->device->info.multiprocessors;
    int64_t lanes = BLOCK;
    while (lanes > WARP && rows * share < processors * lanes * 2) {
        lanes /= 2;
    }
    return (uint32_t)(share > WARP ? share : lanes); /* more than a warp is a block */
}

#endif
