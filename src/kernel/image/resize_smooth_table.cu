/* resize_smooth_table.cu - writes the tables for shrinking with antialiasing: a filter as wide as
 * the inputs that fall on one output. What would weigh inputs beyond an edge is given to the edge,
 * or left out. One lane an entry.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/resize.h"

K_FN float r_filter(const mp_resize_table_args *args, float distance) {
    const float a = args->cubic_a;
    const float t = fabsf(distance);
    if (!args->cubic) {
        return t < 1.0f ? 1.0f - t : 0.0f;
    }
    return t < 1.0f   ? ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f
           : t < 2.0f ? (((t - 5.0f) * t + 8.0f) * t - 4.0f) * a
                      : 0.0f;
}

K_KERNEL(mp_resize_table_args, args) {
    K_GRID_LOOP(e, args.count) {
        const mp_resize_axis *axis = &args.axis[r_axis_of(&args, e)];
        const int64_t o = e - axis->table;
        float *weight = args.weight + axis->weights + o * axis->window;
        const float origin = r_origin(axis, args.transform, (float)o);
        const float center = origin + 0.5f;
        const float narrow = axis->scale < 1.0f ? axis->scale : 1.0f;
        const int32_t first = r_integer(floorf(center - axis->support + 0.5f));
        const int32_t span = r_integer(floorf(center + axis->support + 0.5f)) - first;
        const int32_t end = first + r_clamp(span, 0, axis->window);
        const int32_t low = r_clamp(first, 0, axis->in);
        const int32_t high = r_clamp(end, 0, axis->in);
        float total = 0.0f;
        for (int32_t k = 0; k < axis->window; k++) {
            weight[k] = 0.0f;
        }
        for (int32_t n = first; n < end && low < high; n++) {
            const int32_t edge = r_clamp(n, low, high - 1);
            if (n == edge || !args.exclude_outside) {
                const float w = r_filter(&args, ((float)n - center + 0.5f) * narrow);
                weight[edge - low] += w;
                total += w;
            }
        }
        const float share = total == 0.0f ? 1.0f : 1.0f / total;
        for (int32_t k = 0; k < high - low; k++) {
            const float w = weight[k] * share;
            weight[k] = args.fixed_point ? roundf(w * 4194304.0f) : w;
        }
        args.index[2 * e] = r_outside(&args, axis, origin) ? -1 : low;
        args.index[2 * e + 1] = high - low;
    }
}
