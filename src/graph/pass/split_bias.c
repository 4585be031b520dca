/* split_bias.c - constant rows that are added to the parts of a product become one row that is
 * added to the product, and so a part of it. onnxsim makes one product of several of one input.
 *
 *     MatMul --> Split --> Add to each part      becomes      MatMul --> Add --> Split
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/left_dims.h"

#include <string.h>

enum { PARTS_MAX = 8 };

typedef struct sums {
    int32_t product;        /* a value */
    int32_t add[PARTS_MAX]; /* nodes; MP_NO_NODE: nothing is added to this part */
    int32_t row[PARTS_MAX]; /* values */
    int64_t size[PARTS_MAX], columns;
} sums;

/* The Add of a row of `size` elements that alone reads `part`, and the row; or MP_NO_NODE. */
static int32_t row_added(const mp_graph *graph, int32_t part, int64_t size, mp_dtype type,
                         int32_t *row) {
    const int32_t n = mp_graph_reader(graph, part, "Add");
    if (n == MP_NO_NODE || mp_graph_is_output(graph, graph->nodes[n].out[0])) {
        return MP_NO_NODE;
    }
    const mp_vertex *v = &graph->nodes[n];
    *row = v->in[0] == part ? v->in[1] : v->in[0];
    const mp_tensor *t = mp_graph_constant(graph, *row);
    return t != NULL && t->data != 0 && t->type == type && t->shape.rank == 1 &&
                   t->shape.dim[0] == size
               ? n
               : MP_NO_NODE;
}

/* How long each part of a row of `columns` is; false where that is not known, or not so. */
static bool read_sizes(const mp_graph *graph, const mp_vertex *split, int rank, int64_t columns,
                       sums *out) {
    int64_t sizes[MP_RANK_MAX];
    int count = 0;
    const bool said =
        split->out_count <= MP_RANK_MAX && mp_graph_ints(graph, split, "split", 1, sizes, &count);
    for (int i = 0; i < split->out_count; i++) {
        out->size[i] = said && i < count   ? sizes[i]
                       : !said && rank > 0 ? mp_dim_of_split(graph, split, i, rank - 1)
                                           : MP_DIM_UNKNOWN;
        if (out->size[i] <= 0 || out->size[i] > columns - out->columns) {
            return false;
        }
        out->columns += out->size[i];
    }
    return out->columns == columns;
}

/* Whether node `n` is a Split of the rows of a product by a constant matrix, which nobody else
 * reads, and something is added behind it. */
static bool find(const mp_graph *graph, int32_t n, sums *out) {
    const mp_vertex *v = &graph->nodes[n];
    const int32_t p =
        mp_vertex_is(v, "Split") ? mp_graph_maker(graph, v->in[0], "MatMul") : MP_NO_NODE;
    const mp_tensor *matrix =
        p != MP_NO_NODE ? mp_graph_constant(graph, graph->nodes[p].in[1]) : NULL;
    const int rank = mp_graph_rank(graph, v->in_count > 0 ? v->in[0] : MP_NO_VALUE);
    const int64_t axis = mp_node_int(&v->node, "axis", 0);
    if (matrix == NULL || matrix->shape.rank != 2 || matrix->type == MP_F64 ||
        (axis != -1 && (axis != rank - 1 || rank < 2)) || v->out_count > PARTS_MAX ||
        mp_graph_reader(graph, v->in[0], "Split") != n) {
        return false;
    }
    bool found = false;
    *out = (sums){.product = v->in[0]};
    if (!read_sizes(graph, v, rank, matrix->shape.dim[1], out)) {
        return false;
    }
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] == MP_NO_VALUE) {
            return false;
        }
        out->add[i] = row_added(graph, v->out[i], out->size[i], matrix->type, &out->row[i]);
        found = found || out->add[i] != MP_NO_NODE;
    }
    return found;
}

/* All rows one behind the other, zeros where nothing is added. */
static mp_status make_row(mp_graph *graph, const sums *s, int parts, mp_dtype type, int32_t *out) {
    const mp_tensor tensor = {.type = type, .shape = {.rank = 1, .dim = {s->columns}}};
    MP_TRY(mp_graph_add_constant(graph, "rows", &tensor, out));
    unsigned char *to = (unsigned char *)graph->values[*out].tensor.data;
    for (int i = 0; i < parts; i++) {
        const size_t bytes = (size_t)s->size[i] * mp_dtype_size(type);
        if (s->add[i] != MP_NO_NODE) {
            memcpy(to, (const void *)graph->values[s->row[i]].tensor.data, bytes);
        }
        to += bytes;
    }
    return MP_OK;
}

static mp_status rewrite(mp_graph *graph, int32_t n, const sums *s) {
    const mp_vertex split = graph->nodes[n];
    const mp_value product = graph->values[s->product];
    const mp_dtype type = mp_graph_type(graph, s->product);
    const mp_tensor tensor = {.type = type, .shape = product.tensor.shape};
    int32_t in[] = {s->product, MP_NO_VALUE}, sum = MP_NO_VALUE, first = MP_NO_NODE;
    for (int i = 0; i < split.out_count && first == MP_NO_NODE; i++) {
        first = s->add[i];
    }
    const mp_node node = {.op = mp_op_find("", "Add", 14),
                          .version = 14,
                          .name = graph->nodes[first].node.name,
                          .options = graph->nodes[first].node.options};
    MP_TRY(make_row(graph, s, split.out_count, type, &in[1]));
    MP_TRY(mp_graph_add_value(graph, product.name, &tensor, &sum));
    MP_TRY(mp_graph_add_part(graph, first, &node, in, 2, sum));
    const int32_t again[] = {sum, mp_vertex_in(&split, 1)};
    MP_TRY(mp_graph_change_node(graph, n, &split.node, again, split.in_count, split.out,
                                split.out_count));
    for (int i = 0; i < split.out_count; i++) { /* nothing fails from here on but names */
        if (s->add[i] != MP_NO_NODE) {
            mp_graph_replace(graph, graph->nodes[s->add[i]].out[0], split.out[i], false);
            mp_graph_remove_node(graph, s->add[i]);
        }
    }
    const int32_t made = graph->values[sum].producer;
    for (int i = 0; i < split.out_count; i++) {
        MP_TRY(s->add[i] != MP_NO_NODE ? mp_graph_absorb(graph, made, s->add[i]) : MP_OK);
    }
    return MP_OK;
}

mp_status mp_pass_split_bias(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        sums s;
        if (find(graph, n, &s) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &s));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
