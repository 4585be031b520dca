/* line_conv.c - a convolution of a line that is seen as an image of one row, as tf2onnx writes
 * Keras's Conv1D, is one of the line; zeros that a Pad puts before a convolution are its own; and
 * what is added to its channels, or float32 is multiplied by, is in its bias and its weights.
 *
 *     Pad --> Unsqueeze --> Conv --> Squeeze --> Add, Mul     becomes     Conv
 *
 * ONNX Runtime does the last two where nothing stands between.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "op/core/host_float.h"

#include <string.h>

enum { X, W, BIAS, LINE_RANK = 3, IMAGE_RANK = 4, MOST = MP_RANK_MAX };

/* What says how a convolution moves over its spatial dimensions. */
typedef struct window {
    int64_t kernel[MOST], strides[MOST], dilations[MOST], pads[2 * MOST];
    int rank; /* of these */
} window;

static bool read_list(const mp_vertex *v, const char *name, int count, int64_t other,
                      int64_t *out) {
    const mp_attr *attr = mp_node_attr(&v->node, name);
    for (int i = 0; i < count; i++) {
        out[i] = attr != NULL && (int)attr->count == count ? attr->ints[i] : other;
    }
    return attr == NULL || (attr->kind == MP_ATTR_INTS && (int)attr->count == count);
}

/* Of a Conv by constant weights whose bytes are here. */
static bool read_window(const mp_graph *graph, const mp_vertex *v, window *out) {
    const mp_tensor *w = mp_vertex_is(v, "Conv") ? mp_graph_constant(graph, v->in[W]) : NULL;
    if (w == NULL || w->data == 0 || w->shape.rank < LINE_RANK || w->shape.rank > IMAGE_RANK + 1 ||
        strcmp(mp_node_string(&v->node, "auto_pad", "NOTSET"), "NOTSET") != 0) {
        return false;
    }
    out->rank = w->shape.rank - 2;
    memcpy(out->kernel, &w->shape.dim[2], (size_t)out->rank * sizeof *out->kernel);
    return read_list(v, "strides", out->rank, 1, out->strides) &&
           read_list(v, "dilations", out->rank, 1, out->dilations) &&
           read_list(v, "pads", 2 * out->rank, 0, out->pads);
}

/* The convolution in node `n`, or in the place of node `gone`, too, which it takes out then. */
static mp_status put(mp_graph *graph, int32_t n, int32_t gone, const window *w, const int32_t *in,
                     int in_count, int32_t out) {
    const mp_vertex conv = graph->nodes[gone != MP_NO_NODE ? gone : n];
    const size_t rank = (size_t)w->rank;
    const mp_attr attrs[] = {
        {.name = "kernel_shape", .kind = MP_ATTR_INTS, .ints = w->kernel, .count = rank},
        {.name = "strides", .kind = MP_ATTR_INTS, .ints = w->strides, .count = rank},
        {.name = "dilations", .kind = MP_ATTR_INTS, .ints = w->dilations, .count = rank},
        {.name = "pads", .kind = MP_ATTR_INTS, .ints = w->pads, .count = 2 * rank},
        {.name = "group", .kind = MP_ATTR_INT, .i = mp_node_int(&conv.node, "group", 1)}};
    mp_node node = conv.node;
    node.attrs = attrs;
    node.attr_count = MP_COUNT_OF(attrs);
    return gone != MP_NO_NODE ? mp_graph_merge_node(graph, n, gone, &node, in, in_count, &out, 1)
                              : mp_graph_change_node(graph, n, &node, in, in_count, &out, 1);
}

/* ---- a line that is seen as an image ---- */

/* The one axis that the node puts in or takes out of an image; or -1. */
static int row_axis(const mp_graph *graph, int32_t n) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    if (n == MP_NO_NODE || !mp_graph_ints(graph, &graph->nodes[n], "axes", 1, axes, &count) ||
        count != 1) {
        return -1;
    }
    return (int)(axes[0] < 0 ? axes[0] + IMAGE_RANK : axes[0]);
}

