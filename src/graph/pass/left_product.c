/* left_product.c - products over the rows of matrices that are transposed before and back behind,
 * as networks that mix tokens by constants have them, are products from the left:
 *
 *     Transpose --> times w, plus a row --> Gelu ... --> Transpose
 *       becomes      w' times x, plus a column --> Gelu ...
 *
 * A column is added by a kernel of its own, with what follows; so it is done where that costs less
 * than the two Transposes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/gemm_epilogue.h"

enum { RANK = 3, STEPS_MAX = 12 };

/* What stands between two Transposes. */
typedef struct between {
    int32_t first, last;     /* the Transposes */
    int32_t step[STEPS_MAX]; /* the nodes, each of which alone reads the one before */
    int count;
} between;

/* ---- steps ---- */

static bool swaps_last(const mp_graph *graph, int32_t n) {
    static const int64_t swapped[RANK] = {0, 2, 1};
    return mp_graph_turns(graph, n, swapped, RANK);
}

static bool is_biased(const mp_vertex *v) {
    return mp_vertex_is_own(v, "MatMulBias");
}

/* By a constant matrix, of the value that the step before made. */
static bool is_product(const mp_graph *graph, const mp_vertex *v, int32_t value) {
    if ((!mp_vertex_is(v, "MatMul") && !is_biased(v)) || v->node.attr_count != 0 ||
        v->in[0] != value) {
        return false;
    }
    const mp_tensor *w = mp_graph_constant(graph, v->in[1]);
    const mp_tensor *row = is_biased(v) ? mp_graph_constant(graph, mp_vertex_in(v, 2)) : NULL;
    return w != NULL && w->shape.rank == 2 &&
           (!is_biased(v) || (row != NULL && row->shape.rank == 1));
}

static bool is_activation(const mp_vertex *v) {
    return v->node.op->express != NULL && v->in_count == 1 && v->out_count == 1;
}

/* A constant that is transposed by seeing it in other dimensions: a row, a column, a number. */
static bool is_line(const mp_tensor *t) {
    const int rank = t != NULL ? t->shape.rank : MP_DIM_UNKNOWN;
    if (rank < 0 || rank > RANK || (rank == RANK && t->shape.dim[0] != 1)) {
        return false;
    }
    return rank < 2 || t->shape.dim[rank - 1] == 1 || t->shape.dim[rank - 2] == 1;
}

static bool is_with_line(const mp_graph *graph, const mp_vertex *v, int32_t value) {
    static const char *const names[] = {"Add", "Sub", "Mul", "Div"};
    if (!mp_vertex_is_any(v, names, MP_COUNT_OF(names)) || v->in_count != 2) {
        return false;
    }
    const int at = v->in[0] == value ? 1 : 0;
    return v->in[1 - at] == value && is_line(mp_graph_constant(graph, v->in[at]));
}

/* ---- where it pays ---- */

/* How many launches fewer there are. */
static int gain(const mp_graph *graph, const between *b) {
    int fewer = 2;
    for (int i = 0; i < b->count; i++) {
        const mp_vertex *v = &graph->nodes[b->step[i]];
        if (!mp_vertex_is(v, "MatMul") && !is_biased(v)) {
            continue;
        }
        const mp_vertex *next = i + 1 < b->count ? &graph->nodes[b->step[i + 1]] : NULL;
        const bool has_tail = next != NULL && !mp_vertex_is(next, "MatMul") && !is_biased(next);
        fewer -= is_biased(v) && (!has_tail || mp_is_common_activation(graph, next));
    }
    return fewer;
}

static bool find(const mp_graph *graph, int32_t n, between *b) {
    *b = (between){.first = n, .last = MP_NO_NODE};
    int32_t value = graph->nodes[n].out[0];
    bool multiplies = false;
    while (b->count < STEPS_MAX) {
        const int32_t next = mp_graph_reader(graph, value, NULL);
        const mp_vertex *v = next != MP_NO_NODE ? &graph->nodes[next] : NULL;
        if (v == NULL || !mp_graph_same_guard(graph, n, next)) {
            return false;
        }
        if (swaps_last(graph, next)) {
            b->last = next;
            return multiplies && gain(graph, b) > 0;
        }
        const bool product = is_product(graph, v, value);
        if (!product && !is_activation(v) && !is_with_line(graph, v, value)) {
            return false;
        }
        multiplies = multiplies || product;
        b->step[b->count++] = next;
        value = v->out[0];
    }
    return false;
}

