/* device_memory_test.c - what every device promises of mempools, moved memory, native handles, and
 * of calls that are made while a stream is captured.
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory_calls.h"
#include "test.h"

#include <pthread.h>

enum { MIB = 1 << 20 };

static mp_stream *open_stream(mp_device *device) {
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    return stream;
}

/* Some GPUs have no mempools; the emulated device has. */
static mp_mempool *open_mempool(mp_device *device, size_t threshold) {
    mp_mempool *mempool = NULL;
    const mp_status status = device->ops->mempool_create(device, threshold, &mempool);
    if (status == MP_UNSUPPORTED && device->info.kind == MP_DEVICE_CUDA) {
        SKIP("%s", mp_error_message());
    }
    CHECK_OK(status);
    return mempool;
}

/* Likewise with memory that is mapped. */
static size_t granule_of(mp_device *device) {
    const size_t granule = device->ops->granule(device);
    if (granule == 0 && device->info.kind == MP_DEVICE_CUDA) {
        SKIP("no virtual memory management");
    }
    CHECK(granule > 0);
    return granule;
}

static mp_mempool_usage usage_of(mp_device *device, mp_mempool *mempool) {
    mp_mempool_usage usage = {0};
    CHECK_OK(device->ops->mempool_usage(device, mempool, &usage));
    CHECK(usage.reserved_max >= usage.reserved && usage.used_max >= usage.used);
    CHECK(usage.reserved >= usage.used);
    return usage;
}

static void fill(mp_device *device, mp_stream *stream, mp_addr addr, uint32_t value, size_t size) {
    CHECK_OK(device->ops->fill(device, stream, addr, value, 4, size / 4));
}

/* Both ends of the range hold the value. */
static void check_ends(mp_device *device, mp_addr addr, uint32_t value, size_t size) {
    uint32_t ends[2] = {0};
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)&ends[0], addr, 4));
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)&ends[1], addr + size - 4, 4));
    CHECK_EQ_INT(ends[0], value);
    CHECK_EQ_INT(ends[1], value);
}

/* ---- mempools ---- */

DEVICE_TEST(mempool_keeps_what_is_freed_and_counts) {
    mp_stream *stream = open_stream(device);
    mp_mempool *mempool = open_mempool(device, (size_t)64 * MIB);
    mp_addr first = 0, second = 0;
    CHECK_EQ_INT(usage_of(device, mempool).used, 0);
    CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, 3 * MIB, &first));
    CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, 5 * MIB, &second));
    CHECK(first % MP_ALIGNMENT == 0 && second % MP_ALIGNMENT == 0);
    CHECK(usage_of(device, mempool).used >= 8 * MIB);
    fill(device, stream, first, 1, 3 * MIB);
    fill(device, stream, second, 2, 5 * MIB);
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_ends(device, first, 1, 3 * MIB);
    check_ends(device, second, 2, 5 * MIB);
    CHECK_OK(device->ops->free_async(device, stream, first, 3 * MIB));
    CHECK_OK(device->ops->free_async(device, stream, second, 5 * MIB));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    const mp_mempool_usage kept = usage_of(device, mempool);
    CHECK_EQ_INT(kept.used, 0);
    CHECK(kept.used_max >= 8 * MIB && kept.reserved >= 8 * MIB);
    CHECK_OK(device->ops->mempool_reset_peaks(device, mempool));
    CHECK_EQ_INT(usage_of(device, mempool).used_max, 0);
    CHECK_OK(device->ops->mempool_trim(device, mempool, 0));
    CHECK_EQ_INT(usage_of(device, mempool).reserved, 0);
    device->ops->mempool_destroy(device, mempool);
    device->ops->stream_destroy(device, stream);
}

DEVICE_TEST(mempool_gives_back_beyond_its_threshold) {
    mp_stream *stream = open_stream(device);
    mp_mempool *mempool = open_mempool(device, 0);
    mp_addr addr = 0;
    CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, 4 * MIB, &addr));
    CHECK_OK(device->ops->free_async(device, stream, addr, 4 * MIB));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->synchronize(device));
    CHECK_EQ_INT(usage_of(device, mempool).reserved, 0);
    device->ops->mempool_destroy(device, mempool);
    device->ops->stream_destroy(device, stream);
}

