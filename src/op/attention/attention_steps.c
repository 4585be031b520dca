/* attention_steps.c - attention as one kernel, and what is moved before it. Four ways by shape:
 * few queries (bound by reading the cache), tensor cores for types of two bytes and, where the work
 * is large and TF32 allowed, for float, tiles in shared memory, and products by library math where
 * the work is large.
 * Kernels: attention/attention_combine.cu, attention/attention_decode.cu,
 * attention/attention_direct.cu, attention/attention_few.cu, attention/attention_mma.cu,
 * attention/attention_tile.cu, attention/token_list.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_steps.h"

#include "op/attention/attention_products.h"
#include "op/attention/direct_cut.h"
#include "op/move/strided_copy.h"

#include <string.h>

enum {
    FEW_ROWS_MAX = 16,        /* queries of a key head, beyond which tiles are better */
    BLOCK_QUERIES_MIN = 32,   /* the same for queries that see blocks; fewer leave too few tiles */
    FUSED_WORK_MAX = 1 << 21, /* multiplications, beyond which tensor cores pay */
    BLOCKS_WANTED = 4,        /* a multiprocessor */
    TILE_LANES = 256,
    MMA_ARCH = 80,
    MMA_WARPS_MAX = 8,   /* of a block */
    MMA_SHORT_HEAD = 64, /* heads up to it leave registers for more: */
    MMA_SHORT_WARPS_MAX = 12,
    MMA_WARPS_WANTED = 8, /* a multiprocessor */
    MMA_ROWS_LOADED = 3,  /* sets of rows that take as long as to load the keys of a block */
    MMA_FLOAT_HEAD_MAX = 128,
    DIRECT_HEAD_MAX = 128,
    TILE_SHARED_WANTED = 112 << 10 /* leaves room for a second block */
};

mp_status mp_attention_no_fit(const mp_planner *p, const char *why) {
    char q[MP_SHAPE_TEXT];
    char k[MP_SHAPE_TEXT];
    char v[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "Q of shape %s, K of shape %s and V of shape %s: %s",
                   mp_shape_text(&p->in[0].shape, q), mp_shape_text(&p->in[1].shape, k),
                   mp_shape_text(&p->in[2].shape, v), why);
}

/* ---- descriptions ---- */

mp_heads mp_heads_first(mp_ref ref, int64_t heads, int64_t rows, int64_t size) {
    return (mp_heads){ref, {heads * rows * size, rows * size, size}};
}

mp_heads mp_heads_last(mp_ref ref, int64_t heads, int64_t rows, int64_t size) {
    return (mp_heads){ref, {rows * heads * size, size, heads * size}};
}

k_score_rule mp_score_rule(int64_t batch, int64_t heads, int64_t kv_heads, int64_t rows,
                           int64_t keys) {
    return (k_score_rule){.batch = batch,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .group = kv_heads > 0 ? heads / kv_heads : 0, /* of no heads: nothing */
                          .rows = rows,
                          .keys = keys,
                          .mask_keys = INT64_MAX,
                          .scale = 1};
}

static int32_t mask_kind(mp_dtype type) {
    switch (type) {
    case MP_BOOL:
        return K_MASK_BOOL;
    case MP_F32:
        return K_MASK_F32;
    case MP_F64:
        return K_MASK_F64;
    case MP_F16:
        return K_MASK_F16;
    case MP_BF16:
        return K_MASK_BF16;
    default:
        return K_MASK_NONE;
    }
}

mp_status mp_score_mask(k_score_rule *rule, const mp_tensor *mask) {
    const int64_t full[4] = {rule->batch, rule->heads, rule->rows, rule->keys};
    const mp_shape *shape = &mask->shape;
    int64_t stride[MP_RANK_MAX];
    bool fits = shape->rank >= 1 && shape->rank <= 4;
    rule->mask_kind = mask_kind(mask->type);
    mp_shape_strides(shape, stride);
    for (int d = 0; d < 4; d++) {
        const int at = d - (4 - shape->rank);
        const int64_t dim = fits && at >= 0 ? shape->dim[at] : 1;
        fits = fits && (dim == 1 || dim == full[d] || d == 3);
        rule->mask_stride[d] = dim == 1 ? 0 : stride[at];
        if (d == 3 && dim != 1 && dim < full[d]) {
            rule->mask_keys = dim;
        }
    }
    if (!fits || rule->mask_kind == K_MASK_NONE) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "a mask of type %s and shape %s; it must be bool or float and broadcast to "
                       "%lldx%lldx%lldx%lld",
                       mp_dtype_name(mask->type), mp_shape_text(shape, text), (long long)full[0],
                       (long long)full[1], (long long)full[2], (long long)full[3]);
    }
    return MP_OK;
}

