/* reduce_steps.c - reductions as steps, for any operator's plan: in one launch, or in pieces.
 * Kernel: rows/reduce.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/reduce_steps.h"

#include "kernel/rows/row_args.h"
#include "op/rows/column_sum_steps.h"

#include <string.h>

/* Some differ in what is made of the result alone. */
static const struct variant {
    const char *word, *kernel;
    int32_t finish;
} variants[] = {
    {"mean", "sum", K_REDUCE_MEAN},
    {"l2", "sumsq", K_REDUCE_ROOT},
    {"logsum", "sum", K_REDUCE_LOG},
};

static const char *kernel_of(const char *word, int32_t *finish) {
    *finish = K_REDUCE_AS_IS;
    for (size_t i = 0; i < MP_COUNT_OF(variants); i++) {
        if (strcmp(word, variants[i].word) == 0) {
            *finish = variants[i].finish;
            return variants[i].kernel;
        }
    }
    return word;
}

static mp_status split_axes(const mp_shape *shape, uint32_t axes, mp_reduce_args *args) {
    int64_t stride[MP_RANK_MAX] = {0};
    int64_t kept_stride[1][MP_RANK_MAX];
    int64_t dropped_stride[1][MP_RANK_MAX];
    mp_shape kept_shape = {.rank = 0};
    mp_shape dropped_shape = {.rank = 0};
    mp_shape_strides(shape, stride);
    for (int d = 0; d < shape->rank; d++) {
        if ((axes & 1u << d) != 0) {
            dropped_stride[0][dropped_shape.rank] = stride[d];
            dropped_shape.dim[dropped_shape.rank++] = shape->dim[d];
        } else {
            kept_stride[0][kept_shape.rank] = stride[d];
            kept_shape.dim[kept_shape.rank++] = shape->dim[d];
        }
    }
    args->outputs = mp_shape_count(&kept_shape);
    args->reduced = mp_shape_count(&dropped_shape);
    MP_TRY(mp_layout_make(&kept_shape, kept_stride, 1, &args->kept));
    return mp_layout_make(&dropped_shape, dropped_stride, 1, &args->dropped);
}

typedef struct reduction {
    mp_reduce_args args;
    const char *word; /* of the kernel */
    mp_dtype dtype;
    int64_t pack; /* elements of 16 bytes */
    mp_ref x, out, partial;
} reduction;

/* ---- lanes ---- */

enum { LANES = 128 };

static int32_t lanes_for(int64_t units, int64_t each, int32_t least, int32_t most) {
    int32_t lanes = least;
    while (lanes < most && (int64_t)lanes * each < units) {
        lanes *= 2;
    }
    return lanes;
}

/* Lanes that share each of `parts` parts in a row: a part of a warp, or a block. */
static int32_t row_lanes(const mp_planner *p, const reduction *r, int64_t parts, int64_t elements) {
    enum { FEW = 2, MUCH = 16, WARP = 32, MOST = K_REDUCE_LANES_MAX };
    const bool spare = parts < (int64_t)p->device->info.multiprocessors * 8;
    if (r->args.stage == K_REDUCE_MERGE) {
        return lanes_for(elements, FEW, 1, MOST);
    }
    if (r->args.form != K_REDUCE_RUNS) {
        return lanes_for(elements, MUCH, elements > MUCH ? WARP : 1, MOST);
    }
    const int64_t packs = elements / r->pack + 1;
    return packs > (int64_t)WARP * MUCH && !spare ? lanes_for(packs, MUCH, LANES, MOST)
                                                  : lanes_for(packs, FEW, 1, spare ? MOST : WARP);
}

static mp_grid row_grid(const mp_planner *p, reduction *r, int64_t parts, int64_t elements) {
    int32_t width = row_lanes(p, r, parts, elements);
    width = width == 64 ? LANES : width; /* groups of more than a warp are blocks */
    r->args.width = width;
    const int64_t groups = width < LANES ? LANES / width : 1;
    return mp_plan_grid_rows(p, MP_CEIL_DIV(parts, groups), (uint32_t)(width * groups));
}

/* Of columns: how many lanes are side by side in a block, and how many one below the other. */
typedef struct tile {
    int32_t beside, below;
    int64_t count;
} tile;

