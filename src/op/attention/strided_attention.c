/* strided_attention.c - Attention as passes over a graph make it: Q, K and V are read where they
 * lie, and the result is written where it is wanted, so that heads need no transposition of their
 * own.
 *
 *     out = softmax(scale q k^T + mask) v        [batch, heads, rows, size]
 *
 * Each side is a view of its input: its dimensions in another order (q_perm and so on; of K, too,
 * so that rows are keys), or heads within longer rows (q_part = first element, heads, size of one,
 * elements from one to the next; of an input [batch, rows, elements]). Leading dimensions broadcast
 * as in MatMul; with `grouped` K and V may also have fewer heads, which neighbours share.
 * Inputs behind the mask are scales, numbers that are known when it is planned: bit i of `divided`
 * says that the score is divided by number i. With `exact` scores of halves are never rounded to
 * their type: they may be more than it can hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/heads_part.h"
#include "op/core/families.h"
#include "op/core/host_float.h"
#include "op/move/strided_copy.h"

#include <string.h>

enum { IN_Q, IN_K, IN_V, IN_MASK, IN_SCALES };
enum { BATCH, HEAD, ROW, SIZE, SIDE_RANK };

/* A view of four dimensions. */
typedef struct side {
    int64_t dim[SIDE_RANK], stride[SIDE_RANK];
    mp_ref ref;
    int rank; /* dimensions that the model has */
} side;

/* ---- views ---- */

static mp_status read_part(const mp_planner *p, int i, const char *name, const mp_attr *part,
                           side *out) {
    mp_heads heads;
    *out = (side){.rank = SIDE_RANK};
    MP_TRY(mp_read_heads_part(p, i, name, part, &heads, out->dim));
    memcpy(out->stride, heads.stride, sizeof heads.stride);
    out->stride[SIZE] = 1;
    out->ref = heads.ref;
    return MP_OK;
}

static mp_status check_perm(const mp_attr *perm, const char *name, int rank) {
    uint32_t seen = 0;
    for (size_t i = 0; i < perm->count; i++) {
        const int64_t at = perm->ints[i];
        seen |= at >= 0 && at < rank ? 1u << at : 0;
    }
    return perm->count == (size_t)rank && seen == (1u << rank) - 1
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s is no order of %d dimensions", name, rank);
}

static mp_status read_order(const mp_planner *p, int i, const char *name, const mp_attr *perm,
                            side *out) {
    const mp_tensor *x = &p->in[i];
    const int rank = x->shape.rank;
    int64_t stride[MP_RANK_MAX];
    if (rank < 2 || rank > SIDE_RANK) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(UNSUPPORTED, "an input of shape %s; it must have 2 to 4 dimensions",
                       mp_shape_text(&x->shape, text));
    }
    if (perm != NULL) {
        MP_TRY(check_perm(perm, name, rank));
    }
    mp_shape_strides(&x->shape, stride);
    *out = (side){.dim = {1, 1, 1, 1}, .rank = rank, .ref = MP_IN(i)};
    for (int d = 0; d < rank; d++) {
        const int at = perm != NULL ? (int)perm->ints[d] : d;
        out->dim[SIDE_RANK - rank + d] = x->shape.dim[at];
        out->stride[SIDE_RANK - rank + d] = stride[at];
    }
    return MP_OK;
}

static mp_status read_side(const mp_planner *p, int i, side *out) {
    static const char *const perms[] = {"q_perm", "k_perm", "v_perm"};
    static const char *const parts[] = {"q_part", "k_part", "v_part"};
    const mp_attr *part = mp_node_attr(p->node, parts[i]);
    return part != NULL ? read_part(p, i, parts[i], part, out)
                        : read_order(p, i, perms[i], mp_node_attr(p->node, perms[i]), out);
}

/* Library products step over rows that are there, and kernels want the elements of a head to be
 * neighbours: a side that is not so is copied, with its rows (of Q its heads, too) repeated as the
 * result has them. */
static mp_status bring_together(mp_planner *p, mp_dtype type, int64_t heads, int64_t rows,
                                side *x) {
    mp_shape shape = {.rank = SIDE_RANK};
    mp_strided from = {.ref = x->ref}, to = {.ref = MP_NOWHERE};
    const bool repeats = x->dim[ROW] != rows || x->dim[HEAD] != heads;
    if (!repeats && (x->stride[SIZE] == 1 || x->dim[SIZE] == 1)) {
        return MP_OK;
    }
    for (int d = 0; d < SIDE_RANK; d++) {
        from.stride[d] = x->dim[d] == 1 ? 0 : x->stride[d];
    }
    x->dim[HEAD] = heads;
    x->dim[ROW] = rows;
    memcpy(shape.dim, x->dim, sizeof x->dim);
    mp_shape_strides(&shape, to.stride);
    MP_TRY(mp_plan_scratch_shape(p, &shape, type, &to.ref));
    memcpy(x->stride, to.stride, sizeof x->stride);
    x->ref = to.ref;
    return mp_shape_count(&shape) == 0
               ? MP_OK
               : mp_plan_strided_copy(p, &shape, mp_dtype_size(type), &from, &to);
}

