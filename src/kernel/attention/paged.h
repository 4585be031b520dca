/* paged.h - where tokens of a packed batch lie in caches in blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PAGED_H
#define MP_KERNEL_PAGED_H

#include "kernel/attention/paged_args.h"
#include "kernel/core/packed_batch.h"
#include "kernel/pointwise/narrow_value.h"

/* Tokens of an entry that were there before. */
K_FN int64_t p_past(const k_paged *at, int64_t entry) {
    const int32_t past = at->past[entry];
    return past < 0 ? 0 : past;
}

/* The slot of token `j` of an entry, or -1. */
K_FN int64_t p_slot(const k_paged *at, int64_t entry, int64_t j) {
    const int64_t index = j / at->block_size;
    if (index >= at->table_blocks) {
        return -1;
    }
    const int64_t block = at->table[entry * at->table_blocks + index];
    return block >= 0 && block < at->blocks ? block * at->block_size + j % at->block_size : -1;
}

/* The scale of element `i` of a head. */
K_FN float p_scale(const k_paged_cache *cache, int64_t head, int64_t size, int64_t i) {
    return cache->scale ? cache->scale[cache->scale_each ? head * size + i : 0] : 1.0f;
}

#endif
