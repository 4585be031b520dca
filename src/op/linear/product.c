/* product.c - the shapes of a matrix product in NumPy's terms.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/product.h"

static mp_shape batch_of(const mp_shape *shape) {
    mp_shape batch = *shape;
    batch.rank = shape->rank > 2 ? shape->rank - 2 : 0;
    return batch;
}

mp_status mp_product_read(const mp_shape *a, const mp_shape *b, mp_product *out) {
    char left[MP_SHAPE_TEXT];
    char right[MP_SHAPE_TEXT];
    if (a->rank == 0 || b->rank == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "inputs of shape %s and %s: neither may be a scalar",
                       mp_shape_text(a, left), mp_shape_text(b, right));
    }
    const bool a_vector = a->rank == 1;
    const bool b_vector = b->rank == 1;
    out->m = a_vector ? 1 : a->dim[a->rank - 2];
    out->k = a->dim[a->rank - 1];
    out->n = b_vector ? 1 : b->dim[b->rank - 1];
    if (out->k != (b_vector ? b->dim[0] : b->dim[b->rank - 2])) {
        return MP_FAIL(INVALID_ARGUMENT, "inner dimensions of %s and %s differ",
                       mp_shape_text(a, left), mp_shape_text(b, right));
    }
    out->a_batch = batch_of(a);
    out->b_batch = batch_of(b);
    MP_TRY(mp_shape_broadcast(&out->a_batch, &out->b_batch, &out->batch));
    out->out = out->batch;
    if (!a_vector) {
        out->out.dim[out->out.rank++] = out->m;
    }
    if (!b_vector) {
        out->out.dim[out->out.rank++] = out->n;
    }
    return MP_OK;
}
