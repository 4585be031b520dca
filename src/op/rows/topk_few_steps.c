/* topk_few_steps.c - the first k of each piece of a row, then of what was found, until a row is one
 * piece. A block's list holds what k lanes may have between them, so the larger k, the less a lane
 * may have.
 * Kernel: rows/topk_few.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/topk_few_steps.h"

#include "op/rows/key_bits.h"
#include "op/rows/sort_steps.h"

enum {
    ROOM = 2048, /* of a list */
    EACH_MAX = 31,
    LANES_LEAST = 64,
    LANES_MANY = 256,
    LANES_A_K = 4 /* the more lanes for each of the k, the fewer others come into the list */
};

/* How many units of 16 bytes, of `unit` elements or of one pair, a lane may have at most; beside
 * them it may have an element of a row's unaligned ends. */
static int64_t units_each(int64_t k, int64_t unit) {
    const int64_t elements = MP_MIN(ROOM / k, EACH_MAX + 1);
    return (elements - 1) / unit;
}

static int64_t lanes_least(int64_t k) {
    int64_t lanes = LANES_LEAST;
    while (lanes < k * LANES_A_K) {
        lanes *= 2;
    }
    return lanes;
}

bool mp_topk_few_takes(const mp_topk *t) {
    enum { COLUMNS_LEAST = 257 };
    const int64_t unit = 16 / (int64_t)mp_dtype_size(t->dtype);
    return t->rows.columns >= COLUMNS_LEAST && t->rows.columns >= t->k * LANES_A_K &&
           lanes_least(t->k) <= K_TOPK_LANES_MAX && units_each(t->k, unit) > 0;
}

/* What a launch looks at: rows of elements, or of pairs. */
typedef struct level {
    const mp_topk *t;
    int64_t columns, unit;
    mp_ref from;
} level;

/* Lanes of a block and how long a piece is. Pieces are as long as a block may have them, but of few
 * rows short enough to fill most of the device. */
static int64_t cut(const mp_planner *p, const level *l, int64_t *piece) {
    enum { EACH = 2 };
    const int64_t most = l->unit == 1 ? K_TOPK_LANES_MAX : LANES_MANY;
    const int64_t processors = p->device->info.multiprocessors;
    int64_t each = units_each(l->t->k, l->unit), lanes = lanes_least(l->t->k);
    while (lanes < most && lanes * EACH * l->unit < l->columns) {
        lanes *= 2;
    }
    while (l->unit > 1 && each > EACH &&
           l->t->rows.rows * MP_CEIL_DIV(l->columns, lanes * each * l->unit) < processors / 2) {
        each--;
    }
    *piece = lanes * each * l->unit;
    return lanes;
}

static mp_status launch(mp_planner *p, const level *l, int64_t lanes, mp_topk_few_args args,
                        mp_ref to) {
    const mp_topk *t = l->t;
    const bool pairs = l->from.place != MP_PLACE_NONE, last = args.pieces == 1;
    const mp_kernel *kernel = NULL;
    mp_grid grid = mp_plan_grid_rows(p, args.rows * args.pieces, (uint32_t)lanes);
    grid.shared_bytes = ROOM * (sizeof(uint64_t) + sizeof(uint32_t)) + sizeof(uint64_t);
    MP_TRY(mp_plan_kernel(p, &kernel, pairs ? "topk_merge_b%d" : "topk_few_b%d", args.bits));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_topk_few_args, x, t->x),
                     MP_BIND(mp_topk_few_args, from, l->from), MP_BIND(mp_topk_few_args, to, to),
                     MP_BIND(mp_topk_few_args, values, last ? t->values : MP_NOWHERE),
                     MP_BIND(mp_topk_few_args, indices, last ? t->indices : MP_NOWHERE));
}

mp_status mp_plan_topk_few(mp_planner *p, const mp_topk *t) {
    level l = {.t = t,
               .columns = t->rows.columns,
               .unit = 16 / (int64_t)mp_dtype_size(t->dtype),
               .from = MP_NOWHERE};
    mp_topk_few_args args = {.rows = t->rows.rows,
                             .k = t->k,
                             .row = t->rows.columns,
                             .order = t->order,
                             .room = ROOM,
                             .bits = mp_order_bits(t->dtype)};
    do {
        mp_ref to = MP_NOWHERE;
        const int64_t lanes = cut(p, &l, &args.piece);
        args.columns = l.columns;
        args.pieces = MP_CEIL_DIV(l.columns, args.piece);
        if (args.pieces > 1) {
            MP_TRY(mp_plan_pair_memory(p, args.rows * args.pieces * t->k, &to));
        }
        MP_TRY(launch(p, &l, lanes, args, to));
        l.from = to;
        l.unit = 1;
        l.columns = args.pieces * t->k;
    } while (args.pieces > 1);
    return MP_OK;
}
