/* product_norm.c - BatchNormalization by constants behind a product by a constant matrix becomes
 * part of the matrix, and a row that is added: torch has it so behind linear layers, of rows that
 * it sees in two dimensions for that.
 *
 *     MatMul --> (Reshape to rows) --> BatchNormalization --> (Reshape back)
 *
 * Of float elements and longer ones: shorter ones would be rounded once more, where the norm alone
 * is computed in float.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/constant_norm.h"
#include "graph/pass/rows_back.h"
#include "op/core/host_float.h"

#include <math.h>
#include <stdio.h>

enum { ROWS_RANK = 2 };

typedef struct found {
    int32_t product, norm; /* nodes */
    int32_t rows;          /* what is normalised: the product, or its rows */
    int32_t back;          /* what has the product's dimensions again, or MP_NO_VALUE */
} found;

/* Whether node `n` alone reads the elements of `value`: others only ask for its dimensions. */
static bool only_reader(const mp_graph *graph, int32_t value, int32_t n) {
    int asked = 0;
    for (int32_t i = 0; i < graph->node_count; i++) {
        const mp_vertex *v = &graph->nodes[i];
        asked += mp_vertex_is(v, "Shape") && v->in[0] == value;
    }
    return !mp_graph_is_output(graph, value) && mp_graph_uses(graph, value) == asked + 1 &&
           mp_graph_same_guard(graph, graph->values[value].producer, n);
}

/* The product's value that `rows` are, or that they are seen in. */
static int32_t before_rows(const mp_graph *graph, int32_t rows) {
    int32_t n = mp_graph_maker(graph, rows, "Reshape");
    n = n != MP_NO_NODE ? n : mp_graph_maker(graph, rows, "Flatten");
    return n == MP_NO_NODE                                ? rows
           : only_reader(graph, graph->nodes[n].in[0], n) ? graph->nodes[n].in[0]
                                                          : MP_NO_VALUE;
}

/* By a matrix of `columns`, whose bytes are here. */
static bool is_product(const mp_graph *graph, const mp_vertex *v, int64_t columns) {
    const mp_tensor *b = mp_graph_constant(graph, mp_vertex_in(v, 1));
    return mp_vertex_is(v, "MatMul") && b != NULL && b->data != 0 && b->shape.rank == 2 &&
           b->shape.dim[1] == columns && (b->type == MP_F32 || b->type == MP_F64) &&
           mp_graph_type(graph, v->in[0]) == b->type && mp_graph_rank(graph, v->in[0]) >= 2;
}

/* Whether all that is multiplied by, and added, are numbers. */
static bool is_finite(const mp_graph *graph, const mp_vertex *norm, int64_t columns) {
    for (int64_t i = 0; i < columns; i++) {
        double factor = 0, summand = 0;
        mp_constant_norm_at(graph, norm, i, &factor, &summand);
        if (!isfinite((float)factor) || !isfinite((float)summand)) {
            return false;
        }
    }
    return true;
}

/* The normalised rows with the dimensions of `product`, if nobody reads them otherwise. */
static int32_t behind_rows(const mp_graph *graph, const mp_vertex *norm, int32_t product,
                           int64_t columns) {
    const int32_t n = mp_graph_reader(graph, norm->out[0], "Reshape");
    const int32_t back = n != MP_NO_NODE ? graph->nodes[n].out[0] : MP_NO_VALUE;
    return n != MP_NO_NODE && graph->nodes[n].in[0] == norm->out[0] &&
                   !mp_graph_is_output(graph, back) &&
                   mp_rows_are_back(graph, back, product, columns)
               ? back
               : MP_NO_VALUE;
}

static bool find(const mp_graph *graph, int32_t n, found *out) {
    const mp_vertex *norm = &graph->nodes[n];
    if (!mp_is_constant_norm(graph, norm) || mp_graph_rank(graph, norm->in[0]) != ROWS_RANK ||
        mp_graph_is_output(graph, norm->out[0]) || !only_reader(graph, norm->in[0], n)) {
        return false;
    }
    const int64_t columns = graph->values[norm->in[1]].tensor.shape.dim[0];
    const int32_t product = before_rows(graph, norm->in[0]);
    const int32_t p = mp_graph_maker(graph, product, "MatMul");
    if (p == MP_NO_NODE || !mp_graph_same_guard(graph, p, n) ||
        !is_product(graph, &graph->nodes[p], columns) || !is_finite(graph, norm, columns)) {
        return false;
    }
    *out = (found){.product = p,
                   .norm = n,
                   .rows = norm->in[0],
                   .back = behind_rows(graph, norm, product, columns)};
    return true;
}

/* ---- rewriting ---- */

static void compute(const mp_graph *graph, const mp_vertex *norm, int32_t from, int32_t matrix,
                    int32_t row) {
    const mp_tensor *b = &graph->values[from].tensor;
    const int64_t columns = b->shape.dim[1];
    for (int64_t i = 0; i < columns; i++) {
        double factor = 0, summand = 0;
        mp_constant_norm_at(graph, norm, i, &factor, &summand);
        mp_host_float_put(&graph->values[row].tensor, i, summand);
        for (int64_t k = 0; k < b->shape.dim[0]; k++) {
            const int64_t at = k * columns + i;
            mp_host_float_put(&graph->values[matrix].tensor, at, mp_host_float(b, at) * factor);
        }
    }
}

static mp_status make_product(mp_graph *graph, const found *f) {
    const mp_vertex p = graph->nodes[f->product], norm = graph->nodes[f->norm];
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", p.node.name, norm.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "MatMulBias", 1),
                          .version = 1,
                          .name = name,
                          .options = p.node.options};
    mp_tensor matrix = graph->values[p.in[1]].tensor;
    const mp_tensor row = {.type = matrix.type, .shape = {.rank = 1, .dim = {matrix.shape.dim[1]}}};
    int32_t in[] = {p.in[0], MP_NO_VALUE, MP_NO_VALUE};
    matrix.data = 0;
    MP_TRY(mp_graph_add_constant(graph, graph->values[p.in[1]].name, &matrix, &in[1]));
    MP_TRY(mp_graph_add_constant(graph, graph->values[norm.in[2]].name, &row, &in[2]));
    compute(graph, &norm, p.in[1], in[1], in[2]);
    return mp_graph_change_node(graph, f->product, &node, in, 3, p.out, 1);
}

static mp_status rewrite(mp_graph *graph, const found *f) {
    const int32_t product = graph->nodes[f->product].out[0];
    const int32_t normal = graph->nodes[f->norm].out[0];
    MP_TRY(make_product(graph, f));
    mp_graph_replace(graph, normal, f->rows, false);
    mp_graph_remove_node(graph, f->norm);
    if (f->back != MP_NO_VALUE) {
        mp_graph_replace(graph, f->back, product, false);
        mp_graph_drop_unread(graph, f->back);
    }
    return mp_graph_absorb(graph, f->product, f->norm);
}

mp_status mp_pass_product_norm(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        found f;
        if (find(graph, n, &f) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &f));
        }
    }
    return MP_OK;
}
