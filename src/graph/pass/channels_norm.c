/* channels_norm.c - see channels_norm.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_norm.h"

#include "graph/look.h"
#include "graph/pass/silu.h"

#include <stdio.h>

enum { X, SCALE, BIAS, INPUTS };

enum { PLAIN, SILU, RELU }; /* activations of a GroupNorm */

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

/* The activation that alone reads what node `n` makes; MP_NO_NODE, and that it is plain, where that
 * is none that the kernel has. */
static int32_t activation_behind(const mp_graph *graph, int32_t n, int64_t *activation) {
    const int32_t a = mp_graph_reader(graph, graph->nodes[n].out[0], NULL);
    const bool relu = a != MP_NO_NODE && mp_vertex_is(&graph->nodes[a], "Relu");
    const bool silu = a != MP_NO_NODE && mp_is_silu(&graph->nodes[a]);
    *activation = relu ? RELU : silu ? SILU : PLAIN;
    return relu || silu ? a : MP_NO_NODE;
}

/* Node `n` makes what node `a` did, and has this name. */
static mp_status take(mp_graph *graph, int32_t n, int32_t a, char *name, size_t size) {
    const mp_vertex v = graph->nodes[n], behind = graph->nodes[a];
    (void)snprintf(name, size, "%s+%s", v.node.name, behind.node.name);
    mp_graph_remove_node(graph, a);
    MP_TRY(mp_graph_change_node(graph, n, &v.node, v.in, v.in_count, behind.out, 1));
    return mp_graph_absorb(graph, n, a);
}

mp_status mp_turn_norm(mp_layout *l, int32_t n) {
    const int64_t groups = groups_of(l, &l->graph->nodes[n]);
    int64_t activation = PLAIN;
    const int32_t a = activation_behind(l->graph, n, &activation);
    char name[256] = "";
    if (a != MP_NO_NODE) {
        MP_TRY(take(l->graph, n, a, name, sizeof name));
    }
    const mp_vertex v = l->graph->nodes[n];
    const mp_attr attrs[] = {
        {.name = "epsilon", .kind = MP_ATTR_FLOAT, .f = mp_node_float(&v.node, "epsilon", 1e-5F)},
        {.name = "groups", .kind = MP_ATTR_INT, .i = groups},
        {.name = "activation", .kind = MP_ATTR_INT, .i = activation}};
    const bool plain = a == MP_NO_NODE;
    const mp_node node = {.op = mp_op_find(plain ? "com.microsoft" : MP_OWN_DOMAIN, "GroupNorm", 1),
                          .version = 1,
                          .name = plain ? v.node.name : name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs) - (plain ? 1 : 0),
                          .options = v.node.options};
    const int32_t in[INPUTS] = {mp_twin_of(l, v.in[X]), v.in[SCALE], v.in[BIAS]};
    return mp_twin_node(l, n, &node, in, INPUTS, mp_twin_rank(l, v.in[X]));
}
