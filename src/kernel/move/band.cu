/* band.cu - the part of matrices between two diagonals. Bound by memory; what lies beside the band
 * is not read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

K_KERNEL(mp_band_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t diagonal = 0;
        k_offsets(&args.layout, i, 1, &diagonal);
        T element = 0;
        if (diagonal >= args.low && diagonal <= args.high) {
            element = x != 0 ? x[i] : (T)args.one;
        }
        out[i] = element;
    }
}
