/* join_convs.c - convolutions of single pixels, each of a part of an image's channels, whose
 * results are put side by side again, are one convolution of groups: no part is copied out of its
 * rows or into others, and there is one product for all (MixNet).
 *
 *     Split --> Conv, Conv, ... --> Concat      becomes      Conv
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <string.h>

enum { X, W, BIAS, CHANNEL = 1, ATTRS_MAX = 12, PARTS_MAX = 16, WIDTH_MIN = 8 };

typedef struct parts {
    int32_t split, concat;   /* nodes */
    int32_t conv[PARTS_MAX]; /* nodes, one for each part in its order */
    int count;
} parts;

/* Of the kinds that have their channels last on a GPU; where each channel is stored by itself parts
 * need no copies. */
static bool is_fast(const mp_vertex *v, const mp_tensor *w) {
    return w->type == MP_F16 || w->type == MP_BF16 || (w->type == MP_F32 && v->node.options.tf32);
}

/* A convolution of single pixels by constants whose bytes are here. */
static bool is_of_pixels(const mp_graph *graph, const mp_vertex *v, bool forced) {
    const mp_tensor *w = mp_vertex_is(v, "Conv") ? mp_graph_constant(graph, v->in[W]) : NULL;
    const int32_t bias = w != NULL ? mp_vertex_in(v, BIAS) : MP_NO_VALUE;
    const mp_tensor *b = bias != MP_NO_VALUE ? mp_graph_constant(graph, bias) : NULL;
    return w != NULL && w->data != 0 && mp_vertex_is_of_pixels(v, &w->shape) &&
           w->shape.dim[0] >= WIDTH_MIN && w->shape.dim[1] >= WIDTH_MIN &&
           (forced || is_fast(v, w)) &&
           (bias == MP_NO_VALUE || (b != NULL && b->data != 0 && b->shape.rank == 1 &&
                                    b->shape.dim[0] == w->shape.dim[0])) &&
           v->node.attr_count < ATTRS_MAX &&
           strcmp(mp_node_string(&v->node, "auto_pad", "NOTSET"), "NOTSET") == 0;
}

/* Whether both make as many channels of as many, with a bias or both without. */
static bool are_alike(const mp_graph *graph, const mp_vertex *a, const mp_vertex *b) {
    const mp_tensor *w = &graph->values[a->in[W]].tensor, *v = &graph->values[b->in[W]].tensor;
    return w->type == v->type && mp_shape_equal(&w->shape, &v->shape) &&
           (mp_vertex_in(a, BIAS) == MP_NO_VALUE) == (mp_vertex_in(b, BIAS) == MP_NO_VALUE);
}

static bool find(const mp_graph *graph, int32_t n, bool forced, parts *p) {
    const mp_vertex *concat = &graph->nodes[n];
    *p = (parts){.split = MP_NO_NODE, .concat = n, .count = concat->in_count};
    if (!mp_vertex_is(concat, "Concat") || p->count < 2 || p->count > PARTS_MAX ||
        mp_node_int(&concat->node, "axis", 0) != CHANNEL) {
        return false;
    }
    for (int i = 0; i < p->count; i++) {
        const int32_t c = mp_graph_maker(graph, concat->in[i], "Conv");
        if (c == MP_NO_NODE || mp_graph_reader(graph, concat->in[i], NULL) != n ||
            !is_of_pixels(graph, &graph->nodes[c], forced) || !mp_graph_same_guard(graph, c, n)) {
            return false;
        }
        const mp_vertex *conv = &graph->nodes[c];
        const int32_t s = mp_graph_maker(graph, conv->in[X], "Split");
        const mp_vertex *split = s != MP_NO_NODE ? &graph->nodes[s] : NULL;
        p->conv[i] = c;
        p->split = i == 0 ? s : p->split;
        if (split == NULL || s != p->split || split->out_count != p->count ||
            split->out[i] != conv->in[X] || mp_graph_reader(graph, conv->in[X], NULL) != c ||
            !are_alike(graph, conv, &graph->nodes[p->conv[0]])) {
            return false;
        }
    }
    return mp_node_int(&graph->nodes[p->split].node, "axis", 0) == CHANNEL;
}

/* The constants that all convolutions read as input `i`, one behind the other. */
static mp_status join_constants(mp_graph *graph, const parts *p, int i, int32_t *out) {
    const int32_t first = mp_vertex_in(&graph->nodes[p->conv[0]], i);
    *out = MP_NO_VALUE;
    if (first == MP_NO_VALUE) {
        return MP_OK;
    }
    mp_tensor all = graph->values[first].tensor;
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&all.shape, all.type, &bytes));
    all.shape.dim[0] *= p->count;
    all.data = 0;
    MP_TRY(mp_graph_add_constant(graph, graph->values[first].name, &all, out));
    unsigned char *to = (unsigned char *)graph->values[*out].tensor.data;
    for (int c = 0; c < p->count; c++) {
        const int32_t one = graph->nodes[p->conv[c]].in[i];
        memcpy(to + (size_t)c * bytes, (const void *)graph->values[one].tensor.data, bytes);
    }
    return MP_OK;
}

static mp_status rewrite(mp_graph *graph, const parts *p) {
    const mp_vertex conv = graph->nodes[p->conv[0]], concat = graph->nodes[p->concat];
    mp_attr attrs[ATTRS_MAX];
    mp_node node = conv.node;
    size_t count = 0;
    for (size_t a = 0; a < node.attr_count; a++) {
        if (strcmp(node.attrs[a].name, "group") != 0) {
            attrs[count++] = node.attrs[a];
        }
    }
    attrs[count++] = (mp_attr){.name = "group", .kind = MP_ATTR_INT, .i = p->count};
    node.attrs = attrs;
    node.attr_count = count;
    int32_t in[] = {graph->nodes[p->split].in[0], MP_NO_VALUE, MP_NO_VALUE};
    MP_TRY(join_constants(graph, p, W, &in[W]));
    MP_TRY(join_constants(graph, p, BIAS, &in[BIAS]));
    MP_TRY(mp_graph_change_node(graph, p->concat, &node, in, in[BIAS] != MP_NO_VALUE ? 3 : 2,
                                concat.out, 1));
    mp_graph_drop_inputs(graph, &concat);
    return MP_OK;
}

mp_status mp_pass_join_convs(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        parts p;
        if ((graph->prefers_last || rewrites->forced) && !graph->nodes[n].is_gone &&
            find(graph, n, rewrites->forced, &p) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &p));
        }
    }
    return MP_OK;
}
