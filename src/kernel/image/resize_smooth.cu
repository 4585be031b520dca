/* resize_smooth.cu - one axis of shrinking with antialiasing. Results of 8 bits are summed in fixed
 * point, with 22 bits behind the point.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/resize.h"

/* x: the first of `count` inputs that are `step` apart. */
K_FN T r_smooth(const T *x, int64_t step, const float *weight, int32_t count) {
    if (!T_FLOAT && sizeof(T) == 1) {
        const int32_t low = T_SIGNED ? -128 : 0;
        int32_t sum = 1 << 21;
        for (int32_t k = 0; k < count; k++) {
            sum += (int32_t)weight[k] * (int32_t)T_load(x[k * step]);
        }
        return T_store((TC)r_clamp(sum >> 22, low, low + 255));
    }
    R_SUM sum = (R_SUM)0;
    for (int32_t k = 0; k < count; k++) {
        sum += (R_SUM)weight[k] * (R_SUM)T_load(x[k * step]);
    }
#if !T_FLOAT
    sum = roundf(sum);
#endif
    return r_store(sum);
}

K_KERNEL(mp_resize_pass_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        const int64_t row = r_quotient(i, args.inner, args.by_inner, args.wide);
        const int64_t k = i - row * args.inner;
        const int64_t plane = r_quotient(row, args.length, args.by_length, args.wide);
        const int64_t j = row - plane * args.length;
        const int32_t first = args.index[2 * j];
        const T *from = x + (plane * args.in + first) * args.inner + k;
        out[i] = first < 0 ? r_store((R_SUM)args.outside_value)
                           : r_smooth(from, args.inner, args.weight + j * args.window,
                                      args.index[2 * j + 1]);
    }
}
