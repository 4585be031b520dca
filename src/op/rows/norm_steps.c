/* norm_steps.c - see norm_steps.h.
 * Kernels: rows/keep_within.cu, rows/norm.cu, rows/norm_loose.cu, rows/norm_pieces.cu,
 * rows/norm_short.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/norm_steps.h"

#include "op/core/row_grid.h"
#include "op/pointwise/pointwise_steps.h"

/* Whether rows are packed, as the kernel calls it: all tensors are aligned, and so then are rows.
 */
static bool is_packed(const mp_planner *p, const mp_norm *n) {
    const mp_norm_args *args = &n->args;
    const int64_t pack = 16 / (int64_t)mp_dtype_size(n->type);
    /* That share a scale, or each have the one of their place. */
    const bool is_shared = args->per_row > 0 && args->inner > 1;
    const int64_t neighbours = is_shared ? args->inner : args->columns;
    return p->align >= 16 && args->columns % pack == 0 && neighbours % pack == 0 &&
           args->columns <= mp_row_keep(n->type) * args->width;
}

/* ---- short rows ---- */

/* Lanes that share a row: as few as hold it; of few rows up to a warp with less each, which is
 * sooner done. */
static int64_t short_share(const mp_planner *p, const mp_norm *n) {
    enum { WARP = 32, MANY = 512 };
    const int64_t packs = n->args.columns * (int64_t)mp_dtype_size(n->type) / 16;
    int64_t share = 1;
    while (share * K_NORM_SHORT_PACKS < packs) {
        share *= 2;
    }
    while (share < WARP && share < packs &&
           n->args.rows * share < (int64_t)p->device->info.multiprocessors * MANY) {
        share *= 2;
    }
    return share;
}

/* Whether a few lanes with few packs each hold a row, and there is nothing but the plainest. Of
 * very many rows the other kernel has more on its way, since it needs fewer registers; but it waits
 * for x before it asks for what is added. */
static bool is_short(const mp_planner *p, const mp_norm *n) {
    enum { LANES_MAX = 4096, WITH_SKIP = 4 }; /* of all rows, a multiprocessor; times so many */
    const mp_norm_args *args = &n->args;
    const int64_t most = n->skip.place != MP_PLACE_NONE ? WITH_SKIP * LANES_MAX : LANES_MAX;
    const int64_t pack = 16 / (int64_t)mp_dtype_size(n->type);
    const bool is_kept = n->type == MP_F32 || n->type == MP_F16 || n->type == MP_BF16;
    /* The one that keeps x within bounds, and that multiplies what is added. */
    const bool is_only = n->found.place != MP_PLACE_NONE || args->scales;
    return is_kept && n->out_type == n->type && args->per_row == 0 && p->align >= 16 &&
           args->columns % pack == 0 &&
           args->columns <= pack * K_NORM_SHORT_PACKS * K_NORM_SHORT_LANES &&
           (is_only ||
            args->rows <= (int64_t)p->device->info.multiprocessors * most / short_share(p, n));
}

/* No more blocks than are there at once: each loads scale and bias once, and has its next row on
 * its way while it is at work on one. */
static mp_grid short_grid(const mp_planner *p, const mp_norm *n, int32_t *width) {
    enum { LANES_AT_ONCE = 512 }; /* of a multiprocessor */
    const int64_t share = short_share(p, n);
    const uint32_t lanes = mp_short_row_lanes(p, n->args.rows, share);
    const int64_t blocks = MP_CEIL_DIV(n->args.rows, lanes / share);
    *width = (int32_t)share;
    const int64_t most = p->device->info.multiprocessors * (LANES_AT_ONCE / (int64_t)lanes);
    return mp_plan_grid_rows(p, MP_MIN(blocks, most), lanes);
}

/* ---- rows that begin anywhere ---- */

enum { LOOSE_WARP = 32 };

/* Whether lanes can keep the row's elements, which are no whole packs. */
static bool is_loose(const mp_planner *p, const mp_norm *n) {
    const mp_norm_args *args = &n->args;
    const bool is_kept = n->type == MP_F32 || n->type == MP_F16 || n->type == MP_BF16;
    return is_kept && n->out_type == n->type && args->per_row <= 1 && args->rows <= INT32_MAX &&
           args->columns <= K_NORM_LOOSE_KEPT * K_NORM_LOOSE_LANES && !is_packed(p, n);
}