/* As the result of `batch` entries and `heads` walks it. */
static mp_heads heads_of(const side *x, int64_t batch, int64_t heads) {
    mp_heads out = {.ref = x->ref, .stride = {x->stride[BATCH], x->stride[HEAD], x->stride[ROW]}};
    out.stride[BATCH] = x->dim[BATCH] == 1 && batch > 1 ? 0 : out.stride[BATCH];
    out.stride[HEAD] = x->dim[HEAD] == 1 && heads > 1 ? 0 : out.stride[HEAD];
    out.stride[ROW] = x->dim[ROW] == 1 ? x->dim[SIZE] : out.stride[ROW];
    return out;
}

/* ---- sizes ---- */

typedef struct sides {
    side q, k, v;
    mp_shape mask; /* four dimensions; of rank 0 where there is none */
    int64_t batch, heads, kv_heads, rows, keys;
    int rank;
} sides;

/* `*to` and `dim` become one size, as NumPy has it. */
static bool agree(int64_t *to, int64_t dim) {
    const bool fits = *to == dim || *to == 1 || dim == 1;
    *to = *to == 1 ? dim : *to;
    return fits;
}

static mp_status read_mask(const mp_planner *p, sides *s) {
    const mp_tensor *mask = mp_plan_in(p, IN_MASK);
    s->mask = (mp_shape){.rank = 0};
    if (mask == NULL) {
        return MP_OK;
    }
    const int lead = SIDE_RANK - mask->shape.rank;
    if (lead < 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(UNSUPPORTED, "a mask of shape %s; it may have 4 dimensions at most",
                       mp_shape_text(&mask->shape, text));
    }
    s->mask.rank = SIDE_RANK;
    for (int d = 0; d < SIDE_RANK; d++) {
        s->mask.dim[d] = d < lead ? 1 : mask->shape.dim[d - lead];
    }
    s->rank = MP_MAX(mask->shape.rank, s->rank);
    return agree(&s->batch, s->mask.dim[BATCH]) && agree(&s->heads, s->mask.dim[HEAD]) &&
                   agree(&s->rows, s->mask.dim[ROW]) && agree(&s->keys, s->mask.dim[SIZE])
               ? MP_OK
               : mp_attention_no_fit(p, "the mask does not fit the scores");
}

static mp_status read_heads(const mp_planner *p, sides *s) {
    const bool grouped = mp_node_int(p->node, "grouped", 0) != 0;
    s->kv_heads = s->k.dim[HEAD];
    if (!agree(&s->kv_heads, s->v.dim[HEAD])) {
        return mp_attention_no_fit(p, "the heads of K and V differ");
    }
    if (s->kv_heads == s->heads || s->kv_heads == 1) {
        return MP_OK;
    }
    if (s->heads == 1) {
        s->heads = s->kv_heads;
        return MP_OK;
    }
    return grouped && s->kv_heads > 0 && s->heads % s->kv_heads == 0
               ? MP_OK
               : mp_attention_no_fit(p, "the heads of Q and K differ");
}

static mp_status read_sides(const mp_planner *p, sides *s) {
    MP_TRY(read_side(p, IN_Q, &s->q));
    MP_TRY(read_side(p, IN_K, &s->k));
    MP_TRY(read_side(p, IN_V, &s->v));
    if (s->q.dim[SIZE] != s->k.dim[SIZE]) {
        return mp_attention_no_fit(p, "heads of Q and K differ in size");
    }
    s->rank = MP_MAX(s->q.rank, s->k.rank);
    s->rank = MP_MAX(s->v.rank, s->rank);
    s->batch = s->q.dim[BATCH];
    s->heads = s->q.dim[HEAD];
    s->rows = s->q.dim[ROW];
    s->keys = s->k.dim[ROW];
    if (!agree(&s->batch, s->k.dim[BATCH]) || !agree(&s->batch, s->v.dim[BATCH])) {
        return mp_attention_no_fit(p, "the numbers of entries differ");
    }
    MP_TRY(read_mask(p, s));
    MP_TRY(read_heads(p, s));
    return s->v.dim[ROW] == s->keys ? MP_OK : mp_attention_no_fit(p, "K and V differ in length");
}

/* ---- the rule ---- */

static mp_status read_scale(const mp_planner *p, double *out) {
    const int64_t divided = mp_node_int(p->node, "divided", 0);
    *out = 1;
    for (int i = IN_SCALES; i < p->in_count; i++) {
        const mp_tensor *x = mp_plan_in(p, i);
        if (x == NULL || x->data == 0 || mp_shape_count(&x->shape) != 1) {
            return MP_FAIL(INVALID_ARGUMENT, "scale %d is not one number", i - IN_SCALES);
        }
        const double by = mp_host_float(x, 0);
        *out = (divided >> (i - IN_SCALES) & 1) != 0 ? *out / by : *out * by;
    }
    return MP_OK;
}

