/* host_range.c - a sorted array of address ranges.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_range.h"

#include <stdlib.h>
#include <string.h>

size_t mp__host_range_after(const host_ranges *ranges, mp_addr addr) {
    size_t low = 0, high = ranges->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const host_range *range = &ranges->items[middle];
        if (range->begin + range->size > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

host_range *mp__host_range_find(const host_ranges *ranges, mp_addr addr) {
    const size_t index = mp__host_range_after(ranges, addr);
    if (index < ranges->count && ranges->items[index].begin <= addr) {
        return &ranges->items[index];
    }
    return NULL;
}

bool mp__host_range_covers(const host_ranges *ranges, mp_addr addr, size_t size) {
    const size_t first = mp__host_range_after(ranges, addr);
    mp_addr reached = addr;
    for (size_t i = first; i < ranges->count; i++) {
        const host_range *range = &ranges->items[i];
        if (range->begin > reached || range->kind != ranges->items[first].kind) {
            return false;
        }
        reached = range->begin + range->size;
        if (reached - addr >= size) {
            return true;
        }
    }
    return false;
}

static mp_status make_room(host_ranges *ranges) {
    if (ranges->count < ranges->capacity) {
        return MP_OK;
    }
    const size_t capacity = ranges->capacity == 0 ? 64 : ranges->capacity * 2;
    host_range *items = realloc(ranges->items, capacity * sizeof *items);
    if (items == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for a table of %zu address ranges",
                       capacity);
    }
    ranges->items = items;
    ranges->capacity = capacity;
    return MP_OK;
}

mp_status mp__host_range_insert(host_ranges *ranges, host_range fresh) {
    MP_TRY(make_room(ranges));
    const size_t index = mp__host_range_after(ranges, fresh.begin);
    memmove(ranges->items + index + 1, ranges->items + index,
            (ranges->count - index) * sizeof *ranges->items);
    ranges->items[index] = fresh;
    ranges->count++;
    return MP_OK;
}

void mp__host_range_remove(host_ranges *ranges, const host_range *range) {
    const size_t index = (size_t)(range - ranges->items);
    ranges->count--;
    memmove(ranges->items + index, ranges->items + index + 1,
            (ranges->count - index) * sizeof *ranges->items);
}

mp_status mp__host_range_cut(host_ranges *ranges, mp_addr addr, size_t size) {
    const mp_addr end = addr + size;
    size_t index = mp__host_range_after(ranges, addr);
    while (index < ranges->count && ranges->items[index].begin < end) {
        host_range *range = &ranges->items[index];
        const mp_addr range_end = range->begin + range->size;
        if (range->begin < addr && range_end > end) {
            host_range right = *range;
            right.begin = end;
            right.size = range_end - end;
            range->size = addr - range->begin; /* first: a place is found by where others end */
            const mp_status status = mp__host_range_insert(ranges, right);
            if (status != MP_OK) {
                ranges->items[index].size = range_end - ranges->items[index].begin;
            }
            return status;
        }
        if (range->begin < addr) {
            range->size = addr - range->begin;
            index++;
        } else if (range_end > end) {
            range->begin = end;
            range->size = range_end - end;
            index++;
        } else {
            mp__host_range_remove(ranges, range);
        }
    }
    return MP_OK;
}

void mp__host_range_clear(host_ranges *ranges) {
    free(ranges->items);
    *ranges = (host_ranges){0};
}