static mp_status try_line(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex conv = graph->nodes[n];
    window w;
    if (!read_window(graph, &conv, &w) || w.rank != 2) {
        return MP_OK;
    }
    const int32_t u = mp_graph_maker(graph, conv.in[X], "Unsqueeze");
    const int32_t s = mp_graph_reader(graph, conv.out[0], "Squeeze");
    const int axis = row_axis(graph, u), row = axis - 2, along = 1 - row;
    if (s == MP_NO_NODE || (row != 0 && row != 1) || row_axis(graph, s) != axis ||
        mp_graph_rank(graph, graph->nodes[u].in[0]) != LINE_RANK || w.kernel[row] != 1 ||
        w.pads[row] != 0 || w.pads[row + 2] != 0 || !mp_graph_same_guard(graph, u, n) ||
        !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const mp_tensor weights = graph->values[conv.in[W]].tensor;
    const mp_tensor less = {
        .type = weights.type,
        .shape = {.rank = LINE_RANK,
                  .dim = {weights.shape.dim[0], weights.shape.dim[1], w.kernel[along]}},
        .data = weights.data};
    const window line = {.rank = 1,
                         .kernel = {w.kernel[along]},
                         .strides = {w.strides[along]},
                         .dilations = {w.dilations[along]},
                         .pads = {w.pads[along], w.pads[along + 2]}};
    int32_t in[] = {graph->nodes[u].in[0], MP_NO_VALUE, mp_vertex_in(&conv, BIAS)};
    MP_TRY(mp_graph_add_constant(graph, graph->values[conv.in[W]].name, &less, &in[W]));
    MP_TRY(put(graph, s, n, &line, in, conv.in_count, graph->nodes[s].out[0]));
    mp_graph_drop_unread(graph, conv.in[X]);
    return MP_OK;
}

/* ---- zeros in front ---- */

/* Whether convolutions alone read the value, which all can have zeros of their own. */
static bool is_for_convs(const mp_graph *graph, int32_t value) {
    int uses = mp_graph_is_output(graph, value) ? -1 : mp_graph_uses(graph, value);
    window w;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        uses -= mp_vertex_in(v, X) == value && read_window(graph, v, &w);
    }
    return uses == 0;
}

