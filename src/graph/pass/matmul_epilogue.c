/* matmul_epilogue.c - a product of matrices of which one is transposed before, or which is
 * multiplied by a number, before or behind, becomes FusedMatMul, which steps through them as they
 * lie.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <math.h>
#include <stdio.h>

/* Whether node `n` swaps the last two dimensions, and nothing else. */
static bool swaps_last(const mp_graph *graph, int32_t n) {
    const mp_attr *perm = n != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
    const int rank = perm != NULL ? (int)perm->count : 0;
    for (int d = 0; d + 2 < rank; d++) {
        if (perm->ints[d] != d) {
            return false;
        }
    }
    return rank >= 2 && perm->ints[rank - 1] == rank - 2 && perm->ints[rank - 2] == rank - 1;
}

/* How a product is changed. */
typedef struct change {
    int32_t in[2];  /* what it reads */
    bool turned[2]; /* transposed */
    int32_t behind; /* the node that multiplies the result by a number; or MP_NO_NODE */
    bool is_scaled;
    double alpha;
} change;

/* Whether `v` multiplies its input `at` by a number, or divides it; `*alpha` is multiplied. */
static bool scales(const mp_graph *graph, const mp_vertex *v, int at, double *alpha) {
    const bool divides = mp_vertex_is(v, "Div");
    double number = 0;
    if ((!divides && !mp_vertex_is(v, "Mul")) || (divides && at != 0) ||
        mp_graph_rank(graph, v->in[1 - at]) > 1 || mp_graph_rank(graph, v->in[1 - at]) < 0 ||
        !mp_graph_number(graph, v->in[1 - at], &number)) {
        return false;
    }
    const double product = divides ? *alpha / number : *alpha * number;
    if (!isfinite((float)product) || (float)product == 0) {
        return false;
    }
    *alpha = product;
    return true;
}

static void find_behind(const mp_graph *graph, const mp_vertex *product, change *c) {
    const int32_t n = mp_graph_reader(graph, product->out[0], NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v != NULL && scales(graph, v, v->in[0] == product->out[0] ? 0 : 1, &c->alpha)) {
        c->behind = n;
        c->is_scaled = true;
    }
}

/* Input `i` without a transposition, and without a number by which it is multiplied for this
 * product alone. */
static void find_before(const mp_graph *graph, int i, bool may_scale, change *c) {
    const int32_t turned = mp_graph_maker(graph, c->in[i], "Transpose");
    bool alone = mp_graph_uses(graph, c->in[i]) == 1;
    if (swaps_last(graph, turned)) {
        c->turned[i] = true;
        c->in[i] = graph->nodes[turned].in[0];
        alone = alone && mp_graph_uses(graph, c->in[i]) == 1;
    }
    const int32_t n = mp_graph_maker(graph, c->in[i], NULL);
    const mp_vertex *v = n != MP_NO_NODE && alone && may_scale ? &graph->nodes[n] : NULL;
    for (int at = 0; v != NULL && v->in_count == 2 && at < 2; at++) {
        if (scales(graph, v, at, &c->alpha)) {
            c->in[i] = v->in[at];
            c->is_scaled = true;
            return;
        }
    }
}

static mp_status rewrite(mp_graph *graph, int32_t n, const change *c) {
    const mp_vertex product = graph->nodes[n];
    const int32_t behind = c->behind;
    const int32_t last = behind != MP_NO_NODE ? behind : n;
    const int32_t out = graph->nodes[last].out[0];
    mp_attr attrs[3];
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s%s", product.node.name, behind != MP_NO_NODE ? "+" : "",
                   behind != MP_NO_NODE ? graph->nodes[behind].node.name : "");
    mp_node node = {.op = mp_op_find("com.microsoft", "FusedMatMul", 1),
                    .version = 1,
                    .name = name,
                    .attrs = attrs,
                    .options = product.node.options};
    if (c->is_scaled) {
        attrs[node.attr_count++] =
            (mp_attr){.name = "alpha", .kind = MP_ATTR_FLOAT, .f = (float)c->alpha};
    }
    for (int i = 0; i < 2; i++) {
        if (c->turned[i]) {
            attrs[node.attr_count++] =
                (mp_attr){.name = i == 0 ? "transA" : "transB", .kind = MP_ATTR_INT, .i = 1};
        }
    }
    MP_TRY(mp_graph_change_node(graph, last, &node, c->in, 2, &out, 1));
    mp_graph_drop_unread(graph, product.out[0]);
    mp_graph_drop_unread(graph, product.in[0]);
    mp_graph_drop_unread(graph, product.in[1]);
    return MP_OK;
}

mp_status mp_pass_matmul_epilogue(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (!mp_vertex_is(v, "MatMul")) {
            continue;
        }
        const mp_dtype type = mp_graph_type(graph, v->in[0]);
        const bool may_scale = type != MP_NONE && type != MP_F64; /* alpha is a float */
        change c = {.in = {v->in[0], v->in[1]}, .behind = MP_NO_NODE, .alpha = 1};
        if (may_scale) {
            find_behind(graph, v, &c);
        }
        for (int i = 0; i < 2; i++) {
            find_before(graph, i, may_scale, &c);
        }
        if ((c.turned[0] || c.turned[1] || c.is_scaled) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &c));
        }
    }
    return MP_OK;
}
