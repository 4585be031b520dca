/* look.c - see look.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"

#include "op/core/host_float.h"

#include <math.h>
#include <string.h>

/* How far a question goes: so many nodes in a row, and where it goes on to several inputs of a node
 * so many in all, since a model may read each value twice on every way. */
enum { DEEP = 24, NODES_MAX = 128 };

/* ---- neighbours ---- */

bool mp_vertex_is_own(const mp_vertex *v, const char *name) {
    return !v->is_gone && strcmp(v->node.op->domain, MP_OWN_DOMAIN) == 0 &&
           strcmp(v->node.op->name, name) == 0;
}

bool mp_vertex_is_any(const mp_vertex *v, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (mp_vertex_is(v, names[i])) {
            return true;
        }
    }
    return false;
}

const mp_attr *mp_vertex_perm(const mp_vertex *v) {
    const mp_attr *perm = mp_vertex_is(v, "Transpose") ? mp_node_attr(&v->node, "perm") : NULL;
    uint32_t seen = 0;
    if (perm == NULL || perm->count > MP_RANK_MAX) {
        return NULL;
    }
    for (size_t i = 0; i < perm->count; i++) {
        const int64_t at = perm->ints[i];
        seen |= at >= 0 && at < (int64_t)perm->count ? 1u << at : 0;
    }
    return seen == (1u << perm->count) - 1 ? perm : NULL;
}

bool mp_graph_turns(const mp_graph *graph, int32_t n, const int64_t *order, int rank) {
    const mp_attr *perm = n != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
    return perm != NULL && perm->count == (size_t)rank &&
           memcmp(perm->ints, order, (size_t)rank * sizeof *order) == 0;
}

bool mp_graph_same_guard(const mp_graph *graph, int32_t a, int32_t b) {
    return graph->nodes[a].guard == graph->nodes[b].guard;
}

bool mp_graph_can_wait(const mp_graph *graph, int32_t early, int32_t late) {
    const mp_vertex *made = &graph->nodes[early];
    for (int32_t n = early + 1; n <= late; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            for (int o = 0; o < made->out_count; o++) {
                if (v->in[i] != MP_NO_VALUE && v->in[i] == made->out[o]) {
                    return false;
                }
            }
        }
    }
    return true;
}

int32_t mp_graph_maker(const mp_graph *graph, int32_t value, const char *name) {
    const int32_t n = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    return n != MP_NO_NODE && (name == NULL || mp_vertex_is(&graph->nodes[n], name)) ? n
                                                                                     : MP_NO_NODE;
}

int32_t mp_graph_reader(const mp_graph *graph, int32_t value, const char *name) {
    int32_t found = MP_NO_NODE;
    if (value == MP_NO_VALUE || mp_graph_is_output(graph, value) ||
        mp_graph_is_condition(graph, value)) {
        return MP_NO_NODE;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            if (v->in[i] == value && found != MP_NO_NODE) {
                return MP_NO_NODE;
            }
            found = v->in[i] == value ? n : found;
        }
    }
    const int32_t maker = graph->values[value].producer;
    return found != MP_NO_NODE && (name == NULL || mp_vertex_is(&graph->nodes[found], name)) &&
                   (maker == MP_NO_NODE || mp_graph_same_guard(graph, maker, found))
               ? found
               : MP_NO_NODE;
}

/* ---- values that are known ---- */

const mp_tensor *mp_graph_constant(const mp_graph *graph, int32_t value) {
    return value != MP_NO_VALUE && graph->values[value].is_constant ? &graph->values[value].tensor
                                                                    : NULL;
}

static bool is_known(const mp_graph *graph, int32_t value) {
    const mp_tensor *constant = mp_graph_constant(graph, value);
    return constant != NULL && constant->data != 0;
}

