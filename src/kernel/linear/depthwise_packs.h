/* depthwise_packs.h - neighbouring channels as they come, and as they are computed with, in the
 * kernels that hold pixels of single channels in shared memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DEPTHWISE_PACKS_H
#define MP_KERNEL_DEPTHWISE_PACKS_H

#include "kernel/core/word.h"
#include "kernel/linear/linear_args.h"

typedef struct K_ALIGN(sizeof(T) * K_DEPTHWISE_PACK) d_pack {
    uint32_t word[K_DEPTHWISE_PACK / K_WORD];
} d_pack;

/* Of a pair of channels. */
typedef struct K_ALIGN(sizeof(T) * K_DEPTHWISE_PAIR) d_pair {
    uint32_t word[K_DEPTHWISE_PAIR / K_WORD];
} d_pair;

typedef struct K_ALIGN(8) d_two {
    float at[K_DEPTHWISE_PAIR];
} d_two;

K_FN d_pack d_nothing(void) {
    d_pack pack;
    K_UNROLL
    for (int32_t j = 0; j < K_DEPTHWISE_PACK / K_WORD; j++) {
        pack.word[j] = 0;
    }
    return pack;
}

K_FN void d_put_pair(d_pair *to, const float *made) {
    d_pair pair;
    K_UNROLL
    for (int32_t j = 0; j < K_DEPTHWISE_PAIR / K_WORD; j++) {
        pair.word[j] = T_repack(made + j * K_WORD);
    }
    *to = pair;
}

#endif
