/* pair_products.c - two products of rows with an activation between them become one node, which may
 * be one launch:
 *
 *     MatMulBias(MatMulBias(x, w1, b1) activation, w2, b2)    becomes    MatMulPair(x, w1, b1, ..)
 *
 * and so do two convolutions of single pixels with channels last, and two Gemms; with the scale of
 * each column and the residual behind, if nothing else reads what is between. Activations are part
 * of the first product by then.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/pixels.h"

#include <stdio.h>
#include <string.h>

enum { X, W, BIAS, ADDED }; /* of a product */
enum { PAIR_X, PAIR_W1, PAIR_B1, PAIR_W2, PAIR_B2, PAIR_ADDED, PAIR_SCALE, PAIR_INPUTS };
enum { NODES_MAX = 4, ATTRS_MAX = 4 };

typedef struct found {
    int32_t nodes[NODES_MAX]; /* the products, and what follows */
    int node_count;
    int32_t in[PAIR_INPUTS];
    bool turned;
    int64_t columns; /* of the result */
} found;

/* ---- products ---- */

static bool has_plain_numbers(const mp_vertex *v) {
    return mp_node_float(&v->node, "alpha", 1) == 1 && mp_node_float(&v->node, "beta", 1) == 1 &&
           mp_node_int(&v->node, "transA", 0) == 0;
}

static bool is_gemm(const mp_vertex *v) {
    const bool is_fused = !v->is_gone && strcmp(v->node.op->name, "FusedGemm") == 0;
    return (is_fused || mp_vertex_is(v, "Gemm")) && has_plain_numbers(v);
}

/* Whether the node is a product of rows by a constant matrix, with a constant bias or none, and
 * whether that has a line for each column; `*columns` that it makes. */
static bool is_product(const mp_graph *graph, const mp_vertex *v, bool *turned, int64_t *columns) {
    const bool is_conv = mp_is_of_pixels(v);
    if (v->loop != NULL || !(is_conv || is_gemm(v) || mp_vertex_is(v, "MatMul") ||
                             mp_vertex_is_own(v, "MatMulBias"))) {
        return false;
    }
    const mp_tensor *w = mp_graph_constant(graph, v->in[W]);
    const int32_t bias = mp_vertex_in(v, BIAS);
    const mp_tensor *b = mp_graph_constant(graph, bias);
    if (w == NULL || w->shape.rank < 2 || (!is_conv && w->shape.rank != 2) ||
        mp_shape_count(&w->shape) != w->shape.dim[0] * w->shape.dim[1]) {
        return false;
    }
    *turned = is_conv || mp_node_int(&v->node, "transB", 0) != 0;
    *columns = w->shape.dim[*turned ? 0 : 1];
    return bias == MP_NO_VALUE ||
           (b != NULL && b->shape.rank == 1 && b->shape.dim[0] == *columns && b->type == w->type);
}

static bool is_active(const mp_vertex *v) {
    return mp_node_string(&v->node, "activation", "")[0] != '\0';
}

/* The product that makes x for node `n` alone. */
static bool find_first(const mp_graph *graph, int32_t n, found *f) {
    const int32_t made = graph->nodes[n].in[X], first = mp_graph_maker(graph, made, NULL);
    bool turned = false;
    int64_t columns = 0;
    if (first == MP_NO_NODE || mp_graph_reader(graph, made, NULL) != n) {
        return false;
    }
    const mp_vertex *v = &graph->nodes[first];
    if (!is_product(graph, v, &turned, &columns) || v->in_count > ADDED || !is_active(v) ||
        turned != f->turned || mp_is_of_pixels(v) != mp_is_of_pixels(&graph->nodes[n])) {
        return false;
    }
    f->nodes[0] = first;
    f->in[PAIR_X] = v->in[X];
    f->in[PAIR_W1] = v->in[W];
    f->in[PAIR_B1] = mp_vertex_in(v, BIAS);
    return true;
}

/* ---- what follows ---- */

/* Whether the value has a row for each of what the first product reads, as long as the result's. */
static bool is_as_large(const mp_graph *graph, int32_t value, const found *f) {
    const int rank = mp_graph_rank(graph, value);
    bool all = rank > 0 && rank == mp_graph_rank(graph, f->in[PAIR_X]) &&
               mp_graph_dim(graph, value, rank - 1) == f->columns;
    for (int d = 0; all && d + 1 < rank; d++) {
        all = mp_graph_same_dim(graph, value, d, f->in[PAIR_X], d);
    }
    return all;
}

/* The node `name` that alone reads what the last one makes, and `*other` that it reads besides. */
static int32_t next_of(const mp_graph *graph, const found *f, const char *name, int32_t *other) {
    const int32_t made = graph->nodes[f->nodes[f->node_count - 1]].out[0];
    const int32_t n = mp_graph_reader(graph, made, name);
    if (n != MP_NO_NODE) {
        const mp_vertex *v = &graph->nodes[n];
        *other = v->in[0] == made ? v->in[1] : v->in[0];
    }
    return n;
}

