/* join_rotary.c - the queries and the keys of one attention, which are rotated alike, and the
 * caches that these keys go to, if there are such, become one node, which is one launch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>
#include <string.h>

enum {
    ATTRS = 3 /* of RotaryHalves, that of queries and keys may differ in */,
    WEIGHT = 3 /* its input */,
    INPUTS = 9
};

/* The node of ours that makes `value`; or MP_NO_NODE. */
static int32_t find_own(const mp_graph *graph, int32_t value, const char *name) {
    const int32_t n = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    return n != MP_NO_NODE && mp_vertex_is_own(&graph->nodes[n], name) ? n : MP_NO_NODE;
}

typedef struct places {
    int32_t queries, keys; /* nodes */
    int32_t caches;        /* MP_NO_NODE: attention reads the keys as they are */
    int32_t first, last;   /* of those that become one; keys that a cache takes have one reader */
} places;

/* Whether new keys go to a cache of this attention, and nowhere else. */
static bool find_caches(const mp_graph *graph, const mp_vertex *attention, places *out) {
    out->caches = find_own(graph, attention->in[1], "GrowCaches");
    if (out->caches == MP_NO_NODE) {
        return false;
    }
    const mp_vertex *c = &graph->nodes[out->caches];
    out->keys = find_own(graph, c->in[1], "RotaryHalves");
    return out->keys != MP_NO_NODE && c->out[0] == attention->in[1] &&
           c->out[1] == attention->in[2] && mp_graph_reader(graph, c->in[1], NULL) == out->caches &&
           mp_graph_same_guard(graph, out->keys, out->caches);
}

static bool find(const mp_graph *graph, const mp_vertex *attention, places *out) {
    out->queries = find_own(graph, attention->in[0], "RotaryHalves");
    out->keys = find_own(graph, attention->in[1], "RotaryHalves");
    out->caches = MP_NO_NODE;
    if (out->queries == MP_NO_NODE ||
        (out->keys == MP_NO_NODE && !find_caches(graph, attention, out)) ||
        out->keys == out->queries) {
        return false;
    }
    const mp_vertex *q = &graph->nodes[out->queries], *k = &graph->nodes[out->keys];
    const int32_t other = out->caches != MP_NO_NODE ? out->caches : out->keys;
    out->first = MP_MIN(out->queries, other);
    out->last = MP_MAX(out->queries, other);
    return q->in[1] == k->in[1] && q->in[2] == k->in[2] &&
           mp_node_flag(&q->node, "interleaved", false) ==
               mp_node_flag(&k->node, "interleaved", false) &&
           mp_graph_type(graph, q->in[0]) == mp_graph_type(graph, k->in[0]) &&
           mp_graph_same_guard(graph, out->queries, other) &&
           mp_graph_can_wait(graph, out->first, out->last);
}

/* Attributes that say how heads lie and are normalised, of keys by other names. */
static size_t copy_attrs(const mp_vertex *v, bool of_keys, mp_attr *out) {
    static const char *const names[ATTRS][2] = {
        {"epsilon", "key_epsilon"}, {"part", "key_part"}, {"turned", "key_turned"}};
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

/* Inputs of the node that both become, of which those of the caches are `between`; their number. */
static int copy_inputs(const mp_vertex *q, const mp_vertex *k, const int32_t *between, int count,
                       int32_t in[INPUTS]) {
    const int32_t first[] = {q->in[0], k->in[0], q->in[1], q->in[2]};
    const int32_t of_q = mp_vertex_in(q, WEIGHT), of_k = mp_vertex_in(k, WEIGHT);
    memcpy(in, first, sizeof first);
    for (int i = 0; i < count; i++) {
        in[4 + i] = between[i];
    }
    in[4 + count] = of_q;
    in[5 + count] = of_k;
    return 4 + count + (of_q != MP_NO_VALUE || of_k != MP_NO_VALUE ? 2 : 0);
}

static mp_status join(mp_graph *graph, const places *at) {
    const bool cached = at->caches != MP_NO_NODE;
    const mp_vertex q = graph->nodes[at->queries], k = graph->nodes[at->keys],
                    last = cached ? graph->nodes[at->caches] : k;
    const mp_attr *values = cached ? mp_node_attr(&last.node, "value_part") : NULL;
    const int32_t between[] = {last.in[0], mp_vertex_in(&last, 2), mp_vertex_in(&last, 3)};
    const int32_t out[] = {q.out[0], last.out[0], cached ? last.out[1] : MP_NO_VALUE};
    const mp_attr *paired = mp_node_attr(&q.node, "interleaved");
    mp_attr attrs[2 * ATTRS + 2];
    int32_t in[INPUTS];
    char name[256];
    size_t count = copy_attrs(&q, false, attrs);
    count += copy_attrs(&k, true, attrs + count);
    if (values != NULL) {
        attrs[count++] = *values;
    }
    if (paired != NULL) {
        attrs[count++] = *paired;
    }
    (void)snprintf(name, sizeof name, "%s+%s", q.node.name, last.node.name);
    const mp_node node = {.op =
                              mp_op_find(MP_OWN_DOMAIN, cached ? "RotaryCaches" : "RotaryPair", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = last.node.options};
    const int in_count = copy_inputs(&q, &k, between, cached ? 3 : 0, in);
    MP_TRY(
        mp_graph_merge_node(graph, at->last, at->first, &node, in, in_count, out, cached ? 3 : 2));
    if (cached) {
        mp_graph_drop_unread(graph, k.out[0]);
    }
    return MP_OK;
}

mp_status mp_pass_join_rotary(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        places at;
        if (!v->is_gone && mp_vertex_is_own(v, "Attention") && find(graph, v, &at) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, &at));
        }
    }
    return MP_OK;
}
