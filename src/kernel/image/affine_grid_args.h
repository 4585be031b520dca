/* affine_grid_args.h - arguments of AffineGrid's kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_AFFINE_GRID_ARGS_H
#define MP_KERNEL_AFFINE_GRID_ARGS_H

#include "kernel/core/types.h"

/* theta is [batches][dims][dims + 1], out is [batches][depth][height][width][dims]. */
typedef struct mp_affine_grid_args {
    const void *theta;
    void *out;
    int64_t count;   /* of points, each with `dims` coordinates */
    int64_t size[3]; /* width, height, depth; depth is 1 where there are two dimensions */
    int32_t dims;    /* 2 or 3 */
    int32_t align_corners;
} mp_affine_grid_args;

#endif