static bool constant_number(const mp_graph *graph, int32_t value, double *out) {
    if (!is_known(graph, value) || mp_shape_count(&graph->values[value].tensor.shape) != 1) {
        return false;
    }
    const mp_tensor *tensor = &graph->values[value].tensor;
    switch (tensor->type) {
    case MP_F32:
    case MP_F64:
    case MP_F16:
    case MP_BF16:
        *out = mp_host_float(tensor, 0);
        return true;
    case MP_I64:
        *out = (double)*(const int64_t *)tensor->data;
        return true;
    case MP_I32:
        *out = (double)*(const int32_t *)tensor->data;
        return true;
    default:
        return false;
    }
}

bool mp_graph_ints(const mp_graph *graph, const mp_vertex *v, const char *name, int i, int64_t *out,
                   int *count) {
    const mp_attr *attr = mp_node_attr(&v->node, name);
    if (attr != NULL && attr->kind == MP_ATTR_INTS && attr->count <= MP_RANK_MAX) {
        memcpy(out, attr->ints, attr->count * sizeof *out);
        *count = (int)attr->count;
        return true;
    }
    const int32_t value = i >= 0 ? mp_vertex_in(v, i) : MP_NO_VALUE;
    if (!is_known(graph, value)) {
        return false;
    }
    const mp_tensor *x = &graph->values[value].tensor;
    const int64_t length = mp_shape_count(&x->shape);
    if (length > MP_RANK_MAX || (x->type != MP_I64 && x->type != MP_I32)) {
        return false;
    }
    for (int64_t e = 0; e < length; e++) {
        out[e] = x->type == MP_I64 ? ((const int64_t *)x->data)[e] : ((const int32_t *)x->data)[e];
    }
    *count = (int)length;
    return true;
}

/* Operators that make small values of small ones. */
static bool stays_small(const mp_vertex *v) {
    static const char *const names[] = {"Cast",  "Concat", "Div",     "Gather",
                                        "Mul",   "Pow",    "Reshape", "Reciprocal",
                                        "Slice", "Sqrt",   "Squeeze", "Unsqueeze"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names));
}

static bool is_planned(const mp_graph *graph, int32_t value, int *left) {
    if (value == MP_NO_VALUE || is_known(graph, value)) {
        return value == MP_NO_VALUE ||
               mp_shape_count(&graph->values[value].tensor.shape) <= MP_RANK_MAX;
    }
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || (*left)-- <= 0) {
        return false;
    }
    if (v->node.op->host_out != 0 && !v->node.op->draws) {
        return true;
    }
    for (int i = 0; i < v->in_count; i++) {
        if (!stays_small(v) || !is_planned(graph, v->in[i], left)) {
            return false;
        }
    }
    return stays_small(v);
}

bool mp_graph_is_planned(const mp_graph *graph, int32_t value) {
    int left = NODES_MAX;
    return value != MP_NO_VALUE && is_planned(graph, value, &left);
}

/* ---- types and shapes ---- */

static const mp_vertex *maker_of(const mp_graph *graph, int32_t value, const char *name) {
    const int32_t n = mp_graph_maker(graph, value, name);
    return n != MP_NO_NODE && graph->nodes != NULL ? &graph->nodes[n] : NULL;
}

static int64_t known_length(const mp_graph *graph, int32_t value) {
    const mp_vertex *picks = maker_of(graph, value, "Gather"); /* as many as it has indices */
    const int32_t like = picks != NULL && graph->values[value].tensor.shape.rank < 0
                             ? mp_vertex_in(picks, 1)
                             : value;
    const mp_shape *shape = like != MP_NO_VALUE ? &graph->values[like].tensor.shape : NULL;
    return shape != NULL && shape->rank == 1 && shape->dim[0] >= 0 ? shape->dim[0] : MP_DIM_UNKNOWN;
}

