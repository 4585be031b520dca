/* functions.h - helpers for the expressions in pointwise.def, over TC, the compute type of K_T0.
 *
 * No guard: fused kernels include it once for each type, each in a namespace of its own.
 * SPDX-License-Identifier: Apache-2.0 */

K_FN TC p_abs(TC x) {
#if T_FLOAT
    return K_M(fabs)(x);
#elif T_SIGNED
    return x < 0 ? (TC)-x : x;
#else
    return x;
#endif
}

K_FN TC p_sign(TC x) {
#if T_FLOAT
    return x > (TC)0 ? (TC)1 : x < (TC)0 ? (TC)-1 : x; /* keeps zeros and NaN */
#elif T_SIGNED
    return (TC)((x > 0) - (x < 0));
#else
    return x != 0;
#endif
}

/* NaN stays; where the bounds cross, the upper one wins. */
K_FN TC p_clamp(TC x, TC low, TC high) {
    const TC raised = x < low ? low : x;
    return raised > high ? high : raised;
}

#if T_FLOAT
/* The nearest whole number, of two the even one, kept within both; NaN becomes the lower. */
K_FN TC p_snap(TC x, float low, float high) {
    const TC whole = K_M(rint)(x);
    const TC raised = whole > (TC)low ? whole : (TC)low;
    return raised < (TC)high ? raised : (TC)high;
}
#endif

/* As ONNX Runtime and NumPy have it, a NaN on either side is the result. */
K_FN TC p_max(TC x, TC y) {
#if T_FLOAT
    return x != x ? x : y != y ? y : x > y ? x : y;
#else
    return x > y ? x : y;
#endif
}

K_FN TC p_min(TC x, TC y) {
#if T_FLOAT
    return x != x ? x : y != y ? y : x < y ? x : y;
#else
    return x < y ? x : y;
#endif
}

/* Integers: a zero divisor gives 0, the lowest value over -1 wraps; neither may trap a CPU. */
K_FN TC p_div(TC x, TC y) {
#if T_FLOAT
    return x / y;
#elif T_SIGNED
    return y == 0 ? (TC)0 : y == -1 ? (TC)(0 - (uint64_t)x) : (TC)(x / y);
#else
    return y == 0 ? (TC)0 : (TC)(x / y);
#endif
}

/* The remainder with the sign of the dividend. */
K_FN TC p_fmod(TC x, TC y) {
#if T_FLOAT
    return K_M(fmod)(x, y);
#elif T_SIGNED
    return y == 0 || y == -1 ? (TC)0 : (TC)(x % y);
#else
    return y == 0 ? (TC)0 : (TC)(x % y);
#endif
}

/* The remainder with the sign of the divisor. */
K_FN TC p_mod(TC x, TC y) {
    const TC rest = p_fmod(x, y);
#if T_SIGNED
    return rest != 0 && (rest < 0) != (y < 0) ? (TC)(rest + y) : rest;
#else
    return rest;
#endif
}

#if T_FLOAT
K_FN TC p_sigmoid(TC x) { /* never exponentiates a positive number, so nothing overflows */
    const TC e = K_M(exp)(-p_abs(x));
    return (x < (TC)0 ? e : (TC)1) / ((TC)1 + e);
}

K_FN TC p_softplus(TC x) {
    return (x > (TC)0 ? x : (TC)0) + K_M(log1p)(K_M(exp)(-p_abs(x)));
}

#if !K_PTX
#define p_power_of_two exp2f
#define p_inverse(x)   (1 / (x))
#define p_fma(a, b, c) ((a) * (b) + (c))
#else
#define p_fma fmaf
K_FN float p_power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

K_FN float p_inverse(float x) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
}
#endif

/* The normal distribution's share below x, right to 4e-6 of itself, which is more than elements of
 * 16 bits show, in half the instructions of erf: beyond |x| it is 2^(-x^2 log2(e) / 2) times a
 * polynomial in 1 / (1 + 0.345 |x|). */
K_FN float p_share_below(float x) {
    const float size = fabsf(x), t = p_inverse(p_fma(0.345f, size, 1.0f));
    const float a = p_fma(p_fma(-0.10820905f, t, 0.32414076f), t, -0.03885222f);
    const float share = p_fma(p_fma(p_fma(a, t, 0.195115f), t, 0.12700655f), t, 0.00079741f);
    const float beyond = share * p_power_of_two(size * size * -0.72134752f);
    return x < 0 ? beyond : 1 - beyond;
}

/* The same as tanh approximates it: (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)). */
K_FN float p_share_by_tanh(float x) {
    const float u = 0.79788456f * (x + 0.044715f * x * x * x);
    return p_inverse(1 + p_power_of_two(u * -2.88539008f));
}

/* x times the normal distribution's share below x: by erf, or as tanh approximates it. */
K_FN TC p_gelu_narrow(TC x, int by_tanh) {
    return x * (TC)(by_tanh ? p_share_by_tanh((float)x) : p_share_below((float)x));
}

K_FN TC p_gelu_wide(TC x, int by_tanh) {
    const TC t = by_tanh ? K_M(tanh)((TC)0.7978845608028654 * (x + (TC)0.044715 * x * x * x))
                         : K_M(erf)(x * (TC)0.7071067811865476);
    return (TC)0.5 * x * ((TC)1 + t);
}

#ifndef p_gelu
K_FN TC p_gelu(TC x, int by_tanh) {
    return sizeof(T) == 2 ? p_gelu_narrow(x, by_tanh) : p_gelu_wide(x, by_tanh);
}
#endif
#else
/* Bits that leave are lost; a distance beyond the width leaves none. */
K_FN TC p_shift(TC x, TC distance, int left) {
    if ((uint64_t)distance >= sizeof(TC) * 8) {
        return 0;
    }
    return (TC)(left ? (uint64_t)x << distance : (uint64_t)x >> distance);
}
#endif

/* x + bias, cut to a whole number and wrapped where x is one. */
K_FN TC p_moved(TC x, float bias) {
#if T_FLOAT
    return x + (TC)bias;
#else
    const double exact = 0x1p53; /* doubles below it hold every whole number */
    const double moved = (double)x + (double)bias;
    if (moved > -exact && moved < exact) {
        return (TC)(int64_t)moved;
    }
    const int64_t step = bias > -0x1p53f && bias < 0x1p53f ? (int64_t)bias : 0;
    return (TC)((uint64_t)x + (uint64_t)step);
#endif
}

/* Towards zero by `bias`; what lies within `border` of zero becomes zero. */
K_FN TC p_shrink(TC x, float bias, float border) {
#if T_FLOAT
    const TC edge = (TC)border, real = x;
#else
    const double edge = (double)border, real = (double)x;
#endif
    return real < -edge ? p_moved(x, bias) : real > edge ? p_moved(x, -bias) : (TC)0;
}
