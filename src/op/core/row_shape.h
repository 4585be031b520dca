/* row_shape.h - a tensor as rows along one of its axes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROW_SHAPE_H
#define MP_OP_ROW_SHAPE_H

#include "op/core/shape.h"

/* Element c of row (o, i) is x[(o * columns + c) * inner + i]. A scalar is one row of one. */
typedef struct mp_rows {
    int64_t rows, columns, inner;
} mp_rows;

static inline mp_rows mp_rows_along(const mp_shape *shape, int axis) {
    if (shape->rank == 0) {
        return (mp_rows){.rows = 1, .columns = 1, .inner = 1};
    }
    const int64_t inner = mp_shape_span(shape, axis + 1, shape->rank);
    return (mp_rows){
        .rows = mp_shape_span(shape, 0, axis) * inner, .columns = shape->dim[axis], .inner = inner};
}

/* Up to how many parts rows are worth splitting into, so that a device with so many
 * multiprocessors is filled and a part has `least` columns. */
static inline int64_t mp_row_pieces(int64_t rows, int64_t columns, int64_t multiprocessors,
                                    int64_t least) {
    const int64_t wanted = multiprocessors * 4 / (rows > 0 ? rows : 1);
    const int64_t most = columns / least;
    const int64_t pieces = MP_MIN(wanted, most);
    return MP_MAX(pieces, 1);
}

#endif
