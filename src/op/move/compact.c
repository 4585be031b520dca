/* compact.c - NonZero and Compress: what is picked depends on data, so the elements are counted
 * first and the outputs made once the count is known.
 * Kernels: move/compact_count.cu, move/compact_scan.cu, move/compact_write.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed_args.h"
#include "op/core/families.h"
#include "op/move/gather.h"

/* ---- the steps ---- */

/* The scratch memory of the count, which stays for the steps that write: the total, the start of
 * each tile behind it, and which elements of each are found. */
enum { STARTS_AT = MP_ALIGNMENT };

static size_t masks_at(const mp_compact_args *args) {
    return STARTS_AT + (size_t)args->tiles * K_COMPACT_STARTS;
}

static mp_compact_args args_of(const mp_planner *p, int64_t count) {
    return (mp_compact_args){.count = count,
                             .tiles = MP_CEIL_DIV(count, K_COMPACT_TILE),
                             .tile = K_COMPACT_TILE,
                             .flags = p->align >= 16 ? K_COMPACT_PACKED : 0};
}

static mp_status launch(mp_planner *p, const mp_kernel *kernel, mp_grid grid,
                        const mp_compact_args *args, mp_ref x, mp_ref kept, mp_ref out) {
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_compact_args, x, x),
                     MP_BIND(mp_compact_args, masks, mp_ref_at(kept, masks_at(args))),
                     MP_BIND(mp_compact_args, starts, mp_ref_at(kept, STARTS_AT)),
                     MP_BIND(mp_compact_args, total, kept), MP_BIND(mp_compact_args, out, out));
}

/* Counts the elements of `x` that are not zero, to be read back. */
static mp_status count_found(mp_planner *p, mp_ref x, mp_dtype dtype, int64_t count) {
    const mp_compact_args args = args_of(p, count);
    mp_ref kept = MP_NOWHERE;
    const mp_kernel *counter = NULL, *scan = NULL;
    MP_TRY(mp_plan_scratch(p, masks_at(&args) + (size_t)args.tiles * K_COMPACT_MASKS, &kept));
    MP_TRY(mp_plan_read_back(p, kept, 1));
    if (count == 0) {
        return mp_plan_fill(p, kept, 0, 1, sizeof(int64_t));
    }
    MP_TRY(mp_plan_kernel(p, &counter, "compact_count_%s", mp_dtype_word(dtype)));
    MP_TRY(mp_plan_kernel(p, &scan, "compact_scan"));
    MP_TRY(launch(p, counter, mp_plan_grid_rows(p, args.tiles, K_COMPACT_LANES), &args, x, kept,
                  MP_NOWHERE));
    return launch(p, scan, (mp_grid){.blocks = 1, .lanes = K_COMPACT_SCAN_LANES}, &args, x, kept,
                  MP_NOWHERE);
}

static void set_strides(const mp_shape *shape, mp_compact_args *args) {
    const bool is_wide = args->count > INT32_MAX;
    int64_t stride[MP_RANK_MAX] = {0};
    mp_shape_strides(shape, stride);
    args->rank = shape->rank;
    args->flags |= is_wide ? K_COMPACT_WIDE : 0;
    for (int d = 0; d < shape->rank; d++) {
        args->stride[d] = stride[d];
        if (!is_wide) {
            args->by_stride[d] = mp_divider((uint32_t)stride[d]);
        }
    }
}

/* Writes the places of the `found` elements: their indices within `shape`, one row for each
 * dimension, or positions where that is NULL. */
static mp_status write_found(mp_planner *p, int64_t count, int64_t found, const mp_shape *shape,
                             mp_ref out) {
    mp_compact_args args = args_of(p, count);
    const mp_kernel *kernel = NULL;
    if (found == 0) {
        return MP_OK;
    }
    args.found = found;
    if (shape != NULL) {
        set_strides(shape, &args);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "compact_write"));
    mp_grid grid = mp_plan_grid_rows(p, args.tiles, K_COMPACT_LANES);
    grid.shared_bytes = K_COMPACT_PLACES;
    return launch(p, kernel, grid, &args, MP_NOWHERE, MP_KEPT, out);
}

