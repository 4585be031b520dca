/* transpose.cu - moves elements whose neighbours lie along one dimension in the source and along
 * another in the target: by tiles in shared memory, so that both sides are read and written in
 * runs. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/index.h"
#include "kernel/movement_args.h"

enum {
    SIDE = K_TRANSPOSE_SIDE,
    PITCH = SIDE + 1
}; /* one more, so that columns lie in other banks */

K_BLOCK_KERNEL(mp_transpose_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_SHARED(T, tile);
    for (int64_t t = blockIdx.x; t < args.tiles; t += gridDim.x) {
        int64_t at[2];
        const int64_t across = t % args.tiles_across, rest = t / args.tiles_across;
        const int64_t column = across * SIDE, row = rest % args.tiles_down * SIDE;
        k_offsets(&args.outer, rest / args.tiles_down, 2, at);
        const int64_t columns = args.columns - column, rows = args.rows - row;
        const T *from = x + at[0] + row * args.row_stride + column;
        T *to = out + at[1] + column * args.column_stride + row;
        K_BLOCK_LOOP(i, SIDE * SIDE) {
            const int64_t r = i / SIDE, c = i % SIDE;
            if (r < rows && c < columns) {
                tile[r * PITCH + c] = from[r * args.row_stride + c];
            }
        }
        __syncthreads();
        K_BLOCK_LOOP(i, SIDE * SIDE) {
            const int64_t c = i / SIDE, r = i % SIDE;
            if (r < rows && c < columns) {
                to[c * args.column_stride + r] = tile[r * PITCH + c];
            }
        }
        __syncthreads();
    }
}
