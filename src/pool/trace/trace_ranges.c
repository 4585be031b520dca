/* trace_ranges.c - a set of addresses, as a sorted array of ranges that do not touch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_ranges.h"

#include <stdlib.h>
#include <string.h>

/* How many ranges end before `at`. */
static size_t ranges_before(const mp_ranges *set, uint64_t at) {
    size_t low = 0, high = set->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (set->items[middle].end < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Puts `count` ranges in the place of those from `first` to before `last`. */
static mp_status replace(mp_ranges *set, size_t first, size_t last, const mp_range *fresh,
                         size_t count) {
    const size_t wanted = set->count - (last - first) + count;
    if (wanted > set->capacity) {
        const size_t capacity = wanted * 2;
        mp_range *items = realloc(set->items, capacity * sizeof *items);
        if (items == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "no memory for a set of %zu ranges", capacity);
        }
        set->items = items;
        set->capacity = capacity;
    }
    if (wanted > 0) {
        memmove(set->items + first + count, set->items + last,
                (set->count - last) * sizeof *set->items);
        memcpy(set->items + first, fresh, count * sizeof *fresh);
    }
    set->count = wanted;
    return MP_OK;
}

mp_status mp__ranges_add(mp_ranges *set, mp_range range) {
    const size_t first = ranges_before(set, range.begin);
    size_t last = first;
    for (; last < set->count && set->items[last].begin <= range.end; last++) {
        const mp_range met = set->items[last];
        range.begin = MP_MIN(met.begin, range.begin);
        range.end = MP_MAX(met.end, range.end);
    }
    return replace(set, first, last, &range, 1);
}

mp_status mp__ranges_remove(mp_ranges *set, mp_range range) {
    const size_t first = ranges_before(set, range.begin);
    size_t last = first, count = 0;
    mp_range rest[2];
    for (; last < set->count && set->items[last].begin < range.end; last++) {
        const mp_range met = set->items[last];
        if (met.begin < range.begin) {
            rest[count++] = (mp_range){met.begin, met.end < range.begin ? met.end : range.begin};
        }
        if (met.end > range.end) {
            rest[count++] = (mp_range){range.end, met.end};
        }
    }
    return replace(set, first, last, rest, count);
}

bool mp__ranges_hold(const mp_ranges *set, mp_range range) {
    /* A range that ends where this one begins does not hold its first byte. */
    const size_t at = ranges_before(set, range.begin + 1);
    return at < set->count && set->items[at].begin <= range.begin &&
           range.end <= set->items[at].end;
}

void mp__ranges_free(mp_ranges *set) {
    free(set->items);
    *set = (mp_ranges){0};
}
