/* find_attention.c - scaled dot-product attention in primitive operators is one operator, which
 * reads Q, K and V where they lie before heads are put first, and writes its result behind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/add_view.h"
#include "graph/pass/attention_leads.h"
#include "graph/pass/attention_match.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHANGES_MAX = MP_MASKS_MAX + 2, ATTRS_MAX = 10, INPUTS_MAX = 4 + MP_FACTORS_MAX };

/* Constants that all rewrites of a run share, so that equal masks stay equal. */
typedef struct shared {
    int32_t zero[MP_DTYPE_END]; /* by type */
    int32_t lowest, minus_infinity;
} shared;

/* Nodes that a rewrite has changed, as they were. */
typedef struct undo {
    int32_t node[CHANGES_MAX];
    mp_vertex was[CHANGES_MAX];
    int count;
} undo;

/* ---- changes that can be taken back ---- */

static void remember(undo *u, const mp_graph *graph, int32_t n) {
    u->node[u->count] = n;
    u->was[u->count++] = graph->nodes[n];
}

static void take_back(undo *u, mp_graph *graph) {
    for (int c = u->count; c-- > 0;) {
        mp_graph_remove_node(graph, u->node[c]);
        graph->nodes[u->node[c]] = u->was[c];
    }
    for (int c = 0; c < u->count; c++) {
        for (int i = 0; i < u->was[c].out_count; i++) {
            if (u->was[c].out[i] != MP_NO_VALUE) {
                graph->values[u->was[c].out[i]].producer = u->node[c];
            }
        }
    }
}

/* ---- masks ---- */

static mp_status constant_of(mp_graph *graph, const char *name, mp_dtype type, const void *bytes,
                             int32_t *value) {
    const mp_tensor tensor = {.type = type, .shape = {.rank = 0}, .data = (mp_addr)bytes};
    return *value != MP_NO_VALUE ? MP_OK : mp_graph_add_constant(graph, name, &tensor, value);
}

/* What a Where puts into a mask for scores that it takes away. In float any score beside the lowest
 * number is lost, so that a row of nothing else is even, as it was. */
static mp_status fill_of(mp_graph *graph, shared *s, const mp_mask_step *step, int32_t *out) {
    static const float lowest = -FLT_MAX, minus_infinity = -INFINITY;
    double fill = 0;
    (void)mp_graph_number(graph, step->fill, &fill);
    int32_t *of = isinf(fill) ? &s->minus_infinity : &s->lowest;
    MP_TRY(constant_of(graph, "masked", MP_F32, isinf(fill) ? &minus_infinity : &lowest, of));
    *out = *of;
    return MP_OK;
}

/* Whether the node is a Where that nothing is added behind. Its mask can be in float, where a score
 * beside the lowest number of a narrower type would not be lost. */
static bool is_float_mask(const mp_graph *graph, const mp_attention_match *m,
                          const mp_mask_step *step) {
    const mp_dtype type =
        step->fill != MP_NO_VALUE ? graph->values[step->fill].tensor.type : MP_NONE;
    return step == m->masks && (m->mask_count == 1 || type == MP_F16 || type == MP_BF16);
}

static mp_status cast_to_float(mp_graph *graph, int32_t like, int32_t *mask) {
    const mp_attr to = {.name = "to", .kind = MP_ATTR_INT, .i = MP_F32};
    const mp_node node = {.op = mp_op_find("", "Cast", 13),
                          .version = 13,
                          .name = graph->nodes[like].node.name,
                          .attrs = &to,
                          .attr_count = 1};
    const int32_t in = *mask;
    if (in == MP_NO_VALUE || mp_graph_type(graph, in) == MP_F32) {
        return MP_OK;
    }
    const mp_tensor tensor = {.type = MP_F32, .shape = graph->values[in].tensor.shape};
    MP_TRY(mp_graph_add_value(graph, "mask", &tensor, mask));
    return mp_graph_add_beside(graph, like, &node, &in, 1, *mask);
}

/* The mask that a Where is in float or, in the type of the scores, becomes one of several. */
static mp_status where_inputs(mp_graph *graph, shared *s, const mp_mask_step *step, bool in_float,
                              int32_t mask, int32_t in[3]) {
    static const uint64_t zero = 0;
    const mp_dtype type = in_float ? MP_F32 : graph->values[step->fill].tensor.type;
    int32_t fill = step->fill;
    MP_TRY(in_float ? cast_to_float(graph, step->node, &mask) : MP_OK);
    MP_TRY(constant_of(graph, "unmasked", type, &zero, &s->zero[type]));
    if (type == MP_F32) {
        MP_TRY(fill_of(graph, s, step, &fill));
    }
    in[0] = step->value;
    in[step->inverted ? 2 : 1] = mask != MP_NO_VALUE ? mask : s->zero[type];
    in[step->inverted ? 1 : 2] = fill;
    return MP_OK;
}

