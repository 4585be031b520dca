/* find_unit_rows.c - rows that are divided by their own length, or by a number where that is less,
 * become one operator, which reads them once:
 *
 *     x / Clip(ReduceL2(x), least)     becomes     millpond.LpNormalization(x)
 *
 * In float16 the number may be 0, as torch's 1e-12 is there: a row of zeros then becomes NaN, as
 * before. Of other types the length of small numbers may be 0, too.
 * The length may also be the root of a sum of squares, and be taken before x was transposed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>
#include <string.h>

/* ---- lengths ---- */

/* Whether the node reduces the last dimension, which stays as 1. */
static bool along_last(const mp_graph *graph, const mp_vertex *v) {
    const int rank = mp_graph_rank(graph, v->in[0]);
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    return rank >= 1 && mp_node_int(&v->node, "keepdims", 1) == 1 &&
           mp_graph_ints(graph, v, "axes", 1, axes, &count) && count == 1 &&
           (axes[0] == -1 || axes[0] == rank - 1);
}

/* What is squared, by Mul or Pow. */
static int32_t squared(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    double two = 0;
    if (v == NULL || mp_graph_reader(graph, value, NULL) == MP_NO_NODE) {
        return MP_NO_VALUE;
    }
    const bool is = mp_vertex_is(v, "Mul") ? v->in[0] == v->in[1]
                                           : mp_vertex_is(v, "Pow") &&
                                                 mp_graph_number(graph, v->in[1], &two) && two == 2;
    return is && mp_graph_same_rank(graph, v->in[0], value) ? v->in[0] : MP_NO_VALUE;
}

/* The rows whose lengths `value` is, which only one node reads; or MP_NO_VALUE. */
static int32_t rows_of(const mp_graph *graph, int32_t value) {
    int32_t n = mp_graph_maker(graph, value, "ReduceL2");
    if (n != MP_NO_NODE) {
        return along_last(graph, &graph->nodes[n]) ? graph->nodes[n].in[0] : MP_NO_VALUE;
    }
    n = mp_graph_maker(graph, value, "Sqrt");
    const int32_t sum = n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
    n = sum != MP_NO_VALUE && mp_graph_reader(graph, sum, "Sqrt") != MP_NO_NODE
            ? mp_graph_maker(graph, sum, NULL)
            : MP_NO_NODE;
    if (n == MP_NO_NODE || !along_last(graph, &graph->nodes[n])) {
        return MP_NO_VALUE;
    }
    return mp_vertex_is(&graph->nodes[n], "ReduceSumSquare") ? graph->nodes[n].in[0]
           : mp_vertex_is(&graph->nodes[n], "ReduceSum")     ? squared(graph, graph->nodes[n].in[0])
                                                             : MP_NO_VALUE;
}

/* Whether `value` are the lengths of the rows of x. */
static bool are_lengths(const mp_graph *graph, int32_t value, int32_t x) {
    if (mp_graph_reader(graph, value, NULL) == MP_NO_NODE) {
        return false;
    }
    const int32_t turn = mp_graph_maker(graph, value, "Transpose");
    const int32_t same = mp_graph_maker(graph, x, "Transpose");
    if (turn == MP_NO_NODE) {
        return rows_of(graph, value) == x;
    }
    const mp_attr *a = mp_vertex_perm(&graph->nodes[turn]);
    const mp_attr *b = same != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[same]) : NULL;
    const int32_t before = graph->nodes[turn].in[0];
    return a != NULL && b != NULL && a->count == b->count &&
           memcmp(a->ints, b->ints, a->count * sizeof *a->ints) == 0 &&
           a->ints[a->count - 1] == (int64_t)a->count - 1 &&
           mp_graph_reader(graph, before, NULL) == turn &&
           rows_of(graph, before) == graph->nodes[same].in[0];
}

/* ---- at least a number ---- */

/* The lengths that `value` is, or `*least` where that is more; else MP_NO_VALUE. */
static int32_t at_least(const mp_graph *graph, int32_t value, double *least) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || mp_graph_reader(graph, value, "Div") == MP_NO_NODE) {
        return MP_NO_VALUE;
    }
    if (mp_vertex_is(v, "Clip") && mp_vertex_in(v, 1) != MP_NO_VALUE &&
        mp_vertex_in(v, 2) == MP_NO_VALUE && mp_graph_number(graph, v->in[1], least)) {
        return v->in[0];
    }
    for (int i = 0; i < 2 && mp_vertex_is(v, "Max") && v->in_count == 2; i++) {
        if (mp_graph_number(graph, v->in[i], least) &&
            mp_graph_same_rank(graph, v->in[1 - i], value)) {
            return v->in[1 - i];
        }
    }
    return MP_NO_VALUE;
}

static bool find(const mp_graph *graph, int32_t n, double *least) {
    const mp_vertex *v = &graph->nodes[n];
    if (!mp_vertex_is(v, "Div") || v->in_count != 2) {
        return false;
    }
    const mp_dtype type = mp_graph_type(graph, v->in[0]);
    const int32_t lengths = at_least(graph, v->in[1], least);
    const bool bounds = (float)*least > 0 || (*least == 0 && type == MP_F16);
    return lengths != MP_NO_VALUE && bounds && *least < 1 &&
           (type == MP_F32 || type == MP_F16 || type == MP_BF16) &&
           are_lengths(graph, lengths, v->in[0]);
}

static mp_status rewrite(mp_graph *graph, int32_t n, double least) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr attr = {.name = "least", .kind = MP_ATTR_FLOAT, .f = (float)least};
    char name[256];
    (void)snprintf(name, sizeof name, "length+%s", was.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "LpNormalization", 1),
                          .version = 1,
                          .name = name,
                          .attrs = &attr,
                          .attr_count = 1,
                          .options = was.node.options};
    MP_TRY(mp_graph_change_node(graph, n, &node, was.in, 1, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_find_unit_rows(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        double least = 0;
        if (find(graph, n, &least) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, least));
        }
    }
    return MP_OK;
}
