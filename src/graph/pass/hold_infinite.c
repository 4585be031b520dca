/* hold_infinite.c - what T5 does in float16 between its layers: a sum is kept a little below the
 * largest number if any of it is infinite, and then normalised.
 *
 *     s = Add(x, z)
 *     w = Where(any(IsInf(s)), 64512, 65504)
 *     h = Clip(s, -w, w)                        (or Min(Max(s, -w), w))
 *     n = RMSNormalization(h, g)                becomes
 *
 *     found, s = millpond.SumInfinite(x, z)
 *     n, h = millpond.HeldRMSNormalization(s, found, g)
 *
 * `any` is a maximum above 0 or a sum above 0 of integers, as torch exports it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "base/half.h"
#include "graph/look.h"

#include <stdio.h>

typedef struct match {
    int32_t sum;   /* value */
    int32_t limit; /* value: w */
    int32_t add, norm;
    double most[2];
} match;

/* ---- whether any element is infinite ---- */

static int32_t before_casts(const mp_graph *graph, int32_t value) {
    int32_t n = mp_graph_maker(graph, value, "Cast");
    while (n != MP_NO_NODE) {
        value = graph->nodes[n].in[0];
        n = mp_graph_maker(graph, value, "Cast");
    }
    return value;
}

/* Whether the node reduces all there is. */
static bool reduces_all(const mp_graph *graph, const mp_vertex *v) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    const bool has_axes = mp_node_attr(&v->node, "axes") != NULL || mp_vertex_in(v, 1) >= 0;
    const bool none = !has_axes || (mp_graph_ints(graph, v, "axes", 1, axes, &count) && count == 0);
    return none && !mp_node_flag(&v->node, "noop_with_empty_axes", false);
}

/* The infinities of either sign that the value asks for, as 1 and 0 in integers: of which tensor;
 * or MP_NO_VALUE. */
static int32_t asked_for(const mp_graph *graph, int32_t value) {
    const mp_dtype type = mp_graph_type(graph, value);
    const int32_t n = type == MP_I32 || type == MP_I64
                          ? mp_graph_maker(graph, before_casts(graph, value), "IsInf")
                          : MP_NO_NODE;
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || !mp_node_flag(&v->node, "detect_positive", true) ||
        !mp_node_flag(&v->node, "detect_negative", true)) {
        return MP_NO_VALUE;
    }
    const int32_t wide = mp_graph_maker(graph, v->in[0], "Cast");
    const int32_t x = wide != MP_NO_NODE ? graph->nodes[wide].in[0] : v->in[0];
    const mp_dtype seen = mp_graph_type(graph, v->in[0]);
    return seen == MP_F16 || seen == MP_F32 || seen == MP_F64 ? x : MP_NO_VALUE;
}

/* The tensor of which the condition is whether any element is infinite; or MP_NO_VALUE. */
static int32_t any_infinite(const mp_graph *graph, int32_t condition) {
    double zero = 0;
    int32_t n = mp_graph_maker(graph, condition, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const bool above = v != NULL && mp_vertex_is(v, "Greater") &&
                       mp_graph_number(graph, v->in[1], &zero) && zero == 0;
    if (v == NULL || !(above || mp_vertex_is(v, "Cast"))) {
        return MP_NO_VALUE;
    }
    n = mp_graph_maker(graph, v->in[0], NULL);
    v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    return v != NULL && (mp_vertex_is(v, "ReduceMax") || mp_vertex_is(v, "ReduceSum")) &&
                   reduces_all(graph, v)
               ? asked_for(graph, v->in[0])
               : MP_NO_VALUE;
}

/* ---- between which numbers ---- */

/* The sum and the bounds that node `n` puts it between. */
static bool find_bounds(const mp_graph *graph, int32_t n, int32_t *sum, int32_t *low,
                        int32_t *high) {
    const mp_vertex *v = &graph->nodes[n];
    if (mp_vertex_is(v, "Clip")) {
        *sum = v->in[0];
        *low = mp_vertex_in(v, 1);
        *high = mp_vertex_in(v, 2);
        return *low != MP_NO_VALUE && *high != MP_NO_VALUE;
    }
    const int32_t max =
        mp_vertex_is(v, "Min") && v->in_count == 2 ? mp_graph_maker(graph, v->in[0], "Max") : -1;
    if (max < 0 || graph->nodes[max].in_count != 2 || mp_graph_reader(graph, v->in[0], NULL) != n) {
        return false;
    }
    *sum = graph->nodes[max].in[0];
    *low = graph->nodes[max].in[1];
    *high = v->in[1];
    return true;
}

/* The two numbers that `limit` is one of, as float16 has them. */
static bool find_limit(const mp_graph *graph, match *m) {
    const int32_t n = mp_graph_maker(graph, m->limit, "Where");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || any_infinite(graph, v->in[0]) != m->sum) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        const int rank = mp_graph_rank(graph, v->in[2 - i]);
        if (!mp_graph_number(graph, v->in[2 - i], &m->most[i]) || rank < 0 || rank > 1 ||
            !(m->most[i] >= 0)) {
            return false;
        }
        m->most[i] = (double)mp_from_f16(mp_to_f16((float)m->most[i]));
    }
    return true;
}

