/* pool_error_test.c - whatever a caller passes in ends in a sentence, and changes nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/forbid.h"
#include "pool/pool_kit.h"

#include <stdlib.h>

/* A pool with one block allocated and one freed, and what it looked like then. */
typedef struct scene {
    kit k;
    mp_addr lent, freed;
    mp_pool_stats before;
} scene;

static void scene_open(scene *s, mp_device *device, const char *option) {
    kit_open(&s->k, device, KIT_OPTIONS(option));
    s->lent = kit_alloc(&s->k, 5000, NULL);
    s->freed = kit_alloc(&s->k, 3000, NULL);
    kit_free(&s->k, s->freed);
    s->before = kit_stats(&s->k);
}

static void scene_close(scene *s) {
    const mp_pool_stats after = kit_stats(&s->k);
    CHECK(memcmp(&s->before, &after, sizeof after) == 0);
    mp_block_info info;
    CHECK_OK(mp_pool_find(s->k.pool, s->lent, &info));
    CHECK_EQ_INT(info.requested, 5000);
    kit_free(&s->k, s->lent);
    kit_close(&s->k);
}

static void check_no_block(kit *k, mp_addr addr) {
    mp_ipc_handle handle;
    size_t offset = 0;
    CHECK_FAILS(mp_pool_free(k->pool, addr), INVALID_ARGUMENT, "0x");
    CHECK_FAILS(mp_pool_free_on(k->pool, addr, MP_NO_STREAM), INVALID_ARGUMENT, "0x");
    CHECK_FAILS(mp_pool_record_use(k->pool, addr, NULL), INVALID_ARGUMENT, "0x");
    CHECK_FAILS(mp_pool_ipc_export(k->pool, addr, &handle, &offset), INVALID_ARGUMENT, "0x");
}

static void refuse_foreign_addresses(mp_device *device, const char *option) {
    scene s;
    static int in_the_program;
    void *heap = malloc(100);
    int on_the_stack = 0;
    scene_open(&s, device, option);
    const mp_addr no_blocks[] = {
        s.freed,               /* freed before */
        s.lent + 1,            /* the middle of a block */
        s.lent + 256,          /* the same, where a block could begin */
        s.lent - 256,          /* what lies before it */
        s.lent + KIT_MIB(512), /* far away */
        (mp_addr)&in_the_program,
        (mp_addr)&on_the_stack,
        (mp_addr)heap,
        1,
        256,
        UINTPTR_MAX,
        UINTPTR_MAX - 255,
        (mp_addr)s.k.pool,
    };
    for (size_t i = 0; i < MP_COUNT_OF(no_blocks); i++) {
        check_no_block(&s.k, no_blocks[i]);
    }
    free(heap);
    scene_close(&s);
}

DEVICE_TEST(pool_error_refuses_foreign_addresses) {
    refuse_foreign_addresses(device, "arena.expandable=0");
}

DEVICE_TEST(pool_error_refuses_foreign_addresses_in_expandable_regions) {
    refuse_foreign_addresses(device, "arena.expandable=1");
}

DEVICE_TEST(pool_error_says_what_an_address_may_be) {
    scene s;
    int nothing = 0;
    scene_open(&s, device, "arena.guard=0");
    CHECK_FAILS(mp_pool_free(s.k.pool, s.freed), INVALID_ARGUMENT, "freed already");
    CHECK_FAILS(mp_pool_free(s.k.pool, s.lent + 256), INVALID_ARGUMENT, "inside a block");
    CHECK_FAILS(mp_pool_free(s.k.pool, (mp_addr)&nothing), INVALID_ARGUMENT, "never allocated");
    CHECK_OK(mp_pool_free(s.k.pool, 0));
    CHECK_OK(mp_pool_free_on(s.k.pool, 0, MP_NO_STREAM));
    scene_close(&s);
}

/* A block freed twice while its region has gone back to the device. */
DEVICE_TEST(pool_error_refuses_addresses_of_regions_that_are_gone) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=1"));
    const mp_addr block = kit_alloc(&k, KIT_MIB(3), NULL);
    mp_addr reserved = 0;
    CHECK_OK(mp_pool_reserve(k.pool, KIT_MIB(1), &reserved));
    kit_free(&k, block);
    kit_free(&k, reserved);
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    check_no_block(&k, block);
    check_no_block(&k, reserved);
    kit_close(&k);
}

