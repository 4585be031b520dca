/* topk_short.cu - the first k elements of each row in order, for rows that fit shared memory and
 * keys of 64 bits. Equal keys keep the order of their places.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"
#include "kernel/rows/topk_sort.h"

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
        k_sort_list(key, place, (uint32_t)args.padded);
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
