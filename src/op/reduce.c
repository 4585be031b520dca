/* reduce.c - the Reduce operators and the global pools. SPDX-License-Identifier: Apache-2.0 */
#include "op/reduce_steps.h"

#include "kernel/reduce_args.h"
#include "op/channels.h"
#include "op/families.h"
#include "op/host_input.h"

#include <string.h>

/* ---- the step ---- */

/* Lanes that share what goes into an output, where each has about 16 elements, and the block that
 * they are part of. */
static mp_grid block_grid(const mp_planner *p, int64_t parts, int64_t columns, int32_t *width) {
    enum { EACH = 16, LANES = 128, MOST = 512 };
    const bool neighbours = *width > 0;
    int32_t share = neighbours ? 1 : 32;
    while (share < MOST && (int64_t)share * EACH < columns) {
        share *= 2;
    }
    share = neighbours && share == 64 ? LANES : share;
    const int64_t groups = neighbours && share < LANES ? LANES / share : 1;
    *width = neighbours ? share : 0;
    return mp_plan_grid_rows(p, parts / groups + (parts % groups != 0), (uint32_t)(share * groups));
}

static void split_axes(const mp_shape *shape, uint32_t axes, k_layout *kept, k_layout *dropped,
                       int64_t *outputs, int64_t *reduced) {
    int64_t stride[MP_RANK_MAX] = {0};
    int64_t kept_stride[1][MP_RANK_MAX];
    int64_t dropped_stride[1][MP_RANK_MAX];
    mp_shape kept_shape = {.rank = 0};
    mp_shape dropped_shape = {.rank = 0};
    mp_shape_strides(shape, stride);
    for (int d = 0; d < shape->rank; d++) {
        if ((axes & 1u << d) != 0) {
            dropped_stride[0][dropped_shape.rank] = stride[d];
            dropped_shape.dim[dropped_shape.rank++] = shape->dim[d];
        } else {
            kept_stride[0][kept_shape.rank] = stride[d];
            kept_shape.dim[kept_shape.rank++] = shape->dim[d];
        }
    }
    *outputs = mp_shape_count(&kept_shape);
    *reduced = mp_shape_count(&dropped_shape);
    mp_layout_make(&kept_shape, kept_stride, 1, kept);
    mp_layout_make(&dropped_shape, dropped_stride, 1, dropped);
}

typedef struct reduction {
    mp_reduce_args args;
    const char *word;
    mp_dtype dtype;
    mp_ref x, out, partial;
} reduction;

static mp_status launch(mp_planner *p, reduction *r, bool lane, int32_t stage) {
    const mp_kernel *kernel = NULL;
    mp_reduce_args args = r->args;
    const int64_t parts = args.outputs * (stage == K_REDUCE_PIECES ? args.pieces : 1);
    const int64_t each = stage == K_REDUCE_MERGE    ? args.pieces
                         : stage == K_REDUCE_PIECES ? args.piece
                                                    : args.reduced;
    args.stage = stage;
    args.width =
        stage != K_REDUCE_MERGE && args.dropped.rank == 1 && args.dropped.stride[0][0] == 1;
    MP_TRY(mp_plan_kernel(p, &kernel, "reduce_%s_%s_%s", lane ? "lane" : "block", r->word,
                          mp_dtype_word(r->dtype)));
    const mp_grid grid = lane ? mp_plan_grid(p, parts, 1) : block_grid(p, parts, each, &args.width);
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_reduce_args, x, r->x),
                     MP_BIND(mp_reduce_args, out, stage == K_REDUCE_PIECES ? MP_NOWHERE : r->out),
                     MP_BIND(mp_reduce_args, partial, r->partial));
}

/* A lane alone does an output, or a piece of it, where that reads memory in order (outputs are
 * neighbours) and there are outputs enough, or where there is next to nothing to share. */