DEVICE_TEST(pool_error_finds_only_lent_blocks) {
    scene s;
    scene_open(&s, device, "arena.max_dead_bytes_per_chunk=0");
    mp_block_info info = {.size = 77};
    CHECK(mp_pool_find(s.k.pool, s.freed, &info) == MP_NOT_FOUND);
    CHECK(mp_pool_find(s.k.pool, s.lent + 5120, &info) == MP_NOT_FOUND); /* just behind */
    CHECK(mp_pool_find(s.k.pool, s.lent - 1, &info) == MP_NOT_FOUND);
    CHECK(mp_pool_find(s.k.pool, 0, &info) == MP_NOT_FOUND);
    CHECK(mp_pool_find(s.k.pool, UINTPTR_MAX, &info) == MP_NOT_FOUND);
    CHECK_EQ_INT(info.size, 77);
    static const size_t inside[] = {0, 1, 255, 256, 4999, 5119};
    for (size_t i = 0; i < MP_COUNT_OF(inside); i++) {
        CHECK_OK(mp_pool_find(s.k.pool, s.lent + inside[i], &info));
        CHECK_EQ_INT(info.addr, s.lent);
        CHECK_EQ_INT(info.size, 5120);
        CHECK_EQ_INT(info.requested, 5000);
        CHECK(info.stream == MP_NO_STREAM);
        CHECK(info.region <= info.addr);
        CHECK(info.region + info.region_size >= info.addr + info.size);
    }
    scene_close(&s);
}

/* ---- NULL ---- */

static void no_text(void *context, const char *text, size_t size) {
    (void)context, (void)text, (void)size;
}

static bool no_help(void *context, size_t size) {
    (void)context, (void)size;
    return false;
}

static mp_pool_device about;
static mp_pool_stats stats;
static mp_block_info info;
static mp_ipc_handle handle;
static mp_capture *capture;
static mp_addr out;
static uint64_t mark;
static size_t count;

static void check_all_refused(const mp_status *statuses, size_t calls) {
    for (size_t i = 0; i < calls; i++) {
        if (statuses[i] != MP_INVALID_ARGUMENT) {
            test_fail(__FILE__, __LINE__, "call %zu: %s", i, mp_status_name(statuses[i]));
        }
    }
}

DEVICE_TEST(pool_error_of_arguments_that_are_null) {
    scene s;
    scene_open(&s, device, "arena.guard=0");
    mp_pool *pool = s.k.pool;
    const mp_status statuses[] = {
        mp_pool_alloc(pool, 1, MP_NO_STREAM, NULL),
        mp_pool_reserve(pool, 1, NULL),
        mp_pool_find(pool, s.lent, NULL),
        mp_pool_stream_mark(pool, MP_NO_STREAM, NULL),
        mp_pool_capture_begin(pool, NULL, NULL),
        mp_pool_add_hook(pool, NULL, NULL),
        mp_pool_get_device(pool, NULL, sizeof about),
        mp_pool_get_device(pool, &about, 0),
        mp_pool_get_stats(pool, NULL, sizeof stats),
        mp_pool_get_clients(pool, NULL, 4, &count),
        mp_pool_get_clients(pool, NULL, 0, NULL),
        mp_pool_get_streams(pool, NULL, 4, &count),
        mp_pool_get_streams(pool, NULL, 0, NULL),
        mp_pool_dump(pool, NULL, NULL),
        mp_pool_trace_write(pool, MP_TRACE_HTML, NULL),
        mp_pool_ipc_export(pool, s.lent, NULL, &count),
        mp_pool_ipc_export(pool, s.lent, &handle, NULL),
    };
    check_all_refused(statuses, MP_COUNT_OF(statuses));
    scene_close(&s);
}

TEST(pool_error_of_a_pool_that_is_null) {
    const mp_status statuses[] = {
        mp_pool_alloc(NULL, 1, MP_NO_STREAM, &out),
        mp_pool_free(NULL, 4096),
        mp_pool_free_on(NULL, 4096, NULL),
        mp_pool_record_use(NULL, 4096, NULL),
        mp_pool_reserve(NULL, 1, &out),
        mp_pool_find(NULL, 4096, &info),
        mp_pool_stream_settled(NULL, NULL),
        mp_pool_stream_gone(NULL, NULL),
        mp_pool_stream_mark(NULL, NULL, &mark),
        mp_pool_stream_ordered(NULL, NULL, NULL, 0),
        mp_pool_capture_begin(NULL, NULL, &capture),
        mp_pool_capture_end(NULL, NULL),
        mp_pool_shrink(NULL, &count),
        mp_pool_add_hook(NULL, no_help, NULL),
        mp_pool_remove_hook(NULL, no_help, NULL),
        mp_pool_get_device(NULL, &about, sizeof about),
        mp_pool_get_stats(NULL, &stats, sizeof stats),
        mp_pool_get_clients(NULL, NULL, 0, &count),
        mp_pool_get_streams(NULL, NULL, 0, &count),
        mp_pool_dump(NULL, no_text, NULL),
        mp_pool_trace(NULL, 16),
        mp_pool_trace_write(NULL, MP_TRACE_HTML, "x"),
        mp_pool_ipc_export(NULL, 4096, &handle, &count),
        mp_pool_ipc_open(NULL, &handle, &count, &count),
        mp_pool_ipc_close(NULL, 4096),
        mp_pool_enable_peer(NULL, 0),
    };
    check_all_refused(statuses, MP_COUNT_OF(statuses));
    mp_pool_close(NULL);
    mp_pool_reset_peaks(NULL);
    mp_pool_capture_release(NULL, NULL);
}