/* ---- the whole ---- */

/* The normalisation of the value by a row of its type; MP_NO_NODE. */
static int32_t norm_of(const mp_graph *graph, int32_t n) {
    const int32_t value = graph->nodes[n].out[0];
    for (int32_t k = n + 1; k < graph->node_count; k++) {
        const mp_vertex *v = &graph->nodes[k];
        if (!mp_vertex_is(v, "RMSNormalization") || v->in[0] != value) {
            continue;
        }
        const mp_tensor *scale = mp_graph_constant(graph, v->in[1]);
        const bool fits = scale != NULL && scale->type == MP_F16 && scale->shape.rank == 1 &&
                          mp_node_int(&v->node, "axis", -1) == -1 &&
                          mp_graph_same_guard(graph, n, k);
        return fits ? k : MP_NO_NODE;
    }
    return MP_NO_NODE;
}

static bool find(const mp_graph *graph, int32_t n, match *m) {
    int32_t low = MP_NO_VALUE, high = MP_NO_VALUE;
    if (!find_bounds(graph, n, &m->sum, &low, &high) || mp_graph_type(graph, m->sum) != MP_F16) {
        return false;
    }
    const int32_t negative = mp_graph_maker(graph, before_casts(graph, low), "Neg");
    m->limit = before_casts(graph, high);
    m->add = mp_graph_maker(graph, m->sum, "Add");
    if (m->add == MP_NO_NODE || negative == MP_NO_NODE ||
        before_casts(graph, graph->nodes[negative].in[0]) != m->limit || !find_limit(graph, m)) {
        return false;
    }
    const mp_vertex *add = &graph->nodes[m->add];
    const int rank = mp_graph_rank(graph, add->in[0]);
    m->norm = norm_of(graph, n);
    return rank >= 2 && rank == mp_graph_rank(graph, add->in[1]) && m->norm != MP_NO_NODE &&
           mp_graph_same_guard(graph, m->add, n);
}

/* The sum at its place, since others may read it before. */
static mp_status rewrite_sum(mp_graph *graph, const match *m, int32_t *found) {
    const mp_vertex was = graph->nodes[m->add];
    const mp_tensor flags = {.type = MP_BOOL, .shape = {.rank = 1, .dim = {MP_DIM_UNKNOWN}}};
    char name[256];
    (void)snprintf(name, sizeof name, "%s_infinite", was.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "SumInfinite", 1),
                          .version = 1,
                          .name = was.node.name,
                          .options = was.node.options};
    MP_TRY(mp_graph_add_value(graph, name, &flags, found));
    const int32_t in[] = {was.in[0], was.in[1]}, out[] = {*found, m->sum};
    return mp_graph_change_node(graph, m->add, &node, in, 2, out, 2);
}

static mp_status rewrite(mp_graph *graph, int32_t n, const match *m) {
    const mp_vertex was = graph->nodes[n], norm = graph->nodes[m->norm];
    const bool wanted = mp_graph_uses(graph, was.out[0]) > 1;
    const mp_attr attrs[] = {{.name = "epsilon",
                              .kind = MP_ATTR_FLOAT,
                              .f = mp_node_float(&norm.node, "epsilon", 1e-5f)},
                             {.name = "most", .kind = MP_ATTR_FLOAT, .f = (float)m->most[0]},
                             {.name = "most_found", .kind = MP_ATTR_FLOAT, .f = (float)m->most[1]}};
    char name[256];
    int32_t found = MP_NO_VALUE;
    MP_TRY(rewrite_sum(graph, m, &found));
    (void)snprintf(name, sizeof name, "%s+%s", was.node.name, norm.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "HeldRMSNormalization", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs),
                          .options = norm.node.options};
    const int32_t in[] = {m->sum, found, norm.in[1]}, out[] = {norm.out[0], was.out[0]};
    MP_TRY(mp_graph_merge_node(graph, n, m->norm, &node, in, 3, out, wanted ? 2 : 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_hold_infinite(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        match m;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &m));
        }
    }
    return MP_OK;
}
