/* channels_last.c - images between convolutions are stored with their channels last, where the
 * device is faster so.
 *
 * Each value of such a part gets a twin, which is it with channels last. A convolution asks for the
 * twins of what it reads, made by a Transpose where there is none; what follows it works on twins
 * where it can as well. The value itself is made of its twin by another Transpose, which goes if
 * nobody reads it (dead.c). Branches are left as they are: a twin that is made in one would not be
 * there for others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/channels_axes.h"
#include "graph/pass/channels_constant.h"
#include "graph/pass/channels_conv.h"
#include "graph/pass/channels_heads.h"
#include "graph/pass/channels_norm.h"
#include "graph/pass/channels_twin.h"
#include "graph/pass/image_rows.h"
#include "op/core/channels.h"

#include <stdlib.h>
#include <string.h>

/* ---- what an input becomes ---- */

/* Whether the value may be read by an element-wise node over twins of so many dimensions. */
static bool is_turnable(const mp_layout *l, int32_t value, int rank) {
    return mp_twin_rank(l, value) == rank || mp_is_one_element(l, value, rank) ||
           mp_is_twin_constant(l, value, rank);
}

static mp_status turn_input(mp_layout *l, int32_t value, int rank, int32_t *out) {
    *out = mp_twin_rank(l, value) == rank ? mp_twin_of(l, value) : value;
    return *out != value || mp_is_one_element(l, value, rank)
               ? MP_OK
               : mp_twin_constant(l, value, rank, out);
}

/* ---- what follows ---- */

static bool is_elementwise(const mp_layout *l, const mp_vertex *v) {
    const int rank = mp_twins_rank(l, v);
    if (v->node.op->express == NULL || v->out_count != 1 || rank == 0) {
        return false;
    }
    for (int i = 0; i < v->in_count; i++) {
        if (v->in[i] != MP_NO_VALUE && !is_turnable(l, v->in[i], rank)) {
            return false;
        }
    }
    return true;
}

static mp_status turn_elementwise(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const int rank = mp_twins_rank(l, &v);
    int32_t in[MP_TWIN_WIDTH_MAX];
    for (int i = 0; i < v.in_count; i++) {
        in[i] = MP_NO_VALUE;
        if (v.in[i] != MP_NO_VALUE) {
            MP_TRY(turn_input(l, v.in[i], rank, &in[i]));
        }
    }
    return mp_twin_node(l, n, &v.node, in, v.in_count, rank);
}

/* Whether a reduction is over the whole of each channel. */
static bool is_over_image(const mp_graph *graph, const mp_vertex *v, int rank) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    uint32_t seen = 0;
    if (mp_node_int(&v->node, "keepdims", 1) != 1 ||
        !mp_graph_ints(graph, v, "axes", 1, axes, &count) || count != rank - 2) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        seen |= axis >= 2 && axis < rank ? 1u << axis : 0;
    }
    return seen == (1u << rank) - 4;
}

/* Operators with a row of their own for channels last; those of `flat` for pictures only. */
static const mp_op *row_of(const mp_layout *l, const mp_vertex *v) {
    static const char *const any[] = {"MaxPool", "AveragePool", "GlobalAveragePool",
                                      "GlobalMaxPool", "BatchNormalization"};
    static const char *const flat[] = {"LRN", "DepthToSpace"};
    const int rank = mp_twin_rank(l, v->in[0]);
    const bool is_float = (MP_BIT(mp_graph_type(l->graph, v->in[0])) & MP_FLOATS) != 0;
    if (rank == 0) {
        return NULL;
    }
    if (v->out_count == 1 &&
        (mp_vertex_is_any(v, any, MP_COUNT_OF(any)) ||
         (rank <= MP_TWIN_RANK_PICTURE && mp_vertex_is(v, "ConvTranspose")) ||
         (rank == MP_TWIN_RANK_PICTURE && mp_vertex_is_any(v, flat, MP_COUNT_OF(flat))))) {
        return mp_op_find(MP_NHWC_DOMAIN, v->node.op->name, v->node.version);
    }
    return mp_vertex_is(v, "ReduceMean") && is_float && is_over_image(l->graph, v, rank)
               ? mp_op_find(MP_NHWC_DOMAIN, "GlobalAveragePool", 1)
               : NULL;
}

