/* trace_ranges.h - a set of addresses, as ranges that do not touch.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_RANGES_H
#define MP_POOL_TRACE_RANGES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mp_range {
    uint64_t begin, end;
} mp_range;

typedef struct mp_ranges {
    mp_range *items; /* owned; by address */
    size_t count, capacity;
} mp_ranges;

/* An empty set is {0}. Fail with OUT_OF_MEMORY, the set as it was. */
mp_status mp__ranges_add(mp_ranges *set, mp_range range);
mp_status mp__ranges_remove(mp_ranges *set, mp_range range);
/* Whether all of `range` is in the set. */
bool mp__ranges_hold(const mp_ranges *set, mp_range range);
void mp__ranges_free(mp_ranges *set);

#endif
