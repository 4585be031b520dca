/* device_test.c - the contract of device.h, kept by every device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_kernels.h"

#include <stdlib.h>
#include <time.h>

enum { COUNT = 3000, BYTES = COUNT * 8 };

/* ---- short words for what most tests do ---- */

static mp_stream *open_stream(mp_device *device) {
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    return stream;
}

static mp_event *open_event(mp_device *device) {
    mp_event *event = NULL;
    CHECK_OK(device->ops->event_create(device, false, &event));
    return event;
}

static mp_kernel *load(mp_device *device, const mp_kernel_image *image) {
    mp_kernel *kernel = NULL;
    CHECK_OK(device->ops->kernel_load(device, image, &kernel));
    return kernel;
}

static mp_addr get(mp_device *device, size_t size) {
    mp_addr addr = 0;
    CHECK_OK(device->ops->alloc(device, size, &addr));
    CHECK(addr != 0 && addr % MP_ALIGNMENT == 0);
    return addr;
}

static mp_addr get_pinned(mp_device *device, size_t size) {
    mp_addr addr = 0;
    CHECK_OK(device->ops->alloc_pinned(device, size, &addr));
    CHECK(addr != 0 && addr % MP_ALIGNMENT == 0);
    return addr;
}

/* y = x * scale + shift */
static void affine(mp_device *device, mp_stream *stream, const mp_kernel *kernel, mp_addr y,
                   mp_addr x, int64_t scale, int64_t shift) {
    affine_args args = {
        .y = (int64_t *)y, .x = (const int64_t *)x, .count = COUNT, .scale = scale, .shift = shift};
    const mp_grid grid = {.blocks = (COUNT + 127) / 128, .lanes = 128};
    CHECK_OK(device->ops->launch(device, stream, kernel, grid, &args, sizeof args));
    memset(&args, 0xff, sizeof args); /* only borrowed during the call */
}

static void put(mp_device *device, mp_addr target, int64_t first) {
    int64_t values[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        values[i] = first + i;
    }
    CHECK_OK(device->ops->copy(device, NULL, target, (mp_addr)values, BYTES));
}

/* All of it is first + i * step. */
static void check(mp_device *device, mp_addr source, int64_t first, int64_t step) {
    int64_t values[COUNT];
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)values, source, BYTES));
    for (int64_t i = 0; i < COUNT; i++) {
        CHECK_EQ_INT(values[i], first + i * step);
    }
}

/* ---- memory and copies ---- */

DEVICE_TEST(device_says_what_it_is) {
    const mp_device_info *info = &device->info;
    CHECK(info->name[0] != 0 && info->driver[0] != 0);
    CHECK(info->multiprocessors >= 1 && info->warp >= 1);
    CHECK(info->block_lanes_max >= 256 && info->shared_bytes_max >= 32768);
    size_t left = 0, total = 0;
    CHECK_OK(device->ops->memory_info(device, &left, &total));
    CHECK(left > 0 && left <= total && total == info->memory_bytes);
}

DEVICE_TEST_ALONE(memory_is_counted) {
    size_t before = 0, during = 0, total = 0;
    const size_t size = (size_t)64 << 20;
    CHECK_OK(device->ops->memory_info(device, &before, &total));
    const mp_addr addr = get(device, size);
    CHECK_OK(device->ops->memory_info(device, &during, &total));
    CHECK(during <= before - size / 2);
    device->ops->free(device, addr, size);
}

DEVICE_TEST(too_much_memory_is_refused) {
    mp_addr addr = 0;
    CHECK_FAILS(device->ops->alloc(device, (size_t)1 << 50, &addr), OUT_OF_MEMORY, "");
    const mp_addr small = get(device, 4096);
    device->ops->free(device, small, 4096);
}