/* The node that masked scores makes a mask instead: on top of `*mask`, if there is one. */
static mp_status change_mask(mp_graph *graph, shared *s, const mp_mask_step *step, bool in_float,
                             undo *u, int32_t *mask) {
    const mp_vertex old = graph->nodes[step->node];
    int32_t in[3] = {*mask, step->value, MP_NO_VALUE};
    int32_t fresh = MP_NO_VALUE;
    if (step->fill != MP_NO_VALUE) {
        MP_TRY(where_inputs(graph, s, step, in_float, *mask, in));
    }
    const mp_tensor tensor = {.type = mp_graph_type(graph, in[1]),
                              .shape = {.rank = MP_DIM_UNKNOWN}};
    MP_TRY(mp_graph_add_value(graph, "mask", &tensor, &fresh));
    remember(u, graph, step->node);
    *mask = fresh;
    return mp_graph_change_node(graph, step->node, &old.node, in, old.in_count, &fresh, 1);
}

/* A condition alone is a mask where what it takes away is minus infinity. */
static bool is_mask_itself(const mp_graph *graph, const mp_attention_match *m) {
    const mp_mask_step *step = &m->masks[0];
    double fill = 0;
    return m->mask_count == 1 && step->fill != MP_NO_VALUE && !step->inverted &&
           mp_graph_number(graph, step->fill, &fill) && isinf(fill);
}

/* The condition of a mask that is 0 where it holds and minus infinity elsewhere; else the mask. */
static int32_t condition_of(const mp_graph *graph, int32_t mask) {
    const int32_t n = mp_graph_maker(graph, mask, "Where");
    double kept = 1, fill = 0;
    return n != MP_NO_NODE && mp_graph_number(graph, graph->nodes[n].in[1], &kept) && kept == 0 &&
                   mp_graph_number(graph, graph->nodes[n].in[2], &fill) && fill < 0 && isinf(fill)
               ? graph->nodes[n].in[0]
               : mask;
}

static mp_status make_mask(mp_graph *graph, shared *s, const mp_attention_match *m, undo *u,
                           int32_t *mask) {
    *mask = MP_NO_VALUE;
    if (is_mask_itself(graph, m)) {
        *mask = m->masks[0].value;
        return MP_OK;
    }
    for (int i = m->mask_count; i-- > 0;) {
        const mp_mask_step *step = &m->masks[i];
        if (*mask == MP_NO_VALUE && step->fill == MP_NO_VALUE) {
            *mask = step->value;
        } else {
            MP_TRY(change_mask(graph, s, step, is_float_mask(graph, m, step), u, mask));
        }
    }
    *mask = condition_of(graph, *mask);
    return MP_OK;
}

/* ---- the operator ---- */

static void add_ints(mp_node *node, mp_attr *attrs, const char *name, const int64_t *ints,
                     int count) {
    for (int d = 0; d < count; d++) {
        if (ints[d] != d) {
            attrs[node->attr_count++] =
                (mp_attr){.name = name, .kind = MP_ATTR_INTS, .ints = ints, .count = (size_t)count};
            return;
        }
    }
}

static void add_int(mp_node *node, mp_attr *attrs, const char *name, int64_t value) {
    if (value != 0) {
        attrs[node->attr_count++] = (mp_attr){.name = name, .kind = MP_ATTR_INT, .i = value};
    }
}

/* The Transpose behind the product, if the operator can write as it does. */
static int32_t turned_behind(const mp_graph *graph, const mp_attention_match *m,
                             const mp_attr **perm) {
    const int32_t n = mp_graph_reader(graph, graph->nodes[m->product].out[0], "Transpose");
    *perm = n != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
    return *perm != NULL && (*perm)->count == (size_t)m->rank &&
                   (*perm)->ints[m->rank - 1] == m->rank - 1
               ? n
               : MP_NO_NODE;
}

/* Numbers that follow from dimensions become constants: a Shape would keep what it is of. */
static mp_status settle_factors(mp_graph *graph, mp_attention_match *m) {
    for (int i = 0; i < m->factor_count; i++) {
        double number = 0;
        if (!graph->values[m->factors[i]].is_constant &&
            mp_graph_number(graph, m->factors[i], &number)) {
            m->factors[i] = MP_NO_VALUE;
            MP_TRY(constant_of(graph, "scale", MP_F64, &number, &m->factors[i]));
        }
    }
    return MP_OK;
}

/* What the operator writes, and its order: the product, or the Transpose behind it. */
typedef struct target {
    int32_t node;
    const mp_attr *perm; /* NULL: as it is */
    mp_leads leads;
    bool is_wide; /* of five dimensions, which `leads` says how to see as four */
} target;

/* False where what is there has too many dimensions. */
static bool find_target(const mp_graph *graph, const mp_attention_match *m, target *out) {
    *out = (target){.is_wide = m->rank > MP_SIDE_RANK};
    const int32_t behind = turned_behind(graph, m, &out->perm);
    out->node = behind != MP_NO_NODE ? behind : m->product;
    if (behind == MP_NO_NODE) {
        out->perm = NULL;
    }
    if (!out->is_wide) {
        return true;
    }
    const bool found = mp_leads_find(graph, m, out->perm, &out->leads);
    out->node = found && out->leads.has_behind ? out->node : m->product;
    return found;
}

