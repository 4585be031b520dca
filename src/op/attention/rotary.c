/* rotary.c - RotaryEmbedding of ai.onnx and of com.microsoft, which order their inputs differently,
 * and MRotaryEmbedding, where a token has three positions and each pair of a head goes by one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/rotary_steps.h"
#include "op/core/families.h"

/* Where each domain has its inputs. */
typedef struct order {
    int positions, cosine, sine;
    bool axes; /* three positions for each token */
} order;

static const order order_onnx = {.positions = 3, .cosine = 1, .sine = 2};
static const order order_ms = {.positions = 1, .cosine = 2, .sine = 3};
static const order order_axes = {.positions = 1, .cosine = 2, .sine = 3, .axes = true};

static mp_status no_fit(const mp_planner *p, const char *why) {
    const order *at = p->node->op->detail;
    char x[MP_SHAPE_TEXT];
    char c[MP_SHAPE_TEXT];
    char s[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT,
                   "X of shape %s, cos_cache of shape %s and sin_cache of shape %s: %s",
                   mp_shape_text(&p->in[0].shape, x), mp_shape_text(&p->in[at->cosine].shape, c),
                   mp_shape_text(&p->in[at->sine].shape, s), why);
}

/* Heads: given, or those that the caches' width makes of the last dimension. */
static mp_status read_heads(const mp_planner *p, int64_t rotated, mp_rotary *r) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t width =
        p->in[((const order *)p->node->op->detail)->cosine]
            .shape.dim[p->in[((const order *)p->node->op->detail)->cosine].shape.rank - 1];
    const int64_t given = mp_node_int(p->node, "num_heads", 0);
    if (x->rank == 4) {
        r->heads = x->dim[1];
        r->rows = x->dim[2];
        r->head_size = x->dim[3];
        return MP_OK;
    }
    r->rows = x->dim[1];
    if (given < 0 || (given == 0 && (rotated > 0 || width < 1))) {
        return no_fit(p, "three dimensions need num_heads");
    }
    r->heads = given > 0 ? given : x->dim[2] / (width * 2);
    if (r->heads < 1 || x->dim[2] % r->heads != 0) {
        return no_fit(p, "the last dimension of X is not a multiple of num_heads");
    }
    r->head_size = x->dim[2] / r->heads;
    return MP_OK;
}

/* How many pairs go by each of the three positions. */
static mp_status read_sections(const mp_planner *p, mp_rotary *r) {
    const mp_attr *sections = mp_node_attr(p->node, "mrope_section");
    const int64_t layout = mp_node_int(p->node, "mrope_layout", 0), half = r->rotated / 2;
    const int64_t *of = sections != NULL && sections->count == 3 ? sections->ints : NULL;
    bool fits = of != NULL;
    for (int i = 0; fits && i < 3; i++) {
        fits = of[i] >= 0 && of[i] <= half;
    }
    if (!fits || of[0] + of[1] + of[2] != half) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "mrope_section must be three numbers that add up to %lld, half of what is "
                       "rotated",
                       (long long)half);
    }
    if (layout != 0 && layout != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "mrope_layout is %lld; it can be 0 or 1",
                       (long long)layout);
    }
    r->scaled = true;
    r->scale = mp_node_float(p->node, "scale", 1);
    r->axes_mixed = layout == 1;
    r->axis_end[0] = (int32_t)(layout == 1 ? MP_MIN(3 * of[1], half) : of[0]);
    r->axis_end[1] = (int32_t)(layout == 1 ? MP_MIN(3 * of[2], half) : of[0] + of[1]);
    return MP_OK;
}

static mp_status read_axes(const mp_planner *p, mp_rotary *r) {
    const order *at = p->node->op->detail;
    const mp_tensor *positions = mp_plan_in(p, at->positions);
    const mp_shape want = {.rank = 3, .dim = {3, r->batch, r->rows}};
    if (p->in[at->cosine].shape.rank != 2 || positions == NULL ||
        !mp_shape_equal(&positions->shape, &want)) {
        return no_fit(p, "position_ids must have three values for each token, one behind the "
                         "other, and the caches two dimensions");
    }
    r->position_kind = K_POSITION_AXES;
    r->positions = MP_IN(at->positions);
    return read_sections(p, r);
}

