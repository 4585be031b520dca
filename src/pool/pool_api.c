/* pool_api.c - the public functions: arguments are checked here, and the arena or the driver's pool
 * does the work.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/handle.h"
#include "pool/mempool/mempool_mode.h"
#include "pool/pool_handle.h"
#include "pool/pool_registry.h"
#include "pool/trace/trace_stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
                                "driver does not survive; start a new one instead (in Python: "
                                "multiprocessing.set_start_method(\"spawn\"))");
}

static inline bool is_forked(void) {
    return __builtin_expect(atomic_load_explicit(&forked, memory_order_relaxed), false);
}

/* ---- arguments ---- */

static mp_status refuse_handle(const mp_pool *pool, const char *call) {
    if (is_forked()) {
        return refuse_forked();
    }
    return pool == NULL ? MP_FAIL(INVALID_ARGUMENT, "%s: the argument pool is NULL", call)
                        : MP_FAIL(INVALID_ARGUMENT, "%s: the pool handle was closed", call);
}

/* Declares `a`, the arena of an open handle. */
#define TAKE_ARENA(a, pool)                                        \
    arena *const a = mp__handle_arena(pool);                       \
    do {                                                           \
        if (__builtin_expect((a) == NULL, false) || is_forked()) { \
            return refuse_handle(pool, __func__);                  \
        }                                                          \
    } while (0)

/* `what` names the argument and says what is wrong with it. */
#define CHECK_ARGUMENT(condition, what)                                           \
    do {                                                                          \
        if (__builtin_expect(!(condition), false)) {                              \
            return MP_FAIL(INVALID_ARGUMENT, "%s: the argument " what, __func__); \
        }                                                                         \
    } while (0)

#define CHECK_PROCESS()             \
    do {                            \
        if (is_forked()) {          \
            return refuse_forked(); \
        }                           \
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
        status = MP_FAIL(UNSUPPORTED, "a pool distinguishes %d clients; '%s' is one too many",
                         MP_CLIENTS_MAX, name);
    } else if (i == a->client_count) {
        (void)snprintf(a->clients[i], sizeof a->clients[i], "%s", name);
        a->client_count++;
    }
    (void)pthread_mutex_unlock(&a->lock);
    *out = (uint8_t)i;
    return status;
}

static mp_status open_handle(arena *a, uint8_t client, mp_pool **out) {
    mp_pool *pool = mp__handle_open(a, client);
    if (pool == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a handle");
    }
    *out = pool;
    return MP_OK;
}

