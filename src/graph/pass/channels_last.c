/* channels_last.c - images between convolutions are stored with their channels last, where the
 * device is faster so.
 *
 * Each value of such a part gets a twin, which is it with channels last. A convolution asks for the
 * twins of what it reads, made by a Transpose where there is none; what follows it works on twins
 * where it can as well. The value itself is made of its twin by another Transpose, which goes if
 * nobody reads it (dead.c). A convolution over few channels that a kernel of ours makes reads the
 * image as it is. Of others, images with few channels that one convolution reads get zeros behind
 * these instead, up to what tensor cores load at once, and so do its weights. Branches are left as
 * they are: a twin that is made in one would not be there for others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/image_rows.h"
#include "op/core/channels.h"

#include <stdlib.h>
#include <string.h>

enum { RANK = 4, WIDTH_MAX = 64, ATTRS_MAX = 16, PIXEL_BYTES = 16 };

static const int64_t to_last[RANK] = {0, 2, 3, 1}; /* dimension d of the twin is to_last[d] */
static const int64_t to_first[RANK] = {0, 3, 1, 2};

typedef struct layout {
    mp_graph *graph;
    mp_rewrites *rewrites;
    int32_t *twins; /* by value; owned */
    int32_t capacity;
} layout;

/* ---- twins ---- */

static int32_t twin_of(const layout *l, int32_t value) {
    return value != MP_NO_VALUE && l->twins != NULL && value < l->capacity ? l->twins[value]
                                                                           : MP_NO_VALUE;
}

static mp_status set_twin(layout *l, int32_t value, int32_t twin) {
    if (l->twins == NULL || value >= l->capacity) {
        const int32_t wanted = 2 * l->graph->value_count;
        int32_t *more = realloc(l->twins, (size_t)wanted * sizeof *more);
        if (more == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a pass");
        }
        for (int32_t i = l->capacity; i < wanted; i++) {
            more[i] = MP_NO_VALUE;
        }
        l->twins = more;
        l->capacity = wanted;
    }
    l->twins[value] = twin;
    return MP_OK;
}

static mp_tensor turned(const mp_tensor *tensor, const int64_t *perm) {
    mp_tensor out = {.type = tensor->type, .shape = {.rank = RANK}};
    for (int d = 0; d < RANK; d++) {
        out.shape.dim[d] = tensor->shape.rank == RANK ? tensor->shape.dim[perm[d]] : MP_DIM_UNKNOWN;
    }
    return out;
}

static mp_status add_transpose(layout *l, int32_t from, int32_t to, const int64_t *perm) {
    const mp_attr attr = {.name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = RANK};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = l->graph->values[from].name,
                          .attrs = &attr,
                          .attr_count = 1};
    return mp_graph_add_node(l->graph, &node, &from, 1, &to, 1);
}

static mp_status add_view(layout *l, const char *op, int32_t from, const int64_t axes[2],
                          int32_t to) {
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {2}}, .data = (mp_addr)axes};
    const mp_node node = {
        .op = mp_op_find("", op, 13), .version = 13, .name = l->graph->values[from].name};
    int32_t in[] = {from, MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(l->graph, "", &list, &in[1]));
    return mp_graph_add_node(l->graph, &node, in, 2, &to, 1);
}

/* A value [n, c, 1, 1] is its twin [n, 1, 1, c] seen in another shape, also where n is 0, which
 * Reshape could not tell. */
static mp_status add_reshape(layout *l, int32_t from, int32_t to) {
    static const int64_t inner[] = {1, 2};
    static const int64_t last[] = {2, 3};
    const mp_tensor *t = &l->graph->values[from].tensor;
    const mp_tensor row = {.type = t->type,
                           .shape = {.rank = 2, .dim = {t->shape.dim[0], t->shape.dim[RANK - 1]}}};
    int32_t between = MP_NO_VALUE;
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[from].name, &row, &between));
    MP_TRY(add_view(l, "Squeeze", from, inner, between));
    return add_view(l, "Unsqueeze", between, last, to);
}

