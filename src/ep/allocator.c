/* allocator.c - ONNX Runtime's allocator interface over a cache of blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/bridge.h"
#include "ep/plugin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct allocator {
    OrtAllocator base; /* first */
    mp_unit *unit;
    mp_block_cache *cache; /* borrowed from the unit */
    bool pinned;
} allocator;

static allocator *from(const OrtAllocator *self) {
    return (allocator *)(uintptr_t)self;
}

/* NULL tells ORT that memory ran out; the log line says why. */
static void *lend(const allocator *a, size_t size, const mp_stream *stream) {
    mp_addr addr = 0;
    if (mp_block_cache_alloc(a->cache, size, stream, &addr) != MP_OK) {
        MP_LOG(ERROR, "%s", mp_error_message());
        return NULL;
    }
    return (void *)addr;
}

static void *alloc(OrtAllocator *self, size_t size) {
    return size == 0 ? NULL : lend(from(self), size, NULL);
}

static void *alloc_on_stream(OrtAllocator *self, size_t size, OrtSyncStream *stream) {
    return size == 0 ? NULL : lend(from(self), size, mp__stream_of(stream));
}

static void free_block(OrtAllocator *self, void *memory) {
    mp_block_cache_free(from(self)->cache, (mp_addr)memory);
}

static const OrtMemoryInfo *info(const OrtAllocator *self) {
    const allocator *a = from(self);
    return a->pinned ? a->unit->pinned : a->unit->memory;
}

static OrtStatus *get_stats(const OrtAllocator *self, OrtKeyValuePairs **out) {
    const mp_block_cache_stats stats = mp_block_cache_get_stats(from(self)->cache);
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {
        {"Limit", from(self)->unit->device->info.memory_bytes},
        {"InUse", stats.in_use},
        {"TotalAllocated", stats.total},
        {"MaxInUse", stats.in_use_max},
        {"NumAllocs", stats.allocs},
        {"NumReserves", 0},
        {"NumArenaExtensions", stats.device_allocs},
        {"NumArenaShrinkages", stats.shrinks},
        {"MaxAllocSize", stats.request_max},
    };
    ORT->CreateKeyValuePairs(out);
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        char number[32];
        (void)snprintf(number, sizeof number, "%" PRIu64, rows[i].value);
        ORT->AddKeyValuePair(*out, rows[i].key, number);
    }
    return NULL;
}

static OrtStatus *shrink(OrtAllocator *self) {
    return mp__to_ort(mp_block_cache_shrink(from(self)->cache));
}

OrtStatus *mp__allocator_create(mp_unit *unit, const OrtMemoryInfo *info_asked,
                                OrtAllocator **out) {
    allocator *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "no host memory for an allocator"));
    }
    mp__factory_keep(unit->factory);
    a->unit = unit;
    a->pinned = ORT->MemoryInfoGetDeviceMemType(info_asked) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
    a->cache = a->pinned ? unit->pinned_cache : unit->cache;
    a->base = (OrtAllocator){
        .version = mp_the_plugin.version,
        .Alloc = alloc,
        .Free = free_block,
        .Info = info,
        .Reserve = alloc,
        .GetStats = get_stats,
        .AllocOnStream = a->pinned ? NULL : alloc_on_stream,
        .Shrink = shrink,
    };
    *out = &a->base;
    return NULL;
}

void mp__allocator_release(OrtAllocator *self) {
    mp_factory *factory = from(self)->unit->factory;
    free(from(self));
    mp__factory_drop(factory);
}
