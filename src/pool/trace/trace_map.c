/* trace_map.c - numbers by number, in a table with linear probing.
 *
 * No used entry has a free one between its home and itself; removal moves later ones up to keep it
 * so. The table is never more than half full.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_map.h"

#include <stdlib.h>

enum { CAPACITY_MIN = 64 };

static size_t home_of(const mp_map *map, uint64_t key) {
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (map->capacity - 1);
}

/* The entry of `key`, or the free one where it belongs. */
static mp_map_entry *entry_of(const mp_map *map, uint64_t key) {
    size_t at = home_of(map, key);
    while (map->entries[at].used && map->entries[at].key != key) {
        at = (at + 1) & (map->capacity - 1);
    }
    return &map->entries[at];
}

static mp_status grow(mp_map *map) {
    mp_map wider = {.capacity = map->capacity == 0 ? CAPACITY_MIN : map->capacity * 2,
                    .count = map->count};
    wider.entries = calloc(wider.capacity, sizeof *wider.entries);
    if (wider.entries == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no memory for a table of %zu entries", wider.capacity);
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->entries[i].used) {
            *entry_of(&wider, map->entries[i].key) = map->entries[i];
        }
    }
    free(map->entries);
    *map = wider;
    return MP_OK;
}

mp_status mp__map_set(mp_map *map, uint64_t key, uint64_t value) {
    if ((map->count + 1) * 2 > map->capacity) {
        MP_TRY(grow(map));
    }
    mp_map_entry *entry = entry_of(map, key);
    map->count += entry->used ? 0 : 1;
    *entry = (mp_map_entry){.key = key, .value = value, .used = true};
    return MP_OK;
}

bool mp__map_get(const mp_map *map, uint64_t key, uint64_t *out) {
    const mp_map_entry *entry = map->count > 0 ? entry_of(map, key) : NULL;
    if (entry == NULL || !entry->used) {
        return false;
    }
    *out = entry->value;
    return true;
}

bool mp__map_take(mp_map *map, uint64_t key, uint64_t *out) {
    if (!mp__map_get(map, key, out)) {
        return false;
    }
    const size_t mask = map->capacity - 1;
    size_t hole = (size_t)(entry_of(map, key) - map->entries);
    for (size_t at = (hole + 1) & mask; map->entries[at].used; at = (at + 1) & mask) {
        const size_t from_home = (at - home_of(map, map->entries[at].key)) & mask;
        if (from_home >= ((at - hole) & mask)) {
            map->entries[hole] = map->entries[at];
            hole = at;
        }
    }
    map->entries[hole].used = false;
    map->count--;
    return true;
}

void mp__map_free(mp_map *map) {
    free(map->entries);
    *map = (mp_map){0};
}
