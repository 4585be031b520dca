/* column_sum_steps.c - see column_sum_steps.h.
 * Kernel: rows/column_sum.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/column_sum_steps.h"

#include "kernel/rows/row_args.h"

static int64_t pack_of(const mp_column_sum *sum) {
    return 16 / (int64_t)mp_dtype_size(sum->type);
}

/* How many rows, one behind the other, are pairs of packs, where each is no whole packs; else 1. */
static int64_t folds_of(const mp_column_sum *sum) {
    const int64_t pair = 2 * pack_of(sum);
    int64_t folds = 1;
    while (sum->line % pack_of(sum) != 0 && sum->line % pair * folds % pair != 0) {
        folds *= 2; /* as a pack is a power of two */
    }
    return folds;
}

/* Lanes of a block: side by side, and one below the other. */
typedef struct tile {
    int64_t beside, below;
} tile;

/* As few side by side as memory moves at once, so that all multiprocessors have some, and more
 * where there are columns enough; below each other so many that a lane has few rows. */
static tile tile_of(const mp_planner *p, int64_t packs, int64_t rows) {
    enum { LEAST = 2, WARP = 32, ROWS_EACH = 4 };
    const int64_t processors = p->device->info.multiprocessors;
    tile t = {.beside = LEAST, .below = 1};
    while (t.beside < WARP && packs / t.beside >= processors * 4) {
        t.beside *= 2;
    }
    while (t.below * t.beside < K_COLUMN_SUM_LANES &&
           (t.below * t.beside < WARP || t.below * ROWS_EACH < rows)) {
        t.below *= 2;
    }
    return t;
}

static mp_status launch(mp_planner *p, const mp_column_sum *sum, mp_column_sum_args *args,
                        int32_t stage, mp_ref partial) {
    const mp_kernel *kernel = NULL;
    const int64_t rows = stage == K_REDUCE_MERGE    ? args->pieces
                         : stage == K_REDUCE_PIECES ? args->piece
                                                    : args->rows;
    const tile t = tile_of(p, args->packs, rows);
    const int64_t lanes = t.beside * t.below;
    const int64_t blocks =
        MP_CEIL_DIV(args->packs, t.beside) * (stage == K_REDUCE_PIECES ? args->pieces : 1);
    mp_grid grid = mp_plan_grid_rows(p, blocks, (uint32_t)lanes);
    grid.shared_bytes = (uint32_t)(lanes * (pack_of(sum) + 1) * (int64_t)sizeof(double));
    args->stage = stage;
    args->width = (int32_t)t.beside;
    MP_TRY(mp_plan_kernel(p, &kernel, "column_sum_%s", mp_dtype_word(sum->type)));
    return MP_LAUNCH(
        p, kernel, grid, *args,
        MP_BIND(mp_column_sum_args, x, stage == K_REDUCE_MERGE ? MP_NOWHERE : sum->x),
        MP_BIND(mp_column_sum_args, out, stage == K_REDUCE_PIECES ? MP_NOWHERE : sum->out),
        MP_BIND(mp_column_sum_args, partial, partial));
}

/* How many pieces: only where a block would move so much that a second launch is sooner done. */
static int64_t pieces_of(const mp_planner *p, int64_t rows, int64_t packs) {
    enum { BYTES_MAX = 96 << 10, BYTES_EACH = 16 << 10, BLOCKS = 2, ROWS_EACH = 2 };
    const tile t = tile_of(p, packs, rows);
    const int64_t bytes = rows * t.beside * 16;
    const int64_t wanted =
        MP_MIN(MP_CEIL_DIV(bytes, BYTES_EACH),
               (int64_t)p->device->info.multiprocessors * BLOCKS / MP_CEIL_DIV(packs, t.beside));
    const int64_t pieces = MP_MIN(wanted, rows / (t.below * ROWS_EACH));
    return bytes > BYTES_MAX && pieces > 1 ? pieces : 1;
}

/* Whether lines are whole packs, or those of several rows are, so many that they are summed in
 * pieces. */
static bool comes_out_even(const mp_planner *p, const mp_column_sum *sum) {
    const int64_t folds = folds_of(sum), rows = sum->rows / folds;
    return folds == 1 || (sum->outer == 1 && sum->rows % folds == 0 &&
                          pieces_of(p, rows, sum->line * folds / pack_of(sum)) > 1);
}

/* What is larger than caches is a matter of bandwidth alone, not of how soon the first bytes come.
 */
bool mp_column_sum_takes(const mp_planner *p, const mp_column_sum *sum) {
    enum { BYTES_MAX = 32 << 20 };
    const bool is_kept = sum->type == MP_F32 || sum->type == MP_F16 || sum->type == MP_BF16;
    const int64_t most = BYTES_MAX / (int64_t)mp_dtype_size(sum->type);
    return is_kept && p->align >= 16 && sum->outer > 0 && sum->rows > 0 && sum->line > 0 &&
           sum->outer <= most && sum->rows <= most && sum->line <= most &&
           sum->outer * sum->rows <= most / sum->line && comes_out_even(p, sum);
}

mp_status mp_plan_column_sum(mp_planner *p, const mp_column_sum *sum) {
    const int64_t folds = folds_of(sum);
    const int64_t rows = sum->rows / folds, line = sum->line * folds;
    const int64_t packs = line / pack_of(sum);
    const int64_t wanted = pieces_of(p, rows, sum->outer * packs);
    const int64_t piece = MP_CEIL_DIV(rows, wanted);
    const int64_t pieces = MP_CEIL_DIV(rows, piece);
    mp_column_sum_args args = {.line = line,
                               .rows = (int32_t)rows,
                               .folds = (int32_t)folds,
                               .packs = (int32_t)(sum->outer * packs),
                               .pieces = (int32_t)pieces,
                               .piece = (int32_t)piece,
                               .mean = sum->mean,
                               .by_packs = mp_divider((uint32_t)packs),
                               .by_pieces = mp_divider((uint32_t)pieces)};
    mp_ref partial = MP_NOWHERE;
    if (pieces == 1) {
        return launch(p, sum, &args, K_REDUCE_WHOLE, partial);
    }
    MP_TRY(mp_plan_scratch_of(p, sum->outer * pieces * line, MP_F64, &partial));
    MP_TRY(launch(p, sum, &args, K_REDUCE_PIECES, partial));
    return launch(p, sum, &args, K_REDUCE_MERGE, partial);
}