mp_status mp_plan_heads_copy(mp_planner *p, mp_dtype type, const int64_t size[4],
                             const mp_heads *source, const mp_heads *target) {
    const mp_shape shape = {.rank = 4, .dim = {size[0], size[1], size[2], size[3]}};
    mp_strided from = {.ref = source->ref};
    mp_strided to = {.ref = target->ref};
    memcpy(from.stride, source->stride, sizeof source->stride);
    memcpy(to.stride, target->stride, sizeof target->stride);
    from.stride[3] = 1;
    to.stride[3] = 1;
    return mp_plan_strided_copy(p, &shape, mp_dtype_size(type), &from, &to);
}

/* ---- one kernel ---- */

static bool is_wide(const mp_planner *p, const mp_attention *a) {
    const mp_heads *const sides[] = {&a->q, &a->k, &a->v};
    const int64_t size = (int64_t)mp_dtype_size(a->type);
    bool wide = p->align >= 16 && a->head_size % 8 == 0 && a->v_head_size % 8 == 0;
    for (size_t i = 0; i < MP_COUNT_OF(sides); i++) {
        wide = wide && sides[i]->ref.offset % 16 == 0;
        for (int d = 0; d < 3; d++) {
            wide = wide && sides[i]->stride[d] * size % 16 == 0;
        }
    }
    return wide;
}

static mp_attention_args args_of(const mp_planner *p, const mp_attention *a) {
    mp_attention_args args = {.splits = 1,
                              .split_keys = a->rule.keys,
                              .head_size = (int32_t)a->head_size,
                              .v_head_size = (int32_t)a->v_head_size,
                              .wide = is_wide(p, a),
                              .rule = a->rule,
                              .beams = a->beams};
    if (a->cache != NULL) {
        args.cache = *a->cache;
    }
    memcpy(args.q_stride, a->q.stride, sizeof args.q_stride);
    memcpy(args.k_stride, a->k.stride, sizeof args.k_stride);
    memcpy(args.v_stride, a->v.stride, sizeof args.v_stride);
    memcpy(args.out_stride, a->out.stride, sizeof args.out_stride);
    return args;
}

static mp_status launch(mp_planner *p, const mp_attention *a, const mp_kernel *kernel, mp_grid grid,
                        const mp_attention_args *args, mp_ref part) {
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_attention_args, q, a->q.ref),
        MP_BIND(mp_attention_args, k, a->k.ref), MP_BIND(mp_attention_args, v, a->v.ref),
        MP_BIND(mp_attention_args, out, a->out.ref), MP_BIND(mp_attention_args, part, part),
        MP_BIND(mp_attention_args, rule.mask, a->mask),
        MP_BIND(mp_attention_args, rule.lengths, a->lengths),
        MP_BIND(mp_attention_args, rule.sink, a->sink),
        MP_BIND(mp_attention_args, rule.padding, a->padding),
        MP_BIND(mp_attention_args, rule.blocks.starts, a->block_starts),
        MP_BIND(mp_attention_args, rule.blocks.columns, a->block_columns),
        MP_BIND(mp_attention_args, beams.of, a->beams_of),
        MP_BIND(mp_attention_args, cache.scale[0], a->cache_scale[0]),
        MP_BIND(mp_attention_args, cache.scale[1], a->cache_scale[1]));
}

/* Lanes that share a key, a slice of the head each. */
static int32_t lanes_of_head(const mp_attention *a) {
    const int64_t size = MP_MAX(a->head_size, a->v_head_size);
    int32_t lanes = 1;
    while ((int64_t)lanes * K_ATTENTION_SLICE < size) {
        lanes *= 2;
    }
    return lanes;
}

mp_status mp_plan_attention_combine(mp_planner *p, mp_dtype type, const mp_attention_args *args,
                                    const mp_kernel **kernel, mp_grid *grid) {
    const k_score_rule *rule = &args->rule;
    MP_TRY(mp_plan_kernel(p, kernel, "attention_combine_%s", mp_dtype_word(type)));
    *grid = mp_plan_grid_rows(p, rule->batch * rule->heads * rule->rows, K_ATTENTION_LANES);
    grid->shared_bytes = (uint32_t)args->splits * 2 * (uint32_t)sizeof(float);
    return MP_OK;
}

/* ---- a new token, by tensor cores ---- */

static bool has_decode_head(int64_t size) {
    return size == 64 || size == 80 || size == 96 || size == 128 || size == 256;
}