/* ---- rewriting ---- */

/* Rows of a constant as columns, and columns as rows. */
static mp_status turn_line(mp_graph *graph, int32_t like, int32_t line, int32_t *out) {
    const mp_shape *shape = &graph->values[line].tensor.shape;
    const int rank = shape->rank;
    *out = line;
    if (mp_shape_count(shape) == 1) {
        return MP_OK;
    }
    const int64_t rows = rank > 1 ? shape->dim[rank - 2] : 1;
    return mp_graph_add_view(graph, like, graph->values[line].name, "Reshape", line,
                             (int64_t[]){shape->dim[rank - 1], rows}, 2, out);
}

/* A value with the last two dimensions of `of` exchanged. */
static mp_status add_turned(mp_graph *graph, int32_t of, int32_t *out) {
    mp_tensor tensor = {.type = mp_graph_type(graph, of), .shape = {.rank = RANK}};
    for (int d = 0; d < RANK; d++) {
        tensor.shape.dim[d] = mp_graph_dim(graph, of, d == 0 ? 0 : RANK - d);
    }
    return mp_graph_add_value(graph, graph->values[of].name, &tensor, out);
}

/* Node `n` multiplies `value` from the left, and a node more adds the column. */
static mp_status turn_product(mp_graph *graph, int32_t n, int32_t value, int32_t out) {
    const mp_vertex v = graph->nodes[n];
    const mp_attr turned = {.name = "transA", .kind = MP_ATTR_INT, .i = 1};
    const mp_node product = {.op = mp_op_find("com.microsoft", "FusedMatMul", 1),
                             .version = 1,
                             .name = v.node.name,
                             .attrs = &turned,
                             .attr_count = 1,
                             .options = v.node.options};
    const mp_node sum = {.op = mp_op_find("", "Add", 14), .version = 14, .name = v.node.name};
    int32_t given = out, column = MP_NO_VALUE;
    if (is_biased(&v)) {
        MP_TRY(turn_line(graph, n, v.in[2], &column));
        MP_TRY(add_turned(graph, v.out[0], &given));
    }
    MP_TRY(mp_graph_change_node(graph, n, &product, (int32_t[]){v.in[1], value}, 2, &given, 1));
    return is_biased(&v) ? mp_graph_add_beside(graph, n, &sum, (int32_t[]){given, column}, 2, out)
                         : MP_OK;
}

static mp_status turn_step(mp_graph *graph, int32_t n, int32_t before, int32_t value, int32_t out) {
    const mp_vertex v = graph->nodes[n];
    int32_t in[2] = {value, MP_NO_VALUE};
    if (mp_vertex_is(&v, "MatMul") || is_biased(&v)) {
        return turn_product(graph, n, value, out);
    }
    for (int i = 0; i < v.in_count; i++) {
        in[i] = value;
        if (v.in[i] != before) {
            MP_TRY(turn_line(graph, n, v.in[i], &in[i]));
        }
    }
    return mp_graph_change_node(graph, n, &v.node, in, v.in_count, &out, 1);
}

static mp_status rewrite(mp_graph *graph, const between *b) {
    const mp_vertex first = graph->nodes[b->first], last = graph->nodes[b->last];
    int32_t before = first.out[0], value = first.in[0];
    mp_graph_remove_node(graph, b->last);
    for (int i = 0; i < b->count; i++) {
        const int32_t made = graph->nodes[b->step[i]].out[0];
        int32_t out = last.out[0];
        if (i + 1 < b->count) {
            MP_TRY(add_turned(graph, made, &out));
        }
        MP_TRY(turn_step(graph, b->step[i], before, value, out));
        before = made;
        value = out;
    }
    mp_graph_drop_unread(graph, first.out[0]);
    return MP_OK;
}

mp_status mp_pass_left_product(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    bool changed = false;
    for (int32_t n = 0; n < count; n++) {
        between b;
        if (swaps_last(graph, n) && !graph->nodes[n].is_gone && find(graph, n, &b) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &b));
            changed = true;
        }
    }
    return mp_graph_tidy(graph, changed);
}
