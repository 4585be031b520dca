/* source.h - where regions come from, and the limits that they count against.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_SOURCE_H
#define MP_POOL_SOURCE_H

#include "device/device.h"
#include "millpond/millpond.h"

typedef struct arena arena;

/* Where regions come from: the device's memory, its pinned memory, or another library. */
typedef struct source {
    mp_device *device; /* borrowed */
    mp_memory memory;
    bool is_external;
    mp_external external;
} source;

static inline const char *source_memory_name(const source *s) {
    return s->memory == MP_MEMORY_PINNED ? "pinned" : "device";
}

mp_status mp__source_alloc(const source *s, size_t size, mp_addr *out);
void mp__source_free(const source *s, mp_addr addr, size_t size);
/* What the device, or the external manager, has. False: it cannot be told. Without locks. */
bool mp__source_info(const source *s, size_t *left, size_t *all);
/* Counts bytes against arena.max_mem and the limit of the process. Under the arena's lock. */
mp_status mp__region_take(arena *a, size_t size);
void mp__region_give(arena *a, size_t size);
/* What arena.max_mem leaves. */
size_t mp__region_room(const arena *a);

#endif