static mp_status open_source(const source *from, const char *client, const char *const *base,
                             const char *const *options, mp_pool **out) {
    arena_options read;
    MP_TRY(mp__arena_options_read(base, options, &read));
    (void)pthread_once(&fork_once, watch_forks);
    arena *a = NULL;
    uint8_t number = 0;
    MP_TRY(mp__registry_get(from, &read, &a));
    mp_status status = add_client(a, client, &number);
    if (status == MP_OK) {
        status = open_handle(a, number, out);
    }
    if (status != MP_OK) {
        mp__registry_release(a);
    }
    return status;
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

mp_status mp__pool_options_agree(const mp_pool *pool, const char *const *base,
                                 const char *const *options) {
    TAKE_ARENA(a, pool);
    arena_options wanted;
    arena_told told = {.count = 0};
    arena_difference found;
    MP_TRY(mp__arena_options_read(base, options, &wanted));
    if (!mp__arena_options_differ(&a->options, &wanted, &told, &found)) {
        return MP_OK;
    }
    return MP_FAIL(
        INVALID_ARGUMENT,
        "%s=%s comes too late: the pool of %s memory of device %d is in use with %s; set "
        "it where the pool is opened first, or in MILLPOND_POOL",
        found.key, found.wanted, a->source.memory == MP_MEMORY_PINNED ? "pinned" : "device",
        a->device->ordinal, found.kept);
}

mp_status mp__pool_open_over(mp_device *device, mp_memory memory, const char *client,
                             const char *const *base, const char *const *options, mp_pool **out) {
    CHECK_PROCESS();
    CHECK_ARGUMENT(device != NULL, "device is NULL");
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    if (memory != MP_MEMORY_DEVICE && memory != MP_MEMORY_PINNED) {
        return MP_FAIL(INVALID_ARGUMENT, "%d is not a kind of memory", (int)memory);
    }
    MP_TRY(check_client(client));
    return open_source(&(source){.device = device, .memory = memory}, client, base, options, out);
}

mp_status mp__pool_open_external_on(mp_device *device, const char *client,
                                    const mp_external *external, const char *const *options,
                                    mp_pool **out) {
    CHECK_PROCESS();
    CHECK_ARGUMENT(device != NULL, "device is NULL");
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(external != NULL, "external is NULL");
    CHECK_ARGUMENT(external->alloc != NULL, "external has no function alloc");
    CHECK_ARGUMENT(external->free != NULL, "external has no function free");
    MP_TRY(check_client(client));
    return open_source(&(source){.device = device,
                                 .memory = MP_MEMORY_DEVICE,
                                 .is_external = true,
                                 .external = *external},
                       client, NULL, options, out);
}

mp_status mp__pool_again(mp_pool *pool, mp_pool **out) {
    TAKE_ARENA(a, pool);
    mp__registry_keep(a);
    const mp_status status = open_handle(a, pool->client, out);
    if (status != MP_OK) {
        mp__registry_release(a);
    }
    return status;
}

mp_device *mp__pool_device(const mp_pool *pool) {
    return mp__handle_arena(pool)->device;
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
    CHECK_PROCESS();
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    MP_TRY(find_device(device, &found));
    return mp__pool_open_on(found, memory, client, options, out);
}

mp_status mp_pool_open_external(const char *device, const char *client, const mp_external *external,
                                const char *const *options, mp_pool **out) {
    mp_device *found = NULL;
    CHECK_PROCESS();
    CHECK_ARGUMENT(external != NULL, "external is NULL");
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    MP_TRY(find_device(device, &found));
    return mp__pool_open_external_on(found, client, external, options, out);
}

void mp_pool_close(mp_pool *pool) {
    if (pool == NULL || is_forked()) {
        return;
    }
    arena *a = mp__handle_close(pool);
    if (a != NULL) {
        mp__registry_release(a);
    } else {
        MP_LOG(ERROR, "mp_pool_close: the pool handle was closed already; nothing is done");
    }
}

mp_status mp_pool_get_device(mp_pool *pool, mp_pool_device *out, size_t size) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(size > 0, "size is 0; give sizeof(mp_pool_device)");
    const source *from = &a->source;
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
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    if (a->mempool != NULL) {
        return mp__mempool_mode_alloc(a, size, stream, pool->client, out);
    }
    if (a->direct) {
        return mp__arena_pass_on(a, size, stream, pool->client, out);
    }
    return mp__arena_alloc(a, size, stream, pool->client, out);
}

mp_status mp__pool_try_alloc(mp_pool *pool, size_t size, void *stream, mp_addr *out) {
    arena *a = mp__handle_arena(pool);
    if (is_forked() || a == NULL || a->mempool != NULL || a->direct) {
        return MP_BUSY;
    }
    return mp__arena_try_alloc(a, size, stream, pool->client, out);
}

mp_status mp__pool_try_free(mp_pool *pool, mp_addr addr) {
    arena *a = mp__handle_arena(pool);
    if (is_forked() || a == NULL || a->mempool != NULL) {
        return MP_BUSY;
    }
    return mp__arena_try_free(a, addr, MP_SAME_STREAM);
}

mp_status mp__pool_try_free_on(mp_pool *pool, mp_addr addr, void *stream) {
    arena *a = mp__handle_arena(pool);
    if (is_forked() || a == NULL || a->mempool != NULL) {
        return MP_BUSY;
    }
    return mp__arena_try_free(a, addr, stream);
}

static mp_status free_in_order(arena *a, mp_addr addr, void *stream) {
    if (addr == 0) {
        return MP_OK;
    }
    return a->mempool != NULL ? mp__mempool_mode_free(a, addr, stream)
                              : mp__arena_free(a, addr, stream);
}

mp_status mp_pool_free(mp_pool *pool, mp_addr addr) {
    TAKE_ARENA(a, pool);
    return free_in_order(a, addr, MP_SAME_STREAM);
}

