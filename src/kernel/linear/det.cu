/* det.cu - determinants, by elimination with the largest pivot of each column; a block a matrix.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"

/* The row at or below `column` that has the largest element of it. */
K_FN int64_t pivot_row(const double *m, int64_t side, int64_t column) {
    int64_t best = column;
    for (int64_t r = column + 1; r < side; r++) {
        best = fabs(m[r * side + column]) > fabs(m[best * side + column]) ? r : best;
    }
    return best;
}

K_BLOCK_KERNEL(mp_det_args, args) {
    const int64_t side = args.side;
    for (int64_t i = blockIdx.x; i < args.matrices; i += gridDim.x) {
        const T *x = (const T *)args.x + i * side * side;
        double *m = args.work + i * side * side;
        double det = 1;
        K_BLOCK_LOOP(k, side * side) {
            m[k] = (double)T_load(x[k]);
        }
        __syncthreads();
        for (int64_t c = 0; c < side; c++) {
            const int64_t pivot = pivot_row(m, side, c);
            const double top = m[pivot * side + c];
            det *= pivot == c ? top : -top;
            __syncthreads(); /* all have looked before rows are swapped */
            K_BLOCK_LOOP(k, side) {
                const double moved = m[c * side + k];
                m[c * side + k] = m[pivot * side + k];
                m[pivot * side + k] = moved;
            }
            __syncthreads();
            K_BLOCK_LOOP(r, side - c - 1) {
                double *row = m + (c + 1 + r) * side;
                const double factor = top == 0 ? 0 : row[c] / top;
                for (int64_t k = c + 1; k < side; k++) {
                    row[k] -= factor * m[c * side + k];
                }
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            ((T *)args.out)[i] = T_store((TC)det);
        }
        __syncthreads();
    }
}
