/* join_residual.c - a sum that is normalised is read once: the addition becomes part of the
 * normalisation, which also gives the sum where others read it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>

/* A normalisation of rows of the last dimension, by constants of one type with x. */
static bool is_norm(const mp_graph *graph, const mp_vertex *v) {
    const bool centred = mp_vertex_is(v, "LayerNormalization");
    if ((!centred && !mp_vertex_is(v, "RMSNormalization")) ||
        mp_node_int(&v->node, "axis", -1) != -1 || mp_vertex_out(v, 1) != MP_NO_VALUE ||
        mp_vertex_out(v, 2) != MP_NO_VALUE) {
        return false;
    }
    const mp_dtype type = mp_graph_type(graph, v->in[0]);
    for (int i = 1; i < v->in_count; i++) {
        const mp_value *row = v->in[i] != MP_NO_VALUE ? &graph->values[v->in[i]] : NULL;
        if (row != NULL &&
            (!row->is_constant || row->tensor.type != type || row->tensor.shape.rank != 1)) {
            return false;
        }
    }
    return type == MP_F32 || type == MP_F16 || type == MP_BF16;
}

/* Whether both are whole tensors: a row that is added may belong to a product before. */
static bool is_residual(const mp_graph *graph, const mp_vertex *add) {
    const int rank = mp_graph_rank(graph, add->in[0]);
    return rank >= 2 && rank == mp_graph_rank(graph, add->in[1]) && add->in[0] != add->in[1];
}

/* The node at the place of the sum, since others may read that before the normalisation. */
static mp_status join(mp_graph *graph, int32_t add, int32_t norm) {
    const mp_vertex a = graph->nodes[add];
    const mp_vertex v = graph->nodes[norm];
    const bool centred = mp_vertex_is(&v, "LayerNormalization");
    const int32_t sum = a.out[0];
    const bool wanted = mp_graph_uses(graph, sum) > 1;
    const mp_attr epsilon = {
        .name = "epsilon", .kind = MP_ATTR_FLOAT, .f = mp_node_float(&v.node, "epsilon", 1e-5f)};
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", a.node.name, v.node.name);
    const mp_node node = {
        .op =
            mp_op_find(MP_OWN_DOMAIN,
                       centred ? "SkipLayerNormalization" : "SkipSimplifiedLayerNormalization", 1),
        .version = 1,
        .name = name,
        .attrs = &epsilon,
        .attr_count = 1,
        .out_absent = wanted ? 6 : 0,
        .options = v.node.options};
    const int32_t in[] = {a.in[0], a.in[1], v.in[1], mp_vertex_in(&v, 2)};
    const int32_t out[] = {v.out[0], MP_NO_VALUE, MP_NO_VALUE, sum};
    return mp_graph_merge_node(graph, add, norm, &node, in, in[3] != MP_NO_VALUE ? 4 : 3, out,
                               wanted ? 4 : 1);
}

mp_status mp_pass_join_residual(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const int32_t add = is_norm(graph, v) ? mp_graph_maker(graph, v->in[0], "Add") : MP_NO_NODE;
        if (add != MP_NO_NODE && mp_graph_same_guard(graph, add, n) &&
            is_residual(graph, &graph->nodes[add]) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, add, n));
        }
    }
    return MP_OK;
}
