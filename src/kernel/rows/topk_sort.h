/* topk_sort.h - sorts a list in shared memory by its keys, equal ones by their places: a bitonic
 * network, by all lanes of a block.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_TOPK_SORT_H
#define MP_KERNEL_TOPK_SORT_H

#include "kernel/core/prelude.h"

/* Places fit 32 bits; those of pairs are looked up. */
K_FN int k_sort_after(uint64_t key_a, uint32_t place_a, uint64_t key_b, uint32_t place_b) {
    return key_a > key_b || (key_a == key_b && place_a > place_b);
}

/* `size` is a power of two; what the lanes have put there they may have put just now. */
K_FN void k_sort_list(uint64_t *key, uint32_t *place, uint32_t size) {
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2) {
        for (uint32_t step = run / 2; step > 0; step /= 2) {
            for (uint32_t i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const uint32_t low = 2 * i - (i & (step - 1)), high = low + step;
                const int down = (low & run) != 0;
                if (k_sort_after(key[low], place[low], key[high], place[high]) != down) {
                    const uint64_t moved_key = key[low];
                    const uint32_t moved_place = place[low];
                    key[low] = key[high];
                    place[low] = place[high];
                    key[high] = moved_key;
                    place[high] = moved_place;
                }
            }
            __syncthreads();
        }
    }
}

#endif