static mp_status turn_row(mp_layout *l, int32_t n, const mp_op *op) {
    const mp_vertex v = l->graph->nodes[n];
    const bool is_reduction =
        mp_vertex_is(&v, "ReduceMean"); /* whose axes are an input or attribute */
    mp_node node = v.node;
    int32_t in[MP_TWIN_WIDTH_MAX];
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    in[0] = mp_twin_of(l, v.in[0]);
    node.op = op;
    if (is_reduction) {
        node.version = 1;
        node.attr_count = 0;
    }
    return mp_twin_node(l, n, &node, in, is_reduction ? 1 : v.in_count, mp_twin_rank(l, v.in[0]));
}

/* ---- Resize: what it reads of sizes is in the order of dimensions ---- */

/* Lists of all dimensions that are known while planning. */
static bool is_resize(const mp_layout *l, const mp_vertex *v) {
    if (!mp_vertex_is(v, "Resize") || v->node.version < 11 ||
        mp_twin_rank(l, v->in[0]) != MP_TWIN_RANK_PICTURE ||
        mp_node_attr(&v->node, "axes") != NULL ||
        strcmp(mp_node_string(&v->node, "coordinate_transformation_mode", ""),
               "tf_crop_and_resize") == 0) {
        return false;
    }
    for (int i = 2; i < v->in_count; i++) {
        if (v->in[i] != MP_NO_VALUE && !mp_graph_is_planned(l->graph, v->in[i])) {
            return false;
        }
    }
    return true;
}

static bool is_empty(const mp_tensor *t) {
    return t->shape.rank == 1 && t->shape.dim[0] == 0;
}

static mp_status turn_resize(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    int32_t in[MP_TWIN_WIDTH_MAX];
    for (int i = 0; i < v.in_count; i++) {
        in[i] = i == 0 ? mp_twin_of(l, v.in[0]) : i == 1 ? MP_NO_VALUE : v.in[i];
        if (i >= 2 && v.in[i] != MP_NO_VALUE && !is_empty(&l->graph->values[v.in[i]].tensor)) {
            MP_TRY(mp_twin_list(l, v.in[i], MP_TWIN_RANK_PICTURE, &in[i]));
        }
    }
    return mp_twin_node(l, n, &v.node, in, v.in_count, MP_TWIN_RANK_PICTURE);
}

/* ---- Shape: what it gives is in the order of dimensions ---- */

/* The dimensions [from, to) of so many that it gives. */
static bool is_range(const mp_node *node, int rank, int64_t *from, int64_t *to) {
    *from = mp_node_int(node, "start", 0);
    *to = mp_node_int(node, "end", rank);
    *from += *from < 0 ? rank : 0;
    *to += *to < 0 ? rank : 0;
    return *from >= 0 && *from < *to && *to <= rank;
}

/* The twin of a constant may have more dimensions than that. */
static bool sees_twin(const mp_layout *l, const mp_vertex *v) {
    int64_t from = 0, to = 0;
    return mp_vertex_is(v, "Shape") && !l->graph->values[v->in[0]].is_constant &&
           is_range(&v->node, mp_twin_rank(l, v->in[0]), &from, &to);
}

/* An image that is only there for its sizes need not be made of its twin. */
static mp_status turn_shape(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const int rank = mp_twin_rank(l, v.in[0]);
    const mp_tensor all = {.type = MP_I64, .shape = {.rank = 1, .dim = {rank}}};
    const mp_node shape = {.op = mp_op_find("", "Shape", 13), .version = 13, .name = v.node.name};
    const mp_node pick = {.op = mp_op_find("", "Gather", 13), .version = 13, .name = v.node.name};
    mp_tensor order = all;
    int64_t from = 0, to = 0;
    int32_t twin = mp_twin_of(l, v.in[0]), in[] = {MP_NO_VALUE, MP_NO_VALUE};
    (void)is_range(&v.node, rank, &from, &to);
    order.shape.dim[0] = to - from;
    order.data = (mp_addr)(mp_to_first(rank) + from);
    MP_TRY(mp_graph_add_value(l->graph, v.node.name, &all, &in[0]));
    MP_TRY(mp_graph_add_constant(l->graph, "", &order, &in[1]));
    MP_TRY(mp_graph_add_node(l->graph, &shape, &twin, 1, &in[0], 1));
    return mp_graph_change_node(l->graph, n, &pick, in, MP_COUNT_OF(in), v.out, 1);
}