DEVICE_TEST(copies_without_a_stream) {
    const mp_addr a = get(device, BYTES), b = get(device, BYTES);
    put(device, a, 5);
    CHECK_OK(device->ops->copy(device, NULL, b, a, BYTES));
    check(device, b, 5, 1);
    CHECK_OK(device->ops->copy(device, NULL, b, a, 0));
    device->ops->free(device, a, BYTES);
    device->ops->free(device, b, BYTES);
}

DEVICE_TEST(pageable_memory_is_read_before_the_copy_returns) {
    mp_stream *stream = open_stream(device);
    const mp_addr a = get(device, BYTES);
    int64_t values[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        values[i] = i;
    }
    CHECK_OK(device->ops->copy(device, stream, a, (mp_addr)values, BYTES));
    memset(values, 0, sizeof values);
    CHECK_OK(device->ops->copy(device, stream, (mp_addr)values, a, BYTES));
    for (int64_t i = 0; i < COUNT; i++) {
        CHECK_EQ_INT(values[i], i);
    }
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, a, BYTES);
}

DEVICE_TEST(pinned_memory_goes_both_ways) {
    mp_stream *stream = open_stream(device);
    const mp_addr a = get(device, BYTES);
    const mp_addr source = get_pinned(device, BYTES), target = get_pinned(device, BYTES);
    for (int64_t i = 0; i < COUNT; i++) {
        ((int64_t *)source)[i] = 3 * i;
    }
    CHECK_OK(device->ops->copy(device, stream, a, source, BYTES));
    CHECK_OK(device->ops->copy(device, stream, target, a, BYTES));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK(memcmp((void *)source, (void *)target, BYTES) == 0);
    device->ops->stream_destroy(device, stream);
    device->ops->free_pinned(device, source, BYTES);
    device->ops->free_pinned(device, target, BYTES);
    device->ops->free(device, a, BYTES);
}

DEVICE_TEST(fills_of_each_width) {
    mp_stream *stream = open_stream(device);
    const mp_addr a = get(device, 64);
    unsigned char bytes[64];
    CHECK_OK(device->ops->fill(device, NULL, a, 0x11, 1, 64));
    CHECK_OK(device->ops->fill(device, stream, a + 1, 0xff22, 1, 7));
    CHECK_OK(device->ops->fill(device, stream, a + 10, 0x3344, 2, 3));
    CHECK_OK(device->ops->fill(device, stream, a + 20, 0x55667788, 4, 2));
    CHECK_OK(device->ops->fill(device, stream, a, 0, 4, 0));
    CHECK_OK(device->ops->copy(device, stream, (mp_addr)bytes, a, 64));
    for (size_t i = 0; i < 64; i++) {
        static const unsigned char word[] = {0x88, 0x77, 0x66, 0x55};
        const unsigned char expected = i >= 1 && i < 8     ? 0x22
                                       : i >= 10 && i < 16 ? (i % 2 == 0 ? 0x44 : 0x33)
                                       : i >= 20 && i < 28 ? word[i % 4]
                                                           : 0x11;
        CHECK_EQ_INT(bytes[i], expected);
    }
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, a, 64);
}

DEVICE_TEST(memory_ordered_by_a_stream) {
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr out = get(device, BYTES), in = get(device, BYTES);
    mp_mempool *mempool = NULL;
    put(device, in, 0);
    CHECK_OK(device->ops->mempool_create(device, 0, &mempool));
    for (int64_t round = 1; round <= 3; round++) {
        mp_addr middle = 0;
        CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, BYTES, &middle));
        CHECK(middle % MP_ALIGNMENT == 0);
        affine(device, stream, kernel, middle, in, round, 0);
        affine(device, stream, kernel, out, middle, 2, 1);
        CHECK_OK(device->ops->free_async(device, stream, middle, BYTES));
    }
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check(device, out, 1, 6);
    device->ops->mempool_destroy(device, mempool);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, in, BYTES);
    device->ops->free(device, out, BYTES);
}

