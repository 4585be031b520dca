/* one_hot_row.cu - a one in each row of zeros, at its index: what Hardmax makes of ArgMax.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/rows/row_args.h"

K_KERNEL(mp_one_hot_row_args, args) {
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(row, args.rows) {
        const int64_t outer = row / args.inner;
        const int64_t at = (outer * args.columns + args.index[row]) * args.inner;
        out[at + row - outer * args.inner] = (T)args.one;
    }
}