static tile column_tile(const reduction *r) {
    enum { ALL = 256, WARP = 32, ROWS_LEAST = 4 };
    const int64_t lines = r->args.outputs / r->args.line;
    const int64_t packs = MP_CEIL_DIV(r->args.line, r->pack) * lines;
    tile t = {.beside = lanes_for(packs, 1, 1, WARP)};
    while (t.beside < ALL && r->args.reduced < (int64_t)(ALL / t.beside) * ROWS_LEAST) {
        t.beside *= 2;
    }
    t.below = ALL / t.beside;
    t.count = MP_CEIL_DIV(packs, t.beside);
    return t;
}

static mp_grid column_grid(const mp_planner *p, reduction *r) {
    const tile t = column_tile(r);
    const int64_t pieces = r->args.stage == K_REDUCE_PIECES ? r->args.pieces : 1;
    mp_grid grid = mp_plan_grid_rows(p, t.count * pieces, (uint32_t)(t.beside * t.below));
    const int32_t rows = t.below > 1 ? t.below / 2 : 1; /* as the first half meets the second */
    r->args.width = t.beside;
    grid.shared_bytes = (uint32_t)((int64_t)(rows * t.beside) * r->pack * (int64_t)sizeof(double));
    return grid;
}

static mp_grid short_grid(const mp_planner *p, const reduction *r) {
    const int64_t blocks = MP_CEIL_DIV(r->args.outputs, K_REDUCE_SHORT_ROWS);
    mp_grid grid = mp_plan_grid_rows(p, blocks, K_REDUCE_SHORT_ROWS);
    grid.shared_bytes = (uint32_t)(K_REDUCE_SHORT_ROWS * r->args.reduced * 16 / r->pack);
    return grid;
}

static mp_status launch(mp_planner *p, reduction *r, int32_t stage) {
    const mp_kernel *kernel = NULL;
    mp_reduce_args *args = &r->args;
    args->stage = stage;
    const int64_t parts = args->outputs * (stage == K_REDUCE_PIECES ? args->pieces : 1);
    const int64_t each = stage == K_REDUCE_MERGE    ? args->pieces
                         : stage == K_REDUCE_PIECES ? args->piece
                                                    : args->reduced;
    const bool columns = args->form == K_REDUCE_COLUMNS && stage != K_REDUCE_MERGE;
    const mp_grid grid = args->form == K_REDUCE_SHORT ? short_grid(p, r)
                         : columns                    ? column_grid(p, r)
                                                      : row_grid(p, r, parts, each);
    MP_TRY(mp_plan_kernel(p, &kernel, "reduce_%s_%s", r->word, mp_dtype_word(r->dtype)));
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_reduce_args, x, r->x),
                     MP_BIND(mp_reduce_args, out, stage == K_REDUCE_PIECES ? MP_NOWHERE : r->out),
                     MP_BIND(mp_reduce_args, partial, r->partial));
}

/* ---- forms and pieces ---- */

static bool all_packs(const mp_planner *p, const reduction *r) {
    const k_layout *kept = &r->args.kept, *dropped = &r->args.dropped;
    bool all = p->align >= 16 && r->args.line % r->pack == 0;
    for (int d = 0; d + 1 < kept->rank; d++) {
        all = all && kept->stride[0][d] % r->pack == 0;
    }
    for (int d = 0; d < dropped->rank; d++) {
        all = all && dropped->stride[0][d] % r->pack == 0;
    }
    return all;
}

/* Neighbours that go into one output; 1 where there are none. */
static int64_t run_of(const k_layout *dropped) {
    const int last = dropped->rank - 1;
    return dropped->stride[0][last] == 1 ? dropped->dim[last] : 1;
}

/* Whether rows of some packs lie one behind the other and do not end with a pack, so that groups of
 * lanes would read most of them by elements; enough of them to fill the device. */
static bool are_short(const mp_planner *p, const reduction *r) {
    enum { LEAST = 2, MOST = 24 }; /* packs of a row: those of a block take 48 KiB */
    const mp_reduce_args *args = &r->args;
    const int64_t blocks = args->outputs / K_REDUCE_SHORT_ROWS;
    return p->align >= 16 && args->kept.rank == 1 && args->kept.stride[0][0] == args->reduced &&
           args->dropped.rank == 1 && args->dropped.stride[0][0] == 1 &&
           args->reduced % r->pack != 0 && args->reduced > LEAST * r->pack &&
           args->reduced < MOST * r->pack && blocks >= 2 * (int64_t)p->device->info.multiprocessors;
}

/* Where outputs are neighbours in twos and threes and little goes into each, a lane alone does one.
 */