/* ---- transpositions of the model ---- */

/* How many dimensions a Transpose brings into the order that `perm` gives; 0 for another. */
static int rank_of_perm(const mp_layout *l, const mp_vertex *v, const int64_t *perm(int rank)) {
    const mp_attr *given = mp_vertex_perm(v);
    const int rank = given != NULL ? (int)given->count : 0;
    return rank >= (l->has_lines ? MP_TWIN_RANK_LINE : MP_TWIN_RANK_PICTURE) &&
                   rank >= MP_TWIN_RANK_LINE && rank <= MP_TWIN_RANK_VOLUME &&
                   memcmp(given->ints, perm(rank), (size_t)rank * sizeof(int64_t)) == 0
               ? rank
               : 0;
}

/* Node `n` sees the twin of an image as rows of pixels, of `rank` dimensions. */
static mp_status view_rows(mp_layout *l, int32_t n, int32_t twin, const int64_t *dim, int rank) {
    const mp_vertex v = l->graph->nodes[n];
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {rank}}, .data = (mp_addr)dim};
    const mp_node node = {.op = mp_op_find("", "Reshape", 13),
                          .version = 13,
                          .name = v.node.name,
                          .options = v.node.options};
    int32_t in[] = {twin, MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(l->graph, "", &list, &in[1]));
    MP_TRY(mp_graph_change_node(l->graph, n, &node, in, 2, v.out, 1));
    mp_graph_drop_unread(l->graph, v.in[0]);
    return MP_OK;
}

/* The node that made the twin makes the output that node `n` did. */
static mp_status give_output(mp_layout *l, int32_t n, int32_t twin) {
    mp_graph *graph = l->graph;
    const int32_t output = graph->nodes[n].out[0];
    const int32_t maker = mp_graph_maker(graph, twin, NULL);
    int32_t out[MP_TWIN_WIDTH_MAX];
    const mp_vertex v = graph->nodes[maker];
    for (int i = 0; i < v.out_count; i++) {
        out[i] = v.out[i] == twin ? output : v.out[i];
    }
    mp_graph_remove_node(graph, n);
    MP_TRY(mp_graph_change_node(graph, maker, &v.node, v.in, v.in_count, out, v.out_count));
    mp_graph_replace(graph, twin, output, false);
    mp_twin_replace(l, twin, output);
    return MP_OK;
}

/* Whoever reads what node `n` makes reads the twin. */
static mp_status give_twin(mp_layout *l, int32_t n, int32_t twin) {
    const int32_t out = l->graph->nodes[n].out[0];
    const bool is_output = mp_graph_is_output(l->graph, out);
    const int32_t maker = is_output ? mp_graph_maker(l->graph, twin, NULL) : MP_NO_NODE;
    const mp_vertex *v = maker != MP_NO_NODE ? &l->graph->nodes[maker] : NULL;
    const bool moves = v != NULL && v->loop == NULL && v->guard == 0 &&
                       v->out_count <= MP_TWIN_WIDTH_MAX && !mp_graph_is_output(l->graph, twin);
    if ((is_output && !moves) || !mp_rewrite_allowed(l->rewrites)) {
        return MP_OK;
    }
    if (is_output) {
        return give_output(l, n, twin);
    }
    mp_graph_replace(l->graph, out, twin, false);
    mp_graph_remove_node(l->graph, n);
    return MP_OK;
}

