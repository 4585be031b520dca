/* pool_external_test.c - a pool over memory that another library owns.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <pthread.h>
#include <stdlib.h>

/* A library that counts. */
typedef struct library {
    pthread_mutex_t lock;
    size_t had, had_max, limit; /* bytes */
    size_t cached;              /* bytes that empty_cache makes available again */
    int allocs, frees, empties, exports;
    bool cannot_tell; /* what it has left */
} library;

static void *library_alloc(void *context, size_t size) {
    library *l = context;
    void *memory = NULL;
    (void)pthread_mutex_lock(&l->lock);
    l->allocs++;
    if (l->had + l->cached <= l->limit && size <= l->limit - l->had - l->cached &&
        posix_memalign(&memory, MP_ALIGNMENT, size) == 0) {
        l->had += size;
        l->had_max = l->had > l->had_max ? l->had : l->had_max;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return memory;
}

static void library_free(void *context, void *memory, size_t size) {
    library *l = context;
    (void)pthread_mutex_lock(&l->lock);
    l->frees++;
    CHECK(size <= l->had);
    l->had -= size;
    (void)pthread_mutex_unlock(&l->lock);
    free(memory);
}

static void library_empty_cache(void *context) {
    library *l = context;
    (void)pthread_mutex_lock(&l->lock);
    l->empties++;
    l->cached = 0;
    (void)pthread_mutex_unlock(&l->lock);
}

static bool library_info(void *context, size_t *free_bytes, size_t *total_bytes) {
    library *l = context;
    (void)pthread_mutex_lock(&l->lock);
    *free_bytes = l->limit - l->had;
    *total_bytes = l->limit;
    (void)pthread_mutex_unlock(&l->lock);
    return !l->cannot_tell;
}

static bool library_ipc(void *context, void *memory, void *handle, size_t *size) {
    library *l = context;
    l->exports++;
    CHECK(*size >= sizeof memory);
    memcpy(handle, &memory, sizeof memory);
    *size = sizeof memory;
    return true;
}

static library new_library(size_t limit) {
    return (library){.lock = PTHREAD_MUTEX_INITIALIZER, .limit = limit};
}

static mp_external table_of(library *l) {
    return (mp_external){.context = l,
                         .alloc = library_alloc,
                         .free = library_free,
                         .empty_cache = library_empty_cache,
                         .ipc = library_ipc};
}

static mp_pool *open_over(const mp_external *table, const char *const *options) {
    mp_pool *pool = NULL;
    CHECK_OK(mp_pool_open_external("host", "kit", table, options, &pool));
    return pool;
}

TEST(pool_external_takes_regions) {
    library l = new_library(KIT_MIB(64));
    const mp_external table = table_of(&l);
    mp_pool *pool = open_over(&table, NULL);
    mp_addr a = 0, b = 0;
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &a));
    CHECK_OK(mp_pool_alloc(pool, 2000, MP_NO_STREAM, &b));
    CHECK_EQ_INT(l.allocs, 1);
    CHECK_EQ_INT(l.had, KIT_MIB(1));
    memset((void *)a, 1, 1000);
    memset((void *)b, 2, 2000);
    CHECK_EQ_INT(((unsigned char *)a)[999], 1);
    CHECK_OK(mp_pool_free(pool, a));
    CHECK_OK(mp_pool_free(pool, b));
    CHECK_EQ_INT(l.frees, 0);
    CHECK_OK(mp_pool_shrink(pool, NULL));
    CHECK_EQ_INT(l.frees, 1);
    CHECK_EQ_INT(l.had, 0);
    mp_pool_close(pool);
}

TEST(pool_external_passes_every_block_on_where_asked) {
    library l = new_library(KIT_MIB(64));
    const mp_external table = table_of(&l);
    mp_pool *pool = open_over(&table, KIT_OPTIONS("arena.external=direct"));
    mp_addr blocks[3] = {77};
    CHECK_EQ_INT(mp__pool_try_alloc(pool, 1000, MP_NO_STREAM, &blocks[0]), MP_BUSY);
    CHECK_EQ_INT(blocks[0], 77);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &blocks[i]));
    }
    CHECK_EQ_INT(l.allocs, 3);
    CHECK(l.had >= 3000 && l.had <= 3 * 1024);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(mp_pool_free(pool, blocks[i]));
    }
    CHECK_EQ_INT(l.frees, 3);
    CHECK_EQ_INT(l.had, 0);
    CHECK_FAILS(mp_pool_free(pool, blocks[0]), INVALID_ARGUMENT, "0x");
    mp_pool_close(pool);
}

