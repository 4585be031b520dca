/* join_rotary.c - the queries and the keys of one attention, which are rotated alike, and the
 * caches that these keys go to become one node, which is one launch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>
#include <string.h>

enum { ATTRS = 2 }; /* of RotaryHalves */

/* The node of ours that makes `value`; or MP_NO_NODE. */
static int32_t find_own(const mp_graph *graph, int32_t value, const char *name) {
    const int32_t n = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    return n != MP_NO_NODE && mp_vertex_is_own(&graph->nodes[n], name) ? n : MP_NO_NODE;
}

typedef struct places {
    int32_t queries, keys, caches; /* nodes */
} places;

static bool find(const mp_graph *graph, const mp_vertex *attention, places *out) {
    out->queries = find_own(graph, attention->in[0], "RotaryHalves");
    out->caches = find_own(graph, attention->in[1], "GrowCaches");
    if (out->queries == MP_NO_NODE || out->caches == MP_NO_NODE) {
        return false;
    }
    const mp_vertex *q = &graph->nodes[out->queries], *c = &graph->nodes[out->caches];
    out->keys = find_own(graph, c->in[1], "RotaryHalves");
    if (out->keys == MP_NO_NODE || out->keys == out->queries || c->out[0] != attention->in[1] ||
        c->out[1] != attention->in[2]) {
        return false;
    }
    const mp_vertex *k = &graph->nodes[out->keys];
    return q->in[1] == k->in[1] && q->in[2] == k->in[2] &&
           mp_graph_reader(graph, k->out[0], NULL) == out->caches &&
           mp_graph_same_guard(graph, out->queries, out->caches) &&
           mp_graph_same_guard(graph, out->keys, out->caches);
}

/* Attributes that say how heads lie, of keys by other names. */
static size_t copy_attrs(const mp_vertex *v, bool of_keys, mp_attr *out) {
    static const char *const names[ATTRS][2] = {{"part", "key_part"}, {"turned", "key_turned"}};
    size_t count = 0;
    for (int i = 0; i < ATTRS; i++) {
        const mp_attr *attr = mp_node_attr(&v->node, names[i][0]);
        if (attr != NULL) {
            out[count] = *attr;
            out[count++].name = names[i][of_keys];
        }
    }
    return count;
}

static mp_status join(mp_graph *graph, const places *at) {
    const mp_vertex q = graph->nodes[at->queries], k = graph->nodes[at->keys],
                    c = graph->nodes[at->caches];
    mp_attr attrs[2 * ATTRS + 1];
    const mp_attr *values = mp_node_attr(&c.node, "value_part");
    char name[256];
    size_t count = copy_attrs(&q, false, attrs);
    count += copy_attrs(&k, true, attrs + count);
    if (values != NULL) {
        attrs[count++] = *values;
    }
    (void)snprintf(name, sizeof name, "%s+%s", q.node.name, c.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "RotaryCaches", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = c.node.options};
    const int32_t in[] = {q.in[0], k.in[0], q.in[1], q.in[2], c.in[0], c.in[2], c.in[3]};
    const int32_t out[] = {q.out[0], c.out[0], c.out[1]};
    MP_TRY(mp_graph_merge_node(graph, MP_MAX(at->queries, at->caches),
                               MP_MIN(at->queries, at->caches), &node, in, 7, out, 3));
    mp_graph_drop_unread(graph, k.out[0]);
    return MP_OK;
}

mp_status mp_pass_join_rotary(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        places at;
        if (!v->is_gone && mp_vertex_is_own(v, "Attention") && find(graph, v, &at) &&
            mp_graph_can_wait(graph, MP_MIN(at.queries, at.caches),
                              MP_MAX(at.queries, at.caches)) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, &at));
        }
    }
    return MP_OK;
}
