/* layout_check.h - whether what a pool says of itself hangs together.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_POOL_LAYOUT_CHECK_H
#define MP_TESTS_POOL_LAYOUT_CHECK_H

#include "pool/layout.h"

/* Bytes of blocks by state. */
typedef struct layout_sums {
    size_t lent, free, waiting, unmapped; /* `free`: chunks and kept ones */
    size_t requested;
    size_t lent_count;
} layout_sums;

layout_sums layout_add_up(const mp_layout *layout);

/* Looks for what must never be: regions that overlap, blocks that do not tile their region, free
 * neighbours of one stream that are not merged, sums that differ from the statistics.
 * Returns whether all is well; otherwise `why` says in one sentence what is not. */
bool layout_is_sound(const mp_layout *layout, char *why, size_t why_size);

/* The region around `addr`; NULL where there is none. */
const mp_layout_region *layout_region_around(const mp_layout *layout, mp_addr addr);

#endif