DEVICE_TEST(pool_error_names_the_argument) {
    scene s;
    scene_open(&s, device, "arena.guard=0");
    mp_pool *pool = s.k.pool;
    CHECK_FAILS(mp_pool_alloc(NULL, 1, MP_NO_STREAM, &out), INVALID_ARGUMENT,
                "mp_pool_alloc: the argument pool is NULL");
    CHECK_FAILS(mp_pool_alloc(pool, 1, MP_NO_STREAM, NULL), INVALID_ARGUMENT,
                "mp_pool_alloc: the argument out is NULL");
    CHECK_FAILS(mp_pool_ipc_export(pool, s.lent, &handle, NULL), INVALID_ARGUMENT,
                "mp_pool_ipc_export: the argument offset is NULL");
    CHECK_FAILS(mp_pool_get_clients(pool, NULL, 4, &count), INVALID_ARGUMENT,
                "the argument out is NULL with a capacity above 0");
    CHECK_FAILS(mp_pool_get_stats(pool, &stats, 0), INVALID_ARGUMENT,
                "the argument size is 0; give sizeof(mp_pool_stats)");
    const mp_external nothing = {.context = NULL};
    CHECK_FAILS(mp_pool_open_external("host", "kit", &nothing, NULL, &pool), INVALID_ARGUMENT,
                "the argument external has no function alloc");
    scene_close(&s);
}

/* ---- handles that were closed ---- */

static void check_closed(mp_pool *pool) {
    const mp_status statuses[] = {
        mp_pool_alloc(pool, 1, MP_NO_STREAM, &out),
        mp_pool_free(pool, 4096),
        mp_pool_free_on(pool, 4096, NULL),
        mp_pool_record_use(pool, 4096, NULL),
        mp_pool_reserve(pool, 1, &out),
        mp_pool_find(pool, 4096, &info),
        mp_pool_stream_settled(pool, NULL),
        mp_pool_stream_gone(pool, NULL),
        mp_pool_stream_mark(pool, NULL, &mark),
        mp_pool_stream_ordered(pool, NULL, NULL, 0),
        mp_pool_capture_begin(pool, NULL, &capture),
        mp_pool_capture_end(pool, NULL),
        mp_pool_shrink(pool, &count),
        mp_pool_add_hook(pool, no_help, NULL),
        mp_pool_remove_hook(pool, no_help, NULL),
        mp_pool_get_device(pool, &about, sizeof about),
        mp_pool_get_stats(pool, &stats, sizeof stats),
        mp_pool_get_clients(pool, NULL, 0, &count),
        mp_pool_get_streams(pool, NULL, 0, &count),
        mp_pool_dump(pool, no_text, NULL),
        mp_pool_trace(pool, 16),
        mp_pool_trace_write(pool, MP_TRACE_HTML, "x"),
        mp_pool_ipc_export(pool, 4096, &handle, &count),
        mp_pool_ipc_open(pool, &handle, &count, &count),
        mp_pool_ipc_close(pool, 4096),
        mp_pool_enable_peer(pool, 0),
    };
    check_all_refused(statuses, MP_COUNT_OF(statuses));
    CHECK_FAILS(mp_pool_free(pool, 4096), INVALID_ARGUMENT,
                "mp_pool_free: the pool handle was closed");
    CHECK_EQ_INT(mp__pool_try_alloc(pool, 1, MP_NO_STREAM, &out), MP_BUSY);
    CHECK_EQ_INT(mp__pool_try_free(pool, 4096), MP_BUSY);
    mp_pool_reset_peaks(pool);
    kit_log_keep();
    mp_pool_capture_release(pool, (mp_capture *)(void *)&pool);
    CHECK(kit_log_has("mp_pool_capture_release: the pool handle was closed"));
    kit_log_end();
    kit_log_keep();
    mp_pool_close(pool);
    CHECK(kit_log_has("closed already"));
    kit_log_end();
}

DEVICE_TEST(pool_error_of_a_handle_that_was_closed) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.guard=0"));
    mp_pool *other = NULL;
    CHECK_OK(mp__pool_again(k.pool, &other));
    mp_pool_close(other); /* the arena lives on */
    check_closed(other);
    mp_pool *const last = k.pool;
    kit_close(&k); /* the arena is gone */
    check_closed(last);
}

