/* matmul_pair_cut.c - see matmul_pair_cut.h. How long either way takes is estimated: what a launch
 * takes that does nothing much, and what the busiest multiprocessor fetches from the cache of all,
 * multiplies and activates. All weights go to each cluster of blocks, so that few rows of large
 * matrices are two products.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/matmul_pair_cut.h"

#include "base/macros.h"

enum {
    ARCH = 80, /* whose tensor cores the kernel is written for */
    PIECE_BYTES = 16,
    TILE = 8,         /* columns of a tile */
    FROM_MIN = 16,    /* fewer are read by kernels of their own */
    FROM_MAX = 256,   /* of rows that are held */
    INNER_MAX = 1024, /* of larger matrices products are faster */
    ROWS_MIN = 64,    /* below, kernels for few rows */
    TURNS_MAX = 4,    /* blocks of a multiprocessor: libraries do more sooner */
    BOX_FLOATS = 4,   /* of a box, and what aligns what lies behind it */
};

bool mp_pair_suits(const mp_pair_size *s) {
    const int64_t most = K_PAIR_OUTER_MAX(32), piece = PIECE_BYTES / s->size;
    return s->from >= FROM_MIN && s->from <= FROM_MAX && s->from % piece == 0 && s->inner >= TILE &&
           s->inner <= INNER_MAX && s->inner % TILE == 0 && s->to >= TILE && s->to <= most &&
           s->to % TILE == 0;
}

/* ---- how it is cut ---- */

/* Rows of a block, as kernels.txt has them, and columns that it makes at a time, at most: more of
 * them are multiplied sooner, fewer take less memory. */
static const int32_t heights[] = {32, 64}, widths[] = {K_PAIR_INNER_MAX, 64};

int64_t mp_pair_lay_out(const mp_pair_size *s, mp_pair_tile tile, mp_pair_args *a) {
    const int64_t step = K_PAIR_STEP / s->size, number = sizeof(float), rows = tile.rows;
    const int64_t blocks = INT64_C(1) << tile.splits_log;
    const int64_t share = MP_ALIGN_UP(MP_CEIL_DIV(s->inner, blocks), step);
    const int64_t parts = MP_CEIL_DIV(share, (int64_t)tile.part_max);
    const int64_t part = MP_ALIGN_UP(MP_CEIL_DIV(share, parts), step);
    const int64_t sums = rows * K_PAIR_SUM_PITCH(s->to);
    a->splits_log = tile.splits_log;
    a->share = (int32_t)share;
    a->part = (int32_t)part;
    a->at_inner = (int32_t)(rows * K_PAIR_PITCH(s->from * s->size));
    a->at_ring = (int32_t)(a->at_inner + rows * K_PAIR_PITCH(part * s->size));
    a->stage = (int32_t)(MP_MAX(part, s->to) * K_PAIR_LINE);
    /* Sums lie where operands were; what other blocks give does not, since these come sooner. */
    a->at_given = (int32_t)MP_ALIGN_UP(
        MP_MAX(sums, MP_CEIL_DIV(a->at_ring + K_PAIR_STAGES * a->stage, number)),
        (int64_t)BOX_FLOATS);
    a->at_box = a->at_given + (tile.splits_log > 0 ? (int32_t)sums : 0);
    a->at_rows = a->at_box + BOX_FLOATS;
    return (a->at_rows + K_PAIR_ROOM(share, part) + 2 * s->to) * number;
}

/* ---- how long it takes ---- */

enum {
    BYTES_OF_NS = 45,      /* that a multiprocessor fetches from the cache of all */
    ACTIVATIONS_OF_NS = 9, /* that it makes */
    LAUNCH_NS = 2600,      /* of a product that is little */
    STEP_NS = 2200,        /* of a kernel behind it that is no more */
    ALONE_NS = 1000,       /* of blocks beside which those of other kernels find no room */
};

/* One launch with its end, by the blocks of a cluster; larger ones meet longer. */
static const int32_t start_ns[] = {2600, 3500, 3600, 3800};
_Static_assert(1 << (MP_COUNT_OF(start_ns) - 1) == K_PAIR_SPLITS_MAX, "for each of them");

/* Additions and multiplications that a multiprocessor makes in a nanosecond, of two bytes and of
 * four: the kernel, whose warps load operands for a few products each, and libraries. */
static const int32_t own_of_ns[] = {1000, 550}, library_of_ns[] = {1800, 900};

static int64_t busy_ns(int64_t bytes, int64_t products, int64_t of_ns, int64_t activated) {
    return MP_MAX(bytes / BYTES_OF_NS, products / of_ns) + activated / ACTIVATIONS_OF_NS;
}

