/* conv_columns.h - convolutions that the device's library refuses, of any kind: as products of
 * matrices, of what each tap reads or of what each adds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_COLUMNS_H
#define MP_OP_CONV_COLUMNS_H

#include "op/core/op.h"

/* The convolution with its bias, without residual and activation, with channels first; transposed
 * ones of one group that make one channel also with channels last. */
mp_status mp_conv_columns_steps(mp_planner *p, const mp_conv *conv,
                                const mp_ref operands[MP_CONV_OPERANDS]);

#endif
