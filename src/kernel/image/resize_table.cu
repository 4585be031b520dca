/* resize_table.cu - writes the tables of nearest (K_TAPS 1), linear (2) and cubic (4) resizing. One
 * lane an entry.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/resize.h"

#if K_TAPS == 1

K_FN float r_nearest(const mp_resize_table_args *args, const mp_resize_axis *axis, float origin) {
    switch (args->nearest) {
    case K_ROUND_PREFER_CEIL:
        return roundf(origin);
    case K_FLOOR:
        return floorf(origin);
    case K_CEIL:
        return ceilf(origin);
    case K_TRUNCATE_OR_CEIL:
        return axis->scale < 1.0f ? ceilf(origin) : truncf(origin);
    default:
        return origin == truncf(origin) + 0.5f ? floorf(origin) : roundf(origin);
    }
}

K_FN void r_entry(const mp_resize_table_args *args, const mp_resize_axis *axis, float origin,
                  int32_t *index, float *weight) {
    (void)weight;
    index[0] = r_clamp(r_integer(r_nearest(args, axis, origin)), 0, axis->in - 1);
}

#elif K_TAPS == 2

K_FN void r_entry(const mp_resize_table_args *args, const mp_resize_axis *axis, float origin,
                  int32_t *index, float *weight) {
    (void)args;
    const float most = (float)(axis->in - 1);
    const float inside = origin > 0.0f ? (origin < most ? origin : most) : 0.0f;
    index[0] = r_clamp((int32_t)inside, 0, axis->in - 1);
    index[1] = r_clamp(index[0] + 1, 0, axis->in - 1);
    const int same = index[0] == index[1];
    weight[0] = same ? 0.5f : fabsf(inside - (float)index[1]);
    weight[1] = same ? 0.5f : fabsf(inside - (float)index[0]);
}

#else

/* The cubic convolution kernel with parameter `a`, for distances up to 1 and from 1 to 2. */
K_FN float r_near(float a, float t) {
    return ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f;
}

K_FN float r_far(float a, float t) {
    return ((a * t - 5.0f * a) * t + 8.0f * a) * t - 4.0f * a;
}

K_FN void r_entry(const mp_resize_table_args *args, const mp_resize_axis *axis, float origin,
                  int32_t *index, float *weight) {
    const float whole = floorf(origin);
    const float t = origin - whole;
    const int32_t first = r_integer(whole) - 1;
    float sum = 0.0f;
    weight[0] = r_far(args->cubic_a, t + 1.0f);
    weight[1] = r_near(args->cubic_a, t);
    weight[2] = r_near(args->cubic_a, 1.0f - t);
    weight[3] = r_far(args->cubic_a, 2.0f - t);
    for (int32_t k = 0; k < K_TAPS; k++) {
        index[k] = r_clamp(first + k, 0, axis->in - 1);
        weight[k] = args->exclude_outside && index[k] != first + k ? 0.0f : weight[k];
        sum += weight[k];
    }
    for (int32_t k = 0; k < K_TAPS && args->exclude_outside; k++) {
        weight[k] /= sum;
    }
}

#endif

K_KERNEL(mp_resize_table_args, args) {
    K_GRID_LOOP(e, args.count) {
        const mp_resize_axis *axis = &args.axis[r_axis_of(&args, e)];
        const float origin = r_origin(axis, args.transform, (float)(e - axis->table));
        int32_t index[K_TAPS];
        float weight[K_TAPS];
        r_entry(&args, axis, origin, index, weight);
        if (args.extrapolate) {
            args.outside[e] = r_outside(&args, axis, origin);
        }
        for (int32_t k = 0; k < K_TAPS; k++) {
            args.index[e * K_TAPS + k] = index[k];
#if K_TAPS > 1
            args.weight[e * K_TAPS + k] = weight[k];
#endif
        }
    }
}
