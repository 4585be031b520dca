/* allocator.c - ONNX Runtime's allocator interface over a pool, which is opened when it is needed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/shortage.h"
#include "ep/abi/bridge.h"
#include "ep/capture/session_graph.h"
#include "ep/session/plugin.h"
#include "ep/session/pool_later.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct allocator {
    OrtAllocator base; /* first */
    mp_unit *unit;
    mp_pool_later pool;
    const OrtMemoryInfo *info; /* borrowed from the unit */
    bool pinned;
    mp_label label; /* of what is asked for outside of any node */
} allocator;

static allocator *from(const OrtAllocator *self) {
    return (allocator *)(uintptr_t)self;
}

/* Whoever asks may have said what for, a kernel or the user; else it is what this allocator is for.
 * Returns the label to be set again. */
static mp_label label_begin(const OrtAllocator *self) {
    const mp_label before = mp_label_set(from(self)->label);
    if (before != 0) {
        (void)mp_label_set(before);
    }
    return before;
}

/* NULL tells ORT that memory ran out; the log line says why, and so does what is kept. */
static void *give(mp_status status, const mp_addr *addr) {
    if (status != MP_OK) {
        mp_shortage_keep(status);
        MP_LOG(ERROR, "%s", mp_error_message());
        return NULL;
    }
    return (void *)*addr;
}

static mp_status pool_of(const OrtAllocator *self, mp_pool **out) {
    return mp__pool_later_get(&from(self)->pool, out);
}

/* A recorded run's memory on the device is its graph's; pinned memory never is. */
static mp_status take(const OrtAllocator *self, mp_pool *pool, size_t size, void *native,
                      mp_addr *addr) {
    return from(self)->pinned ? mp_pool_alloc(pool, size, native, addr)
                              : mp__lend(pool, size, native, addr);
}

static void *lend(OrtAllocator *self, size_t size, void *native) {
    mp_pool *pool = NULL;
    mp_addr addr = 0;
    if (size == 0) {
        return NULL;
    }
    mp_status status = pool_of(self, &pool);
    if (status == MP_OK) {
        const mp_label before = label_begin(self);
        status = take(self, pool, size, native, &addr);
        (void)mp_label_set(before);
    }
    return give(status, &addr);
}

static void *alloc(OrtAllocator *self, size_t size) {
    return lend(self, size, MP_NO_STREAM);
}

static void *alloc_on_stream(OrtAllocator *self, size_t size, OrtSyncStream *stream) {
    return lend(self, size, mp__native_of(stream));
}

/* Which of them lies where is told by the kernels, see node_label.c. */
static mp_label initializers(void) {
    return mp_label_make(MP_LABEL_WEIGHTS, NULL, "initializers");
}

static void *reserve(OrtAllocator *self, size_t size) {
    mp_pool *pool = NULL;
    mp_addr addr = 0;
    if (size == 0) {
        return NULL;
    }
    mp_status status = pool_of(self, &pool);
    if (status == MP_OK) {
        const mp_label before = mp_label_set(initializers());
        status = mp_pool_reserve(pool, size, &addr);
        (void)mp_label_set(before);
    }
    return give(status, &addr);
}

/* ONNX Runtime asks for some memory of a run without a stream, or with one that is none of ours
 * (for the states of a Scan, for example), and frees it while the run's work is under way. Then its
 * order is that of the stream which the run has used on this thread. MP_NO_STREAM: as it was
 * allocated. */
static void *order_of(const allocator *a, mp_pool *pool, mp_addr addr) {
    mp_block_info info;
    const mp_run_stream *last = mp__run_stream_last();
    return last == NULL || a->pinned || last->unit->device != a->unit->device ||
                   !mp__run_stream_is_used(last) || mp__recorded_run() != NULL ||
                   mp_pool_find(pool, addr, &info) != MP_OK || info.stream != MP_NO_STREAM
               ? MP_NO_STREAM
               : last->native;
}

static void free_block(OrtAllocator *self, void *memory) {
    const mp_addr addr = (mp_addr)memory;
    mp_pool *pool = NULL;
    if (addr == 0) {
        return;
    }
    mp_status status = pool_of(self, &pool);
    if (status == MP_OK) {
        status = mp__give_back_on(pool, addr, order_of(from(self), pool, addr));
    }
    if (status != MP_OK) {
        MP_LOG(ERROR, "%s", mp_error_message());
    }
}

