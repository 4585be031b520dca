/* host_conv_shape.c - what all convolutions on the CPU share: shapes, the reach of a tap, storing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_conv.h"

static void unfold(int64_t to[3], const int64_t *from, int32_t spatial, int64_t missing) {
    for (int32_t i = 0; i < 3; i++) {
        const int32_t at = i - (3 - spatial);
        to[i] = at >= 0 ? from[at] : missing;
    }
}

conv_shape mp__host_conv_shape(const mp_conv *conv) {
    conv_shape s = {
        .conv = conv,
        .real = mp__host_real(conv->type),
        .group_in = conv->in_channels / conv->groups,
        .group_out = conv->out_channels / conv->groups,
    };
    unfold(s.in, conv->in, conv->spatial, 1);
    unfold(s.out, conv->out, conv->spatial, 1);
    unfold(s.kernel, conv->kernel, conv->spatial, 1);
    unfold(s.stride, conv->stride, conv->spatial, 1);
    unfold(s.dilation, conv->dilation, conv->spatial, 1);
    unfold(s.pad, conv->pad_begin, conv->spatial, 0);
    s.in_points = s.in[0] * s.in[1] * s.in[2];
    s.out_points = s.out[0] * s.out[1] * s.out[2];
    s.taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
    return s;
}

tap_range mp__host_conv_range(const conv_shape *s, int axis, int64_t tap) {
    const int64_t offset = tap * s->dilation[axis] - s->pad[axis], stride = s->stride[axis];
    const int64_t first = offset >= 0 ? 0 : MP_CEIL_DIV(-offset, stride);
    const int64_t room = s->in[axis] - 1 - offset; /* of the last point, times the stride */
    const int64_t end = room < 0 ? 0 : room / stride + 1;
    tap_range range = {.offset = offset, .begin = first, .end = end};
    range.end = MP_MIN(range.end, s->out[axis]);
    range.begin = MP_MIN(range.begin, range.end);
    return range;
}

void mp__host_conv_finish(const conv_shape *s, const char *bias, int64_t channel, char *to,
                          void *from, size_t count) {
    double value;
    if (bias != NULL) {
        s->real->load(&value, bias + (size_t)channel * s->real->size, 1, 1);
        s->real->shift(from, &value, count);
    }
    if (to != from) {
        s->real->store(to, from, count);
    }
}

mp_status mp__host_conv_no_scratch(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate scratch memory for a convolution on the CPU");
}
