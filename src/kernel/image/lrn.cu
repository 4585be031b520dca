/* lrn.cu - local response normalisation: each element is divided by a power of the squares around
 * it, over channels.
 *
 * Where channels are planes and few of them count, a lane has some channels of one pixel: it asks
 * for those and the ones around them at once, and reads each element twice, not as often as it
 * counts. Else it has one element; neighbouring lanes read neighbours in either order of channels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/channel.h"
#include "kernel/pointwise/power.h"

#define L_POWER      K_JOIN(L_POWER_, K_T0)
#define L_POWER_f64  pow
#define L_POWER_f32  k_power
#define L_POWER_f16  k_power_rough
#define L_POWER_bf16 k_power_rough

/* x over that power of the sum. */
K_FN T l_made(const mp_lrn_args *args, TC x, TC sum) {
    const TC base = (TC)args->bias + (TC)args->share * sum;
    if (args->beta == 0.75f) { /* as nearly always */
        const TC root = K_M(sqrt)(base);
        return T_store(x / (root * K_M(sqrt)(root)));
    }
    return T_store(x * L_POWER(base, -(TC)args->beta));
}

/* ---- some channels of a pixel ---- */

enum { FEW = K_LRN_CHANNELS, SIDE = K_LRN_SIDE, READ = FEW + 2 * SIDE };

/* Channels [c, c + FEW) of the pixel whose channel `c` is at `at`; there may be fewer. */
K_FN void l_few(const mp_lrn_args *args, const T *x, T *out, int64_t at, int32_t c) {
    const int64_t step = args->channels.inner;
    const int32_t channels = (int32_t)args->channels.channels;
    T in[READ];
    TC square[READ];
    K_UNROLL
    for (int32_t k = 0; k < READ; k++) {
        const int32_t off = k - SIDE;
        in[k] = T_store((TC)0);
        if (c + off >= 0 && c + off < channels) {
            in[k] = x[at + off * step];
        }
    }
    K_UNROLL
    for (int32_t k = 0; k < READ; k++) {
        square[k] = T_load(in[k]) * T_load(in[k]);
    }
    K_UNROLL
    for (int32_t k = 0; k < FEW; k++) {
        TC sum = (TC)0;
        K_UNROLL
        for (int32_t off = -SIDE; off <= SIDE; off++) {
            sum += off >= -args->before && off <= args->after ? square[k + SIDE + off] : (TC)0;
        }
        if (c + k < channels) {
            out[at + k * step] = l_made(args, T_load(in[k + SIDE]), sum);
        }
    }
}

K_FN void l_planes(const mp_lrn_args *args, const T *x, T *out) {
    const int64_t inner = args->channels.inner;
    K_GRID_LOOP(i, args->items) {
        const k_quotient row = k_quotient_of(i, inner, args->channels.by_inner, 0);
        const k_quotient image = k_quotient_of(row.whole, args->parts, args->by_parts, 0);
        const int32_t c = (int32_t)image.rest * FEW;
        l_few(args, x, out, (image.whole * args->channels.channels + c) * inner + row.rest, c);
    }
}

/* ---- an element ---- */

K_FN void l_elements(const mp_lrn_args *args, const T *x, T *out) {
    const int64_t step = args->channels.inner;
    K_GRID_LOOP(i, args->items) {
        const int64_t c = k_channel(&args->channels, i);
        const int64_t behind = args->channels.channels - 1 - c;
        const int64_t first = c < args->before ? c : args->before;
        const int64_t last = behind < args->after ? behind : args->after;
        TC sum = (TC)0;
        for (int64_t at = i - first * step; at <= i + last * step; at += step) {
            const TC value = T_load(x[at]);
            sum += value * value;
        }
        out[i] = l_made(args, T_load(x[i]), sum);
    }
}

K_KERNEL(mp_lrn_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    if (args.parts > 0) {
        l_planes(&args, x, out);
    } else {
        l_elements(&args, x, out);
    }
}
