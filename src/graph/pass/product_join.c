/* product_join.c - see product_join.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/product_join.h"

#include <stdio.h>
#include <string.h>

enum { ATTRS_MAX = 16, INPUTS_MAX = 6 };
enum { WEIGHTS = 1, BIAS = 2 };                            /* inputs of MatMul and MatMulBias */
enum { SCALES = 2, ZEROS = 3, GROUPS = 4, BITS_BIAS = 5 }; /* and those of MatMulNBits */

static bool is_packed(const mp_vertex *v) {
    return !v->is_gone && strcmp(v->node.op->name, "MatMulNBits") == 0;
}

static bool is_plain(const mp_vertex *v) {
    return mp_vertex_is(v, "MatMul") || mp_vertex_is_own(v, "MatMulBias");
}

/* Input `i`, if it is a constant whose bytes are here; or NULL. */
static const mp_tensor *input_of(const mp_graph *graph, const mp_vertex *v, int i) {
    const mp_tensor *constant = mp_graph_constant(graph, mp_vertex_in(v, i));
    return constant != NULL && constant->data != 0 ? constant : NULL;
}

/* Of a matrix, and a bias that has an element for each of its columns. */
static int64_t plain_columns(const mp_graph *graph, const mp_vertex *v) {
    const mp_tensor *weights = input_of(graph, v, WEIGHTS);
    const mp_tensor *bias = input_of(graph, v, BIAS);
    if (weights == NULL || weights->shape.rank != 2 || v->in_count > BIAS + 1) {
        return 0;
    }
    const int64_t columns = weights->shape.dim[1];
    return bias == NULL || (bias->type == weights->type && bias->shape.rank == 1 &&
                            bias->shape.dim[0] == columns)
               ? columns
               : 0;
}

/* Of a matrix that has them as rows, and other constants with as many elements for each. */
static int64_t packed_columns(const mp_graph *graph, const mp_vertex *v) {
    const int64_t columns = mp_node_int(&v->node, "N", 0);
    const mp_tensor *weights = input_of(graph, v, WEIGHTS);
    if (columns <= 0 || weights == NULL || weights->shape.rank < 1 ||
        weights->shape.dim[0] != columns || mp_vertex_in(v, GROUPS) != MP_NO_VALUE ||
        mp_node_int(&v->node, "weight_prepacked", 0) != 0) {
        return 0;
    }
    for (int i = WEIGHTS; i < v->in_count; i++) {
        const mp_tensor *x = input_of(graph, v, i);
        if (x != NULL && (x->shape.rank < 1 || x->shape.dim[0] % columns != 0)) {
            return 0;
        }
    }
    return columns;
}

/* Weights that several products share, as layers of some networks do, are put together once for all
 * of them; those that anything else reads would be kept twice. */
static bool are_for_products(const mp_graph *graph, const mp_vertex *v) {
    const int32_t weights = v->in[WEIGHTS];
    int uses = mp_graph_uses(graph, weights);
    if (uses == 1 || is_packed(v)) {
        return uses == 1;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *reader = &graph->nodes[n];
        uses -= is_plain(reader) && reader->in[WEIGHTS] == weights;
    }
    return uses == 0;
}

mp_product mp_product_of(const mp_graph *graph, int32_t y) {
    mp_product p = {.node = MP_NO_NODE};
    const int32_t n = mp_graph_maker(graph, y, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || !(is_plain(v) || is_packed(v)) || v->in_count > INPUTS_MAX ||
        v->node.attr_count > ATTRS_MAX || !are_for_products(graph, v)) {
        return p;
    }
    for (int i = WEIGHTS; i < v->in_count; i++) {
        if (v->in[i] != MP_NO_VALUE && input_of(graph, v, i) == NULL) {
            return p;
        }
    }
    p.x = v->in[0];
    p.columns = is_plain(v) ? plain_columns(graph, v) : packed_columns(graph, v);
    p.node = p.columns > 0 ? n : MP_NO_NODE;
    return p;
}

/* ---- which go together ---- */

/* Of one type, with rows as long and as many for each column. */
static bool rows_alike(const mp_tensor *a, int64_t of_a, const mp_tensor *b, int64_t of_b) {
    bool alike = a->type == b->type && a->shape.rank == b->shape.rank &&
                 a->shape.dim[0] / of_a == b->shape.dim[0] / of_b;
    for (int d = 1; alike && d < a->shape.rank; d++) {
        alike = a->shape.dim[d] == b->shape.dim[d];
    }
    return alike;
}

static bool packed_alike(const mp_graph *graph, const mp_product *p, const mp_product *q) {
    const mp_vertex *a = &graph->nodes[p->node], *b = &graph->nodes[q->node];
    static const char *const names[] = {"K", "bits", "block_size", "accuracy_level"};
    static const int inputs[] = {WEIGHTS, SCALES, ZEROS, BITS_BIAS};
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        const int64_t none = strcmp(names[i], "bits") == 0 ? 4 : 0;
        if (mp_node_int(&a->node, names[i], none) != mp_node_int(&b->node, names[i], none)) {
            return false;
        }
    }
    for (size_t i = 0; i < MP_COUNT_OF(inputs); i++) {
        const mp_tensor *x = input_of(graph, a, inputs[i]);
        const mp_tensor *y = input_of(graph, b, inputs[i]);
        if ((x == NULL) != (y == NULL) ||
            (x != NULL && !rows_alike(x, p->columns, y, q->columns))) {
            return false;
        }
    }
    return true;
}

