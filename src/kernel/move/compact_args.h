/* compact_args.h - arguments of the kernels that pick out the elements which are not zero.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_COMPACT_ARGS_H
#define MP_KERNEL_COMPACT_ARGS_H

#include "kernel/core/index_args.h"

/* The elements in tiles of neighbours, each of which a block goes through in order. */
typedef struct mp_compact_args {
    const void *x;
    int64_t *starts; /* of each tile; how many are found in it, then how many before it */
    int64_t *total;
    int64_t *out;
    int64_t count, tiles, tile;
    int64_t found; /* the total, once it is known */
    int32_t rank;  /* of x; 0: `out` gets positions instead of indices */
    int32_t unused;
    int64_t stride[K_RANK_MAX]; /* of x, its dimensions in order */
} mp_compact_args;

#endif
