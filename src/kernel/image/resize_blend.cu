/* resize_blend.cu - each output is a weighted sum over K_TAPS inputs along each resized axis, the
 * last axis first: linear and cubic interpolation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/resize.h"

enum { R_BITS = K_TAPS == 2 ? 1 : 2 }; /* of the number of a tap */

/* What the axes with one entry for a run choose: an offset in x, and a weight for each. */
typedef struct r_corner {
    R_AT at;
    float weight[K_AXES];
} r_corner;

/* Of the entries of a run along the last axis, which are read at once. */
typedef struct K_ALIGN(16) r_taps {
    int32_t index[R_RUN * K_TAPS];
} r_taps;
typedef struct K_ALIGN(16) r_weights {
    float at[R_RUN * K_TAPS];
} r_weights;

K_FN R_SUM r_add(R_SUM sum, float weight, T element) {
#if T_FLOAT || K_HOST
    return sum + (R_SUM)weight * (R_SUM)T_load(element);
#else
    return __fadd_rn(sum, __fmul_rn(weight, (float)element));
#endif
}

/* The corner of that number, of which the last axis has the lowest bits. */
K_FN r_corner r_corner_of(const mp_resize_args *args, const r_place *place, uint32_t choice) {
    const int32_t *__restrict__ index = args->index;
    const float *__restrict__ weight = args->weight;
    r_corner corner;
    corner.at = place->x;
    for (int32_t a = R_OUTER(args) - 1; a >= 0; a--) {
        const int64_t tap = (int64_t)place->entry[a] * K_TAPS + (int32_t)(choice & (K_TAPS - 1));
        corner.at += index[tap] * (R_AT)args->stride[2 * a + 1];
        corner.weight[a] = weight[tap];
        choice >>= R_BITS;
    }
    return corner;
}

K_FN float r_weigh(const mp_resize_args *args, const r_corner *corner, float weight) {
    (void)args; /* some kernels have a number of axes built in */
    for (int32_t a = R_OUTER(args) - 1; a >= 0; a--) {
        weight *= corner->weight[a];
    }
    return weight;
}

K_FN void r_blend(const mp_resize_args *args, int64_t n, int packed) {
    const T *__restrict__ x = (const T *)args->x;
    const r_place place = r_place_of(args, (R_AT)n);
    R_SUM sum[R_RUN] = {(R_SUM)0};
#if K_ALONG
    const int64_t tap = (int64_t)place.entry[R_AXES(args) - 1] * K_TAPS;
    const r_taps taps = *(const r_taps *)(args->index + tap);
    const r_weights weights = *(const r_weights *)(args->weight + tap);
#endif
    for (uint32_t choice = 0; choice < 1u << (R_BITS * R_OUTER(args)); choice++) {
        const r_corner corner = r_corner_of(args, &place, choice);
#if K_ALONG
        T from[R_RUN * K_TAPS]; /* all on their way before the first is weighed */
        for (int32_t k = 0; k < R_RUN * K_TAPS; k++) {
            from[k] = x[corner.at + taps.index[k]];
        }
        for (int32_t k = 0; k < R_RUN * K_TAPS; k++) {
            const float weight = r_weigh(args, &corner, weights.at[k]);
            sum[k / K_TAPS] = r_add(sum[k / K_TAPS], weight, from[k]);
        }
#else
        const r_run from = r_read(x + corner.at, place.left, packed);
        const float weight = r_weigh(args, &corner, 1.0f);
        for (int32_t k = 0; k < R_RUN; k++) {
            sum[k] = r_add(sum[k], weight, from.at[k]);
        }
#endif
    }
    r_run made;
    for (int32_t k = 0; k < R_RUN; k++) {
        made.at[k] = r_store(sum[k]);
    }
    if (args->extrapolate) {
        made = r_extrapolate(args, &place, made, r_store((R_SUM)args->outside_value));
    }
    r_write((T *)args->out + place.out, place.left, packed, made);
}

K_KERNEL_IN_80(256, mp_resize_args, args) {
#if !K_ALONG
    if (args.packed) {
        K_GRID_LOOP(n, args.count) {
            r_blend(&args, n, 1);
        }
        return;
    }
#endif
    K_GRID_LOOP(n, args.count) {
        r_blend(&args, n, K_ALONG && args.packed);
    }
}