/* The value of its twin. */
static mp_status add_back(layout *l, const mp_node *maker, int32_t twin, int32_t value) {
    return strncmp(maker->op->name, "Global", sizeof "Global" - 1) == 0
               ? add_reshape(l, twin, value)
               : add_transpose(l, twin, value, to_first);
}

/* The elements of a list that has one for each dimension, in the order of a twin's. */
static mp_status turn_list(layout *l, int32_t value, int32_t *out) {
    const mp_tensor order = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {RANK}}, .data = (mp_addr)to_last};
    const mp_tensor list = {.type = l->graph->values[value].tensor.type,
                            .shape = {.rank = 1, .dim = {RANK}}};
    const mp_node gather = {
        .op = mp_op_find("", "Gather", 13), .version = 13, .name = l->graph->values[value].name};
    int32_t in[] = {value, MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(l->graph, "", &order, &in[1]));
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[value].name, &list, out));
    return mp_graph_add_node(l->graph, &gather, in, 2, out, 1);
}

/* The twin of a value that is made of rows of pixels: these, seen as an image. What 0 means in the
 * list stays as it is. */
static mp_status add_image(layout *l, int32_t value, int32_t rows, int32_t list, int32_t twin) {
    const mp_node *reshape = &l->graph->nodes[l->graph->values[value].producer].node;
    const mp_attr *zero = mp_node_attr(reshape, "allowzero");
    const mp_node node = {.op = mp_op_find("", "Reshape", 14),
                          .version = 14,
                          .name = l->graph->values[rows].name,
                          .attrs = zero,
                          .attr_count = zero != NULL ? 1 : 0};
    int32_t in[] = {rows, MP_NO_VALUE};
    MP_TRY(turn_list(l, list, &in[1]));
    return mp_graph_add_node(l->graph, &node, in, 2, &twin, 1);
}

/* The twin, made by a Transpose if there is none. */
static mp_status need_twin(layout *l, int32_t value, int32_t *out) {
    int32_t rows = MP_NO_VALUE, list = MP_NO_VALUE;
    *out = twin_of(l, value);
    if (value == MP_NO_VALUE || *out != MP_NO_VALUE) {
        return MP_OK;
    }
    const mp_tensor tensor = turned(&l->graph->values[value].tensor, to_last);
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[value].name, &tensor, out));
    MP_TRY(mp_image_of_rows(l->graph, value, &rows, &list)
               ? add_image(l, value, rows, list, *out)
               : add_transpose(l, value, *out, to_last));
    return set_twin(l, value, *out);
}

/* ---- what an input becomes ---- */

/* Of no more dimensions than an image has, so that the result has no more. */
static bool is_one_element(const mp_tensor *t) {
    bool one = t->shape.rank >= 0 && t->shape.rank <= RANK;
    for (int d = 0; d < t->shape.rank; d++) {
        one = one && t->shape.dim[d] == 1;
    }
    return one;
}

/* Where a constant is longer than 1, as a dimension of RANK; -1 nowhere, -2 in several places. */
static int long_dim(const mp_shape *shape) {
    int found = -1;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dim[d] != 1) {
            found = found == -1 ? d + RANK - shape->rank : -2;
        }
    }
    return found;
}

/* Whether the value may be read by an element-wise node over twins. */
static bool is_turnable(const layout *l, int32_t value) {
    const mp_value *v = &l->graph->values[value];
    if (twin_of(l, value) != MP_NO_VALUE || is_one_element(&v->tensor)) {
        return true;
    }
    return v->is_constant && v->tensor.data != 0 && v->tensor.shape.rank <= RANK &&
           long_dim(&v->tensor.shape) >= 0;
}

/* A constant along one dimension has the same bytes in both orders. */
static mp_status turn_input(layout *l, int32_t value, int32_t *out) {
    const mp_value v = l->graph->values[value];
    *out = twin_of(l, value);
    if (*out != MP_NO_VALUE) {
        return MP_OK;
    }
    *out = value;
    mp_tensor tensor = v.tensor;
    const int dim = long_dim(&tensor.shape);
    if (dim < 0 || is_one_element(&tensor)) {
        return MP_OK;
    }
    const int64_t length = tensor.shape.dim[dim - RANK + tensor.shape.rank];
    tensor.shape = (mp_shape){.rank = RANK, .dim = {1, 1, 1, 1}};
    tensor.shape.dim[to_first[dim]] = length;
    MP_TRY(mp_graph_add_constant(l->graph, v.name, &tensor, out));
    l->graph->values[*out].device = v.device;
    return set_twin(l, value, *out);
}

