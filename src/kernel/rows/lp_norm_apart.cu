/* lp_norm_apart.cu - each row over its norm, where the elements of a row are not neighbours; a row
 * of zeros stays. The second pass over a row finds much of it in cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/rows/lp_norm.h"
#include "kernel/rows/row_args.h"

K_BLOCK_KERNEL(mp_lp_norm_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        const int64_t columns = row < args.rows ? args.columns : 0;
        const int64_t outer = row / args.inner;
        const int64_t start = outer * args.columns * args.inner + (row - outer * args.inner);
        const T *x = (const T *)args.x + start;
        T *out = (T *)args.out + start;
        K_SUM sum = 0;
        for (int64_t c = t.lane; c < columns; c += t.width) {
            sum += l_term((K_SUM)T_load(x[c * args.inner]), args.p);
        }
        const l_norm norm = l_norm_of(k_group_sum(sum, t.width), &args);
        for (int64_t c = t.lane; c < columns; c += t.width) {
            const K_SUM value = (K_SUM)T_load(x[c * args.inner]);
            out[c * args.inner] = T_store((TC)l_over(value, norm));
        }
    }
}