TEST(pool_external_empties_the_cache_before_it_fails) {
    library l = new_library(KIT_MIB(4));
    l.cached = KIT_MIB(4);
    const mp_external table = table_of(&l);
    mp_pool *pool = open_over(&table, NULL);
    mp_addr block = 0, refused = 0;
    CHECK_OK(mp_pool_alloc(pool, KIT_MIB(3), MP_NO_STREAM, &block));
    CHECK(l.empties >= 1);
    CHECK_FAILS(mp_pool_alloc(pool, KIT_MIB(5), MP_NO_STREAM, &refused), OUT_OF_MEMORY, "kit");
    CHECK_OK(mp_pool_free(pool, block));
    mp_pool_close(pool);
    CHECK_EQ_INT(l.had, 0);
}

TEST(pool_external_is_shared_by_equal_tables) {
    library l = new_library(KIT_MIB(64)), other = new_library(KIT_MIB(64));
    const mp_external table = table_of(&l), same = table_of(&l), different = table_of(&other);
    mp_pool *first = open_over(&table, NULL), *second = open_over(&same, NULL),
            *third = open_over(&different, NULL), *plain = NULL;
    CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "kit", NULL, &plain));
    mp_addr block = 0;
    mp_block_info info;
    CHECK_OK(mp_pool_alloc(first, 1000, MP_NO_STREAM, &block));
    CHECK_OK(mp_pool_find(second, block, &info));
    CHECK(mp_pool_find(third, block, &info) == MP_NOT_FOUND);
    CHECK(mp_pool_find(plain, block, &info) == MP_NOT_FOUND);
    CHECK_OK(mp_pool_free(second, block));
    mp_pool_close(first);
    mp_pool_close(second);
    CHECK_EQ_INT(l.had, 0);
    mp_pool_close(third);
    mp_pool_close(plain);
}

/* ---- what is left ---- */

static void check_room(mp_pool *pool, size_t left, size_t all) {
    mp_pool_device about = {.memory_free = 7, .memory_total = 7};
    CHECK_OK(mp_pool_get_device(pool, &about, sizeof about));
    CHECK_EQ_INT(about.memory, MP_MEMORY_DEVICE);
    CHECK(strcmp(about.device, "host:0") == 0);
    CHECK_EQ_INT(about.memory_free, left);
    CHECK_EQ_INT(about.memory_total, all);
}

/* A request fails that is larger than the library; the sentence ends with `end`. */
static void check_refusal(mp_pool *pool, const char *end) {
    mp_addr refused = 0;
    CHECK_FAILS(mp_pool_alloc(pool, KIT_MIB(65), MP_NO_STREAM, &refused), OUT_OF_MEMORY, end);
    const char *said = mp_error_message();
    CHECK(strcmp(said + strlen(said) - strlen(end), end) == 0);
}

TEST(pool_external_says_what_the_library_has_left) {
    library l = new_library(KIT_MIB(64));
    mp_external table = table_of(&l);
    table.info = library_info;
    mp_pool *pool = open_over(&table, NULL);
    check_room(pool, KIT_MIB(64), KIT_MIB(64));
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
    check_room(pool, KIT_MIB(63), KIT_MIB(64));
    check_refusal(pool, "; the device has 66060288 of 67108864 bytes left");
    l.cannot_tell = true;
    check_room(pool, 0, 0);
    check_refusal(pool, "the external memory manager cannot provide 68157440 bytes");
    CHECK_OK(mp_pool_free(pool, block));
    mp_pool_close(pool);
}

TEST(pool_external_need_not_say_what_is_left) {
    library l = new_library(KIT_MIB(64));
    const mp_external table = table_of(&l);
    mp_pool *pool = open_over(&table, NULL);
    check_room(pool, 0, 0);
    check_refusal(pool, "the external memory manager cannot provide 68157440 bytes");
    mp_pool_close(pool);
}

