/* attention_leads.c - see attention_leads.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/attention_leads.h"

#include "base/macros.h"
#include "graph/pass/add_view.h"

#include <string.h>

enum { SIDES = 3, LEADS = 3, ROWS = 3, SIZE = 4 };

typedef mp_attention_match match;
typedef mp_attention_side side;

/* Two of three that become one, in the order of the dimensions. */
typedef struct way {
    int order[MP_WIDE_RANK], at;
} way;

static const way ways[] = {
    {{0, 1, 2, 3, 4}, 0},
    {{0, 1, 2, 3, 4}, 1},
    {{0, 2, 1, 3, 4}, 1},
};

/* ---- dimensions ---- */

static void sides_of(const match *m, const side *out[SIDES]) {
    out[0] = &m->q;
    out[1] = &m->k;
    out[2] = &m->v;
}

static int64_t dim_of(const mp_graph *graph, const side *x, int dim) {
    return mp_graph_dim(graph, x->value, (int)x->perm[dim]);
}

/* How long this leading dimension of the result is; unknown where one of a side may be repeated. */
static int64_t lead_dim(const mp_graph *graph, const match *m, int lead) {
    const int64_t q = dim_of(graph, &m->q, lead);
    return q > 0 && q == dim_of(graph, &m->k, lead) && q == dim_of(graph, &m->v, lead)
               ? q
               : MP_DIM_UNKNOWN;
}

/* Whether no side is repeated along this dimension. */
static bool is_even(const mp_graph *graph, const match *m, int lead) {
    const side *q = &m->q, *k = &m->k, *v = &m->v;
    return mp_graph_same_dim(graph, q->value, (int)q->perm[lead], k->value, (int)k->perm[lead]) &&
           mp_graph_same_dim(graph, q->value, (int)q->perm[lead], v->value, (int)v->perm[lead]);
}

/* Whether all masks are 1 along this dimension, or `same` long. */
static bool masks_fit(const mp_graph *graph, const match *m, int dim, int64_t same) {
    for (int i = 0; i < m->mask_count; i++) {
        const int32_t mask = m->masks[i].value;
        const int from_end = MP_WIDE_RANK - dim;
        const int64_t there =
            from_end <= mp_graph_rank(graph, mask) ? mp_graph_dim(graph, mask, -from_end) : 1;
        if (there != 1 && (there <= 0 || there != same)) {
            return false;
        }
    }
    return true;
}

/* What is known of the result's dimensions. */
static void result_dims(const mp_graph *graph, const match *m, int64_t dim[MP_WIDE_RANK]) {
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        const int64_t known = d < LEADS   ? lead_dim(graph, m, d)
                              : d == ROWS ? dim_of(graph, &m->q, ROWS)
                                          : dim_of(graph, &m->v, SIZE);
        dim[d] = d == SIZE || masks_fit(graph, m, d, known) ? known : MP_DIM_UNKNOWN;
    }
}

/* ---- views ---- */

/* The axis at which the first of both is, if the other is behind it; -1. */
static int merged_axis(const int64_t *perm, const way *w) {
    const int64_t first = perm[w->order[w->at]];
    return perm[w->order[w->at + 1]] == first + 1 ? (int)first : -1;
}

/* The dimensions with those at `axis` and behind it as one, for a Reshape: 0 keeps what is not
 * known, which only works in front. */
static bool merge(const int64_t *dim, int axis, int64_t *out) {
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        if (d != axis && d != axis + 1) {
            out[d < axis ? d : d - 1] = MP_MAX(dim[d], 0);
            if (dim[d] <= 0 && d > axis) {
                return false;
            }
        }
    }
    const bool known = dim[axis] > 0 && dim[axis + 1] > 0;
    out[axis] = -1;
    return known ? !__builtin_mul_overflow(dim[axis], dim[axis + 1], &out[axis]) : axis == 0;
}

/* The same the other way round: what one dimension is taken apart to. */
static bool take_apart(const int64_t *dim, int axis, int64_t *out) {
    int unknown = 0;
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        unknown += dim[d] <= 0;
        out[d] = dim[d] > 0 ? dim[d] : d == axis ? -1 : 0;
        if (dim[d] <= 0 && d > axis) {
            return false;
        }
    }
    return dim[axis] > 0 || unknown == 1;
}

/* The order of four dimensions, of which one is both that lie at `axis`. */
static void narrow(const int64_t *perm, const way *w, int axis, int64_t out[MP_SIDE_RANK]) {
    int count = 0;
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        if (d != w->at + 1) {
            const int64_t at = perm[w->order[d]];
            out[count++] = at > axis ? at - 1 : at;
        }
    }
}

/* A side in the order that the way has. */
static side in_order(const way *w) {
    side x = {.value = MP_NO_VALUE, .rank = MP_WIDE_RANK};
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        x.perm[w->order[d]] = d;
    }
    return x;
}

static bool view_of(const mp_graph *graph, const side *x, const way *w, side *out,
                    int64_t shape[MP_SIDE_RANK]) {
    const int axis = merged_axis(x->perm, w);
    const side lies = axis >= 0 ? *x : in_order(w);
    const int at = axis >= 0 ? axis : w->at;
    int64_t dim[MP_WIDE_RANK];
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        dim[lies.perm[d]] = dim_of(graph, x, d);
    }
    *out = (side){.value = MP_NO_VALUE, .rank = MP_SIDE_RANK};
    narrow(lies.perm, w, at, out->perm);
    return merge(dim, at, shape);
}

/* ---- which way ---- */