/* Of five dimensions the operator gives four, which are then seen as five. */
static mp_status make_values(mp_graph *graph, const target *t, mp_attention_match *m,
                             int32_t *out) {
    const mp_tensor tensor = {.type = mp_graph_type(graph, m->q.value),
                              .shape = {.rank = MP_DIM_UNKNOWN}};
    *out = graph->nodes[t->node].out[0];
    if (!t->is_wide) {
        return MP_OK;
    }
    MP_TRY(mp_leads_view(graph, t->node, &t->leads, m));
    return mp_graph_add_value(graph, graph->values[*out].name, &tensor, out);
}

/* In the order of the operator's list. */
static void set_attrs(const mp_attention_match *m, const target *t, mp_node *node, mp_attr *attrs) {
    add_int(node, attrs, "divided", m->divided);
    add_int(node, attrs, "exact", m->exact);
    add_int(node, attrs, "grouped", m->grouped);
    add_ints(node, attrs, "k_perm", m->k.perm, m->k.rank);
    if (t->is_wide) {
        add_ints(node, attrs, "out_perm", t->leads.out_perm, MP_SIDE_RANK);
    } else if (t->perm != NULL) {
        add_ints(node, attrs, "out_perm", t->perm->ints, (int)t->perm->count);
    }
    add_ints(node, attrs, "q_perm", m->q.perm, m->q.rank);
    if (m->softcap > 0) {
        attrs[node->attr_count++] =
            (mp_attr){.name = "softcap", .kind = MP_ATTR_FLOAT, .f = (float)m->softcap};
    }
    add_ints(node, attrs, "v_perm", m->v.perm, m->v.rank);
}

static mp_status make_node(mp_graph *graph, mp_attention_match *m, const target *t, int32_t mask,
                           undo *u) {
    const int32_t n = t->node;
    const int32_t result = graph->nodes[n].out[0];
    int32_t out = MP_NO_VALUE;
    MP_TRY(make_values(graph, t, m, &out));
    int32_t in[INPUTS_MAX] = {m->q.value, m->k.value, m->v.value, mask};
    mp_attr attrs[ATTRS_MAX];
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s+%s", graph->nodes[m->scores].node.name,
                   graph->nodes[m->softmax].node.name, graph->nodes[m->product].node.name);
    mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "Attention", 1),
                    .version = 1,
                    .name = name,
                    .attrs = attrs,
                    .options = graph->nodes[m->product].node.options};
    set_attrs(m, t, &node, attrs);
    memcpy(in + 4, m->factors, (size_t)m->factor_count * sizeof *in);
    const int in_count = m->factor_count > 0 ? 4 + m->factor_count : mask != MP_NO_VALUE ? 4 : 3;
    remember(u, graph, n);
    MP_TRY(mp_graph_change_node(graph, n, &node, in, in_count, &out, 1));
    return t->is_wide ? mp_leads_result(graph, n, &t->leads, result) : MP_OK;
}

static mp_status rewrite(mp_graph *graph, shared *s, mp_attention_match *m, const target *t) {
    undo u = {.count = 0};
    int32_t mask = MP_NO_VALUE;
    const int32_t weights = graph->nodes[m->product].in[0];
    const int32_t values = graph->nodes[m->product].in[1];
    const int32_t result = graph->nodes[m->product].out[0];
    int32_t before[MP_FACTORS_MAX];
    memcpy(before, m->factors, sizeof before);
    MP_TRY(settle_factors(graph, m));
    mp_status status = make_mask(graph, s, m, &u, &mask);
    if (status == MP_OK) {
        status = make_node(graph, m, t, mask, &u);
    }
    if (status != MP_OK) {
        take_back(&u, graph);
        return status;
    }
    for (int c = 0; c < u.count; c++) { /* what changed nodes do not read any more */
        mp_graph_drop_inputs(graph, &u.was[c]);
    }
    mp_graph_drop_unread(graph, result);
    mp_graph_drop_unread(graph, weights);
    mp_graph_drop_unread(graph, values);
    for (int i = 0; i < m->factor_count; i++) {
        mp_graph_drop_unread(graph, before[i]);
    }
    return MP_OK;
}

mp_status mp_pass_find_attention(mp_graph *graph, mp_rewrites *rewrites) {
    shared s = {.lowest = MP_NO_VALUE, .minus_infinity = MP_NO_VALUE};
    for (int type = 0; type < MP_DTYPE_END; type++) {
        s.zero[type] = MP_NO_VALUE;
    }
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        mp_attention_match m;
        target t;
        if (mp_vertex_is(&graph->nodes[n], "Softmax") && mp_attention_find(graph, n, &m) &&
            find_target(graph, &m, &t) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &s, &m, &t));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
