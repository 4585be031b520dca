/* affine_grid.cu - the points of a regular grid over [-1, 1], moved by a matrix for each image.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/image/sample_args.h"

/* The middle of pixel `at` of `size`, or with its corners aligned the way from the first to the
 * last; of one pixel the last, as in ONNX Runtime. */
K_FN TC place(int64_t at, int64_t size, int32_t align_corners) {
    if (align_corners) {
        return size > 1 ? (TC)-1 + (TC)2 * (TC)at / (TC)(size - 1) : (TC)1;
    }
    return ((TC)2 * (TC)at + 1) / (TC)size - 1;
}

K_KERNEL(mp_affine_grid_args, args) {
    const T *matrices = (const T *)args.theta;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        TC at[3];
        int64_t rest = i;
        for (int d = 0; d < 3; d++) {
            at[d] = place(rest % args.size[d], args.size[d], args.align_corners);
            rest /= args.size[d];
        }
        const T *row = matrices + rest * args.dims * (args.dims + 1);
        for (int32_t d = 0; d < args.dims; d++) {
            TC sum = T_load(row[args.dims]);
            for (int32_t k = 0; k < args.dims; k++) {
                sum += T_load(row[k]) * at[k];
            }
            out[i * args.dims + d] = T_store(sum);
            row += args.dims + 1;
        }
    }
}
