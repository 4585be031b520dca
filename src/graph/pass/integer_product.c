/* integer_product.c - a product of quantised rows by quantised weights becomes one of integers,
 * where the device's tensor cores have those.
 *
 *     x = DequantizeLinear(X)  w = DequantizeLinear(W const)
 *     y = MatMul(x, w)         or Gemm with a bias; then Relu or not
 *     Y = QuantizeLinear(y)    where nobody does that, y is float
 *
 * And of what is quantised in each run the product, and its scale:
 *
 *     y = MatMulInteger(X, W const, zero)
 *     z = Cast(y, float)
 *     p = Mul(z, scale)
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass/integer_parts.h"

#include <string.h>

enum { A, B, C, ZERO_A = 2, ZERO_B, GONE_MAX = 4 };

static const int as_they_are[] = {0, 1}, turned[] = {1, 0};

static mp_node own_node(const mp_vertex *v, const mp_attr *attrs, size_t count) {
    return (mp_node){.op = mp_op_find(MP_OWN_DOMAIN, "IntegerProduct", 1),
                     .version = 1,
                     .name = v->node.name,
                     .attrs = attrs,
                     .attr_count = count,
                     .options = v->node.options};
}

static mp_status put(mp_graph *graph, int32_t at, const mp_node *node, const int32_t *in,
                     int in_count, const int32_t *gone, int gone_count) {
    const int32_t out = graph->nodes[at].out[0];
    MP_TRY(mp_graph_change_node(graph, at, node, in, in_count, &out, 1));
    for (int i = 0; i < gone_count; i++) {
        mp_graph_remove_node(graph, gone[i]);
        MP_TRY(mp_graph_absorb(graph, at, gone[i]));
    }
    return MP_OK;
}

/* ---- between quantised tensors ---- */

/* Whether it is a product of rows, and whether its matrix is stored turned. */
static bool is_product(const mp_vertex *v, bool *is_turned) {
    *is_turned = mp_vertex_is(v, "Gemm") && mp_node_int(&v->node, "transB", 0) != 0;
    return v->loop == NULL &&
           (mp_vertex_is(v, "MatMul") ||
            (mp_vertex_is(v, "Gemm") && v->node.version >= 7 &&
             mp_node_int(&v->node, "transA", 0) == 0 && mp_node_float(&v->node, "alpha", 1) == 1 &&
             mp_node_float(&v->node, "beta", 1) == 1));
}

static mp_status try_product(mp_graph *graph, mp_rewrites *rewrites, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    mp_integer_parts parts;
    mp_attr attrs[MP_INTEGER_ATTRS];
    int32_t in[MP_ROWS_INPUTS], gone[GONE_MAX];
    int gone_count = 0;
    bool is_turned = false;
    if (!is_product(&v, &is_turned) || !mp_dequantized(graph, v.in[A], &parts.x) ||
        !mp_dequantized_weights(graph, v.in[B], 2, is_turned ? 0 : 1, &parts.w) ||
        !mp_integer_wanted(graph, rewrites, parts.w.tensor->shape.dim[is_turned ? 1 : 0])) {
        return MP_OK;
    }
    parts.columns = parts.w.tensor->shape.dim[is_turned ? 0 : 1];
    parts.bias = mp_vertex_in(&v, C);
    const int32_t quantizer = mp_integer_result_of(graph, n, gone, &gone_count, &parts);
    if (!mp_integer_parts_fit(graph, &parts) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    mp_integer_result(&parts, attrs);
    const mp_node node = own_node(&v, attrs, MP_COUNT_OF(attrs));
    in[MP_ROWS_X] = parts.x.value;
    MP_TRY(mp_integer_constants(graph, &parts, is_turned ? as_they_are : turned, in));
    return put(graph, quantizer != MP_NO_NODE ? quantizer : n, &node, in, MP_ROWS_SCALE + 1, gone,
               gone_count);
}

/* ---- what is quantised in each run ---- */

/* Whether the value is one number, whatever it is in a run. */
static bool is_one(const mp_graph *graph, int32_t value) {
    const mp_tensor *t = &graph->values[value].tensor;
    const int32_t maker = graph->values[value].producer;
    const bool is_dynamic =
        maker != MP_NO_NODE && mp_vertex_is(&graph->nodes[maker], "DynamicQuantizeLinear");
    return is_dynamic || t->shape.rank == 0 || (t->shape.rank == 1 && t->shape.dim[0] == 1);
}

static bool is_zero_constant(const mp_graph *graph, int32_t value) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    bool zero = value == MP_NO_VALUE || (t != NULL && t->data != 0);
    for (int64_t i = 0; t != NULL && zero && i < mp_shape_count(&t->shape); i++) {
        zero = ((const int8_t *)t->data)[i] == 0;
    }
    return zero;
}

