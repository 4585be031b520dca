/* gather.c - Gather, GatherElements, GatherND: elements are picked by indices on the device.
 * Kernels: move/gather.cu, move/gather_at.cu, move/gather_row.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/gather.h"
#include "kernel/move/indexed_args.h"
#include "op/core/families.h"
#include "op/move/index_walk.h"
#include "op/move/strided_copy.h"

/* ---- many picks of a row ---- */

/* What is picked from rows. */
typedef struct rows {
    mp_ref x, indices, out;
    mp_dtype type, index_type;
    int64_t count, length, picks;
    bool one_list; /* of indices, for all rows */
} rows;

/* Whether it is worth it to bring whole rows: enough is picked of each, and there is a block for
 * each multiprocessor at least. */
static bool rows_serve(const rows *r) {
    enum { LENGTH_BYTES = 16 << 10, PICKS_MIN = 256, READ_MOST = 4, ROWS_MIN = 64 };
    return r->picks >= PICKS_MIN && r->picks <= INT32_MAX / 2 && r->count >= ROWS_MIN &&
           r->length <= r->picks * READ_MOST &&
           r->length * (int64_t)mp_dtype_size(r->type) <= LENGTH_BYTES;
}

static mp_status pick_rows(mp_planner *p, const rows *r) {
    enum { LANES_MIN = 32, LANES_MAX = 256 };
    const int64_t size = (int64_t)mp_dtype_size(r->type);
    const int64_t run = K_GATHER_PICKED(size);
    const mp_gather_row_args args = {
        .rows = r->count,
        .index_step = r->one_list ? 0 : r->picks,
        .length = (int32_t)r->length,
        .picks = (int32_t)r->picks,
        .whole_words = p->align >= 16 && r->length * size % 16 == 0,
        .packed = p->align >= 16 && r->picks % run == 0,
    };
    const mp_kernel *kernel = NULL;
    uint32_t lanes = LANES_MIN;
    while (lanes < LANES_MAX && (int64_t)lanes * run < r->picks) {
        lanes *= 2;
    }
    mp_grid grid = mp_plan_grid_rows(p, args.rows, lanes);
    grid.shared_bytes = (uint32_t)MP_ALIGN_UP((size_t)(r->length * size), 16);
    MP_TRY(mp_plan_kernel(p, &kernel, "gather_row_b%d_%s", (int)size * 8,
                          mp_dtype_word(r->index_type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_gather_row_args, x, r->x),
                     MP_BIND(mp_gather_row_args, indices, r->indices),
                     MP_BIND(mp_gather_row_args, out, r->out));
}

/* ---- Gather ---- */

mp_status mp_plan_gather(mp_planner *p, const mp_gather *g) {
    mp_gather_args args = {.axis_dim = g->shape->dim[g->axis]};
    const size_t size = mp_dtype_size(g->type);
    const int64_t run = mp_shape_span(g->shape, g->axis + 1, g->shape->rank);
    const size_t unit = mp_move_unit(p, run * (int64_t)size, size);
    args.inner = run * (int64_t)size / (int64_t)unit;
    const mp_shape space = {
        .rank = 3, .dim = {mp_shape_span(g->shape, 0, g->axis), g->index_count, args.inner}};
    args.count = mp_shape_count(&space);
    if (args.count == 0) {
        return MP_OK;
    }
    if (args.axis_dim == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "axis %d of X is empty, so no index is valid", g->axis);
    }
    const rows picked = {g->x,         g->indices,    g->out,         g->type, g->index_type,
                         space.dim[0], args.axis_dim, g->index_count, true};
    if (run == 1 && rows_serve(&picked)) {
        return pick_rows(p, &picked);
    }
    int64_t stride[2][MP_RANK_MAX] = {{args.axis_dim * args.inner, 0, 1}, {0, 1, 0}};
    MP_TRY(mp_layout_make(&space, stride, 2, &args.layout));
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "gather_b%zu_%s", unit * 8, mp_dtype_word(g->index_type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_gather_args, x, g->x), MP_BIND(mp_gather_args, indices, g->indices),
                     MP_BIND(mp_gather_args, out, g->out));
}

mp_status mp_gather_shape(const mp_shape *x, const mp_shape *indices, int axis, mp_shape *out) {
    *out = (mp_shape){.rank = x->rank - 1 + indices->rank};
    if (out->rank > MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "the result would have rank %d; ranks up to %d are supported",
                       out->rank, MP_RANK_MAX);
    }
    int at = 0;
    for (int d = 0; d < axis; d++) {
        out->dim[at++] = x->dim[d];
    }
    for (int d = 0; d < indices->rank; d++) {
        out->dim[at++] = indices->dim[d];
    }
    for (int d = axis + 1; d < x->rank; d++) {
        out->dim[at++] = x->dim[d];
    }
    return MP_OK;
}

