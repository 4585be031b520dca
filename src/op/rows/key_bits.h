/* key_bits.h - element types as ordered bits, for kernels that compare and are built by width.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_KEY_BITS_H
#define MP_OP_KEY_BITS_H

#include "base/dtype.h"
#include "kernel/rows/sort_args.h"

#include <stdbool.h>

/* "Descending" puts large elements, and NaN before them, first. */
k_order mp_order_of(mp_dtype dtype, bool descending);

/* Bits of an element, which is 1, 2, 4 or 8 bytes wide: the number in a kernel's name. */
int mp_order_bits(mp_dtype dtype);

/* The bits of the number one. */
uint64_t mp_one_bits(mp_dtype dtype);

#endif