int64_t mp_graph_list_length(const mp_graph *graph, int32_t value) {
    int64_t length = known_length(graph, value);
    const mp_vertex *cast = length < 0 ? maker_of(graph, value, "Cast") : NULL;
    const mp_vertex *v = maker_of(graph, cast != NULL ? cast->in[0] : value, "Concat");
    if (length >= 0 || v == NULL) {
        return length;
    }
    length = 0;
    for (int i = 0; i < v->in_count; i++) {
        const bool one = mp_graph_maker(graph, v->in[i], "Unsqueeze") != MP_NO_NODE;
        const int64_t part = one ? 1 : known_length(graph, v->in[i]);
        if (part < 0) {
            return MP_DIM_UNKNOWN;
        }
        length += part;
    }
    return length;
}

int64_t mp_graph_entry(const mp_graph *graph, int32_t value, int i) {
    const mp_tensor *list = &graph->values[value].tensor;
    const int64_t *elements = is_known(graph, value) ? (const int64_t *)list->data : NULL;
    if (elements != NULL) {
        return list->type == MP_I64 && i >= 0 && i < mp_shape_count(&list->shape) ? elements[i]
                                                                                  : MP_DIM_UNKNOWN;
    }
    const mp_vertex *v = maker_of(graph, value, "Concat");
    for (int part = 0; v != NULL && part < v->in_count; part++) {
        const int32_t x = v->in[part];
        const bool one = mp_graph_maker(graph, x, "Unsqueeze") != MP_NO_NODE;
        const int64_t length = one ? 1 : mp_graph_list_length(graph, x);
        if (length < 0 || i < length) {
            return length > 0 && is_known(graph, x) ? mp_graph_entry(graph, x, i) : MP_DIM_UNKNOWN;
        }
        i -= (int)length;
    }
    return MP_DIM_UNKNOWN;
}

/* Operators whose outputs have the rank that their inputs broadcast to. */
static bool broadcasts(const mp_vertex *v) {
    static const char *const names[] = {"Add", "Sub",   "Mul",    "Div",
                                        "Pow", "Where", "MatMul", "Concat"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names));
}

bool mp_vertex_is_of_pixels(const mp_vertex *v, const mp_shape *w) {
    return w->rank >= 3 && mp_shape_span(w, 2, w->rank) == 1 &&
           mp_node_int(&v->node, "group", 1) == 1 && mp_node_ints_are(&v->node, "pads", 0) &&
           mp_node_ints_are(&v->node, "strides", 1);
}

