/* join_caches.c - the Concat nodes by which the keys and the values of one attention grow become
 * one node, which is one launch. New heads are read where they lie in the rows of a product.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>

/* The Concat [past, new] along rows that makes `value`; or MP_NO_NODE. With one head it may be no
 * step at all (program_part.c), and is left. */
static int32_t find_concat(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Concat");
    if (n == MP_NO_NODE || graph->nodes[n].in_count != 2 || mp_graph_rank(graph, value) != 4 ||
        mp_graph_dim(graph, graph->nodes[n].in[0], 1) == 1) {
        return MP_NO_NODE;
    }
    const mp_dtype type = mp_graph_type(graph, value);
    const int64_t axis = mp_node_int(&graph->nodes[n].node, "axis", 1);
    return (axis == 2 || axis == -2) && (type == MP_F32 || type == MP_F16 || type == MP_BF16)
               ? n
               : MP_NO_NODE;
}

/* New heads that only node `n` reads, which are put first; or the value itself. */
static int32_t find_fresh(const mp_graph *graph, int32_t n, const char *name, mp_attr *part,
                          size_t *count) {
    const int32_t value = graph->nodes[n].in[1];
    const int32_t maker = graph->values[value].producer;
    const mp_vertex *v = maker != MP_NO_NODE ? &graph->nodes[maker] : NULL;
    if (v == NULL || !mp_vertex_is_own(v, "HeadsPart") ||
        mp_graph_reader(graph, value, NULL) != n) {
        return value;
    }
    *part = *mp_node_attr(&v->node, "part");
    part->name = name;
    (*count)++;
    return v->in[0];
}

static mp_status join(mp_graph *graph, int32_t keys, int32_t values) {
    const int32_t at = MP_MAX(keys, values), other = MP_MIN(keys, values);
    const mp_vertex k = graph->nodes[keys], v = graph->nodes[values];
    int32_t in[] = {k.in[0], k.in[1], v.in[0], v.in[1]};
    mp_attr parts[2];
    size_t count = 0;
    char name[256];
    in[1] = find_fresh(graph, keys, "key_part", parts, &count);
    in[3] = find_fresh(graph, values, "value_part", parts + count, &count);
    (void)snprintf(name, sizeof name, "%s+%s", k.node.name, v.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "GrowCaches", 1),
                          .version = 1,
                          .name = name,
                          .attrs = parts,
                          .attr_count = count,
                          .options = k.node.options};
    const int32_t out[] = {k.out[0], v.out[0]};
    MP_TRY(mp_graph_merge_node(graph, at, other, &node, in, 4, out, 2));
    mp_graph_drop_unread(graph, k.in[1]);
    mp_graph_drop_unread(graph, v.in[1]);
    return MP_OK;
}

mp_status mp_pass_join_caches(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const bool is_it = mp_vertex_is_own(v, "Attention");
        const int32_t keys = is_it ? find_concat(graph, v->in[1]) : MP_NO_NODE;
        const int32_t values = is_it ? find_concat(graph, v->in[2]) : MP_NO_NODE;
        if (keys != MP_NO_NODE && values != MP_NO_NODE && keys != values &&
            mp_graph_type(graph, v->in[1]) == mp_graph_type(graph, v->in[2]) &&
            mp_graph_same_guard(graph, keys, values) &&
            mp_graph_can_wait(graph, MP_MIN(keys, values), MP_MAX(keys, values)) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, keys, values));
        }
    }
    return MP_OK;
}
