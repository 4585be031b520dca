/* attention_decode_steps.c - attention of a new token, or of a few, by tensor cores.
 * Kernels: attention/attention_combine.cu, attention/attention_decode.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_ways.h"

static bool has_decode_head(int64_t size) {
    return size == 64 || size == 80 || size == 96 || size == 128 || size == 256;
}

/* Whether it has the mask, if there is one. */
static bool can_decode_mask(const mp_attention *a) {
    const int32_t own = a->type == MP_F16 ? K_MASK_F16 : K_MASK_BF16;
    const int32_t kind = a->rule.mask_kind;
    return kind == K_MASK_NONE || ((kind == own || kind == K_MASK_BOOL) && a->rule.mask_keys > 0);
}

/* Caches of elements, or of codes that are signed bytes, in pages that have whole tiles or not. */
static bool can_decode_kept(const mp_attention *a) {
    const bool coded = a->cache != NULL, paged = a->pages != NULL;
    const bool bytes = coded && a->cache->type.kind == K_NARROW_SIGNED &&
                       a->cache->type.width == 8 && a->cache->zero == 0;
    const bool whole = paged && a->pages->size % K_DECODE_KEYS(a->head_size, coded) == 0;
    return (!coded && !paged) ||
           ((bytes || !coded) && (whole || !paged) && a->fresh == NULL &&
            a->rule.mask_kind == K_MASK_NONE && (a->head_size == 64 || a->head_size == 128));
}

/* Rows are counted by 32 bits, and so are the steps between those of keys. */
bool mp_attention_can_decode(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int arch = p->device->info.arch;
    return (a->type == MP_F16 || a->type == MP_BF16) && (arch == 0 || arch >= MP_ATTENTION_ARCH) &&
           a->head_size == a->v_head_size && a->k_piece == 0 && has_decode_head(a->head_size) &&
           mp_attention_is_wide(p, a) && can_decode_mask(a) &&
           rule->padding_kind == K_PADDING_NONE && rule->softcap == 0 && can_decode_kept(a) &&
           a->beams_of.place == MP_PLACE_NONE && rule->keys <= INT32_MAX / 2 &&
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
    const int64_t floats = K_DECODE_BOX + (warps + blocks) * K_DECODE_ROWS * 2 + warps * fours * 4 +
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

static mp_status launch_pages(mp_planner *p, const mp_attention *a, const mp_kernel *kernel,
                              mp_grid grid, const mp_attention_args *args, mp_ref part) {
    mp_pages_args all = {.attention = *args};
    if (a->pages != NULL) {
        all.pages = *a->pages;
    }
    return MP_LAUNCH(p, kernel, grid, all, MP_BIND(mp_pages_args, attention.q, a->q.ref),
                     MP_BIND(mp_pages_args, attention.k, a->k.ref),
                     MP_BIND(mp_pages_args, attention.v, a->v.ref),
                     MP_BIND(mp_pages_args, attention.out, a->out.ref),
                     MP_BIND(mp_pages_args, attention.part, part),
                     MP_BIND(mp_pages_args, attention.rule.lengths, a->lengths),
                     MP_BIND(mp_pages_args, attention.rule.sink, a->sink),
                     MP_BIND(mp_pages_args, attention.cache.scale[0], a->cache_scale[0]),
                     MP_BIND(mp_pages_args, attention.cache.scale[1], a->cache_scale[1]),
                     MP_BIND(mp_pages_args, pages.table, a->pages != NULL ? a->table : MP_NOWHERE));
}

/* The form of the kernel for what caches have, and how it is launched. */
typedef struct form {
    const char *name;
    mp_status (*launch)(mp_planner *p, const mp_attention *a, const mp_kernel *kernel, mp_grid grid,
                        const mp_attention_args *args, mp_ref part);
} form;

static form form_of(const mp_attention *a) {
    return a->fresh != NULL                   ? (form){"fresh_", launch_fresh}
           : a->cache != NULL                 ? (form){"codes_", launch_pages}
           : a->pages != NULL                 ? (form){"pages_", launch_pages}
           : a->rule.mask_kind != K_MASK_NONE ? (form){"masked_", mp_attention_launch}
                                              : (form){"", mp_attention_launch};
}

mp_status mp_plan_attention_decode(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    mp_attention_args args = mp_attention_args_of(p, a);
    const int64_t tiles = MP_CEIL_DIV(rule->keys, K_DECODE_KEYS(a->head_size, a->cache != NULL));
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
    const form how = form_of(a);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_decode_%s%d_%s", how.name, (int)a->head_size,
                          mp_dtype_word(a->type)));
    MP_TRY(how.launch(p, a, kernel, decode_grid(p, &args, units, tiles), &args, part));
    if (part.place == MP_PLACE_NONE) {
        return MP_OK;
    }
    mp_grid grid;
    MP_TRY(mp_plan_attention_combine(p, a->type, &args, &kernel, &grid));
    return mp_attention_launch(p, a, kernel, grid, &args, part);
}