/* Whether it has the mask, if there is one. */
static bool can_decode_mask(const mp_attention *a) {
    const int32_t own = a->type == MP_F16 ? K_MASK_F16 : K_MASK_BF16;
    const int32_t kind = a->rule.mask_kind;
    return kind == K_MASK_NONE || ((kind == own || kind == K_MASK_BOOL) && a->rule.mask_keys > 0);
}

/* Whether attention_decode.cu is there for the type and the heads, and nothing else than a mask is
 * done to scores. Rows are counted by 32 bits, and so are the steps between those of keys. */
static bool can_decode(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int arch = p->device->info.arch;
    return (a->type == MP_F16 || a->type == MP_BF16) && (arch == 0 || arch >= MMA_ARCH) &&
           a->head_size == a->v_head_size && has_decode_head(a->head_size) && is_wide(p, a) &&
           can_decode_mask(a) && rule->padding_kind == K_PADDING_NONE && rule->softcap == 0 &&
           a->cache == NULL && a->beams_of.place == MP_PLACE_NONE && rule->keys <= INT32_MAX / 2 &&
           a->k.stride[2] <= INT32_MAX && a->v.stride[2] <= INT32_MAX;
}

/* Blocks that share the keys of a key head: as many as have something to do, and no more than come
 * up at once: a larger cluster waits until nearly all of a group of multiprocessors is free. A
 * power of two. */
static int64_t decode_splits(const mp_planner *p, int64_t units, int64_t tiles) {
    enum { WARPS = 4 /* of a block, at least */, MOST = 64, MEETING = 8 };
    const mp_device_info *info = &p->device->info;
    const int64_t most =
        info->cluster_blocks_max > 1 ? MP_MIN(info->cluster_blocks_max, MEETING) : MOST;
    const int64_t room = info->multiprocessors / units;
    int64_t splits = 1;
    while (splits * 2 <= most && splits * 2 <= room && splits * WARPS < tiles) {
        splits *= 2;
    }
    return splits;
}

/* Shared memory of attention_decode.cu: what its warps have found, and what the blocks have. */
static uint32_t decode_bytes(const mp_attention_args *args, int64_t warps, int64_t rows) {
    const int64_t blocks = INT64_C(1) << args->meet_log;
    const int64_t fours = rows * args->head_size / 4;
    const int64_t floats = (warps + blocks) * K_DECODE_ROWS * 2 + warps * fours * 4 +
                           blocks * MP_CEIL_DIV(fours, blocks) * 4;
    return (uint32_t)floats * (uint32_t)sizeof(float);
}

/* Blocks of a cluster are neighbours. */
static mp_grid decode_grid(const mp_planner *p, const mp_attention_args *args, int64_t units,
                           int64_t tiles) {
    enum { LANES = 32 };
    const int64_t rows = MP_MIN(args->rule.group * args->rule.rows, K_DECODE_ROWS);
    const int64_t warps = MP_MIN(MP_CEIL_DIV(tiles, args->splits), K_DECODE_WARPS);
    const bool plain = p->device->info.arch == 0; /* loops, which share nothing */
    return (mp_grid){.blocks = (uint32_t)(units * args->splits),
                     .lanes = (uint32_t)warps * LANES,
                     .shared_bytes = plain ? 0 : decode_bytes(args, warps, rows),
                     .meets = args->meet_log > 0 ? (uint32_t)args->splits : 0};
}

static mp_status launch_fresh(mp_planner *p, const mp_attention *a, const mp_kernel *kernel,
                              mp_grid grid, const mp_attention_args *args, mp_ref part) {
    const mp_fresh *fresh = a->fresh;
    const mp_fresh_args all = {.attention = *args,
                               .fresh = {.k_stride = {fresh->k.stride[0], fresh->k.stride[1]},
                                         .v_stride = {fresh->v.stride[0], fresh->v.stride[1]},
                                         .present_rows = fresh->present_rows,
                                         .cache_rows = fresh->cache_rows,
                                         .prompt = fresh->prompt,
                                         .epsilon = fresh->epsilon}};
    return MP_LAUNCH(p, kernel, grid, all, MP_BIND(mp_fresh_args, attention.q, a->q.ref),
                     MP_BIND(mp_fresh_args, attention.k, a->k.ref),
                     MP_BIND(mp_fresh_args, attention.v, a->v.ref),
                     MP_BIND(mp_fresh_args, attention.out, a->out.ref),
                     MP_BIND(mp_fresh_args, attention.part, part),
                     MP_BIND(mp_fresh_args, attention.rule.lengths, a->lengths),
                     MP_BIND(mp_fresh_args, attention.rule.sink, a->sink),
                     MP_BIND(mp_fresh_args, fresh.k, fresh->k.ref),
                     MP_BIND(mp_fresh_args, fresh.v, fresh->v.ref),
                     MP_BIND(mp_fresh_args, fresh.keys, a->k.ref),
                     MP_BIND(mp_fresh_args, fresh.values, a->v.ref),
                     MP_BIND(mp_fresh_args, fresh.cosine, fresh->cosine),
                     MP_BIND(mp_fresh_args, fresh.sine, fresh->sine),
                     MP_BIND(mp_fresh_args, fresh.positions, fresh->positions),
                     MP_BIND(mp_fresh_args, fresh.scale[0], fresh->scale[0]),
                     MP_BIND(mp_fresh_args, fresh.scale[1], fresh->scale[1]));
}

