/* quantized.h - values between quantised tensors, as ONNX writes them: DequantizeLinear in front of
 * a node, QuantizeLinear behind it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_QUANTIZED_H
#define MP_GRAPH_PASS_QUANTIZED_H

#include "graph/graph.h"

/* Integers of which one stands for (integer - zero) * scale, both the same for all. */
typedef struct mp_quantized {
    int32_t value; /* of the graph */
    mp_dtype type; /* int8 or uint8 */
    float scale;
    int32_t zero;
} mp_quantized;

/* The integers that `value`, of float, is dequantised from. */
bool mp_dequantized(const mp_graph *graph, int32_t value, mp_quantized *out);
/* Whether node `n` is one that quantises, and what it makes. */
bool mp_quantizes(const mp_graph *graph, int32_t n, mp_quantized *out);
/* The node that quantises `value`, if nobody else reads that, and what it makes; or MP_NO_NODE. */
int32_t mp_quantizer(const mp_graph *graph, int32_t value, mp_quantized *out);
/* What the inputs scale and zero point, from `i` on, say of bytes `value`, as QLinear operators
 * have them. */
bool mp_quantized_by(const mp_graph *graph, const mp_vertex *v, int i, int32_t value,
                     mp_quantized *out);
bool mp_quantized_alike(const mp_quantized *a, const mp_quantized *b);

/* Weights: a constant of int8 without zero points whose lines along one dimension have a scale
 * each, or all the same. */
typedef struct mp_quantized_weights {
    mp_tensor tensor; /* the constant's */
    const float *scale;
    int64_t scales; /* 1, or one for each line */
} mp_quantized_weights;

/* Those that `value`, of float and `rank` dimensions, is dequantised from, with lines along `axis`.
 */
bool mp_dequantized_weights(const mp_graph *graph, int32_t value, int rank, int axis,
                            mp_quantized_weights *out);

/* Those in inputs `i` (integers), then scales and zero points. */
bool mp_quantized_weights_at(const mp_graph *graph, const mp_vertex *v, int i, int rank, int axis,
                             mp_quantized_weights *out);

/* Whether the value is a constant of zeros, or left out. */
bool mp_quantized_zeros(const mp_graph *graph, int32_t value);

/* A constant row of `count` numbers that is float, or dequantised from bytes or int32: number i. */
bool mp_dequantized_row(const mp_graph *graph, int32_t value, int64_t count);
double mp_dequantized_row_at(const mp_graph *graph, int32_t value, int64_t i);

#endif
