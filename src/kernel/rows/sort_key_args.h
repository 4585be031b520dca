/* sort_key_args.h - how the bits of an element type are ordered.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SORT_KEY_ARGS_H
#define MP_KERNEL_SORT_KEY_ARGS_H

#include "kernel/core/types.h"

typedef struct k_order {
    uint64_t sign; /* the sign's bit; 0 for unsigned integers */
    uint64_t inf;  /* the bits of +inf; 0 for integers */
    uint64_t all;  /* every bit of the type */
    uint64_t flip; /* `all` for descending order, otherwise 0 */
} k_order;

#endif
