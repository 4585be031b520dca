/* pow.cu - out[i] = x[i] to the power y[i], in the type of x; the exponent has a type of its own.
 * Results of an integer base are exact; one that T cannot hold is T's lowest value.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/index.h"
#include "kernel/pointwise_args.h"

#if !T_FLOAT
/* What a result too large for T becomes, as on x86. */
K_FN T p_overflow(void) {
    return (T)((uint64_t)-1 << (sizeof(T) * 8 - 1));
}

K_FN T p_narrow(double value) {
    const double limit = sizeof(T) == 8 ? 9223372036854775808.0 : 2147483648.0;
    return value >= -limit && value < limit ? (T)value : p_overflow();
}

/* Exact, where a GPU's pow() of doubles may be a little less than the integer that it should be. */
K_FN T p_power_of_int(T base, int64_t exponent) {
    if (exponent < 0) {
        return base == 1    ? 1
               : base == -1 ? (exponent % 2 != 0 ? -1 : 1)
               : base == 0  ? p_overflow()
                            : 0;
    }
    const double size = fabs(pow((double)base, (double)exponent));
    if (!(size < 9223372036854775808.0)) {
        return p_overflow();
    }
    uint64_t result = 1;
    uint64_t square = (uint64_t)base;
    for (; exponent > 0; exponent /= 2) {
        result *= exponent % 2 != 0 ? square : 1;
        square *= square;
    }
    return sizeof(T) == 4 && (int64_t)result != (int32_t)result ? p_overflow() : (T)result;
}
#endif

K_FN T p_pow(T base, U exponent) {
    const TC x = T_load(base);
    const UC y = U_load(exponent);
#if T_FLOAT && !T_DOUBLE && !U_DOUBLE
    return y == (UC)2 ? T_store(x * x) : T_store(powf(x, (float)y)); /* by far the most common */
#elif T_FLOAT
    return y == (UC)2 ? T_store(x * x) : T_store((TC)pow((double)x, (double)y));
#elif U_FLOAT
    const int64_t whole = y > (UC)-1e9 && y < (UC)1e9 ? (int64_t)y : 0;
    return (UC)whole == y ? p_power_of_int(x, whole) : p_narrow(pow((double)x, (double)y));
#else
    return p_power_of_int(x, (int64_t)y);
#endif
}

K_KERNEL(mp_broadcast2_args, args) {
    const T *x = (const T *)args.x; /* out may be x where that has its shape */
    const U *y = (const U *)args.y;
    T *out = (T *)args.out;
    if (args.layout.rank > 1 || args.layout.stride[0][0] == 0) {
        K_GRID_LOOP(i, args.count) {
            int64_t at[2];
            k_offsets(&args.layout, i, 2, at);
            out[i] = p_pow(x[at[0]], y[at[1]]);
        }
        return;
    }
    const int64_t y_step = args.layout.stride[1][0]; /* 1, or 0 for one exponent */
    K_GRID_LOOP(i, args.count) {
        out[i] = p_pow(x[i], y[i * y_step]);
    }
}
