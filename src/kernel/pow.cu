/* pow.cu - out[i] = x[i] to the power y[i], in the type of x; the exponent has a type of its own.
 * An integer base is raised in double, as ONNX Runtime's CPU provider does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/index.h"
#include "kernel/pointwise_args.h"

K_FN T p_pow(T base, U exponent) {
    const TC x = T_load(base);
    const UC y = U_load(exponent);
    if (y == (UC)2) { /* by far the most common */
        return T_store((TC)(x * x));
    }
#if T_FLOAT && !T_DOUBLE && !U_DOUBLE
    return T_store(powf(x, (float)y));
#elif T_FLOAT
    return T_store((TC)pow((double)x, (double)y));
#else
    const double power = pow((double)x, (double)y);
    const double limit = sizeof(T) == 8 ? 9223372036854775808.0 : 2147483648.0;
    return power >= -limit && power < limit ? (T)power : (T)-limit;
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
