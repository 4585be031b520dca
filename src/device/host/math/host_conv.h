/* host_conv.h - what the files of convolutions on the CPU share.
 *
 * Every convolution is treated as three-dimensional; missing dimensions have size 1.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_CONV_H
#define MP_DEVICE_HOST_CONV_H

#include "device/host/math/host_math.h"

#include <stdatomic.h>

typedef struct conv_shape {
    const mp_conv *conv;
    const host_real *real;
    int64_t group_in, group_out; /* channels of one group */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    int64_t in_points, out_points, taps;
} conv_shape;

/* For one tap along one axis, the points [begin, end) of the strided side for which
 * point * stride + offset lies within the other side. */
typedef struct tap_range {
    int64_t offset, begin, end;
} tap_range;

conv_shape mp__host_conv_shape(const mp_conv *conv);

/* Forward: points of the output, positions in the input. */
tap_range mp__host_conv_range(const conv_shape *shape, int axis, int64_t tap);

/* Adds the channel's bias (may be NULL) to computed values, and stores them. */
void mp__host_conv_finish(const conv_shape *shape, const char *bias, int64_t channel, char *to,
                          void *from, size_t count);

/* Channels first; `w` holds computed values. Fails: OUT_OF_MEMORY. */
mp_status mp__host_conv_forward(const conv_shape *shape, const char *x, const char *w,
                                const char *bias, char *y);
mp_status mp__host_conv_transposed(const conv_shape *shape, const char *x, const char *w,
                                   const char *bias, char *y);

/* Tensors with channels last: bytes of the workspace that their copies with channels first take,
 * making those of x and w (`own`: the operands to work with), and writing the result back. */
size_t mp__host_conv_last_size(const mp_conv *conv);
void mp__host_conv_last_begin(const mp_conv *conv, const mp_addr *operands, mp_addr workspace,
                              mp_addr *own);
void mp__host_conv_last_end(const mp_conv *conv, const mp_addr *own, const mp_addr *operands);

/* The failure of a convolution that found no scratch memory. */
mp_status mp__host_conv_no_scratch(void);

#endif
