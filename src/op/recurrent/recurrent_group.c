/* recurrent_group.c - how groups of blocks share the steps of a recurrent network. The cheapest
 * that fits is taken: R in the registers of one block, of a cluster, in the shared memory of a
 * cluster, in the registers of a cooperative launch, in its shared memory. A step in a cluster
 * takes about a microsecond, in a cooperative launch about three; each entry of a group adds a
 * third of one. A product and a launch a step take six and more, so with many entries a group they
 * win.
 * Kernel: recurrent/recurrent_group.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/recurrent/recurrent_group.h"

enum {
    WARP = 32,
    WARPS_MAX = K_RECURRENT_LANES / WARP,
    ROWS_MAX = 8, /* entries of a group */
    ROWS_MAX_GRID = 4,
    ROWS_MAX_FEW = 16, /* where the other way reads R again for every four entries */
    ENTRIES_FEW = 16,  /* up to which it does */
    HOST_ROWS_MAX = 4, /* where a block has one lane: so that several threads have work */
    SPREAD_MAX = 8,    /* blocks of a cluster that could be smaller */
    TASKS_MAX = 1 << 20,
    READ_SHARE = 2 /* at most one in so many tasks may be read from R at each step */
};

/* Where R is from the first step to the last. */
typedef enum keep { KEPT, SHARED, NOWHERE } keep;

/* What every layout of a network has to know. */
typedef struct need {
    const mp_recurrent *r;
    int64_t hidden, batch, directions;
    int64_t pieces;     /* of a unit */
    int64_t warp_tasks; /* that a warp has at a time */
    int64_t room;       /* blocks that are there at once without doubt */
    size_t shared_max;
    bool resets;
} need;

static need need_of(const mp_planner *p, const mp_recurrent *r) {
    const k_cell *cell = &r->cell;
    const mp_device_info *info = &p->device->info;
    const int64_t span = K_TASK_BYTES / (int64_t)mp_dtype_size(r->type);
    const int64_t room = (int64_t)info->multiprocessors * 7 / 8; /* clusters leave gaps */
    return (need){.r = r,
                  .hidden = cell->hidden,
                  .batch = cell->batch,
                  .directions = cell->directions,
                  .pieces = MP_CEIL_DIV(cell->hidden, span),
                  .warp_tasks = K_TASK_VALUES / cell->kind,
                  .room = MP_MAX(room, 1),
                  .shared_max = info->shared_bytes_max,
                  .resets = cell->kind == K_CELL_GRU && !cell->linear_before_reset};
}

static size_t shared_bytes(const need *n, const mp_recurrent_group_args *args) {
    const size_t pitch =
        (size_t)n->pieces * (size_t)K_TASK_BYTES / (size_t)mp_dtype_size(n->r->type);
    const size_t rows = (size_t)args->rows;
    const size_t gates = (size_t)n->r->cell.kind;
    return (rows * pitch * (n->resets ? 3 : 2) + rows * (size_t)args->tasks * gates +
            rows * (size_t)args->units) *
               sizeof(float) +
           (size_t)args->shared_tasks * gates * K_TASK_BYTES;
}

/* Entries of a group beyond which another way is as fast. Products of 16 bits have tensor cores
 * there, and must be unpacked here. */
static int64_t rows_max(const need *n, k_recurrent_meet meet) {
    const int64_t most = n->batch <= ENTRIES_FEW ? ROWS_MAX_FEW
                         : meet == K_MEET_GRID   ? ROWS_MAX_GRID
                                                 : ROWS_MAX;
    return mp_dtype_size(n->r->type) == 2 ? most / 2 : most;
}

/* Shares the units of a direction among `blocks`, and entries among as many groups as `room` has
 * place for. False where a block would have too much to do. */
static bool layout(const need *n, k_recurrent_meet meet, int64_t blocks, int64_t room, keep where,
                   mp_recurrent_group *out) {
    const int64_t units = MP_CEIL_DIV(n->hidden, blocks);
    const int64_t tasks = MP_ALIGN_UP(units * n->pieces, n->warp_tasks);
    const int64_t warps = MP_MIN(tasks / n->warp_tasks, WARPS_MAX);
    const int64_t rounds = MP_CEIL_DIV(tasks, warps * n->warp_tasks);
    const int64_t groups = room / (blocks * n->directions);
    const int64_t rows = MP_CEIL_DIV(n->batch, MP_MAX(groups, 1));
    const int64_t most = rows_max(n, meet);
    if ((groups == 0 && blocks > 1) || tasks > TASKS_MAX || (where == KEPT && rounds > 1) ||
        rows > most || (where != NOWHERE && rows * rounds > most)) {
        return false;
    }
    out->kept = where != SHARED;
    out->lanes = (uint32_t)(warps * WARP);
    out->args = (mp_recurrent_group_args){.entry_groups = MP_CEIL_DIV(n->batch, rows),
                                          .meet = (int32_t)meet,
                                          .blocks = (int32_t)blocks,
                                          .rows = (int32_t)rows,
                                          .units = (int32_t)units,
                                          .pieces = (int32_t)n->pieces,
                                          .tasks = (int32_t)tasks,
                                          .shared_tasks = where == SHARED ? (int32_t)tasks : 0};
    out->shared_bytes = shared_bytes(n, &out->args);
    return true;
}

static bool fits(const need *n, const mp_recurrent_group *group) {
    return group->shared_bytes <= n->shared_max;
}

/* A device without warps does not keep R, and its blocks cannot meet: each does all units. */
static bool choose_alone(const need *n, mp_recurrent_group *out) {
    const int64_t wanted = n->batch <= ENTRIES_FEW ? n->batch : 0;
    for (int64_t rows = MP_MIN(wanted, HOST_ROWS_MAX); rows > 0; rows--) {
        const int64_t room = MP_CEIL_DIV(n->batch, rows) * n->directions;
        if (layout(n, K_MEET_ALONE, 1, room, NOWHERE, out) && fits(n, out)) {
            return true;
        }
    }
    return false;
}

