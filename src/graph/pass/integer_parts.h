/* integer_parts.h - what passes put a product of integers together from.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_INTEGER_PARTS_H
#define MP_GRAPH_PASS_INTEGER_PARTS_H

#include "graph/pass.h"
#include "graph/pass/quantized.h"
#include "op/quantize/integer_rows.h"

/* Whether the device has such products of so many bytes beside each other, or they are wanted all
 * the same. */
bool mp_integer_wanted(const mp_graph *graph, const mp_rewrites *rewrites, int64_t channels);

/* What a product is made of: rows of weights, and what becomes of the sums. */
typedef struct mp_integer_parts {
    mp_quantized x;
    mp_quantized_weights w;
    int64_t columns;
    int32_t bias;    /* a row in float, or MP_NO_VALUE */
    mp_quantized to; /* .type is MP_NONE: the result is float */
    int32_t low;     /* of a byte of the result */
} mp_integer_parts;

/* Whether the bias is an integer of the sums, near enough, and all factors are numbers. */
bool mp_integer_parts_fit(const mp_graph *graph, const mp_integer_parts *parts);

/* Adds constants for inputs MP_ROWS_W to MP_ROWS_SCALE. `order`: which dimension of the weights is
 * which of the rows; the first of them are the columns. */
mp_status mp_integer_constants(mp_graph *graph, const mp_integer_parts *parts, const int *order,
                               int32_t in[MP_ROWS_INPUTS]);

/* Weights in another order of dimensions, int8, as a constant. */
mp_status mp_integer_turned(mp_graph *graph, const char *name, const mp_tensor *w, const int *order,
                            int32_t *out);
/* The sums of the rows of such a constant. */
mp_status mp_integer_sums(mp_graph *graph, int32_t rows, int32_t *out);

enum { MP_INTEGER_ATTRS = 3 };
/* The attributes `to`, `zero`, `low` of a result. */
void mp_integer_result(const mp_integer_parts *parts, mp_attr attrs[MP_INTEGER_ATTRS]);

/* The node that quantises the result of node `n` and takes its place, and what it makes; a Relu in
 * between raises `*low`. MP_NO_NODE where others read it, or it stays float. */
int32_t mp_integer_result_of(const mp_graph *graph, int32_t n, int32_t gone[2], int *gone_count,
                             mp_integer_parts *parts);

#endif
