/* byte_conv.c - a convolution between quantised images becomes one of integers, over images
 * with their channels last, where the device's tensor cores have those.
 *
 *     x = DequantizeLinear(X)  w = DequantizeLinear(W const)
 *     y = Conv(x, w, bias)     then Relu or not
 *     Y = QuantizeLinear(y)
 *
 * and also a sum with another such image behind it, with what quantises it. Where nobody quantises
 * the result it is float. So do QLinearConv and QLinearAdd, which are that in two nodes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass/byte_parts.h"
#include "graph/pass/channels_twin.h"

#include <stdlib.h>
#include <string.h>

enum { X, W, BIAS, RANK = 4, ATTRS_MAX = 16 };
enum { LINEAR_X, LINEAR_X_SCALE, LINEAR_W = 3, LINEAR_Y_SCALE = 6, LINEAR_BIAS = 8 };
enum { SUM_A, SUM_B = 3, SUM_Y_SCALE = 6 }; /* of QLinearAdd */

/* ---- what is found ---- */

static bool is_plain(const mp_vertex *v, const char *name) {
    return mp_vertex_is(v, name) && v->loop == NULL && v->guard == 0 &&
           mp_node_int(&v->node, "group", 1) == 1 &&
           v->node.attr_count + MP_BYTE_ATTRS + 1 <= ATTRS_MAX;
}

static bool find_conv(const mp_graph *graph, const mp_rewrites *rewrites, int32_t n,
                      mp_byte_parts *parts) {
    const mp_vertex *v = &graph->nodes[n];
    if (!is_plain(v, "Conv") || !mp_dequantized(graph, v->in[X], &parts->x) ||
        !mp_dequantized_weights(graph, v->in[W], RANK, 0, &parts->w) ||
        !mp_byte_wanted(graph, rewrites, parts->w.tensor.shape.dim[1])) {
        return false;
    }
    parts->columns = parts->w.tensor.shape.dim[0];
    parts->bias = mp_vertex_in(v, BIAS);
    return mp_byte_parts_fit(graph, parts);
}

/* QLinearConv says all of it by itself. */
static bool find_linear(const mp_graph *graph, const mp_rewrites *rewrites, int32_t n,
                        mp_byte_parts *parts, mp_byte_result *result) {
    const mp_vertex *v = &graph->nodes[n];
    if (!is_plain(v, "QLinearConv") ||
        !mp_quantized_by(graph, v, LINEAR_X_SCALE, v->in[LINEAR_X], &parts->x) ||
        !mp_quantized_by(graph, v, LINEAR_Y_SCALE, v->out[0], &parts->to) ||
        !mp_quantized_weights_at(graph, v, LINEAR_W, RANK, 0, &parts->w) ||
        !mp_byte_wanted(graph, rewrites, parts->w.tensor.shape.dim[1])) {
        return false;
    }
    parts->columns = parts->w.tensor.shape.dim[0];
    parts->bias = mp_vertex_in(v, LINEAR_BIAS);
    parts->low = INT32_MIN;
    result->last = n;
    return mp_byte_parts_fit(graph, parts);
}

/* Whether both are images of the same shape. */
static bool are_alike(const mp_graph *graph, int32_t a, int32_t b) {
    bool alike = a != b && mp_graph_rank(graph, a) == RANK && mp_graph_rank(graph, b) == RANK;
    for (int d = 0; d < RANK; d++) {
        alike = alike && mp_graph_same_dim(graph, a, d, b, d);
    }
    return alike;
}

/* Another image, as it was quantised. */
static bool takes_image(const mp_graph *graph, int32_t value, int32_t other,
                        const mp_byte_parts *parts, mp_byte_result *out) {
    (void)parts;
    return are_alike(graph, value, other) && mp_dequantized(graph, other, &out->beside) &&
           !graph->values[out->beside.value].is_constant;
}

/* QLinearAdd behind QLinearConv. */
static void find_linear_sum(const mp_graph *graph, mp_byte_parts *parts, mp_byte_result *result) {
    const int32_t n = mp_graph_reader(graph, parts->to.value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    mp_quantized again, sum;
    if (v == NULL || v->node.op != mp_op_find("com.microsoft", "QLinearAdd", 1)) {
        return;
    }
    const int mine = v->in[SUM_A] == parts->to.value ? SUM_A : SUM_B;
    const int other = SUM_A + SUM_B - mine;
    if (mp_quantized_by(graph, v, mine + 1, v->in[mine], &again) &&
        mp_quantized_alike(&again, &parts->to) &&
        mp_quantized_by(graph, v, other + 1, v->in[other], &result->beside) &&
        mp_quantized_by(graph, v, SUM_Y_SCALE, v->out[0], &sum) &&
        !graph->values[v->in[other]].is_constant && are_alike(graph, v->in[mine], v->in[other])) {
        result->gone[result->gone_count++] = result->last;
        result->last = n;
        mp_byte_set_sum(parts, &sum, INT32_MIN, result);
    }
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
    const mp_node node = mp_byte_node(&conv, attrs, count);
    return mp_twin_node(l, result->last, &node, in, MP_ROWS_INPUTS, RANK);
}

static mp_status rewrite(mp_layout *l, int32_t n, const mp_byte_parts *parts,
                         const mp_byte_result *result) {
    enum { CHANNELS = 1 };
    int32_t in[MP_ROWS_INPUTS];
    MP_TRY(mp_byte_constants(l->graph, parts, result, CHANNELS, in));
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
        const bool is_linear = find_linear(graph, rewrites, n, &parts, &result);
        if ((!is_linear && !find_conv(graph, rewrites, n, &parts)) ||
            !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        if (is_linear) {
            find_linear_sum(graph, &parts, &result);
        } else {
            mp_byte_find_result(graph, n, &parts, &result);
            mp_byte_find_sum(graph, takes_image, &parts, &result);
        }
        status = rewrite(&l, n, &parts, &result);
    }
    free(l.twins);
    MP_TRY(status);
    if (rewrites->done == before) {
        return MP_OK;
    }
    mp_graph_compact(graph);
    return mp_graph_sort(graph);
}