static mp_status try_pad(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex conv = graph->nodes[n];
    const int32_t p = mp_graph_maker(graph, mp_vertex_in(&conv, X), "Pad");
    int64_t pads[MP_RANK_MAX];
    double zero = 0;
    int count = 0;
    window w;
    if (p == MP_NO_NODE || !read_window(graph, &conv, &w) || !is_for_convs(graph, conv.in[X]) ||
        !mp_graph_same_guard(graph, p, n) ||
        strcmp(mp_node_string(&graph->nodes[p].node, "mode", "constant"), "constant") != 0 ||
        mp_vertex_in(&graph->nodes[p], 3) != MP_NO_VALUE ||
        (mp_vertex_in(&graph->nodes[p], 2) != MP_NO_VALUE &&
         (!mp_graph_number(graph, graph->nodes[p].in[2], &zero) || zero != 0)) ||
        !mp_graph_ints(graph, &graph->nodes[p], "pads", 1, pads, &count) ||
        count != 2 * (w.rank + 2)) {
        return MP_OK;
    }
    for (int i = 0; i < count; i++) {
        const int d = i % (w.rank + 2), at = d - 2 + (i >= w.rank + 2 ? w.rank : 0);
        if (pads[i] < 0 || (d < 2 && pads[i] != 0) ||
            (d >= 2 && __builtin_add_overflow(w.pads[at], pads[i], &w.pads[at]))) {
            return MP_OK;
        }
    }
    if (!mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const int32_t in[] = {graph->nodes[p].in[0], conv.in[W], mp_vertex_in(&conv, BIAS)};
    MP_TRY(put(graph, n, MP_NO_NODE, &w, in, conv.in_count, conv.out[0]));
    mp_graph_drop_unread(graph, conv.in[X]);
    return MP_OK;
}

/* ---- what is added and multiplied ---- */

/* A constant with a number for each channel of an image, whose bytes are here, or NULL. */
static const mp_tensor *channels_of(const mp_graph *graph, int32_t value, int rank, int64_t count,
                                    mp_dtype type) {
    const mp_tensor *x = mp_graph_constant(graph, value);
    const int at = x != NULL ? x->shape.rank - (rank - 1) : -1;
    return x != NULL && x->data != 0 && x->type == type && at >= 0 && x->shape.rank <= rank &&
                   x->shape.dim[at] == count && mp_shape_count(&x->shape) == count
               ? x
               : NULL;
}

/* New weights and bias, each times its factor; and the summands, if any, behind that. */
static mp_status scaled(mp_graph *graph, const mp_vertex *conv, const mp_tensor *by,
                        const mp_tensor *more, int32_t in[BIAS + 1]) {
    const mp_tensor w = graph->values[conv->in[W]].tensor;
    const int32_t before = mp_vertex_in(conv, BIAS);
    const int64_t channels = w.shape.dim[0], each = mp_shape_count(&w.shape) / channels;
    mp_tensor bias = {.type = w.type, .shape = {.rank = 1, .dim = {channels}}};
    const mp_tensor factors = by != NULL ? *by : (mp_tensor){0};
    const mp_tensor summands = more != NULL ? *more : (mp_tensor){0};
    in[X] = conv->in[X];
    in[W] = conv->in[W];
    if (by == NULL && before == MP_NO_VALUE) { /* of any type */
        bias.data = summands.data;
        return mp_graph_add_constant(graph, conv->node.name, &bias, &in[BIAS]);
    }
    MP_TRY(mp_graph_add_constant(graph, conv->node.name, &bias, &in[BIAS]));
    if (by != NULL) {
        MP_TRY(mp_graph_add_constant(graph, graph->values[conv->in[W]].name, &w, &in[W]));
    }
    const mp_tensor to = graph->values[in[W]].tensor, sum = graph->values[in[BIAS]].tensor;
    for (int64_t c = 0; c < channels; c++) {
        const double factor = by != NULL ? mp_host_float(&factors, c) : 1;
        double number =
            before != MP_NO_VALUE ? mp_host_float(&graph->values[before].tensor, c) * factor : 0;
        number += more != NULL ? mp_host_float(&summands, c) : 0;
        mp_host_float_put(&sum, c, number);
        for (int64_t i = c * each; by != NULL && i < (c + 1) * each; i++) {
            mp_host_float_put(&to, i, mp_host_float(&w, i) * factor);
        }
    }
    return MP_OK;
}

static mp_status try_numbers(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex conv = graph->nodes[n];
    const int32_t bias = mp_vertex_in(&conv, BIAS);
    window w;
    if (!read_window(graph, &conv, &w) || conv.in_count > BIAS + 1) {
        return MP_OK;
    }
    const mp_tensor weights = graph->values[conv.in[W]].tensor;
    const int32_t next = mp_graph_reader(graph, conv.out[0], NULL);
    const mp_vertex *v = next != MP_NO_NODE ? &graph->nodes[next] : NULL;
    const bool adds = v != NULL && mp_vertex_is(v, "Add");
    const bool multiplies = v != NULL && mp_vertex_is(v, "Mul") && weights.type == MP_F32;
    const mp_tensor *before = bias != MP_NO_VALUE ? mp_graph_constant(graph, bias) : NULL;
    if (!(adds || multiplies) || (bias != MP_NO_VALUE && (before == NULL || before->data == 0)) ||
        (adds && before != NULL && weights.type != MP_F32)) {
        return MP_OK;
    }
    const mp_tensor *x = channels_of(graph, v->in[v->in[0] == conv.out[0]], w.rank + 2,
                                     weights.shape.dim[0], weights.type);
    if (x == NULL || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    int32_t in[BIAS + 1];
    MP_TRY(scaled(graph, &conv, multiplies ? x : NULL, adds ? x : NULL, in));
    return put(graph, next, n, &w, in, BIAS + 1, graph->nodes[next].out[0]);
}

mp_status mp_pass_line_conv(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (mp_vertex_is(&graph->nodes[n], "Conv")) {
            MP_TRY(try_line(graph, n, rewrites));
        }
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (mp_vertex_is(&graph->nodes[n], "Conv")) {
            MP_TRY(try_pad(graph, n, rewrites));
            MP_TRY(try_numbers(graph, n, rewrites)); /* what is behind it comes later */
        }
    }
    return MP_OK;
}
