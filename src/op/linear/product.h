/* product.h - the shapes of a matrix product in NumPy's terms.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PRODUCT_H
#define MP_OP_PRODUCT_H

#include "op/core/shape.h"

/* Batch dimensions of both sides, then m, k and n. A vector counts as one row or one column. */
typedef struct mp_product {
    mp_shape a_batch, b_batch, batch; /* of A, of B, of the result */
    int64_t m, k, n;
    mp_shape out;
} mp_product;

/* Fails: INVALID_ARGUMENT for shapes that do not multiply. */
mp_status mp_product_read(const mp_shape *a, const mp_shape *b, mp_product *out);

#endif
