/* join_residual.c - a sum that is normalised is read once: the addition becomes part of the
 * normalisation, which also gives the sum where others read it. A sum of three, such as attention,
 * the layers beside it and what both were made of (GPT-J, GPT-NeoX, Phi, Falcon), the same; and one
 * of which an addend is times a constant row, such as LayerScale is (CaiT, DeiT III, DINOv2).
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "base/macros.h"
#include "graph/look.h"

#include <stdio.h>

/* A normalisation of rows of the last dimension, by constants of one type with x. */
static bool is_norm(const mp_graph *graph, const mp_vertex *v) {
    static const char *const norms[] = {"LayerNormalization", "RMSNormalization",
                                        "SimplifiedLayerNormalization"};
    if (!mp_vertex_is_any(v, norms, MP_COUNT_OF(norms)) ||
        mp_node_int(&v->node, "axis", -1) != -1 || mp_vertex_out(v, 1) != MP_NO_VALUE ||
        mp_vertex_out(v, 2) != MP_NO_VALUE) {
        return false;
    }
    const mp_dtype type = mp_graph_type(graph, v->in[0]);
    for (int i = 1; i < v->in_count; i++) {
        const mp_value *row = v->in[i] != MP_NO_VALUE ? &graph->values[v->in[i]] : NULL;
        if (row != NULL &&
            (!row->is_constant || row->tensor.type != type || row->tensor.shape.rank != 1)) {
            return false;
        }
    }
    return type == MP_F32 || type == MP_F16 || type == MP_BF16;
}

/* Whether both are whole tensors: a row that is added may belong to a product before. */
static bool is_residual(const mp_graph *graph, const mp_vertex *add) {
    const int rank = mp_graph_rank(graph, add->in[0]);
    return rank >= 2 && rank == mp_graph_rank(graph, add->in[1]) && add->in[0] != add->in[1];
}

/* Whether a cluster could make the value with what reads it. */
static bool is_element_wise(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    return n != MP_NO_NODE && graph->nodes[n].node.op->express != NULL;
}

/* Whether `more`, a sum of its own, and what is added to it are known to have one shape, and
 * nothing could be computed with it but the sum. */
static bool joins(const mp_graph *graph, int32_t more, int32_t other) {
    const mp_vertex *v = &graph->nodes[more];
    const int rank = mp_graph_rank(graph, other);
    bool alike = is_residual(graph, v) && rank == mp_graph_rank(graph, v->in[0]);
    for (int i = 0; i < 2 && alike; i++) {
        alike = mp_graph_constant(graph, v->in[i]) == NULL && !is_element_wise(graph, v->in[i]);
        for (int d = 0; d < rank && alike; d++) {
            alike = mp_graph_same_dim(graph, v->in[i], d, other, d);
        }
    }
    return alike;
}

/* The sum that alone `add` adds something to, in[*side]; MP_NO_NODE. */
static int32_t sum_before(const mp_graph *graph, int32_t add, int *side) {
    const mp_vertex *v = &graph->nodes[add];
    for (*side = 0; *side < 2; ++*side) {
        const int32_t more = mp_graph_maker(graph, v->in[*side], "Add");
        if (more != MP_NO_NODE && mp_graph_reader(graph, v->in[*side], NULL) == add &&
            mp_graph_same_guard(graph, more, add) && joins(graph, more, v->in[1 - *side])) {
            return more;
        }
    }
    return MP_NO_NODE;
}

/* The product of a constant row and whole rows of in[*side], that alone `add` reads; MP_NO_NODE.
 * `*row`: which of its inputs the constant is. */
static int32_t scale_before(const mp_graph *graph, int32_t add, int *side, int *row) {
    const mp_vertex *v = &graph->nodes[add];
    for (*side = 1; *side >= 0; --*side) {
        const int32_t mul = mp_graph_maker(graph, v->in[*side], "Mul");
        if (mul == MP_NO_NODE || mp_graph_reader(graph, v->in[*side], NULL) != add ||
            !mp_graph_same_guard(graph, mul, add)) {
            continue;
        }
        const mp_vertex *m = &graph->nodes[mul];
        *row = mp_graph_constant(graph, m->in[1]) != NULL;
        const mp_tensor *scale = mp_graph_constant(graph, m->in[*row]);
        const int32_t whole = m->in[1 - *row];
        if (scale != NULL && scale->shape.rank == 1 && scale->shape.dim[0] > 1 &&
            scale->type == mp_graph_type(graph, whole) &&
            mp_graph_rank(graph, whole) == mp_graph_rank(graph, v->in[*side]) &&
            mp_graph_dim(graph, whole, -1) == scale->shape.dim[0]) {
            return mul;
        }
    }
    return MP_NO_NODE;
}

/* The node at the place of the sum, since others may read that before the normalisation. */
static mp_status join(mp_graph *graph, int32_t add, int32_t norm) {
    enum { X, SKIP, SCALE, BIAS };
    enum { EPSILON, SCALED };
    const mp_vertex a = graph->nodes[add];
    const mp_vertex v = graph->nodes[norm];
    int side = 0, row = 0;
    const int32_t more = sum_before(graph, add, &side);
    const int32_t mul = more == MP_NO_NODE ? scale_before(graph, add, &side, &row) : MP_NO_NODE;
    const bool centred = mp_vertex_is(&v, "LayerNormalization");
    const int32_t sum = a.out[0];
    const bool wanted = mp_graph_uses(graph, sum) > 1;
    const mp_attr attrs[] = {
        [EPSILON] = {.name = "epsilon",
                     .kind = MP_ATTR_FLOAT,
                     .f = mp_node_float(&v.node, "epsilon", 1e-5f)},
        [SCALED] = {.name = "scaled", .kind = MP_ATTR_INT, .i = 1},
    };
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", a.node.name, v.node.name);
    const mp_node node = {
        .op =
            mp_op_find(MP_OWN_DOMAIN,
                       centred ? "SkipLayerNormalization" : "SkipSimplifiedLayerNormalization", 1),
        .version = 1,
        .name = name,
        .attrs = attrs,
        .attr_count = mul != MP_NO_NODE ? SCALED + 1 : EPSILON + 1,
        .out_absent = wanted ? 6 : 0,
        .options = v.node.options};
    const int32_t out[] = {v.out[0], MP_NO_VALUE, MP_NO_VALUE, sum};
    int32_t in[BIAS + 2] = {a.in[0], a.in[1], v.in[1], mp_vertex_in(&v, 2)};
    int count = in[BIAS] != MP_NO_VALUE ? BIAS + 1 : BIAS;
    if (more != MP_NO_NODE) {
        in[X] = graph->nodes[more].in[0];
        in[SKIP] = graph->nodes[more].in[1];
        count = centred ? BIAS + 1 : BIAS;
        in[count++] = a.in[1 - side];
    }
    if (mul != MP_NO_NODE) {
        in[X] = a.in[1 - side];
        in[SKIP] = graph->nodes[mul].in[1 - row];
        count = centred ? BIAS + 1 : BIAS;
        in[count++] = graph->nodes[mul].in[row];
    }
    MP_TRY(mp_graph_merge_node(graph, add, norm, &node, in, count, out, wanted ? 4 : 1));
    mp_graph_drop_inputs(graph, &a);
    return MP_OK;
}

mp_status mp_pass_join_residual(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const int32_t add = is_norm(graph, v) ? mp_graph_maker(graph, v->in[0], "Add") : MP_NO_NODE;
        if (add != MP_NO_NODE && mp_graph_same_guard(graph, add, n) &&
            is_residual(graph, &graph->nodes[add]) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, add, n));
        }
    }
    return MP_OK;
}
