/* byte_moves.c - what moves elements between quantised tensors of one scale moves the integers.
 *
 *     x = DequantizeLinear(X, scale, zero)
 *     y = Reshape(x, ...)                    or another of those below
 *     Y = QuantizeLinear(y, scale, zero)
 *
 * And what quantises as it was dequantised gives the integers back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/quantized.h"

#include <string.h>

enum { WIDTH_MAX = 64 };

/* Of the first input alone, in other places. */
static bool moves(const mp_vertex *v) {
    static const char *const names[] = {
        "DepthToSpace", "Expand",       "Flatten", "Gather", "Identity",  "MaxPool",  "Reshape",
        "Slice",        "SpaceToDepth", "Squeeze", "Tile",   "Transpose", "Unsqueeze"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names)) && v->in_count > 0 && v->out_count == 1 &&
           v->in_count <= WIDTH_MAX;
}

static bool takes(const mp_vertex *v, mp_dtype type) {
    return (v->node.op->types[0].types & MP_BIT(type)) != 0;
}

static mp_status try_node(mp_graph *graph, mp_rewrites *rewrites, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    mp_quantized from, to;
    int32_t in[WIDTH_MAX];
    if (v.is_gone || v.loop != NULL || !moves(&v) || !mp_dequantized(graph, v.in[0], &from) ||
        !takes(&v, from.type)) {
        return MP_OK;
    }
    const int32_t quantizer = mp_quantizer(graph, v.out[0], &to);
    if (quantizer == MP_NO_NODE || !mp_quantized_alike(&from, &to) ||
        !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    in[0] = from.value;
    MP_TRY(mp_graph_change_node(graph, quantizer, &v.node, in, v.in_count, &to.value, 1));
    mp_graph_remove_node(graph, n);
    mp_graph_drop_unread(graph, v.in[0]);
    return MP_OK;
}

static void try_back(mp_graph *graph, mp_rewrites *rewrites, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    mp_quantized from, to;
    if (v.is_gone || !mp_quantizes(graph, n, &to) || !mp_dequantized(graph, v.in[0], &from) ||
        !mp_quantized_alike(&from, &to) || mp_graph_is_output(graph, to.value) ||
        !mp_rewrite_allowed(rewrites)) {
        return;
    }
    mp_graph_replace(graph, to.value, from.value, false);
    mp_graph_remove_node(graph, n);
    mp_graph_drop_unread(graph, v.in[0]);
}

mp_status mp_pass_byte_moves(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        try_back(graph, rewrites, n);
        MP_TRY(try_node(graph, rewrites, n));
    }
    return MP_OK;
}
