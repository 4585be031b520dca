/* find_shuffle_end.c - the end of a unit of ShuffleNet becomes one node: a convolution of each
 * channel by itself, one of single pixels with a Relu behind it, and channels in turns with those
 * of the unit's other half:
 *
 *     ShuffleParts(a, FusedConv(Conv(x, w1, b1), w2, b2))   becomes   ShuffleEnd(a, x, w1, b1, ..)
 *
 * where that is so little work that three launches take longer. Images have their channels last by
 * then; the node has the weights in the order in which its kernel reads them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "graph/look.h"
#include "graph/pass.h"
#include "op/core/channels.h"

#include <string.h>

enum { X, W, BIAS, CONV_INPUTS, EVEN = 0, ODD = 1, PARTS = 2, RANK = 4, SIDE = 3, TAPS = 9 };
enum { END_INPUTS = 5, STRIDES = 2, PADS = 4 };

typedef struct end {
    int32_t shuffle, pixels, windows; /* nodes */
    int64_t channels, columns;        /* of what the second convolution reads and makes */
    int64_t strides[STRIDES], pads[PADS];
} end;

/* ---- which ---- */

static bool is_in(const mp_vertex *v, const char *domain, const char *name) {
    return !v->is_gone && v->loop == NULL && strcmp(v->node.op->domain, domain) == 0 &&
           strcmp(v->node.op->name, name) == 0;
}

/* A constant with its bytes, of elements that the kernel has. */
static const mp_tensor *constant_of(const mp_graph *graph, int32_t value, int rank) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    return t != NULL && t->data != 0 && t->shape.rank == rank &&
                   (t->type == MP_F32 || t->type == MP_F16 || t->type == MP_BF16)
               ? t
               : NULL;
}

/* A convolution whose weights, [out, in, side, side], and bias are constants, without a residual;
 * the weights, or NULL. */
static const mp_tensor *weights_of(const mp_graph *graph, const mp_vertex *v, int side) {
    const int32_t bias = mp_vertex_in(v, BIAS);
    const mp_tensor *w = v->in_count >= BIAS && v->in_count <= CONV_INPUTS
                             ? constant_of(graph, v->in[W], RANK)
                             : NULL;
    const mp_tensor *b = constant_of(graph, bias, 1);
    const bool fits = w != NULL && w->shape.dim[2] == side && w->shape.dim[3] == side &&
                      mp_node_ints_are(&v->node, "dilations", 1) &&
                      strcmp(mp_node_string(&v->node, "auto_pad", "NOTSET"), "NOTSET") == 0 &&
                      (bias == MP_NO_VALUE ||
                       (b != NULL && b->type == w->type && b->shape.dim[0] == w->shape.dim[0]));
    return fits ? w : NULL;
}

/* Attribute `name` of a convolution, of so many numbers. */
static bool read_list(const mp_vertex *v, const char *name, int count, int64_t fallback,
                      int64_t *out) {
    const mp_attr *attr = mp_node_attr(&v->node, name);
    for (int i = 0; i < count; i++) {
        out[i] = attr != NULL && attr->count == (size_t)count ? attr->ints[i] : fallback;
    }
    return attr == NULL || attr->count == (size_t)count;
}

/* The node that makes `value` for node `reader` alone, or MP_NO_NODE. */
static int32_t own_maker(const mp_graph *graph, int32_t value, int32_t reader) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    return n != MP_NO_NODE && graph->nodes[n].out_count == 1 &&
                   mp_graph_reader(graph, value, NULL) == reader
               ? n
               : MP_NO_NODE;
}

/* Two halves in turns, the channels last, into one tensor or two of pairs. */
static bool is_shuffle(const mp_graph *graph, const mp_vertex *v) {
    const mp_attr *sizes = mp_node_attr(&v->node, "sizes");
    if (!mp_vertex_is_own(v, "ShuffleParts") || v->in_count != PARTS || v->out_count > 2 ||
        mp_node_int(&v->node, "groups", 1) != 2 || mp_node_int(&v->node, "axis", 1) != RANK - 1 ||
        (sizes != NULL && sizes->count != (size_t)v->out_count) ||
        mp_graph_rank(graph, v->in[EVEN]) != RANK) {
        return false;
    }
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] == MP_NO_VALUE || (sizes != NULL && sizes->ints[i] % 2 != 0)) {
            return false;
        }
    }
    return true;
}