DEVICE_TEST(memory_behind_reserved_addresses) {
    const size_t granule = device->ops->granule(device);
    CHECK(granule > 0 && granule % MP_ALIGNMENT == 0);
    mp_addr base = 0;
    CHECK_OK(device->ops->reserve(device, 4 * granule, &base));
    CHECK_OK(device->ops->map(device, base, granule));
    CHECK_OK(device->ops->map(device, base + granule, granule));
    CHECK_OK(device->ops->fill(device, NULL, base, 7, 4, 2 * granule / 4));
    /* One copy across both parts. */
    uint32_t words[16] = {0};
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)words, base + granule - 32, sizeof words));
    for (size_t i = 0; i < MP_COUNT_OF(words); i++) {
        CHECK_EQ_INT(words[i], 7);
    }
    CHECK_OK(device->ops->unmap(device, base, granule));
    CHECK_OK(device->ops->map(device, base + 3 * granule, granule));
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)words, base + granule, sizeof words));
    CHECK_EQ_INT(words[0], 7);
    CHECK_OK(device->ops->map(device, base, granule));
    CHECK_OK(device->ops->unmap(device, base, granule));
    CHECK_OK(device->ops->unmap(device, base + granule, granule));
    CHECK_OK(device->ops->unmap(device, base + 3 * granule, granule));
    device->ops->unreserve(device, base, 4 * granule);
}

/* ---- streams and events ---- */

DEVICE_TEST(a_stream_keeps_its_order) {
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr a = get(device, BYTES), b = get(device, BYTES);
    put(device, a, 1);
    for (int round = 0; round < 10; round++) {
        affine(device, stream, kernel, b, a, 2, 1);
        affine(device, stream, kernel, a, b, 1, -1);
    }
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check(device, a, 1024, 1024);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, a, BYTES);
    device->ops->free(device, b, BYTES);
}

DEVICE_TEST(events_order_streams) {
    mp_stream *first = open_stream(device), *second = open_stream(device);
    mp_event *ready = open_event(device), *taken = open_event(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr a = get(device, BYTES), b = get(device, BYTES), c = get(device, BYTES);
    put(device, a, 0);
    put(device, c, 0);
    for (int64_t round = 0; round < 8; round++) {
        affine(device, first, kernel, b, a, round, 0); /* b = a * round */
        CHECK_OK(device->ops->event_record(device, ready, first));
        CHECK_OK(device->ops->event_wait(device, ready, second));
        affine(device, second, kernel, c, b, 1, round); /* c = b + round */
        CHECK_OK(device->ops->event_record(device, taken, second));
        CHECK_OK(device->ops->event_wait(device, taken, first));
    }
    CHECK_OK(device->ops->stream_synchronize(device, second));
    check(device, c, 7, 7);
    device->ops->event_destroy(device, ready);
    device->ops->event_destroy(device, taken);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, first);
    device->ops->stream_destroy(device, second);
    device->ops->free(device, a, BYTES);
    device->ops->free(device, b, BYTES);
    device->ops->free(device, c, BYTES);
}

DEVICE_TEST(an_event_that_was_never_recorded_is_reached) {
    mp_stream *stream = open_stream(device);
    mp_event *event = open_event(device);
    bool reached = false;
    CHECK_OK(device->ops->event_wait(device, event, stream));
    CHECK_OK(device->ops->event_synchronize(device, event));
    CHECK_OK(device->ops->event_query(device, event, &reached));
    CHECK(reached);
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    device->ops->event_destroy(device, event);
    device->ops->stream_destroy(device, stream);
}