/* As few lanes as hold a row, but up to a warp with half of what they could have, so that they read
 * some neighbours; of few rows more, which is sooner done. */
static int64_t loose_share(const mp_planner *p, const mp_norm *n) {
    enum { MANY = 512, LITTLE = 4 };
    const int64_t columns = n->args.columns;
    int64_t share = 1;
    while (share < LOOSE_WARP && share * K_NORM_LOOSE_KEPT / 2 < columns) {
        share *= 2;
    }
    while (share * K_NORM_LOOSE_KEPT < columns) {
        share *= 2;
    }
    while (share < K_NORM_LOOSE_LANES && share * LITTLE < columns &&
           n->args.rows * share < (int64_t)p->device->info.multiprocessors * MANY) {
        share *= 2;
    }
    return share;
}

/* No more blocks than are there at once: to bring one up takes as long as a row. */
static mp_grid loose_grid(const mp_planner *p, const mp_norm *n, int32_t *width) {
    const int64_t share = loose_share(p, n);
    const uint32_t lanes = mp_short_row_lanes(p, n->args.rows, share);
    const int64_t blocks = MP_CEIL_DIV(n->args.rows, lanes / share);
    const int64_t most = p->device->info.multiprocessors * (K_NORM_LOOSE_LANES / (int64_t)lanes);
    *width = (int32_t)share;
    return mp_plan_grid_rows(p, MP_MIN(blocks, most), lanes);
}

/* ---- rows that several blocks share ---- */

/* Whether rows are longer than the lanes of a block can keep, and nothing is added to them. */
static bool is_long(const mp_norm *n) {
    const mp_norm_args *args = &n->args;
    const bool plain = n->skip.place == MP_PLACE_NONE && n->add.place == MP_PLACE_NONE &&
                       n->sum.place == MP_PLACE_NONE && n->out_type == n->type;
    return plain && args->columns > mp_row_keep(n->type) * K_ROW_LANES_MAX &&
           args->columns < 1 << 30;
}

/* As many pieces as fill the device, unless they get short. */
static mp_status plan_pieces(mp_planner *p, const mp_norm *n) {
    enum { LEAST = 4096 };
    const mp_norm_args *row = &n->args;
    const int64_t pack = 16 / (int64_t)mp_dtype_size(n->type);
    const int64_t pieces =
        mp_row_pieces(row->rows, row->columns, p->device->info.multiprocessors * 2, LEAST);
    mp_norm_pieces_args args = {.row = *row};
    args.piece = MP_CEIL_DIV(MP_CEIL_DIV(row->columns, pieces), pack) * pack;
    args.pieces = MP_CEIL_DIV(row->columns, args.piece);
    args.whole = p->align >= 16 && row->columns % pack == 0;
    mp_ref partial = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_scratch_of(p, row->rows * args.pieces * 2, MP_F64, &partial));
    MP_TRY(mp_plan_kernel(p, &kernel, "norm_pieces_%s", mp_dtype_word(n->type)));
    const mp_grid grid = mp_plan_grid_rows(p, row->rows * args.pieces, K_NORM_PIECES_LANES);
    for (args.stage = K_NORM_MOMENTS; args.stage <= K_NORM_APPLY; args.stage++) {
        MP_TRY(MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_norm_pieces_args, row.x, n->x),
                         MP_BIND(mp_norm_pieces_args, row.scale, n->scale),
                         MP_BIND(mp_norm_pieces_args, row.bias, n->bias),
                         MP_BIND(mp_norm_pieces_args, row.out, n->out),
                         MP_BIND(mp_norm_pieces_args, row.mean, n->mean),
                         MP_BIND(mp_norm_pieces_args, row.inverse, n->inverse),
                         MP_BIND(mp_norm_pieces_args, partial, partial)));
    }
    return MP_OK;
}

/* ---- rows of a tensor that is kept between two numbers ---- */