/* ---- nodes ---- */

/* Puts `node` in the place of node `n`, over `in`; each output becomes a twin. */
static mp_status turn_node(layout *l, int32_t n, const mp_node *node, const int32_t *in,
                           int in_count) {
    const mp_vertex v = l->graph->nodes[n];
    int32_t out[WIDTH_MAX] = {MP_NO_VALUE};
    for (int i = 0; i < v.out_count; i++) {
        out[i] = MP_NO_VALUE;
        if (v.out[i] != MP_NO_VALUE) {
            const mp_tensor tensor = turned(&l->graph->values[v.out[i]].tensor, to_last);
            MP_TRY(mp_graph_add_value(l->graph, l->graph->values[v.out[i]].name, &tensor, &out[i]));
        }
    }
    MP_TRY(mp_graph_change_node(l->graph, n, node, in, in_count, out, v.out_count));
    for (int i = 0; i < v.out_count; i++) {
        if (v.out[i] != MP_NO_VALUE) {
            MP_TRY(add_back(l, node, out[i], v.out[i]));
            MP_TRY(set_twin(l, v.out[i], out[i]));
        }
    }
    return MP_OK;
}

static mp_node with_op(const mp_vertex *v, const mp_op *op) {
    mp_node node = v->node;
    node.op = op;
    return node;
}

/* ---- convolutions ---- */

static const mp_op *conv_op(const mp_vertex *v) {
    if (mp_vertex_is(v, "Conv")) {
        return mp_op_find(MP_NHWC_DOMAIN, "Conv", v->node.version);
    }
    return mp_vertex_is_own(v, "FusedConv") ? mp_op_find(MP_OWN_NHWC_DOMAIN, "FusedConv", 1) : NULL;
}

/* Of an image, with constant weights, of a type that tensor cores compute. */
static bool is_wanted(const layout *l, const mp_vertex *v) {
    const mp_value *w = &l->graph->values[v->in[1]];
    const mp_dtype type = w->tensor.type;
    return w->is_constant && w->tensor.shape.rank == RANK &&
           (type == MP_F16 || type == MP_BF16 || (type == MP_F32 && v->node.options.tf32) ||
            l->rewrites->forced);
}

/* Channels that a pixel has when it is loaded at once; 0 where a convolution gains nothing by zeros
 * behind the channels that there are, or others read the image, too. */
static int64_t padded_channels(const layout *l, const mp_vertex *v) {
    const mp_tensor *w = &l->graph->values[v->in[1]].tensor;
    const int64_t all = PIXEL_BYTES / (int64_t)mp_dtype_size(w->type);
    return w->data != 0 && w->type != MP_F64 && w->shape.dim[1] < all && w->shape.dim[1] > 0 &&
                   mp_node_int(&v->node, "group", 1) == 1 &&
                   mp_graph_dim(l->graph, v->in[0], 1) == w->shape.dim[1] &&
                   twin_of(l, v->in[0]) == MP_NO_VALUE && mp_graph_uses(l->graph, v->in[0]) == 1
               ? all
               : 0;
}

/* Zeros for those channels. */
static mp_status pad_weights(layout *l, int32_t weights, int64_t channels, int32_t *out) {
    const mp_value w = l->graph->values[weights];
    mp_tensor tensor = w.tensor;
    tensor.data = 0;
    tensor.shape.dim[1] = channels;
    MP_TRY(mp_graph_add_constant(l->graph, w.name, &tensor, out));
    const size_t inner = (size_t)mp_shape_span(&tensor.shape, 2, RANK) * mp_dtype_size(tensor.type);
    const size_t from = (size_t)w.tensor.shape.dim[1] * inner, to = (size_t)channels * inner;
    const unsigned char *source = (const unsigned char *)w.tensor.data;
    unsigned char *target = (unsigned char *)l->graph->values[*out].tensor.data;
    for (int64_t i = 0; i < tensor.shape.dim[0]; i++) {
        memcpy(target + (size_t)i * to, source + (size_t)i * from, from);
    }
    return MP_OK;
}

