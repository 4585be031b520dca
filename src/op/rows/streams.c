/* streams.c - operators of com.microsoft that weigh and mix rows: GatedAdd, ScaledSiLU, and
 * HyperConnectionPreMix and HyperConnectionPostMix, between which a block of a model works on one
 * stream made of several.
 * Kernels: rows/gated_add.cu, rows/scaled_silu.cu, rows/stream_mix.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/streams.h"

#include "kernel/rows/gate_args.h"
#include "op/core/families.h"

/* Whether rows of `columns` are whole vectors of kernel/core/vector.h; `lanes` gets what is then
 * left to each row. */
static bool packs(const mp_planner *p, int64_t columns, int64_t *pieces) {
    enum { VECTOR = 4 };
    const bool packed = p->align >= 16 && columns % VECTOR == 0;
    *pieces = packed ? columns / VECTOR : columns;
    return packed;
}

/* ---- GatedAdd, ScaledSiLU ---- */

static mp_status plan_gated_add(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    mp_shape gate = *x;
    char text[MP_SHAPE_TEXT], gate_text[MP_SHAPE_TEXT];
    if (x->rank > 0) {
        gate.dim[x->rank - 1] = 1;
    }
    if (x->rank < 1 || !mp_shape_equal(x, &p->in[1].shape) ||
        !mp_shape_equal(&gate, &p->in[2].shape)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "X of shape %s and a gate of shape %s: Y must have the shape of X, and the "
                       "gate too but for a last dimension of 1",
                       mp_shape_text(x, text), mp_shape_text(&p->in[2].shape, gate_text));
    }
    mp_gated_add_args args = {.rows = mp_shape_span(x, 0, x->rank - 1),
                              .columns = x->dim[x->rank - 1]};
    const mp_kernel *kernel = NULL;
    int64_t pieces = 0;
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, x));
    if (mp_shape_count(x) == 0) {
        return MP_OK;
    }
    args.packed = packs(p, args.columns, &pieces);
    MP_TRY(mp_plan_kernel(p, &kernel, "gated_add_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.rows * pieces, 1), args,
        MP_BIND(mp_gated_add_args, x, MP_IN(0)), MP_BIND(mp_gated_add_args, y, MP_IN(1)),
        MP_BIND(mp_gated_add_args, gate, MP_IN(2)), MP_BIND(mp_gated_add_args, out, MP_OUT(0)));
}

static mp_status plan_scaled_silu(mp_planner *p) {
    const mp_tensor *scale = mp_plan_in(p, 1);
    char text[MP_SHAPE_TEXT];
    if (scale != NULL && scale->shape.rank != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "scale of shape %s; it must be a scalar",
                       mp_shape_text(&scale->shape, text));
    }
    mp_scaled_silu_args args = {.count = mp_shape_count(&p->in[0].shape),
                                .alpha = mp_node_float(p->node, "alpha", 1),
                                .scale_type = scale != NULL ? (int32_t)scale->type : 0};
    const mp_kernel *kernel = NULL;
    int64_t pieces = 0;
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &p->in[0].shape));
    if (args.count == 0) {
        return MP_OK;
    }
    args.packed = packs(p, args.count, &pieces);
    MP_TRY(mp_plan_kernel(p, &kernel, "scaled_silu_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, pieces, 1), args,
                     MP_BIND(mp_scaled_silu_args, x, MP_IN(0)),
                     MP_BIND(mp_scaled_silu_args, scale, scale != NULL ? MP_IN(1) : MP_NOWHERE),
                     MP_BIND(mp_scaled_silu_args, out, MP_OUT(0)));
}

/* ---- HyperConnectionPreMix, HyperConnectionPostMix ---- */

/* Whether `shape` has the leading dimensions of the streams, and behind them these; -1 ends. */
static bool follows(const mp_planner *p, const mp_streams *s, const mp_shape *shape,
                    const int64_t *rest) {
    int rank = s->lead;
    for (; *rest >= 0; rest++, rank++) {
        if (rank >= shape->rank || shape->dim[rank] != *rest) {
            return false;
        }
    }
    bool fits = shape->rank == rank;
    for (int d = 0; fits && d < s->lead; d++) {
        fits = shape->dim[d] == p->in[0].shape.dim[d];
    }
    return fits;
}