bool mp_products_alike(const mp_graph *graph, const mp_product *a, const mp_product *b) {
    if (a->node == MP_NO_NODE || b->node == MP_NO_NODE || a->x != b->x ||
        !mp_graph_same_guard(graph, a->node, b->node)) {
        return false;
    }
    const mp_vertex *of_a = &graph->nodes[a->node], *of_b = &graph->nodes[b->node];
    if (is_packed(of_a) || is_packed(of_b)) {
        return is_packed(of_a) && is_packed(of_b) && packed_alike(graph, a, b);
    }
    const mp_tensor *wa = input_of(graph, of_a, WEIGHTS), *wb = input_of(graph, of_b, WEIGHTS);
    return wa->type == wb->type && wa->shape.dim[0] == wb->shape.dim[0];
}

/* ---- constants ---- */

static const char *name_of(const mp_graph *graph, int32_t value) {
    return value != MP_NO_VALUE ? graph->values[value].name : "";
}

static void joined_name(const mp_graph *graph, const int32_t *values, char *name, size_t size) {
    (void)snprintf(name, size, "%s+%s", name_of(graph, values[0]), name_of(graph, values[1]));
}

static mp_status add_joined(mp_graph *graph, const int32_t *values, const mp_tensor *whole,
                            int32_t *out) {
    char name[256];
    joined_name(graph, values, name, sizeof name);
    return mp_graph_add_constant(graph, name, whole, out);
}

/* What is done with a piece of a row and where it belongs. */
typedef bool visit_fn(char *place, const char *piece, size_t size);

static bool put(char *place, const char *piece, size_t size) {
    memcpy(place, piece, size);
    return true;
}

static bool is_there(char *place, const char *piece, size_t size) {
    return memcmp(place, piece, size) == 0;
}

/* For the rows of matrices, or vectors, of the columns of each product, side by side in `whole`;
 * false once `visit` is. What is no value has zeros there. */
static bool visit_pieces(const mp_graph *graph, const mp_product *all, const int32_t *values,
                         int count, const mp_tensor *whole, visit_fn *visit) {
    const int64_t rows = whole->shape.rank == 2 ? whole->shape.dim[0] : 1;
    const size_t size = mp_dtype_size(whole->type);
    const size_t pitch = (size_t)whole->shape.dim[whole->shape.rank - 1] * size;
    char *to = (char *)whole->data;
    for (int i = 0; i < count; i++) {
        const size_t width = (size_t)all[i].columns * size;
        for (int64_t r = 0; r < rows && values[i] != MP_NO_VALUE; r++) {
            const mp_tensor *part = &graph->values[values[i]].tensor;
            const char *piece = (const char *)part->data + (size_t)r * width;
            if (!visit(to + (size_t)r * pitch, piece, width)) {
                return false;
            }
        }
        to += width;
    }
    return true;
}

/* A constant that is just that already, made for a layer before; MP_NO_VALUE. */
static int32_t find_joined(const mp_graph *graph, const mp_product *all, const int32_t *values,
                           int count, const mp_tensor *whole) {
    char name[256];
    joined_name(graph, values, name, sizeof name);
    for (int32_t i = graph->value_count - 1; i >= 0; i--) {
        const mp_value *v = &graph->values[i];
        if (v->is_constant && v->tensor.data != 0 && v->tensor.type == whole->type &&
            mp_shape_equal(&v->tensor.shape, &whole->shape) &&
            strncmp(v->name, name, strlen(name)) == 0 &&
            visit_pieces(graph, all, values, count, &v->tensor, is_there)) {
            return i;
        }
    }
    return MP_NO_VALUE;
}

/* The columns of each side by side, as `shape` says, made once for what several layers share. */
static mp_status join_columns(mp_graph *graph, const mp_product *all, const int32_t *values,
                              int count, mp_shape shape, int32_t *out) {
    const mp_dtype type = graph->values[graph->nodes[all[0].node].in[WEIGHTS]].tensor.type;
    const mp_tensor whole = {.type = type, .shape = shape};
    bool has_all = true;
    for (int i = 0; i < count; i++) {
        has_all = has_all && values[i] != MP_NO_VALUE;
    }
    *out = has_all ? find_joined(graph, all, values, count, &whole) : MP_NO_VALUE;
    if (*out == MP_NO_VALUE) {
        MP_TRY(add_joined(graph, values, &whole, out));
        (void)visit_pieces(graph, all, values, count, &graph->values[*out].tensor, put);
    }
    return MP_OK;
}

