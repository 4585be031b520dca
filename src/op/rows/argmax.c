/* argmax.c - ArgMax, ArgMin, and Hardmax, which marks what ArgMax finds.
 * Kernels: rows/argmax.cu, rows/argmax_rows.cu, rows/one_hot_row.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/row_args.h"
#include "kernel/rows/sort_args.h"
#include "op/core/families.h"
#include "op/core/op.h"
#include "op/core/row_shape.h"
#include "op/rows/key_bits.h"

/* ---- the step ---- */

enum {
    LANES = 256,
    WARP = 32,
    PIECE_MIN = 16384,
    FEW_EACH = 4, /* columns of a lane at least */
    MANY_EACH = 64,
    MANY_BLOCKS = 32
};

/* Whether a lane should search a row alone: rows that are neighbours in memory and enough of them,
 * or next to nothing to share. */
static bool prefers_lane(const mp_planner *p, mp_rows r) {
    const int64_t many = (int64_t)p->device->info.multiprocessors * 256;
    return r.columns <= 4 || (r.inner >= 32 && r.rows >= many);
}

static mp_status launch(mp_planner *p, const mp_kernel *kernel, mp_argmax_args args, int32_t stage,
                        int64_t blocks, mp_ref out, mp_ref partial) {
    const int64_t width = stage == K_ARGMAX_MERGE ? args.pieces : args.columns;
    const bool many = blocks >= (int64_t)p->device->info.multiprocessors * MANY_BLOCKS;
    uint32_t lanes = LANES; /* a warp has no barriers; of many rows each may take longer */
    while (stage != K_ARGMAX_LANES && lanes > WARP &&
           lanes * (many ? MANY_EACH : FEW_EACH) > width) {
        lanes /= 2;
    }
    args.stage = stage;
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, blocks, lanes), args,
                     MP_BIND(mp_argmax_args, x, MP_IN(0)), MP_BIND(mp_argmax_args, out, out),
                     MP_BIND(mp_argmax_args, partial, partial));
}

/* ---- rows of neighbours ---- */

/* Lanes that share each of `parts` parts of so many packs: a part of a warp, or a block. */
static int32_t lanes_of_part(const mp_planner *p, int64_t parts, int64_t packs) {
    enum { FEW = 2, MUCH = 16, LEAST = 128 };
    const bool spare = parts < (int64_t)p->device->info.multiprocessors * 8;
    const bool block = spare || packs > (int64_t)WARP * MUCH;
    const int64_t each = block && !spare ? MUCH : FEW;
    const int32_t most = block ? K_ARGMAX_LANES_MAX : WARP;
    int32_t lanes = 1;
    while (lanes < most && lanes * each < packs) {
        lanes *= 2;
    }
    return lanes > WARP ? MP_MAX(lanes, LEAST) : lanes;
}

static mp_status launch_rows(mp_planner *p, const mp_kernel *kernel, mp_argmax_args args,
                             int32_t stage, mp_ref out, mp_ref partial) {
    enum { LEAST = 128 };
    const int64_t pack = stage == K_ARGMAX_MERGE ? 1 : 16 / (int64_t)mp_dtype_size(p->in[0].type);
    const int64_t width = stage == K_ARGMAX_MERGE    ? args.pieces
                          : stage == K_ARGMAX_PIECES ? args.piece
                                                     : args.columns;
    const int64_t parts = args.rows * (stage == K_ARGMAX_PIECES ? args.pieces : 1);
    args.stage = stage;
    args.width = lanes_of_part(p, parts, width / pack + 1);
    const int32_t lanes = MP_MAX(args.width, LEAST);
    return MP_LAUNCH(p, kernel,
                     mp_plan_grid_rows(p, MP_CEIL_DIV(parts, lanes / args.width), (uint32_t)lanes),
                     args, MP_BIND(mp_argmax_args, x, MP_IN(0)), MP_BIND(mp_argmax_args, out, out),
                     MP_BIND(mp_argmax_args, partial, partial));
}

/* Whether rows are so short that groups of lanes would have next to nothing of each, and enough of
 * them for a lane to have one: those of a block stay in its cache. */