/* `in`: image and weights, which become those of so many channels. */
static mp_status pad_channels(layout *l, int32_t *in, int64_t channels) {
    mp_tensor tensor = turned(&l->graph->values[in[0]].tensor, to_last);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "PadChannels", 1),
                          .version = 1,
                          .name = l->graph->values[in[0]].name};
    const mp_origin itself = {.op = "Transpose", .name = node.name}; /* as where it pads nothing */
    const int32_t x = in[0];
    tensor.type = l->graph->values[in[1]].tensor.type;
    tensor.shape.dim[RANK - 1] = channels;
    MP_TRY(mp_graph_add_value(l->graph, node.name, &tensor, &in[0]));
    MP_TRY(mp_graph_add_node(l->graph, &node, &x, 1, &in[0], 1));
    MP_TRY(mp_graph_set_origins(l->graph, l->graph->node_count - 1, (mp_origins){&itself, 1}));
    return pad_weights(l, in[1], channels, &in[1]);
}

/* What a node becomes whose image a kernel of ours reads as it is, so that only the output becomes
 * a twin; without an operator where there is no such kernel. */
static mp_node stem_of(const layout *l, const mp_vertex *v) {
    const mp_tensor in[] = {l->graph->values[v->in[0]].tensor, l->graph->values[v->in[1]].tensor};
    mp_node node = with_op(v, mp_op_find(MP_OWN_DOMAIN, "StemConv", 1));
    const mp_planner known = {.node = &node, .in = in, .in_count = MP_COUNT_OF(in)};
    node.version = 1;
    if (v->in_count > 3 || twin_of(l, v->in[0]) != MP_NO_VALUE || node.op == NULL ||
        node.op->accept(&known) != MP_OK) {
        node.op = NULL;
    }
    return node;
}

static mp_status turn_conv(layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const mp_node stem = stem_of(l, &v);
    if (stem.op != NULL) {
        return turn_node(l, n, &stem, v.in, v.in_count);
    }
    const mp_node node = with_op(&v, conv_op(&v));
    const int64_t channels = padded_channels(l, &v);
    int32_t in[WIDTH_MAX];
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    if (channels > 0) {
        MP_TRY(pad_channels(l, in, channels));
    } else {
        MP_TRY(need_twin(l, v.in[0], &in[0]));
    }
    if (v.in_count > 3) {
        MP_TRY(need_twin(l, v.in[3], &in[3]));
    }
    return turn_node(l, n, &node, in, v.in_count);
}

/* ---- what follows ---- */

static bool reads_twins(const layout *l, const mp_vertex *v) {
    for (int i = 0; i < v->in_count; i++) {
        if (twin_of(l, v->in[i]) == MP_NO_VALUE) {
            return false;
        }
    }
    return v->in_count > 0;
}

static bool is_elementwise(const layout *l, const mp_vertex *v) {
    bool any = false;
    if (v->node.op->express == NULL || v->out_count != 1) {
        return false;
    }
    for (int i = 0; i < v->in_count; i++) {
        const bool twin = twin_of(l, v->in[i]) != MP_NO_VALUE;
        if (v->in[i] != MP_NO_VALUE && !is_turnable(l, v->in[i])) {
            return false;
        }
        any = any || (twin && !l->graph->values[v->in[i]].is_constant);
    }
    return any;
}

static mp_status turn_elementwise(layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    int32_t in[WIDTH_MAX];
    for (int i = 0; i < v.in_count; i++) {
        in[i] = MP_NO_VALUE;
        if (v.in[i] != MP_NO_VALUE) {
            MP_TRY(turn_input(l, v.in[i], &in[i]));
        }
    }
    return turn_node(l, n, &v.node, in, v.in_count);
}

