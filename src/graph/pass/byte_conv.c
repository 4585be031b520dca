/* byte_conv.c - a convolution between quantised images becomes one of integers, over images
 * with their channels last, where the device's tensor cores have those.
 *
 *     x = DequantizeLinear(X)  w = DequantizeLinear(W const)
 *     y = Conv(x, w, bias)     then Relu or not
 *     Y = QuantizeLinear(y)
 *
 * and also a sum with another such image behind it, with what quantises it. Where nobody quantises
 * the result it is float.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass/byte_parts.h"
#include "graph/pass/channels_twin.h"

#include <stdlib.h>
#include <string.h>

enum { X, W, BIAS, RANK = 4, ATTRS_MAX = 16 };

/* ---- what is found ---- */

static bool is_plain(const mp_vertex *v) {
    return mp_vertex_is(v, "Conv") && v->loop == NULL && v->guard == 0 &&
           mp_node_int(&v->node, "group", 1) == 1 &&
           v->node.attr_count + MP_BYTE_ATTRS + 1 <= ATTRS_MAX;
}

static bool find_conv(const mp_graph *graph, const mp_rewrites *rewrites, int32_t n,
                      mp_byte_parts *parts) {
    const mp_vertex *v = &graph->nodes[n];
    if (!is_plain(v) || !mp_dequantized(graph, v->in[X], &parts->x) ||
        !mp_dequantized_weights(graph, v->in[W], RANK, 0, &parts->w) ||
        !mp_byte_wanted(graph, rewrites, parts->w.tensor->shape.dim[1])) {
        return false;
    }
    parts->columns = parts->w.tensor->shape.dim[0];
    parts->bias = mp_vertex_in(v, BIAS);
    return mp_byte_parts_fit(graph, parts);
}

/* Another image of the same shape, as it was quantised. */
static bool takes_image(const mp_graph *graph, int32_t value, int32_t other,
                        const mp_byte_parts *parts, mp_byte_result *out) {
    bool alike = other != value && mp_graph_rank(graph, other) == RANK &&
                 mp_graph_rank(graph, value) == RANK &&
                 mp_dequantized(graph, other, &out->beside) &&
                 !graph->values[out->beside.value].is_constant;
    for (int d = 0; d < RANK; d++) {
        alike = alike && mp_graph_same_dim(graph, other, d, value, d);
    }
    (void)parts;
    return alike;
}

/* ---- rewriting ---- */

static mp_status make_node(mp_layout *l, int32_t n, const mp_byte_parts *parts,
                           const mp_byte_result *result, const int32_t *in) {
    const mp_vertex conv = l->graph->nodes[n];
    mp_attr attrs[ATTRS_MAX];
    size_t count = mp_byte_attrs(parts, result, attrs);
    attrs[count++] = (mp_attr){.name = "padding", .kind = MP_ATTR_INT, .i = parts->x.zero};
    for (size_t i = 0; i < conv.node.attr_count; i++) {
        if (strcmp(conv.node.attrs[i].name, "group") != 0) {
            attrs[count++] = conv.node.attrs[i];
        }
    }
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "IntegerProduct", 1),
                          .version = 1,
                          .name = conv.node.name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = conv.node.options};
    return mp_twin_node(l, result->last, &node, in, MP_ROWS_INPUTS, RANK);
}

static mp_status rewrite(mp_layout *l, int32_t n, const mp_byte_parts *parts,
                         const mp_byte_result *result) {
    static const int order[] = {0, 2, 3, 1};
    int32_t in[MP_ROWS_INPUTS];
    MP_TRY(mp_byte_constants(l->graph, parts, result->has_sum ? &result->between : &parts->to,
                             order, in));
    MP_TRY(mp_twin_need(l, parts->x.value, RANK, &in[MP_ROWS_X]));
    if (result->has_sum) {
        MP_TRY(mp_twin_need(l, result->beside.value, RANK, &in[MP_ROWS_OTHER]));
    }
    MP_TRY(make_node(l, n, parts, result, in));
    return mp_byte_remove(l->graph, result);
}

mp_status mp_pass_byte_conv(mp_graph *graph, mp_rewrites *rewrites) {
    mp_layout l = {.graph = graph, .rewrites = rewrites};
    const int32_t count = graph->node_count;
    const int64_t before = rewrites->done;
    mp_status status = MP_OK;
    for (int32_t n = 0; n < count && status == MP_OK; n++) {
        mp_byte_parts parts;
        mp_byte_result result = {.gone_count = 0};
        if (find_conv(graph, rewrites, n, &parts) && mp_rewrite_allowed(rewrites)) {
            mp_byte_find_result(graph, n, &parts, &result);
            mp_byte_find_sum(graph, takes_image, &parts, &result);
            status = rewrite(&l, n, &parts, &result);
        }
    }
    free(l.twins);
    MP_TRY(status);
    if (rewrites->done == before) {
        return MP_OK;
    }
    mp_graph_compact(graph);
    return mp_graph_sort(graph);
}
