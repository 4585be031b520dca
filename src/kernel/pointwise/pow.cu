/* pow.cu - out[i] = x[i] to the power y[i], in the type of x; the exponent has a type of its own.
 * Results of an integer base are exact; one that T cannot hold is T's lowest value. Bound by memory
 * but for powers of double and of integers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/walk.h"
#include "kernel/pointwise/pointwise_args.h"
#include "kernel/pointwise/power.h"

/* Called for each element of a pack: in place it would be repeated as often, which only the powers
 * of floats that are not double are short enough for. */
#if K_HOST
#define P_CALLED static
#elif T_FLOAT && !T_DOUBLE && !U_DOUBLE
#define P_CALLED K_FN
#else
#define P_CALLED static __device__ __noinline__
#endif

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

#if T_FLOAT && !T_DOUBLE
#define P_POWER      K_JOIN(P_POWER_, K_T0)
#define P_POWER_f32  k_power
#define P_POWER_f16  k_power_rough
#define P_POWER_bf16 k_power_rough
#endif

#if T_FLOAT
K_FN int p_is_small(U exponent) {
    const UC y = U_load(exponent);
    return y == (UC)2 || y == (UC)3;
}

K_FN T p_small_power(T base, U exponent) {
    const TC x = T_load(base);
    return T_store(U_load(exponent) == (UC)2 ? x * x : x * x * x);
}
#endif

P_CALLED T p_pow(T base, U exponent) {
    const TC x = T_load(base);
    const UC y = U_load(exponent);
#if T_FLOAT && !T_DOUBLE && !U_DOUBLE
    return T_store(P_POWER(x, (float)y));
#elif T_FLOAT
    return p_is_small(exponent) ? p_small_power(base, exponent)
                                : T_store((TC)pow((double)x, (double)y));
#elif U_FLOAT
    const int64_t whole = y > (UC)-1e9 && y < (UC)1e9 ? (int64_t)y : 0;
    return (UC)whole == y ? p_power_of_int(x, whole) : p_narrow(pow((double)x, (double)y));
#else
    return p_power_of_int(x, (int64_t)y);
#endif
}

K_WALK_PACK(elements, T)
K_WALK_PACK(exponents, U)
K_WALK_READ(elements_read, elements, T)
K_WALK_READ(exponents_read, exponents, U)

K_FN elements p_powers(elements base, exponents exponent) {
    elements made;
#if T_FLOAT
    int small = 1;
    for (int32_t k = 0; k < K_WALK; k++) {
        small &= p_is_small(exponent.lane[k]);
    }
    if (small) {
        for (int32_t k = 0; k < K_WALK; k++) {
            made.lane[k] = p_small_power(base.lane[k], exponent.lane[k]);
        }
        return made;
    }
#endif
    for (int32_t k = 0; k < K_WALK; k++) {
        made.lane[k] = p_pow(base.lane[k], exponent.lane[k]);
    }
    return made;
}

#if T_FLOAT
/* What one exponent for all asks for. Roots are those of pow: of -0 and of what is lowest, too. */
enum { P_ANY, P_SQUARE, P_CUBE, P_ROOT, P_INVERSE };

K_FN int p_kind(UC y) {
    return y == (UC)2                 ? P_SQUARE
           : y == (UC)3               ? P_CUBE
           : y == (UC)-1              ? P_INVERSE
           : U_FLOAT && y == (UC)0.5f ? P_ROOT
                                      : P_ANY;
}

K_FN T p_of_kind(T base, UC y, int kind) {
    const TC x = T_load(base);
    switch (kind) {
    case P_SQUARE:
        return T_store(x * x);
    case P_CUBE:
        return T_store(x * x * x);
    case P_ROOT:
        return T_store(x == (TC)-K_INF ? (TC)K_INF : K_M(sqrt)(x + (TC)0));
    case P_INVERSE:
        return T_store((TC)1 / x);
    default:
#if !T_DOUBLE && !U_DOUBLE
        return T_store(P_POWER(x, (float)y));
#else
        return T_store((TC)pow((double)x, (double)y));
#endif
    }
}

P_CALLED T p_alone(T base, UC y) {
    return p_of_kind(base, y, p_kind(y));
}

/* Whole packs to the power y; the kind is one that the compiler knows. */
K_FN void p_packs(const mp_pow_args *args, UC y, int kind) {
    const elements *x = (const elements *)args->x; /* out may be x */
    elements *out = (elements *)args->out;
    K_ONE_COPY
    K_GRID_LOOP(i, args->walk.count / K_WALK) {
        elements made;
        made.words = x[i].words;
        for (int32_t k = 0; k < K_WALK; k++) {
            made.lane[k] = p_of_kind(made.lane[k], y, kind);
        }
        out[i].words = made.words;
    }
}

/* Whether x is as large as out, the exponent is one, and packs are aligned. */
K_FN int p_has_one(const mp_pow_args *args) {
    return args->walk.length == args->walk.count && (args->walk.repeated & 3) == 2 &&
           K_WALK_SKEW(args->x, T) == 0 && K_WALK_SKEW(args->out, T) == 0;
}

/* The kind is found once for all elements. */
K_FN void p_by_one(const mp_pow_args *args) {
    const UC y = U_load(*(const U *)args->y);
    const int64_t done = args->walk.count - args->walk.count % K_WALK;
    switch (p_kind(y)) {
    case P_SQUARE:
        p_packs(args, y, P_SQUARE);
        break;
    case P_CUBE:
        p_packs(args, y, P_CUBE);
        break;
    case P_ROOT:
        p_packs(args, y, P_ROOT);
        break;
    case P_INVERSE:
        p_packs(args, y, P_INVERSE);
        break;
    default:
        p_packs(args, y, P_ANY);
    }
    K_ONE_COPY
    K_GRID_LOOP(i, args->walk.count - done) {
        ((T *)args->out)[done + i] = p_alone(((const T *)args->x)[done + i], y);
    }
}
#endif

K_KERNEL(mp_pow_args, args) {
#if T_FLOAT
    if (p_has_one(&args)) {
        p_by_one(&args);
        return;
    }
#endif
    const T *x = (const T *)args.x; /* out may be x where that has its shape */
    const U *y = (const U *)args.y;
    T *out = (T *)args.out;
    if (k_walk_is_flat(&args.walk)) {
        const int x_step = !(args.walk.repeated & 1);
        const int y_step = !(args.walk.repeated & 2);
        K_GRID_LOOP(i, args.walk.count) {
            out[i] = p_pow(x[i * x_step], y[i * y_step]);
        }
        return;
    }
    const int64_t packs = k_walk_packs(&args.walk, K_WALK_SKEW(out, T));
    const int plain = k_walk_is_plain(&args.walk, 2, K_WALK_SKEW(x, T) | K_WALK_SKEW(y, U));
    K_ONE_COPY
    K_GRID_LOOP(i, packs) {
        elements base;
        exponents exponent;
        if (plain) {
            base = elements_read_plain(x, i);
            exponent = exponents_read_plain(y, i);
        } else {
            const k_spot spot = k_spot_of(&args.walk, i, 2);
            base = elements_read(x, &args.walk, &spot, 0);
            exponent = exponents_read(y, &args.walk, &spot, 1);
        }
        ((elements *)out)[i].words = p_powers(base, exponent).words;
    }
    const int64_t done = packs * K_WALK;
    K_ONE_COPY
    K_GRID_LOOP(i, args.walk.count - done) {
        uint32_t at[2];
        k_walk_to(&args.walk, (uint32_t)(done + i), 2, at);
        out[done + i] = p_pow(x[at[0]], y[at[1]]);
    }
}