/* Whether a reduction is over the whole of each channel. */
static bool is_over_image(const mp_graph *graph, const mp_vertex *v) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    if (mp_node_int(&v->node, "keepdims", 1) != 1 ||
        !mp_graph_ints(graph, v, "axes", 1, axes, &count) || count != 2) {
        return false;
    }
    const int64_t first = axes[0] < 0 ? axes[0] + RANK : axes[0];
    const int64_t second = axes[1] < 0 ? axes[1] + RANK : axes[1];
    return first != second && first >= 2 && second >= 2 && first < RANK && second < RANK;
}

/* Operators with a row of their own for channels last. */
static const mp_op *row_of(const mp_graph *graph, const mp_vertex *v) {
    static const char *const names[] = {"MaxPool",       "AveragePool",        "GlobalAveragePool",
                                        "GlobalMaxPool", "BatchNormalization", "LRN",
                                        "ConvTranspose", "DepthToSpace"};
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        if (mp_vertex_is(v, names[i]) && v->out_count == 1) {
            return mp_op_find(MP_NHWC_DOMAIN, names[i], v->node.version);
        }
    }
    const bool is_float = (MP_BIT(mp_graph_type(graph, v->in[0])) & MP_FLOATS) != 0;
    if (mp_vertex_is(v, "ReduceMean") && is_float && is_over_image(graph, v)) {
        return mp_op_find(MP_NHWC_DOMAIN, "GlobalAveragePool", 1);
    }
    return NULL;
}

static mp_status turn_row(layout *l, int32_t n, const mp_op *op) {
    const mp_vertex v = l->graph->nodes[n];
    const bool is_reduction =
        mp_vertex_is(&v, "ReduceMean"); /* whose axes are an input or attribute */
    mp_node node = with_op(&v, op);
    int32_t in[WIDTH_MAX];
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    in[0] = twin_of(l, v.in[0]);
    if (is_reduction) {
        node.version = 1;
        node.attr_count = 0;
    }
    return turn_node(l, n, &node, in, is_reduction ? 1 : v.in_count);
}

/* ---- along an axis ---- */

static bool has_axis(const mp_vertex *v) {
    return mp_vertex_is(v, "Concat") || mp_vertex_is(v, "Split");
}

static mp_status turn_axis(layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    mp_attr attrs[ATTRS_MAX];
    size_t count = 0;
    const int64_t axis = mp_node_int(&v.node, "axis", 0);
    int32_t in[WIDTH_MAX];
    for (size_t i = 0; i < v.node.attr_count; i++) {
        if (strcmp(v.node.attrs[i].name, "axis") != 0) {
            attrs[count++] = v.node.attrs[i];
        }
    }
    attrs[count++] = (mp_attr){
        .name = "axis", .kind = MP_ATTR_INT, .i = to_first[axis < 0 ? axis + RANK : axis]};
    for (int i = 0; i < v.in_count; i++) {
        const bool is_image = i == 0 || mp_vertex_is(&v, "Concat");
        in[i] = is_image ? twin_of(l, v.in[i]) : v.in[i];
    }
    mp_node node = v.node;
    node.attrs = attrs;
    node.attr_count = count;
    return turn_node(l, n, &node, in, v.in_count);
}

static bool is_along_axis(const layout *l, const mp_vertex *v) {
    const int64_t axis = mp_node_int(&v->node, "axis", 0);
    return has_axis(v) && axis >= -RANK && axis < RANK && v->node.attr_count < ATTRS_MAX &&
           (mp_vertex_is(v, "Concat") ? reads_twins(l, v)
                                      : twin_of(l, mp_vertex_in(v, 0)) != MP_NO_VALUE);
}

/* ---- Resize: what it reads of sizes is in the order of dimensions ---- */