/* ---- other processes ---- */

TEST(pool_external_exports_through_the_table) {
    library l = new_library(KIT_MIB(64));
    mp_external table = table_of(&l);
    mp_pool *pool = open_over(&table, NULL);
    mp_addr first = 0, block = 0;
    mp_ipc_handle handle = {{0}};
    size_t offset = 0;
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &first));
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
    CHECK_OK(mp_pool_ipc_export(pool, block, &handle, &offset));
    CHECK_EQ_INT(l.exports, 1);
    mp_addr region = 0;
    memcpy(&region, handle.bytes, sizeof region);
    CHECK_EQ_INT(region + offset, block);
    CHECK_OK(mp_pool_free(pool, first));
    CHECK_OK(mp_pool_free(pool, block));
    mp_pool_close(pool);
    table.ipc = NULL;
    pool = open_over(&table, NULL);
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
    CHECK(mp_pool_ipc_export(pool, block, &handle, &offset) == MP_UNSUPPORTED);
    CHECK_OK(mp_pool_free(pool, block));
    mp_pool_close(pool);
}

/* ---- tables and options ---- */

TEST(pool_external_wants_alloc_and_free) {
    library l = new_library(KIT_MIB(64));
    mp_pool *pool = NULL;
    mp_external table = table_of(&l);
    CHECK_FAILS(mp_pool_open_external("host", "kit", NULL, NULL, &pool), INVALID_ARGUMENT, "");
    table.alloc = NULL;
    CHECK_FAILS(mp_pool_open_external("host", "kit", &table, NULL, &pool), INVALID_ARGUMENT,
                "function");
    table = table_of(&l);
    table.free = NULL;
    CHECK_FAILS(mp_pool_open_external("host", "kit", &table, NULL, &pool), INVALID_ARGUMENT,
                "function");
    CHECK(pool == NULL);
    table = table_of(&l);
    table.empty_cache = NULL; /* need not be there */
    table.ipc = NULL;
    l.limit = KIT_MIB(1);
    pool = open_over(&table, NULL);
    mp_addr block = 0;
    CHECK(mp_pool_alloc(pool, KIT_MIB(9), MP_NO_STREAM, &block) == MP_OUT_OF_MEMORY);
    mp_pool_close(pool);
}

TEST(pool_external_refuses_what_it_cannot_be) {
    library l = new_library(KIT_MIB(64));
    const mp_external table = table_of(&l);
    mp_pool *pool = NULL;
    CHECK_FAILS(
        mp_pool_open_external("host", "kit", &table, KIT_OPTIONS("arena.external=some"), &pool),
        INVALID_ARGUMENT, "arena.external");
    CHECK(pool == NULL);
    kit_log_keep(); /* pages are mapped only by the device itself: a warning, and plain regions */
    pool = open_over(&table, KIT_OPTIONS("arena.expandable=1"));
    CHECK(kit_log_has("arena.expandable"));
    kit_log_end();
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
    CHECK_EQ_INT(l.had, KIT_MIB(1));
    CHECK_OK(mp_pool_free(pool, block));
    mp_pool_close(pool);
}

/* ---- blocks that are passed on, and work that still uses them ---- */

/* Refuses to have memory back that it has not seen written. */
typedef struct watcher {
    mp_device *device;
    mp_addr memory;
    uint32_t wanted;
    int frees, early;
} watcher;

static void *watcher_alloc(void *context, size_t size) {
    watcher *w = context;
    return w->device->ops->alloc(w->device, size, &w->memory) == MP_OK ? (void *)w->memory : NULL;
}

static void watcher_free(void *context, void *memory, size_t size) {
    watcher *w = context;
    uint32_t seen = 0;
    CHECK_OK(w->device->ops->copy(w->device, NULL, (mp_addr)&seen, (mp_addr)memory, sizeof seen));
    w->early += seen != w->wanted;
    w->frees++;
    w->device->ops->free(w->device, (mp_addr)memory, size);
}

/* How the block is given back whose fill is queued. */
typedef enum way { WAY_SAME, WAY_ON, WAY_DECLARED, WAYS } way;

