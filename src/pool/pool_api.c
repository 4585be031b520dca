/* pool_api.c - the public functions: arguments are checked here, and the arena or the driver's pool
 * does the work.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/mempool/mempool_mode.h"
#include "pool/pool_handle.h"
#include "pool/pool_registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mp_pool {
    arena *arena;
    uint8_t client;
};

const char *mp_version(void) {
    return MILLPOND_VERSION;
}

/* ---- forks ----
 * A child shares neither the driver's state nor the threads that hold our locks. */

static atomic_bool forked;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void after_fork(void) {
    atomic_store_explicit(&forked, true, memory_order_relaxed);
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, after_fork);
}

static mp_status refuse_forked(void) {
    return MP_FAIL(UNSUPPORTED, "this process was forked from one that used a pool, which a GPU's "
                                "driver does not survive; start it anew instead (in Python: "
                                "multiprocessing.set_start_method(\"spawn\"))");
}

static inline bool is_forked(void) {
    return __builtin_expect(atomic_load_explicit(&forked, memory_order_relaxed), false);
}

#define CHECK_CALL(condition, what)                                                         \
    do {                                                                                    \
        if (is_forked()) {                                                                  \
            return refuse_forked();                                                         \
        }                                                                                   \
        if (__builtin_expect(!(condition), false)) {                                        \
            return MP_FAIL(INVALID_ARGUMENT, "%s: an argument is NULL or " what, __func__); \
        }                                                                                   \
    } while (0)

/* ---- opening ---- */

static mp_status add_client(arena *a, const char *name, uint8_t *out) {
    mp_status status = MP_OK;
    (void)pthread_mutex_lock(&a->lock);
    size_t i = 0;
    while (i < a->client_count && strcmp(a->clients[i], name) != 0) {
        i++;
    }
    if (i == MP_CLIENTS_MAX) {
        status = MP_FAIL(UNSUPPORTED, "a pool tells %d clients apart; '%s' is one too many",
                         MP_CLIENTS_MAX, name);
    } else if (i == a->client_count) {
        (void)snprintf(a->clients[i], sizeof a->clients[i], "%s", name);
        a->client_count++;
    }
    (void)pthread_mutex_unlock(&a->lock);
    *out = (uint8_t)i;
    return status;
}

static mp_status open_source(const source *from, const char *client, const char *const *base,
                             const char *const *options, mp_pool **out) {
    arena_options read;
    MP_TRY(mp__arena_options_read(base, options, &read));
    (void)pthread_once(&fork_once, watch_forks);
    mp_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for a handle");
    }
    mp_status status = mp__registry_get(from, &read, &pool->arena);
    if (status == MP_OK) {
        status = add_client(pool->arena, client, &pool->client);
        if (status != MP_OK) {
            mp__registry_release(pool->arena);
        }
    }
    if (status != MP_OK) {
        free(pool);
        return status;
    }
    *out = pool;
    return MP_OK;
}

static mp_status check_client(const char *client) {
    const size_t size = client != NULL ? strnlen(client, MP_CLIENT_NAME_MAX) : 0;
    return size > 0 && size < MP_CLIENT_NAME_MAX
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "a client's name has 1 to %d characters",
                         MP_CLIENT_NAME_MAX - 1);
}

mp_status mp__pool_open_on(mp_device *device, mp_memory memory, const char *client,
                           const char *const *options, mp_pool **out) {
    return mp__pool_open_over(device, memory, client, NULL, options, out);
}

mp_status mp__pool_options_check(const char *const *base, const char *const *options) {
    arena_options read;
    return mp__arena_options_read(base, options, &read);
}

mp_status mp__pool_open_over(mp_device *device, mp_memory memory, const char *client,
                             const char *const *base, const char *const *options, mp_pool **out) {
    CHECK_CALL(device != NULL && out != NULL, "wrong");
    if (memory != MP_MEMORY_DEVICE && memory != MP_MEMORY_PINNED) {
        return MP_FAIL(INVALID_ARGUMENT, "%d is no kind of memory", (int)memory);
    }
    MP_TRY(check_client(client));
    return open_source(&(source){.device = device, .memory = memory}, client, base, options, out);
}

