/* select_digit.cu - by one block a row: from how often each digit occurs to the digit of the k-th
 * key.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/rows/sort_args.h"

/* The digit that the last of those asked for has: below it are fewer, up to it enough. */
K_BLOCK_KERNEL(mp_select_digit_args, args) {
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const k_select_state none = {0, args.k};
        const k_select_state state = args.first ? none : args.state[row];
        int64_t below = 0;
        for (int32_t from = 0; from < K_DIGITS; from += (int32_t)blockDim.x) {
            const int32_t digit = from + (int32_t)threadIdx.x;
            const int64_t count = args.counts[row * K_DIGITS + digit];
            int64_t all = 0;
            const int64_t before = below + k_block_scan(count, &all);
            if (before < state.left && state.left <= before + count) {
                args.state[row].prefix = state.prefix | (uint64_t)digit << args.shift;
                args.state[row].left = state.left - before;
            }
            below += all;
        }
    }
}
