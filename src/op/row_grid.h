/* row_grid.h - how many lanes share a row. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROW_GRID_H
#define MP_OP_ROW_GRID_H

#include "kernel/reduce_args.h"
#include "op/plan.h"

/* The grid for a kernel with kernel/row_lanes.h, and the lanes that share a row of `columns`: each
 * has about eight elements. With `apart`, columns are not neighbours but rows are, and each has one
 * lane. */
static inline mp_grid mp_row_grid(const mp_planner *p, int64_t rows, int64_t columns, bool apart,
                                  int32_t *width) {
    enum { EACH = 8, LANES = 128, MOST = K_ROW_LANES_MAX };
    int32_t share = 1;
    while (!apart && share < MOST && (int64_t)share * EACH < columns) {
        share *= 2;
    }
    share = share == 64 ? LANES : share;
    *width = share;
    const int64_t groups = share < LANES ? LANES / share : 1;
    return mp_plan_grid_rows(p, rows / groups + (rows % groups != 0), (uint32_t)(share * groups));
}

#endif
