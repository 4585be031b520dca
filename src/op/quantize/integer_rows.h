/* integer_rows.h - the operator that products of quantised tensors become.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_INTEGER_ROWS_H
#define MP_OP_INTEGER_ROWS_H

#include "op/core/op.h"

/* Its inputs; those from the third on may be left out. */
enum {
    MP_ROWS_X,       /* bytes: rows, or images with their channels last */
    MP_ROWS_W,       /* int8: a row for each column of the result */
    MP_ROWS_ADD,     /* int32, by column */
    MP_ROWS_SCALE,   /* float, by column, or one */
    MP_ROWS_OTHER,   /* bytes of the result's shape */
    MP_ROWS_ZERO,    /* of X, a byte that is not known before */
    MP_ROWS_SUMS,    /* int32, of the rows of W, where there is that */
    MP_ROWS_FACTOR, /* float, one number */
    MP_ROWS_ROW,    /* float, by column */
    MP_ROWS_INPUTS,
};

/* Whether a device has it for rows, or images of so many channels, faster than in float. */
bool mp_integer_rows_takes(const mp_device *device, int64_t channels);

#endif