DEVICE_TEST(mempool_memory_is_freed_on_another_stream) {
    mp_stream *first = open_stream(device), *second = open_stream(device);
    mp_mempool *mempool = open_mempool(device, 0);
    mp_event *event = NULL;
    mp_addr addr = 0, result = 0;
    CHECK_OK(device->ops->event_create(device, false, &event));
    CHECK_OK(device->ops->alloc(device, MIB, &result));
    for (uint32_t round = 0; round < 8; round++) {
        CHECK_OK(device->ops->mempool_alloc(device, mempool, first, MIB, &addr));
        fill(device, first, addr, round, MIB);
        CHECK_OK(device->ops->event_record(device, event, first));
        CHECK_OK(device->ops->event_wait(device, event, second));
        CHECK_OK(device->ops->copy(device, second, result, addr, MIB));
        CHECK_OK(device->ops->free_async(device, second, addr, MIB));
        CHECK_OK(device->ops->stream_synchronize(device, second));
        check_ends(device, result, round, MIB);
    }
    CHECK_EQ_INT(usage_of(device, mempool).used, 0);
    device->ops->mempool_destroy(device, mempool);
    device->ops->event_destroy(device, event);
    device->ops->stream_destroy(device, second);
    device->ops->stream_destroy(device, first);
    device->ops->free(device, result, MIB);
}

DEVICE_TEST(mempool_refuses_too_much) {
    mp_stream *stream = open_stream(device);
    mp_mempool *mempool = open_mempool(device, 0);
    mp_addr addr = 0;
    CHECK_FAILS(device->ops->mempool_alloc(device, mempool, stream, (size_t)1 << 50, &addr),
                OUT_OF_MEMORY, "1125899906842624");
    CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, 1, &addr));
    CHECK_OK(device->ops->free_async(device, stream, addr, 1));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_EQ_INT(usage_of(device, mempool).used, 0);
    device->ops->mempool_destroy(device, mempool);
    device->ops->stream_destroy(device, stream);
}

/* ---- memory that moves ---- */

DEVICE_TEST(mapped_memory_moves) {
    const size_t granule = granule_of(device);
    mp_addr source = 0, target = 0;
    CHECK_OK(device->ops->reserve(device, 4 * granule, &source));
    CHECK_OK(device->ops->reserve(device, 4 * granule, &target));
    CHECK_OK(device->ops->map(device, source, 2 * granule)); /* in two parts, moved in one */
    CHECK_OK(device->ops->map(device, source + 2 * granule, granule));
    for (uint32_t i = 0; i < 3; i++) {
        fill(device, NULL, source + i * granule, 10 + i, granule);
    }
    CHECK_OK(device->ops->remap(device, target, source + granule, 2 * granule));
    check_ends(device, source, 10, granule);
    check_ends(device, target, 11, granule);
    check_ends(device, target + granule, 12, granule);
    fill(device, NULL, target, 21, granule);
    check_ends(device, target, 21, granule);
    /* What has moved away has nothing behind it, and takes memory anew. */
    CHECK_FAILS(device->ops->unmap(device, source + granule, granule), INVALID_ARGUMENT, "mapped");
    CHECK_OK(device->ops->remap(device, source + 2 * granule, source, granule));
    check_ends(device, source + 2 * granule, 10, granule);
    CHECK_OK(device->ops->map(device, source, granule));
    CHECK_OK(device->ops->unmap(device, source, granule));
    CHECK_OK(device->ops->unmap(device, source + 2 * granule, granule));
    CHECK_OK(device->ops->unmap(device, target, 2 * granule));
    device->ops->unreserve(device, source, 4 * granule);
    device->ops->unreserve(device, target, 4 * granule);
}