mp_status mp__pool_open_external_on(mp_device *device, const char *client,
                                    const mp_external *external, const char *const *options,
                                    mp_pool **out) {
    CHECK_CALL(device != NULL && out != NULL && external != NULL && external->alloc != NULL &&
                   external->free != NULL,
               "lacks a function");
    MP_TRY(check_client(client));
    return open_source(&(source){.device = device,
                                 .memory = MP_MEMORY_DEVICE,
                                 .is_external = true,
                                 .external = *external},
                       client, NULL, options, out);
}

mp_status mp__pool_again(mp_pool *pool, mp_pool **out) {
    CHECK_CALL(pool != NULL && out != NULL, "wrong");
    mp_pool *again = malloc(sizeof *again);
    if (again == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for a handle");
    }
    *again = *pool;
    mp__registry_keep(pool->arena);
    *out = again;
    return MP_OK;
}

mp_device *mp__pool_device(const mp_pool *pool) {
    return pool->arena->device;
}

static mp_status find_device(const char *name, mp_device **out) {
    char why[512];
    mp_device_kind kind = MP_DEVICE_HOST;
    int ordinal = 0;
    MP_TRY(mp__choose_device(name, &kind, &ordinal, why, sizeof why));
    const int count = mp_device_count(kind, NULL);
    if (ordinal >= count) {
        return MP_FAIL(NOT_FOUND, "there is no device '%s': the last one is number %d", name,
                       count - 1);
    }
    return mp_device_get(kind, ordinal, out);
}

mp_status mp_pool_open(const char *device, mp_memory memory, const char *client,
                       const char *const *options, mp_pool **out) {
    mp_device *found = NULL;
    CHECK_CALL(out != NULL, "wrong");
    MP_TRY(find_device(device, &found));
    return mp__pool_open_on(found, memory, client, options, out);
}

mp_status mp_pool_open_external(const char *device, const char *client, const mp_external *external,
                                const char *const *options, mp_pool **out) {
    mp_device *found = NULL;
    CHECK_CALL(external != NULL && out != NULL, "wrong");
    MP_TRY(find_device(device, &found));
    return mp__pool_open_external_on(found, client, external, options, out);
}

void mp_pool_close(mp_pool *pool) {
    if (pool != NULL && !is_forked()) {
        mp__registry_release(pool->arena);
        free(pool);
    }
}

mp_status mp_pool_get_device(mp_pool *pool, mp_pool_device *out, size_t size) {
    CHECK_CALL(pool != NULL && out != NULL && size > 0, "0");
    const source *from = &pool->arena->source;
    const mp_device *device = from->device;
    mp_pool_device fresh = {.ordinal = device->ordinal,
                            .is_emulated = device->info.kind == MP_DEVICE_HOST,
                            .memory = from->memory};
    size_t left = 0;
    size_t all = 0;
    if (mp__source_info(from, &left, &all)) {
        fresh.memory_free = left;
        fresh.memory_total = all;
    }
    (void)snprintf(fresh.device, sizeof fresh.device, "%s:%d", fresh.is_emulated ? "host" : "cuda",
                   device->ordinal);
    (void)snprintf(fresh.name, sizeof fresh.name, "%s", device->info.name);
    memset(out, 0, size);
    memcpy(out, &fresh, size < sizeof fresh ? size : sizeof fresh);
    return MP_OK;
}

/* ---- blocks ---- */

mp_status mp_pool_alloc(mp_pool *pool, size_t size, void *stream, mp_addr *out) {
    CHECK_CALL(pool != NULL && out != NULL, "wrong");
    arena *a = pool->arena;
    if (a->mempool != NULL) {
        return mp__mempool_mode_alloc(a, size, stream, pool->client, out);
    }
    if (a->direct) {
        return mp__arena_reserve(a, size, pool->client, out);
    }
    return mp__arena_alloc(a, size, stream, pool->client, out);
}

