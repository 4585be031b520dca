/* recurrent_mma.c - how the blocks of a cooperative launch share the steps of a recurrent network
 * whose products are made by tensor cores. R has to fit into the registers of as many
 * multiprocessors as there are; entries beyond eight are another round of the same products. A step
 * takes some two microseconds, most of them the meeting, and 0.3 more for each further eight
 * entries of a group.
 * Kernel: recurrent/recurrent_mma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/recurrent/recurrent_mma.h"

enum {
    ARCH = 80,
    WARP = 32,
    WARPS_MAX = K_RECURRENT_LANES / WARP,
    TILE = 16,
    /* Entries of a cluster's group from which its products, element by element, take longer than
     * the meeting of a whole grid. Those of 16 bits must be unpacked. */
    CLUSTER_ENTRIES = 4,
    CLUSTER_ENTRIES_HALF = 3
};

static bool can_take(const mp_planner *p, const mp_recurrent *r) {
    const mp_device_info *info = &p->device->info;
    const bool type =
        r->type == MP_F16 || r->type == MP_BF16 || (r->type == MP_F32 && p->node->options.tf32);
    return type && info->arch >= ARCH && info->grids_meet && r->cell.steps > 1;
}

static bool is_sooner(const mp_recurrent *r, const mp_recurrent_group *other) {
    const int32_t most = mp_dtype_size(r->type) == 2 ? CLUSTER_ENTRIES_HALF : CLUSTER_ENTRIES;
    return other == NULL || other->args.meet == K_MEET_GRID ||
           (other->args.meet == K_MEET_CLUSTER && other->args.rows >= most);
}

/* As few groups as have up to eight entries each, or as many as there is room for. */
static bool layout(const mp_device_info *info, const mp_recurrent *r, mp_recurrent_mma *out) {
    const k_cell *cell = &r->cell;
    const int64_t tiles = K_RECURRENT_MMA_TILES(mp_dtype_size(r->type));
    const int64_t depth_warps = MP_CEIL_DIV(cell->hidden, K_RECURRENT_MMA_DEPTH);
    const int64_t rows = depth_warps <= WARPS_MAX ? WARPS_MAX / depth_warps * tiles * TILE : 0;
    const int64_t most = rows / cell->kind; /* units of a block */
    if (most == 0) {
        return false;
    }
    const int64_t blocks = MP_CEIL_DIV(cell->hidden, most);
    const int64_t units = MP_CEIL_DIV(cell->hidden, blocks);
    const int64_t groups = info->multiprocessors / (blocks * cell->directions);
    if (groups == 0) {
        return false;
    }
    const int64_t each = MP_CEIL_DIV(cell->batch, groups);
    const int64_t wanted = MP_MIN(cell->batch, K_RECURRENT_MMA_SIDE);
    const int64_t entries = MP_MAX(each, wanted);
    const int64_t sides = MP_CEIL_DIV(entries, K_RECURRENT_MMA_SIDE);
    const int64_t tile_warps = MP_CEIL_DIV(units * cell->kind, tiles * TILE);
    const int64_t sums = depth_warps * tile_warps * tiles * TILE * sides * K_RECURRENT_MMA_SIDE;
    if (sides > WARPS_MAX) { /* far too many, before they are counted in 32 bits */
        return false;
    }
    out->args = (mp_recurrent_mma_args){.entry_groups = MP_CEIL_DIV(cell->batch, entries),
                                        .blocks = (int32_t)blocks,
                                        .entries = (int32_t)entries,
                                        .sides = (int32_t)sides,
                                        .units = (int32_t)units,
                                        .depth_warps = (int32_t)depth_warps,
                                        .tile_warps = (int32_t)tile_warps,
                                        .pitch = (int32_t)(depth_warps * K_RECURRENT_MMA_DEPTH)};
    out->lanes = (uint32_t)(depth_warps * tile_warps * WARP);
    out->shared_bytes =
        (size_t)(K_RECURRENT_MMA_HELD(units, sides, cell->kind) + sums) * sizeof(float);
    return out->shared_bytes <= info->shared_bytes_max;
}

bool mp_recurrent_mma_choose(const mp_planner *p, const mp_recurrent *r,
                             const mp_recurrent_group *other, mp_recurrent_mma *out) {
    return can_take(p, r) && is_sooner(r, other) && layout(&p->device->info, r, out);
}

/* Counts, and the states that pass through memory: zeros beyond the last unit and entry. */
static mp_status plan_meeting(mp_planner *p, const mp_recurrent *r,
                              const mp_recurrent_mma_args *args, mp_ref *out) {
    const k_cell *cell = &r->cell;
    const size_t groups = (size_t)(cell->directions * args->entry_groups);
    const size_t parts = cell->kind == K_CELL_GRU && !cell->linear_before_reset ? 3 : 2;
    const size_t state =
        (size_t)args->sides * K_RECURRENT_MMA_SIDE * (size_t)args->pitch * mp_dtype_size(r->type);
    const size_t words = groups * (K_RECURRENT_MMA_APART + parts * state / sizeof(uint32_t));
    MP_TRY(mp_plan_scratch(p, words * sizeof(uint32_t), out));
    return mp_plan_fill(p, *out, 0, sizeof(uint32_t), words);
}

mp_status mp_recurrent_mma_plan(mp_planner *p, const mp_recurrent *r, const mp_recurrent_mma *mma,
                                mp_ref projected) {
    const k_cell *cell = &r->cell;
    const int64_t row = cell->hidden * (int64_t)mp_dtype_size(r->type);
    mp_recurrent_mma_args args = mma->args;
    const mp_kernel *kernel = NULL;
    mp_ref meeting = MP_NOWHERE;
    MP_TRY(plan_meeting(p, r, &args, &meeting));
    args.cell = *cell;
    args.wide = p->align >= 16 && row % 16 == 0;
    mp_bind binds[2 + MP_CELL_BINDS] = {MP_BIND(mp_recurrent_mma_args, recurrence, MP_IN(MP_RNN_R)),
                                        MP_BIND(mp_recurrent_mma_args, meeting, meeting)};
    mp_recurrent_bind(p, projected, offsetof(mp_recurrent_mma_args, cell), binds + 2);
    MP_TRY(mp_plan_kernel(p, &kernel, "recurrent_mma_%s", mp_dtype_word(r->type)));
    const mp_grid grid = {.blocks = (uint32_t)(cell->directions * args.entry_groups * args.blocks),
                          .lanes = mma->lanes,
                          .shared_bytes = (uint32_t)mma->shared_bytes,
                          .meets = MP_MEETS_ALL};
    return MP_LAUNCH_BOUND(p, kernel, grid, &args, sizeof args, binds, MP_COUNT_OF(binds));
}