DEVICE_TEST(memory_that_cannot_move_stays) {
    const size_t granule = granule_of(device);
    mp_addr source = 0, target = 0;
    CHECK_OK(device->ops->reserve(device, 2 * granule, &source));
    CHECK_OK(device->ops->reserve(device, 2 * granule, &target));
    CHECK_OK(device->ops->map(device, source, 2 * granule));
    CHECK_OK(device->ops->map(device, target + granule, granule));
    fill(device, NULL, source, 1, 2 * granule);
    fill(device, NULL, target + granule, 2, granule);
    CHECK_FAILS(device->ops->remap(device, target, source, 2 * granule), INVALID_ARGUMENT,
                "already");
    CHECK_FAILS(device->ops->remap(device, source, target, granule), INVALID_ARGUMENT, "mapped");
    CHECK_FAILS(device->ops->remap(device, target, source, granule / 2), INVALID_ARGUMENT,
                "granule");
    check_ends(device, source, 1, 2 * granule);
    check_ends(device, target + granule, 2, granule);
    CHECK_OK(device->ops->unmap(device, source, 2 * granule));
    CHECK_OK(device->ops->unmap(device, target + granule, granule));
    device->ops->unreserve(device, source, 2 * granule);
    device->ops->unreserve(device, target, 2 * granule);
}

/* ---- captures ---- */

DEVICE_TEST(memory_calls_leave_captures_alone) {
    const mp_device_ops *ops = device->ops;
    mp_stream *captured = open_stream(device), *outside = open_stream(device);
    mp_event *event = NULL;
    mp_graph_exec *graph = NULL;
    mp_addr addr = 0;
    CHECK_OK(ops->event_create(device, false, &event));
    CHECK_OK(ops->event_record(device, event, outside));
    CHECK_OK(ops->alloc(device, MIB, &addr));
    fill(device, NULL, addr, 1, MIB);
    CHECK_OK(ops->capture_begin(device, captured));
    fill(device, captured, addr, 2, MIB / 2);
    test_memory_calls(device, event);
    fill(device, captured, addr + MIB / 2, 2, MIB / 2);
    CHECK_OK(ops->capture_end(device, captured, &graph));
    check_ends(device, addr, 1, MIB); /* nothing of it has run */
    CHECK_OK(ops->graph_launch(device, graph, captured));
    CHECK_OK(ops->stream_synchronize(device, captured));
    check_ends(device, addr, 2, MIB);
    ops->graph_destroy(device, graph);
    ops->event_destroy(device, event);
    ops->stream_destroy(device, captured);
    ops->stream_destroy(device, outside);
    ops->free(device, addr, MIB);
}

DEVICE_TEST(mempools_refuse_captured_streams) {
    mp_stream *stream = open_stream(device);
    mp_mempool *mempool = open_mempool(device, 0);
    mp_graph_exec *graph = NULL;
    mp_addr addr = 0, more = 0;
    CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, MIB, &addr));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK_FAILS(device->ops->mempool_alloc(device, mempool, stream, MIB, &more), UNSUPPORTED,
                "captured");
    CHECK_FAILS(device->ops->free_async(device, stream, addr, MIB), UNSUPPORTED, "captured");
    fill(device, stream, addr, 7, MIB);
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    CHECK_OK(device->ops->graph_launch(device, graph, stream));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_ends(device, addr, 7, MIB);
    CHECK_OK(device->ops->free_async(device, stream, addr, MIB));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    device->ops->graph_destroy(device, graph);
    device->ops->mempool_destroy(device, mempool);
    device->ops->stream_destroy(device, stream);
}

typedef mp_status forbidden_call(mp_device *device, mp_stream *stream);

static mp_status ask_stream(mp_device *device, mp_stream *stream) {
    bool idle = false;
    return device->ops->stream_query(device, stream, &idle);
}

static mp_status wait_for_stream(mp_device *device, mp_stream *stream) {
    return device->ops->stream_synchronize(device, stream);
}

static mp_status wait_for_device(mp_device *device, mp_stream *stream) {
    (void)stream;
    return device->ops->synchronize(device);
}