static mp_status read_rule(const mp_planner *p, const sides *s, mp_attention *a) {
    a->rule = mp_score_rule(s->batch, s->heads, s->kv_heads, s->rows, s->keys);
    a->rule.softcap = (double)mp_node_float(p->node, "softcap", 0);
    a->rule.causal = mp_node_flag(p->node, "is_causal", false);
    a->mask = a->lengths = a->sink = a->debug = MP_NOWHERE;
    a->debug_mode = MP_DEBUG_NONE;
    if (s->mask.rank > 0) {
        const mp_tensor mask = {.type = p->in[IN_MASK].type, .shape = s->mask};
        MP_TRY(mp_score_mask(&a->rule, &mask));
        a->mask = MP_IN(IN_MASK);
    }
    return read_scale(p, &a->rule.scale);
}

/* ---- the output ---- */

/* Where the result lies in the output, which has its dimensions in the order of `out_perm`. */
static mp_status declare(mp_planner *p, const sides *s, side *out) {
    const mp_attr *perm = mp_node_attr(p->node, "out_perm");
    const int64_t dim[SIDE_RANK] = {s->batch, s->heads, s->rows, s->v.dim[SIZE]};
    const int lead = SIDE_RANK - s->rank;
    mp_shape shape = {.rank = s->rank};
    int64_t stride[MP_RANK_MAX];
    *out = (side){.ref = MP_OUT(0), .rank = s->rank};
    memcpy(out->dim, dim, sizeof dim);
    if (perm != NULL) {
        MP_TRY(check_perm(perm, "out_perm", s->rank));
    }
    for (int d = 0; d < s->rank; d++) {
        shape.dim[d] = dim[lead + (perm != NULL ? (int)perm->ints[d] : d)];
    }
    MP_TRY(mp_plan_output(p, 0, p->in[IN_Q].type, &shape));
    mp_shape_strides(&shape, stride);
    for (int d = 0; d < s->rank; d++) {
        out->stride[lead + (perm != NULL ? (int)perm->ints[d] : d)] = stride[d];
    }
    return MP_OK;
}

/* Elements of a head that are no neighbours in the output are written by a copy. */
static mp_status plan_into(mp_planner *p, mp_attention *a, const side *out) {
    if (out->stride[SIZE] == 1) {
        a->out = (mp_heads){.ref = out->ref};
        memcpy(a->out.stride, out->stride, sizeof a->out.stride);
        return mp_plan_attention(p, a);
    }
    mp_shape shape = {.rank = SIDE_RANK};
    mp_strided from = {.ref = MP_NOWHERE}, to = {.ref = out->ref};
    memcpy(shape.dim, out->dim, sizeof out->dim);
    memcpy(to.stride, out->stride, sizeof out->stride);
    mp_shape_strides(&shape, from.stride);
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_shape(p, &shape, a->type, &from.ref));
    a->out = mp_heads_first(from.ref, out->dim[HEAD], out->dim[ROW], out->dim[SIZE]);
    MP_TRY(mp_plan_attention(p, a));
    return mp_plan_strided_copy(p, &shape, mp_dtype_size(a->type), &from, &to);
}

static mp_status plan_attention(mp_planner *p) {
    sides s;
    side out;
    mp_attention a = {.type = p->in[IN_Q].type};
    MP_TRY(read_sides(p, &s));
    a.exact = mp_node_flag(p->node, "exact", false);
    a.head_size = s.q.dim[SIZE];
    a.v_head_size = s.v.dim[SIZE];
    MP_TRY(read_rule(p, &s, &a));
    MP_TRY(declare(p, &s, &out));
    MP_TRY(bring_together(p, a.type, s.heads, s.rows, &s.q));
    MP_TRY(bring_together(p, a.type, s.k.dim[HEAD], s.keys, &s.k));
    MP_TRY(bring_together(p, a.type, s.v.dim[HEAD], s.keys, &s.v));
    a.q = heads_of(&s.q, s.batch, s.heads);
    a.k = heads_of(&s.k, s.batch, s.kv_heads);
    a.v = heads_of(&s.v, s.batch, s.kv_heads);
    return plan_into(p, &a, &out);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"divided", MP_ATTR_INT},
                                    {"exact", MP_ATTR_INT},
                                    {"grouped", MP_ATTR_INT},
                                    {"is_causal", MP_ATTR_INT},
                                    {"k_part", MP_ATTR_INTS},
                                    {"k_perm", MP_ATTR_INTS},
                                    {"out_perm", MP_ATTR_INTS},
                                    {"q_part", MP_ATTR_INTS},
                                    {"q_perm", MP_ATTR_INTS},
                                    {"softcap", MP_ATTR_FLOAT},
                                    {"v_part", MP_ATTR_INTS},
                                    {"v_perm", MP_ATTR_INTS},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "Attention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_FLOATS}},
     .host_in = ~0u << IN_SCALES,
     .attrs = attrs,
     .plan = plan_attention},
};

const mp_op_family mp__family_strided_attention = {"strided_attention", ops, MP_COUNT_OF(ops)};