bool mp_vertex_keeps_shape(const mp_vertex *v) {
    static const char *const names[] = {"Abs",
                                        "Affine",
                                        "Cast",
                                        "Celu",
                                        "Clip",
                                        "Cos",
                                        "CumSum",
                                        "DequantizeLinear",
                                        "Elu",
                                        "Erf",
                                        "Exp",
                                        "FastGelu",
                                        "Gelu",
                                        "HardSigmoid",
                                        "HardSwish",
                                        "HeldRMSNormalization",
                                        "LeakyRelu",
                                        "LayerNormalization",
                                        "Log",
                                        "Mish",
                                        "Neg",
                                        "QuantizeLinear",
                                        "QuickGelu",
                                        "RMSNormalization",
                                        "Reciprocal",
                                        "Relu",
                                        "Roll",
                                        "Selu",
                                        "SimplifiedLayerNormalization",
                                        "Sigmoid",
                                        "Sin",
                                        "Softmax",
                                        "Softplus",
                                        "Sqrt",
                                        "Swish",
                                        "Tanh"};
    for (size_t i = 0; i < MP_COUNT_OF(names) && !v->is_gone; i++) { /* of whichever domain */
        if (strcmp(v->node.op->name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Operators whose output has the rank of their first input. */
static bool keeps_rank(const mp_vertex *v) {
    static const char *const names[] = {"Split", "Slice", "Pad"};
    static const char *const images[] = {"Conv", "FusedConv", "MaxPool", "AveragePool"};
    bool keeps = false;
    for (size_t i = 0; i < MP_COUNT_OF(images); i++) { /* of whichever domain */
        keeps = keeps || strcmp(v->node.op->name, images[i]) == 0;
    }
    return keeps || mp_vertex_is_any(v, names, MP_COUNT_OF(names)) || mp_vertex_keeps_shape(v) ||
           mp_vertex_is_own(v, "MatMulBias") || mp_vertex_is_own(v, "IntegerProduct") ||
           mp_vertex_is_own(v, "ShuffleParts") || strcmp(v->node.op->name, "MatMulNBits") == 0 ||
           mp_vertex_is(v, "GlobalAveragePool") ||
           (mp_vertex_is(v, "ReduceMean") && mp_node_int(&v->node, "keepdims", 1) == 1);
}

/* How many dimensions an Unsqueeze puts in; or MP_DIM_UNKNOWN. */
static int unsqueezed(const mp_graph *graph, const mp_vertex *v) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    return mp_vertex_is(v, "Unsqueeze") && mp_graph_ints(graph, v, "axes", 1, axes, &count)
               ? count
               : MP_DIM_UNKNOWN;
}

static int rank_of(const mp_graph *graph, int32_t value, int *left) {
    if (value == MP_NO_VALUE || graph->values[value].tensor.shape.rank >= 0 || (*left)-- <= 0) {
        return value != MP_NO_VALUE ? graph->values[value].tensor.shape.rank : MP_DIM_UNKNOWN;
    }
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL) {
        return MP_DIM_UNKNOWN;
    }
    const mp_attr *perm = mp_vertex_perm(v);
    if (perm != NULL) {
        return (int)perm->count;
    }
    if (mp_vertex_is(v, "Reshape") && mp_vertex_in(v, 1) != MP_NO_VALUE) {
        return (int)mp_graph_list_length(graph, v->in[1]);
    }
    if (mp_vertex_is_own(v, "RotaryHalves") || mp_vertex_is_own(v, "HeadsPart")) {
        return 4;
    }
    const int more = keeps_rank(v) ? 0 : unsqueezed(graph, v);
    if (more >= 0) {
        const int before = rank_of(graph, v->in[0], left);
        return before >= 0 ? before + more : MP_DIM_UNKNOWN;
    }
    int most = MP_DIM_UNKNOWN;
    for (int i = 0; broadcasts(v) && i < v->in_count; i++) {
        const int rank = rank_of(graph, v->in[i], left);
        if (rank < 0 || (rank < 2 && mp_vertex_is(v, "MatMul"))) { /* which drops such a one */
            return MP_DIM_UNKNOWN;
        }
        most = MP_MAX(rank, most);
    }
    return most;
}

int mp_graph_rank(const mp_graph *graph, int32_t value) {
    int left = NODES_MAX;
    return rank_of(graph, value, &left);
}

bool mp_graph_same_rank(const mp_graph *graph, int32_t a, int32_t b) {
    return mp_graph_rank(graph, a) == mp_graph_rank(graph, b);
}

static int64_t dim_of(const mp_graph *graph, int32_t value, int from_end, int *left) {
    const mp_shape *shape = &graph->values[value].tensor.shape;
    if (shape->rank >= from_end && shape->dim[shape->rank - from_end] >= 0) {
        return shape->dim[shape->rank - from_end];
    }
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v != NULL && mp_vertex_is(v, "Reshape")) {
        const int64_t entry =
            mp_graph_entry(graph, v->in[1], mp_graph_rank(graph, value) - from_end);
        return entry > 0 ? entry : MP_DIM_UNKNOWN;
    }
    if (v == NULL || (*left)-- <= 0) {
        return MP_DIM_UNKNOWN;
    }
    const mp_attr *perm = mp_vertex_is(v, "Transpose") ? mp_vertex_perm(v) : NULL;
    if (perm != NULL && perm->count >= (size_t)from_end) {
        const int64_t d = perm->ints[perm->count - (size_t)from_end];
        return dim_of(graph, v->in[0], (int)((int64_t)perm->count - d), left);
    }
    if (mp_vertex_keeps_shape(v) || (from_end == 1 && mp_vertex_is_own(v, "RotaryHalves") &&
                                     mp_node_attr(&v->node, "part") == NULL)) {
        return dim_of(graph, v->in[0], from_end, left);
    }
    const bool each = broadcasts(v) && !mp_vertex_is(v, "MatMul") && !mp_vertex_is(v, "Concat");
    for (int i = 0; each && i < v->in_count; i++) { /* any but 1 is the result's */
        const int64_t dim = dim_of(graph, v->in[i], from_end, left);
        if (dim > 1) {
            return dim;
        }
    }
    return MP_DIM_UNKNOWN;
}

int64_t mp_graph_dim(const mp_graph *graph, int32_t value, int d) {
    const int rank = mp_graph_rank(graph, value);
    const int at = d < 0 ? d + rank : d;
    int left = NODES_MAX;
    return at >= 0 && at < rank ? dim_of(graph, value, rank - at, &left) : MP_DIM_UNKNOWN;
}

bool mp_graph_same_shape(const mp_graph *graph, int32_t a, int32_t b) {
    const int rank = mp_graph_rank(graph, a);
    bool same = rank >= 0 && rank == mp_graph_rank(graph, b);
    for (int d = 0; d < rank && same; d++) {
        const int64_t dim = mp_graph_dim(graph, a, d);
        same = dim >= 0 && dim == mp_graph_dim(graph, b, d);
    }
    return same;
}

bool mp_graph_axis_is(const mp_graph *graph, int32_t n, int axis) {
    const mp_vertex *v = &graph->nodes[n];
    const int64_t given = mp_node_int(&v->node, "axis", 0);
    return given == axis || (given < 0 && given + mp_graph_rank(graph, v->out[0]) == axis);
}

int32_t mp_graph_before_last(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Unsqueeze");
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    if (n == MP_NO_NODE || !mp_graph_ints(graph, &graph->nodes[n], "axes", 1, axes, &count) ||
        count != 1) {
        return MP_NO_VALUE;
    }
    const int32_t from = graph->nodes[n].in[0];
    const int rank = mp_graph_rank(graph, from);
    return rank >= 0 && (axes[0] == -1 || axes[0] == rank) ? from : MP_NO_VALUE;
}

/* Operators that give elements of their first input. */
static bool moves(const mp_vertex *v) {
    static const char *const names[] = {"Transpose", "Reshape", "Expand", "Unsqueeze", "Squeeze",
                                        "Slice",     "Gather",  "Split",  "Tile"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names));
}

