/* trace_map.h - numbers by number: a hash table for the writers of traces.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_MAP_H
#define MP_POOL_TRACE_MAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mp_map_entry {
    uint64_t key, value;
    bool used;
} mp_map_entry;

typedef struct mp_map {
    mp_map_entry *entries; /* owned; a power of two of them */
    size_t capacity, count;
} mp_map;

/* An empty table is {0}. Fails: OUT_OF_MEMORY, the table as it was. */
mp_status mp__map_set(mp_map *map, uint64_t key, uint64_t value);
/* False, `*out` unchanged, where the key is not there. */
bool mp__map_get(const mp_map *map, uint64_t key, uint64_t *out);
/* The same, and the key is there no more. */
bool mp__map_take(mp_map *map, uint64_t key, uint64_t *out);
void mp__map_free(mp_map *map);

#endif
