/* gated_norm.c - operators of com.microsoft that bring rows to root mean square 1 and weigh them:
 * GatedRMSNorm, BranchwiseRMSNorm, EngramGate.
 * Kernels: rows/gated_norm.cu, rows/norm.cu, rows/stream_gate.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/gate_args.h"
#include "op/core/families.h"
#include "op/core/row_grid.h"
#include "op/rows/norm_steps.h"
#include "op/rows/streams.h"

/* ---- GatedRMSNorm, BranchwiseRMSNorm ---- */

static mp_status launch_norm(mp_planner *p, mp_gated_norm_args *args, mp_ref scale, mp_ref gate) {
    const mp_dtype type = p->in[0].type;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_output(p, 0, type, &p->in[0].shape));
    if (args->rows == 0 || args->columns == 0) {
        return MP_OK;
    }
    const mp_grid grid = mp_row_grid(p, type, args->rows, args->columns, false, &args->width);
    MP_TRY(mp_plan_kernel(p, &kernel, "gated_norm_%s", mp_dtype_word(type)));
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_gated_norm_args, x, MP_IN(0)),
                     MP_BIND(mp_gated_norm_args, scale, scale),
                     MP_BIND(mp_gated_norm_args, gate, gate),
                     MP_BIND(mp_gated_norm_args, out, MP_OUT(0)));
}

static mp_status plan_gated_norm(mp_planner *p) {
    enum { X, SCALE, GATE };
    const mp_shape *x = &p->in[X].shape, *scale = &p->in[SCALE].shape;
    const char *word = mp_node_string(p->node, "activation", "silu");
    mp_gated_norm_args args = {.scales = 1,
                               .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
                               .kind = K_GATE_SILU,
                               .scale_type = (int32_t)p->in[SCALE].type};
    if (strcmp(word, "sigmoid") == 0) {
        args.kind = K_GATE_SIGMOID;
    } else if (strcmp(word, "silu") != 0 && strcmp(word, "swish") != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "activation is \"%.40s\"; it can be silu, swish or sigmoid", word);
    }
    char text[MP_SHAPE_TEXT], scale_text[MP_SHAPE_TEXT];
    if (x->rank < 1 || scale->rank != 1 || scale->dim[0] < 1 ||
        x->dim[x->rank - 1] % scale->dim[0] != 0 || !mp_shape_equal(x, &p->in[GATE].shape)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "X of shape %s and scale of shape %s: the last dimension must be a multiple "
                       "of the scale's only one, and the gate of the shape of X",
                       mp_shape_text(x, text), mp_shape_text(scale, scale_text));
    }
    args.columns = scale->dim[0];
    args.rows = mp_shape_count(x) / args.columns;
    return launch_norm(p, &args, MP_IN(SCALE), MP_IN(GATE));
}

/* Whether the kernel of all norms has its fastest form for these rows, without a gate: packs of 16
 * bytes that lanes keep, and scales of their type. */
static bool is_plain(const mp_planner *p, const mp_gated_norm_args *args, const mp_tensor *scale) {
    const mp_dtype type = p->in[0].type;
    return p->align >= 16 && args->columns * (int64_t)mp_dtype_size(type) % 16 == 0 &&
           args->columns <= mp_row_keep(type) * K_ROW_LANES_MAX &&
           (scale == NULL || scale->type == type);
}

static mp_status plan_plain(mp_planner *p, const mp_gated_norm_args *args, mp_ref scale) {
    const mp_dtype type = p->in[0].type;
    mp_norm n = {.type = type, .out_type = type, .x = MP_IN(0), .scale = scale, .out = MP_OUT(0)};
    n.args = (mp_norm_args){.rows = args->rows,
                            .columns = args->columns,
                            .groups = args->scales,
                            .per_row = args->scales > 1 ? args->columns : 0,
                            .inner = 1,
                            .by_inner = mp_divider(1),
                            .epsilon = args->epsilon};
    MP_TRY(mp_plan_output(p, 0, type, &p->in[0].shape));
    return mp_plan_norm(p, &n);
}

