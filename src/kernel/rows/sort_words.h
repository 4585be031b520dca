/* sort_words.h - sorts words of key and place, so that a comparison is one of numbers and equal
 * keys keep the order of their places: a bitonic network, by all lanes of a block.
 *
 * On a GPU a lane has some neighbouring words in registers. Those of a step meet in the lane where
 * they are that close, by shuffles within a warp, and through shared memory between warps. The
 * blocks have 32 lanes at least.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SORT_WORDS_H
#define MP_KERNEL_SORT_WORDS_H

#include "kernel/core/prelude.h"
#include "kernel/rows/sort_args.h"

/* The place is the lower half; keys of 8 bits have some to spare. */
#define K_WORDS_b8  uint32_t
#define K_WORDS_b16 uint32_t
#define K_WORDS_b32 uint64_t
typedef K_JOIN(K_WORDS_, K_T0) k_sort_word;
enum { K_SORT_PLACE_BITS = sizeof(k_sort_word) * 4 };

/* Behind all words of elements. */
#define K_SORT_NOTHING ((k_sort_word) ~(k_sort_word)0)

K_FN k_sort_word k_sort_join(uint64_t key, uint32_t place) {
    return (k_sort_word)((k_sort_word)key << K_SORT_PLACE_BITS | place);
}

K_FN uint32_t k_sort_place(k_sort_word word) {
    return (uint32_t)(word & (((k_sort_word)1 << K_SORT_PLACE_BITS) - 1));
}

#if K_HOST

/* Where word i of a list lies. */
K_FN uint32_t k_sort_slot(uint32_t i) {
    return i;
}

/* `size` is a power of two from K_WORDS_EACH on; what the lanes have put there they may have put
 * just now. */
K_FN void k_sort_words(k_sort_word *list, uint32_t size) {
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2) {
        for (uint32_t step = run / 2; step > 0; step /= 2) {
            for (uint32_t i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const uint32_t low = 2 * i - (i & (step - 1)), high = low + step;
                const k_sort_word a = list[low], b = list[high];
                const int swap = (a > b) != ((low & run) != 0);
                list[low] = swap ? b : a;
                list[high] = swap ? a : b;
            }
            __syncthreads();
        }
    }
}

#else

/* The words of a lane lie apart, and those of its neighbours beside each of them. */
K_FN uint32_t k_sort_slot_of(uint32_t lane, uint32_t k) {
    return k * (blockDim.x + K_WORDS_GAP / sizeof(k_sort_word)) + lane;
}

K_FN uint32_t k_sort_slot(uint32_t i) {
    return k_sort_slot_of(i / K_WORDS_EACH, i % K_WORDS_EACH);
}

/* One of two words that meet. */
K_FN k_sort_word k_sort_keep(k_sort_word mine, k_sort_word other, int higher) {
    return (other > mine) == (higher != 0) ? other : mine;
}

/* A step of words as many lanes apart. Nobody reads the list when it ends. */
K_FN void k_sort_across(k_sort_word *mine, k_sort_word *list, uint32_t apart, int down) {
    const int higher = ((threadIdx.x & apart) != 0) != down;
    if (apart < 32) {
        K_UNROLL
        for (uint32_t k = 0; k < K_WORDS_EACH; k++) {
            mine[k] = k_sort_keep(mine[k], __shfl_xor_sync(0xffffffffu, mine[k], apart), higher);
        }
        return;
    }
    K_UNROLL
    for (uint32_t k = 0; k < K_WORDS_EACH; k++) {
        list[k_sort_slot_of(threadIdx.x, k)] = mine[k];
    }
    __syncthreads();
    K_UNROLL
    for (uint32_t k = 0; k < K_WORDS_EACH; k++) {
        mine[k] = k_sort_keep(mine[k], list[k_sort_slot_of(threadIdx.x ^ apart, k)], higher);
    }
    __syncthreads();
}

/* A step of words of this lane; `down` in pairs whose first word has a bit of `run`. */
K_FN void k_sort_within(k_sort_word *mine, uint32_t step, uint32_t run, int down) {
    K_UNROLL
    for (uint32_t i = 0; i < K_WORDS_EACH / 2; i++) {
        const uint32_t low = 2 * i - (i & (step - 1)), high = low + step;
        const k_sort_word a = mine[low], b = mine[high];
        const int swap = (a > b) != ((low & run) != 0 || down);
        mine[low] = swap ? b : a;
        mine[high] = swap ? a : b;
    }
}

K_FN void k_sort_words(k_sort_word *list, uint32_t size) {
    const int takes_part = threadIdx.x < size / K_WORDS_EACH;
    k_sort_word mine[K_WORDS_EACH];
    __syncthreads();
    K_UNROLL
    for (uint32_t k = 0; k < K_WORDS_EACH; k++) {
        mine[k] = takes_part ? list[k_sort_slot_of(threadIdx.x, k)] : K_SORT_NOTHING;
    }
    K_UNROLL
    for (uint32_t run = 2; run < K_WORDS_EACH; run *= 2) {
        K_UNROLL
        for (uint32_t step = run / 2; step > 0; step /= 2) {
            k_sort_within(mine, step, run, 0);
        }
    }
    K_ONE_COPY
    for (uint32_t run = 1; run <= size / K_WORDS_EACH; run *= 2) { /* in lanes */
        const int down = (threadIdx.x & run) != 0;
        K_ONE_COPY
        for (uint32_t apart = run / 2; apart > 0; apart /= 2) {
            k_sort_across(mine, list, apart, down);
        }
        K_UNROLL
        for (uint32_t step = K_WORDS_EACH / 2; step > 0; step /= 2) {
            k_sort_within(mine, step, 0, down);
        }
    }
    K_UNROLL
    for (uint32_t k = 0; k < K_WORDS_EACH && takes_part; k++) {
        list[k_sort_slot_of(threadIdx.x, k)] = mine[k];
    }
    __syncthreads();
}

#endif

#endif