static mp_status plan_decode(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    mp_attention_args args = args_of(p, a);
    const int64_t tiles = MP_CEIL_DIV(rule->keys, K_DECODE_KEYS(a->head_size));
    args.row_blocks = (int32_t)MP_CEIL_DIV(rule->group * rule->rows, K_DECODE_ROWS);
    const int64_t units = rule->batch * rule->kv_heads * args.row_blocks;
    args.splits = decode_splits(p, units, tiles);
    args.by_splits = mp_divider((uint32_t)args.splits);
    args.by_row_blocks = mp_divider((uint32_t)args.row_blocks);
    args.by_kv_heads = mp_divider((uint32_t)rule->kv_heads);
    args.by_rows = mp_divider((uint32_t)rule->rows);
    const bool meets = args.splits > 1 && p->device->info.cluster_blocks_max > 1;
    while (meets && 1 << args.meet_log < args.splits) {
        args.meet_log++;
    }
    mp_ref part = MP_NOWHERE;
    if (args.splits > 1 && !meets) {
        const mp_shape shape = {.rank = 3,
                                .dim = {rule->batch * rule->heads * rule->rows, args.splits,
                                        a->v_head_size + K_ATTENTION_STATE}};
        MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &part));
    }
    const char *how = a->fresh != NULL ? "fresh_" : rule->mask_kind != K_MASK_NONE ? "masked_" : "";
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_decode_%s%d_%s", how, (int)a->head_size,
                          mp_dtype_word(a->type)));
    MP_TRY((a->fresh != NULL ? launch_fresh : launch)(
        p, a, kernel, decode_grid(p, &args, units, tiles), &args, part));
    if (part.place == MP_PLACE_NONE) {
        return MP_OK;
    }
    mp_grid grid;
    MP_TRY(mp_plan_attention_combine(p, a->type, &args, &kernel, &grid));
    return launch(p, a, kernel, grid, &args, part);
}

/* ---- few queries ---- */

static mp_status plan_few(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    if (can_decode(p, a)) {
        return plan_decode(p, a);
    }
    const int64_t rows = rule->group * rule->rows;
    const int at_once = rows == 1 ? 1 : 4; /* more would leave too few registers for loads ahead */
    mp_attention_args args = args_of(p, a);
    args.group_lanes = lanes_of_head(a);
    args.groups = K_ATTENTION_LANES / args.group_lanes;
    const int64_t units = rule->batch * rule->kv_heads * MP_CEIL_DIV(rows, at_once);
    const int64_t round = (int64_t)args.groups * K_ATTENTION_AHEAD(at_once); /* keys, of a block */
    const int64_t wanted = (int64_t)p->device->info.multiprocessors * BLOCKS_WANTED / units;
    const int64_t splits = MP_MIN(wanted, MP_CEIL_DIV(rule->keys, round));
    if (splits > 1) {
        args.split_keys = MP_ALIGN_UP(MP_CEIL_DIV(rule->keys, splits), round);
        args.splits = MP_CEIL_DIV(rule->keys, args.split_keys);
    }
    const int64_t pitch = a->v_head_size + K_ATTENTION_STATE;
    mp_ref part = MP_NOWHERE;
    if (args.splits > 1) {
        const mp_shape shape = {
            .rank = 3, .dim = {rule->batch * rule->heads * rule->rows, args.splits, pitch}};
        MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &part));
    }
    const char *how = a->cache != NULL ? "cache_" : args.wide ? "wide_" : "";
    const mp_kernel *kernel = NULL;
    MP_TRY(
        mp_plan_kernel(p, &kernel, "attention_few_%s%d_%s", how, at_once, mp_dtype_word(a->type)));
    mp_grid grid = mp_plan_grid_rows(p, units * args.splits, K_ATTENTION_LANES);
    grid.shared_bytes =
        (uint32_t)((args.groups * (pitch + 1) + 1) * at_once) * (uint32_t)sizeof(float);
    MP_TRY(launch(p, a, kernel, grid, &args, part));
    if (args.splits == 1) {
        return MP_OK;
    }
    MP_TRY(mp_plan_attention_combine(p, a->type, &args, &kernel, &grid));
    return launch(p, a, kernel, grid, &args, part);
}