DEVICE_TEST(an_event_outlives_its_user) {
    mp_stream *first = open_stream(device), *second = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr a = get(device, BYTES), b = get(device, BYTES);
    put(device, a, 0);
    affine(device, first, kernel, b, a, 3, 0);
    mp_event *event = open_event(device);
    CHECK_OK(device->ops->event_record(device, event, first));
    CHECK_OK(device->ops->event_wait(device, event, second));
    device->ops->event_destroy(device, event);
    affine(device, second, kernel, a, b, 1, 1);
    CHECK_OK(device->ops->stream_synchronize(device, second));
    check(device, a, 1, 3);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, first);
    device->ops->stream_destroy(device, second);
    device->ops->free(device, a, BYTES);
    device->ops->free(device, b, BYTES);
}

/* Asks until the answer is yes, for a few seconds. */
#define CHECK_SOON(call, answer)                  \
    do {                                          \
        const time_t check_start = time(NULL);    \
        do {                                      \
            CHECK_OK(call);                       \
            CHECK(time(NULL) - check_start < 20); \
        } while (!(answer));                      \
    } while (0)

DEVICE_TEST(queries_say_yes_in_the_end) {
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    mp_event *start = NULL, *end = NULL;
    const mp_addr a = get(device, BYTES);
    bool reached = false, idle = false;
    float ms = -1;
    put(device, a, 0);
    CHECK_OK(device->ops->event_create(device, true, &start));
    CHECK_OK(device->ops->event_create(device, true, &end));
    CHECK_OK(device->ops->event_record(device, start, stream));
    affine(device, stream, kernel, a, a, 2, 0);
    CHECK_OK(device->ops->event_record(device, end, stream));
    affine(device, stream, kernel, a, a, 2, 0);
    CHECK_SOON(device->ops->event_query(device, end, &reached), reached);
    CHECK_OK(device->ops->event_elapsed(device, start, end, &ms));
    CHECK(ms >= 0 && ms < 20000);
    CHECK_SOON(device->ops->stream_query(device, stream, &idle), idle);
    check(device, a, 0, 4);
    device->ops->event_destroy(device, start);
    device->ops->event_destroy(device, end);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, a, BYTES);
}

typedef struct call_note {
    int64_t *watched;
    int64_t seen;
    int calls;
} call_note;

static void note_call(void *context) {
    call_note *note = context;
    note->seen = note->watched[7];
    note->calls++;
}

DEVICE_TEST(host_calls_keep_their_place) {
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr pinned = get_pinned(device, BYTES);
    call_note notes[3] = {{.watched = (int64_t *)pinned}};
    memset((void *)pinned, 0, BYTES);
    notes[1] = notes[2] = notes[0];
    for (int i = 0; i < 3; i++) {
        affine(device, stream, kernel, pinned, pinned, 1, 1);
        CHECK_OK(device->ops->stream_call(device, stream, note_call, &notes[i]));
    }
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(notes[i].calls, 1);
        CHECK_EQ_INT(notes[i].seen, i + 1);
    }
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
    device->ops->free_pinned(device, pinned, BYTES);
}

DEVICE_TEST(streams_of_others_are_wrapped) {
    mp_stream *stream = open_stream(device), *wrapped = NULL, *legacy = NULL;
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr a = get(device, BYTES);
    put(device, a, 0);
    void *native = device->ops->stream_native(device, stream);
    CHECK_OK(device->ops->stream_wrap(device, native, &wrapped));
    CHECK(device->ops->stream_native(device, wrapped) == native);
    affine(device, stream, kernel, a, a, 1, 5);
    affine(device, wrapped, kernel, a, a, 2, 0);
    CHECK_OK(device->ops->stream_synchronize(device, wrapped));
    check(device, a, 10, 2);
    CHECK_OK(device->ops->stream_wrap(device, NULL, &legacy));
    affine(device, legacy, kernel, a, a, 1, 1);
    CHECK_OK(device->ops->stream_synchronize(device, legacy));
    check(device, a, 11, 2);
    device->ops->stream_destroy(device, legacy);
    device->ops->stream_destroy(device, wrapped);
    affine(device, stream, kernel, a, a, 1, 1);
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check(device, a, 12, 2);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, a, BYTES);
}

