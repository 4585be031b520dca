/* plain_product.c - a product that ONNX Runtime has fused with transpositions and a number is
 * written out again, as exporters write it, since that is what other passes look for. What none of
 * them finds, matmul_epilogue.c fuses again.
 *
 *     FusedMatMul transB, alpha      becomes      Transpose --> MatMul --> Mul
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

static bool is_fused(const mp_vertex *v) {
    return !v->is_gone && v->in_count == 2 && v->out_count == 1 &&
           (v->node.op == mp_op_find("com.microsoft", "FusedMatMul", 1) ||
            v->node.op == mp_op_find("com.microsoft", "TransposeMatMul", 1));
}

static bool is_set(const mp_vertex *v, const char *name) {
    return mp_node_int(&v->node, name, 0) != 0;
}

/* Whether input `i` may be turned by a node of its own. */
static bool may_turn(const mp_graph *graph, const mp_vertex *v, int i, const char *name) {
    return !is_set(v, name) || mp_graph_rank(graph, v->in[i]) >= 2;
}

/* Numbers of doubles are floats here, and would be fused again by nobody. */
static bool may_scale(const mp_graph *graph, const mp_vertex *v) {
    const mp_dtype type = mp_graph_type(graph, v->in[0]);
    return mp_node_float(&v->node, "alpha", 1) == 1 || type == MP_F32 || type == MP_F16 ||
           type == MP_BF16;
}

static bool fits(const mp_graph *graph, const mp_vertex *v) {
    return is_fused(v) && !is_set(v, "transBatchA") && !is_set(v, "transBatchB") &&
           may_turn(graph, v, 0, "transA") && may_turn(graph, v, 1, "transB") &&
           may_scale(graph, v);
}

/* The last two dimensions change places. */
static mp_status turn(mp_graph *graph, int32_t n, int32_t *value) {
    const int rank = mp_graph_rank(graph, *value);
    const int32_t in = *value;
    int64_t ints[MP_RANK_MAX];
    mp_tensor tensor = {.type = mp_graph_type(graph, in), .shape = {.rank = rank}};
    for (int d = 0; d < rank; d++) {
        ints[d] = d < rank - 2 ? d : rank - 1 - (d - (rank - 2));
        tensor.shape.dim[d] = mp_graph_dim(graph, in, (int)ints[d]);
    }
    const mp_attr perm = {
        .name = "perm", .kind = MP_ATTR_INTS, .ints = ints, .count = (size_t)rank};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = graph->nodes[n].node.name,
                          .attrs = &perm,
                          .attr_count = 1};
    MP_TRY(mp_graph_add_value(graph, graph->values[in].name, &tensor, value));
    return mp_graph_add_part(graph, n, &node, &in, 1, *value);
}

static mp_status scale(mp_graph *graph, int32_t n, int32_t product, float alpha, int32_t out) {
    const mp_dtype type = mp_graph_type(graph, product);
    const uint16_t half = type == MP_BF16 ? mp_to_bf16(alpha) : mp_to_f16(alpha);
    const mp_tensor number = {.type = type,
                              .shape = {.rank = 0},
                              .data = type == MP_F32 ? (mp_addr)&alpha : (mp_addr)&half};
    const mp_node node = {.op = mp_op_find("", "Mul", 14),
                          .version = 14,
                          .name = graph->nodes[n].node.name,
                          .options = graph->nodes[n].node.options};
    int32_t in[] = {product, MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(graph, "alpha", &number, &in[1]));
    return mp_graph_add_part(graph, n, &node, in, 2, out);
}

static mp_status rewrite(mp_graph *graph, int32_t n) {
    const mp_vertex was = graph->nodes[n];
    const int32_t result = was.out[0];
    const float alpha = (float)mp_node_float(&was.node, "alpha", 1);
    const mp_node node = {.op = mp_op_find("", "MatMul", 13),
                          .version = 13,
                          .name = was.node.name,
                          .options = was.node.options};
    int32_t in[] = {was.in[0], was.in[1]}, out = result;
    if (is_set(&was, "transA")) {
        MP_TRY(turn(graph, n, &in[0]));
    }
    if (is_set(&was, "transB")) {
        MP_TRY(turn(graph, n, &in[1]));
    }
    if (alpha != 1) {
        const mp_tensor tensor = {.type = mp_graph_type(graph, was.in[0]),
                                  .shape = graph->values[result].tensor.shape};
        MP_TRY(mp_graph_add_value(graph, graph->values[result].name, &tensor, &out));
    }
    MP_TRY(mp_graph_change_node(graph, n, &node, in, 2, &out, 1));
    return alpha != 1 ? scale(graph, n, out, alpha, result) : MP_OK;
}

mp_status mp_pass_plain_product(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    bool changed = false;
    for (int32_t n = 0; n < count; n++) {
        if (fits(graph, &graph->nodes[n]) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n));
            changed = true;
        }
    }
    return mp_graph_tidy(graph, changed);
}