mp_status mp_pool_free_on(mp_pool *pool, mp_addr addr, void *stream) {
    TAKE_ARENA(a, pool);
    return free_in_order(a, addr, stream);
}

mp_status mp_pool_record_use(mp_pool *pool, mp_addr addr, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mempool != NULL ? mp__mempool_record_use(a->mempool, addr, stream)
                              : mp__arena_record_use(a, addr, stream);
}

mp_status mp__pool_record_end(mp_pool *pool, mp_addr addr, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mempool != NULL ? mp__mempool_record_end(a->mempool, addr, stream)
                              : mp__arena_record_end(a, addr, stream);
}

mp_status mp_pool_reserve(mp_pool *pool, size_t size, mp_addr *out) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    if (a->mempool != NULL) {
        return mp__mempool_mode_reserve(a, size, pool->client, out);
    }
    return mp__arena_reserve(a, size, pool->client, out);
}

mp_status mp_pool_find(mp_pool *pool, mp_addr addr, mp_block_info *out) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    return a->mempool != NULL ? mp__mempool_mode_find(a, addr, out) : mp__arena_find(a, addr, out);
}

/* ---- order; the driver's pool keeps its own ---- */

mp_status mp_pool_stream_settled(mp_pool *pool, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mempool != NULL ? MP_OK : mp__arena_stream_settled(a, stream);
}

mp_status mp_pool_stream_gone(mp_pool *pool, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mempool != NULL ? mp__mempool_stream_gone(a->mempool, stream)
                              : mp__arena_stream_gone(a, stream);
}

mp_status mp_pool_stream_mark(mp_pool *pool, void *producer, uint64_t *mark) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(mark != NULL, "mark is NULL");
    if (a->mempool != NULL) {
        *mark = 0;
        return MP_OK;
    }
    return mp__arena_stream_mark(a, producer, mark);
}

mp_status mp_pool_stream_ordered(mp_pool *pool, void *consumer, void *producer, uint64_t mark) {
    TAKE_ARENA(a, pool);
    return a->mempool != NULL ? MP_OK : mp__arena_stream_ordered(a, consumer, producer, mark);
}

/* ---- captures ---- */

mp_status mp_pool_capture_begin(mp_pool *pool, void *stream, mp_capture **capture) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(capture != NULL, "capture is NULL");
    if (a->mempool != NULL) {
        return MP_FAIL(UNSUPPORTED,
                       "the driver's own pool cannot keep memory for a graph; open the "
                       "pool without arena.use_cuda_mempool to capture");
    }
    return mp__arena_capture_begin(a, stream, capture);
}

mp_status mp_pool_capture_end(mp_pool *pool, void *stream) {
    TAKE_ARENA(a, pool);
    return mp__arena_capture_end(a, stream);
}

void mp_pool_capture_release(mp_pool *pool, mp_capture *capture) {
    if (pool == NULL || capture == NULL || is_forked()) {
        return;
    }
    arena *a = mp__handle_arena(pool);
    const mp_status status =
        a != NULL ? mp__arena_capture_release(a, capture) : refuse_handle(pool, __func__);
    if (status != MP_OK) {
        MP_LOG(ERROR, "%s", mp_error_message());
    }
}

/* ---- giving back ---- */

mp_status mp_pool_shrink(mp_pool *pool, size_t *released) {
    TAKE_ARENA(a, pool);
    return a->mempool != NULL ? mp__mempool_shrink(a->mempool, released)
                              : mp__arena_shrink(a, released);
}

mp_status mp_pool_add_hook(mp_pool *pool, mp_pressure_fn *fn, void *context) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(fn != NULL, "fn is NULL");
    return mp__pressure_add(a, fn, context);
}

mp_status mp_pool_remove_hook(mp_pool *pool, mp_pressure_fn *fn, void *context) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(fn != NULL, "fn is NULL");
    return mp__pressure_remove(a, fn, context);
}

/* ---- looking at it ---- */

