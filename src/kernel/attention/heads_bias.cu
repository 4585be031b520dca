/* heads_bias.cu - out = x + bias for the rows of up to three tensors, each with a bias of its own:
 * queries, keys and values on their way to attention. A lane has AHEAD packs of 16 bytes on their
 * way at once. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/index.h"
#include "kernel/core/late.h"
#include "kernel/core/word.h"

enum { AHEAD = K_HEADS_BIAS_AHEAD, WORDS = 4 };

/* Words of x get those of the bias. */
K_FN void hb_add(uint32_t *x, const uint32_t *bias) {
    K_UNROLL
    for (int32_t w = 0; w < WORDS; w++) {
        float a[K_WORD], b[K_WORD];
        T_unpack(x[w], a);
        T_unpack(bias[w], b);
        K_UNROLL
        for (int32_t e = 0; e < K_WORD; e++) {
            a[e] += b[e];
        }
        x[w] = T_repack(a);
    }
}

/* Every step-th pack of a side, from `first` on. */
K_FN void hb_packs(const k_bias_side *side, uint32_t first, uint32_t step) {
    typedef struct K_ALIGN(16) words {
        uint32_t at[WORDS];
    } words;
    const words *x = (const words *)side->x, *bias = (const words *)side->bias;
    uint32_t given[AHEAD][WORDS];
    words added[AHEAD];
    K_UNROLL
    for (int32_t i = 0; i < AHEAD; i++) {
        const uint32_t at = first + (uint32_t)i * step;
        k_fetch(x + at, at < side->packs, given[i]);
    }
    K_UNROLL
    for (int32_t i = 0; i < AHEAD; i++) {
        const uint32_t at = first + (uint32_t)i * step;
        const uint32_t column = at - k_divide(at, side->by_row) * side->row;
        added[i] = bias[column]; /* there also where x has ended */
    }
    K_UNROLL
    for (int32_t i = 0; i < AHEAD; i++) {
        const uint32_t at = first + (uint32_t)i * step;
        hb_add(given[i], added[i].at);
        if (at < side->packs) {
            const words made = {{given[i][0], given[i][1], given[i][2], given[i][3]}};
            ((words *)side->out)[at] = made;
        }
    }
}

K_BLOCK_KERNEL_UP_TO(K_HEADS_BIAS_LANES, mp_heads_bias_args, args) {
    const uint32_t each = blockDim.x * AHEAD; /* packs of a turn of a block */
    uint32_t end[K_HEADS_BIAS_SIDES], units = 0;
    K_UNROLL
    for (int32_t s = 0; s < K_HEADS_BIAS_SIDES; s++) {
        units += (args.side[s].packs + each - 1) / each;
        end[s] = units;
    }
    for (uint32_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const int32_t s = (unit >= end[0]) + (unit >= end[1]);
        const uint32_t first = (unit - (s > 0 ? end[s - 1] : 0)) * each + threadIdx.x;
        hb_packs(&args.side[s], first, blockDim.x);
    }
}