static mp_status plan_gather(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_tensor *indices = &p->in[1];
    int axis = 0;
    mp_shape shape;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), x->shape.rank, "axis", &axis));
    MP_TRY(mp_gather_shape(&x->shape, &indices->shape, axis, &shape));
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    const mp_gather gather = {.x = MP_IN(0),
                              .type = x->type,
                              .shape = &x->shape,
                              .axis = axis,
                              .indices = MP_IN(1),
                              .index_type = indices->type,
                              .index_count = mp_shape_count(&indices->shape),
                              .out = MP_OUT(0)};
    return mp_plan_gather(p, &gather);
}

/* ---- GatherElements and GatherND ---- */

static mp_status gather_at(mp_planner *p, size_t unit, const k_indexed *walk) {
    if (walk->count == 0) {
        return MP_OK;
    }
    const mp_gather_at_args args = {.walk = *walk};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "gather_at_b%zu", unit * 8));
    const int each = unit <= 4 ? 4 : 16 / (int)unit;
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, walk->count, each), args,
                     MP_BIND(mp_gather_at_args, x, MP_IN(0)),
                     MP_BIND(mp_gather_at_args, walk.indices, MP_IN(1)),
                     MP_BIND(mp_gather_at_args, out, MP_OUT(0)));
}

/* Whether the axis is the last one, and the others are alike. */
static bool are_rows(const mp_shape *x, const mp_shape *indices, int axis) {
    bool alike = axis == x->rank - 1;
    for (int d = 0; d < axis; d++) {
        alike = alike && x->dim[d] == indices->dim[d];
    }
    return alike;
}

static mp_status plan_gather_elements(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    int axis = 0;
    k_indexed walk;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), x->shape.rank, "axis", &axis));
    MP_TRY(mp_indexed_elements(&x->shape, &p->in[1], axis, &walk));
    MP_TRY(mp_plan_output(p, 0, x->type, &p->in[1].shape));
    const rows picked = {MP_IN(0),
                         MP_IN(1),
                         MP_OUT(0),
                         x->type,
                         p->in[1].type,
                         mp_shape_span(&x->shape, 0, axis),
                         x->shape.dim[axis],
                         p->in[1].shape.dim[axis],
                         false};
    return walk.count > 0 && are_rows(&x->shape, &p->in[1].shape, axis) && rows_serve(&picked)
               ? pick_rows(p, &picked)
               : gather_at(p, mp_dtype_size(x->type), &walk);
}

static mp_status plan_gather_nd(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_sliced to;
    MP_TRY(mp_indexed_slices(p, x, &p->in[1], mp_node_int(p->node, "batch_dims", 0), true, &to));
    MP_TRY(mp_plan_output(p, 0, x->type, &to.slices));
    return gather_at(p, to.unit, &to.walk);
}

/* ---- the rows ---- */

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def batch_dims[] = {{"batch_dims", MP_ATTR_INT}, {NULL, 0}};

enum { INDEX = 1u << MP_I32 | 1u << MP_I64 };

#define ROW(name_, from, to, set, plan_, attrs_, accept_)                             \
    {                                                                                 \
        .domain = "", .name = (name_), .since = (from), .until = (to),                \
        .types = {{"T", (set)}, {"Tind", INDEX}}, .attrs = (attrs_), .plan = (plan_), \
        .accept = (accept_)                                                           \
    }
#define ROW_ND(from, to, set, attrs_)                                                              \
    {                                                                                              \
        .domain = "", .name = "GatherND", .since = (from), .until = (to), .types = {{"T", (set)}}, \
        .attrs = (attrs_), .plan = plan_gather_nd, .accept = mp_indexed_slices_accept              \
    }

static const mp_op ops[] = {
    ROW("Gather", 1, 13, MP_ALL_TYPES, plan_gather, axis_only, NULL),
    ROW("GatherElements", 11, 13, MP_ALL_TYPES, plan_gather_elements, axis_only,
        mp_indexed_elements_accept),
    ROW_ND(11, 11, MP_OLD_TYPES, NULL),
    ROW_ND(12, 13, MP_ALL_TYPES, batch_dims),
};

const mp_op_family mp__family_gather = {"gather", ops, MP_COUNT_OF(ops)};
