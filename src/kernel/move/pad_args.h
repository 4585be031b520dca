/* pad_args.h - arguments of pad.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PAD_ARGS_H
#define MP_KERNEL_PAD_ARGS_H

#include "kernel/core/index_args.h"

enum { K_PAD_CONSTANT, K_PAD_EDGE, K_PAD_REFLECT, K_PAD_WRAP };

typedef struct mp_pad_args {
    const void *x;     /* at the first element that may be read */
    const void *value; /* of K_PAD_CONSTANT: one element; NULL: the bytes of `bits` */
    void *out;
    int64_t count;
    uint64_t bits;
    int32_t value_size; /* bytes of that element; T is as wide or holds several */
    int32_t mode;
    int32_t rank;               /* at least 1 */
    int32_t wide;               /* out has 2^31 elements or more: dividers are not used */
    int64_t dim[K_RANK_MAX];    /* of out */
    int64_t size[K_RANK_MAX];   /* of x, of which `before` elements of out come first */
    int64_t before[K_RANK_MAX]; /* 0 or more */
    int64_t stride[K_RANK_MAX]; /* of x; of the last one 1 */
    k_divider divider[K_RANK_MAX];
} mp_pad_args;

#endif