/* Shared memory of attention_tile.cu, whose first comment is the list. */
static size_t tile_bytes(const mp_attention *a, int64_t rows, int64_t keys) {
    const int64_t head = (a->head_size + 7) / 8 * 8;
    const int64_t value = (a->v_head_size + 7) / 8 * 8;
    const int64_t k = head * (keys + 4);
    const int64_t v = keys * value;
    const int64_t floats = head * (rows + 4) + MP_MAX(k, v) + keys * (rows + 4) + rows * value +
                           rows * 7 /* top, total, shrink, part */;
    const int64_t seen = a->rule.blocks.size > 0 ? K_TILE_WINDOW * K_TILE_SEEN_WORDS : 0;
    return (size_t)(floats * 4 + rows * (2 * 8 + 2 * 4) + seen * 4);
}

/* The largest tiles that leave room for a second block, or that fit at all. */
static size_t choose_tile(const mp_planner *p, const mp_attention *a, mp_attention_args *args) {
    static const int32_t sides[][2] = {{64, 64}, {64, 32}, {32, 64}, {32, 32}, {32, 16},
                                       {16, 32}, {16, 16}, {8, 16},  {8, 8},   {4, 4}};
    const size_t room = p->device->info.shared_bytes_max;
    for (size_t i = 0; i < MP_COUNT_OF(sides); i++) {
        const size_t bytes = tile_bytes(a, sides[i][0], sides[i][1]);
        if (bytes <= room && (bytes <= TILE_SHARED_WANTED || i + 1 == MP_COUNT_OF(sides))) {
            args->tile_rows = sides[i][0];
            args->tile_keys = sides[i][1];
            return bytes;
        }
    }
    return 0;
}

static mp_status plan_tiles(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    mp_attention_args args = args_of(p, a);
    const size_t bytes = choose_tile(p, a, &args);
    if (bytes == 0) {
        return mp_plan_attention_products(p, a);
    }
    const int64_t row_tiles = MP_CEIL_DIV(rule->group * rule->rows, args.tile_rows);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_tile_%s%s", rule->blocks.size > 0 ? "blocks_" : "",
                          mp_dtype_word(a->type)));
    mp_grid grid = mp_plan_grid_rows(p, rule->batch * rule->kv_heads * row_tiles, TILE_LANES);
    grid.shared_bytes = (uint32_t)bytes;
    return launch(p, a, kernel, grid, &args, MP_NOWHERE);
}

/* ---- tensor cores ---- */

/* The sizes of heads that attention_mma.cu is there for. */
static const int32_t mma_heads[] = {32, 64, 80, 96, 128, 192, 256};

/* The least that holds the heads; those of floats have multiples of 32. */
static int32_t mma_head(const mp_attention *a) {
    const int64_t size = MP_MAX(a->head_size, a->v_head_size);
    size_t i = 0;
    while (mma_heads[i] < size || (a->type == MP_F32 && mma_heads[i] % 32 != 0)) {
        i++;
    }
    return mma_heads[i];
}

static int32_t mma_keys(const mp_attention *a) {
    return K_MMA_KEYS(mma_head(a), mp_dtype_size(a->type));
}

/* Floats are rounded to TF32. */
static bool has_mma_type(const mp_planner *p, const mp_attention *a) {
    return a->type == MP_F16 || a->type == MP_BF16 ||
           (a->type == MP_F32 && p->node->options.tf32 &&
            MP_MAX(a->head_size, a->v_head_size) <= MMA_FLOAT_HEAD_MAX);
}

/* Whether elements are read by 16 bytes and written by two, or floats by four, and rows and keys,
 * with those that a tile has beyond the last, are numbers of 32 bits. */
static bool can_mma(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int arch = p->device->info.arch;
    const double rows = (double)rule->group * (double)rule->rows;
    const int32_t written = a->type == MP_F32 ? 4 : 2;
    bool fits = has_mma_type(p, a) && (arch == 0 || arch >= MMA_ARCH) &&
                rows * (double)rule->batch * (double)rule->kv_heads <= (double)INT32_MAX &&
                rule->keys <= INT32_MAX / 2 && is_wide(p, a) &&
                a->out.ref.offset % ((size_t)written * mp_dtype_size(a->type)) == 0;
    for (int d = 0; d < 3; d++) {
        fits = fits && a->out.stride[d] % written == 0;
    }
    return fits;
}

/* Shared memory of attention_mma.cu, whose first comment is the list. At its end warps hand on
 * their sums where the keys were. */
