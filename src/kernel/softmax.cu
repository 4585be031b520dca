/* softmax.cu - exp(x - max) / sum over each row, or its logarithm. One block a row; the row is read
 * once for the maximum and the sum together, and once more for the result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/block.h"
#include "kernel/reduce_args.h"

#define S_plain  0
#define S_log    1
#define S_IS_LOG K_JOIN(S_, K_OP)

#if T_DOUBLE
typedef double S;
#define s_exp       exp
#define s_log       log
#define s_block_max k_block_max_f64
#define s_block_sum k_block_sum_f64
#else
typedef float S;
#define s_exp       expf
#define s_log       logf
#define s_block_max k_block_max_f32
#define s_block_sum k_block_sum_f32
#endif

/* Where a lane has seen nothing, or only -inf, its sum is 0 and must stay so. */
K_FN S s_rescale(S sum, S from, S to) {
    return sum == 0 ? 0 : sum * s_exp(from - to);
}

K_BLOCK_KERNEL(mp_softmax_args, args) {
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const int64_t outer = row / args.inner;
        const int64_t first = outer * args.columns * args.inner + (row - outer * args.inner);
        const T *x = (const T *)args.x + first;
        T *out = (T *)args.out + first;
        S largest = -(S)K_INF;
        S sum = 0;
        K_BLOCK_LOOP(c, args.columns) {
            const S value = (S)T_load(x[c * args.inner]);
            if (value > largest) {
                sum = s_rescale(sum, largest, value);
                largest = value;
            }
            sum += value == -(S)K_INF ? 0 : s_exp(value - largest); /* a NaN stays one */
        }
        const S top = s_block_max(largest);
        sum = s_block_sum(s_rescale(sum, largest, top));
#if S_IS_LOG
        const S shift = s_log(sum); /* apart from top, which may be large */
        K_BLOCK_LOOP(c, args.columns) {
            out[c * args.inner] = T_store((TC)((S)T_load(x[c * args.inner]) - top - shift));
        }
#else
        const S scale = (S)1 / sum;
        K_BLOCK_LOOP(c, args.columns) {
            out[c * args.inner] = T_store((TC)(s_exp((S)T_load(x[c * args.inner]) - top) * scale));
        }
#endif
    }
}