static void choose_form(const mp_planner *p, reduction *r, bool whole) {
    enum { RUN_LEAST = 64, LITTLE = 16 };
    mp_reduce_args *args = &r->args;
    const int last = args->kept.rank - 1;
    const int64_t run = run_of(&args->dropped);
    args->line = args->kept.stride[0][last] == 1 ? args->kept.dim[last] : 1;
    const bool alone = args->line < r->pack && args->reduced <= LITTLE;
    args->form = whole                                      ? K_REDUCE_APART
                 : are_short(p, r)                          ? K_REDUCE_SHORT
                 : args->line > 1 && !alone                 ? K_REDUCE_COLUMNS
                 : run == args->reduced || run >= RUN_LEAST ? K_REDUCE_RUNS
                                                            : K_REDUCE_APART;
    args->packed = args->form == K_REDUCE_COLUMNS && all_packs(p, r);
}

/* How many pieces fill the device, none of them too short. A run is a piece. Multiples of 16 keep
 * their alignment. */
static void pieces_cut(const mp_planner *p, reduction *r) {
    enum { COLUMN_LEAST = 8, ROW_LEAST = 8192, PIECES_MAX = 4096 };
    mp_reduce_args *args = &r->args;
    const int64_t processors = p->device->info.multiprocessors;
    const bool columns = args->form == K_REDUCE_COLUMNS;
    const tile t = columns ? column_tile(r) : (tile){.count = args->outputs};
    const int64_t wanted = processors * (columns ? 8 : 4) / t.count;
    const int64_t most = args->reduced / (columns ? (int64_t)t.below * COLUMN_LEAST : ROW_LEAST);
    int64_t pieces = MP_MIN(wanted, most);
    pieces = MP_MIN(pieces, PIECES_MAX);
    args->pieces = 1;
    args->piece = args->reduced;
    if (args->form == K_REDUCE_RUNS && args->dropped.rank > 1 && args->reduced > 0) {
        args->piece = run_of(&args->dropped);
        args->pieces = args->reduced / args->piece;
    } else if (pieces > 1) {
        args->piece = MP_ALIGN_UP(MP_CEIL_DIV(args->reduced, pieces), 16);
        args->pieces = MP_CEIL_DIV(args->reduced, args->piece);
    }
}

/* Whether it is a sum or a mean of rows of whole packs, which have a kernel of their own. */
static bool is_column_sum(const mp_planner *p, const reduction *r, mp_column_sum *out) {
    const mp_reduce_args *args = &r->args;
    const k_layout *kept = &args->kept, *dropped = &args->dropped;
    *out = (mp_column_sum){.type = r->dtype,
                           .mean = args->finish == K_REDUCE_MEAN,
                           .outer = args->outputs / args->line,
                           .rows = args->reduced,
                           .line = args->line,
                           .x = r->x,
                           .out = r->out};
    const bool outside =
        kept->rank == 1 || (kept->rank == 2 && kept->stride[0][0] == out->rows * out->line);
    return strcmp(r->word, "sum") == 0 && args->finish != K_REDUCE_LOG &&
           args->form == K_REDUCE_COLUMNS && dropped->rank == 1 &&
           dropped->stride[0][0] == out->line && outside && mp_column_sum_takes(p, out);
}

mp_status mp_plan_reduce(mp_planner *p, const char *word, mp_dtype dtype, mp_ref x,
                         const mp_shape *shape, uint32_t axes, mp_ref out) {
    reduction r = {.dtype = dtype,
                   .pack = 16 / (int64_t)mp_dtype_size(dtype),
                   .x = x,
                   .out = out,
                   .partial = MP_NOWHERE};
    mp_reduce_args *args = &r.args;
    r.word = kernel_of(word, &args->finish);
    MP_TRY(split_axes(shape, axes, args));
    if (args->outputs == 0) {
        return MP_OK;
    }
    const bool whole = strcmp(word, "logsumexp") == 0; /* which the kernel does in one piece */
    choose_form(p, &r, whole);
    mp_column_sum columns;
    if (is_column_sum(p, &r, &columns)) {
        return mp_plan_column_sum(p, &columns);
    }
    pieces_cut(p, &r);
    if (whole || args->pieces <= 1) {
        return launch(p, &r, K_REDUCE_WHOLE);
    }
    MP_TRY(mp_plan_scratch_of(p, args->outputs * args->pieces, MP_F64, &r.partial));
    MP_TRY(launch(p, &r, K_REDUCE_PIECES));
    return launch(p, &r, K_REDUCE_MERGE);
}
