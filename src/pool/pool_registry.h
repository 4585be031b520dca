/* pool_registry.h - the arenas of the process: one for each memory of each device.
 *
 * An mp_device stands for {vendor, device, ordinal}: two identical GPUs are two of them, so they
 * never share an arena.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_POOL_REGISTRY_H
#define MP_POOL_POOL_REGISTRY_H

#include "pool/arena/arena.h"

/* The arena of `from`, made where there is none; a warning is logged where the opener has given
 * options that the arena has otherwise. Gives: `*out`, until release. */
mp_status mp__registry_get(const source *from, const arena_options *options, arena **out);

/* Adds a reference to an arena that has one. */
void mp__registry_keep(arena *a);

/* With the last reference the arena goes, unless blocks are still lent. */
void mp__registry_release(arena *a);

typedef struct registry_entry {
    mp_device_kind kind;
    int ordinal;
    mp_memory memory;
    bool is_external;
} registry_entry;

/* Writes at most `capacity` entries, one an arena that is in use; gives how many there are. */
size_t mp__registry_list(registry_entry *out, size_t capacity);

#endif
