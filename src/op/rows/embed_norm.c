/* embed_norm.c - EmbedLayerNormalization: the embeddings of words, segments and positions, added
 * and brought to mean 0; and where the mask of each sequence has its first 0.
 * Kernels: rows/embed.cu, rows/mask_index.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/rows/norm_steps.h"

enum { IDS, SEGMENT_IDS, WORDS, POSITIONS, SEGMENTS, GAMMA, BETA, MASK, POSITION_IDS };

/* ---- what must fit ---- */

static mp_status check_shape(const mp_planner *p, int i, const char *name, const mp_shape *wanted) {
    const mp_tensor *given = mp_plan_in(p, i);
    char text[MP_SHAPE_TEXT], wanted_text[MP_SHAPE_TEXT];
    return given == NULL || mp_shape_equal(&given->shape, wanted)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s; %s is needed", name,
                         mp_shape_text(&given->shape, text), mp_shape_text(wanted, wanted_text));
}

/* A table that is looked up in `lookups` times. */
static mp_status check_table(const mp_planner *p, int i, const char *name, int64_t columns,
                             int64_t lookups) {
    const mp_tensor *given = mp_plan_in(p, i);
    char text[MP_SHAPE_TEXT];
    return given == NULL || (given->shape.rank == 2 && given->shape.dim[1] == columns &&
                             (given->shape.dim[0] > 0 || lookups == 0))
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s; rows of %lld elements are needed", name,
                         mp_shape_text(&given->shape, text), (long long)columns);
}

/* One id for each place of a sequence, for each sequence or for all. */
static mp_status check_positions(const mp_planner *p, const mp_shape *ids) {
    const mp_tensor *given = mp_plan_in(p, POSITION_IDS);
    const int64_t rows = p->in[POSITIONS].shape.dim[0];
    char text[MP_SHAPE_TEXT];
    if (given == NULL) {
        return rows >= ids->dim[1] ? MP_OK
                                   : MP_FAIL(INVALID_ARGUMENT,
                                             "%lld position embeddings for sequences of %lld words",
                                             (long long)rows, (long long)ids->dim[1]);
    }
    const mp_shape *shape = &given->shape;
    return shape->rank == 2 && shape->dim[1] == ids->dim[1] &&
                   (shape->dim[0] == 1 || shape->dim[0] == ids->dim[0])
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "position_ids of shape %s for a batch of %lld and "
                         "sequences of %lld words",
                         mp_shape_text(shape, text), (long long)ids->dim[0],
                         (long long)ids->dim[1]);
}

static mp_status check_inputs(const mp_planner *p) {
    const mp_shape *ids = &p->in[IDS].shape, *words = &p->in[WORDS].shape;
    char text[MP_SHAPE_TEXT], words_text[MP_SHAPE_TEXT];
    if (ids->rank != 2 || words->rank != 2) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "input_ids of shape %s and word_embedding of shape %s; two dimensions each "
                       "are needed",
                       mp_shape_text(ids, text), mp_shape_text(words, words_text));
    }
    const int64_t columns = words->dim[1], lookups = mp_shape_count(ids);
    const mp_shape row = {.rank = 1, .dim = {columns}};
    MP_TRY(check_table(p, WORDS, "word_embedding", columns, lookups));
    MP_TRY(check_table(p, POSITIONS, "position_embedding", columns, lookups));
    MP_TRY(check_table(p, SEGMENTS, "segment_embedding", columns, lookups));
    MP_TRY(check_shape(p, GAMMA, "gamma", &row));
    MP_TRY(check_shape(p, BETA, "beta", &row));
    MP_TRY(check_shape(p, SEGMENT_IDS, "segment_ids", ids));
    MP_TRY(check_shape(p, MASK, "mask", ids));
    return check_positions(p, ids);
}

/* ---- the steps ---- */

