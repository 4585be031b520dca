/* resize_blend.cu - each output is a weighted sum over K_TAPS inputs along each resized axis, the
 * last axis first: linear and cubic interpolation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/resize.h"

enum { R_BITS = K_TAPS == 2 ? 1 : 2 }; /* of the number of a tap */

K_FN R_SUM r_add(R_SUM sum, float weight, T element) {
#if T_FLOAT || K_HOST
    return sum + (R_SUM)weight * (R_SUM)T_load(element);
#else
    return __fadd_rn(sum, __fmul_rn(weight, (float)element));
#endif
}

K_KERNEL(mp_resize_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t entry[K_AXES];
        const int64_t offset = r_place(&args, i, entry);
        const int32_t axes = R_AXES(&args);
        int outside = 0;
        for (int32_t a = 0; a < axes; a++) {
            entry[a] *= K_TAPS;
            outside |= args.index[entry[a]] < 0;
        }
        if (outside) {
            out[i] = r_store((R_SUM)args.outside_value);
            continue;
        }
        R_SUM sum = (R_SUM)0;
        for (uint32_t choice = 0; choice < 1u << (R_BITS * axes); choice++) {
            int64_t at = offset;
            float weight = 1.0f;
            for (int32_t a = axes - 1; a >= 0; a--) {
                const int64_t tap = entry[a] + (choice >> (R_BITS * (axes - 1 - a)) & (K_TAPS - 1));
                at += args.index[tap] * args.stride[2 * a + 1];
                weight *= args.weight[tap];
            }
            sum = r_add(sum, weight, x[at]);
        }
        out[i] = r_store(sum);
    }
}
