/* row_lanes_args.h - what plans know of kernels with row_lanes.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROW_LANES_ARGS_H
#define MP_KERNEL_ROW_LANES_ARGS_H

enum {
    K_ROW_LANES_MAX = 512, /* lanes that share a row */
    K_ROW_KEEP = 32,       /* elements of it that each keeps in registers; a quarter of 64 bits */
};

#endif