static mp_ref in_or_nowhere(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static int64_t rows_of(const mp_planner *p, int i) {
    const mp_tensor *given = mp_plan_in(p, i);
    return given != NULL ? given->shape.dim[0] : 0;
}

static mp_status plan_sum(mp_planner *p, const mp_shape *out, mp_ref sum) {
    const mp_tensor *position_ids = mp_plan_in(p, POSITION_IDS);
    const mp_dtype type = p->in[WORDS].type;
    const int64_t pack = 16 / (int64_t)mp_dtype_size(type), columns = out->dim[2];
    const bool packed = p->align >= 16 && columns % pack == 0;
    mp_embed_args args = {.count = mp_shape_count(out) / (packed ? pack : 1),
                          .columns = columns / (packed ? pack : 1),
                          .sequence = out->dim[1],
                          .position_rows =
                              position_ids != NULL ? mp_shape_count(&position_ids->shape) : 1,
                          .word_count = rows_of(p, WORDS),
                          .segment_count = rows_of(p, SEGMENTS),
                          .position_count = rows_of(p, POSITIONS)};
    const mp_kernel *kernel = NULL;
    args.wide = args.count > INT32_MAX;
    args.by_columns = mp_divider(args.wide ? 1 : (uint32_t)args.columns);
    MP_TRY(mp_plan_kernel(p, &kernel, "embed_%s_%s", packed ? "packed" : "edged",
                          mp_dtype_word(type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_embed_args, word_ids, MP_IN(IDS)),
                     MP_BIND(mp_embed_args, segment_ids, in_or_nowhere(p, SEGMENT_IDS)),
                     MP_BIND(mp_embed_args, position_ids, in_or_nowhere(p, POSITION_IDS)),
                     MP_BIND(mp_embed_args, words, MP_IN(WORDS)),
                     MP_BIND(mp_embed_args, segments, in_or_nowhere(p, SEGMENTS)),
                     MP_BIND(mp_embed_args, positions, MP_IN(POSITIONS)),
                     MP_BIND(mp_embed_args, out, sum));
}

/* Without a mask the index is 0, as ONNX Runtime has it. */
static mp_status plan_mask_index(mp_planner *p) {
    const mp_shape *ids = &p->in[IDS].shape;
    const mp_mask_index_args args = {.rows = ids->dim[0], .columns = ids->dim[1]};
    const mp_shape shape = {.rank = 1, .dim = {args.rows}};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_output(p, 1, MP_I32, &shape));
    if (!mp_plan_wants(p, 1) || args.rows == 0) {
        return MP_OK;
    }
    if (mp_plan_in(p, MASK) == NULL) {
        return mp_plan_fill(p, MP_OUT(1), 0, 4, (size_t)args.rows);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "mask_index"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, args.rows, 128), args,
                     MP_BIND(mp_mask_index_args, mask, MP_IN(MASK)),
                     MP_BIND(mp_mask_index_args, out, MP_OUT(1)));
}

static mp_status plan_embed_norm(mp_planner *p) {
    MP_TRY(check_inputs(p));
    const mp_shape *ids = &p->in[IDS].shape;
    const mp_dtype type = p->in[WORDS].type;
    const mp_shape out = {.rank = 3, .dim = {ids->dim[0], ids->dim[1], p->in[WORDS].shape.dim[1]}};
    MP_TRY(mp_plan_output(p, 0, type, &out));
    MP_TRY(mp_plan_output(p, 2, type, &out));
    MP_TRY(plan_mask_index(p));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    mp_norm n = {.type = type,
                 .out_type = type,
                 .x = mp_plan_wants(p, 2) ? MP_OUT(2) : MP_OUT(0),
                 .scale = MP_IN(GAMMA),
                 .bias = MP_IN(BETA),
                 .out = MP_OUT(0)};
    n.args = (mp_norm_args){.rows = out.dim[0] * out.dim[1],
                            .columns = out.dim[2],
                            .epsilon = mp_node_float(p->node, "epsilon", 1e-12f),
                            .centred = 1};
    MP_TRY(plan_sum(p, &out, n.x));
    return mp_plan_norm(p, &n);
}

static const mp_attr_def embed_attrs[] = {
    {"epsilon", MP_ATTR_FLOAT}, {"mask_index_type", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "EmbedLayerNormalization",
     .since = 1,
     .until = 1,
     .types = {{"T1", MP_BIT(MP_I32)}, {"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}},
     .attrs = embed_attrs,
     .plan = plan_embed_norm},
};

const mp_op_family mp__family_embed_norm = {"embed_norm", ops, MP_COUNT_OF(ops)};
