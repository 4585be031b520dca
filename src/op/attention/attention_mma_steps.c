/* attention_mma_steps.c - attention by tensor cores: for types of two bytes and, where TF32 is
 * allowed, for float.
 * Kernels: attention/attention_direct.cu, attention/attention_group.cu, attention/attention_mma.cu,
 * attention/attention_turns.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_ways.h"
#include "op/attention/direct_cut.h"

enum {
    MMA_WARPS_MAX = 8,   /* of a block */
    MMA_SHORT_HEAD = 64, /* heads up to it leave registers for more: */
    MMA_SHORT_WARPS_MAX = 12,
    MMA_WARPS_WANTED = 8, /* a multiprocessor */
    MMA_ROWS_LOADED = 3,  /* sets of rows that take as long as to load the keys of a block */
    MMA_FLOAT_HEAD_MAX = 128,
    DIRECT_HEAD_MAX = 128,
    GROUP_ARCH = 90,      /* the only one that has what attention_group.cu is made of */
    GROUP_ROWS = 64,      /* of a group */
    GROUP_KEYS_MIN = 192, /* fewer are worth it where there are many blocks */
    TURNS_HEAD_MAX = 64,
    TURNS_KEYS_MIN = 256, /* what blocks begin and end with is worth it */
    TURNS_QUARTERS = 3    /* of what a tile takes by pairs of groups; an estimate */
};
#define CAP_MIN          0x1p-10
#define CAP_MAX          256 /* of which 2^-22 is less than what halves differ by */
#define CAPPED_SCALE_MAX 1e30

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
bool mp_attention_can_mma(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int arch = p->device->info.arch;
    const double rows = (double)rule->group * (double)rule->rows;
    const int32_t written = a->type == MP_F32 ? 4 : 2;
    bool fits = has_mma_type(p, a) && (arch == 0 || arch >= MP_ATTENTION_ARCH) &&
                rows * (double)rule->batch * (double)rule->kv_heads <= (double)INT32_MAX &&
                rule->keys <= INT32_MAX / 2 && mp_attention_is_wide(p, a) &&
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

/* Whether scores are more than products times a factor. */
static bool has_masks(const k_score_rule *rule) {
    return has_row_masks(rule) || has_added(rule) || rule->softcap > 0;
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

/* Whether attention_direct.cu has such a cap, or there is none: what it is off by grows with the
 * cap, and the factor by the cap must be a number. */
static bool can_cap(const k_score_rule *rule) {
    const double cap = rule->softcap;
    return cap == 0 || (cap >= CAP_MIN && cap <= CAP_MAX && rule->scale <= CAPPED_SCALE_MAX);
}

/* Whether products are scores but for a factor, a cap and masks. Steps between rows of keys are
 * numbers of 32 bits. */
static bool is_direct(const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    return mma_head(a) <= DIRECT_HEAD_MAX && (float)rule->scale > 0 && can_cap(rule) &&
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
                                 .masked = has_masks(rule),
                                 .added = has_added(rule)};
    const mp_direct_cut cut = mp_direct_cut_for(&p->device->info, &work);
    const int32_t processors = MP_MAX(p->device->info.multiprocessors, 1);
    mp_attention_args args = mp_attention_args_of(p, a);
    args.tile_rows = cut.row_warps * cut.rows;
    args.tile_keys = cut.sets * cut.share;
    args.added_keys = mp_direct_added(&work, &cut);
    args.row_masks = has_row_masks(rule) ? K_ROW_MASKS_ASKED : K_ROW_MASKS_NONE;
    const int64_t blocks = work.units * MP_CEIL_DIV(work.rows, args.tile_rows);
    const bool at_once = blocks <= (int64_t)processors * cut.resident;
    args.round = at_once ? processors : INT32_MAX;
    const mp_grid grid = mma_grid(p, rule, cut.row_warps * cut.sets, cut.shared_bytes, &args);
    const mp_kernel *kernel = NULL;
    const char *word = mp_dtype_word(a->type);
    MP_TRY(work.masked ? mp_plan_kernel(p, &kernel, "attention_masked_%d_%s", work.head, word)
                       : mp_plan_kernel(p, &kernel, "attention_direct_%d_%d_%s", work.head,
                                        cut.rows, word));
    return mp_attention_launch(p, a, kernel, grid, &args, MP_NOWHERE);
}

/* ---- by groups of warps ---- */

static int64_t group_blocks(const k_score_rule *rule, int64_t rows) {
    return rule->batch * rule->kv_heads * MP_CEIL_DIV(rule->group * rule->rows, rows);
}

/* The least head of attention_group.cu that holds those of `a`, where there is one. */
static int32_t group_head(const mp_attention *a) {
    enum { SHORTEST = 48, MASKED_SHORTEST = 64 };
    const bool is_short = MP_MAX(a->head_size, a->v_head_size) <= SHORTEST;
    const bool plain = !has_masks(&a->rule) && a->rule.blocks.size == 0;
    return is_short && mma_head(a) == MASKED_SHORTEST && plain ? SHORTEST : mma_head(a);
}

/* Of attention_direct.cu's work so much that a group's rows are all there. */
static bool can_group(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int32_t head = group_head(a);
    return p->device->info.arch == GROUP_ARCH && mp_dtype_size(a->type) == 2 &&
           (head == 48 || head == 64 || head == 128) && rule->group * rule->rows >= GROUP_ROWS &&
           rule->keys >= GROUP_ROWS;
}

/* Whether two groups share keys of short heads: there are so many blocks of one group that these
 * would be bound by reading them again and again. */
static bool is_pair(const mp_planner *p, const k_score_rule *rule, int32_t head) {
    return rule->group * rule->rows >= 2 * GROUP_ROWS &&
           group_blocks(rule, GROUP_ROWS) >
               (int64_t)K_GROUP_BLOCKS(head, GROUP_ROWS, 0) * p->device->info.multiprocessors;
}

/* Rows of a block, or 0 where attention_direct.cu is the faster one; measured on an H100. Two
 * groups share keys of long heads if a block's rows are of one head, and blocks for most of the
 * GPU are left. */
static int32_t group_rows(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int64_t processors = p->device->info.multiprocessors;
    const int64_t blocks = group_blocks(rule, GROUP_ROWS);
    const bool is_much =
        rule->keys >= GROUP_KEYS_MIN || (!has_masks(rule) && 2 * blocks >= processors);
    const bool is_one_head = rule->group == 1 || rule->rows % (2 * GROUP_ROWS) == 0;
    if (!can_group(p, a) || !is_much) {
        return 0;
    }
    if (group_head(a) <= 64 && !has_masks(rule)) {
        return is_pair(p, rule, group_head(a)) ? 2 * GROUP_ROWS : GROUP_ROWS;
    }
    if (has_masks(rule)) {
        return GROUP_ROWS;
    }
    if (is_one_head && 4 * group_blocks(rule, 2 * GROUP_ROWS) >= 3 * processors) {
        return 2 * GROUP_ROWS;
    }
    return blocks <= 4 * processors ? GROUP_ROWS : 0;
}

/* How masks of rows come. */
static k_row_masks group_masks(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const bool is_half = rule->mask_kind == K_MASK_F16 || rule->mask_kind == K_MASK_BF16;
    bool begins = p->align >= 16 && a->mask.offset % 16 == 0;
    for (int d = 0; d < 3; d++) {
        begins = begins && rule->mask_stride[d] % 8 == 0;
    }
    return !has_row_masks(rule) ? K_ROW_MASKS_NONE
           : is_half && begins  ? K_ROW_MASKS_COPIED
                                : K_ROW_MASKS_ASKED;
}

/* Bytes of what says which steps of keys are seen, where blocks are. */
static size_t shown_bytes(const k_score_rule *rule) {
    enum { WORD = 32, STEPS = WORD / K_GROUP_STEP_BITS };
    return rule->blocks.size == 0
               ? 0
               : sizeof(uint32_t) * (size_t)MP_CEIL_DIV(rule->keys, (int64_t)STEPS * K_GROUP_KEYS);
}

static mp_status plan_group(mp_planner *p, const mp_attention *a, int32_t rows,
                            int32_t key_heads_by) {
    const k_score_rule *rule = &a->rule;
    const int32_t head = group_head(a);
    const int32_t processors = MP_MAX(p->device->info.multiprocessors, 1);
    const bool masked = has_masks(rule);
    mp_attention_args args = mp_attention_args_of(p, a);
    args.tile_rows = rows;
    args.tile_keys = K_GROUP_KEYS;
    args.added_keys = has_added(rule) ? (int32_t)MP_ALIGN_UP(rule->keys, K_GROUP_KEYS) : 0;
    args.row_masks = (int32_t)group_masks(p, a);
    args.key_heads_by = key_heads_by;
    const size_t bytes = (size_t)K_GROUP_HELD(head, rows, masked) + K_GROUP_ALIGN - 1 +
                         (size_t)args.added_keys * sizeof(float) + shown_bytes(rule);
    const bool at_once =
        group_blocks(rule, rows) <= (int64_t)processors * K_GROUP_BLOCKS(head, rows, masked);
    args.round = at_once ? processors : INT32_MAX;
    const mp_grid grid = mma_grid(p, rule, K_GROUP_LANES(rows) / 32, bytes, &args);
    const mp_kernel *kernel = NULL;
    const char *word = mp_dtype_word(a->type);
    MP_TRY(rule->blocks.size > 0
               ? mp_plan_kernel(p, &kernel, "attention_group_blocks_%d_%s", head, word)
           : masked ? mp_plan_kernel(p, &kernel, "attention_group_masked_%d_%s", head, word)
                    : mp_plan_kernel(p, &kernel, "attention_group_%d_%d_%s", head, rows, word));
    return mp_attention_launch(p, a, kernel, grid, &args, MP_NOWHERE);
}

bool mp_attention_can_group_blocks(const mp_planner *p, const mp_attention *a) {
    enum { SHOWN_MAX = 1 << 14 /* of what shared memory is left for */ };
    const k_score_rule *rule = &a->rule;
    return rule->blocks.size > 0 && rule->blocks.size % K_GROUP_KEYS == 0 && rule->causal &&
           rule->window == 0 && !has_masks(rule) && rule->rows >= GROUP_ROWS &&
           a->debug_mode == MP_DEBUG_NONE && shown_bytes(rule) <= SHOWN_MAX &&
           mp_attention_can_mma(p, a) && is_direct(a) && can_group(p, a);
}

mp_status mp_plan_attention_group_blocks(mp_planner *p, const mp_attention *a) {
    mp_attention apart = *a; /* heads have other layouts, so that each is a unit of its own */
    apart.rule.kv_heads = a->rule.heads;
    apart.rule.group = 1;
    return plan_group(p, &apart, group_head(a) > 64 ? 2 * GROUP_ROWS : GROUP_ROWS,
                      (int32_t)a->rule.group);
}

/* Tiles that a block of attention_turns.cu has at a time: so many that each has as many. */
static int64_t turns_each(const mp_planner *p, const mp_attention *a, int64_t tiles) {
    const int64_t processors = MP_MAX(p->device->info.multiprocessors, 1);
    const int64_t rounds = MP_CEIL_DIV(tiles, K_TURNS_GROUPS(group_head(a)) * processors);
    return MP_CEIL_DIV(tiles, rounds * processors);
}

/* Whether groups of attention_turns.cu take the rows, and are sooner. A block has several tiles at
 * a time, so the last round may leave more of the GPU idle than pairs of groups do. */
static bool takes_turns(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int64_t processors = MP_MAX(p->device->info.multiprocessors, 1);
    const int64_t tiles = group_blocks(rule, K_TURNS_ROWS);
    const int64_t pairs = MP_CEIL_DIV(group_blocks(rule, 2 * GROUP_ROWS), processors);
    if (!can_group(p, a) || group_head(a) > TURNS_HEAD_MAX || has_masks(rule) || rule->causal ||
        rule->window > 0) {
        return false;
    }
    const int64_t each = turns_each(p, a, tiles);
    const int64_t turns = each * MP_CEIL_DIV(tiles, each * processors);
    return rule->keys >= TURNS_KEYS_MIN && 2 * tiles >= 3 * processors &&
           (!is_pair(p, rule, group_head(a)) || TURNS_QUARTERS * turns <= 4 * 2 * pairs);
}

static mp_status plan_turns(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int64_t processors = MP_MAX(p->device->info.multiprocessors, 1);
    const int32_t head = group_head(a);
    const int64_t tiles = group_blocks(rule, K_TURNS_ROWS), each = turns_each(p, a, tiles);
    const int64_t blocks = MP_CEIL_DIV(tiles, each);
    mp_attention_args args = mp_attention_args_of(p, a);
    args.groups = (int32_t)each;
    args.tile_rows = K_TURNS_ROWS;
    args.tile_keys = K_GROUP_KEYS;
    args.round = INT32_MAX; /* tiles are taken in their order */
    mp_grid grid =
        mma_grid(p, rule, K_TURNS_LANES(head) / 32, K_TURNS_BYTES + K_GROUP_ALIGN - 1, &args);
    grid.blocks = (uint32_t)MP_MIN(blocks, processors);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_turns_%d_%s", head, mp_dtype_word(a->type)));
    return mp_attention_launch(p, a, kernel, grid, &args, MP_NOWHERE);
}

mp_status mp_plan_attention_mma(mp_planner *p, const mp_attention *a) {
    if (is_direct(a) && takes_turns(p, a)) {
        return plan_turns(p, a);
    }
    if (is_direct(a)) {
        const int32_t rows = group_rows(p, a);
        return rows > 0 ? plan_group(p, a, rows, 1) : plan_direct(p, a);
    }
    mp_attention_args args = mp_attention_args_of(p, a);
    const size_t bytes = choose_warps(p, a, &args);
    args.round = MP_MAX(p->device->info.multiprocessors, 1);
    const int32_t row_warps = args.tile_rows / K_MMA_ROWS;
    const int32_t sets = args.tile_keys / mma_keys(a);
    const mp_grid grid = mma_grid(p, &a->rule, row_warps * sets, bytes, &args);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_mma_%d_%s", mma_head(a), mp_dtype_word(a->type)));
    return mp_attention_launch(p, a, kernel, grid, &args, MP_NOWHERE);
}