static size_t mma_bytes(const mp_attention *a, int64_t row_warps, int64_t sets) {
    enum { LANES = 32, STATE = 4 /* floats of a lane beside its sums */ };
    const int64_t head = mma_head(a), keys = mma_keys(a) * sets;
    const int64_t pitch = head * (int64_t)mp_dtype_size(a->type) + 16;
    const int64_t stages = a->rule.keys > keys ? 2 : 1;
    const int64_t tiles = stages * 2 * keys * pitch;
    const int64_t sums = (sets - 1) * row_warps * LANES * (head / 2 + STATE) * 4;
    return (size_t)(row_warps * K_MMA_ROWS * pitch + MP_MAX(tiles, sums));
}

static int64_t mma_blocks(const mp_attention *a, int64_t row_warps) {
    const k_score_rule *rule = &a->rule;
    return rule->batch * rule->kv_heads *
           MP_CEIL_DIV(rule->group * rule->rows, row_warps * K_MMA_ROWS);
}

/* Blocks of `args->tile_rows` rows, and what says which is which. */
static mp_grid mma_grid(const mp_planner *p, const k_score_rule *rule, int32_t warps,
                        size_t shared_bytes, mp_attention_args *args) {
    enum { LANES = 32 };
    const int64_t units = rule->batch * rule->kv_heads;
    args->row_blocks = (int32_t)MP_CEIL_DIV(rule->group * rule->rows, args->tile_rows);
    args->by_row_blocks = mp_divider((uint32_t)args->row_blocks);
    args->by_kv_heads = mp_divider((uint32_t)rule->kv_heads);
    args->by_rows = mp_divider((uint32_t)rule->rows);
    args->by_round = mp_divider((uint32_t)args->round);
    args->by_units = mp_divider((uint32_t)units);
    mp_grid grid = mp_plan_grid_rows(p, units * args->row_blocks, (uint32_t)(warps * LANES));
    grid.shared_bytes = (uint32_t)shared_bytes;
    return grid;
}

/* Gives the bytes of shared memory; a block of one warp has some 90 KiB at most, and every GPU from
 * 8.0 on more.
 *
 * As many rows in a block as keep the busiest multiprocessor least busy, and where that leaves too
 * few warps, several that share the keys of a row. */
static size_t choose_warps(const mp_planner *p, const mp_attention *a, mp_attention_args *args) {
    const int64_t processors = MP_MAX(p->device->info.multiprocessors, 1);
    const bool plain = p->device->info.arch == 0; /* loops, which share nothing */
    const size_t room = plain ? SIZE_MAX : p->device->info.shared_bytes_max;
    int64_t row_warps = 1, sets = 1, least = INT64_MAX;
    for (int64_t warps = MMA_WARPS_MAX; warps > 0; warps--) {
        const int64_t busy = MP_CEIL_DIV(mma_blocks(a, warps), processors);
        const int64_t time = busy * (warps + MMA_ROWS_LOADED);
        if (time < least && mma_bytes(a, warps, 1) <= room) {
            least = time;
            row_warps = warps;
        }
    }
    const int64_t keys = mma_keys(a);
    const int64_t most = mma_head(a) <= MMA_SHORT_HEAD ? MMA_SHORT_WARPS_MAX : MMA_WARPS_MAX;
    while (row_warps * sets * 2 <= most && keys * sets < a->rule.keys &&
           mma_blocks(a, row_warps) * row_warps * sets < processors * MMA_WARPS_WANTED &&
           mma_bytes(a, row_warps, sets * 2) <= room) {
        sets *= 2;
    }
    args->tile_rows = (int32_t)(row_warps * K_MMA_ROWS);
    args->tile_keys = (int32_t)(sets * keys);
    return plain ? 0 : mma_bytes(a, row_warps, sets);
}

/* Whether rows of a block have masks of their own. */
static bool has_row_masks(const k_score_rule *rule) {
    return rule->mask_kind != K_MASK_NONE &&
           (rule->mask_stride[2] != 0 || (rule->mask_stride[1] != 0 && rule->group > 1));
}

/* Whether masks and padding add the same to a key for all rows of a block. */
static bool has_added(const k_score_rule *rule) {
    return rule->padding_kind != K_PADDING_NONE ||
           (rule->mask_kind != K_MASK_NONE && !has_row_masks(rule));
}

/* Whether attention_direct.cu has such masks, or there are none. */
static bool can_mask(const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    return (!has_row_masks(rule) ||
            (rule->mask_stride[3] == 1 && K_MMA_MASK(rule->mask_kind, mp_dtype_size(a->type)))) &&
           (!has_added(rule) ||
            (rule->keys <= K_DIRECT_ADDED_KEYS &&
             (rule->padding_kind == K_PADDING_NONE || rule->padding_stride[1] == 0)));
}

