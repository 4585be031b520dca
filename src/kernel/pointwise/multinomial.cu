/* multinomial.cu - draws classes, each as often as it is likely; a block a row. The running sums of
 * a row's likelihoods are made first, then each sample looks its number up in them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/block_scan.h"
#include "kernel/core/philox.h"
#include "kernel/pointwise/pointwise_args.h"

K_FN K_SUM likelihood(T x, K_SUM largest) {
    return (K_SUM)exp((double)((K_SUM)T_load(x) - largest));
}

/* The first class whose running sum is above `wanted`. */
K_FN int64_t look_up(const K_SUM *sums, int64_t classes, K_SUM wanted) {
    int64_t low = 0, high = classes - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sums[middle] > wanted) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

K_BLOCK_KERNEL(mp_multinomial_args, args) {
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *x = (const T *)args.x + row * args.classes;
        K_SUM *sums = (K_SUM *)args.sums + row * args.classes;
        K_SUM largest = -(K_SUM)K_INF, total = 0;
        K_BLOCK_LOOP(c, args.classes) {
            const K_SUM value = (K_SUM)T_load(x[c]);
            largest = value > largest ? value : largest;
        }
        largest = k_block_max(largest);
        for (int64_t c = 0; c < args.classes; c += blockDim.x) {
            const int64_t mine = c + threadIdx.x;
            const K_SUM value = mine < args.classes ? likelihood(x[mine], largest) : 0;
            K_SUM all = 0;
            const K_SUM before = k_block_join(value, 0, &all);
            if (mine < args.classes) {
                sums[mine] = total + before + value;
            }
            total += all;
        }
        __syncthreads(); /* the sums are read by other lanes than wrote them */
        K_BLOCK_LOOP(s, args.samples) {
            const int64_t at = row * args.samples + s;
            const k_words words = k_philox(args.seed, args.run, (uint64_t)at);
            const K_SUM wanted = (K_SUM)k_uniform_f64(words.at[0], words.at[1]) * total;
            const int64_t found = look_up(sums, args.classes, wanted);
            if (args.wide) {
                ((int64_t *)args.out)[at] = found;
            } else {
                ((int32_t *)args.out)[at] = (int32_t)found;
            }
        }
    }
}
