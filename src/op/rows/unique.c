/* unique.c - Unique: slices are sorted, those that differ from the one before begin a group, and
 * the outputs are made once it is known how many groups there are. Single elements are sorted by
 * digits, longer slices by a network that compares them. A NaN equals every other NaN.
 * Kernels: rows/unique.cu, rows/unique_write.cu, and move/compact_count.cu, move/compact_scan.cu,
 * move/compact_write.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed_args.h"
#include "kernel/rows/sort_args.h"
#include "op/core/families.h"
#include "op/move/gather.h"
#include "op/rows/key_bits.h"
#include "op/rows/sort_steps.h"

#include <string.h>

typedef struct slices {
    mp_shape shape; /* flat where the model names no axis */
    int axis;
    int64_t count, length, inner, padded; /* padded: what the network sorts; 0 for digits */
    mp_ref total, starts, flags, pairs;   /* in the memory that is kept; behind starts are masks */
    size_t kept;                          /* its size */
} slices;

/* ---- what both plans know ---- */

static int64_t tiles_of(int64_t count) {
    return MP_CEIL_DIV(count, K_COMPACT_TILE);
}

/* Bytes of the starts of all tiles and their masks. */
static size_t starts_bytes(int64_t count) {
    return (size_t)tiles_of(count) * (K_COMPACT_STARTS + K_COMPACT_MASKS);
}

static mp_status lay_out(slices *s, mp_ref base) {
    const int64_t pairs = s->padded > 0 ? s->padded : s->count;
    int64_t bytes = 0;
    if (__builtin_mul_overflow(pairs, (int64_t)sizeof(k_pair) * 2, &bytes)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld slices are too many to sort", (long long)s->count);
    }
    s->total = base;
    s->starts = mp_ref_at(s->total, MP_ALIGNMENT);
    s->flags = mp_ref_at(s->starts, MP_ALIGN_UP(starts_bytes(s->count), MP_ALIGNMENT));
    s->pairs = mp_ref_at(s->flags, MP_ALIGN_UP((size_t)s->count, MP_ALIGNMENT));
    s->kept = s->pairs.offset - base.offset + (size_t)pairs * sizeof(k_pair);
    return MP_OK;
}

static mp_status read_slices(const mp_planner *p, mp_ref base, slices *s) {
    const mp_shape *x = &p->in[0].shape;
    *s = (slices){.shape = {.rank = 1, .dim = {mp_shape_count(x)}}};
    if (mp_node_attr(p->node, "axis") != NULL) {
        s->shape = *x;
        MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), x->rank, "axis", &s->axis));
    }
    s->count = s->shape.dim[s->axis];
    s->inner = mp_shape_span(&s->shape, s->axis + 1, s->shape.rank);
    s->length = mp_shape_span(&s->shape, 0, s->axis) * s->inner;
    if (s->length != 1) {
        s->padded = 2;
        while (s->padded < s->count) {
            s->padded *= 2;
        }
    }
    return lay_out(s, base);
}

/* ---- compaction: the places of the bytes that are set ---- */

static mp_status compact(mp_planner *p, const char *kernel_name, mp_compact_args args, mp_grid grid,
                         mp_ref flags, mp_ref starts, mp_ref to) {
    const uint64_t masks = (uint64_t)args.tiles * K_COMPACT_STARTS;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "%s", kernel_name));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_compact_args, x, flags),
                     MP_BIND(mp_compact_args, masks, mp_ref_at(starts, masks)),
                     MP_BIND(mp_compact_args, starts, starts), MP_BIND(mp_compact_args, out, to),
                     MP_BIND(mp_compact_args, total, to));
}

static mp_compact_args compact_args_of(const slices *s, int64_t found) {
    return (mp_compact_args){.count = s->count,
                             .tiles = tiles_of(s->count),
                             .tile = K_COMPACT_TILE,
                             .found = found,
                             .flags = K_COMPACT_PACKED};
}

static mp_status count_set(mp_planner *p, const slices *s, mp_ref flags, mp_ref starts,
                           mp_ref total) {
    const mp_compact_args args = compact_args_of(s, 0);
    const mp_grid grid = mp_plan_grid_rows(p, args.tiles, K_COMPACT_LANES);
    MP_TRY(compact(p, "compact_count_bool", args, grid, flags, starts, MP_NOWHERE));
    return compact(p, "compact_scan", args, (mp_grid){.blocks = 1, .lanes = K_COMPACT_SCAN_LANES},
                   MP_NOWHERE, starts, total);
}