/* One behind the other. */
static mp_status join_rows(mp_graph *graph, const int32_t *values, int count, int32_t *out) {
    mp_tensor whole = graph->values[values[0]].tensor;
    const size_t size = mp_dtype_size(whole.type);
    whole.data = 0;
    for (int i = 1; i < count; i++) {
        whole.shape.dim[0] += graph->values[values[i]].tensor.shape.dim[0];
    }
    MP_TRY(add_joined(graph, values, &whole, out));
    char *to = (char *)graph->values[*out].tensor.data;
    for (int i = 0; i < count; i++) {
        const mp_tensor *part = &graph->values[values[i]].tensor;
        const size_t bytes = (size_t)mp_shape_count(&part->shape) * size;
        memcpy(to, (const char *)part->data, bytes);
        to += bytes;
    }
    return MP_OK;
}

/* ---- the node ---- */

/* Input `i` of each. */
static void inputs_of(const mp_graph *graph, const mp_product *all, int count, int i,
                      int32_t values[MP_JOINED_MAX]) {
    for (int k = 0; k < count; k++) {
        values[k] = mp_vertex_in(&graph->nodes[all[k].node], i);
    }
}

static mp_status join_plain(mp_graph *graph, const mp_product *all, int count, int64_t columns,
                            mp_node *node, int32_t in[INPUTS_MAX], int *in_count) {
    int32_t values[MP_JOINED_MAX] = {MP_NO_VALUE};
    const mp_vertex *first = &graph->nodes[all[0].node];
    const mp_shape row = {.rank = 1, .dim = {columns}};
    const mp_shape matrix = {
        .rank = 2, .dim = {graph->values[first->in[WEIGHTS]].tensor.shape.dim[0], columns}};
    inputs_of(graph, all, count, WEIGHTS, values);
    MP_TRY(join_columns(graph, all, values, count, matrix, &in[WEIGHTS]));
    inputs_of(graph, all, count, BIAS, values);
    bool biased = false;
    for (int i = 0; i < count; i++) {
        biased = biased || values[i] != MP_NO_VALUE;
    }
    *in_count = biased ? 3 : 2;
    if (biased) { /* of those that have none, too */
        node->op = mp_op_find(MP_OWN_DOMAIN, "MatMulBias", 1);
        node->version = 1;
        MP_TRY(join_columns(graph, all, values, count, row, &in[BIAS]));
    }
    return MP_OK;
}

static mp_status join_packed(mp_graph *graph, const mp_product *all, int count, int64_t columns,
                             mp_node *node, mp_attr *attrs, int32_t in[INPUTS_MAX], int *in_count) {
    for (size_t a = 0; a < node->attr_count; a++) {
        attrs[a] = node->attrs[a];
        attrs[a].i = strcmp(attrs[a].name, "N") == 0 ? columns : attrs[a].i;
    }
    node->attrs = attrs;
    *in_count = graph->nodes[all[0].node].in_count;
    for (int i = WEIGHTS; i < *in_count; i++) {
        int32_t values[MP_JOINED_MAX] = {MP_NO_VALUE};
        inputs_of(graph, all, count, i, values);
        if (values[0] != MP_NO_VALUE) {
            MP_TRY(join_rows(graph, values, count, &in[i]));
        }
    }
    return MP_OK;
}

mp_status mp_products_result(mp_graph *graph, const mp_product *all, int count, int32_t *whole) {
    mp_tensor tensor = {.type = mp_graph_type(graph, graph->nodes[all[0].node].out[0]),
                        .shape = {.rank = mp_graph_rank(graph, all[0].x)}};
    for (int d = 0; d < tensor.shape.rank; d++) {
        tensor.shape.dim[d] = d < tensor.shape.rank - 1 ? MP_DIM_UNKNOWN : 0;
    }
    for (int i = 0; i < count && tensor.shape.rank > 0; i++) {
        tensor.shape.dim[tensor.shape.rank - 1] += all[i].columns;
    }
    return mp_graph_add_value(graph, "joined", &tensor, whole);
}

mp_status mp_products_join(mp_graph *graph, const mp_product *all, int count, int32_t whole) {
    int32_t in[INPUTS_MAX] = {all[0].x,    MP_NO_VALUE, MP_NO_VALUE,
                              MP_NO_VALUE, MP_NO_VALUE, MP_NO_VALUE};
    mp_attr attrs[ATTRS_MAX];
    int32_t first = all[0].node;
    int64_t columns = 0;
    int in_count = 0;
    char name[256] = "";
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(name);
        columns += all[i].columns;
        first = MP_MIN(all[i].node, first);
        (void)snprintf(name + used, sizeof name - used, "%s%s", i > 0 ? "+" : "",
                       graph->nodes[all[i].node].node.name);
    }
    mp_node node = graph->nodes[all[0].node].node;
    node.name = name;
    if (is_packed(&graph->nodes[all[0].node])) {
        MP_TRY(join_packed(graph, all, count, columns, &node, attrs, in, &in_count));
    } else {
        MP_TRY(join_plain(graph, all, count, columns, &node, in, &in_count));
    }
    return mp_graph_change_node(graph, first, &node, in, in_count, &whole, 1);
}