/* Lists of all dimensions that are known while planning. */
static bool is_resize(const layout *l, const mp_vertex *v) {
    if (!mp_vertex_is(v, "Resize") || v->node.version < 11 || twin_of(l, v->in[0]) == MP_NO_VALUE ||
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

static mp_status turn_resize(layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    int32_t in[WIDTH_MAX];
    for (int i = 0; i < v.in_count; i++) {
        in[i] = i == 0 ? twin_of(l, v.in[0]) : i == 1 ? MP_NO_VALUE : v.in[i];
        if (i >= 2 && v.in[i] != MP_NO_VALUE && !is_empty(&l->graph->values[v.in[i]].tensor)) {
            MP_TRY(turn_list(l, v.in[i], &in[i]));
        }
    }
    return turn_node(l, n, &v.node, in, v.in_count);
}

/* ---- transpositions of the model ---- */

static bool has_perm(const mp_vertex *v, const int64_t *perm) {
    const mp_attr *given = mp_vertex_is(v, "Transpose") ? mp_node_attr(&v->node, "perm") : NULL;
    return given != NULL && given->count == RANK &&
           memcmp(given->ints, perm, RANK * sizeof *perm) == 0;
}

/* Node `n` sees the twin of an image as rows of pixels. */
static mp_status view_rows(layout *l, int32_t n, int32_t twin, const int64_t dim[3]) {
    const mp_vertex v = l->graph->nodes[n];
    const mp_tensor list = {.type = MP_I64, .shape = {.rank = 1, .dim = {3}}, .data = (mp_addr)dim};
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

/* One that brings channels to the end gives the twin; what is brought to the front has one. */
static mp_status take_transpose(layout *l, int32_t n) {
    const mp_vertex *v = &l->graph->nodes[n];
    const int32_t twin = twin_of(l, v->in[0]);
    int32_t image = MP_NO_VALUE;
    int64_t dim[3];
    if (mp_rows_of_image(l->graph, n, &image, dim) && twin_of(l, image) != MP_NO_VALUE &&
        mp_rewrite_allowed(l->rewrites)) {
        return view_rows(l, n, twin_of(l, image), dim);
    }
    if (has_perm(v, to_first)) {
        return set_twin(l, v->out[0], v->in[0]);
    }
    if (has_perm(v, to_last) && twin != MP_NO_VALUE && !mp_graph_is_output(l->graph, v->out[0]) &&
        mp_rewrite_allowed(l->rewrites)) {
        mp_graph_replace(l->graph, v->out[0], twin, false);
        mp_graph_remove_node(l->graph, n);
    }
    return MP_OK;
}

/* ---- all ---- */

static mp_status turn(layout *l, int32_t n) {
    const mp_vertex *v = &l->graph->nodes[n];
    const bool fits = !v->is_gone && v->guard == 0 && v->loop == NULL && v->in_count > 0 &&
                      v->in_count <= WIDTH_MAX && v->out_count <= WIDTH_MAX &&
                      v->in[0] != MP_NO_VALUE;
    const mp_op *row = fits ? row_of(l->graph, v) : NULL;
    if (!fits) {
        return MP_OK;
    }
    if (mp_vertex_is(v, "Transpose")) {
        return take_transpose(l, n);
    }
    if (conv_op(v) != NULL) {
        return is_wanted(l, v) && mp_rewrite_allowed(l->rewrites) ? turn_conv(l, n) : MP_OK;
    }
    if (row != NULL && twin_of(l, v->in[0]) != MP_NO_VALUE) {
        return mp_rewrite_allowed(l->rewrites) ? turn_row(l, n, row) : MP_OK;
    }
    if (is_elementwise(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? turn_elementwise(l, n) : MP_OK;
    }
    if (is_along_axis(l, v)) {
        return mp_rewrite_allowed(l->rewrites) ? turn_axis(l, n) : MP_OK;
    }
    return is_resize(l, v) && mp_rewrite_allowed(l->rewrites) ? turn_resize(l, n) : MP_OK;
}

mp_status mp_pass_channels_last(mp_graph *graph, mp_rewrites *rewrites) {
    layout l = {.graph = graph, .rewrites = rewrites};
    const int32_t count = graph->node_count;
    mp_status status = MP_OK;
    if (!graph->prefers_last && !rewrites->forced) {
        return MP_OK;
    }
    for (int32_t n = 0; n < count && status == MP_OK; n++) {
        status = turn(&l, n);
    }
    free(l.twins);
    MP_TRY(status);
    mp_graph_compact(graph);
    return mp_graph_sort(graph);
}
