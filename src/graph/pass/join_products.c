/* join_products.c - products of one input by constant matrices whose results are Q, K or V of one
 * attention become one product, whose parts are read where they lie. Others are left: what reads
 * them would want each part by itself, and a copy costs what the product saves.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/attention_part.h"

#include <stdio.h>
#include <string.h>

enum { SIDES = 3 };

/* A side of attention that is heads of a product's rows. */
typedef struct projection {
    int side;
    int32_t node;             /* the product; MP_NO_NODE: none */
    int32_t x, weights, bias; /* values; no bias: MP_NO_VALUE */
    int64_t rows, columns;    /* of the weights */
    int64_t heads, size;
} projection;

/* A constant whose bytes are here. */
static const mp_tensor *constant_of(const mp_graph *graph, int32_t value, int rank) {
    const mp_value *v = &graph->values[value];
    return v->is_constant && v->tensor.data != 0 && v->tensor.shape.rank == rank ? &v->tensor
                                                                                 : NULL;
}

static bool is_product(const mp_vertex *v) {
    return mp_vertex_is(v, "MatMul") || mp_vertex_is_own(v, "MatMulBias");
}

static projection find_projection(const mp_graph *graph, const mp_vertex *attention, int i) {
    projection p = {.side = i, .node = MP_NO_NODE, .bias = MP_NO_VALUE};
    const int32_t y = mp_side_is_turned(graph, attention, i)
                          ? mp_heads_whole(graph, attention->in[i], &p.heads, &p.size)
                          : MP_NO_VALUE;
    const int32_t n = mp_graph_maker(graph, y, NULL);
    if (n == MP_NO_NODE || !is_product(&graph->nodes[n]) || graph->nodes[n].in_count > 3 ||
        mp_graph_reader(graph, y, "Reshape") == MP_NO_NODE) {
        return p;
    }
    const mp_vertex *product = &graph->nodes[n];
    const mp_tensor *weights = constant_of(graph, product->in[1], 2);
    p.x = product->in[0];
    p.weights = product->in[1];
    p.bias = mp_vertex_in(product, 2);
    /* Weights that others read would be there twice. */
    if (weights == NULL || mp_graph_uses(graph, p.weights) != 1 || mp_graph_rank(graph, p.x) != 3 ||
        weights->shape.dim[1] != p.heads * p.size ||
        (p.bias != MP_NO_VALUE && constant_of(graph, p.bias, 1) == NULL)) {
        return p;
    }
    p.rows = weights->shape.dim[0];
    p.columns = weights->shape.dim[1];
    p.node = n;
    return p;
}

/* Those of `all` that read what the first of them reads, which are put first; how many. */
static int keep_alike(const mp_graph *graph, projection all[SIDES]) {
    for (int first = 0; first + 1 < SIDES; first++) {
        projection alike[SIDES];
        int count = 0;
        for (int i = first; i < SIDES; i++) {
            const projection *a = &all[first], *b = &all[i];
            if (a->node != MP_NO_NODE && b->node != MP_NO_NODE && a->x == b->x &&
                a->rows == b->rows &&
                graph->values[a->weights].tensor.type == graph->values[b->weights].tensor.type) {
                alike[count++] = *b;
            }
        }
        if (count > 1) {
            memcpy(all, alike, (size_t)count * sizeof *all);
            return count;
        }
    }
    return 0;
}

static const char *name_of(const mp_graph *graph, int32_t value) {
    return value != MP_NO_VALUE ? graph->values[value].name : "";
}