static bool find(const mp_graph *graph, int32_t n, end *e) {
    const mp_vertex *v = &graph->nodes[n];
    *e = (end){.shuffle = n};
    if (!is_shuffle(graph, v)) {
        return false;
    }
    e->pixels = own_maker(graph, v->in[ODD], n);
    const mp_vertex *pixels = e->pixels != MP_NO_NODE ? &graph->nodes[e->pixels] : NULL;
    const mp_tensor *matrix = pixels != NULL && is_in(pixels, MP_OWN_NHWC_DOMAIN, "FusedConv")
                                  ? weights_of(graph, pixels, 1)
                                  : NULL;
    if (matrix == NULL || mp_node_int(&pixels->node, "group", 1) != 1 ||
        !mp_node_ints_are(&pixels->node, "strides", 1) ||
        !mp_node_ints_are(&pixels->node, "pads", 0) ||
        strcmp(mp_node_string(&pixels->node, "activation", ""), "Relu") != 0) {
        return false;
    }
    e->windows = own_maker(graph, pixels->in[X], e->pixels);
    const mp_vertex *windows = e->windows != MP_NO_NODE ? &graph->nodes[e->windows] : NULL;
    const mp_tensor *taps = windows != NULL && is_in(windows, MP_NHWC_DOMAIN, "Conv")
                                ? weights_of(graph, windows, SIDE)
                                : NULL;
    e->channels = matrix->shape.dim[1];
    e->columns = matrix->shape.dim[0];
    return taps != NULL && taps->type == matrix->type && taps->shape.dim[1] == 1 &&
           taps->shape.dim[0] == e->channels &&
           mp_node_int(&windows->node, "group", 1) == e->channels &&
           mp_graph_dim(graph, v->in[EVEN], RANK - 1) == e->columns &&
           read_list(windows, "strides", STRIDES, 1, e->strides) &&
           read_list(windows, "pads", PADS, 0, e->pads);
}

/* ---- rewriting ---- */

/* The constant [rows, columns] with its dimensions exchanged, and `more` rows of zeros behind. */
static mp_status add_turned(mp_graph *graph, int32_t value, int64_t rows, int64_t columns,
                            int64_t more, int32_t *out) {
    const mp_tensor from = graph->values[value].tensor;
    const size_t size = mp_dtype_size(from.type);
    const mp_tensor turned = {.type = from.type,
                              .shape = {.rank = 2, .dim = {columns + more, rows}}};
    MP_TRY(mp_graph_add_constant(graph, graph->values[value].name, &turned, out));
    char *to = (char *)graph->values[*out].tensor.data;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            memcpy(to + (size_t)(c * rows + r) * size,
                   (const char *)from.data + (size_t)(r * columns + c) * size, size);
        }
    }
    return MP_OK;
}

/* [TAPS + 1, channels]: the windows, and their bias. */
static mp_status add_windows(mp_graph *graph, const mp_vertex *v, int64_t channels, int32_t *out) {
    const int32_t bias = mp_vertex_in(v, BIAS);
    MP_TRY(add_turned(graph, v->in[W], channels, TAPS, 1, out));
    const mp_tensor *made = &graph->values[*out].tensor;
    const size_t row = (size_t)channels * mp_dtype_size(made->type);
    if (bias != MP_NO_VALUE) {
        memcpy((char *)made->data + TAPS * row, (const void *)graph->values[bias].tensor.data, row);
    }
    return MP_OK;
}

/* By what is known of the image that comes in turns, and of the matrix. */
static bool is_accepted(const mp_graph *graph, const mp_node *node, const end *e) {
    const int32_t even = graph->nodes[e->shuffle].in[EVEN];
    mp_tensor known[END_INPUTS] = {{.type = MP_NONE}};
    known[0].shape.rank = RANK;
    for (int d = 0; d < RANK; d++) {
        known[0].shape.dim[d] = mp_graph_dim(graph, even, d);
    }
    known[3].shape = (mp_shape){.rank = 2, .dim = {e->channels, e->columns}};
    const mp_planner p = {.node = node, .in = known, .in_count = END_INPUTS};
    return node->op->accept(&p) == MP_OK;
}

static mp_status rewrite(mp_graph *graph, const end *e, mp_rewrites *rewrites) {
    const mp_vertex shuffle = graph->nodes[e->shuffle], windows = graph->nodes[e->windows];
    const mp_vertex pixels = graph->nodes[e->pixels];
    const mp_attr *sizes = mp_node_attr(&shuffle.node, "sizes");
    mp_attr attrs[] = {
        {.name = "strides", .kind = MP_ATTR_INTS, .ints = e->strides, .count = STRIDES},
        {.name = "pads", .kind = MP_ATTR_INTS, .ints = e->pads, .count = PADS},
        {.name = "sizes", .kind = MP_ATTR_INTS},
    };
    if (sizes != NULL) {
        attrs[2] = *sizes;
    }
    const mp_node node = {.op = mp_op_find(MP_OWN_NHWC_DOMAIN, "ShuffleEnd", 1),
                          .version = 1,
                          .name = pixels.node.name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs) - (sizes == NULL ? 1 : 0),
                          .options = pixels.node.options};
    int32_t in[END_INPUTS] = {shuffle.in[EVEN], windows.in[X], MP_NO_VALUE, MP_NO_VALUE,
                              mp_vertex_in(&pixels, BIAS)};
    if (!is_accepted(graph, &node, e) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    MP_TRY(add_windows(graph, &windows, e->channels, &in[2]));
    MP_TRY(add_turned(graph, pixels.in[W], e->columns, e->channels, 0, &in[3]));
    MP_TRY(mp_graph_change_node(graph, e->shuffle, &node, in, END_INPUTS, shuffle.out,
                                shuffle.out_count));
    mp_graph_remove_node(graph, e->pixels);
    mp_graph_remove_node(graph, e->windows);
    return MP_OK;
}

mp_status mp_pass_find_shuffle_end(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        end e;
        if ((graph->prefers_last || rewrites->forced) && find(graph, n, &e)) {
            MP_TRY(rewrite(graph, &e, rewrites));
        }
    }
    return MP_OK;
}
