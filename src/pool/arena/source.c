/* source.c - where regions come from: the device, its pinned memory, or another library; and the
 * limits that what is reserved there counts against.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/source.h"

#include "pool/arena/arena.h"
#include "pool/limit.h"

mp_status mp__source_alloc(const source *s, size_t size, mp_addr *out) {
    mp_device *device = s->device;
    if (!s->is_external) {
        return s->memory == MP_MEMORY_PINNED ? device->ops->alloc_pinned(device, size, out)
                                             : device->ops->alloc(device, size, out);
    }
    void *memory = s->external.alloc(s->external.context, size);
    if (memory == NULL && s->external.empty_cache != NULL) {
        s->external.empty_cache(s->external.context);
        memory = s->external.alloc(s->external.context, size);
    }
    if (memory == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "the external memory manager cannot provide %zu bytes", size);
    }
    if ((uintptr_t)memory % UNIT != 0) {
        s->external.free(s->external.context, memory, size);
        return MP_FAIL(
            UNSUPPORTED,
            "the external memory manager returned address %p, which is not a multiple of %d; have "
            "it align what it returns to %d bytes",
            memory, UNIT, UNIT);
    }
    *out = (mp_addr)memory;
    return MP_OK;
}

void mp__source_free(const source *s, mp_addr addr, size_t size) {
    mp_device *device = s->device;
    if (s->is_external) {
        s->external.free(s->external.context, (void *)addr, size);
    } else if (s->memory == MP_MEMORY_PINNED) {
        device->ops->free_pinned(device, addr, size);
    } else {
        device->ops->free(device, addr, size);
    }
}

bool mp__source_info(const source *s, size_t *left, size_t *all) {
    const mp_external *external = &s->external;
    if (s->is_external) {
        return external->info != NULL && external->info(external->context, left, all);
    }
    return s->memory == MP_MEMORY_DEVICE &&
           s->device->ops->memory_info(s->device, left, all) == MP_OK;
}

/* ---- limits ---- */

size_t mp__region_room(const arena *a) {
    const size_t total = arena_total(a);
    return total < a->options.max_mem ? a->options.max_mem - total : 0;
}

mp_status mp__region_take(arena *a, size_t size) {
    if (size > mp__region_room(a)) {
        return MP_FAIL(OUT_OF_MEMORY, "%zu bytes more would exceed arena.max_mem (%zu bytes)", size,
                       a->options.max_mem);
    }
    if (a->source.memory == MP_MEMORY_DEVICE && !mp__limit_take(size)) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "%zu bytes more would exceed the limit of the process (%zu "
                       "bytes, MILLPOND_LIMIT)",
                       size, mp_limit_get());
    }
    const size_t total = atomic_fetch_add_explicit(&a->total, size, memory_order_relaxed) + size;
    a->counts.total_max = MP_MAX(total, a->counts.total_max);
    return MP_OK;
}

void mp__region_give(arena *a, size_t size) {
    (void)atomic_fetch_sub_explicit(&a->total, size, memory_order_relaxed);
    if (a->source.memory == MP_MEMORY_DEVICE) {
        mp__limit_give(size);
    }
}
