/* deform_args.h - arguments of the kernel that lays out a deformable convolution as a product.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DEFORM_ARGS_H
#define MP_KERNEL_DEFORM_ARGS_H

#include "kernel/core/types.h"

/* Of one pass over `images` images: x is [images][channels][in_h][in_w], columns is
 * [images][channels][kernel_h][kernel_w][out_h][out_w], offset is
 * [images][offset_groups][kernel_h][kernel_w][2][out_h][out_w], mask the same without the 2. */
typedef struct mp_deform_args {
    const void *x, *offset, *mask; /* mask may be NULL */
    void *columns;
    int64_t count; /* of columns */
    int64_t channels, offset_groups;
    int64_t in_h, in_w, out_h, out_w, kernel_h, kernel_w;
    int64_t stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
} mp_deform_args;

#endif
