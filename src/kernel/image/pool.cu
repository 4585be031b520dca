/* pool.cu - the mean, the norm or the largest element of a window over up to three dimensions;
 * argmax also tells where that lies. One lane an output, so neighbouring lanes read neighbouring
 * windows, or (K_LAST) neighbouring channels. A NaN in the window is its maximum.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/image/window_args.h"

#define P_max    1
#define P_argmax 2
#define P_mean   3
#define P_lp     4
#define P_OP     K_JOIN(P_, K_OP)

/* The element at an offset of the plane that starts at `x`. */
#if K_LAST
#define P_AT(args, x, offset) ((x)[(offset) * (args)->channels])
#else
#define P_AT(args, x, offset) ((x)[offset])
#endif

/* The part of one dimension's window that lies in the input: `taps` positions from `first` on,
 * `dilation` apart; and how many positions count where padding does. */
typedef struct p_span {
    int32_t first, taps, padded;
} p_span;

K_FN int32_t p_steps(int32_t distance, int32_t step) { /* to cover a distance, rounded up */
    return step == 1 ? distance
                     : (int32_t)(((uint32_t)distance + (uint32_t)step - 1) / (uint32_t)step);
}

K_FN p_span p_window(const mp_pool_args *args, int32_t d, int32_t output) {
    const int32_t start = output * args->stride[d] - args->pad_begin[d];
    const int32_t step = args->dilation[d];
    const int32_t skipped = start < 0 ? p_steps(-start, step) : 0;
    const int32_t first = start + skipped * step;
    const int32_t rest = args->kernel[d] - skipped;
    const int32_t inside = first < args->in[d] ? p_steps(args->in[d] - first, step) : 0;
    const int32_t within = p_steps(args->in[d] + args->pad_end[d] - start, step);
    p_span span;
    span.first = first;
    span.taps = rest < inside ? rest : inside;
    span.padded = args->kernel[d] < within ? args->kernel[d] : within;
    return span;
}

/* The plane of output `i`, and its place there. */
K_FN int64_t p_place(const mp_pool_args *args, int64_t i, int32_t place[K_POOL_DIMS]) {
    for (int32_t d = K_POOL_DIMS - 1; d >= 0; d--) {
        const int64_t outer =
            args->wide ? i / args->out_dim[d] : (int64_t)k_divide((uint32_t)i, args->divider[d]);
        place[d] = (int32_t)(i - outer * args->out_dim[d]);
        i = outer;
    }
    return i;
}

/* Visits each tap's offset in the plane; `args` and `span` are those of p_pool. */
#define P_EACH_TAP(offset)                                                         \
    for (int32_t a = 0; a < span[0].taps; a++)                                     \
        for (int32_t b = 0; b < span[1].taps; b++)                                 \
            for (int64_t offset = p_line(args, span, a, b),                        \
                         end = offset + (int64_t)span[2].taps * args->dilation[2]; \
                 offset < end; offset += args->dilation[2])

K_FN int64_t p_line(const mp_pool_args *args, const p_span span[K_POOL_DIMS], int32_t a,
                    int32_t b) {
    const int64_t row = span[0].first + a * args->dilation[0];
    const int64_t column = span[1].first + b * args->dilation[1];
    return (row * args->in[1] + column) * args->in[2] + span[2].first;
}

#if P_OP == P_mean

K_FN void p_pool(const mp_pool_args *args, const T *x, const p_span span[K_POOL_DIMS], int64_t i,
                 int64_t plane) {
    TC sum = (TC)0;
    int64_t counted = 1;
    (void)plane;
    P_EACH_TAP(offset) {
        sum += T_load(P_AT(args, x, offset));
    }
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
        const TC value = K_M(fabs)(T_load(P_AT(args, x, offset)));
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
#else
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
        const TC value = T_load(P_AT(args, x, offset));
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
    P_EACH_TAP(offset) {
        const TC value = T_load(P_AT(args, x, offset));
        best = value > best ? value : best;
#if T_FLOAT
        not_number |= value != value;
#endif
    }
#if T_FLOAT
    best = not_number ? (TC)K_NAN : best;
#endif
#endif
    ((T *)args->out)[i] = T_store(best);
}

#endif

#if K_LAST

/* Finds the place of output `i` in its plane, and where the plane starts. No number: indices are
 * never asked for with channels last. */
K_FN int64_t p_find(const mp_pool_args *args, int64_t i, int32_t place[K_POOL_DIMS],
                    int64_t *start) {
    const int64_t point =
        args->wide ? i / args->channels : (int64_t)k_divide((uint32_t)i, args->by_channels);
    const int64_t channel = i - point * args->channels;
    const int64_t image = p_place(args, point, place);
    *start = image * args->plane * args->channels + channel;
    return -1;
}

#else

/* The number of the plane that output `i` is of, its place there, and where the plane starts. */
K_FN int64_t p_find(const mp_pool_args *args, int64_t i, int32_t place[K_POOL_DIMS],
                    int64_t *start) {
    const int64_t plane = p_place(args, i, place);
    *start = plane * args->plane;
    return plane;
}

#endif

K_KERNEL(mp_pool_args, args) {
    const T *x = (const T *)args.x;
    K_GRID_LOOP(i, args.count) {
        int32_t place[K_POOL_DIMS];
        p_span span[K_POOL_DIMS];
        int64_t start;
        const int64_t plane = p_find(&args, i, place, &start);
        for (int32_t d = 0; d < K_POOL_DIMS; d++) {
            span[d] = p_window(&args, d, place[d]);
        }
        p_pool(&args, x + start, span, i, plane);
    }
}
