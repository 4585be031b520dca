/* channels_norm.c - see channels_norm.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_norm.h"

#include "graph/look.h"

enum { X, SCALE, BIAS, INPUTS };

/* Before version 21 GroupNormalization has a scale for each group. */
static int64_t groups_of(const mp_layout *l, const mp_vertex *v) {
    if (mp_vertex_is(v, "GroupNormalization") && v->node.version >= 21) {
        return mp_node_int(&v->node, "num_groups", 0);
    }
    return mp_vertex_is(v, "InstanceNormalization") ? mp_graph_dim(l->graph, v->in[SCALE], 0) : 0;
}

bool mp_is_channels_norm(const mp_layout *l, const mp_vertex *v) {
    const mp_dtype type = v->in_count == INPUTS ? mp_graph_type(l->graph, v->in[SCALE]) : MP_NONE;
    return (type == MP_F32 || type == MP_F16) && v->out_count == 1 &&
           mp_twin_rank(l, v->in[X]) != 0 && groups_of(l, v) > 0;
}

mp_status mp_turn_norm(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const mp_attr attrs[] = {
        {.name = "epsilon", .kind = MP_ATTR_FLOAT, .f = mp_node_float(&v.node, "epsilon", 1e-5F)},
        {.name = "groups", .kind = MP_ATTR_INT, .i = groups_of(l, &v)}};
    const mp_node node = {.op = mp_op_find("com.microsoft", "GroupNorm", 1),
                          .version = 1,
                          .name = v.node.name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs),
                          .options = v.node.options};
    const int32_t in[INPUTS] = {mp_twin_of(l, v.in[X]), v.in[SCALE], v.in[BIAS]};
    return mp_twin_node(l, n, &node, in, INPUTS, mp_twin_rank(l, v.in[X]));
}
