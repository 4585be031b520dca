/* softmax_steps.c - see softmax_steps.h.
 * Kernels: rows/softmax.cu, rows/softmax_apart.cu, rows/softmax_short.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/softmax_steps.h"

#include "kernel/rows/row_args.h"
#include "op/core/row_grid.h"

#include <string.h>

/* Lanes that share a short row: as few as keep it; of few rows up to a warp, which is sooner done.
 */
static int64_t short_share(const mp_planner *p, mp_rows r) {
    enum { WARP = 32, MANY = 512 };
    int64_t share = 1;
    while (share * K_SOFTMAX_SHORT_KEPT < r.columns) {
        share *= 2;
    }
    while (share < WARP && share < r.columns &&
           r.rows * share < (int64_t)p->device->info.multiprocessors * MANY) {
        share *= 2;
    }
    return share;
}

/* Whether there is so little that it is a matter of how soon it begins and not of bandwidth. */
static bool is_short(const mp_planner *p, const mp_softmax_step *s) {
    enum { LANES_MAX = 2048 }; /* of all rows, a multiprocessor */
    const mp_rows r = s->rows;
    return strcmp(s->word, "plain") == 0 && r.inner == 1 &&
           (s->type == MP_F32 || s->type == MP_F16 || s->type == MP_BF16) &&
           r.columns <= (int64_t)K_SOFTMAX_SHORT_KEPT * K_ROW_LANES_MAX &&
           r.rows <= (int64_t)p->device->info.multiprocessors * LANES_MAX / short_share(p, r);
}

static mp_status plan_short(mp_planner *p, const mp_softmax_step *s) {
    const mp_rows r = s->rows;
    const int64_t share = short_share(p, r);
    const mp_softmax_args args = {
        .rows = r.rows, .columns = r.columns, .inner = 1, .width = (int32_t)share};
    const uint32_t lanes = mp_short_row_lanes(p, r.rows, share);
    const mp_grid grid = mp_plan_grid_rows(p, MP_CEIL_DIV(r.rows, lanes / share), lanes);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "softmax_short_%s", mp_dtype_word(s->type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_softmax_args, x, s->x),
                     MP_BIND(mp_softmax_args, out, s->out));
}

/* Rows that are neighbours in memory: as many side by side as lanes read in one go, and so many
 * lanes for each that none has many columns. */
static mp_status plan_apart(mp_planner *p, const mp_softmax_step *s) {
    enum { WARP = 32, COLUMNS_LEAST = 8 };
    const mp_rows r = s->rows;
    int64_t side = 1, below = 1;
    while (side < WARP && side * 2 <= r.inner) {
        side *= 2;
    }
    while (side * below < K_ROW_LANES_MAX && below * COLUMNS_LEAST < r.columns) {
        below *= 2;
    }
    const mp_softmax_args args = {
        .rows = r.rows, .columns = r.columns, .inner = r.inner, .width = (int32_t)side};
    mp_grid grid = mp_plan_grid_rows(p, MP_CEIL_DIV(r.rows, side), (uint32_t)(side * below));
    grid.shared_bytes = (uint32_t)(side * below) * 2 * (uint32_t)sizeof(double);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "softmax_apart_%s_%s", s->word, mp_dtype_word(s->type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_softmax_args, x, s->x),
                     MP_BIND(mp_softmax_args, out, s->out));
}

/* A row that no block keeps is shared by all lanes that a multiprocessor has, unless there is
 * another row for half of them. */
static mp_grid row_grid(const mp_planner *p, const mp_softmax_step *s, int32_t *width) {
    const mp_rows r = s->rows;
    mp_grid grid = mp_row_grid(p, s->type, r.rows, r.columns, false, width);
    if (r.columns > mp_row_keep(s->type) * *width && r.rows <= p->device->info.multiprocessors) {
        *width = K_SOFTMAX_LANES_MAX;
        grid.lanes = K_SOFTMAX_LANES_MAX;
    }
    return grid;
}

mp_status mp_plan_softmax(mp_planner *p, const mp_softmax_step *s) {
    const int64_t pack = 16 / (int64_t)mp_dtype_size(s->type);
    const mp_rows r = s->rows;
    if (is_short(p, s)) {
        return plan_short(p, s);
    }
    if (r.inner > 1) {
        return plan_apart(p, s);
    }
    mp_softmax_args args = {.rows = r.rows,
                            .columns = r.columns,
                            .inner = 1,
                            .bias_share = s->by.share,
                            .bias_rows = s->by.rows,
                            .packed = s->align >= 16 && r.columns % pack == 0};
    const mp_kernel *kernel = NULL;
    const mp_grid grid = row_grid(p, s, &args.width);
    const bool kept = args.packed != 0 && r.columns <= mp_row_keep(s->type) * args.width;
    MP_TRY(mp_plan_kernel(p, &kernel, "softmax_%s%s_%s", kept ? "kept_" : "", s->word,
                          mp_dtype_word(s->type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_softmax_args, x, s->x),
                     MP_BIND(mp_softmax_args, bias, s->by.rows > 0 ? s->bias : MP_NOWHERE),
                     MP_BIND(mp_softmax_args, out, s->out));
}