/* By what the sums are multiplied: of the result of node `n` as float; or MP_NO_VALUE. */
static int32_t find_scale(const mp_graph *graph, int32_t n, int32_t gone[GONE_MAX], int32_t *last) {
    const int32_t cast = mp_graph_reader(graph, graph->nodes[n].out[0], "Cast");
    const int32_t mul =
        cast != MP_NO_NODE && mp_node_int(&graph->nodes[cast].node, "to", 0) == MP_F32
            ? mp_graph_reader(graph, graph->nodes[cast].out[0], "Mul")
            : MP_NO_NODE;
    if (mul == MP_NO_NODE) {
        return MP_NO_VALUE;
    }
    const mp_vertex *v = &graph->nodes[mul];
    const int32_t scale = v->in[v->in[0] == graph->nodes[cast].out[0] ? 1 : 0];
    const mp_tensor *w = &graph->values[graph->nodes[n].in[B]].tensor;
    const mp_tensor *t = &graph->values[scale].tensor;
    const bool is_row = t->shape.rank == 1 && t->shape.dim[0] == w->shape.dim[1];
    if (mp_graph_type(graph, scale) != MP_F32 || (!is_one(graph, scale) && !is_row)) {
        return MP_NO_VALUE;
    }
    gone[0] = n;
    gone[1] = cast;
    *last = mul;
    return scale;
}

static mp_status try_dynamic(mp_graph *graph, mp_rewrites *rewrites, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    const mp_tensor *w =
        mp_vertex_is(&v, "MatMulInteger") ? mp_graph_constant(graph, v.in[B]) : NULL;
    const int32_t zero = mp_vertex_in(&v, ZERO_A);
    int32_t gone[GONE_MAX], last = n, in[MP_ROWS_INPUTS];
    if (w == NULL || v.loop != NULL || w->data == 0 || w->type != MP_I8 || w->shape.rank != 2 ||
        mp_shape_count(&w->shape) == 0 || !is_zero_constant(graph, mp_vertex_in(&v, ZERO_B)) ||
        (zero != MP_NO_VALUE && !is_one(graph, zero)) ||
        !mp_integer_wanted(graph, rewrites, w->shape.dim[0]) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    for (int i = 0; i < MP_ROWS_INPUTS; i++) {
        in[i] = MP_NO_VALUE;
    }
    in[MP_ROWS_X] = v.in[A];
    in[MP_ROWS_SCALE] = find_scale(graph, n, gone, &last);
    const bool is_float = in[MP_ROWS_SCALE] != MP_NO_VALUE;
    const mp_attr to = {.name = "to", .kind = MP_ATTR_INT, .i = is_float ? MP_F32 : MP_I32};
    const mp_node node = own_node(&v, &to, 1);
    MP_TRY(mp_integer_turned(graph, graph->values[v.in[B]].name, w, turned, &in[MP_ROWS_W]));
    in[MP_ROWS_ZERO] = zero;
    MP_TRY(mp_integer_sums(graph, in[MP_ROWS_W], &in[MP_ROWS_SUMS]));
    return put(graph, last, &node, in, MP_ROWS_INPUTS, gone, is_float ? 2 : 0);
}

mp_status mp_pass_integer_product(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        MP_TRY(try_product(graph, rewrites, n));
        MP_TRY(try_dynamic(graph, rewrites, n));
    }
    return MP_OK;
}
