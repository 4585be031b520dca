/* cuda_conv_frame.c - the sizes of a convolution as cuDNN is asked for it.
 *
 * cuDNN pads both ends of a dimension alike and derives the output's size itself. Where that is not
 * what is wanted, the wide side is a buffer of exactly the size needed, without padding.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_conv.h"

#include "base/half.h"

#include <limits.h>

static bool int_from(int64_t value, int *out) {
    *out = (int)value;
    return value >= 0 && value <= INT_MAX;
}

/* What cuDNN derives for the narrow side from a wide side padded alike at both ends. */
static bool derives(int64_t wide, int64_t narrow, int64_t pad, int64_t reach, int64_t stride) {
    return pad >= 0 && wide + 2 * pad >= reach && (wide + 2 * pad - reach) / stride + 1 == narrow;
}

/* The size of the wide side, unpadded, that gives exactly `narrow`. */
static int64_t wide_size(int64_t narrow, int64_t stride, int64_t reach) {
    return (narrow - 1) * stride + reach;
}

static bool frame_sizes(const mp_conv *shape, conv_frame *out) {
    const int64_t *wide = shape->transposed ? shape->out : shape->in;
    const int64_t *narrow = shape->transposed ? shape->in : shape->out;
    const int shift = shape->spatial == 1 ? 1 : 0; /* room for the height of 1 */
    bool fits = true;
    for (int i = 0; i < shape->spatial; i++) {
        const int64_t reach = (shape->kernel[i] - 1) * shape->dilation[i] + 1;
        out->windowed |= !derives(wide[i], narrow[i], shape->pad_begin[i], reach, shape->stride[i]);
    }
    for (int i = 0; i < shape->spatial; i++) {
        const int64_t reach = (shape->kernel[i] - 1) * shape->dilation[i] + 1;
        const int at = i + shift;
        fits &= int_from(out->windowed ? wide_size(narrow[i], shape->stride[i], reach) : wide[i],
                         &out->wide[2 + at]);
        fits &= int_from(narrow[i], &out->narrow[2 + at]);
        fits &= int_from(shape->kernel[i], &out->weights[2 + at]);
        fits &= int_from(out->windowed ? 0 : shape->pad_begin[i], &out->pad[at]);
        fits &= int_from(shape->stride[i], &out->stride[at]);
        fits &= int_from(shape->dilation[i], &out->dilation[at]);
    }
    return fits;
}

/* Whether a plane, counted in elements, suits the 32-bit index of the window kernel. */
static bool planes_fit(const mp_conv *shape, const conv_frame *form) {
    int64_t wide = conv_line_unit(shape, form->wide[1]);
    int64_t narrow = conv_line_unit(shape, form->narrow[1]);
    for (int i = 2; i < 2 + form->spatial; i++) {
        wide *= form->wide[i];
        narrow *= form->narrow[i];
        if (wide > INT_MAX || narrow > INT_MAX) {
            return false;
        }
    }
    return true;
}

mp_status mp__cuda_conv_frame(const mp_conv *shape, conv_frame *out) {
    *out = (conv_frame){.spatial = shape->spatial == 3 ? 3 : 2};
    for (int i = 0; i < CONV_DIMS_MAX; i++) {
        out->wide[i] = out->narrow[i] = out->weights[i] = 1;
    }
    for (int i = 0; i < MP_CONV_SPATIAL_MAX; i++) {
        out->stride[i] = out->dilation[i] = 1;
    }
    const int64_t wide_channels = shape->transposed ? shape->out_channels : shape->in_channels;
    const int64_t narrow_channels = shape->transposed ? shape->in_channels : shape->out_channels;
    bool fits = frame_sizes(shape, out);
    fits &= int_from(shape->batch, &out->wide[0]) && int_from(shape->batch, &out->narrow[0]);
    fits &= int_from(wide_channels, &out->wide[1]);
    fits &= int_from(narrow_channels, &out->narrow[1]);
    fits &= int_from(narrow_channels, &out->weights[0]);
    fits &= int_from(wide_channels / shape->groups, &out->weights[1]);
    if (!fits || !planes_fit(shape, out)) {
        return MP_FAIL(UNSUPPORTED, "cuDNN counts sizes in 32 bits and one is larger");
    }
    return MP_OK;
}

int mp__cuda_conv_numbers(const mp_conv *shape, int64_t out[CUDA_CONV_NUMBERS]) {
    const int64_t head[] = {
        shape->type,
        shape->transposed,
        shape->channels_last,
        shape->tf32,
        shape->bias,
        shape->residual,
        shape->residual_behind,
        shape->activation,
        mp_float_bits(shape->alpha),
        mp_float_bits(shape->beta),
        shape->spatial,
        shape->workspace_max,
        shape->align,
        shape->batch,
        shape->in_channels,
        shape->out_channels,
        shape->groups,
    };
    const int64_t *const parts[] = {shape->in,       shape->out,       shape->kernel, shape->stride,
                                    shape->dilation, shape->pad_begin, shape->pad_end};
    int count = 0;
    for (size_t i = 0; i < MP_COUNT_OF(head); i++) {
        out[count++] = head[i];
    }
    for (size_t p = 0; p < MP_COUNT_OF(parts); p++) {
        for (int i = 0; i < shape->spatial; i++) {
            out[count++] = parts[p][i];
        }
    }
    return count;
}
