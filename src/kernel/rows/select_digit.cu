/* select_digit.cu - by one block a row: from how often each digit occurs to the digit of the k-th
 * key.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/rows/sort_args.h"

K_BLOCK_KERNEL(mp_select_digit_args, args) {
    K_SHARED(int64_t, total);
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const int64_t *counts = args.counts + row * K_DIGITS * args.tiles;
        K_BLOCK_LOOP(d, K_DIGITS) {
            int64_t sum = 0;
            for (int64_t t = 0; t < args.tiles; t++) {
                sum += counts[d * args.tiles + t];
            }
            total[d] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            k_select_state state;
            state.prefix = args.first ? 0 : args.state[row].prefix;
            state.left = args.first ? args.k : args.state[row].left;
            int32_t digit = 0;
            while (digit < K_DIGITS - 1 && total[digit] < state.left) {
                state.left -= total[digit];
                digit++;
            }
            state.prefix |= (uint64_t)digit << args.shift;
            args.state[row] = state;
        }
        __syncthreads();
    }
}