/* For kernels that do not do that themselves: the tensor first, which is also the sum. */
static mp_status plan_keep(mp_planner *p, mp_norm *n) {
    const int64_t count = n->args.rows * n->args.columns;
    const mp_keep_within_args args = {.count = count, .most = {n->args.most[0], n->args.most[1]}};
    mp_ref kept = n->sum;
    const mp_kernel *kernel = NULL;
    if (kept.place == MP_PLACE_NONE) {
        MP_TRY(mp_plan_scratch_of(p, count, n->type, &kept));
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "keep_within_%s", mp_dtype_word(n->type)));
    MP_TRY(MP_LAUNCH(
        p, kernel, mp_plan_grid(p, count, 1), args, MP_BIND(mp_keep_within_args, x, n->x),
        MP_BIND(mp_keep_within_args, found, n->found), MP_BIND(mp_keep_within_args, out, kept)));
    n->x = kept;
    n->sum = n->found = MP_NOWHERE;
    return MP_OK;
}

/* ---- rows of a sum of which one addend is scaled ---- */

/* For kernels that do not do that themselves: the product first. */
static mp_status plan_scaled(mp_planner *p, mp_norm *n) {
    const mp_shape all = {.rank = 2, .dim = {n->args.rows, n->args.columns}};
    const mp_shape row = {.rank = 1, .dim = {n->args.columns}};
    mp_ref scaled = MP_NOWHERE;
    MP_TRY(mp_plan_scratch_shape(p, &all, n->type, &scaled));
    MP_TRY(mp_pointwise2(p, "mul", n->type, (mp_operand){n->skip, &all}, (mp_operand){n->add, &row},
                         scaled, &all, 0, 0));
    n->skip = scaled;
    n->add = MP_NOWHERE;
    n->args.scales = 0;
    return MP_OK;
}

mp_status mp_plan_norm(mp_planner *p, mp_norm *n) {
    const mp_kernel *kernel = NULL;
    mp_grid grid = {0};
    if (n->args.rows == 0 || n->args.columns == 0) {
        return MP_OK;
    }
    n->args.skip_rows = n->args.skip_rows > 0 ? n->args.skip_rows : 1;
    if (n->found.place != MP_PLACE_NONE && !is_short(p, n)) {
        MP_TRY(plan_keep(p, n));
    }
    if (n->args.scales && !is_short(p, n)) {
        MP_TRY(plan_scaled(p, n));
    }
    if (is_long(n)) {
        return plan_pieces(p, n);
    }
    const mp_grid rows_grid =
        mp_row_grid(p, n->type, n->args.rows, n->args.columns, false, &n->args.width);
    if (is_short(p, n)) {
        grid = short_grid(p, n, &n->args.width);
        MP_TRY(mp_plan_kernel(p, &kernel, "norm_short_%s", mp_dtype_word(n->type)));
    } else if (is_loose(p, n)) {
        grid = loose_grid(p, n, &n->args.width);
        MP_TRY(mp_plan_kernel(p, &kernel, "norm_loose_%d_%s",
                              n->args.width > LOOSE_WARP ? LOOSE_WARP : 0, mp_dtype_word(n->type)));
    } else {
        grid = rows_grid;
        MP_TRY(mp_plan_kernel(p, &kernel, "norm_%s_%s_%s", is_packed(p, n) ? "packed" : "edged",
                              mp_dtype_word(n->type), mp_dtype_word(n->out_type)));
    }
    return MP_LAUNCH(p, kernel, grid, n->args, MP_BIND(mp_norm_args, x, n->x),
                     MP_BIND(mp_norm_args, skip, n->skip), MP_BIND(mp_norm_args, add, n->add),
                     MP_BIND(mp_norm_args, found, n->found), MP_BIND(mp_norm_args, scale, n->scale),
                     MP_BIND(mp_norm_args, bias, n->bias), MP_BIND(mp_norm_args, out, n->out),
                     MP_BIND(mp_norm_args, sum, n->sum), MP_BIND(mp_norm_args, mean, n->mean),
                     MP_BIND(mp_norm_args, inverse, n->inverse));
}