/* A number for each column, in no more dimensions than rows have. */
static void find_scale(const mp_graph *graph, found *f) {
    const int rank = mp_graph_rank(graph, f->in[PAIR_X]);
    int32_t other = MP_NO_VALUE;
    const int32_t n = next_of(graph, f, "Mul", &other);
    const mp_tensor *row = n != MP_NO_NODE ? mp_graph_constant(graph, other) : NULL;
    if (row != NULL && row->shape.rank > 0 && row->shape.rank <= rank &&
        mp_shape_count(&row->shape) == f->columns &&
        row->shape.dim[row->shape.rank - 1] == f->columns) {
        f->in[PAIR_SCALE] = other;
        f->nodes[f->node_count++] = n;
    }
}

/* A residual as large as the result; what the first product reads is, if it has as many columns. */
static bool is_residual(const mp_graph *graph, int32_t value, const found *f) {
    const mp_tensor *w = mp_graph_constant(graph, f->in[PAIR_W1]);
    const bool as_many = w->shape.dim[f->turned ? 1 : 0] == f->columns;
    return value != MP_NO_VALUE && mp_graph_constant(graph, value) == NULL &&
           ((as_many && value == f->in[PAIR_X]) || is_as_large(graph, value, f));
}

static void find_added(const mp_graph *graph, found *f) {
    int32_t other = MP_NO_VALUE;
    const int32_t n = next_of(graph, f, "Add", &other);
    if (n != MP_NO_NODE && is_residual(graph, other, f)) {
        f->in[PAIR_ADDED] = other;
        f->nodes[f->node_count++] = n;
    }
}

static bool find(const mp_graph *graph, int32_t n, found *f) {
    const mp_vertex *v = &graph->nodes[n];
    *f = (found){.nodes = {MP_NO_NODE, n}, .node_count = 2};
    for (int i = 0; i < PAIR_INPUTS; i++) {
        f->in[i] = MP_NO_VALUE;
    }
    if (!is_product(graph, v, &f->turned, &f->columns) || is_active(v) ||
        !find_first(graph, n, f)) {
        return false;
    }
    const int32_t added = mp_vertex_in(v, ADDED);
    f->in[PAIR_W2] = v->in[W];
    f->in[PAIR_B2] = mp_vertex_in(v, BIAS);
    f->in[PAIR_ADDED] = added;
    if (added == MP_NO_VALUE) {
        find_scale(graph, f);
        find_added(graph, f);
        return true;
    }
    return is_residual(graph, added, f);
}

/* ---- rewriting ---- */

/* The first product's activation, under the names of a product of matrices. */
static size_t copy_activation(const mp_vertex *v, mp_attr *out) {
    static const char *const names[] = {"activation_alpha", "activation_beta"};
    const mp_attr *params = mp_node_attr(&v->node, "activation_params");
    size_t count = 0;
    out[count++] = *mp_node_attr(&v->node, "activation");
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        const mp_attr *number = mp_node_attr(&v->node, names[i]);
        if (number != NULL) {
            out[count++] = *number;
        } else if (params != NULL && i < params->count) {
            out[count++] =
                (mp_attr){.name = names[i], .kind = MP_ATTR_FLOAT, .f = params->floats[i]};
        }
    }
    return count;
}

static bool is_accepted(const mp_graph *graph, const mp_node *node, const found *f) {
    mp_tensor known[PAIR_INPUTS] = {{.type = MP_NONE}};
    for (int i = 0; i < PAIR_INPUTS; i++) {
        if (f->in[i] != MP_NO_VALUE) {
            known[i] = graph->values[f->in[i]].tensor;
        }
    }
    const mp_planner p = {.node = node, .in = known, .in_count = PAIR_INPUTS};
    return known[PAIR_W1].type == known[PAIR_W2].type && node->op->accept(&p) == MP_OK;
}

/* "first+second+scale" */
static void write_name(const mp_graph *graph, const found *f, char *name, size_t size) {
    size_t used = 0;
    for (int i = 0; i < f->node_count && used < size; i++) {
        used += (size_t)snprintf(name + used, size - used, "%s%s", i > 0 ? "+" : "",
                                 graph->nodes[f->nodes[i]].node.name);
    }
}

static mp_status rewrite(mp_graph *graph, const found *f, mp_rewrites *rewrites) {
    const mp_vertex first = graph->nodes[f->nodes[0]];
    const int32_t last = f->nodes[f->node_count - 1];
    mp_attr attrs[ATTRS_MAX];
    char name[512];
    size_t count = copy_activation(&first, attrs);
    int in_count = PAIR_INPUTS;
    if (f->turned) {
        attrs[count++] = (mp_attr){.name = "turned", .kind = MP_ATTR_INT, .i = 1};
    }
    while (f->in[in_count - 1] == MP_NO_VALUE) {
        in_count--;
    }
    write_name(graph, f, name, sizeof name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "MatMulPair", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = first.node.options};
    if (!is_accepted(graph, &node, f) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    MP_TRY(mp_graph_change_node(graph, last, &node, f->in, in_count, graph->nodes[last].out, 1));
    for (int i = 0; i + 1 < f->node_count; i++) {
        mp_graph_remove_node(graph, f->nodes[i]);
    }
    return MP_OK;
}

mp_status mp_pass_pair_products(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        found f;
        if ((graph->prefers_last || rewrites->forced) && find(graph, n, &f)) {
            MP_TRY(rewrite(graph, &f, rewrites));
        }
    }
    return MP_OK;
}