/* Rows of `rows` times the columns of each, side by side; zeros for what is no value. */
static mp_status join_constants(mp_graph *graph, const projection *all, const int32_t *values,
                                int count, mp_shape shape, int32_t *out) {
    const mp_dtype type = graph->values[all[0].weights].tensor.type;
    const int64_t rows = shape.rank == 2 ? shape.dim[0] : 1;
    mp_tensor whole = {.type = type, .shape = shape};
    const size_t size = mp_dtype_size(type);
    const size_t pitch = (size_t)shape.dim[shape.rank - 1] * size;
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", name_of(graph, values[0]),
                   name_of(graph, values[1]));
    MP_TRY(mp_graph_add_constant(graph, name, &whole, out));
    char *to = (char *)graph->values[*out].tensor.data;
    for (int i = 0; i < count; i++) {
        const size_t width = (size_t)all[i].columns * size;
        for (int64_t r = 0; r < rows && values[i] != MP_NO_VALUE; r++) {
            const mp_tensor *part = &graph->values[values[i]].tensor;
            memcpy(to + (size_t)r * pitch, (const char *)part->data + (size_t)r * width, width);
        }
        to += width;
    }
    return MP_OK;
}

/* The product for all, in the place of the first. */
static mp_status join_nodes(mp_graph *graph, const projection *all, int count, int32_t whole) {
    int32_t weights[SIDES] = {MP_NO_VALUE}, bias[SIDES] = {MP_NO_VALUE};
    int32_t in[3] = {all[0].x, MP_NO_VALUE, MP_NO_VALUE};
    int64_t columns = 0;
    int32_t first = all[0].node;
    bool biased = false;
    char name[256] = "";
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(name);
        weights[i] = all[i].weights;
        bias[i] = all[i].bias;
        biased = biased || bias[i] != MP_NO_VALUE;
        columns += all[i].columns;
        first = all[i].node < first ? all[i].node : first;
        (void)snprintf(name + used, sizeof name - used, "%s%s", i > 0 ? "+" : "",
                       graph->nodes[all[i].node].node.name);
    }
    mp_node node = graph->nodes[all[0].node].node;
    node.name = name;
    if (biased) { /* of those that have none, too */
        node.op = mp_op_find(MP_OWN_DOMAIN, "MatMulBias", 1);
        node.version = 1;
    }
    const mp_shape matrix = {.rank = 2, .dim = {all[0].rows, columns}};
    const mp_shape row = {.rank = 1, .dim = {columns}};
    MP_TRY(join_constants(graph, all, weights, count, matrix, &in[1]));
    if (biased) {
        MP_TRY(join_constants(graph, all, bias, count, row, &in[2]));
    }
    return mp_graph_change_node(graph, first, &node, in, biased ? 3 : 2, &whole, 1);
}

static mp_status join(mp_graph *graph, int32_t attention, const projection *all, int count) {
    int32_t old[SIDES];
    int32_t whole = MP_NO_VALUE;
    int64_t first = 0;
    mp_tensor tensor = graph->values[graph->nodes[all[0].node].out[0]].tensor;
    tensor.shape = (mp_shape){.rank = 3, .dim = {MP_DIM_UNKNOWN, MP_DIM_UNKNOWN, 0}};
    for (int i = 0; i < count; i++) {
        tensor.shape.dim[2] += all[i].columns;
        old[i] = graph->nodes[attention].in[all[i].side];
    }
    MP_TRY(mp_graph_add_value(graph, "joined", &tensor, &whole));
    const mp_vertex before = graph->nodes[attention];
    for (int i = 0; i < count; i++) {
        const int64_t part[MP_PART_NUMBERS] = {first, all[i].heads, all[i].size, all[i].size};
        const mp_status status = mp_side_set_part(graph, attention, all[i].side, whole, part);
        if (status != MP_OK) {
            graph->nodes[attention] = before;
            return status;
        }
        first += all[i].columns;
    }
    const mp_status status = join_nodes(graph, all, count, whole);
    if (status != MP_OK) {
        graph->nodes[attention] = before;
        return status;
    }
    for (int i = 0; i < count; i++) {
        mp_graph_drop_unread(graph, old[i]);
    }
    return MP_OK;
}

mp_status mp_pass_join_products(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        projection all[SIDES];
        if (!mp_vertex_is_own(&graph->nodes[n], "Attention")) {
            continue;
        }
        for (int i = 0; i < SIDES; i++) {
            all[i] = find_projection(graph, &graph->nodes[n], i);
        }
        const int count = keep_alike(graph, all);
        if (count > 1 && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, n, all, count));
        }
    }
    return MP_OK;
}
