/* packed_batch.h - which tokens of a packed batch are whose. The first token of each entry, and
 * behind them the number of all, come from a model: an entry whose range does not lie within the
 * tokens has none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PACKED_BATCH_H
#define MP_KERNEL_PACKED_BATCH_H

#include "kernel/core/prelude.h"

typedef struct k_tokens {
    int64_t first, count;
} k_tokens;

/* Without `starts` each entry has `rows` tokens. */
K_FN k_tokens k_tokens_of(const int32_t *starts, int64_t entry, int64_t rows, int64_t tokens) {
    k_tokens t;
    t.first = entry * rows;
    t.count = rows;
    if (starts) {
        const int64_t first = starts[entry], end = starts[entry + 1];
        const int fits = first >= 0 && end >= first && end <= tokens;
        t.first = fits ? first : 0;
        t.count = fits ? end - first : 0;
    }
    return t;
}

/* The entry of a token, or -1 where none has it. */
K_FN int64_t k_entry_of(const int32_t *starts, int64_t batch, int64_t rows, int64_t tokens,
                        int64_t token) {
    if (!starts) {
        return token / rows;
    }
    int64_t low = 0, high = batch;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (starts[middle] <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (batch < 1) {
        return -1;
    }
    const k_tokens t = k_tokens_of(starts, low, rows, tokens);
    return token >= t.first && token < t.first + t.count ? low : -1;
}

#endif