mp_status mp__pool_try_alloc(mp_pool *pool, size_t size, void *stream, mp_addr *out) {
    arena *a = pool->arena;
    if (is_forked() || a->mempool != NULL || a->direct) {
        return MP_BUSY;
    }
    return mp__arena_try_alloc(a, size, stream, pool->client, out);
}

mp_status mp__pool_try_free(mp_pool *pool, mp_addr addr) {
    arena *a = pool->arena;
    if (is_forked() || a->mempool != NULL) {
        return MP_BUSY;
    }
    return mp__arena_try_free(a, addr, MP_SAME_STREAM);
}

mp_status mp__pool_try_free_on(mp_pool *pool, mp_addr addr, void *stream) {
    arena *a = pool->arena;
    if (is_forked() || a->mempool != NULL) {
        return MP_BUSY;
    }
    return mp__arena_try_free(a, addr, stream);
}

static mp_status free_in_order(mp_pool *pool, mp_addr addr, void *stream) {
    arena *a = pool->arena;
    if (addr == 0) {
        return MP_OK;
    }
    return a->mempool != NULL ? mp__mempool_mode_free(a, addr, stream)
                              : mp__arena_free(a, addr, stream);
}

mp_status mp_pool_free(mp_pool *pool, mp_addr addr) {
    CHECK_CALL(pool != NULL, "wrong");
    return free_in_order(pool, addr, MP_SAME_STREAM);
}

mp_status mp_pool_free_on(mp_pool *pool, mp_addr addr, void *stream) {
    CHECK_CALL(pool != NULL, "wrong");
    return free_in_order(pool, addr, stream);
}

mp_status mp_pool_record_use(mp_pool *pool, mp_addr addr, void *stream) {
    CHECK_CALL(pool != NULL, "wrong");
    arena *a = pool->arena;
    return a->mempool != NULL ? mp__mempool_record_use(a->mempool, addr, stream)
                              : mp__arena_record_use(a, addr, stream);
}

mp_status mp__pool_record_end(mp_pool *pool, mp_addr addr, void *stream) {
    arena *a = pool->arena;
    if (is_forked()) {
        return refuse_forked();
    }
    return a->mempool != NULL ? mp__mempool_record_end(a->mempool, addr, stream)
                              : mp__arena_record_end(a, addr, stream);
}

mp_status mp_pool_reserve(mp_pool *pool, size_t size, mp_addr *out) {
    CHECK_CALL(pool != NULL && out != NULL, "wrong");
    arena *a = pool->arena;
    if (a->mempool != NULL) {
        return mp__mempool_mode_reserve(a, size, pool->client, out);
    }
    return mp__arena_reserve(a, size, pool->client, out);
}

mp_status mp_pool_find(mp_pool *pool, mp_addr addr, mp_block_info *out) {
    CHECK_CALL(pool != NULL && out != NULL, "wrong");
    arena *a = pool->arena;
    return a->mempool != NULL ? mp__mempool_mode_find(a, addr, out) : mp__arena_find(a, addr, out);
}

/* ---- order; the driver's pool keeps its own ---- */

mp_status mp_pool_stream_settled(mp_pool *pool, void *stream) {
    CHECK_CALL(pool != NULL, "wrong");
    return pool->arena->mempool != NULL ? MP_OK : mp__arena_stream_settled(pool->arena, stream);
}

mp_status mp_pool_stream_gone(mp_pool *pool, void *stream) {
    CHECK_CALL(pool != NULL, "wrong");
    arena *a = pool->arena;
    return a->mempool != NULL ? mp__mempool_stream_gone(a->mempool, stream)
                              : mp__arena_stream_gone(a, stream);
}

