/* resize.h - what the resize kernels share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_RESIZE_H
#define MP_KERNEL_RESIZE_H

#include "kernel/core/index.h"
#include "kernel/image/sample_args.h"

/* A product that no compiler fuses with a sum: where rounding decides which input is meant, or what
 * an integer result is, a GPU has to agree with the CPU. */
K_FN float r_product(float a, float b) {
#if K_HOST
    return a * b;
#else
    return __fmul_rn(a, b);
#endif
}

K_FN int32_t r_clamp(int32_t value, int32_t low, int32_t high) {
    return value < low ? low : value > high ? high : value;
}

/* A whole number as an integer; one that is far out of any tensor stays so, NaN becomes 0. */
K_FN int32_t r_integer(float value) {
    const float bound = 1073741824.0f;
    return value != value    ? 0
           : value >= bound  ? (1 << 30)
           : value <= -bound ? -(1 << 30)
                             : (int32_t)value;
}

/* The axis that entry `e` belongs to. */
K_FN int32_t r_axis_of(const mp_resize_table_args *args, int64_t e) {
    int32_t a = 0;
    while (a + 1 < args->axes && e >= args->axis[a + 1].table) {
        a++;
    }
    return a;
}

/* Where output coordinate `o` lies in the input. */
K_FN float r_origin(const mp_resize_axis *axis, int32_t transform, float o) {
    const float in = (float)axis->in;
    const float out = (float)axis->out;
    if (axis->scale == 1.0f) {
        return o;
    }
    switch (transform) {
    case K_HALF_PIXEL_SYMMETRIC: {
        const float share = out / r_product(axis->scale, in);
        const float offset = r_product(in / 2.0f, 1.0f - share);
        return (float)((double)offset + ((double)o + 0.5) / (double)axis->scale - 0.5);
    }
    case K_PYTORCH_HALF_PIXEL:
        return out > 1.0f ? (o + 0.5f) / axis->scale - 0.5f : 0.0f;
    case K_ALIGN_CORNERS:
        return out == 1.0f ? 0.0f : r_product(o, in - 1.0f) / (out - 1.0f);
    case K_ASYMMETRIC:
        return o / axis->scale;
    case K_CROP_AND_RESIZE:
        return out > 1.0f
                   ? r_product(axis->start, in - 1.0f) +
                         r_product(r_product(o, axis->end - axis->start), in - 1.0f) / (out - 1.0f)
                   : (float)(0.5 * (double)(axis->start + axis->end) * (double)(in - 1.0f));
    case K_HALF_PIXEL_FOR_NEAREST:
        return (o + 0.5f) / axis->scale;
    default:
        return (o + 0.5f) / axis->scale - 0.5f;
    }
}

K_FN int32_t r_outside(const mp_resize_table_args *args, const mp_resize_axis *axis, float origin) {
    return args->extrapolate && !(origin >= 0.0f && origin <= (float)(axis->in - 1));
}

/* ---- walking the output; K_AXES is 1, 2, 3, or K_RANK_MAX for any number ---- */

#ifdef K_AXES

#if K_AXES <= 3
#define R_AXES(args) K_AXES
#else
#define R_AXES(args) ((args)->axes)
#endif

/* Takes the innermost coordinate, along part `d`, off `*i`. */
K_FN int64_t r_split(const mp_resize_args *args, int32_t d, int64_t *i) {
    if (args->dim[d] == 1) {
        return 0;
    }
    const int64_t outer =
        args->wide ? *i / args->dim[d] : (int64_t)k_divide((uint32_t)*i, args->divider[d]);
    const int64_t at = *i - outer * args->dim[d];
    *i = outer;
    return at;
}

/* The table entries of output `i`, and the offset in x that its kept dimensions make. */
K_FN int64_t r_place(const mp_resize_args *args, int64_t i, int64_t entry[K_AXES]) {
    int64_t offset = 0;
    for (int32_t a = R_AXES(args) - 1; a >= 0; a--) {
        offset += r_split(args, 2 * a + 2, &i) * args->stride[2 * a + 2];
        entry[a] = args->table[a] + r_split(args, 2 * a + 1, &i);
    }
    return offset + i * args->stride[0];
}

#endif

/* ---- results ---- */

#ifdef K_T0

#if T_DOUBLE
typedef double R_SUM;
#else
typedef float R_SUM;
#endif

/* Integers are cut off towards zero, and kept in range. */
K_FN T r_store(R_SUM value) {
#if T_FLOAT
    return T_store((TC)value);
#else
    const float high = T_SIGNED ? (float)(1u << (sizeof(T) * 8 - 1)) : 256.0f; /* i8, u8, i32 */
    const float low = T_SIGNED ? -high : 0.0f;
    const TC most = (TC)(T_SIGNED ? (1u << (sizeof(T) * 8 - 1)) - 1u : 255u);
    return value != value ? (T)0 : value >= high ? most : value <= low ? (T)low : (T)value;
#endif
}

#endif
#endif