static bool may_merge(const mp_graph *graph, const match *m, const way *w) {
    for (int i = w->at; i <= w->at + 1; i++) {
        if (!is_even(graph, m, w->order[i]) || !masks_fit(graph, m, w->order[i], 1)) {
            return false;
        }
    }
    return true;
}

/* Where `perm` (NULL: as they are) puts each dimension of the result. */
static void places_of(const mp_attr *perm, int64_t place[MP_WIDE_RANK]) {
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        place[perm != NULL ? perm->ints[d] : d] = d;
    }
}

static bool find_result(const mp_graph *graph, const match *m, const way *w, const mp_attr *behind,
                        mp_leads *out) {
    int64_t place[MP_WIDE_RANK], known[MP_WIDE_RANK], dim[MP_WIDE_RANK];
    int64_t perm[MP_SIDE_RANK];
    places_of(behind, place);
    const int axis = merged_axis(place, w);
    if (axis < 0) {
        return false;
    }
    result_dims(graph, m, known);
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        dim[place[d]] = known[d];
    }
    narrow(place, w, axis, perm);
    for (int d = 0; d < MP_SIDE_RANK; d++) {
        out->out_perm[perm[d]] = d;
    }
    out->has_behind = behind != NULL;
    return take_apart(dim, axis, out->out_shape);
}

/* How many copies are left; -1 where it cannot be done so. */
static int try_way(const mp_graph *graph, const match *m, const way *w, const mp_attr *behind,
                   mp_leads *out) {
    const side *sides[SIDES];
    int copies = 0;
    memcpy(out->order, w->order, sizeof out->order);
    out->at = w->at;
    if (!may_merge(graph, m, w)) {
        return -1;
    }
    sides_of(m, sides);
    for (int i = 0; i < SIDES; i++) {
        side view;
        int64_t shape[MP_SIDE_RANK];
        if (!view_of(graph, sides[i], w, &view, shape)) {
            return -1;
        }
        copies += merged_axis(sides[i]->perm, w) < 0;
    }
    if (behind != NULL && find_result(graph, m, w, behind, out)) {
        return copies;
    }
    return find_result(graph, m, w, NULL, out) ? copies + (behind != NULL) : -1;
}

bool mp_leads_find(const mp_graph *graph, const match *m, const mp_attr *behind, mp_leads *out) {
    int fewest = -1;
    if (m->q.rank != MP_WIDE_RANK || m->k.rank != MP_WIDE_RANK || m->v.rank != MP_WIDE_RANK) {
        return false;
    }
    for (size_t i = 0; i < MP_COUNT_OF(ways); i++) {
        mp_leads trial;
        const int copies = try_way(graph, m, &ways[i], behind, &trial);
        if (copies >= 0 && (fewest < 0 || copies < fewest)) {
            fewest = copies;
            *out = trial;
        }
    }
    return fewest >= 0;
}

/* ---- rewriting ---- */

/* The side's dimensions in the order of the way, by a node that moves them. */
static mp_status transpose(mp_graph *graph, int32_t n, const way *w, side *x) {
    int64_t perm[MP_WIDE_RANK];
    mp_tensor tensor = {.type = mp_graph_type(graph, x->value), .shape = {.rank = MP_WIDE_RANK}};
    for (int d = 0; d < MP_WIDE_RANK; d++) {
        perm[d] = x->perm[w->order[d]];
        tensor.shape.dim[d] = dim_of(graph, x, w->order[d]);
    }
    const mp_attr attr = {
        .name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = MP_WIDE_RANK};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = graph->nodes[n].node.name,
                          .attrs = &attr,
                          .attr_count = 1};
    const int32_t from = x->value;
    *x = in_order(w);
    MP_TRY(mp_graph_add_value(graph, graph->values[from].name, &tensor, &x->value));
    return mp_graph_add_beside(graph, n, &node, &from, 1, x->value);
}

static mp_status view_side(mp_graph *graph, int32_t n, const way *w, side *x) {
    int64_t shape[MP_SIDE_RANK];
    side view;
    if (merged_axis(x->perm, w) < 0) {
        MP_TRY(transpose(graph, n, w, x));
    }
    (void)view_of(graph, x, w, &view, shape);
    MP_TRY(mp_graph_add_view(graph, n, graph->values[x->value].name, "Reshape", x->value, shape,
                             MP_SIDE_RANK, &view.value));
    *x = view;
    return MP_OK;
}

mp_status mp_leads_view(mp_graph *graph, int32_t n, const mp_leads *leads, match *m) {
    side *const sides[SIDES] = {&m->q, &m->k, &m->v};
    way w = {.at = leads->at};
    memcpy(w.order, leads->order, sizeof w.order);
    for (int i = 0; i < SIDES; i++) {
        MP_TRY(view_side(graph, n, &w, sides[i]));
    }
    m->rank = MP_SIDE_RANK;
    return MP_OK;
}

mp_status mp_leads_result(mp_graph *graph, int32_t n, const mp_leads *leads, int32_t out) {
    const mp_tensor list = {.type = MP_I64,
                            .shape = {.rank = 1, .dim = {MP_WIDE_RANK}},
                            .data = (mp_addr)leads->out_shape};
    const mp_node node = {
        .op = mp_op_find("", "Reshape", 13), .version = 13, .name = graph->nodes[n].node.name};
    int32_t in[] = {graph->nodes[n].out[0], MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(graph, "", &list, &in[1]));
    return mp_graph_add_beside(graph, n, &node, in, 2, out);
}
