/* shuffle_end_args.h - arguments of shuffle_end.cu, and how its blocks are cut.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SHUFFLE_END_ARGS_H
#define MP_KERNEL_SHUFFLE_END_ARGS_H

#include "kernel/core/index_args.h"

enum {
    K_SHUFFLE_END_LANES = 256, /* one for each share of the product */
    K_SHUFFLE_END_PIXELS = 8,  /* of a block */
    K_SHUFFLE_END_SIDE = 3,    /* of a window */
    K_SHUFFLE_END_TAPS = 9,    /* of it */
    K_SHUFFLE_END_ROWS = 10,   /* with the bias behind them */
    K_SHUFFLE_END_LEAST = 4,   /* columns of a block, as a power of two, at least ... */
    K_SHUFFLE_END_MOST = 6,    /* ... and at most */
    K_SHUFFLE_END_HELD = 2,    /* results of a lane, for as many columns */
    K_SHUFFLE_END_SUMS = 2048, /* of all lanes: each has eight */
};

/* Floats of a line of a block's pixels, an odd number: lines of one pixel and another begin in
 * other banks. */
#define K_SHUFFLE_END_LINE(channels) ((channels) | 1)

/* Bytes of shared memory: windows and the bias behind them, the matrix, pixels, sums. */
#define K_SHUFFLE_END_BYTES(channels, columns_log)                                           \
    ((K_SHUFFLE_END_ROWS * (channels) + ((channels) << (columns_log)) + K_SHUFFLE_END_SUMS + \
      K_SHUFFLE_END_PIXELS * K_SHUFFLE_END_LINE(channels)) *                                 \
     (int32_t)sizeof(float))

/* Images with channels last, of fewer than 2^31 elements. Results are pairs: an element of `even`
 * and one that is made. */
typedef struct mp_shuffle_end_args {
    const void *x;             /* [images, height, width, channels] */
    const void *even;          /* [pixels, columns] */
    const void *taps;          /* [K_SHUFFLE_END_ROWS, channels] */
    const void *matrix, *bias; /* [channels, columns], [columns] or NULL */
    void *first, *second;      /* [pixels, 2 * first_pairs], and what is left of each pixel */
    int32_t height, width, channels, columns;
    int32_t out_height, out_width, pixels; /* of all images */
    int32_t stride[2], pad[2];             /* pad: before */
    int32_t first_pairs;
    int32_t columns_log, column_tiles; /* of a block, and blocks that have the same pixels */
    int32_t constant; /* all but x and even are, and may be read before the kernel before ends */
    int32_t in_pairs; /* whether a pair is aligned */
    k_divider by_packs, by_width, by_height, by_tiles;
} mp_shuffle_end_args;

#endif