/* A gate for each stream, or for each of its elements. */
static mp_status read_gate(const mp_planner *p, const mp_streams *s, int i, bool flat,
                           mp_stream_mix_args *args) {
    const mp_shape *gate = &p->in[i].shape;
    char text[MP_SHAPE_TEXT], x[MP_SHAPE_TEXT];
    const bool narrow = follows(p, s, gate, (const int64_t[]){s->streams, -1}) ||
                        follows(p, s, gate, (const int64_t[]){s->streams, 1, -1});
    const bool wide = follows(p, s, gate, (const int64_t[]){s->streams, s->columns, -1}) ||
                      (flat && follows(p, s, gate, (const int64_t[]){s->streams * s->columns, -1}));
    if (!narrow && !wide) {
        return MP_FAIL(INVALID_ARGUMENT, "gates of shape %s for streams of shape %s, %lld of %lld",
                       mp_shape_text(gate, text), mp_shape_text(&p->in[0].shape, x),
                       (long long)s->streams, (long long)s->columns);
    }
    args->wide = !narrow;
    args->gate_type = (int32_t)p->in[i].type;
    return MP_OK;
}

static mp_status launch_mix(mp_planner *p, mp_stream_mix_args *args, int gate, mp_ref mix,
                            mp_ref block) {
    const mp_kernel *kernel = NULL;
    int64_t pieces = 0;
    args->packed = packs(p, args->columns, &pieces);
    const int64_t lanes = args->rows * pieces;
    if (lanes == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "stream_mix_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, lanes, 1), *args, MP_BIND(mp_stream_mix_args, x, MP_IN(0)),
        MP_BIND(mp_stream_mix_args, gate, MP_IN(gate)), MP_BIND(mp_stream_mix_args, mix, mix),
        MP_BIND(mp_stream_mix_args, block, block), MP_BIND(mp_stream_mix_args, out, MP_OUT(0)));
}

static mp_status plan_pre_mix(mp_planner *p) {
    mp_streams s;
    mp_stream_mix_args args = {.factor = mp_node_float(p->node, "reduction_scale", 1)};
    MP_TRY(mp_streams_read(p, &s));
    MP_TRY(read_gate(p, &s, 1, s.flat, &args));
    args.rows = s.rows;
    args.streams = s.streams;
    args.columns = s.columns;
    mp_shape out = p->in[0].shape;
    out.rank = s.lead + 1;
    out.dim[s.lead] = s.columns;
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &out));
    return launch_mix(p, &args, 1, MP_NOWHERE, MP_NOWHERE);
}

static mp_status plan_post_mix(mp_planner *p) {
    enum { BLOCK = 1, GATE, MIX };
    const mp_tensor *mix = mp_plan_in(p, MIX);
    mp_streams s;
    mp_stream_mix_args args = {.post = 1, .mix_type = mix != NULL ? (int32_t)mix->type : 0};
    char text[MP_SHAPE_TEXT];
    MP_TRY(mp_streams_read(p, &s));
    MP_TRY(read_gate(p, &s, GATE, false, &args));
    if (!follows(p, &s, &p->in[BLOCK].shape, (const int64_t[]){s.columns, -1}) ||
        (mix != NULL &&
         !follows(p, &s, &mix->shape, (const int64_t[]){s.streams, s.streams, -1}))) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "block_output and stream_mix do not go with streams of shape %s, %lld of "
                       "%lld",
                       mp_shape_text(&p->in[0].shape, text), (long long)s.streams,
                       (long long)s.columns);
    }
    args.rows = s.rows;
    args.streams = s.streams;
    args.columns = s.columns;
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &p->in[0].shape));
    return launch_mix(p, &args, GATE, mix != NULL ? MP_IN(MIX) : MP_NOWHERE, MP_IN(BLOCK));
}

/* ---- the rows ---- */

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16 };

static const mp_attr_def attrs_silu[] = {{"alpha", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def attrs_mix[] = {
    {"num_branches", MP_ATTR_INT}, {"reduction_scale", MP_ATTR_FLOAT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "GatedAdd",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}},
     .plan = plan_gated_add},
    {.domain = "com.microsoft",
     .name = "ScaledSiLU",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", TYPES}},
     .attrs = attrs_silu,
     .plan = plan_scaled_silu},
    {.domain = "com.microsoft",
     .name = "HyperConnectionPreMix",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", TYPES}},
     .attrs = attrs_mix,
     .plan = plan_pre_mix},
    {.domain = "com.microsoft",
     .name = "HyperConnectionPostMix",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", TYPES}},
     .attrs = attrs_mix,
     .plan = plan_post_mix},
};

const mp_op_family mp__family_streams = {"streams", ops, MP_COUNT_OF(ops)};
