/* topk_short.cu - the first k elements of each row in order, for rows that fit shared memory. Equal
 * keys keep the order of their places.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"

/* Places within a row or list of up to K_SORT_SHORT fit 32 bits; those of pairs are looked up. */
K_FN int after(uint64_t key_a, uint32_t place_a, uint64_t key_b, uint32_t place_b) {
    return key_a > key_b || (key_a == key_b && place_a > place_b);
}

K_FN void sort(uint64_t *key, uint32_t *place, int64_t size) {
    for (int64_t run = 2; run <= size; run *= 2) {
        for (int64_t step = run / 2; step > 0; step /= 2) {
            K_BLOCK_LOOP(i, size / 2) {
                const int64_t low = 2 * i - (i & (step - 1)), high = low + step;
                const int down = (low & run) != 0;
                if (after(key[low], place[low], key[high], place[high]) != down) {
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

K_BLOCK_KERNEL(mp_topk_short_args, args) {
    K_SHARED(uint64_t, key);
    uint32_t *place = (uint32_t *)(key + args.padded);
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *x = (const T *)args.x + row * args.row;
        const k_pair *pairs = args.pairs ? args.pairs + row * args.columns : 0;
        K_BLOCK_LOOP(i, args.padded) {
            place[i] = (uint32_t)i;
            key[i] = ~(uint64_t)0;
            if (i < args.columns) {
                key[i] = pairs ? pairs[i].key : k_order_key((uint64_t)x[i], args.order);
            }
        }
        __syncthreads();
        sort(key, place, args.padded);
        K_BLOCK_LOOP(i, args.k) {
            const int64_t index = pairs ? pairs[place[i]].index : (int64_t)place[i];
            if (args.values) {
                ((T *)args.values)[row * args.k + i] = x[index];
            }
            if (args.indices) {
                args.indices[row * args.k + i] = index;
            }
        }
        __syncthreads();
    }
}