/* A record serves anew only after as many others have been closed. */
DEVICE_TEST(pool_error_closed_handles_are_told_apart_for_long) {
    enum { LATER = 1024 };
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.guard=0"));
    mp_pool *closed = NULL;
    CHECK_OK(mp__pool_again(k.pool, &closed));
    mp_pool_close(closed);
    for (int i = 0; i < LATER; i++) {
        mp_pool *other = NULL;
        CHECK_OK(mp__pool_again(k.pool, &other));
        CHECK(other != closed);
        mp_pool_close(other);
    }
    CHECK_FAILS(mp_pool_free(closed, 4096), INVALID_ARGUMENT, "the pool handle was closed");
    kit_close(&k);
}

/* ---- the guard ---- */

/* A block is written beyond its end by `over` bytes; the fault must be told when it is freed. */
static void check_overrun(mp_device *device, size_t size, size_t over, bool told) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.guard=1"));
    kit_stream stream = kit_stream_open(&k);
    const mp_addr before = kit_alloc(&k, size, &stream), block = kit_alloc(&k, size, &stream),
                  after = kit_alloc(&k, size, &stream);
    CHECK_OK(device->ops->fill(device, stream.queue, block, 0x5a, 1, size + over));
    CHECK_OK(device->ops->stream_synchronize(device, stream.queue));
    kit_log_keep();
    kit_free(&k, before);
    kit_free(&k, after);
    CHECK_OK(device->ops->synchronize(device));
    CHECK(!kit_log_has("kit"));
    kit_free(&k, block);
    CHECK_OK(device->ops->synchronize(device));
    kit_free(&k, kit_alloc(&k, size, &stream)); /* by now at the latest */
    CHECK_EQ_INT(kit_log_has("kit"), told);
    kit_log_end();
    kit_stream_close(&k, &stream);
    kit_close(&k);
}

/* Not on an adversarial device, which would tell of the breach itself. */
TEST(pool_error_of_writing_beyond_a_block) {
    if (MP_WITH_ASAN) {
        SKIP("the address sanitizer ends a process that writes there");
    }
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_THREADED; mode++) {
        const mp_host_config config = {.mode = (unsigned)mode, .memory_bytes = KIT_MIB(64)};
        mp_device *device = NULL;
        CHECK_OK(mp__host_device_create(&config, &device));
        static const size_t sizes[] = {1, 255, 256, 1000, 1024, 100000};
        for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
            check_overrun(device, sizes[i], 0, false);
            check_overrun(device, sizes[i], 1, true);
            check_overrun(device, sizes[i], 16, true);
        }
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
}

TEST(pool_error_of_reading_beside_a_block) {
    const mp_host_config config = {.mode = MP_HOST_THREADED, .memory_bytes = KIT_MIB(64)};
    mp_device *device = NULL;
    kit k;
    if (!MP_WITH_ASAN) {
        SKIP("this is for the address sanitizer");
    }
    CHECK_OK(mp__host_device_create(&config, &device));
    kit_open(&k, device, KIT_OPTIONS("arena.guard=1"));
    kit_stream stream = kit_stream_open(&k);
    static const size_t sizes[] = {1, 7, 255, 256, 1000, 100000};
    for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
        const mp_addr block = kit_alloc(&k, sizes[i], &stream), end = block + sizes[i];
        CHECK(!mp_is_forbidden(block) && !mp_is_forbidden(end - 1));
        CHECK(mp_is_forbidden(block - 1) && mp_is_forbidden(end));
        CHECK(mp_is_forbidden(block - 256) && mp_is_forbidden(end + 255));
        kit_free(&k, block);
        CHECK(!mp_is_forbidden(block - 1) && !mp_is_forbidden(end)); /* others may get it */
    }
    kit_stream_close(&k, &stream);
    kit_close(&k);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

DEVICE_TEST(pool_error_guard_costs_no_order) {
    kit k;
    kit_log_keep();
    kit_open(&k, device, KIT_OPTIONS("arena.guard=1", "arena.max_mem=1M"));
    kit_stream a = kit_stream_open(&k), b = kit_stream_open(&k);
    for (uint32_t tag = 1; tag < 40; tag++) {
        const kit_stream *stream = tag % 3 == 0 ? &b : &a;
        const mp_addr block = kit_alloc(&k, KIT_KIB(600), stream);
        kit_fill(&k, stream, block, KIT_KIB(600), tag);
        kit_read(&k, stream, block, tag);
        kit_read(&k, stream, block + KIT_KIB(600) - 4, tag);
        kit_free(&k, block);
    }
    CHECK(!kit_log_has("outside")); /* nothing was written there */
    kit_log_end();
    kit_stream_close(&k, &a);
    kit_stream_close(&k, &b);
    kit_close(&k);
}