/* The attribute that names the type of a node's result, or NULL. */
static const char *type_attr(const mp_vertex *v) {
    if (mp_vertex_is(v, "Cast") || mp_vertex_is_own(v, "IntegerProduct")) {
        return "to";
    }
    return mp_vertex_is(v, "QuantizeLinear") || mp_vertex_is(v, "DequantizeLinear") ? "output_dtype"
                                                                                    : NULL;
}

/* The input that has the type of the result where no attribute says it, or MP_NO_VALUE. */
static int32_t of_the_type(const mp_vertex *v) {
    if (mp_vertex_is(v, "QuantizeLinear")) {
        return mp_vertex_in(v, 2);
    }
    if (mp_vertex_is(v, "DequantizeLinear") || mp_vertex_is(v, "Where")) {
        return mp_vertex_in(v, 1);
    }
    const bool keeps = broadcasts(v) || moves(v) || keeps_rank(v) || mp_vertex_is(v, "Gemm") ||
                       mp_vertex_is_own(v, "RotaryHalves");
    return keeps && type_attr(v) == NULL ? v->in[0] : MP_NO_VALUE;
}

mp_dtype mp_graph_type(const mp_graph *graph, int32_t value) {
    for (int depth = 0; value != MP_NO_VALUE && depth < DEEP; depth++) {
        const int32_t n = mp_graph_maker(graph, value, NULL);
        const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
        if (graph->values[value].tensor.type != MP_NONE || v == NULL) {
            return graph->values[value].tensor.type;
        }
        const char *attr = type_attr(v);
        const int64_t said = attr != NULL ? mp_node_int(&v->node, attr, 0) : 0;
        if (said != 0) {
            return mp_dtype_of_onnx(said);
        }
        value = of_the_type(v);
    }
    return MP_NONE;
}

