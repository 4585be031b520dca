/* integer_conv.c - a convolution between quantised images becomes one of integers, over images
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
#include "graph/pass/channels_twin.h"
#include "graph/pass/integer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { X, W, BIAS, RANK = 4, GONE_MAX = 6, ATTRS_MAX = 16 };

typedef struct found {
    mp_integer_parts parts;
    int32_t conv, last; /* nodes; `last` makes the result */
    int32_t gone[GONE_MAX];
    int gone_count;
    bool has_sum;
    mp_quantized between, beside; /* of the convolution alone, and of what is added */
} found;

/* ---- what is found ---- */

static bool is_plain(const mp_vertex *v) {
    return mp_vertex_is(v, "Conv") && v->loop == NULL && v->guard == 0 &&
           mp_node_int(&v->node, "group", 1) == 1 && v->node.attr_count + 8 <= ATTRS_MAX;
}

static bool find_conv(const mp_graph *graph, const mp_rewrites *rewrites, int32_t n, found *f) {
    const mp_vertex *v = &graph->nodes[n];
    mp_integer_parts *parts = &f->parts;
    if (!is_plain(v) || !mp_dequantized(graph, v->in[X], &parts->x) ||
        !mp_dequantized_weights(graph, v->in[W], RANK, 0, &parts->w) ||
        !mp_integer_wanted(graph, rewrites, parts->w.tensor->shape.dim[1])) {
        return false;
    }
    parts->columns = parts->w.tensor->shape.dim[0];
    parts->bias = mp_vertex_in(v, BIAS);
    f->conv = n;
    f->last = mp_integer_result_of(graph, n, f->gone, &f->gone_count, parts);
    if (f->last == MP_NO_NODE) {
        f->last = n;
    }
    return mp_integer_parts_fit(graph, parts);
}

/* The other operand of the sum, as it was quantised. */
static bool find_other(const mp_graph *graph, const mp_vertex *add, int32_t value,
                       mp_quantized *out) {
    const int32_t other = add->in[0] == value ? add->in[1] : add->in[0];
    return other != value && mp_graph_rank(graph, other) == RANK &&
           mp_graph_rank(graph, value) == RANK && mp_dequantized(graph, other, out) &&
           !graph->values[out->value].is_constant && mp_graph_same_dim(graph, other, 0, value, 0) &&
           mp_graph_same_dim(graph, other, 1, value, 1) &&
           mp_graph_same_dim(graph, other, 2, value, 2) &&
           mp_graph_same_dim(graph, other, 3, value, 3);
}

/* A sum that is quantised, too. */
static void find_sum(const mp_graph *graph, found *f) {
    const mp_quantized alone = f->parts.to;
    mp_integer_parts sum = f->parts;
    int32_t gone[2];
    int gone_count = 0;
    const int32_t back = f->last != f->conv && f->parts.low == INT32_MIN
                             ? mp_graph_reader(graph, alone.value, "DequantizeLinear")
                             : MP_NO_NODE;
    mp_quantized again;
    if (back == MP_NO_NODE || !mp_dequantized(graph, graph->nodes[back].out[0], &again) ||
        !mp_quantized_alike(&again, &alone)) {
        return;
    }
    const int32_t value = graph->nodes[back].out[0];
    const int32_t add = mp_graph_reader(graph, value, "Add");
    if (add == MP_NO_NODE || !find_other(graph, &graph->nodes[add], value, &f->beside)) {
        return;
    }
    const int32_t last = mp_integer_result_of(graph, add, gone, &gone_count, &sum);
    if (last == MP_NO_NODE) {
        return;
    }
    f->gone[f->gone_count++] = f->last;
    f->gone[f->gone_count++] = back;
    for (int i = 0; i < gone_count; i++) {
        f->gone[f->gone_count++] = gone[i];
    }
    f->has_sum = true;
    f->between = alone;
    f->parts.to = sum.to;
    f->parts.low = sum.low;
    f->last = last;
}

/* ---- rewriting ---- */

static mp_status make_node(mp_layout *l, const found *f, const int32_t *in) {
    const mp_vertex conv = l->graph->nodes[f->conv];
    const mp_integer_parts *parts = &f->parts;
    const float sum[] = {f->between.scale, (float)f->between.zero, f->beside.scale,
                         (float)f->beside.zero, parts->to.scale};
    mp_attr attrs[ATTRS_MAX];
    size_t count = MP_INTEGER_ATTRS;
    mp_integer_result(parts, attrs);
    attrs[count++] = (mp_attr){.name = "padding", .kind = MP_ATTR_INT, .i = parts->x.zero};
    if (f->has_sum) {
        attrs[count++] =
            (mp_attr){.name = "between", .kind = MP_ATTR_INT, .i = (int64_t)f->between.type};
        attrs[count++] = (mp_attr){
            .name = "sum", .kind = MP_ATTR_FLOATS, .floats = sum, .count = MP_COUNT_OF(sum)};
    }
    for (size_t i = 0; i < conv.node.attr_count; i++) {
        const char *name = conv.node.attrs[i].name;
        if (strcmp(name, "group") != 0) {
            attrs[count++] = conv.node.attrs[i];
        }
    }
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "IntegerProduct", 1),
                          .version = 1,
                          .name = conv.node.name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = conv.node.options};
    return mp_twin_node(l, f->last, &node, in, MP_ROWS_INPUTS, RANK);
}

/* The scale of a byte's value by itself is that of the convolution alone. */
static mp_integer_parts alone_of(const found *f) {
    mp_integer_parts parts = f->parts;
    if (f->has_sum) {
        parts.to = f->between;
    }
    return parts;
}

static mp_status rewrite(mp_layout *l, const found *f) {
    static const int order[] = {0, 2, 3, 1};
    const mp_integer_parts alone = alone_of(f);
    int32_t in[MP_ROWS_INPUTS];
    for (int i = 0; i < MP_ROWS_INPUTS; i++) {
        in[i] = MP_NO_VALUE;
    }
    MP_TRY(mp_integer_constants(l->graph, &alone, order, in));
    MP_TRY(mp_twin_need(l, f->parts.x.value, RANK, &in[MP_ROWS_X]));
    if (f->has_sum) {
        MP_TRY(mp_twin_need(l, f->beside.value, RANK, &in[MP_ROWS_OTHER]));
    }
    MP_TRY(make_node(l, f, in));
    for (int i = 0; i < f->gone_count; i++) {
        mp_graph_remove_node(l->graph, f->gone[i]);
        MP_TRY(mp_graph_absorb(l->graph, f->last, f->gone[i]));
    }
    return MP_OK;
}

mp_status mp_pass_integer_conv(mp_graph *graph, mp_rewrites *rewrites) {
    mp_layout l = {.graph = graph, .rewrites = rewrites};
    const int32_t count = graph->node_count;
    mp_status status = MP_OK;
    int64_t done = 0;
    for (int32_t n = 0; n < count && status == MP_OK; n++) {
        found f = {.gone_count = 0};
        if (!find_conv(graph, rewrites, n, &f)) {
            continue;
        }
        find_sum(graph, &f);
        if (mp_rewrite_allowed(rewrites)) {
            status = rewrite(&l, &f);
            done++;
        }
    }
    free(l.twins);
    MP_TRY(status);
    if (done == 0) {
        return MP_OK;
    }
    mp_graph_compact(graph);
    return mp_graph_sort(graph);
}
