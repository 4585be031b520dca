/* byte_product.c - a product of quantised rows by quantised weights becomes one of integers,
 * where the device's tensor cores have those.
 *
 *     x = DequantizeLinear(X)  w = DequantizeLinear(W const)
 *     y = MatMul(x, w)         or Gemm with a bias; then Relu or not
 *     Y = QuantizeLinear(y)    where nobody does that, y is float
 *
 * and also a sum with a constant row behind it, with what quantises it; QLinearMatMul, which is
 * such a product in one node. And of what is quantised in each run the product, its scale, and a
 * sum:
 *
 *     y = MatMulInteger(X, W const, zero)
 *     z = Cast(y, float)
 *     p = Mul(z, scale)        scale = Mul(scale of X, scale of W const)
 *     s = Add(p, row const)
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass/byte_parts.h"

enum { A, B, C, ZERO_A = 2, ZERO_B };
enum { LINEAR_A, LINEAR_A_SCALE, LINEAR_B = 3, LINEAR_Y_SCALE = 6 };

/* Which dimension of a matrix goes last: the second of one that is stored turned is there. */
enum { TURNED = 0, AS_IT_IS = 1 };

static mp_status put(mp_graph *graph, int32_t n, const mp_byte_result *result, const mp_attr *attrs,
                     size_t count, const int32_t *in) {
    const mp_vertex v = graph->nodes[n];
    const int32_t out = graph->nodes[result->last].out[0];
    const mp_node node = mp_byte_node(&v, attrs, count);
    MP_TRY(mp_graph_change_node(graph, result->last, &node, in, MP_ROWS_INPUTS, &out, 1));
    return mp_byte_remove(graph, result);
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

static bool takes_row(const mp_graph *graph, int32_t value, int32_t other,
                      const mp_byte_parts *parts, mp_byte_result *out) {
    (void)value;
    out->row = other;
    out->beside.type = MP_NONE;
    return mp_byte_row_fits(graph, other, parts->columns);
}

static mp_status try_product(mp_graph *graph, mp_rewrites *rewrites, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    mp_byte_parts parts;
    mp_byte_result result = {.gone_count = 0};
    mp_attr attrs[MP_BYTE_ATTRS];
    int32_t in[MP_ROWS_INPUTS];
    bool is_turned = false;
    if (!is_product(&v, &is_turned) || !mp_dequantized(graph, v.in[A], &parts.x) ||
        !mp_dequantized_weights(graph, v.in[B], 2, is_turned ? 0 : 1, &parts.w) ||
        !mp_byte_wanted(graph, rewrites, parts.w.tensor.shape.dim[is_turned ? 1 : 0])) {
        return MP_OK;
    }
    parts.columns = parts.w.tensor.shape.dim[is_turned ? 0 : 1];
    parts.bias = mp_vertex_in(&v, C);
    if (!mp_byte_parts_fit(graph, &parts) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    mp_byte_find_result(graph, n, &parts, &result);
    mp_byte_find_sum(graph, takes_row, &parts, &result);
    MP_TRY(mp_byte_constants(graph, &parts, &result, is_turned ? AS_IT_IS : TURNED, in));
    in[MP_ROWS_X] = parts.x.value;
    if (result.has_sum) {
        MP_TRY(mp_byte_row(graph, result.row, parts.columns, &in[MP_ROWS_ROW]));
    }
    return put(graph, n, &result, attrs, mp_byte_attrs(&parts, &result, attrs), in);
}

/* QLinearMatMul says all of it by itself. */
static mp_status try_linear(mp_graph *graph, mp_rewrites *rewrites, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    mp_byte_parts parts = {.bias = MP_NO_VALUE, .low = INT32_MIN};
    const mp_byte_result result = {.last = n};
    mp_attr attrs[MP_BYTE_ATTRS];
    int32_t in[MP_ROWS_INPUTS];
    if (!mp_vertex_is(&v, "QLinearMatMul") || v.loop != NULL ||
        !mp_quantized_by(graph, &v, LINEAR_A_SCALE, v.in[LINEAR_A], &parts.x) ||
        !mp_quantized_by(graph, &v, LINEAR_Y_SCALE, v.out[0], &parts.to) ||
        !mp_quantized_weights_at(graph, &v, LINEAR_B, 2, 1, &parts.w) ||
        !mp_byte_wanted(graph, rewrites, parts.w.tensor.shape.dim[0])) {
        return MP_OK;
    }
    parts.columns = parts.w.tensor.shape.dim[1];
    if (!mp_byte_parts_fit(graph, &parts) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    MP_TRY(mp_byte_constants(graph, &parts, &result, TURNED, in));
    in[MP_ROWS_X] = v.in[LINEAR_A];
    return put(graph, n, &result, attrs, mp_byte_attrs(&parts, &result, attrs), in);
}

/* ---- what is quantised in each run ---- */

/* Whether the value is one number, whatever it is in a run. */
static bool is_one(const mp_graph *graph, int32_t value) {
    const mp_tensor *t = &graph->values[value].tensor;
    const int32_t maker = graph->values[value].producer;
    const mp_vertex *v = maker != MP_NO_NODE ? &graph->nodes[maker] : NULL;
    const bool is_dynamic =
        v != NULL && mp_vertex_is(v, "DynamicQuantizeLinear") && value != v->out[0];
    return is_dynamic || t->shape.rank == 0 || (t->shape.rank == 1 && t->shape.dim[0] == 1);
}

/* One number, or one for each column. */
static bool is_scale(const mp_graph *graph, int32_t value, int64_t columns) {
    const mp_shape *shape = &graph->values[value].tensor.shape;
    return mp_graph_type(graph, value) == MP_F32 &&
           (is_one(graph, value) || (shape->rank == 1 && shape->dim[0] == columns));
}

/* The other operand of the only node that reads `value`, if that is this operator; `*n`: the node.
 */
static int32_t other_operand(const mp_graph *graph, int32_t value, const char *name, int32_t *n) {
    *n = mp_graph_reader(graph, value, name);
    return *n != MP_NO_NODE ? graph->nodes[*n].in[graph->nodes[*n].in[0] == value ? 1 : 0]
                            : MP_NO_VALUE;
}

/* Whether the value can be the scale, as inputs: a product of one number and a constant is both. */
static bool take_scale(const mp_graph *graph, int32_t value, int64_t columns,
                       int32_t in[MP_ROWS_INPUTS]) {
    const int32_t n = mp_graph_maker(graph, value, "Mul");
    in[MP_ROWS_SCALE] = value;
    if (n == MP_NO_NODE) {
        return is_scale(graph, value, columns);
    }
    const mp_vertex *v = &graph->nodes[n];
    const int constant = graph->values[v->in[0]].is_constant ? 0 : 1;
    const int32_t scale = v->in[constant], factor = v->in[1 - constant];
    if (graph->values[scale].is_constant && is_scale(graph, scale, columns) &&
        is_one(graph, factor) && mp_graph_type(graph, factor) == MP_F32) {
        in[MP_ROWS_SCALE] = scale;
        in[MP_ROWS_FACTOR] = factor;
        return true;
    }
    return is_scale(graph, value, columns);
}

/* By what the sums are multiplied, and what is added then. */
static mp_dtype find_float(mp_graph *graph, int32_t n, int64_t columns, mp_byte_result *result,
                           int32_t in[MP_ROWS_INPUTS]) {
    int32_t mul = MP_NO_NODE, add = MP_NO_NODE;
    const int32_t cast = mp_graph_reader(graph, graph->nodes[n].out[0], "Cast");
    if (cast == MP_NO_NODE || mp_node_int(&graph->nodes[cast].node, "to", 0) != MP_F32) {
        return MP_I32;
    }
    const int32_t scale = other_operand(graph, graph->nodes[cast].out[0], "Mul", &mul);
    if (scale == MP_NO_VALUE || !take_scale(graph, scale, columns, in)) {
        in[MP_ROWS_SCALE] = MP_NO_VALUE;
        return MP_I32;
    }
    result->gone[result->gone_count++] = n;
    result->gone[result->gone_count++] = cast;
    result->last = mul;
    const int32_t row = other_operand(graph, graph->nodes[mul].out[0], "Add", &add);
    const mp_tensor *t = mp_graph_constant(graph, row);
    if (t != NULL && t->type == MP_F32 && t->shape.rank == 1 && t->shape.dim[0] == columns) {
        in[MP_ROWS_ROW] = row;
        result->gone[result->gone_count++] = mul;
        result->last = add;
    }
    return MP_F32;
}

static mp_status try_dynamic(mp_graph *graph, mp_rewrites *rewrites, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    const mp_tensor *w =
        mp_vertex_is(&v, "MatMulInteger") ? mp_graph_constant(graph, v.in[B]) : NULL;
    const int32_t zero = mp_vertex_in(&v, ZERO_A);
    mp_byte_result result = {.last = n};
    int32_t in[MP_ROWS_INPUTS];
    if (w == NULL || v.loop != NULL || w->data == 0 || w->type != MP_I8 || w->shape.rank != 2 ||
        w->shape.dim[0] > MP_BYTE_K_MAX || mp_shape_count(&w->shape) == 0 ||
        !mp_quantized_zeros(graph, mp_vertex_in(&v, ZERO_B)) ||
        (zero != MP_NO_VALUE && !is_one(graph, zero)) ||
        !mp_byte_wanted(graph, rewrites, w->shape.dim[0]) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    for (int i = 0; i < MP_ROWS_INPUTS; i++) {
        in[i] = MP_NO_VALUE;
    }
    const int64_t to_type = (int64_t)find_float(graph, n, w->shape.dim[1], &result, in);
    const mp_attr to = {.name = "to", .kind = MP_ATTR_INT, .i = to_type};
    in[MP_ROWS_X] = v.in[A];
    in[MP_ROWS_ZERO] = zero;
    MP_TRY(mp_byte_turned(graph, graph->values[v.in[B]].name, w, TURNED, &in[MP_ROWS_W]));
    MP_TRY(mp_byte_sums(graph, in[MP_ROWS_W], &in[MP_ROWS_SUMS]));
    return put(graph, n, &result, &to, 1, in);
}

mp_status mp_pass_byte_product(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        MP_TRY(try_product(graph, rewrites, n));
        MP_TRY(try_linear(graph, rewrites, n));
        MP_TRY(try_dynamic(graph, rewrites, n));
    }
    return MP_OK;
}