DEVICE_TEST(forbidden_calls_break_captures) {
    static forbidden_call *const calls[] = {ask_stream, wait_for_stream, wait_for_device};
    mp_stream *stream = open_stream(device);
    mp_addr addr = 0;
    CHECK_OK(device->ops->alloc(device, 64, &addr));
    for (size_t i = 0; i < MP_COUNT_OF(calls); i++) {
        mp_graph_exec *graph = NULL;
        bool active = true;
        CHECK_OK(device->ops->capture_begin(device, stream));
        fill(device, stream, addr, 1, 64);
        CHECK(calls[i](device, stream) != MP_OK);
        CHECK_FAILS(device->ops->capture_end(device, stream, &graph), DEVICE, "capture");
        CHECK_OK(device->ops->capture_active(device, stream, &active));
        CHECK(!active);
        CHECK_OK(device->ops->synchronize(device));
    }
    device->ops->free(device, addr, 64);
    device->ops->stream_destroy(device, stream);
}

/* ---- native handles ---- */

static uint64_t id_of(mp_device *device, mp_stream *stream) {
    uint64_t id = 0;
    CHECK_OK(device->ops->stream_id(device, stream, &id));
    return id;
}

static uint64_t id_of_wrap(mp_device *device, void *native) {
    mp_stream *wrap = NULL;
    CHECK_OK(device->ops->stream_wrap(device, native, &wrap));
    CHECK(device->ops->stream_native(device, wrap) == native || native == (void *)1);
    const uint64_t id = id_of(device, wrap);
    device->ops->stream_destroy(device, wrap);
    return id;
}

typedef struct asked {
    mp_device *device;
    uint64_t id;
} asked;

static void *ask_per_thread(void *context) {
    asked *out = context;
    out->id = id_of_wrap(out->device, (void *)2);
    return NULL;
}

DEVICE_TEST(streams_have_numbers_of_their_own) {
    mp_stream *first = open_stream(device), *second = open_stream(device);
    const uint64_t legacy = id_of_wrap(device, NULL), mine = id_of_wrap(device, (void *)2);
    const uint64_t gone = id_of(device, second);
    asked other = {.device = device};
    pthread_t thread;
    CHECK(id_of(device, first) != gone && gone != legacy && legacy != mine && mine != gone);
    CHECK_EQ_INT(id_of_wrap(device, (void *)1), legacy);
    CHECK_EQ_INT(id_of_wrap(device, (void *)2), mine);
    CHECK_EQ_INT(id_of_wrap(device, device->ops->stream_native(device, first)),
                 id_of(device, first));
    CHECK_EQ_INT(pthread_create(&thread, NULL, ask_per_thread, &other), 0);
    CHECK_EQ_INT(pthread_join(thread, NULL), 0);
    CHECK(other.id != 0 && other.id != mine && other.id != legacy);
    device->ops->stream_destroy(device, second);
    second = open_stream(device); /* often with the handle of the one that is gone */
    CHECK(id_of(device, second) != gone);
    device->ops->stream_destroy(device, second);
    device->ops->stream_destroy(device, first);
}

DEVICE_TEST(special_handles_take_work) {
    mp_addr addr = 0;
    CHECK_OK(device->ops->alloc(device, MIB, &addr));
    for (uintptr_t native = 0; native <= 2; native++) {
        mp_stream *wrap = NULL;
        CHECK_OK(device->ops->stream_wrap(device, (void *)native, &wrap));
        fill(device, wrap, addr, (uint32_t)native + 5, MIB);
        CHECK_OK(device->ops->stream_synchronize(device, wrap));
        check_ends(device, addr, (uint32_t)native + 5, MIB);
        device->ops->stream_destroy(device, wrap);
    }
    device->ops->free(device, addr, MIB);
}

DEVICE_TEST(wraps_outlive_their_stream) {
    mp_stream *stream = open_stream(device), *wrap = NULL;
    void *native = device->ops->stream_native(device, stream);
    CHECK_OK(device->ops->stream_wrap(device, native, &wrap));
    device->ops->stream_destroy(device, stream);
    device->ops->stream_destroy(device, wrap);
}