static mp_status write_set(mp_planner *p, const slices *s, int64_t found, mp_ref starts,
                           mp_ref out) {
    const mp_compact_args args = compact_args_of(s, found);
    mp_grid grid = mp_plan_grid_rows(p, args.tiles, K_COMPACT_LANES);
    grid.shared_bytes = K_COMPACT_PLACES;
    return compact(p, "compact_write", args, grid, MP_NOWHERE, starts, out);
}

/* ---- sorting ---- */

static mp_status launch_groups(mp_planner *p, mp_unique_write_args args, int32_t stage,
                               const mp_bind *binds, size_t count) {
    const mp_kernel *kernel = NULL;
    const int64_t work = stage == K_UNIQUE_MARK ? args.groups : args.slices;
    args.stage = stage;
    MP_TRY(mp_plan_kernel(p, &kernel, "unique_write"));
    return MP_LAUNCH_BOUND(p, kernel, mp_plan_grid(p, work, 1), &args, sizeof args, binds, count);
}

static mp_status compare(mp_planner *p, const slices *s, const mp_unique_args *args, int64_t work) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "unique_b%d", mp_order_bits(p->in[0].type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, work, 1), *args,
                     MP_BIND(mp_unique_args, x, MP_IN(0)), MP_BIND(mp_unique_args, pairs, s->pairs),
                     MP_BIND(mp_unique_args, flags, s->flags));
}

static mp_status sort_by_network(mp_planner *p, const slices *s, mp_unique_args args) {
    const mp_bind binds[] = {MP_BIND(mp_unique_write_args, pairs, s->pairs)};
    const mp_unique_write_args start = {.slices = s->padded, .groups = s->count};
    MP_TRY(launch_groups(p, start, K_UNIQUE_START, binds, 1));
    args.stage = K_UNIQUE_STEP;
    for (args.run = 2; args.run <= s->padded; args.run *= 2) {
        for (args.step = args.run / 2; args.step > 0; args.step /= 2) {
            MP_TRY(compare(p, s, &args, s->padded / 2));
        }
    }
    return MP_OK;
}

static mp_status sort_by_digits(mp_planner *p, const slices *s, k_order order) {
    const mp_dtype dtype = p->in[0].type;
    mp_sort_list list = {
        .rows = 1, .columns = s->count, .bits = mp_order_bits(dtype), .entries = s->pairs};
    MP_TRY(mp_plan_entries(p, dtype, order, MP_IN(0), &list));
    MP_TRY(mp_plan_sort(p, &list));
    return mp_plan_copy(p, s->pairs, list.entries, (size_t)s->count * sizeof(k_pair));
}

static mp_status plan_unique(mp_planner *p) {
    slices s;
    mp_ref kept = MP_NOWHERE;
    MP_TRY(read_slices(p, MP_KEPT, &s));
    MP_TRY(mp_plan_scratch(p, s.kept, &kept));
    MP_TRY(lay_out(&s, kept));
    MP_TRY(mp_plan_read_back(p, s.total, 1));
    if (s.count == 0) {
        return mp_plan_fill(p, s.total, 0, 1, sizeof(int64_t));
    }
    mp_unique_args args = {.slices = s.count,
                           .length = s.length,
                           .inner = s.inner,
                           .padded = s.padded,
                           .order = mp_order_of(p->in[0].type, false),
                           .stage = K_UNIQUE_FLAGS};
    MP_TRY(s.padded > 0 ? sort_by_network(p, &s, args) : sort_by_digits(p, &s, args.order));
    MP_TRY(compare(p, &s, &args, s.count));
    return count_set(p, &s, s.flags, s.starts, s.total);
}

/* ---- the outputs ---- */

