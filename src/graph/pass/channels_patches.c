/* channels_patches.c - see channels_patches.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_patches.h"

#include "graph/look.h"
#include "graph/pass/add_view.h"

#include <string.h>

/* A pixel of fewer bytes is not what tensor cores load at once; patches of fewer elements are left
 * to kernels that read them where they are. */
enum { RANK = 4, PIXEL_BYTES = 16, ELEMENTS_MIN = 256 };

static bool has_no_padding(const mp_node *node) {
    const char *auto_pad = mp_node_string(node, "auto_pad", "NOTSET");
    return strcmp(auto_pad, "VALID") == 0 ||
           (strcmp(auto_pad, "NOTSET") == 0 && mp_node_ints_are(node, "pads", 0));
}

/* Whether a list has the size of a window. */
static bool is_window(const mp_attr *list, const mp_shape *w) {
    return list != NULL && list->count == RANK - 2 && list->ints[0] == w->dim[2] &&
           list->ints[1] == w->dim[3];
}

/* Whether a window moves by its own size, and the image is a multiple of it. */
static bool is_tiled(const mp_layout *l, const mp_vertex *v) {
    const mp_shape *w = &l->graph->values[v->in[1]].tensor.shape;
    const mp_attr *said = mp_node_attr(&v->node, "kernel_shape");
    bool fits =
        is_window(mp_node_attr(&v->node, "strides"), w) && (said == NULL || is_window(said, w));
    for (int d = 2; fits && d < RANK; d++) {
        const int64_t size = mp_graph_dim(l->graph, v->in[0], d);
        fits = w->dim[d] > 0 && size > 0 && size % w->dim[d] == 0;
    }
    return fits;
}

bool mp_is_of_patches(const mp_layout *l, const mp_vertex *v) {
    const mp_tensor *w = &l->graph->values[v->in[1]].tensor;
    const int64_t pixel = PIXEL_BYTES / (int64_t)mp_dtype_size(w->type);
    return mp_vertex_is(v, "Conv") && v->in_count <= 3 && w->data != 0 && w->shape.rank == RANK &&
           mp_graph_rank(l->graph, v->in[0]) == RANK && w->shape.dim[1] > 0 &&
           w->shape.dim[1] < pixel && mp_shape_span(&w->shape, 1, RANK) >= ELEMENTS_MIN &&
           mp_graph_dim(l->graph, v->in[0], 1) == w->shape.dim[1] &&
           mp_node_int(&v->node, "group", 1) == 1 && mp_node_ints_are(&v->node, "dilations", 1) &&
           has_no_padding(&v->node) && is_tiled(l, v);
}

/* Weights of whole patches, each channel a column. */
static mp_status turn_weights(mp_layout *l, int32_t weights, int32_t *out) {
    const mp_value w = l->graph->values[weights];
    const int64_t columns = w.tensor.shape.dim[0], rows = mp_shape_span(&w.tensor.shape, 1, RANK);
    const mp_tensor tensor = {.type = w.tensor.type, .shape = {.rank = 2, .dim = {rows, columns}}};
    const size_t size = mp_dtype_size(tensor.type);
    MP_TRY(mp_graph_add_constant(l->graph, w.name, &tensor, out));
    const unsigned char *from = (const unsigned char *)w.tensor.data;
    unsigned char *to = (unsigned char *)l->graph->values[*out].tensor.data;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            memcpy(to + (size_t)(r * columns + c) * size, from + (size_t)(c * rows + r) * size,
                   size);
        }
    }
    return MP_OK;
}

/* The rows of node `n`: [batch, down, across, elements of a patch]. */
static mp_status add_rows(mp_layout *l, int32_t n, int32_t *out) {
    static const int64_t perm[] = {0, 2, 4, 1, 3, 5};
    const mp_vertex v = l->graph->nodes[n];
    const mp_shape w = l->graph->values[v.in[1]].tensor.shape;
    const int64_t down = mp_graph_dim(l->graph, v.in[0], 2) / w.dim[2];
    const int64_t across = mp_graph_dim(l->graph, v.in[0], 3) / w.dim[3];
    const int64_t patches[] = {0, w.dim[1], down, w.dim[2], across, w.dim[3]};
    const int64_t rows[] = {0, down, across, mp_shape_span(&w, 1, RANK)};
    const mp_tensor turned = {.type = l->graph->values[v.in[0]].tensor.type,
                              .shape = {.rank = 6,
                                        .dim = {mp_graph_dim(l->graph, v.in[0], 0), down, across,
                                                w.dim[1], w.dim[2], w.dim[3]}}};
    const mp_attr attr = {.name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = 6};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = v.node.name,
                          .attrs = &attr,
                          .attr_count = 1};
    int32_t seen = MP_NO_VALUE, moved = MP_NO_VALUE;
    MP_TRY(mp_graph_add_view(l->graph, n, v.node.name, "Reshape", v.in[0], patches, 6, &seen));
    MP_TRY(mp_graph_add_value(l->graph, v.node.name, &turned, &moved));
    MP_TRY(mp_graph_add_beside(l->graph, n, &node, &seen, 1, moved));
    return mp_graph_add_view(l->graph, n, v.node.name, "Reshape", moved, rows, RANK, out);
}

mp_status mp_turn_patches(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const int32_t bias = mp_vertex_in(&v, 2);
    const bool has_bias = bias != MP_NO_VALUE;
    const mp_node node = {.op = has_bias ? mp_op_find(MP_OWN_DOMAIN, "MatMulBias", 1)
                                         : mp_op_find("", "MatMul", 13),
                          .version = has_bias ? 1 : 13,
                          .name = v.node.name,
                          .options = v.node.options};
    int32_t in[] = {MP_NO_VALUE, MP_NO_VALUE, bias};
    MP_TRY(add_rows(l, n, &in[0]));
    MP_TRY(turn_weights(l, v.in[1], &in[1]));
    return mp_twin_node(l, n, &node, in, has_bias ? 3 : 2, RANK);
}