static mp_status plan_branch_norm(mp_planner *p) {
    const mp_tensor *scale = mp_plan_in(p, 1);
    mp_streams s;
    MP_TRY(mp_streams_read(p, &s));
    mp_gated_norm_args args = {.rows = s.rows * s.streams,
                               .columns = s.columns,
                               .scales = 1,
                               .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
                               .kind = K_GATE_NONE};
    if (scale != NULL) {
        const mp_shape *shape = &scale->shape;
        const bool all =
            (shape->rank == 1 && shape->dim[0] == s.streams * s.columns) ||
            (shape->rank == 2 && shape->dim[0] == s.streams && shape->dim[1] == s.columns);
        char text[MP_SHAPE_TEXT];
        if (!all && (shape->rank != 1 || shape->dim[0] != s.columns)) {
            return MP_FAIL(INVALID_ARGUMENT, "scale of shape %s for %lld branches of %lld",
                           mp_shape_text(shape, text), (long long)s.streams, (long long)s.columns);
        }
        args.scales = all && s.streams > 0 ? s.streams : 1;
        args.scale_type = (int32_t)scale->type;
    }
    const mp_ref by = scale != NULL ? MP_IN(1) : MP_NOWHERE;
    return is_plain(p, &args, scale) ? plan_plain(p, &args, by)
                                     : launch_norm(p, &args, by, MP_NOWHERE);
}

/* ---- EngramGate ---- */

static mp_status check_engram(const mp_planner *p) {
    enum { KEY, QUERY, VALUE, KEY_SCALE, QUERY_SCALE, NORMED_SCALE };
    const mp_shape *key = &p->in[KEY].shape;
    const int64_t *dim = key->dim;
    const mp_shape value = {.rank = 3, .dim = {dim[0], dim[1], dim[3]}};
    const mp_shape scale = {.rank = 2, .dim = {dim[2], dim[3]}};
    const mp_tensor *normed = mp_plan_in(p, NORMED_SCALE);
    char text[MP_SHAPE_TEXT];
    if (key->rank != 4 || !mp_shape_equal(key, &p->in[QUERY].shape) ||
        !mp_shape_equal(&value, &p->in[VALUE].shape) ||
        !mp_shape_equal(&scale, &p->in[KEY_SCALE].shape) ||
        !mp_shape_equal(&scale, &p->in[QUERY_SCALE].shape) ||
        (normed != NULL && !mp_shape_equal(&scale, &normed->shape)) ||
        (normed == NULL && mp_plan_wants(p, 1))) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "key of shape %s: it needs four dimensions, a query of that shape, a value "
                       "without the third, scales of the last two, and conv_norm_scale where the "
                       "second output is wanted",
                       mp_shape_text(key, text));
    }
    return MP_OK;
}

static mp_status plan_engram(mp_planner *p) {
    const mp_shape *key = &p->in[0].shape;
    const mp_dtype type = p->in[0].type;
    MP_TRY(check_engram(p));
    mp_stream_gate_args args = {.rows = mp_shape_span(key, 0, 3),
                                .columns = key->dim[3],
                                .streams = key->dim[2],
                                .epsilon = mp_node_float(p->node, "epsilon", 1e-5f)};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_output(p, 0, type, key));
    if (p->out_count > 1) {
        MP_TRY(mp_plan_output(p, 1, type, key));
    }
    if (mp_shape_count(key) == 0) {
        return MP_OK;
    }
    const bool normed = mp_plan_wants(p, 1);
    const mp_grid grid = mp_row_grid(p, type, args.rows, args.columns, false, &args.width);
    MP_TRY(mp_plan_kernel(p, &kernel, "stream_gate_%s", mp_dtype_word(type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_stream_gate_args, key, MP_IN(0)),
                     MP_BIND(mp_stream_gate_args, query, MP_IN(1)),
                     MP_BIND(mp_stream_gate_args, value, MP_IN(2)),
                     MP_BIND(mp_stream_gate_args, key_scale, MP_IN(3)),
                     MP_BIND(mp_stream_gate_args, query_scale, MP_IN(4)),
                     MP_BIND(mp_stream_gate_args, normed_scale, normed ? MP_IN(5) : MP_NOWHERE),
                     MP_BIND(mp_stream_gate_args, out, MP_OUT(0)),
                     MP_BIND(mp_stream_gate_args, normed, normed ? MP_OUT(1) : MP_NOWHERE));
}

/* ---- the rows ---- */

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16 };

static const mp_attr_def attrs_gated[] = {
    {"activation", MP_ATTR_STRING}, {"epsilon", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def attrs_branch[] = {
    {"num_branches", MP_ATTR_INT}, {"epsilon", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def attrs_engram[] = {{"epsilon", MP_ATTR_FLOAT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "GatedRMSNorm",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}},
     .attrs = attrs_gated,
     .plan = plan_gated_norm},
    {.domain = "com.microsoft",
     .name = "BranchwiseRMSNorm",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", TYPES}},
     .attrs = attrs_branch,
     .plan = plan_branch_norm},
    {.domain = "com.microsoft",
     .name = "EngramGate",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}},
     .attrs = attrs_engram,
     .plan = plan_engram},
};

const mp_op_family mp__family_gated_norm = {"gated_norm", ops, MP_COUNT_OF(ops)};
