/* pool_args.h - arguments of pool.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_POOL_ARGS_H
#define MP_KERNEL_POOL_ARGS_H

#include "kernel/core/index_args.h"

enum { K_POOL_DIMS = 3 };

/* Windows over [planes][in[0]][in[1]][in[2]], or with channels last over
 * [batch][in[0]][in[1]][in[2]][channels]; dimensions that the tensor lacks are 1, in front.
 * Every coordinate, padding included, is below 2^30. */
typedef struct mp_pool_args {
    const void *x;
    void *out;
    int64_t *indices;     /* of the maxima; NULL where nobody asks */
    int64_t count;        /* of out */
    int64_t plane;        /* elements of x in a plane */
    int64_t channels;     /* used where they are last */
    int32_t wide;         /* count is 2^31 or more: dividers are not used */
    int32_t column_major; /* the order in which indices number a plane */
    int32_t include_pad;  /* an average counts padding */
    float power;          /* of lp */
    k_divider by_channels;
    k_divider divider[K_POOL_DIMS]; /* by out[] */
    int32_t out_dim[K_POOL_DIMS], in[K_POOL_DIMS], kernel[K_POOL_DIMS], stride[K_POOL_DIMS];
    int32_t dilation[K_POOL_DIMS], pad_begin[K_POOL_DIMS], pad_end[K_POOL_DIMS];
} mp_pool_args;

#endif