/* ---- kernels whose lanes meet ---- */

static void check_sums(mp_device *device, mp_stream *stream, const mp_kernel *kernel, mp_grid grid,
                       int64_t rows, int64_t columns) {
    const size_t in_size = (size_t)(rows * columns) * sizeof(int64_t);
    const size_t out_size = (size_t)rows * sizeof(int64_t);
    const mp_addr x = get(device, in_size), y = get(device, out_size);
    int64_t *values = malloc(in_size);
    CHECK(values != NULL);
    for (int64_t i = 0; i < rows * columns; i++) {
        values[i] = i * i % 1000;
    }
    CHECK_OK(device->ops->copy(device, stream, x, (mp_addr)values, in_size));
    const sum_args args = {
        .y = (int64_t *)y, .x = (const int64_t *)x, .rows = rows, .columns = columns};
    CHECK_OK(device->ops->launch(device, stream, kernel, grid, &args, sizeof args));
    int64_t sums[64];
    CHECK((size_t)rows <= MP_COUNT_OF(sums));
    CHECK_OK(device->ops->copy(device, stream, (mp_addr)sums, y, out_size));
    for (int64_t row = 0; row < rows; row++) {
        int64_t expected = 0;
        for (int64_t i = 0; i < columns; i++) {
            expected += values[row * columns + i];
        }
        CHECK_EQ_INT(sums[row], expected);
    }
    free(values);
    device->ops->free(device, x, in_size);
    device->ops->free(device, y, out_size);
}

DEVICE_TEST(lanes_meet_at_barriers) {
    static const uint32_t lanes[] = {1, 32, 256, 1024};
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_sum_image);
    for (size_t i = 0; i < MP_COUNT_OF(lanes); i++) {
        const mp_grid grid = {.blocks = 3, .lanes = lanes[i], .shared_bytes = lanes[i] * 8};
        check_sums(device, stream, kernel, grid, 7, 333);
    }
    const mp_grid wide = {.blocks = 60, .lanes = 64, .shared_bytes = 64 * 8};
    check_sums(device, stream, kernel, wide, 60, 100);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
}

/* ---- graphs ---- */

DEVICE_TEST(a_capture_is_replayed) {
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    mp_graph_exec *graph = NULL;
    bool active = true;
    const mp_addr a = get(device, BYTES), b = get(device, BYTES);
    put(device, a, 0);
    put(device, b, 0);
    CHECK_OK(device->ops->capture_active(device, stream, &active));
    CHECK(!active);
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK_OK(device->ops->capture_active(device, stream, &active));
    CHECK(active);
    affine(device, stream, kernel, b, a, 1, 1);
    CHECK_OK(device->ops->copy(device, stream, a, b, BYTES));
    CHECK_OK(device->ops->fill(device, stream, b, 0, 4, BYTES / 4));
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    check(device, a, 0, 1); /* nothing has run */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(device->ops->graph_launch(device, graph, stream));
    }
    affine(device, stream, kernel, b, a, 2, 0);
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check(device, a, 3, 1);
    check(device, b, 6, 2);
    device->ops->graph_destroy(device, graph);
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, a, BYTES);
    device->ops->free(device, b, BYTES);
}