static bool are_short(const mp_planner *p, const mp_argmax_args *args) {
    enum { BYTES = 128, ROWS_EACH = 512, PACK = 16 };
    return p->align >= PACK && args->columns <= BYTES / (int64_t)mp_dtype_size(p->in[0].type) &&
           args->rows >= (int64_t)p->device->info.multiprocessors * ROWS_EACH;
}

static mp_status find_in_rows(mp_planner *p, mp_argmax_args args, mp_ref out) {
    enum { LEAST = 8192, MOST = 1 << 30, SHORT_LANES = 128 };
    const mp_kernel *kernel = NULL;
    mp_ref partial = MP_NOWHERE;
    MP_TRY(mp_plan_kernel(p, &kernel, "arg_rows_%s", mp_dtype_word(p->in[0].type)));
    if (are_short(p, &args)) {
        args.stage = K_ARGMAX_SHORT;
        return MP_LAUNCH(
            p, kernel,
            mp_plan_grid_rows(p, MP_CEIL_DIV(args.rows, (int64_t)SHORT_LANES), SHORT_LANES), args,
            MP_BIND(mp_argmax_args, x, MP_IN(0)), MP_BIND(mp_argmax_args, out, out),
            MP_BIND(mp_argmax_args, partial, MP_NOWHERE));
    }
    const int64_t wanted =
        mp_row_pieces(args.rows, args.columns, p->device->info.multiprocessors, LEAST);
    args.pieces = MP_MAX(wanted, MP_CEIL_DIV(args.columns, (int64_t)MOST));
    if (args.pieces == 1) {
        return launch_rows(p, kernel, args, K_ARGMAX_WHOLE, out, MP_NOWHERE);
    }
    args.piece = MP_ALIGN_UP(MP_CEIL_DIV(args.columns, args.pieces), 16); /* packs stay whole */
    args.pieces = MP_CEIL_DIV(args.columns, args.piece);
    MP_TRY(mp_plan_scratch(p, (size_t)(args.rows * args.pieces) * sizeof(k_best), &partial));
    MP_TRY(launch_rows(p, kernel, args, K_ARGMAX_PIECES, MP_NOWHERE, partial));
    return launch_rows(p, kernel, args, K_ARGMAX_MERGE, out, partial);
}

/* The index of the largest (or smallest) element of each row of input 0, which has some. */
static mp_status find_best(mp_planner *p, mp_rows r, bool largest, bool last, mp_ref out) {
    const mp_dtype dtype = p->in[0].type;
    const mp_kernel *kernel = NULL;
    mp_argmax_args args = {.rows = r.rows,
                           .columns = r.columns,
                           .inner = r.inner,
                           .last = last ? ~(uint64_t)0 : 0,
                           .order = mp_order_of(dtype, largest),
                           .smallest = !largest};
    const bool lane_each = prefers_lane(p, r);
    if (r.inner == 1 && !lane_each) {
        return find_in_rows(p, args, out);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "arg_b%d", mp_order_bits(dtype)));
    if (lane_each) {
        return launch(p, kernel, args, K_ARGMAX_LANES, MP_CEIL_DIV(r.rows, LANES), out, MP_NOWHERE);
    }
    args.pieces = mp_row_pieces(r.rows, r.columns, p->device->info.multiprocessors, PIECE_MIN);
    if (args.pieces == 1) {
        return launch(p, kernel, args, K_ARGMAX_WHOLE, r.rows, out, MP_NOWHERE);
    }
    mp_ref partial = MP_NOWHERE;
    args.piece = MP_CEIL_DIV(r.columns, args.pieces);
    MP_TRY(mp_plan_scratch(p, (size_t)(r.rows * args.pieces) * sizeof(k_best), &partial));
    MP_TRY(launch(p, kernel, args, K_ARGMAX_PIECES, r.rows * args.pieces, MP_NOWHERE, partial));
    return launch(p, kernel, args, K_ARGMAX_MERGE, r.rows, out, partial);
}

/* ---- ArgMax, ArgMin ---- */

