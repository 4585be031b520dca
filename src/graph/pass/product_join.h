/* product_join.h - products of one input by constant matrices become one product, whose result has
 * theirs side by side: MatMul, MatMulBias, MatMulNBits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_PRODUCT_JOIN_H
#define MP_GRAPH_PASS_PRODUCT_JOIN_H

#include "graph/look.h"

enum { MP_JOINED_MAX = 3 };

typedef struct mp_product {
    int32_t node;    /* MP_NO_NODE: none */
    int32_t x;       /* what is multiplied */
    int64_t columns; /* of the result */
} mp_product;

/* The product that makes `y`, of a matrix whose bytes are here and which nobody else reads: that
 * would be there twice. */
mp_product mp_product_of(const mp_graph *graph, int32_t y);

/* Whether both can be one. */
bool mp_products_alike(const mp_graph *graph, const mp_product *a, const mp_product *b);

/* The value that the result of all of them will be; nobody makes it yet. */
mp_status mp_products_result(mp_graph *graph, const mp_product *all, int count, int32_t *whole);
/* One node in the place of the first makes `whole`; their results have no producer any more. */
mp_status mp_products_join(mp_graph *graph, const mp_product *all, int count, int32_t whole);

#endif
