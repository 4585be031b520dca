/* cast.cu - out[i] = x[i] in another element type. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/pointwise/cast_value.h"
#include "kernel/pointwise/pointwise_args.h"

#if K_HOST
enum { C_WIDTH = 1 };
#else
enum { C_LARGER = sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U), C_WIDTH = 16 / C_LARGER };
#endif
typedef struct K_ALIGN(sizeof(T) * C_WIDTH) c_in {
    T lane[C_WIDTH];
} c_in;
typedef struct K_ALIGN(sizeof(U) * C_WIDTH) c_out {
    U lane[C_WIDTH];
} c_out;

K_KERNEL(mp_pointwise1_args, args) {
    const T *x = (const T *)args.x;
    U *out = (U *)args.out;
    const int64_t packs = ((uint64_t)x % sizeof(c_in) | (uint64_t)out % sizeof(c_out)) == 0
                              ? args.count / C_WIDTH
                              : 0;
    K_GRID_LOOP(i, packs) {
        const c_in in = ((const c_in *)x)[i];
        c_out result;
        for (int k = 0; k < C_WIDTH; k++) {
            result.lane[k] = c_cast(in.lane[k]);
        }
        ((c_out *)out)[i] = result;
    }
    const int64_t done = packs * C_WIDTH;
    K_GRID_LOOP(i, args.count - done) {
        out[done + i] = c_cast(x[done + i]);
    }
}