mp_status mp_pool_get_stats(mp_pool *pool, mp_pool_stats *out, size_t size) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(size > 0, "size is 0; give sizeof(mp_pool_stats)");
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
    arena *a = mp__handle_arena(pool);
    if (a == NULL || is_forked()) {
        return;
    }
    if (a->mempool != NULL) {
        (void)mp__mempool_reset_peaks(a->mempool);
    } else {
        mp__usage_reset_peaks(a);
    }
}

mp_status mp_pool_get_clients(mp_pool *pool, mp_share *out, size_t capacity, size_t *count) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(count != NULL, "count is NULL");
    CHECK_ARGUMENT(out != NULL || capacity == 0, "out is NULL with a capacity above 0");
    if (a->mempool != NULL) {
        mp__mempool_mode_clients(a, out, capacity, count);
    } else {
        mp__usage_clients(a, out, capacity, count);
    }
    return MP_OK;
}

mp_status mp_pool_get_streams(mp_pool *pool, mp_share *out, size_t capacity, size_t *count) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(count != NULL, "count is NULL");
    CHECK_ARGUMENT(out != NULL || capacity == 0, "out is NULL with a capacity above 0");
    if (a->mempool == NULL) {
        return mp__usage_streams(a, out, capacity, count);
    }
    *count = mp__mempool_stream_shares(a->mempool, out, capacity);
    return MP_OK;
}

mp_status mp_pool_dump(mp_pool *pool, mp_write_fn *write, void *context) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(write != NULL, "write is NULL");
    if (a->mempool != NULL) {
        return mp__mempool_mode_dump(a, write, context);
    }
    mp__arena_dump(a, write, context);
    return MP_OK;
}

/* ---- trace ---- */

mp_status mp_pool_trace(mp_pool *pool, size_t capacity) {
    TAKE_ARENA(a, pool);
    return mp__trace_start(a->trace, capacity);
}

mp_status mp__pool_part_set(mp_pool *pool, mp_addr addr, size_t size, mp_label label) {
    mp_block_info block;
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(label <= UINT16_MAX, "label is not one that mp_label_make returned");
    MP_TRY(mp_pool_find(pool, addr, &block));
    return mp__trace_part_set(a->trace, addr, size, (uint16_t)label);
}

void mp__pool_part_drop(mp_pool *pool, mp_addr addr) {
    const arena *a = mp__handle_arena(pool);
    if (a != NULL && !is_forked()) {
        mp__trace_part_drop(a->trace, addr);
    }
}

mp_status mp__pool_parts(mp_pool *pool, mp_layout *layout) {
    TAKE_ARENA(a, pool);
    return mp__trace_parts(a->trace, layout);
}

mp_status mp__pool_trace_stacks(mp_pool *pool, size_t depth) {
    TAKE_ARENA(a, pool);
    if (depth > MP_STACK_FRAMES_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "stacks of %zu frames; %d is the most", depth,
                       MP_STACK_FRAMES_MAX);
    }
    mp__trace_set_depth(a->trace, depth);
    return MP_OK;
}

mp_status mp__pool_layout(mp_pool *pool, mp_layout *out) {
    TAKE_ARENA(a, pool);
    return a->mempool != NULL ? mp__mempool_mode_layout(a, out) : mp__arena_layout(a, out);
}

mp_status mp_pool_trace_write(mp_pool *pool, mp_trace_format format, const char *path) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(path != NULL, "path is NULL");
    mp_layout layout = {.regions = NULL};
    mp_trace_event *events = NULL;
    size_t count = 0;
    uint64_t dropped = 0;
    MP_TRY(mp__pool_layout(pool, &layout));
    mp_status status = mp__trace_copy(a->trace, &events, &count, &dropped);
    if (status == MP_OK) {
        status = mp__pool_parts(pool, &layout);
    }
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
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(offset != NULL, "offset is NULL");
    mp_block_info block;
    mp_ipc_handle handle = {{0}};
    if (mp_pool_find(pool, addr, &block) != MP_OK || block.addr != addr) {
        return MP_FAIL(INVALID_ARGUMENT, "no allocated block begins at 0x%" PRIxPTR, addr);
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
    TAKE_ARENA(a, pool);
    mp_device *owner = a->device;
    mp_device *reader = NULL;
    MP_TRY(mp_device_get(owner->info.kind, ordinal, &reader));
    return reader->ops->peer_enable(reader, owner);
}
