/* paged.h - where tokens of a batch lie in caches that grow in place.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PAGED_H
#define MP_KERNEL_PAGED_H

#include "kernel/attention/paged_args.h"
#include "kernel/core/packed_batch.h"
#include "kernel/pointwise/narrow_value.h"

/* Tokens of an entry that were there before. */
K_FN int64_t p_past(const k_paged *at, int64_t entry) {
    const int64_t past = at->past ? at->past[entry] + at->past_more : 0;
    const int64_t most = at->block_size > 0 ? past : at->capacity - at->rows;
    return past < 0 ? 0 : past < most ? past : most;
}

/* Which tokens an entry has. */
K_FN k_tokens p_tokens_of(const k_paged *at, int64_t entry) {
    return k_tokens_of(at->starts, entry, at->rows, at->tokens);
}

/* The row of a head of token `j` of an entry, or -1. */
K_FN int64_t p_row(const k_paged *at, int64_t entry, int64_t head, int64_t j) {
    if (at->block_size == 0) {
        return j < at->capacity ? (entry * at->kv_heads + head) * at->capacity + j : -1;
    }
    const int64_t index = j / at->block_size;
    if (index >= at->table_blocks) {
        return -1;
    }
    const int64_t block = at->table[entry * at->table_blocks + index];
    const int64_t slot = block * at->block_size + j % at->block_size;
    return block >= 0 && block < at->blocks ? slot * at->kv_heads + head : -1;
}

/* The scale of element `i` of a head. */
K_FN float p_scale(const k_paged_cache *cache, int64_t head, int64_t size, int64_t i) {
    return cache->scale ? cache->scale[cache->scale_each ? head * size + i : 0] : 1.0f;
}

#endif
