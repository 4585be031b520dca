/* index_args.h - an iteration space and the strides of the tensors walked in it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INDEX_ARGS_H
#define MP_KERNEL_INDEX_ARGS_H

#include "kernel/core/types.h"

enum { K_RANK_MAX = 8, K_VIEWS = 4 };

/* Division by a constant: (umulhi(n, multiplier) + n) >> shift, for n below 2^31. */
typedef struct k_divider {
    uint32_t multiplier, shift;
} k_divider;

typedef struct k_layout {
    int32_t rank; /* at least 1 */
    int32_t wide; /* the space has 2^31 elements or more: dividers are not used */
    int64_t dim[K_RANK_MAX];
    k_divider divider[K_RANK_MAX];
    int64_t stride[K_VIEWS][K_RANK_MAX]; /* in elements; 0 repeats, negative walks back */
} k_layout;

#endif
