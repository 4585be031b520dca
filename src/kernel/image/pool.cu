/* pool.cu - the mean, the norm or the largest element of a window over up to three dimensions;
 * argmax also tells where that lies. One lane an output, so neighbouring lanes read neighbouring
 * windows. A NaN in the window is its maximum.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/pool_window.h"

#define P_max    1
#define P_argmax 2
#define P_mean   3
#define P_lp     4
#define P_OP     K_JOIN(P_, K_OP)

/* Visits each tap's offset in the plane; `args` and `span` are those of p_pool. */
#define P_EACH_TAP(offset)                                                         \
    for (int32_t a = 0; a < span[0].taps; a++)                                     \
        for (int32_t b = 0; b < span[1].taps; b++)                                 \
            for (int64_t offset = p_line(args, span, a, b),                        \
                         end = offset + (int64_t)span[2].taps * args->dilation[2]; \
                 offset < end; offset += args->dilation[2])

enum { P_SIDE = 3 }; /* of the windows whose taps are all loaded at once */

K_FN int p_is_small(const mp_pool_args *args) {
    return args->kernel[0] == 1 && args->kernel[1] <= P_SIDE && args->kernel[2] <= P_SIDE;
}

/* The taps of such a window; `none` where there is none. */
K_FN void p_taps(const mp_pool_args *args, const T *x, const p_span span[K_POOL_DIMS], T none,
                 T tap[P_SIDE * P_SIDE]) {
    const T *from = x + p_line(args, span, 0, 0);
    const int32_t rows = span[0].taps > 0 ? span[1].taps : 0, step = args->dilation[2];
    const int64_t line = (int64_t)args->dilation[1] * args->in[2];
    K_UNROLL for (int32_t i = 0; i < P_SIDE * P_SIDE; i++) {
        const int32_t b = i / P_SIDE, c = i % P_SIDE;
        tap[i] = none;
        if (b < rows && c < span[2].taps) {
            tap[i] = from[b * line + c * step];
        }
    }
}

#if P_OP == P_mean

K_FN TC p_sum(const mp_pool_args *args, const T *x, const p_span span[K_POOL_DIMS]) {
    TC sum = (TC)0;
    if (p_is_small(args)) {
        T tap[P_SIDE * P_SIDE];
        p_taps(args, x, span, T_store((TC)0), tap);
        K_UNROLL for (int32_t i = 0; i < P_SIDE * P_SIDE; i++) {
            sum += T_load(tap[i]);
        }
        return sum;
    }
    P_EACH_TAP(offset) {
        sum += T_load(x[offset]);
    }
    return sum;
}

K_FN void p_pool(const mp_pool_args *args, const T *x, const p_span span[K_POOL_DIMS], int64_t i,
                 int64_t plane) {
    const TC sum = p_sum(args, x, span);
    int64_t counted = 1;
    (void)plane;
    for (int32_t d = 0; d < K_POOL_DIMS; d++) {
        counted *= args->include_pad ? span[d].padded : span[d].taps;
    }
    ((T *)args->out)[i] = T_store(counted > 0 ? sum / (TC)counted : (TC)0);
}

#elif P_OP == P_lp

/* The sum of what the magnitudes are to the power, and its root. */
K_FN void p_pool(const mp_pool_args *args, const T *x, const p_span span[K_POOL_DIMS], int64_t i,
                 int64_t plane) {
    const TC power = (TC)args->power;
    TC sum = (TC)0;
    (void)plane;
    P_EACH_TAP(offset) {
        const TC value = K_M(fabs)(T_load(x[offset]));
        sum += power == 1 ? value : power == 2 ? value * value : K_M(pow)(value, power);
    }
    if (power != 1) {
        sum = power == 2 ? K_M(sqrt)(sum) : K_M(pow)(sum, 1 / power);
    }
    ((T *)args->out)[i] = T_store(sum);
}

#else

/* A window over nothing but padding has the lowest value, and no index. */
#if T_FLOAT
#define P_BEATS(value, best) ((value) > (best) || ((value) != (value) && (best) == (best)))
#define P_LOWEST             (-(TC)K_INF)
#define P_MARK(value)        not_number |= (value) != (value);
#else
#define P_MARK(value)
#define P_BEATS(value, best) ((value) > (best))
#define P_LOWEST             ((TC)(T_SIGNED ? (uint64_t)-1 << (sizeof(T) * 8 - 1) : 0))
#endif

/* The number of the element at `offset` of its plane, in the order that is asked for. */
K_FN int64_t p_number(const mp_pool_args *args, int64_t offset) {
    const int64_t row = offset / args->in[2];
    const int64_t c = offset - row * args->in[2];
    const int64_t a = row / args->in[1];
    const int64_t b = row - a * args->in[1];
    return args->column_major ? a + (b + c * args->in[1]) * args->in[0] : offset;
}

K_FN void p_pool(const mp_pool_args *args, const T *x, const p_span span[K_POOL_DIMS], int64_t i,
                 int64_t plane) {
    TC best = P_LOWEST;
#if P_OP == P_argmax
    int64_t at = -1;
    P_EACH_TAP(offset) {
        const TC value = T_load(x[offset]);
        if (at < 0 || P_BEATS(value, best)) {
            best = value;
            at = offset;
        }
    }
    if (args->indices != 0) {
        args->indices[i] = at < 0 ? -1 : plane * args->plane + p_number(args, at);
    }
#else
    (void)plane;
#if T_FLOAT
    int not_number = 0; /* apart from the maximum, so that neither is a branch */
#endif
#define P_TAKE(element)                     \
    {                                       \
        const TC value = T_load(element);   \
        best = value > best ? value : best; \
        P_MARK(value)                       \
    }
    if (p_is_small(args)) {
        T tap[P_SIDE * P_SIDE];
        p_taps(args, x, span, T_store(best), tap);
        K_UNROLL for (int32_t n = 0; n < P_SIDE * P_SIDE; n++) {
            P_TAKE(tap[n])
        }
    } else {
        P_EACH_TAP(offset) {
            P_TAKE(x[offset])
        }
    }
#if T_FLOAT
    best = not_number ? (TC)K_NAN : best;
#endif
#endif
    ((T *)args->out)[i] = T_store(best);
}

#endif

/* Of planes that are one line. */
K_FN void p_pool_line(const mp_pool_args *args, int64_t i) {
    const int32_t width = args->out_dim[2];
    const int64_t plane = args->wide ? i / width : (int64_t)k_divide((uint32_t)i, args->divider[2]);
    const p_span one = {0, 1, 1};
    const p_span span[K_POOL_DIMS] = {one, one, p_window(args, 2, (int32_t)(i - plane * width))};
    p_pool(args, (const T *)args->x + plane * args->plane, span, i, plane);
}

K_KERNEL(mp_pool_args, args) {
    const T *x = (const T *)args.x;
    if (args.lines) {
        K_GRID_LOOP(i, args.count) {
            p_pool_line(&args, i);
        }
        return;
    }
    K_GRID_LOOP(i, args.count) {
        int32_t place[K_POOL_DIMS];
        p_span span[K_POOL_DIMS];
        const int64_t plane = p_place(&args, i, place);
        for (int32_t d = 0; d < K_POOL_DIMS; d++) {
            span[d] = p_window(&args, d, place[d]);
        }
        p_pool(&args, x + plane * args.plane, span, i, plane);
    }
}