static const OrtMemoryInfo *info(const OrtAllocator *self) {
    return from(self)->info;
}

/* As ONNX Runtime's own arena has them: -1 for no limit, and of the extensions those that have not
 * been given back. docs/memory.md says where the meaning differs. */
static OrtStatus *get_stats(const OrtAllocator *self, OrtKeyValuePairs **out) {
    mp_pool *pool = NULL;
    mp_pool_stats stats;
    MP_TRY_ORT(pool_of(self, &pool));
    MP_TRY_ORT(mp_pool_get_stats(pool, &stats, sizeof stats));
    const uint64_t there =
        stats.extensions > stats.shrinkages ? stats.extensions - stats.shrinkages : 0;
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {
        {"Limit", stats.limit}, /* UINT64_MAX for none, which is -1 below */
        {"InUse", stats.in_use},
        {"TotalAllocated", stats.total},
        {"MaxInUse", stats.in_use_max},
        {"NumAllocs", stats.allocs},
        {"NumReserves", stats.reserves},
        {"NumArenaExtensions", there},
        {"NumArenaShrinkages", stats.shrinkages},
        {"MaxAllocSize", stats.alloc_size_max},
        {"RequestedInUse", stats.requested},
    };
    ORT->CreateKeyValuePairs(out);
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        char number[32];
        (void)snprintf(number, sizeof number, "%" PRId64, (int64_t)rows[i].value);
        ORT->AddKeyValuePair(*out, rows[i].key, number);
    }
    return NULL;
}

static OrtStatus *shrink(OrtAllocator *self) {
    mp_pool *pool = NULL;
    MP_TRY_ORT(pool_of(self, &pool));
    return mp__to_ort(mp_pool_shrink(pool, NULL));
}

/* ONNX Runtime asks for three of them: memory of the device, pinned memory, and memory of the
 * device for initializers, which stay for as long as their session does and so go past the arena.
 * The last has no Shrink, since it has nothing to give back; with it ONNX Runtime would shrink the
 * pool twice. */
static void fill(allocator *a, const OrtMemoryInfo *asked) {
    OrtAllocatorType type = OrtDeviceAllocator;
    OrtStatus *unknown = ORT->MemoryInfoGetType(asked, &type);
    if (unknown != NULL) {
        ORT->ReleaseStatus(unknown);
    }
    a->pinned = ORT->MemoryInfoGetDeviceMemType(asked) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
    const bool constant = type == OrtReadOnlyAllocator && !a->pinned;
    a->info = a->pinned ? a->unit->pinned : constant ? a->unit->constant : a->unit->memory;
    a->label = a->pinned ? mp_label_make(MP_LABEL_OTHER, NULL, "values in host memory")
                         : mp_label_make(MP_LABEL_ACTIVATIONS, NULL, "inputs and planned values");
    a->base = (OrtAllocator){
        .version = mp_the_plugin.version,
        .Alloc = constant ? reserve : alloc,
        .Free = free_block,
        .Info = info,
        .Reserve = reserve,
        .GetStats = get_stats,
        .AllocOnStream = a->pinned || constant ? NULL : alloc_on_stream,
        .Shrink = constant ? NULL : shrink,
    };
}

OrtStatus *mp__allocator_create(mp_unit *unit, const OrtMemoryInfo *asked, mp_pool *pool,
                                OrtAllocator **out) {
    allocator *a = calloc(1, sizeof *a);
    if (a == NULL) {
        mp_pool_close(pool);
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an allocator"));
    }
    mp__factory_keep(unit->factory);
    a->unit = unit;
    fill(a, asked);
    mp__pool_later_init(&a->pool, unit, a->pinned ? MP_MEMORY_PINNED : MP_MEMORY_DEVICE, pool);
    *out = &a->base;
    return NULL;
}

void mp__allocator_release(OrtAllocator *self) {
    if (self == NULL) {
        return;
    }
    mp_factory *factory = from(self)->unit->factory;
    mp__pool_later_close(&from(self)->pool);
    free(from(self));
    mp__factory_drop(factory);
}
