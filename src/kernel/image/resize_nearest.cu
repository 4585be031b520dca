/* resize_nearest.cu - each output is the input that the tables of its axes name. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/resize.h"

/* Of the entries of a run along the last axis, which are read at once. */
typedef struct K_ALIGN(R_RUN * sizeof(int32_t)) r_indices {
    int32_t at[R_RUN];
} r_indices;

K_FN void r_nearest(const mp_resize_args *args, int64_t n, int packed) {
    const T *__restrict__ x = (const T *)args->x;
    const int32_t *__restrict__ index = args->index;
    const r_place place = r_place_of(args, (R_AT)n);
    R_AT from = place.x;
    for (int32_t a = 0; a < R_OUTER(args); a++) {
        from += index[place.entry[a]] * (R_AT)args->stride[2 * a + 1];
    }
#if K_ALONG
    const r_indices last = *(const r_indices *)(index + place.entry[R_AXES(args) - 1]);
    r_run run;
    for (int32_t k = 0; k < R_RUN; k++) {
        run.at[k] = x[from + last.at[k]];
    }
#else
    r_run run = r_read(x + from, place.left, packed);
#endif
    if (args->extrapolate) {
        run = r_extrapolate(args, &place, run, (T)args->outside_bits);
    }
    r_write((T *)args->out + place.out, place.left, packed, run);
}

K_KERNEL(mp_resize_args, args) {
#if !K_ALONG
    if (args.packed) {
        K_GRID_LOOP(n, args.count) {
            r_nearest(&args, n, 1);
        }
        return;
    }
#endif
    K_GRID_LOOP(n, args.count) {
        r_nearest(&args, n, K_ALONG && args.packed);
    }
}
