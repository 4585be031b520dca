/* quantize.h - which scale and zero point belong to an element.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_QUANTIZE_H
#define MP_KERNEL_QUANTIZE_H

#include "kernel/core/index.h"
#include "kernel/pointwise/narrow_value.h"

/* The place of element `i`'s scale, of fewer than 2^31 elements. */
K_FN int64_t q_place_near(const k_scales *s, uint32_t i) {
    if (s->shared == K_SCALES_SINGLE) {
        return 0;
    }
    const uint32_t row = k_divide(i, s->divide_inner);
    const uint32_t outer = k_divide(row, s->divide_axis);
    const uint32_t along = k_divide(row - outer * (uint32_t)s->axis, s->divide_block);
    const uint32_t inner = i - row * (uint32_t)s->inner;
    return outer * s->by_outer + along * s->by_block + inner * s->by_inner;
}

/* The same of any. */
K_FN int64_t q_place(const k_scales *s, int64_t i) {
    if (!s->wide) {
        return q_place_near(s, (uint32_t)i);
    }
    const int64_t row = i / s->inner, inner = i - row * s->inner;
    const int64_t outer = row / s->axis, along = (row - outer * s->axis) / s->block;
    return outer * s->by_outer + along * s->by_block + inner * s->by_inner;
}

/* As it lies there: loads need not wait for what is made of them. */
K_FN uint32_t q_scale_bits(const void *scale, int32_t type, int64_t place) {
    if (type == K_SCALE_F32) {
        return ((const uint32_t *)scale)[place];
    }
    return type == K_SCALE_F16 || type == K_SCALE_BF16 ? ((const uint16_t *)scale)[place]
                                                       : ((const uint8_t *)scale)[place];
}

K_FN float q_scale_value(uint32_t bits, int32_t type) {
    if (type == K_SCALE_F32) {
        return k_float_of_bits(bits);
    }
    if (type == K_SCALE_F16) {
        const k_f16 half = {(uint16_t)bits};
        return k_load_f16(half);
    }
    if (type == K_SCALE_BF16) {
        return k_float_of_bits(bits << 16);
    }
    if (type == K_SCALE_F8E4M3FN) {
        const float size = k_float_of_bits((bits & 127u) << 20) * 0x1p120f;
        return (bits & 127u) == 127u ? K_NAN : bits < 128u ? size : -size;
    }
    return bits == 255u ? K_NAN : k_float_of_bits(bits != 0 ? bits << 23 : 0x400000u);
}

K_FN float q_scale(const void *scale, int32_t type, int64_t place) {
    return q_scale_value(q_scale_bits(scale, type, place), type);
}

/* Zero points of floats are 0 whatever they say. */
K_FN int32_t q_zero(const void *zero, const k_narrow *type, int64_t place) {
    return zero != 0 && type->kind <= K_NARROW_SIGNED
               ? n_whole(type, n_load((const uint8_t *)zero, type->width, place))
               : 0;
}

/* x / scale rounded to nearest even, moved by the zero point and kept within the range; NaN becomes
 * the lowest value, as on ONNX Runtime's CPU provider. */
K_FN uint32_t q_quantize(const k_narrow *type, float x, float scale, int32_t zero) {
    const float share = x / scale;
    if (type->kind > K_NARROW_SIGNED) {
        return n_to_bits(type, share);
    }
    const float low = (float)(type->low - zero);
    const float high = (float)(type->high - zero);
    const float whole = rintf(share);
    const float from_below = whole > low ? whole : low;
    return (uint32_t)((int32_t)(from_below < high ? from_below : high) + zero);
}

#endif
