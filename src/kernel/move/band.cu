/* band.cu - the part of matrices between two diagonals. Bound by memory; what lies beside the band
 * is not read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/vector.h"
#include "kernel/move/move_args.h"

K_KERNEL(mp_band_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    T *out = (T *)args.out;
    const int64_t packs = (args.count + K_VECTOR - 1) / K_VECTOR;
    K_GRID_LOOP(i, packs) {
        const int64_t first = i * K_VECTOR;
        k_vector made;
        K_UNROLL for (int k = 0; k < K_VECTOR; k++) {
            const int64_t at = first + k < args.count ? first + k : first;
            int64_t diagonal = 0;
            k_offsets(&args.layout, at, 1, &diagonal);
            made.lane[k] = 0;
            if (diagonal >= args.low && diagonal <= args.high) {
                made.lane[k] = x != 0 ? x[at] : (T)args.one;
            }
        }
        k_vector_write(out, first, args.count, made);
    }
}