static bool prefers_lane(const mp_planner *p, const mp_reduce_args *args) {
    enum { ENOUGH = 32 }; /* for whole lines of memory */
    const bool neighbours = args->kept.stride[0][args->kept.rank - 1] == 1;
    const int64_t many = (int64_t)p->device->info.multiprocessors * 256;
    const bool in_lines = args->outputs >= ENOUGH && args->kept.dim[args->kept.rank - 1] >= ENOUGH;
    return args->reduced <= 4 ||
           (neighbours && (args->outputs >= many || (in_lines && args->reduced >= ENOUGH)));
}

/* How many pieces fill the device, none of them too short. Multiples of 16 keep their alignment. */
static void cut(const mp_planner *p, mp_reduce_args *args, bool lane) {
    enum { LANE_LEAST = 32, BLOCK_LEAST = 8192, PIECES_MAX = 4096 };
    const int64_t processors = p->device->info.multiprocessors;
    const int64_t wanted = processors * (lane ? 1024 : 4) / args->outputs;
    const int64_t most = args->reduced / (lane ? LANE_LEAST : BLOCK_LEAST);
    int64_t pieces = wanted < most ? wanted : most;
    pieces = pieces < PIECES_MAX ? pieces : PIECES_MAX;
    args->pieces = 1;
    args->piece = args->reduced;
    if (pieces > 1) {
        args->piece = ((args->reduced + pieces - 1) / pieces + 15) / 16 * 16;
        args->pieces = (args->reduced + args->piece - 1) / args->piece;
    }
}

static bool may_pack(const mp_planner *p, const mp_reduce_args *args, mp_dtype dtype) {
    return p->align >= 16 && args->dropped.rank == 1 && args->dropped.stride[0][0] == 1 &&
           args->reduced % (16 / (int64_t)mp_dtype_size(dtype)) == 0;
}

mp_status mp_plan_reduce(mp_planner *p, const char *word, mp_dtype dtype, mp_ref x,
                         const mp_shape *shape, uint32_t axes, mp_ref out) {
    reduction r = {.word = word, .dtype = dtype, .x = x, .out = out, .partial = MP_NOWHERE};
    mp_reduce_args *args = &r.args;
    split_axes(shape, axes, &args->kept, &args->dropped, &args->outputs, &args->reduced);
    if (args->outputs == 0) {
        return MP_OK;
    }
    const bool whole = strcmp(word, "logsumexp") == 0; /* which the kernels do in one piece */
    const bool lane = prefers_lane(p, args) && !whole;
    args->packed = may_pack(p, args, dtype);
    cut(p, args, lane);
    if (whole || args->pieces == 1) {
        return launch(p, &r, lane, K_REDUCE_WHOLE);
    }
    MP_TRY(mp_plan_scratch_of(p, args->outputs * args->pieces, MP_F64, &r.partial));
    MP_TRY(launch(p, &r, lane, K_REDUCE_PIECES));
    return launch(p, &r, false, K_REDUCE_MERGE);
}

/* ---- the operators ---- */

static mp_shape shape_without(const mp_shape *x, uint32_t axes, bool keep) {
    mp_shape shape = {.rank = 0};
    for (int d = 0; d < x->rank; d++) {
        const bool dropped = (axes & 1u << d) != 0;
        if (!dropped || keep) {
            shape.dim[shape.rank++] = dropped ? 1 : x->dim[d];
        }
    }
    return shape;
}

static mp_status plan_reduce(mp_planner *p) {
    const char *word = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    uint32_t axes = 0;
    int count = 0;
    MP_TRY(mp_listed_axes(p, "axes", 1, x->shape.rank, &axes, &count));
    const bool nothing_to_do = count <= 0 && mp_node_int(p->node, "noop_with_empty_axes", 0) != 0;
    if (count <= 0 && !nothing_to_do) {
        axes = (1u << x->shape.rank) - 1;
    }
    const mp_shape shape = shape_without(&x->shape, axes, mp_node_int(p->node, "keepdims", 1) != 0);
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    return mp_plan_reduce(p, word, x->type, MP_IN(0), &x->shape, axes, MP_OUT(0));
}

