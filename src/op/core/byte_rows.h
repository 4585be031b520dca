/* byte_rows.h - the operator that passes put in the place of products of quantised tensors
 * (op/quantize/integer_rows.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_BYTE_ROWS_H
#define MP_OP_BYTE_ROWS_H

#include "op/core/op.h"

/* Its inputs; those from the third on may be left out. */
enum {
    MP_ROWS_X,      /* bytes: rows, or images with their channels last */
    MP_ROWS_W,      /* int8: a row for each column of the result */
    MP_ROWS_ADD,    /* int32, by column */
    MP_ROWS_SCALE,  /* float, by column, or one */
    MP_ROWS_OTHER,  /* bytes of the result's shape */
    MP_ROWS_ZERO,   /* of X, a byte that is not known before */
    MP_ROWS_SUMS,   /* int32, of the rows of W, where there is that */
    MP_ROWS_FACTOR, /* float, one number */
    MP_ROWS_ROW,    /* float, by column */
    MP_ROWS_INPUTS,
};

/* Whether a GPU has it for rows of so many bytes, or images of so many channels: from 8.0 on, in
 * pieces of 8 bytes. */
static inline bool mp_byte_rows_fit(const mp_device *device, int64_t channels) {
    return device->info.arch >= 80 && channels > 0 && channels % 8 == 0;
}

#endif
