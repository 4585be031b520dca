/* power.h - powers of floats as C's powf has them, in a third of its instructions.
 *
 *   k_power(x, y)        for a float: below three units of the last place off
 *   k_power_rough(x, y)  for a result of 16 bits: below 2^-14 of itself off
 *
 * Powers of 1, 2 and 3 are products. Else x is m times a power of two, m around 1, and its
 * logarithm is twice atanh of s = (m - 1) / (m + 1). The first function keeps in a second float
 * what the logarithm, and its product with y, lose by rounding: a product of 120 may not be off by
 * more than 2^-23. All of that is made before one branch asks whether it is what was wanted:
 * positive numbers whose power is neither huge nor tiny come past
 * it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_POWER_H
#define MP_KERNEL_POWER_H

#include "kernel/core/prelude.h"

#if K_HOST /* fmaf may be a call there, and powf is quick */

K_FN float k_power(float x, float y) {
    return y == 2.0f ? x * x : y == 3.0f ? x * x * x : powf(x, y);
}

#define k_power_rough k_power

#else

/* Products that are not joined with a sum that follows: what they lose is added later. */
#if K_PTX
K_FN float w_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

K_FN float w_exp2(float x) {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x, made by now: not once more in each branch that follows. */
K_FN float w_hold(float x) {
    asm volatile("" : "+f"(x));
    return x;
}

#define w_times __fmul_rn
#else
K_FN float w_inverse(float x) {
    return 1.0f / x;
}

K_FN float w_exp2(float x) {
    return exp2f(x);
}

K_FN float w_hold(float x) {
    return x;
}

K_FN float w_times(float a, float b) {
    return a * b;
}
#endif

/* ---- what few numbers need ---- */

/* 1 of odd numbers, 0 of even ones, and else between. */
K_FN float w_oddness(float y) {
    return fabsf(fmaf(-2.0f, truncf(0.5f * y), y));
}

/* Where one of them is 0, infinite or NaN. */
K_FN float w_special(float x, float y) {
    const float size = fabsf(x);
    if (x == 1.0f || y == 0.0f) {
        return 1.0f;
    }
    if (x != x || y != y) {
        return x + y;
    }
    if (size == 1.0f) { /* y is infinite */
        return 1.0f;
    }
    const float made = (size > 1.0f) == (y > 0.0f) ? K_INF : 0.0f;
    return w_oddness(y) == 1.0f && k_bits_of_float(x) >> 31 ? -made : made;
}

/* `power` is that of the size of x. */
K_FN float w_any(float x, float y, float power) {
    if (!(x != 0.0f && fabsf(x) < K_INF && fabsf(y) < K_INF)) {
        return w_special(x, y);
    }
    if (y == 1.0f || y == 2.0f || y == 3.0f) {
        return y == 1.0f ? x : y == 2.0f ? x * x : x * x * x;
    }
    const float oddness = w_oddness(y);
    return x > 0.0f || oddness == 0.0f ? power : oddness == 1.0f ? -power : K_NAN;
}

/* Whether the power of the size of x, made from its logarithm times y, is that of x. `product` may
 * be a hundredth off. */
K_FN int w_is_plain(float x, float y, float product) {
    return k_bits_of_float(x) - 0x800000u < 0x7f000000u && y != 1.0f && y != 2.0f && y != 3.0f &&
           fabsf(product) < 120.0f;
}

/* ---- logarithms ---- */

#define W_ROUND 0x1.8p23f /* a number added to that is rounded to a whole one, its lowest bits */
enum { W_ROUND_BITS = 0x4b400000 };

/* m times 2 to the power of `exponent`; m lies between the root of 1/2 and that of 2. */
typedef struct w_float {
    float m, exponent;
} w_float;

/* size is `scale` powers of two too large. */
K_FN w_float w_apart(float size, float scale) {
    const uint32_t bits = k_bits_of_float(size), power = (bits - 0x3f3504f3u) & 0xff800000u;
    w_float apart;
    apart.m = k_float_of_bits(bits - power);
    apart.exponent =
        k_float_of_bits((uint32_t)((int32_t)power >> 23) + W_ROUND_BITS) - (W_ROUND + scale);
    return apart;
}

typedef struct w_sum {
    float high, low;
} w_sum;

K_FN w_sum w_log2(w_float of) {
    const float twice = 0x1.715476p+1f; /* 2 / log(2) */
    const float f = of.m - 1.0f, inverse = w_inverse(of.m + 1.0f);
    const float s = w_times(f, inverse), v = w_times(s, s);
    const float s_low = fmaf(-s, f, fmaf(-2.0f, s, f)) * inverse;
    const float part = w_times(s, twice);
    float p = fmaf(v, 0x1.58a292p-2f, 0x1.a5c9f8p-2f); /* twice * (atanh(s) - s) = s v p */
    p = fmaf(v, p, 0x1.2777p-1f);
    p = fmaf(v, p, 0x1.ec709ep-1f);
    float low = fmaf(s, twice, -part);
    low = fmaf(s, 0x1.4ae0cp-25f, low);            /* what `twice` lacks */
    low = fmaf(fmaf(s_low, v, s_low), twice, low); /* what s lacks, times how atanh grows */
    low = fmaf(w_times(s, v), p, low);
    w_sum log2;
    log2.high = of.exponent + part;
    log2.low = ((of.exponent - log2.high) + part) + low;
    return log2;
}

K_FN float w_log2_rough(w_float of) {
    const float s = (of.m - 1.0f) * w_inverse(of.m + 1.0f), v = s * s;
    const float p = fmaf(v, 0x1.a26c84p-3f, 0x1.55512p-2f); /* atanh(s) / s = 1 + v p */
    return fmaf(0x1.715476p+1f, fmaf(s * v, p, s), of.exponent);
}

/* ---- exponentials ---- */

/* 2 to the power of a sum: 2^f, and `rounded` less W_ROUND is what else it is of powers of two. */
typedef struct w_power {
    float part, rounded;
} w_power;

K_FN w_power w_exp2_apart(w_sum of) {
    w_power power;
    power.rounded = (of.high + of.low) + W_ROUND;
    const float f = (of.high - (power.rounded - W_ROUND)) + of.low;
    float p = fmaf(f, 0x1.448feap-13f, 0x1.5f47dep-10f); /* 2^f = 1 + f p */
    p = fmaf(f, p, 0x1.3b29aap-7f);
    p = fmaf(f, p, 0x1.c6aedp-5f);
    p = fmaf(f, p, 0x1.ebfbep-3f);
    p = fmaf(f, p, 0x1.62e43p-1f);
    power.part = fmaf(f, p, 1.0f);
    return power;
}

/* Both together, within the range of normal floats. */
K_FN float w_join(w_power of) {
    return k_float_of_bits(k_bits_of_float(of.part) + (k_bits_of_float(of.rounded) << 23));
}

/* The same anywhere; in two steps, of which neither leaves the range and only the last may round.
 */
K_FN float w_join_far(w_power of, float product) {
    const int32_t whole = (int32_t)(k_bits_of_float(of.rounded) - W_ROUND_BITS);
    const int32_t half = whole >> 1;
    if (!(fabsf(product) < 160.0f)) {
        return product < 0.0f ? 0.0f : K_INF;
    }
    return of.part * k_float_of_bits((uint32_t)(half + 127) << 23) *
           k_float_of_bits((uint32_t)(whole - half + 127) << 23);
}

/* ---- powers ---- */

K_FN int w_is_tiny(float size) {
    return size > 0.0f && size < 0x1p-126f;
}

K_FN float k_power(float x, float y) {
    float size = fabsf(x), scale = 0.0f;
    for (;;) { /* once more, if x is tiny */
        const w_sum log2 = w_log2(w_apart(size, scale));
        w_sum product;
        product.high = w_times(y, log2.high);
        product.low = fmaf(y, log2.low, fmaf(y, log2.high, -product.high));
        w_power power = w_exp2_apart(product);
        power.part = w_hold(power.part);
        power.rounded = w_hold(power.rounded);
        if (w_is_plain(x, y, product.high)) {
            return w_join(power);
        }
        if (!w_is_tiny(size)) {
            return w_any(x, y, w_join_far(power, product.high));
        }
        size *= 0x1p24f;
        scale = 24.0f;
    }
}

K_FN float k_power_rough(float x, float y) {
    float size = fabsf(x), scale = 0.0f;
    for (;;) { /* once more, if x is tiny */
        const float product = y * w_log2_rough(w_apart(size, scale));
        const float made = w_hold(w_exp2(product));
        if (w_is_plain(x, y, product)) {
            return made;
        }
        if (!w_is_tiny(size)) {
            return w_any(x, y, made);
        }
        size *= 0x1p24f;
        scale = 24.0f;
    }
}

#endif

#endif
