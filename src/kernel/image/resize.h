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

/* n / dim. */
K_FN int64_t r_quotient(int64_t n, int64_t dim, k_divider divider, int32_t wide) {
    return wide ? n / dim : (int64_t)k_divide((uint32_t)n, divider);
}

/* ---- walking the output; K_AXES is 1, 2, 3, or K_RANK_MAX for any number; with K_ALONG a line is
 * of the last resized axis, and else of what is kept behind it. Huge tensors are walked by the
 * kernel for any number, alone: numbers of 64 bits would be most of what the others do. ---- */

#ifdef K_AXES

#if K_AXES <= 3
typedef int32_t R_AT;
#define R_AXES(args)              K_AXES
#define R_SPLIT(args, n, dim, by) ((int32_t)k_divide((uint32_t)(n), (by)))
#else
typedef int64_t R_AT;
#define R_AXES(args)              ((args)->axes)
#define R_SPLIT(args, n, dim, by) r_quotient((n), (dim), (by), (args)->wide)
#endif
#define R_OUTER(args) (R_AXES(args) - K_ALONG) /* axes with one entry for all of a run */

enum { R_RUN = K_RESIZE_RUN(sizeof(T)) };
typedef struct K_ALIGN(R_RUN * sizeof(T)) r_run {
    T at[R_RUN];
} r_run;

typedef struct r_place {
    R_AT out, x;  /* its first output; the offset that kept dimensions make */
    int32_t left; /* outputs of it */
    int32_t entry[K_AXES];
} r_place;

/* Takes the innermost coordinate, along part `d`, off `*i`. */
K_FN R_AT r_split(const mp_resize_args *args, int32_t d, R_AT *i) {
    const R_AT outer = R_SPLIT(args, *i, args->dim[d], args->divider[d]);
    const R_AT at = *i - outer * (R_AT)args->dim[d];
    *i = outer;
    return at;
}

/* Of run `n`. */
K_FN r_place r_place_of(const mp_resize_args *args, R_AT n) {
    r_place place;
    R_AT line = R_SPLIT(args, n, args->runs, args->by_runs);
    const R_AT at = (n - line * (R_AT)args->runs) * R_RUN;
    const R_AT left = (R_AT)args->line - at;
    place.left = left < R_RUN ? (int32_t)left : R_RUN;
    place.out = line * (R_AT)args->out_line + at;
    place.x = K_ALONG ? 0 : at;
    for (int32_t a = R_AXES(args) - 1; a >= 0; a--) {
        const int last = a == R_AXES(args) - 1;
        if (!last) {
            place.x += r_split(args, 2 * a + 2, &line) * (R_AT)args->stride[2 * a + 2];
        }
        const R_AT o = K_ALONG && last ? at : r_split(args, 2 * a + 1, &line);
        place.entry[a] = args->table[a] + (int32_t)o;
    }
    place.x += line * (R_AT)args->stride[0];
    return place;
}

/* `packed`: r_run in memory. Else what is not of the run is its first element. */
K_FN r_run r_read(const T *x, int32_t left, int packed) {
    r_run run;
    if (packed) {
        return *(const r_run *)x;
    }
    for (int32_t k = 0; k < R_RUN; k++) {
        run.at[k] = x[k < left ? k : 0];
    }
    return run;
}

K_FN void r_write(T *out, int32_t left, int packed, r_run run) {
    if (packed) {
        *(r_run *)out = run;
        return;
    }
    for (int32_t k = 0; k < R_RUN; k++) {
        if (k < left) {
            out[k] = run.at[k];
        }
    }
}

/* With `value` where a coordinate is outside. */
K_FN r_run r_extrapolate(const mp_resize_args *args, const r_place *place, r_run run, T value) {
    int32_t outside = 0;
    for (int32_t a = 0; a < R_OUTER(args); a++) {
        outside |= args->outside[place->entry[a]];
    }
    for (int32_t k = 0; k < R_RUN; k++) {
        const int32_t own = K_ALONG ? args->outside[place->entry[R_AXES(args) - 1] + k] : 0;
        run.at[k] = outside | own ? value : run.at[k];
    }
    return run;
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