static mp_status plan_arg(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const bool *largest = p->node->op->detail;
    const bool keep = mp_node_flag(p->node, "keepdims", true);
    const bool last = mp_node_int(p->node, "select_last_index", 0) != 0;
    mp_shape shape = {.rank = 0};
    int axis = 0;
    if (x->rank > 0) {
        MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), x->rank, "axis", &axis));
    }
    for (int d = 0; d < x->rank; d++) {
        if (d != axis || keep) {
            shape.dim[shape.rank++] = d == axis ? 1 : x->dim[d];
        }
    }
    MP_TRY(mp_plan_output(p, 0, MP_I64, &shape));
    const mp_rows r = mp_rows_along(x, axis);
    if (r.rows == 0) {
        return MP_OK;
    }
    if (r.columns == 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "axis %d of the shape %s is empty, so nothing is %s", axis,
                       mp_shape_text(x, text), *largest ? "largest" : "smallest");
    }
    return find_best(p, r, *largest, last, MP_OUT(0));
}

/* ---- Hardmax ---- */

static mp_status mark_largest(mp_planner *p, mp_rows r) {
    const mp_tensor *x = &p->in[0];
    mp_ref index = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    const size_t size = mp_dtype_size(x->type), words = size > 4 ? 2 : 1; /* of 4 bytes at most */
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    const mp_one_hot_row_args args = {
        .rows = r.rows, .columns = r.columns, .inner = r.inner, .one = mp_one_bits(x->type)};
    if (r.rows == 0 || r.columns == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_of(p, r.rows, MP_I64, &index));
    MP_TRY(find_best(p, r, true, false, index));
    MP_TRY(mp_plan_kernel(p, &kernel, "one_hot_row_b%d", mp_order_bits(x->type)));
    MP_TRY(mp_plan_fill(p, MP_OUT(0), 0, size / words, (size_t)(r.rows * r.columns) * words));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, r.rows, 1), args,
                     MP_BIND(mp_one_hot_row_args, index, index),
                     MP_BIND(mp_one_hot_row_args, out, MP_OUT(0)));
}

/* Up to version 11 the dimensions from `axis` on are one row. */
static mp_status plan_hardmax_flat(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t asked = mp_node_int(p->node, "axis", 1);
    int axis = x->rank;
    if (asked != x->rank) {
        MP_TRY(mp_shape_axis(asked, x->rank, "axis", &axis));
    }
    return mark_largest(p, (mp_rows){.rows = mp_shape_span(x, 0, axis),
                                     .columns = mp_shape_span(x, axis, x->rank),
                                     .inner = 1});
}

static mp_status plan_hardmax(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    int axis = 0;
    if (x->rank > 0) {
        MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -1), x->rank, "axis", &axis));
    }
    return mark_largest(p, mp_rows_along(x, axis));
}

/* ---- the rows ---- */

static const mp_attr_def old_attrs[] = {
    {"axis", MP_ATTR_INT}, {"keepdims", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def new_attrs[] = {{"axis", MP_ATTR_INT},
                                        {"keepdims", MP_ATTR_INT},
                                        {"select_last_index", MP_ATTR_INT},
                                        {NULL, 0}};
static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const bool largest = true, smallest = false;

enum { OLD_NUMBERS = MP_NUMBERS & ~(1 << MP_BF16) };

#define ARG(op_name, which)                                                                      \
    {.domain = "",                                                                               \
     .name = (op_name),                                                                          \
     .since = 1,                                                                                 \
     .until = 11,                                                                                \
     .types = {{"T", OLD_NUMBERS}},                                                              \
     .attrs = old_attrs,                                                                         \
     .plan = plan_arg,                                                                           \
     .detail = (which)},                                                                         \
    {                                                                                            \
        .domain = "", .name = (op_name), .since = 12, .until = 13, .types = {{"T", MP_NUMBERS}}, \
        .attrs = new_attrs, .plan = plan_arg, .detail = (which)                                  \
    }

static const mp_op ops[] = {
    ARG("ArgMax", &largest),
    ARG("ArgMin", &smallest),
    {.domain = "",
     .name = "Hardmax",
     .since = 1,
     .until = 11,
     .types = {{"T", MP_IEEE_FLOATS}},
     .attrs = axis_only,
     .plan = plan_hardmax_flat},
    {.domain = "",
     .name = "Hardmax",
     .since = 13,
     .until = 13,
     .types = {{"T", MP_FLOATS}},
     .attrs = axis_only,
     .plan = plan_hardmax},
};

const mp_op_family mp__family_argmax = {"argmax", ops, MP_COUNT_OF(ops)};