mp_status mp_pool_stream_mark(mp_pool *pool, void *producer, uint64_t *mark) {
    CHECK_CALL(pool != NULL && mark != NULL, "wrong");
    if (pool->arena->mempool != NULL) {
        *mark = 0;
        return MP_OK;
    }
    return mp__arena_stream_mark(pool->arena, producer, mark);
}

mp_status mp_pool_stream_ordered(mp_pool *pool, void *consumer, void *producer, uint64_t mark) {
    CHECK_CALL(pool != NULL, "wrong");
    return pool->arena->mempool != NULL
               ? MP_OK
               : mp__arena_stream_ordered(pool->arena, consumer, producer, mark);
}

/* ---- captures ---- */

mp_status mp_pool_capture_begin(mp_pool *pool, void *stream, mp_capture **capture) {
    CHECK_CALL(pool != NULL && capture != NULL, "wrong");
    if (pool->arena->mempool != NULL) {
        return MP_FAIL(UNSUPPORTED,
                       "the driver's own pool cannot keep memory for a graph; open the "
                       "pool without arena.use_cuda_mempool to capture");
    }
    return mp__arena_capture_begin(pool->arena, stream, capture);
}

mp_status mp_pool_capture_end(mp_pool *pool, void *stream) {
    CHECK_CALL(pool != NULL, "wrong");
    return mp__arena_capture_end(pool->arena, stream);
}

void mp_pool_capture_release(mp_pool *pool, mp_capture *capture) {
    if (pool != NULL && capture != NULL && !is_forked() &&
        mp__arena_capture_release(pool->arena, capture) != MP_OK) {
        MP_LOG(ERROR, "%s", mp_error_message());
    }
}

/* ---- giving back ---- */

mp_status mp_pool_shrink(mp_pool *pool, size_t *released) {
    CHECK_CALL(pool != NULL, "wrong");
    arena *a = pool->arena;
    return a->mempool != NULL ? mp__mempool_shrink(a->mempool, released)
                              : mp__arena_shrink(a, released);
}

mp_status mp_pool_add_hook(mp_pool *pool, mp_pressure_fn *fn, void *context) {
    CHECK_CALL(pool != NULL && fn != NULL, "wrong");
    return mp__pressure_add(pool->arena, fn, context);
}

mp_status mp_pool_remove_hook(mp_pool *pool, mp_pressure_fn *fn, void *context) {
    CHECK_CALL(pool != NULL && fn != NULL, "wrong");
    return mp__pressure_remove(pool->arena, fn, context);
}

/* ---- looking at it ---- */

mp_status mp_pool_get_stats(mp_pool *pool, mp_pool_stats *out, size_t size) {
    CHECK_CALL(pool != NULL && out != NULL && size > 0, "0");
    arena *a = pool->arena;
    mp_pool_stats stats;
    if (a->mempool != NULL) {
        MP_TRY(mp__mempool_stats(a->mempool, &stats));
    } else {
        mp__usage_stats(a, &stats);
    }
    memset(out, 0, size);
    memcpy(out, &stats, size < sizeof stats ? size : sizeof stats);
    return MP_OK;
}

void mp_pool_reset_peaks(mp_pool *pool) {
    if (pool == NULL || is_forked()) {
        return;
    }
    if (pool->arena->mempool != NULL) {
        (void)mp__mempool_reset_peaks(pool->arena->mempool);
    } else {
        mp__usage_reset_peaks(pool->arena);
    }
}

mp_status mp_pool_get_clients(mp_pool *pool, mp_share *out, size_t capacity, size_t *count) {
    CHECK_CALL(pool != NULL && count != NULL && (out != NULL || capacity == 0), "wrong");
    if (pool->arena->mempool != NULL) {
        mp__mempool_mode_clients(pool->arena, out, capacity, count);
    } else {
        mp__usage_clients(pool->arena, out, capacity, count);
    }
    return MP_OK;
}

