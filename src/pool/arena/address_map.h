/* address_map.h - from the address of a block to its chunk, without a lock.
 *
 * A hash table with open addressing. Changes are made under the arena's lock; a reader that meets
 * one may miss its entry and then looks again under that lock. Tables that were outgrown are kept,
 * since a reader may still be in one; all of them are smaller than the one in use.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ADDRESS_MAP_H
#define MP_POOL_ADDRESS_MAP_H

#include "pool/arena/chunk.h"

typedef struct address_table address_table;

typedef struct address_map {
    _Alignas(64) _Atomic(address_table *) table; /* owned; NULL before the first entry */
    _Alignas(64) size_t count;                   /* away from what readers read */
} address_map;

/* Makes sure that the next `count` calls of mp__address_add succeed. Fails: OUT_OF_MEMORY. */
mp_status mp__address_prepare(address_map *map, size_t count);
void mp__address_add(address_map *map, chunk *c); /* by its addr */
void mp__address_remove(address_map *map, const chunk *c);
/* The chunk that begins at `addr`; NULL where there is none, or where a change came in between. */
chunk *mp__address_find(const address_map *map, mp_addr addr);
void mp__address_map_close(address_map *map);

#endif