/* Whether products are scores but for a factor and masks. Steps between rows of keys are numbers of
 * 32 bits. */
static bool is_direct(const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    return mma_head(a) <= DIRECT_HEAD_MAX && (float)rule->scale > 0 && rule->softcap == 0 &&
           can_mask(a) && a->k.stride[2] <= INT32_MAX && a->v.stride[2] <= INT32_MAX;
}

static mp_status plan_direct(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const mp_direct_work work = {.units = rule->batch * rule->kv_heads,
                                 .rows = rule->group * rule->rows,
                                 .keys = rule->keys,
                                 .head = mma_head(a),
                                 .size = (int32_t)mp_dtype_size(a->type),
                                 .causal = rule->causal != 0,
                                 .masked = has_row_masks(rule) || has_added(rule),
                                 .added = has_added(rule)};
    const mp_direct_cut cut = mp_direct_cut_for(&p->device->info, &work);
    const int32_t processors = MP_MAX(p->device->info.multiprocessors, 1);
    mp_attention_args args = args_of(p, a);
    args.tile_rows = cut.row_warps * cut.rows;
    args.tile_keys = cut.sets * cut.share;
    args.added_keys = mp_direct_added(&work, &cut);
    args.row_masks = has_row_masks(rule);
    const int64_t blocks = work.units * MP_CEIL_DIV(work.rows, args.tile_rows);
    const bool at_once = blocks <= (int64_t)processors * cut.resident;
    args.round = at_once ? processors : INT32_MAX;
    const mp_grid grid = mma_grid(p, rule, cut.row_warps * cut.sets, cut.shared_bytes, &args);
    const mp_kernel *kernel = NULL;
    const char *word = mp_dtype_word(a->type);
    MP_TRY(work.masked ? mp_plan_kernel(p, &kernel, "attention_masked_%d_%s", work.head, word)
                       : mp_plan_kernel(p, &kernel, "attention_direct_%d_%d_%s", work.head,
                                        cut.rows, word));
    return launch(p, a, kernel, grid, &args, MP_NOWHERE);
}

static mp_status plan_mma(mp_planner *p, const mp_attention *a) {
    if (is_direct(a)) {
        return plan_direct(p, a);
    }
    mp_attention_args args = args_of(p, a);
    const size_t bytes = choose_warps(p, a, &args);
    args.round = MP_MAX(p->device->info.multiprocessors, 1);
    const int32_t row_warps = args.tile_rows / K_MMA_ROWS;
    const int32_t sets = args.tile_keys / mma_keys(a);
    const mp_grid grid = mma_grid(p, &a->rule, row_warps * sets, bytes, &args);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_mma_%d_%s", mma_head(a), mp_dtype_word(a->type)));
    return launch(p, a, kernel, grid, &args, MP_NOWHERE);
}

/* ---- listed tokens ---- */

/* Which tokens are marked: [batch, rows], and how many of each entry. */
static mp_status plan_list(mp_planner *p, const k_score_rule *rule, mp_ref flags, mp_ref *list,
                           mp_ref *count) {
    enum { LANES = 256 };
    const mp_shape shape = {.rank = 2, .dim = {rule->batch, rule->rows}};
    const mp_token_list_args args = {.batch = rule->batch, .rows = rule->rows};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_I32, list));
    MP_TRY(mp_plan_scratch_of(p, rule->batch, MP_I32, count));
    MP_TRY(mp_plan_kernel(p, &kernel, "token_list"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, rule->batch, LANES), args,
                     MP_BIND(mp_token_list_args, flags, flags),
                     MP_BIND(mp_token_list_args, list, *list),
                     MP_BIND(mp_token_list_args, list_count, *count));
}