static mp_status check_found(int64_t found, int64_t count) {
    return found >= 0 && found <= count ? MP_OK
                                        : MP_FAIL(DEVICE, "%lld of %lld elements were found",
                                                  (long long)found, (long long)count);
}

/* ---- NonZero ---- */

/* Every dimension is a row of the result, so none can be merged. */
static mp_status accept_nonzero(const mp_planner *p) {
    return mp_rank_accept(&p->in[0].shape, K_RANK_MAX, "X");
}

static mp_status plan_nonzero(mp_planner *p) {
    MP_TRY(accept_nonzero(p));
    return count_found(p, MP_IN(0), p->in[0].type, mp_shape_count(&p->in[0].shape));
}

static mp_status finish_nonzero(mp_planner *p, const int64_t *found) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t count = mp_shape_count(x);
    const mp_shape shape = {.rank = 2, .dim = {x->rank > 0 ? x->rank : 1, found[0]}};
    MP_TRY(check_found(found[0], count));
    MP_TRY(mp_plan_output(p, 0, MP_I64, &shape));
    return write_found(p, count, found[0], x->rank > 1 ? x : NULL, MP_OUT(0));
}

/* ---- Compress ---- */

typedef struct picked {
    mp_shape x; /* flat where the model names no axis */
    int axis;
    int64_t count; /* elements of the condition that count */
} picked;

static mp_status read_picked(const mp_planner *p, picked *out) {
    const mp_shape *x = &p->in[0].shape, *condition = &p->in[1].shape;
    if (condition->rank != 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "condition must have rank 1, not the shape %s",
                       mp_shape_text(condition, text));
    }
    *out = (picked){.x = {.rank = 1, .dim = {mp_shape_count(x)}}};
    if (mp_node_attr(p->node, "axis") != NULL) {
        out->x = *x;
        MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), x->rank, "axis", &out->axis));
    }
    const int64_t dim = out->x.dim[out->axis];
    out->count = MP_MIN(condition->dim[0], dim);
    return MP_OK;
}

static mp_status plan_compress(mp_planner *p) {
    picked what;
    MP_TRY(read_picked(p, &what));
    return count_found(p, MP_IN(1), MP_BOOL, what.count);
}

static mp_status finish_compress(mp_planner *p, const int64_t *found) {
    picked what;
    mp_ref places = MP_NOWHERE;
    MP_TRY(read_picked(p, &what));
    MP_TRY(check_found(found[0], what.count));
    mp_shape shape = what.x;
    shape.dim[what.axis] = found[0];
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &shape));
    MP_TRY(mp_plan_scratch_of(p, found[0], MP_I64, &places));
    MP_TRY(write_found(p, what.count, found[0], NULL, places));
    const mp_gather gather = {.x = MP_IN(0),
                              .type = p->in[0].type,
                              .shape = &what.x,
                              .axis = what.axis,
                              .indices = places,
                              .index_type = MP_I64,
                              .index_count = found[0],
                              .out = MP_OUT(0)};
    return mp_plan_gather(p, &gather);
}

/* ---- the rows ---- */

static const mp_attr_def axis_attr[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};

enum {
    FOUND = 1u << MP_BOOL | 1u << MP_U8 | 1u << MP_I32 | 1u << MP_I64 | 1u << MP_F16 | 1u << MP_F32,
};

static const mp_op ops[] = {
    {.domain = "",
     .name = "NonZero",
     .since = 9,
     .until = 13,
     .types = {{"T", FOUND}},
     .plan = plan_nonzero,
     .accept = accept_nonzero,
     .finish = finish_nonzero},
    {.domain = "",
     .name = "Compress",
     .since = 9,
     .until = 11,
     .types = {{"T", MP_OLD_TYPES}, {"T1", MP_BIT(MP_BOOL)}},
     .attrs = axis_attr,
     .plan = plan_compress,
     .finish = finish_compress},
};

const mp_op_family mp__family_compact = {"compact", ops, MP_COUNT_OF(ops)};
