/* nms_pick.cu - one block a list: which of its next boxes are selected, 64 at a time, and what
 * those take out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/nms_box.h"

enum { AHEAD = 8 }; /* words that a lane has on their way at once */

/* Of the boxes left of one word those that no better one overlaps, until `room` of them are found.
 * `own` says for each which of the same word it overlaps. */
K_FN uint64_t choose(uint64_t left, const uint64_t *own, int64_t room) {
    uint64_t chosen = 0;
    K_ONE_COPY
    for (int k = 0; k < K_NMS_WORD && room > 0; k++) {
        if (left >> k & 1) {
            chosen |= 1ull << k;
            left &= ~own[k];
            room--;
        }
    }
    return chosen;
}

K_FN int count_below(uint64_t chosen, int k) {
    int count = 0;
    K_ONE_COPY
    for (int i = 0; i < k; i++) {
        count += (int)(chosen >> i & 1);
    }
    return count;
}

/* What the chosen boxes take out of one word; `rows` are those of the first of their 64. */
K_FN uint64_t taken_out(uint64_t chosen, const uint64_t *rows, int64_t words) {
    uint64_t all = 0;
    K_ONE_COPY
    for (int k = 0; k < K_NMS_WORD; k += AHEAD) {
        uint64_t bits[AHEAD];
        K_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            bits[i] = chosen >> (k + i) & 1 ? rows[(k + i) * words] : 0;
        }
        K_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            all |= bits[i];
        }
    }
    return all;
}

K_BLOCK_KERNEL(mp_nms_args, args) {
    K_SHARED(uint64_t, shared);
    uint64_t *own = shared, *now = shared + K_NMS_WORD, *gone = now + 1;
    for (int64_t list = blockIdx.x; list < args.lists; list += gridDim.x) {
        const int32_t *order = args.order + list * args.count;
        int32_t *picked = args.picked + list * args.most;
        uint64_t *taken = args.taken + list * args.words;
        int64_t fit = 0, selected = args.first > 0 ? args.starts[list] : 0;
        K_BLOCK_LOOP(i, args.count) {
            fit += order[i] >= 0;
        }
        fit = k_block_sum_i64(fit);
        K_BLOCK_LOOP(w, args.words) {
            gone[w] = args.first > 0 ? taken[w] : 0;
        }
        const int64_t end = args.first + args.rows < fit ? args.first + args.rows : fit;
        for (int64_t first = args.first; first < end && selected < args.most; first += K_NMS_WORD) {
            const int64_t word = first / K_NMS_WORD;
            const int32_t here = (int32_t)(fit - first < K_NMS_WORD ? fit - first : K_NMS_WORD);
            const uint64_t *rows = args.bits + (list * args.rows + first - args.first) * args.words;
            K_BLOCK_LOOP(k, here) {
                own[k] = rows[k * args.words + word];
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                const uint64_t all = here < K_NMS_WORD ? (1ull << here) - 1 : ~0ull;
                *now = choose(all & ~gone[word], own, args.most - selected);
            }
            __syncthreads();
            const uint64_t chosen = *now;
            K_BLOCK_LOOP(k, here) {
                if (chosen >> k & 1) {
                    picked[selected + count_below(chosen, (int)k)] = order[first + k];
                }
            }
            K_BLOCK_LOOP(w, args.words) {
                if (w > word) {
                    gone[w] |= taken_out(chosen, rows + w, args.words);
                }
            }
            selected += count_below(chosen, K_NMS_WORD);
            __syncthreads();
        }
        K_BLOCK_LOOP(w, args.words) {
            taken[w] = gone[w];
        }
        if (threadIdx.x == 0) {
            args.starts[list] = selected;
        }
        __syncthreads();
    }
}