mp_status mp_plan_attention_listed(mp_planner *p, const mp_attention *a, const mp_listed *own) {
    const k_score_rule *rule = &a->rule;
    mp_listed_args args = {.attention = args_of(p, a)};
    const size_t bytes = choose_tile(p, a, &args.attention);
    const mp_kernel *kernel = NULL;
    mp_ref list = MP_NOWHERE;
    mp_ref count = MP_NOWHERE;
    if (bytes == 0 || rule->keys > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "%lld rows in heads of %lld elements; a tile of four rows must "
                       "fit into the %zu bytes that a block may share",
                       (long long)rule->keys, (long long)a->head_size,
                       p->device->info.shared_bytes_max);
    }
    args.attention.wide = args.attention.wide && own->q.offset % 16 == 0 &&
                          own->k.offset % 16 == 0 && own->v.offset % 16 == 0;
    MP_TRY(plan_list(p, rule, own->flags, &list, &count));
    const int64_t tiles = MP_CEIL_DIV(rule->rows, args.attention.tile_rows);
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_tile_listed_%s", mp_dtype_word(a->type)));
    mp_grid grid = mp_plan_grid_rows(p, 2 * rule->batch * rule->heads * tiles, TILE_LANES);
    grid.shared_bytes = (uint32_t)bytes;
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_listed_args, attention.q, a->q.ref),
                     MP_BIND(mp_listed_args, attention.k, a->k.ref),
                     MP_BIND(mp_listed_args, attention.v, a->v.ref),
                     MP_BIND(mp_listed_args, attention.out, a->out.ref),
                     MP_BIND(mp_listed_args, attention.rule.mask, a->mask),
                     MP_BIND(mp_listed_args, q, own->q), MP_BIND(mp_listed_args, k, own->k),
                     MP_BIND(mp_listed_args, v, own->v), MP_BIND(mp_listed_args, flags, own->flags),
                     MP_BIND(mp_listed_args, list, list),
                     MP_BIND(mp_listed_args, list_count, count));
}

/* ---- the choice ---- */

static bool can_fuse(const mp_attention *a) {
    return a->type != MP_F64 && a->debug_mode == MP_DEBUG_NONE &&
           a->head_size <= K_ATTENTION_HEAD_MAX && a->v_head_size <= K_ATTENTION_HEAD_MAX &&
           a->rule.keys <= INT32_MAX;
}

typedef enum way { FEW, MMA, TILES, PRODUCTS } way;

static way choose_way(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    if (rule->blocks.size > 0) {
        return TILES;
    }
    const int32_t asked = p->node->options.sdpa_kernel;
    const int32_t allowed = (asked & MP_SDPA_ALL) != 0 ? asked & MP_SDPA_ALL : MP_SDPA_ALL;
    const double rows = (double)rule->batch * (double)rule->heads * (double)rule->rows;
    const bool counted = rows <= (double)INT32_MAX; /* by attention_few.cu */
    const bool few = counted && rule->group * rule->rows <= FEW_ROWS_MAX;
    const double work = rows * (double)rule->keys * (double)(a->head_size + a->v_head_size);
    const bool large = work > (double)FUSED_WORK_MAX;
    const bool tiles = (allowed & MP_SDPA_TILES) != 0;
    const bool products = (allowed & MP_SDPA_PRODUCTS) != 0;
    const bool mma = can_fuse(a) && can_mma(p, a) && (a->type != MP_F32 || large);
    if (tiles && mma && !(few && (allowed & MP_SDPA_FEW) != 0)) {
        return MMA;
    }
    if (!can_fuse(a) || allowed == MP_SDPA_PRODUCTS || (products && !few && (large || !tiles))) {
        return PRODUCTS;
    }
    return (allowed & MP_SDPA_FEW) != 0 && counted && (few || !tiles) ? FEW : TILES;
}

bool mp_attention_takes_blocks(const mp_attention *a) {
    return can_fuse(a) && a->rule.rows >= BLOCK_QUERIES_MIN;
}

bool mp_attention_reads_cache(const mp_planner *p, const mp_attention *a) {
    return choose_way(p, a) == FEW;
}

bool mp_attention_takes_fresh(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const mp_fresh *fresh = a->fresh;
    mp_attention rows = *a;
    rows.k = fresh->k;
    rows.v = fresh->v;
    return rule->batch * rule->heads > 0 && rule->rows == 1 && rule->keys > 0 &&
           fresh->cache_rows > 0 && fresh->present_rows <= INT32_MAX / 2 &&
           (a->head_size == 64 || a->head_size == 128) && rule->mask_kind == K_MASK_NONE &&
           is_wide(p, &rows) && choose_way(p, a) == FEW && can_decode(p, a);
}

mp_status mp_plan_attention(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const mp_shape out = {.rank = 4, .dim = {rule->batch, rule->heads, rule->rows, a->v_head_size}};
    const int64_t count = mp_shape_count(&out);
    if (count == 0) {
        return MP_OK;
    }
    if (rule->keys == 0) {
        const size_t size = mp_dtype_size(a->type);
        return mp_plan_fill(p, a->out.ref, 0, MP_MIN(size, 4),
                            (size_t)count * (size < 4 ? 1 : size / 4));
    }
    const way chosen = choose_way(p, a);
    return chosen == FEW     ? plan_few(p, a)
           : chosen == MMA   ? plan_mma(p, a)
           : chosen == TILES ? plan_tiles(p, a)
                             : mp_plan_attention_products(p, a);
}