static mp_status read_positions(const mp_planner *p, mp_rotary *r) {
    const order *at = p->node->op->detail;
    const mp_tensor *positions = mp_plan_in(p, at->positions);
    const mp_shape *cosine = &p->in[at->cosine].shape;
    if (!mp_shape_equal(cosine, &p->in[at->sine].shape) ||
        cosine->dim[cosine->rank - 1] != r->rotated / 2) {
        return no_fit(
            p, "the caches' rows must be half as long as the part of a head that is rotated");
    }
    r->positions = MP_NOWHERE;
    r->cache_rows = mp_shape_span(cosine, 0, cosine->rank - 1);
    if (at->axes) {
        return read_axes(p, r);
    }
    if (positions == NULL) {
        r->position_kind = K_POSITION_TOKEN;
        return cosine->rank == 3 && cosine->dim[0] == r->batch && cosine->dim[1] == r->rows
                   ? MP_OK
                   : no_fit(p, "without position_ids the caches need a row for each token");
    }
    const int64_t count = mp_shape_count(&positions->shape);
    const bool first = positions->shape.rank < 2 && count == 1;
    const bool each = positions->shape.rank == 2 && positions->shape.dim[0] == r->batch &&
                      positions->shape.dim[1] == r->rows;
    if (cosine->rank != 2 || (!first && !each)) {
        return no_fit(p, "position_ids must have one value for each token, the caches two "
                         "dimensions");
    }
    r->position_kind = each ? K_POSITION_GIVEN : K_POSITION_FIRST;
    r->positions = MP_IN(at->positions);
    return MP_OK;
}

static mp_status plan_rotary(mp_planner *p) {
    const order *at = p->node->op->detail;
    const mp_shape *x = &p->in[0].shape;
    const int64_t rotated = mp_node_int(p->node, "rotary_embedding_dim", 0);
    const int cosine_rank = p->in[at->cosine].shape.rank;
    if ((x->rank != 3 && x->rank != 4) || cosine_rank < 2 || cosine_rank > 3) {
        return no_fit(p, "X needs three or four dimensions, the caches two or three");
    }
    mp_rotary r = {.type = p->in[0].type,
                   .batch = x->dim[0],
                   .cosine = MP_IN(at->cosine),
                   .sine = MP_IN(at->sine),
                   .interleaved = mp_node_flag(p->node, "interleaved", false)};
    MP_TRY(read_heads(p, rotated, &r));
    r.rotated = rotated > 0 ? rotated : r.head_size;
    if (rotated < 0 || r.rotated > r.head_size || r.rotated % 2 != 0 || r.head_size > INT32_MAX) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "%lld elements of heads of %lld cannot be rotated; an even number of at most the "
            "head's size can",
            (long long)r.rotated, (long long)r.head_size);
    }
    MP_TRY(read_positions(p, &r));
    MP_TRY(mp_plan_output(p, 0, r.type, x));
    r.x = x->rank == 4 ? mp_heads_first(MP_IN(0), r.heads, r.rows, r.head_size)
                       : mp_heads_last(MP_IN(0), r.heads, r.rows, r.head_size);
    r.out = r.x;
    r.out.ref = MP_OUT(0);
    return mp_plan_rotary(p, &r);
}

/* ---- the rows ---- */

static const mp_attr_def attrs_onnx[] = {{"interleaved", MP_ATTR_INT},
                                         {"num_heads", MP_ATTR_INT},
                                         {"rotary_embedding_dim", MP_ATTR_INT},
                                         {NULL, 0}};
/* scale and is_packed_batching of RotaryEmbedding change nothing for tensors of these shapes. */

static const mp_attr_def attrs_axes[] = {{"interleaved", MP_ATTR_INT},
                                         {"num_heads", MP_ATTR_INT},
                                         {"rotary_embedding_dim", MP_ATTR_INT},
                                         {"mrope_section", MP_ATTR_INTS},
                                         {"mrope_layout", MP_ATTR_INT},
                                         {"scale", MP_ATTR_FLOAT},
                                         {NULL, 0}};

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16 };

static const mp_op ops[] = {
    {.domain = "",
     .name = "RotaryEmbedding",
     .since = 23,
     .until = 23,
     .types = {{"T", TYPES}, {"M", MP_BIT(MP_I64)}},
     .attrs = attrs_onnx,
     .plan = plan_rotary,
     .detail = &order_onnx},
    {.domain = "com.microsoft",
     .name = "RotaryEmbedding",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", MP_BIT(MP_I64)}},
     .attrs = attrs_onnx,
     .plan = plan_rotary,
     .detail = &order_ms},
    {.domain = "com.microsoft",
     .name = "MRotaryEmbedding",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", MP_BIT(MP_I64)}},
     .attrs = attrs_axes,
     .plan = plan_rotary,
     .detail = &order_axes},
};

const mp_op_family mp__family_rotary = {"rotary", ops, MP_COUNT_OF(ops)};