static bool lay_cluster(const need *n, int64_t blocks, keep where, mp_recurrent_group *out) {
    const k_recurrent_meet meet = blocks > 1 ? K_MEET_CLUSTER : K_MEET_ALONE;
    return layout(n, meet, blocks, n->room, where, out) && fits(n, out);
}

/* The fewest blocks of a cluster that can keep R; more where multiprocessors would have nothing to
 * do. */
static bool choose_cluster(const need *n, int most, keep where, mp_recurrent_group *out) {
    int64_t blocks = 1;
    while (blocks <= most && !lay_cluster(n, blocks, where, out)) {
        blocks *= 2;
    }
    if (blocks > most) {
        return false;
    }
    for (int64_t more = MP_MIN(most, SPREAD_MAX); blocks > 1 && more > blocks; more /= 2) {
        if (n->batch * n->directions * more <= n->room) {
            return lay_cluster(n, more, where, out);
        }
    }
    return true;
}

/* Fewer tasks in shared memory, the rest from R, until it fits. */
static bool fit_shared(const need *n, mp_recurrent_group *out) {
    const size_t each = (size_t)n->r->cell.kind * K_TASK_BYTES * (size_t)n->warp_tasks;
    mp_recurrent_group_args *args = &out->args;
    if (!fits(n, out)) {
        const size_t over = MP_CEIL_DIV(out->shared_bytes - n->shared_max, each);
        const int64_t left = args->shared_tasks - (int64_t)over * n->warp_tasks;
        if (left < args->tasks - args->tasks / READ_SHARE) {
            return false;
        }
        args->shared_tasks = (int32_t)left;
        out->shared_bytes -= over * each;
    }
    return true;
}

static bool choose_grid(const need *n, int64_t multiprocessors, mp_recurrent_group *out) {
    const int64_t units = WARPS_MAX * n->warp_tasks / n->pieces; /* that registers keep */
    if (units > 0 &&
        layout(n, K_MEET_GRID, MP_CEIL_DIV(n->hidden, units), multiprocessors, KEPT, out) &&
        fits(n, out)) {
        return true;
    }
    const int64_t most = MP_MIN(multiprocessors / n->directions, n->hidden);
    return most > 0 && layout(n, K_MEET_GRID, most, multiprocessors, SHARED, out) &&
           fit_shared(n, out);
}

bool mp_recurrent_group_choose(const mp_planner *p, const mp_recurrent *r,
                               mp_recurrent_group *out) {
    const mp_device_info *info = &p->device->info;
    const need n = need_of(p, r);
    const int cluster = MP_MAX(info->cluster_blocks_max, 1);
    if (r->type == MP_F64 || r->cell.steps < 2) {
        return false;
    }
    if (info->warp == 1) {
        return choose_alone(&n, out);
    }
    return choose_cluster(&n, cluster, KEPT, out) || choose_cluster(&n, cluster, SHARED, out) ||
           (info->grids_meet && choose_grid(&n, info->multiprocessors, out));
}

/* Memory through which the blocks of a cooperative launch pass their states. */
static mp_status plan_meeting(mp_planner *p, const mp_recurrent *r,
                              const mp_recurrent_group_args *args, mp_ref *state, mp_ref *arrived) {
    const int64_t groups = r->cell.directions * args->entry_groups;
    const mp_shape shape = {.rank = 4, .dim = {3, groups, args->rows, r->cell.hidden}};
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, state));
    MP_TRY(mp_plan_scratch(p, (size_t)groups * sizeof(uint32_t), arrived));
    return mp_plan_fill(p, *arrived, 0, sizeof(uint32_t), (size_t)groups);
}

mp_status mp_recurrent_group_plan(mp_planner *p, const mp_recurrent *r,
                                  const mp_recurrent_group *group, mp_ref projected) {
    const k_cell *cell = &r->cell;
    mp_recurrent_group_args args = group->args;
    const mp_kernel *kernel = NULL;
    mp_ref state = MP_NOWHERE;
    mp_ref arrived = MP_NOWHERE;
    if (args.meet == K_MEET_GRID) {
        MP_TRY(plan_meeting(p, r, &args, &state, &arrived));
    }
    args.cell = *cell;
    args.wide = p->align >= 16 && cell->hidden % 4 == 0;
    mp_bind binds[3 + MP_CELL_BINDS] = {
        MP_BIND(mp_recurrent_group_args, recurrence, MP_IN(MP_RNN_R)),
        MP_BIND(mp_recurrent_group_args, state, state),
        MP_BIND(mp_recurrent_group_args, arrived, arrived)};
    mp_recurrent_bind(p, projected, offsetof(mp_recurrent_group_args, cell), binds + 3);
    MP_TRY(mp_plan_kernel(p, &kernel, "recurrent_%s_%d_%s", group->kept ? "kept" : "read",
                          (int)cell->kind, mp_dtype_word(r->type)));
    const mp_grid grid = {.blocks = (uint32_t)(cell->directions * args.entry_groups * args.blocks),
                          .lanes = group->lanes,
                          .shared_bytes = (uint32_t)group->shared_bytes,
                          .meets = args.meet == K_MEET_GRID      ? MP_MEETS_ALL
                                   : args.meet == K_MEET_CLUSTER ? (uint32_t)args.blocks
                                                                 : 0};
    return MP_LAUNCH_BOUND(p, kernel, grid, &args, sizeof args, binds, MP_COUNT_OF(binds));
}