static int64_t together_ns(const mp_device_info *info, const mp_pair_size *s, int64_t rows,
                           const mp_pair_args *a, int64_t held) {
    enum { RESERVED = 1 << 10 /* bytes of each block */ };
    const bool is_alone = 2 * (held + RESERVED) > (int64_t)info->shared_bytes_max + RESERVED;
    const int64_t blocks = MP_CEIL_DIV(s->rows, rows) << a->splits_log;
    const int64_t weights = (s->from + s->to) * a->share;
    const int64_t results = rows * s->to >> a->splits_log;
    const int64_t given = a->splits_log > 0 ? rows * s->to * (int64_t)sizeof(float) : 0;
    const int64_t bytes = (rows * s->from + weights + 2 * results) * s->size + given;
    return start_ns[a->splits_log] + (is_alone ? ALONE_NS : 0) +
           MP_CEIL_DIV(blocks, info->multiprocessors) *
               busy_ns(bytes, rows * weights, own_of_ns[s->size == 4], rows * a->share);
}

/* One of two products, in tiles of so many rows and columns, of which a multiprocessor has one at
 * least, or less than one of small tiles that are shared along k. */
static int64_t tiled_ns(const mp_device_info *info, const mp_pair_size *s, int64_t k, int64_t n,
                        bool activates, int64_t side) {
    enum { SHARED_SIDE = 64 };
    const int64_t wide = MP_MIN(n, side), sm = info->multiprocessors;
    const int64_t tiles = MP_CEIL_DIV(s->rows, side) * MP_CEIL_DIV(n, wide);
    const int64_t each = side > SHARED_SIDE ? MP_MAX(tiles, sm) : tiles;
    const int64_t bytes = (side * k + wide * k + side * wide) * s->size;
    return LAUNCH_NS + busy_ns(bytes * each / sm, side * wide * k * each / sm,
                               library_of_ns[s->size == 4],
                               activates ? side * wide * each / sm : 0);
}

static int64_t apart_ns(const mp_device_info *info, const mp_pair_size *s, int64_t k, int64_t n,
                        bool activates) {
    enum { SMALL = 64, LARGE = 128 };
    return MP_MIN(tiled_ns(info, s, k, n, activates, SMALL),
                  tiled_ns(info, s, k, n, activates, LARGE));
}

/* What two products and what is behind them take. */
static int64_t products_ns(const mp_device_info *info, const mp_pair_size *s) {
    return apart_ns(info, s, s->from, s->inner, true) + apart_ns(info, s, s->inner, s->to, false) +
           s->steps * (int64_t)STEP_NS;
}

/* Whether there are such blocks and clusters, each of whose blocks has columns to make. */
static bool fits(const mp_device_info *info, const mp_pair_size *s, int32_t rows,
                 const mp_pair_args *a, int64_t held) {
    const int64_t others = (INT64_C(1) << a->splits_log) - 1;
    return s->to <= K_PAIR_OUTER_MAX(rows) && held <= (int64_t)info->shared_bytes_max &&
           others < MP_MAX(info->cluster_blocks_max, 1) && others * a->share < s->inner;
}

bool mp_pair_cut(const mp_device_info *info, const mp_pair_size *s, mp_pair_args *a, int32_t *rows,
                 int64_t *held) {
    enum { SURE_NUM = 9, SURE_DEN = 10 }; /* of the time of two products: else not worth it */
    enum { CUTS = MP_COUNT_OF(heights) * MP_COUNT_OF(widths) * MP_COUNT_OF(start_ns) };
    const int64_t rows_max =
        (int64_t)TURNS_MAX * heights[MP_COUNT_OF(heights) - 1] * info->multiprocessors;
    bool found = false;
    if (info->arch < ARCH || !mp_pair_suits(s) || s->rows < ROWS_MIN || s->rows > rows_max) {
        return false;
    }
    int64_t best = products_ns(info, s) * SURE_NUM / SURE_DEN;
    for (size_t i = 0; i < CUTS; i++) {
        mp_pair_args cut = *a;
        const mp_pair_tile tile = {
            .rows = heights[i % MP_COUNT_OF(heights)],
            .part_max = widths[i / MP_COUNT_OF(heights) % MP_COUNT_OF(widths)],
            .splits_log = (int32_t)(i / MP_COUNT_OF(heights) / MP_COUNT_OF(widths))};
        const int64_t bytes = mp_pair_lay_out(s, tile, &cut);
        const int64_t ns = together_ns(info, s, tile.rows, &cut, bytes);
        if (fits(info, s, tile.rows, &cut, bytes) && ns < best) {
            *a = cut;
            *rows = tile.rows;
            *held = bytes;
            best = ns;
            found = true;
        }
    }
    return found;
}
