/* quantized.c - see quantized.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/quantized.h"

#include "graph/look.h"

enum { X, SCALE, ZERO };

/* Between which scales are, so that products and shares of three of them are floats, too. */
#define SCALE_LEAST 0x1p-40F
#define SCALE_MOST  0x1p40F

/* ---- one scale for all ---- */

static const mp_tensor *one_of(const mp_graph *graph, int32_t value) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    return t != NULL && t->data != 0 && t->shape.rank <= 1 && mp_shape_count(&t->shape) == 1 ? t
                                                                                             : NULL;
}

static int32_t byte_at(const mp_tensor *t, int64_t i) {
    return t->type == MP_I8 ? ((const int8_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
}

/* The type is that of the zero point, without one `type`. */
static bool scale_of(const mp_graph *graph, const mp_vertex *v, int i, mp_dtype type,
                     mp_quantized *out) {
    const mp_tensor *scale = one_of(graph, mp_vertex_in(v, i));
    const mp_tensor *zero = one_of(graph, mp_vertex_in(v, i + 1));
    if (scale == NULL || scale->type != MP_F32 ||
        (zero == NULL && mp_vertex_in(v, i + 1) != MP_NO_VALUE)) {
        return false;
    }
    out->type = zero != NULL ? zero->type : type;
    if (out->type != MP_I8 && out->type != MP_U8) {
        return false;
    }
    out->scale = ((const float *)scale->data)[0];
    out->zero = zero != NULL ? byte_at(zero, 0) : 0;
    return out->scale >= SCALE_LEAST && out->scale <= SCALE_MOST;
}

/* No blocks, and the type is not said otherwise. */
static bool is_plain(const mp_vertex *v) {
    return mp_node_int(&v->node, "block_size", 0) == 0 &&
           mp_node_int(&v->node, "output_dtype", 0) == 0;
}

bool mp_quantized_by(const mp_graph *graph, const mp_vertex *v, int i, int32_t value,
                     mp_quantized *out) {
    out->value = value;
    return scale_of(graph, v, i, mp_graph_type(graph, value), out);
}

bool mp_dequantized(const mp_graph *graph, int32_t value, mp_quantized *out) {
    const int32_t n = mp_graph_maker(graph, value, "DequantizeLinear");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    return v != NULL && is_plain(v) && mp_quantized_by(graph, v, SCALE, v->in[X], out);
}

bool mp_quantizes(const mp_graph *graph, int32_t n, mp_quantized *out) {
    const mp_vertex *v = &graph->nodes[n];
    if (!mp_vertex_is(v, "QuantizeLinear") || !is_plain(v)) {
        return false;
    }
    out->value = v->out[0];
    return scale_of(graph, v, SCALE, MP_U8, out);
}

int32_t mp_quantizer(const mp_graph *graph, int32_t value, mp_quantized *out) {
    const int32_t n = mp_graph_reader(graph, value, "QuantizeLinear");
    return n != MP_NO_NODE && graph->nodes[n].in[X] == value && mp_quantizes(graph, n, out)
               ? n
               : MP_NO_NODE;
}

bool mp_quantized_alike(const mp_quantized *a, const mp_quantized *b) {
    return a->type == b->type && a->scale == b->scale && a->zero == b->zero;
}

/* ---- constants ---- */

static bool is_zero(const mp_tensor *t) {
    const unsigned char *at = (const unsigned char *)t->data;
    size_t bytes = 0;
    if (t->data == 0 || mp_shape_bytes(&t->shape, t->type, &bytes) != MP_OK) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

bool mp_quantized_zeros(const mp_graph *graph, int32_t value) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    return value == MP_NO_VALUE || (t != NULL && is_zero(t));
}

bool mp_quantized_weights_at(const mp_graph *graph, const mp_vertex *v, int i, int rank, int axis,
                             mp_quantized_weights *out) {
    const mp_tensor *x = mp_graph_constant(graph, mp_vertex_in(v, i));
    const mp_tensor *scale = mp_graph_constant(graph, mp_vertex_in(v, i + 1));
    if (x == NULL || x->data == 0 || x->type != MP_I8 || scale == NULL || scale->data == 0 ||
        scale->type != MP_F32 || scale->shape.rank > 1 ||
        !mp_quantized_zeros(graph, mp_vertex_in(v, i + 2))) {
        return false;
    }
    *out = (mp_quantized_weights){
        .tensor = *x, .scale = (const float *)scale->data, .scales = mp_shape_count(&scale->shape)};
    return x->shape.rank == rank && mp_shape_count(&x->shape) > 0 &&
           (out->scales == 1 || out->scales == x->shape.dim[axis]);
}

/* The node, whose integers and scales are constants that are here. */
static const mp_vertex *dequantizer(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "DequantizeLinear");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const mp_tensor *x = v != NULL ? mp_graph_constant(graph, v->in[X]) : NULL;
    const mp_tensor *scale = v != NULL ? mp_graph_constant(graph, mp_vertex_in(v, SCALE)) : NULL;
    return x != NULL && x->data != 0 && scale != NULL && scale->data != 0 &&
                   scale->type == MP_F32 && scale->shape.rank <= 1 && is_plain(v)
               ? v
               : NULL;
}

bool mp_dequantized_weights(const mp_graph *graph, int32_t value, int rank, int axis,
                            mp_quantized_weights *out) {
    const mp_vertex *v = dequantizer(graph, value);
    if (v == NULL || !mp_quantized_weights_at(graph, v, X, rank, axis, out)) {
        return false;
    }
    const int64_t asked = mp_node_int(&v->node, "axis", 1);
    return out->scales == 1 || (asked < 0 ? asked + rank : asked) == axis;
}

/* Integers of which each, or all, have a scale, and all one zero point. */
static bool is_row(const mp_graph *graph, const mp_vertex *v, int64_t count) {
    const mp_tensor *x = &graph->values[v->in[X]].tensor;
    const int64_t scales = mp_shape_count(&graph->values[v->in[SCALE]].tensor.shape);
    const mp_tensor *zero = one_of(graph, mp_vertex_in(v, ZERO));
    const bool is_byte = x->type == MP_I8 || x->type == MP_U8;
    return (is_byte || x->type == MP_I32) && x->shape.rank == 1 && x->shape.dim[0] == count &&
           (scales == 1 || scales == count) &&
           (mp_quantized_zeros(graph, mp_vertex_in(v, ZERO)) ||
            (is_byte && zero != NULL && zero->type == x->type));
}

bool mp_dequantized_row(const mp_graph *graph, int32_t value, int64_t count) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    const mp_vertex *v = t == NULL ? dequantizer(graph, value) : NULL;
    return v != NULL ? is_row(graph, v, count)
                     : t != NULL && t->data != 0 && t->type == MP_F32 && t->shape.rank == 1 &&
                           t->shape.dim[0] == count;
}

double mp_dequantized_row_at(const mp_graph *graph, int32_t value, int64_t i) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    if (t != NULL) {
        return (double)((const float *)t->data)[i];
    }
    const mp_vertex *v = dequantizer(graph, value);
    const mp_tensor *x = &graph->values[v->in[X]].tensor;
    const mp_tensor *scale = &graph->values[v->in[SCALE]].tensor;
    const mp_tensor *zero = one_of(graph, mp_vertex_in(v, ZERO));
    const double by =
        (double)((const float *)scale->data)[mp_shape_count(&scale->shape) > 1 ? i : 0];
    if (x->type == MP_I32) {
        return ((const int32_t *)x->data)[i] * by;
    }
    return (byte_at(x, i) - (zero != NULL ? byte_at(zero, 0) : 0)) * by;
}