/* One that brings channels to the end gives the twin; what is brought to the front has one. */
static mp_status take_transpose(mp_layout *l, int32_t n) {
    const mp_vertex *v = &l->graph->nodes[n];
    const int32_t twin = mp_twin_of(l, v->in[0]);
    int32_t image = MP_NO_VALUE;
    int64_t dim[4];
    const int rank = mp_rows_of_image(l->graph, n, &image, dim)    ? 3
                     : mp_heads_of_image(l->graph, n, &image, dim) ? 4
                                                                   : 0;
    if (rank != 0 && mp_twin_of(l, image) != MP_NO_VALUE && mp_rewrite_allowed(l->rewrites)) {
        return view_rows(l, n, mp_twin_of(l, image), dim, rank);
    }
    const int to_first = rank_of_perm(l, v, mp_to_first), to_last = rank_of_perm(l, v, mp_to_last);
    if (to_last != 0 && mp_twin_rank(l, v->in[0]) == to_last) { /* of a line both are the same */
        return give_twin(l, n, twin);
    }
    if (to_first != 0 && mp_graph_rank(l->graph, v->in[0]) == to_first) {
        return mp_twin_set(l, v->out[0], v->in[0]);
    }
    return MP_OK;
}

/* ---- all ---- */

static mp_status turn(mp_layout *l, int32_t n) {
    const mp_vertex *v = &l->graph->nodes[n];
    const bool fits = !v->is_gone && v->guard == 0 && v->loop == NULL && v->in_count > 0 &&
                      v->in_count <= MP_TWIN_WIDTH_MAX && v->out_count <= MP_TWIN_WIDTH_MAX &&
                      v->in[0] != MP_NO_VALUE;
    const mp_op *row = fits ? row_of(l, v) : NULL;
    if (!fits) {
        return MP_OK;
    }
    if (mp_vertex_is(v, "Transpose")) {
        return take_transpose(l, n);
    }
    if (sees_twin(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? turn_shape(l, n) : MP_OK;
    }
    if (mp_last_conv_op(v) != NULL) {
        return mp_wants_last(l, v) && mp_rewrite_allowed(l->rewrites) ? mp_turn_conv(l, n) : MP_OK;
    }
    if (mp_begins_last(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? mp_turn_transposed(l, n) : MP_OK;
    }
    if (row != NULL) {
        return mp_rewrite_allowed(l->rewrites) ? turn_row(l, n, row) : MP_OK;
    }
    if (is_elementwise(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? turn_elementwise(l, n) : MP_OK;
    }
    if (mp_makes_heads(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? mp_turn_heads(l, n) : MP_OK;
    }
    if (mp_is_channels_norm(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? mp_turn_norm(l, n) : MP_OK;
    }
    if (mp_has_axes(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? mp_turn_axes(l, n) : MP_OK;
    }
    return is_resize(l, v) && mp_rewrite_allowed(l->rewrites) ? turn_resize(l, n) : MP_OK;
}

/* Whether a convolution over a line may have its channels last. Texts have their words and features
 * exchanged for other reasons, too. */
static bool has_lines(const mp_layout *l) {
    for (int32_t n = 0; n < l->graph->node_count; n++) {
        const mp_vertex *v = &l->graph->nodes[n];
        if (mp_last_conv_op(v) != NULL && v->guard == 0 &&
            mp_graph_rank(l->graph, v->in[1]) == MP_TWIN_RANK_LINE && mp_may_last(l, v)) {
            return true;
        }
    }
    return false;
}

mp_status mp_pass_channels_last(mp_graph *graph, mp_rewrites *rewrites) {
    mp_layout l = {.graph = graph, .rewrites = rewrites};
    const int32_t count = graph->node_count;
    mp_status status = MP_OK;
    if (!graph->prefers_last && !rewrites->forced) {
        return MP_OK;
    }
    l.has_lines = has_lines(&l);
    for (int32_t n = 0; n < count && status == MP_OK; n++) {
        status = turn(&l, n);
    }
    free(l.twins);
    MP_TRY(status);
    mp_graph_compact(graph);
    return mp_graph_sort(graph);
}