mp_status mp_pool_get_streams(mp_pool *pool, mp_share *out, size_t capacity, size_t *count) {
    CHECK_CALL(pool != NULL && count != NULL && (out != NULL || capacity == 0), "wrong");
    if (pool->arena->mempool == NULL) {
        return mp__usage_streams(pool->arena, out, capacity, count);
    }
    *count = mp__mempool_stream_shares(pool->arena->mempool, out, capacity);
    return MP_OK;
}

mp_status mp_pool_dump(mp_pool *pool, mp_write_fn *write, void *context) {
    CHECK_CALL(pool != NULL && write != NULL, "wrong");
    if (pool->arena->mempool != NULL) {
        return mp__mempool_mode_dump(pool->arena, write, context);
    }
    mp__arena_dump(pool->arena, write, context);
    return MP_OK;
}

/* ---- trace ---- */

mp_status mp_pool_trace(mp_pool *pool, size_t capacity) {
    CHECK_CALL(pool != NULL, "wrong");
    return mp__trace_start(pool->arena->trace, capacity);
}

mp_status mp__pool_layout(mp_pool *pool, mp_layout *out) {
    arena *a = pool->arena;
    return a->mempool != NULL ? mp__mempool_mode_layout(a, out) : mp__arena_layout(a, out);
}

mp_status mp_pool_trace_write(mp_pool *pool, mp_trace_format format, const char *path) {
    CHECK_CALL(pool != NULL && path != NULL, "wrong");
    mp_layout layout = {.regions = NULL};
    mp_trace_event *events = NULL;
    size_t count = 0;
    uint64_t dropped = 0;
    MP_TRY(mp__pool_layout(pool, &layout));
    mp_status status = mp__trace_copy(pool->arena->trace, &events, &count, &dropped);
    if (status == MP_OK) {
        status = mp__trace_write(format, path, events, count, dropped, &layout);
    }
    free(events);
    mp__layout_free(&layout);
    return status;
}

/* ---- other processes ---- */

static mp_status external_ipc(const mp_external *external, mp_addr base, mp_ipc_handle *out) {
    size_t size = sizeof out->bytes;
    if (external->ipc == NULL) {
        return MP_FAIL(UNSUPPORTED, "the external memory manager cannot share its memory");
    }
    return external->ipc(external->context, (void *)base, out->bytes, &size)
               ? MP_OK
               : MP_FAIL(DEVICE, "the external memory manager gave no handle for its memory");
}

mp_status mp_pool_ipc_export(mp_pool *pool, mp_addr addr, mp_ipc_handle *out, size_t *offset) {
    CHECK_CALL(pool != NULL && out != NULL && offset != NULL, "wrong");
    arena *a = pool->arena;
    mp_block_info block;
    mp_ipc_handle handle = {{0}};
    if (mp_pool_find(pool, addr, &block) != MP_OK || block.addr != addr) {
        return MP_FAIL(INVALID_ARGUMENT, "no lent block begins at 0x%" PRIxPTR, addr);
    }
    if (a->mempool != NULL || a->source.memory == MP_MEMORY_PINNED || a->expandable) {
        return MP_FAIL(UNSUPPORTED, "this pool's memory cannot be opened by other processes; open "
                                    "the pool of device memory with arena.ipc=1");
    }
    MP_TRY(a->source.is_external
               ? external_ipc(&a->source.external, block.region, &handle)
               : a->device->ops->ipc_export(a->device, block.region, handle.bytes));
    *out = handle;
    *offset = block.addr - block.region;
    return MP_OK;
}

/* ---- other devices ---- */

mp_status mp_pool_enable_peer(mp_pool *pool, int32_t ordinal) {
    CHECK_CALL(pool != NULL, "wrong");
    mp_device *owner = pool->arena->device;
    mp_device *reader = NULL;
    MP_TRY(mp_device_get(owner->info.kind, ordinal, &reader));
    return reader->ops->peer_enable(reader, owner);
}
