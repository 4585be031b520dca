/* sort_entry.h - the entries of a list that is sorted by digits: pairs, or words of half the size,
 * with the key above the place, where both have up to 32 bits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SORT_ENTRY_H
#define MP_KERNEL_SORT_ENTRY_H

#include "kernel/core/prelude.h"
#include "kernel/rows/sort_args.h"

K_FN void k_entry_put(void *list, int32_t words, int64_t at, uint64_t key, int64_t index) {
    if (words) {
        ((uint64_t *)list)[at] = key << 32 | (uint64_t)index;
    } else {
        k_pair pair;
        pair.key = key;
        pair.index = index;
        ((k_pair *)list)[at] = pair;
    }
}

K_FN int64_t k_entry_index(const void *list, int32_t words, int64_t at) {
    return words ? (int64_t)(((const uint64_t *)list)[at] & 0xffffffff)
                 : ((const k_pair *)list)[at].index;
}

#endif