/* ---- numbers that follow from dimensions ---- */

/* Where in a list the one element is that a Slice, or a Gather of one index, takes; false where
 * that is not known. From the end where negative. */
static bool taken_index(const mp_graph *graph, const mp_vertex *v, int64_t *index) {
    int64_t start[MP_RANK_MAX], end[MP_RANK_MAX];
    int starts = 0, ends = 0;
    if (mp_vertex_is(v, "Gather")) {
        const bool known = mp_graph_ints(graph, v, "", 1, start, &starts) && starts == 1;
        *index = known ? start[0] : 0;
        return known;
    }
    const bool known = mp_vertex_is(v, "Slice") &&
                       mp_graph_ints(graph, v, "starts", 1, start, &starts) && starts == 1 &&
                       mp_graph_ints(graph, v, "ends", 2, end, &ends) && ends == 1 &&
                       mp_vertex_in(v, 4) == MP_NO_VALUE;
    *index = known ? start[0] : 0;
    return known && ((start[0] < INT64_MAX && end[0] == start[0] + 1) ||
                     (start[0] == -1 && end[0] > MP_RANK_MAX));
}

/* Element `index` of a list that is a shape, or a shape in another order. */
static int64_t element_of(const mp_graph *graph, int32_t list, int64_t index, int depth) {
    const int32_t n = mp_graph_maker(graph, list, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    int64_t order[MP_RANK_MAX];
    int count = 0;
    if (v == NULL || depth == 0) {
        return MP_DIM_UNKNOWN;
    }
    if (mp_vertex_is(v, "Shape")) {
        const bool whole =
            mp_node_int(&v->node, "start", 0) == 0 && mp_node_attr(&v->node, "end") == NULL;
        return whole && index >= -MP_RANK_MAX && index < MP_RANK_MAX
                   ? mp_graph_dim(graph, v->in[0], (int)index)
                   : MP_DIM_UNKNOWN;
    }
    if (!mp_vertex_is(v, "Gather") || !mp_graph_ints(graph, v, "", 1, order, &count) ||
        index < -count || index >= count) {
        return MP_DIM_UNKNOWN;
    }
    return element_of(graph, v->in[0], order[index < 0 ? index + count : index], depth - 1);
}

static bool casts_to_float(const mp_vertex *v) {
    const int64_t to = mp_node_int(&v->node, "to", 0);
    return mp_vertex_is(v, "Cast") && to > 0 && to < MP_DTYPE_END &&
           (MP_FLOATS & MP_BIT((mp_dtype)to)) != 0;
}

static bool number_of(const mp_graph *graph, int32_t value, int *left, double *out) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    double second = 0;
    int64_t index = 0;
    if (v == NULL || (*left)-- <= 0) {
        return constant_number(graph, value, out);
    }
    if (taken_index(graph, v, &index)) {
        const int64_t element = element_of(graph, v->in[0], index, DEEP);
        *out = (double)element;
        return element > 0;
    }
    const bool two = mp_vertex_is(v, "Div") || mp_vertex_is(v, "Mul");
    const bool one = mp_vertex_is(v, "Sqrt") || mp_vertex_is(v, "Reciprocal") || casts_to_float(v);
    if ((!one && !two) || !number_of(graph, v->in[0], left, out) ||
        (two && !number_of(graph, v->in[1], left, &second))) {
        return false;
    }
    *out = mp_vertex_is(v, "Sqrt")         ? sqrt(*out)
           : mp_vertex_is(v, "Reciprocal") ? 1 / *out
           : mp_vertex_is(v, "Div")        ? *out / second
           : mp_vertex_is(v, "Mul")        ? *out * second
                                           : *out;
    return isfinite(*out);
}

bool mp_graph_number(const mp_graph *graph, int32_t value, double *out) {
    int left = NODES_MAX;
    return value != MP_NO_VALUE && number_of(graph, value, &left, out);
}
