/* norm_rotary.c - heads that are normalised and then rotated are so by one operator, which reads
 * them where they lie:
 *
 *     RotaryHalves(RMSNormalization(x, g), c, s)     becomes     RotaryHalves(x, c, s, g)
 *
 * and so does a Transpose that puts heads first in front of the norm.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/attention_part.h"

#include <stdio.h>

/* Whether the node normalises the last of four dimensions by a constant row of the same type. */
static bool fits(const mp_graph *graph, const mp_vertex *norm) {
    if (!mp_vertex_is(norm, "RMSNormalization") &&
        !mp_vertex_is(norm, "SimplifiedLayerNormalization")) {
        return false;
    }
    const mp_tensor *scale = norm->in_count == 2 ? mp_graph_constant(graph, norm->in[1]) : NULL;
    const int64_t axis = mp_node_int(&norm->node, "axis", -1);
    const mp_dtype type = mp_graph_type(graph, norm->in[0]);
    return scale != NULL && scale->shape.rank == 1 && scale->type == type &&
           (type == MP_F32 || type == MP_F16 || type == MP_BF16) && (axis == -1 || axis == 3) &&
           mp_node_int(&norm->node, "stash_type", MP_F32) == MP_F32 &&
           mp_graph_rank(graph, norm->in[0]) == 4 &&
           mp_graph_dim(graph, norm->in[0], 3) == scale->shape.dim[0] &&
           mp_vertex_out(norm, 1) == MP_NO_VALUE;
}

/* The norm that makes what node `n` rotates; or MP_NO_NODE. */
static int32_t norm_of(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = &graph->nodes[n];
    if (!mp_vertex_is_own(v, "RotaryHalves") || v->in_count != 3 || mp_side_has_part(v, 0) ||
        mp_graph_reader(graph, v->in[0], NULL) != n) {
        return MP_NO_NODE;
    }
    const int32_t norm = graph->values[v->in[0]].producer;
    return norm != MP_NO_NODE && fits(graph, &graph->nodes[norm]) &&
                   mp_graph_same_guard(graph, norm, n)
               ? norm
               : MP_NO_NODE;
}

static mp_status join(mp_graph *graph, int32_t norm, int32_t n) {
    const mp_vertex m = graph->nodes[norm], v = graph->nodes[n];
    const int32_t turn = mp_graph_maker(graph, m.in[0], "Transpose");
    const bool turned = mp_node_flag(&v.node, "turned", false);
    const bool turns =
        !turned && turn != MP_NO_NODE && mp_puts_heads_first(graph, &graph->nodes[turn]);
    mp_attr attrs[] = {
        {.name = "epsilon", .kind = MP_ATTR_FLOAT, .f = mp_node_float(&m.node, "epsilon", 1e-5F)},
        {.name = "interleaved", .kind = MP_ATTR_INT, .i = 1},
        {.name = "turned", .kind = MP_ATTR_INT, .i = 1}};
    const bool paired = mp_node_flag(&v.node, "interleaved", false);
    if (!paired) {
        attrs[1] = attrs[2];
    }
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", m.node.name, v.node.name);
    const mp_node node = {.op = v.node.op,
                          .version = v.node.version,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = 1 + (size_t)paired + (size_t)(turned || turns),
                          .options = v.node.options};
    const int32_t in[] = {turns ? graph->nodes[turn].in[0] : m.in[0], v.in[1], v.in[2], m.in[1]};
    MP_TRY(mp_graph_change_node(graph, n, &node, in, 4, v.out, 1));
    mp_graph_drop_unread(graph, v.in[0]);
    return MP_OK;
}

mp_status mp_pass_norm_rotary(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const int32_t norm = norm_of(graph, n);
        if (norm != MP_NO_NODE && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, norm, n));
        }
    }
    return MP_OK;
}