static void free_while_used(mp_device *device, way how) {
    watcher w = {.device = device, .wanted = 0x01010101u * 7};
    const mp_external table = {.context = &w, .alloc = watcher_alloc, .free = watcher_free};
    kit k = {.device = device};
    kit_open(&k, device, NULL);
    CHECK_OK(mp__pool_open_external_on(device, "kit", &table, KIT_OPTIONS("arena.external=direct"),
                                       &k.pool));
    kit_stream a = kit_stream_open(&k), b = kit_stream_open(&k);
    const kit_stream *user = how == WAY_SAME ? &a : &b;
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(k.pool, 4096, a.native, &block));
    if (how == WAY_DECLARED) {
        CHECK_OK(mp_pool_record_use(k.pool, block, b.native));
    }
    CHECK_OK(device->ops->fill(device, user->queue, block, 7, 1, 4096));
    CHECK_OK(how == WAY_ON ? mp_pool_free_on(k.pool, block, b.native)
                           : mp_pool_free(k.pool, block));
    CHECK_EQ_INT(w.frees, 1);
    CHECK_EQ_INT(w.early, 0);
    kit_stream_close(&k, &a);
    kit_stream_close(&k, &b);
    mp_pool_close(k.pool);
    k.pool = NULL;
    kit_close(&k);
}

DEVICE_TEST(pool_external_waits_for_what_uses_a_block) {
    for (int how = 0; how < WAYS; how++) {
        free_while_used(device, (way)how);
    }
}

/* What was allocated in a capture is the graph's until that is gone. */
DEVICE_TEST(pool_external_keeps_what_a_graph_uses) {
    watcher w = {.device = device};
    const mp_external table = {.context = &w, .alloc = watcher_alloc, .free = watcher_free};
    kit k = {.device = device};
    kit_open(&k, device, NULL);
    CHECK_OK(mp__pool_open_external_on(device, "kit", &table, KIT_OPTIONS("arena.external=direct"),
                                       &k.pool));
    kit_stream stream = kit_stream_open(&k);
    mp_capture *graph = NULL;
    mp_addr block = 0;
    CHECK_OK(mp_pool_capture_begin(k.pool, stream.native, &graph));
    CHECK_OK(mp_pool_alloc(k.pool, 4096, stream.native, &block));
    CHECK_OK(mp_pool_free(k.pool, block));
    CHECK_OK(mp_pool_capture_end(k.pool, stream.native));
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK_EQ_INT(w.frees, 0);
    mp_pool_capture_release(k.pool, graph);
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK_EQ_INT(w.frees, 1);
    kit_stream_close(&k, &stream);
    mp_pool_close(k.pool);
    k.pool = NULL;
    kit_close(&k);
}

/* Allocates and fills a block on the default stream of a thread, which ends at once. */
static void *fill_on_own_stream(void *context) {
    static void *const per_thread = (void *)(uintptr_t)2;
    kit *k = context;
    const mp_device_ops *ops = k->device->ops;
    mp_stream *stream = NULL;
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(k->pool, 4096, per_thread, &block));
    CHECK_OK(ops->stream_wrap(k->device, per_thread, &stream));
    CHECK_OK(ops->fill(k->device, stream, block, 7, 1, 4096));
    ops->stream_destroy(k->device, stream);
    return NULL;
}

/* Nobody else can reach such a stream: the device is waited for. */
DEVICE_TEST(pool_external_waits_for_the_default_stream_of_another_thread) {
    if (device->info.kind != MP_DEVICE_HOST) {
        SKIP("looks into the device's memory");
    }
    watcher w = {.device = device, .wanted = 0x01010101u * 7};
    const mp_external table = {.context = &w, .alloc = watcher_alloc, .free = watcher_free};
    kit k;
    pthread_t thread;
    kit_open(&k, device, NULL);
    CHECK_OK(mp__pool_open_external_on(device, "kit", &table, KIT_OPTIONS("arena.external=direct"),
                                       &k.pool));
    CHECK(pthread_create(&thread, NULL, fill_on_own_stream, &k) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(mp_pool_free(k.pool, w.memory));
    CHECK_EQ_INT(w.frees, 1);
    CHECK_EQ_INT(w.early, 0);
    mp_pool_close(k.pool);
    k.pool = NULL;
    kit_close(&k);
}
