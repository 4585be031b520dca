/* one_hot_row.cu - a one in each row at its index, zeros elsewhere: what Hardmax makes of ArgMax.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/rows/row_args.h"

K_KERNEL(mp_one_hot_row_args, args) {
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        const int64_t rest = i / args.inner, outer = rest / args.columns;
        const int64_t row = outer * args.inner + (i - rest * args.inner);
        out[i] = args.index[row] == rest - outer * args.columns ? (T)args.one : (T)0;
    }
}