DEVICE_TEST(a_capture_forks_and_joins) {
    mp_stream *first = open_stream(device), *second = open_stream(device);
    mp_event *fork = open_event(device), *join = open_event(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    mp_graph_exec *graph = NULL;
    bool active = false;
    const mp_addr a = get(device, BYTES), b = get(device, BYTES), c = get(device, BYTES);
    put(device, a, 1);
    CHECK_OK(device->ops->capture_begin(device, first));
    affine(device, first, kernel, b, a, 1, 10);
    CHECK_OK(device->ops->event_record(device, fork, first));
    CHECK_OK(device->ops->event_wait(device, fork, second));
    CHECK_OK(device->ops->capture_active(device, second, &active));
    CHECK(active);
    affine(device, first, kernel, b, b, 3, 0);
    affine(device, second, kernel, c, a, 2, 0);
    affine(device, second, kernel, c, c, 1, 1);
    CHECK_OK(device->ops->event_record(device, join, second));
    CHECK_OK(device->ops->event_wait(device, join, first));
    affine(device, first, kernel, a, c, 1, 0);
    CHECK_OK(device->ops->capture_end(device, first, &graph));
    CHECK_OK(device->ops->capture_active(device, second, &active));
    CHECK(!active);
    CHECK_OK(device->ops->graph_launch(device, graph, second));
    CHECK_OK(device->ops->graph_launch(device, graph, second));
    CHECK_OK(device->ops->stream_synchronize(device, second));
    /* a: 1 + i, then 2 * that + 1, twice; b: (a + 10) * 3 with the a between. */
    check(device, a, 7, 4);
    check(device, b, 39, 6);
    device->ops->graph_destroy(device, graph);
    device->ops->kernel_unload(device, kernel);
    device->ops->event_destroy(device, fork);
    device->ops->event_destroy(device, join);
    device->ops->stream_destroy(device, first);
    device->ops->stream_destroy(device, second);
    device->ops->free(device, a, BYTES);
    device->ops->free(device, b, BYTES);
    device->ops->free(device, c, BYTES);
}

/* Ends the test where a GPU's driver is too old, or nobody asked for branches there. */
static void need_branches(mp_device *device) {
    const mp_status status = device->ops->branch_prepare(device);
    if (status == MP_UNSUPPORTED && device->info.arch > 0) {
        test_skip("%s", mp_error_message());
    }
    CHECK_OK(status);
}

static void set_byte(mp_device *device, mp_addr addr, uint8_t byte) {
    CHECK_OK(device->ops->copy(device, NULL, addr, (mp_addr)&byte, 1));
}

/* x becomes x + 1; then where the first byte holds x * 3, and within that where the second does not
 * x + 10; where the first does not x * 5; behind it x + 100. */
static void capture_branches(mp_device *device, mp_stream *stream, const mp_kernel *kernel,
                             mp_addr x, mp_addr bytes) {
    const mp_device_ops *ops = device->ops;
    mp_stream *inside = NULL;
    mp_stream *inner = NULL;
    affine(device, stream, kernel, x, x, 1, 1);
    CHECK_OK(ops->branch_begin(device, stream, bytes, true, &inside));
    affine(device, inside, kernel, x, x, 3, 0);
    CHECK_OK(ops->branch_begin(device, inside, bytes + 1, false, &inner));
    affine(device, inner, kernel, x, x, 1, 10);
    CHECK_OK(ops->branch_end(device, inside, inner));
    CHECK_OK(ops->branch_end(device, stream, inside));
    CHECK_OK(ops->branch_begin(device, stream, bytes, false, &inside));
    affine(device, inside, kernel, x, x, 5, 0);
    CHECK_OK(ops->branch_end(device, stream, inside));
    affine(device, stream, kernel, x, x, 1, 100);
}

static int64_t after_branches(int64_t x, bool first, bool second) {
    return first ? (x + 1) * 3 + (second ? 0 : 10) + 100 : (x + 1) * 5 + 100;
}

DEVICE_TEST(a_launch_takes_the_branches_that_bytes_say) {
    static const uint8_t values[] = {0, 1, 2, 255};
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr x = get(device, BYTES);
    const mp_addr bytes = get(device, 2);
    mp_graph_exec *graph = NULL;
    need_branches(device);
    set_byte(device, bytes, 0);
    set_byte(device, bytes + 1, 0);
    CHECK_OK(device->ops->capture_begin(device, stream));
    capture_branches(device, stream, kernel, x, bytes);
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    for (int round = 0; round < 16; round++) {
        const uint8_t first = values[round % 4];
        const uint8_t second = values[round / 4];
        put(device, x, 7);
        set_byte(device, bytes, first);
        set_byte(device, bytes + 1, second);
        CHECK_OK(device->ops->graph_launch(device, graph, stream));
        CHECK_OK(device->ops->stream_synchronize(device, stream));
        const int64_t begin = after_branches(7, first != 0, second != 0);
        check(device, x, begin, first != 0 ? 3 : 5);
    }
    device->ops->graph_destroy(device, graph);
    device->ops->kernel_unload(device, kernel);
    device->ops->free(device, x, BYTES);
    device->ops->free(device, bytes, 2);
    device->ops->stream_destroy(device, stream);
}

/* The byte is written by the kernel before, and by the branch before: launches look at it when they
 * get there. */
DEVICE_TEST(a_branch_waits_for_what_makes_its_byte) {
    mp_stream *stream = open_stream(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    const mp_addr x = get(device, BYTES);
    mp_graph_exec *graph = NULL;
    mp_stream *inside = NULL;
    need_branches(device);
    CHECK_OK(device->ops->capture_begin(device, stream));
    affine(device, stream, kernel, x, x, 1, -6); /* of the first element: 0 or 1 */
    CHECK_OK(device->ops->branch_begin(device, stream, x, true, &inside));
    affine(device, inside, kernel, x, x, 0, 0);
    CHECK_OK(device->ops->branch_end(device, stream, inside));
    CHECK_OK(device->ops->branch_begin(device, stream, x, false, &inside));
    affine(device, inside, kernel, x, x, 2, 4);
    CHECK_OK(device->ops->branch_end(device, stream, inside));
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    for (int64_t first = 6; first < 8; first++) {
        put(device, x, first);
        CHECK_OK(device->ops->graph_launch(device, graph, stream));
        CHECK_OK(device->ops->graph_launch(device, graph, stream));
        CHECK_OK(device->ops->stream_synchronize(device, stream));
        /* 6: 0, then 4 + 2i; less 6 is no 0, so all become 0, and then 4. 7: 1, so 0, then 4; less
         * 6 again: 0, then 4 */
        check(device, x, 4, 0);
    }
    device->ops->graph_destroy(device, graph);
    device->ops->kernel_unload(device, kernel);
    device->ops->free(device, x, BYTES);
    device->ops->stream_destroy(device, stream);
}

DEVICE_TEST(a_branch_is_of_a_capture) {
    mp_stream *stream = open_stream(device);
    mp_stream *inside = NULL;
    need_branches(device);
    const mp_addr x = get(device, BYTES);
    CHECK_FAILS(device->ops->branch_begin(device, stream, x, true, &inside), INVALID_ARGUMENT,
                "not being captured");
    CHECK(inside == NULL);
    CHECK_OK(device->ops->stream_synchronize(device, stream)); /* as before */
    device->ops->free(device, x, BYTES);
    device->ops->stream_destroy(device, stream);
}

DEVICE_TEST(a_capture_that_does_not_join_fails) {
    mp_stream *first = open_stream(device), *second = open_stream(device);
    mp_event *fork = open_event(device);
    mp_kernel *kernel = load(device, &test_affine_image);
    mp_graph_exec *graph = NULL;
    bool active = true;
    const mp_addr a = get(device, BYTES);
    put(device, a, 0);
    CHECK_OK(device->ops->capture_begin(device, first));
    CHECK_OK(device->ops->event_record(device, fork, first));
    CHECK_OK(device->ops->event_wait(device, fork, second));
    affine(device, second, kernel, a, a, 2, 0);
    CHECK(device->ops->capture_end(device, first, &graph) != MP_OK);
    CHECK(mp_error_message()[0] != 0);
    CHECK_OK(device->ops->capture_active(device, first, &active));
    CHECK(!active);
    affine(device, first, kernel, a, a, 1, 1);
    CHECK_OK(device->ops->stream_synchronize(device, first));
    check(device, a, 1, 1);
    device->ops->kernel_unload(device, kernel);
    device->ops->event_destroy(device, fork);
    device->ops->stream_destroy(device, first);
    device->ops->stream_destroy(device, second);
    device->ops->free(device, a, BYTES);
}

/* ---- a random program, against the same one done in order ---- */

enum { STREAMS = 4, BUFFERS = 6, STEPS = 60 };

typedef struct program {
    mp_device *device;
    mp_stream *streams[STREAMS];
    mp_event *written[BUFFERS];       /* after the last write of a buffer */
    mp_event *read[BUFFERS][STREAMS]; /* after the last read of it on each stream */
    mp_addr buffers[BUFFERS];
    int64_t first[BUFFERS], step[BUFFERS]; /* what is in there in the end: first + i * step */
    mp_kernel *kernel;
} program;

/* Queues buffer[y] = buffer[x] * scale + shift on a stream, after all that must come before. */
static void queue_step(program *p, size_t s, size_t y, size_t x, int64_t scale, int64_t shift) {
    mp_device *device = p->device;
    CHECK_OK(device->ops->event_wait(device, p->written[x], p->streams[s]));
    CHECK_OK(device->ops->event_wait(device, p->written[y], p->streams[s]));
    for (size_t other = 0; other < STREAMS; other++) {
        CHECK_OK(device->ops->event_wait(device, p->read[y][other], p->streams[s]));
    }
    affine(device, p->streams[s], p->kernel, p->buffers[y], p->buffers[x], scale, shift);
    CHECK_OK(device->ops->event_record(device, p->written[y], p->streams[s]));
    CHECK_OK(device->ops->event_record(device, p->read[x][s], p->streams[s]));
    const int64_t first = p->first[x], step = p->step[x];
    p->first[y] = first * scale + shift;
    p->step[y] = step * scale;
}

static void open_program(program *p) {
    mp_device *device = p->device;
    p->kernel = load(device, &test_affine_image);
    for (size_t s = 0; s < STREAMS; s++) {
        p->streams[s] = open_stream(device);
    }
    for (size_t b = 0; b < BUFFERS; b++) {
        p->buffers[b] = get(device, BYTES);
        p->written[b] = open_event(device);
        p->first[b] = (int64_t)b;
        p->step[b] = 1;
        put(device, p->buffers[b], p->first[b]);
        for (size_t s = 0; s < STREAMS; s++) {
            p->read[b][s] = open_event(device);
        }
    }
}

static void close_program(program *p) {
    mp_device *device = p->device;
    for (size_t b = 0; b < BUFFERS; b++) {
        device->ops->event_destroy(device, p->written[b]);
        for (size_t s = 0; s < STREAMS; s++) {
            device->ops->event_destroy(device, p->read[b][s]);
        }
    }
    for (size_t s = 0; s < STREAMS; s++) {
        device->ops->stream_destroy(device, p->streams[s]);
    }
    for (size_t b = 0; b < BUFFERS; b++) {
        device->ops->free(device, p->buffers[b], BYTES);
    }
    device->ops->kernel_unload(device, p->kernel);
}

DEVICE_TEST(a_random_program_is_right) {
    program p = {.device = device};
    uint64_t random = test_seed();
    open_program(&p);
    for (int i = 0; i < STEPS; i++) {
        const size_t y = test_random(&random) % BUFFERS, x = test_random(&random) % BUFFERS;
        const int64_t scale = (int64_t)(test_random(&random) % 3) - 1;
        const int64_t shift = (int64_t)(test_random(&random) % 100);
        queue_step(&p, test_random(&random) % STREAMS, y, x, scale, shift);
    }
    CHECK_OK(device->ops->synchronize(device));
    for (size_t b = 0; b < BUFFERS; b++) {
        check(device, p.buffers[b], p.first[b], p.step[b]);
    }
    close_program(&p);
}