static mp_status plan_global_pool(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    if (x->shape.rank < 3) {
        char text[192];
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s has no spatial dimensions",
                       mp_shape_text(&x->shape, text));
    }
    const uint32_t all = (1u << x->shape.rank) - 1;
    const uint32_t axes = mp_channels_last(p) ? all >> 1 & ~1u : all & ~3u;
    const mp_shape shape = shape_without(&x->shape, axes, true);
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    return mp_plan_reduce(p, p->node->op->detail, x->type, MP_IN(0), &x->shape, axes, MP_OUT(0));
}

/* ---- the rows ---- */

static const mp_attr_def old_attrs[] = {
    {"axes", MP_ATTR_INTS}, {"keepdims", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def new_attrs[] = {
    {"keepdims", MP_ATTR_INT}, {"noop_with_empty_axes", MP_ATTR_INT}, {NULL, 0}};

enum {
    SUMS = MP_FLOATS | 1u << MP_I32 | 1u << MP_I64 | 1u << MP_U32 | 1u << MP_U64,
    EXTREMES = SUMS | 1u << MP_I8 | 1u << MP_U8,
    BF16 = 1u << MP_BF16,
};

/* Axes were an attribute up to schema `old`, and are an input from `first` on. */
#define REDUCE(op_name, set, word, old, first, last)                                            \
    {.domain = "",                                                                              \
     .name = (op_name),                                                                         \
     .since = 1,                                                                                \
     .until = (old),                                                                            \
     .attrs = old_attrs,                                                                        \
     .types = {{"T", (mp_dtypes)((old) < 13 ? (set) & ~BF16 : (set))}},                         \
     .plan = plan_reduce,                                                                       \
     .detail = (word)},                                                                         \
    {                                                                                           \
        .domain = "", .name = (op_name), .since = (first), .until = (last), .host_in = 1u << 1, \
        .types = {{"T", (set)}}, .attrs = new_attrs, .plan = plan_reduce, .detail = (word)      \
    }
#define GLOBAL_POOL(op_domain, op_name, word)                                   \
    {                                                                           \
        .domain = (op_domain), .name = (op_name), .since = 1, .until = 22,      \
        .types = {{"T", MP_FLOATS}}, .plan = plan_global_pool, .detail = (word) \
    }

static const mp_op ops[] = {
    REDUCE("ReduceSum", SUMS, "sum", 11, 13, 13),
    REDUCE("ReduceMean", SUMS, "mean", 13, 18, 18),
    REDUCE("ReduceMax", EXTREMES, "max", 13, 18, 20),
    REDUCE("ReduceMin", EXTREMES, "min", 13, 18, 20),
    REDUCE("ReduceProd", SUMS, "prod", 13, 18, 18),
    REDUCE("ReduceL1", SUMS, "l1", 13, 18, 18),
    REDUCE("ReduceL2", SUMS, "l2", 13, 18, 18),
    REDUCE("ReduceSumSquare", SUMS, "sumsq", 13, 18, 18),
    REDUCE("ReduceLogSum", MP_FLOATS, "logsum", 13, 18, 18),
    REDUCE("ReduceLogSumExp", MP_FLOATS, "logsumexp", 13, 18, 18),
    GLOBAL_POOL("", "GlobalAveragePool", "mean"),
    GLOBAL_POOL("", "GlobalMaxPool", "max"),
    GLOBAL_POOL(MP_NHWC_DOMAIN, "GlobalAveragePool", "mean"),
    GLOBAL_POOL(MP_NHWC_DOMAIN, "GlobalMaxPool", "max"),
};

const mp_op_family mp__family_reduce = {"reduce", ops, MP_COUNT_OF(ops)};