/* The first slices of the groups, in order, into scratch memory. */
static mp_status order_by_first(mp_planner *p, const slices *s, int64_t groups, mp_ref heads,
                                mp_ref *first) {
    mp_ref marks = MP_NOWHERE, starts = MP_NOWHERE, total = MP_NOWHERE;
    MP_TRY(mp_plan_scratch(p, (size_t)groups * sizeof(int64_t), first));
    MP_TRY(mp_plan_scratch(p, (size_t)s->count, &marks));
    MP_TRY(mp_plan_scratch(p, starts_bytes(s->count), &starts));
    MP_TRY(mp_plan_scratch(p, sizeof(int64_t), &total));
    const mp_bind binds[] = {MP_BIND(mp_unique_write_args, pairs, s->pairs),
                             MP_BIND(mp_unique_write_args, heads, heads),
                             MP_BIND(mp_unique_write_args, marks, marks)};
    MP_TRY(mp_plan_fill(p, marks, 0, 1, (size_t)s->count));
    MP_TRY(launch_groups(p, (mp_unique_write_args){.slices = s->count, .groups = groups},
                         K_UNIQUE_MARK, binds, MP_COUNT_OF(binds)));
    MP_TRY(count_set(p, s, marks, starts, total));
    return write_set(p, s, groups, starts, *first);
}

static mp_ref output_or_nowhere(const mp_planner *p, int i) {
    return i < p->out_count ? MP_OUT(i) : MP_NOWHERE;
}

static mp_status write_outputs(mp_planner *p, const slices *s, int64_t groups) {
    mp_ref heads = MP_NOWHERE, first = MP_NOWHERE, places = MP_NOWHERE;
    MP_TRY(mp_plan_scratch(p, (size_t)groups * sizeof(int64_t), &heads));
    MP_TRY(mp_plan_scratch(p, (size_t)groups * sizeof(int64_t), &places));
    MP_TRY(write_set(p, s, groups, s->starts, heads));
    if (!mp_node_flag(p->node, "sorted", true)) {
        MP_TRY(order_by_first(p, s, groups, heads, &first));
    }
    const mp_bind binds[] = {MP_BIND(mp_unique_write_args, pairs, s->pairs),
                             MP_BIND(mp_unique_write_args, heads, heads),
                             MP_BIND(mp_unique_write_args, first, first),
                             MP_BIND(mp_unique_write_args, places, places),
                             MP_BIND(mp_unique_write_args, indices, output_or_nowhere(p, 1)),
                             MP_BIND(mp_unique_write_args, inverse, output_or_nowhere(p, 2)),
                             MP_BIND(mp_unique_write_args, counts, output_or_nowhere(p, 3))};
    MP_TRY(launch_groups(p, (mp_unique_write_args){.slices = s->count, .groups = groups},
                         K_UNIQUE_WRITE, binds, MP_COUNT_OF(binds)));
    const mp_gather gather = {.x = MP_IN(0),
                              .type = p->in[0].type,
                              .shape = &s->shape,
                              .axis = s->axis,
                              .indices = places,
                              .index_type = MP_I64,
                              .index_count = groups,
                              .out = MP_OUT(0)};
    return mp_plan_gather(p, &gather);
}

static mp_status finish_unique(mp_planner *p, const int64_t *found) {
    slices s;
    MP_TRY(read_slices(p, MP_KEPT, &s));
    const int64_t groups = found[0];
    if (groups < 0 || groups > s.count) {
        return MP_FAIL(DEVICE, "%lld of %lld slices were found", (long long)groups,
                       (long long)s.count);
    }
    const mp_shape list = {.rank = 1, .dim = {groups}};
    const mp_shape all = {.rank = 1, .dim = {s.count}};
    mp_shape shape = s.shape;
    shape.dim[s.axis] = groups;
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &shape));
    MP_TRY(mp_plan_output(p, 1, MP_I64, &list));
    MP_TRY(mp_plan_output(p, 2, MP_I64, &all));
    MP_TRY(mp_plan_output(p, 3, MP_I64, &list));
    return groups > 0 ? write_outputs(p, &s, groups) : MP_OK;
}

static const mp_attr_def attrs[] = {{"axis", MP_ATTR_INT}, {"sorted", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "Unique",
     .since = 11,
     .until = 11,
     .types = {{"T", MP_OLD_TYPES}},
     .attrs = attrs,
     .plan = plan_unique,
     .finish = finish_unique},
};

const mp_op_family mp__family_unique = {"unique", ops, MP_COUNT_OF(ops)};
