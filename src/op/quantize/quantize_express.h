/* quantize_express.h - quantisation as an expression of element-wise functions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_QUANTIZE_EXPRESS_H
#define MP_OP_QUANTIZE_EXPRESS_H

#include "op/fused/expression.h"

/* mp_op.express of QuantizeLinear and DequantizeLinear, of integers of 8 and 16 bits (back: also of
 * 32) with one scale for all elements. */
int mp_express_quantize(mp_expresser *e);
int mp_express_dequantize(mp_expresser *e);

#endif
