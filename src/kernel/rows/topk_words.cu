/* topk_words.cu - the first k elements of each row in order, for rows that fit shared memory and
 * keys of up to 32 bits. Equal keys keep the order of their places.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"
#include "kernel/rows/sort_words.h"

/* Elements on their way to a lane. */
enum { AT_ONCE = K_HOST ? 1 : K_WORDS_EACH };

#define SOME_LOOP(first, count) \
    for (int64_t first = threadIdx.x; first < (count); first += (int64_t)AT_ONCE * blockDim.x)

/* Element `k` of those that a lane takes at once from `first` on; `first` where there is no such.
 */
K_FN int64_t some_at(int64_t first, int k, int64_t count) {
    const int64_t at = first + (int64_t)k * blockDim.x;
    return at < count ? at : first;
}

/* Words of the elements of x, or of the pairs where there are any. */
K_FN void list_row(const mp_topk_short_args *args, const T *x, const k_pair *pairs,
                   k_sort_word *list) {
    SOME_LOOP(first, args->padded) {
        uint64_t key[AT_ONCE];
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t at = some_at(first, k, args->columns), here = at < args->columns ? at : 0;
            key[k] = pairs ? pairs[here].key : (uint64_t)x[here];
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t i = first + (int64_t)k * blockDim.x;
            const uint64_t ordered = pairs ? key[k] : k_order_key(key[k], args->order);
            if (i < args->padded) {
                list[k_sort_slot((uint32_t)i)] =
                    i < args->columns ? k_sort_join(ordered, (uint32_t)i) : K_SORT_NOTHING;
            }
        }
    }
}

K_FN void write_row(const mp_topk_short_args *args, int64_t row, const T *x, const k_pair *pairs,
                    const k_sort_word *list) {
    T *values = args->values ? (T *)args->values + row * args->k : 0;
    int64_t *indices = args->indices ? args->indices + row * args->k : 0;
    SOME_LOOP(first, args->k) {
        int64_t index[AT_ONCE];
        T value[AT_ONCE];
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            const uint32_t i = (uint32_t)some_at(first, k, args->k);
            index[k] = k_sort_place(list[k_sort_slot(i)]);
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE && pairs; k++) {
            index[k] = pairs[index[k]].index;
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE && values; k++) {
            value[k] = x[index[k]];
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t i = first + (int64_t)k * blockDim.x;
            if (i < args->k && values) {
                values[i] = value[k];
            }
            if (i < args->k && indices) {
                indices[i] = index[k];
            }
        }
    }
}

K_BLOCK_KERNEL_IN_64(K_WORDS_LANES, mp_topk_short_args, args) {
    K_SHARED(k_sort_word, list);
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *x = (const T *)args.x + row * args.row;
        const k_pair *pairs = args.pairs ? args.pairs + row * args.columns : 0;
        list_row(&args, x, pairs, list);
        k_sort_words(list, (uint32_t)args.padded);
        write_row(&args, row, x, pairs, list);
        __syncthreads();
    }
}
