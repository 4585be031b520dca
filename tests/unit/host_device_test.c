/* host_device_test.c - what only the emulated device does: its modes, its limits, its adversary.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_kernels.h"
#include "test_log.h"

#include "device/host/host_device.h"
#include "device/host/host_lane.h"
#include "device/math.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 500, BYTES = COUNT * 8, SEEDS = 24, GRANULE = 2 << 20 };

/* ---- a private device and what most tests need on it ---- */

typedef struct bench {
    mp_device *device;
    const mp_device_ops *ops;
    mp_stream *streams[2];
    mp_kernel *affine;
    mp_mempool *mempool;
} bench;

static bench open_bench(int mode, uint64_t seed) {
    bench b = {.device = NULL};
    mp_host_config config = {.seed = seed, .memory_bytes = (size_t)16 << 20};
    config.mode = mode == MP_HOST_EAGER      ? MP_HOST_EAGER
                  : mode == MP_HOST_THREADED ? MP_HOST_THREADED
                                             : MP_HOST_ADVERSARIAL;
    mp_log_set_sink(no_line, NULL); /* breaches are expected here */
    CHECK_OK(mp__host_device_create(&config, &b.device));
    b.ops = b.device->ops;
    CHECK_OK(b.ops->stream_create(b.device, &b.streams[0]));
    CHECK_OK(b.ops->stream_create(b.device, &b.streams[1]));
    CHECK_OK(b.ops->kernel_load(b.device, &test_affine_image, &b.affine));
    CHECK_OK(b.ops->mempool_create(b.device, 0, &b.mempool));
    return b;
}

static void close_bench(bench *b) {
    b->ops->stream_destroy(b->device, b->streams[0]);
    b->ops->stream_destroy(b->device, b->streams[1]);
    b->ops->kernel_unload(b->device, b->affine);
    b->ops->mempool_destroy(b->device, b->mempool);
    CHECK_EQ_INT(mp__host_device_destroy(b->device), 0);
    mp_log_set_sink(NULL, NULL);
}

static mp_addr get(const bench *b) {
    mp_addr addr = 0;
    CHECK_OK(b->ops->alloc(b->device, BYTES, &addr));
    return addr;
}

static void give(const bench *b, mp_addr addr) {
    b->ops->free(b->device, addr, BYTES);
}

static void clear(const bench *b, mp_addr addr) {
    CHECK_OK(b->ops->fill(b->device, NULL, addr, 0, 4, BYTES / 4));
}

/* Queues y = x * scale + shift on one of the streams. */
static mp_status queue_affine(const bench *b, int stream, mp_addr y, mp_addr x, int64_t scale,
                              int64_t shift) {
    const affine_args args = {
        .y = (int64_t *)y, .x = (const int64_t *)x, .count = COUNT, .scale = scale, .shift = shift};
    const mp_grid grid = {.blocks = 4, .lanes = 128};
    return b->ops->launch(b->device, b->streams[stream], b->affine, grid, &args, sizeof args);
}

static int64_t last_value(const bench *b, mp_addr addr) {
    int64_t value = 0;
    const mp_addr last = addr + BYTES - sizeof value;
    CHECK_OK(b->ops->copy(b->device, NULL, (mp_addr)&value, last, sizeof value));
    return value;
}

/* The device has seen a breach, says so with these words and its seed, and keeps saying so. */
static void check_breach(const bench *b, const char *words) {
    CHECK_FAILS(b->ops->synchronize(b->device), DEVICE, words);
    CHECK_STR_HAS(mp__host_device_breach(b->device), words);
    CHECK_FAILS(b->ops->stream_synchronize(b->device, b->streams[0]), DEVICE, words);
}

static void check_adversary_breach(const bench *b, uint64_t seed, const char *words) {
    char reproduce[64];
    (void)snprintf(reproduce, sizeof reproduce, "MILLPOND_HOST=adversarial:%" PRIu64, seed);
    check_breach(b, words);
    CHECK_STR_HAS(mp__host_device_breach(b->device), reproduce);
}

/* ---- order ---- */

/* Without the wait, the reader may come first; with some seed it must. */
TEST(a_missing_event_wait_shows) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        const mp_addr x = get(&b), y = get(&b);
        clear(&b, x);
        clear(&b, y);
        CHECK_OK(queue_affine(&b, 0, x, x, 1, 7));
        CHECK_OK(queue_affine(&b, 1, y, x, 1, 0));
        CHECK_OK(b.ops->synchronize(b.device));
        wrong += last_value(&b, y) != 7;
        give(&b, x);
        give(&b, y);
        close_bench(&b);
    }
    CHECK(wrong > 0 && wrong < SEEDS);
}

/* A copy without a stream is ordered after nothing that is queued. */
TEST(a_missing_synchronize_shows) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        const mp_addr x = get(&b);
        clear(&b, x);
        CHECK_OK(queue_affine(&b, 0, x, x, 1, 7));
        wrong += last_value(&b, x) != 7;
        CHECK_OK(b.ops->synchronize(b.device));
        give(&b, x);
        close_bench(&b);
    }
    CHECK(wrong > 0);
}

/* A pinned source is read when the stream gets there, not when the copy is queued. */
TEST(a_pinned_source_that_changes_too_early_shows) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        const mp_addr x = get(&b);
        mp_addr pinned = 0;
        CHECK_OK(b.ops->alloc_pinned(b.device, BYTES, &pinned));
        memset((void *)pinned, 0, BYTES);
        CHECK_OK(b.ops->copy(b.device, b.streams[0], x, pinned, BYTES));
        memset((void *)pinned, 1, BYTES);
        CHECK_OK(b.ops->stream_synchronize(b.device, b.streams[0]));
        wrong += last_value(&b, x) != 0;
        give(&b, x);
        b.ops->free_pinned(b.device, pinned, BYTES);
        close_bench(&b);
    }
    CHECK(wrong > 0);
}

typedef struct journal {
    char text[64];
    size_t size;
} journal;

static journal written;

static void write_a(void *unused) {
    (void)unused;
    written.text[written.size++] = 'a';
}
static void write_b(void *unused) {
    (void)unused;
    written.text[written.size++] = 'b';
}

static journal run_two_streams(uint64_t seed) {
    bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
    memset(&written, 0, sizeof written);
    for (int i = 0; i < 20; i++) {
        CHECK_OK(b.ops->stream_call(b.device, b.streams[0], write_a, NULL));
        CHECK_OK(b.ops->stream_call(b.device, b.streams[1], write_b, NULL));
    }
    CHECK_OK(b.ops->synchronize(b.device));
    close_bench(&b);
    return written;
}

TEST(a_seed_decides_the_order) {
    int different = 0;
    const journal first = run_two_streams(1);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const journal once = run_two_streams(seed), again = run_two_streams(seed);
        CHECK_EQ_INT(once.size, 40);
        CHECK(memcmp(&once, &again, sizeof once) == 0);
        different += memcmp(&once, &first, sizeof once) != 0;
    }
    CHECK(different > SEEDS / 2);
}

TEST(a_query_may_say_not_yet) {
    int refused = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        const mp_addr x = get(&b);
        bool idle = false;
        int asked = 0;
        clear(&b, x);
        CHECK_OK(queue_affine(&b, 0, x, x, 1, 7));
        for (; !idle; asked++) {
            CHECK(asked < 20);
            CHECK_OK(b.ops->stream_query(b.device, b.streams[0], &idle));
        }
        CHECK_EQ_INT(last_value(&b, x), 7);
        refused += asked > 1;
        give(&b, x);
        close_bench(&b);
    }
    CHECK(refused > 0);
}

/* Streams that come after each other in both directions, from many threads at once. */
typedef struct relay {
    const bench *b;
    mp_addr x;
    mp_event *event;
} relay;

static void *run_relay(void *context) {
    const relay *r = context;
    mp_device *device = r->b->device;
    mp_stream *streams[2];
    const affine_args args = {
        .y = (int64_t *)r->x, .x = (const int64_t *)r->x, .count = COUNT, .scale = 1, .shift = 1};
    CHECK_OK(r->b->ops->stream_create(device, &streams[0]));
    CHECK_OK(r->b->ops->stream_create(device, &streams[1]));
    for (int i = 0; i < 40; i++) {
        mp_stream *stream = streams[i % 2];
        CHECK_OK(r->b->ops->event_wait(device, r->event, stream));
        CHECK_OK(r->b->ops->launch(device, stream, r->b->affine,
                                   (mp_grid){.blocks = 1, .lanes = 32}, &args, sizeof args));
        CHECK_OK(r->b->ops->event_record(device, r->event, stream));
        if (i % 16 == 15) {
            CHECK_OK(r->b->ops->event_synchronize(device, r->event));
        }
    }
    CHECK_OK(r->b->ops->stream_synchronize(device, streams[1]));
    r->b->ops->stream_destroy(device, streams[0]);
    r->b->ops->stream_destroy(device, streams[1]);
    return NULL;
}

static void run_relays(int mode, uint64_t seed) {
    bench b = open_bench(mode, seed);
    relay relays[4];
    pthread_t threads[4];
    for (size_t i = 0; i < MP_COUNT_OF(relays); i++) {
        relays[i] = (relay){.b = &b, .x = get(&b)};
        clear(&b, relays[i].x);
        CHECK_OK(b.ops->event_create(b.device, false, &relays[i].event));
        CHECK(pthread_create(&threads[i], NULL, run_relay, &relays[i]) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(relays); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK_EQ_INT(last_value(&b, relays[i].x), 40);
        b.ops->event_destroy(b.device, relays[i].event);
        give(&b, relays[i].x);
    }
    close_bench(&b);
}

TEST(many_threads_share_a_device) {
    run_relays(MP_HOST_EAGER, 0);
    run_relays(MP_HOST_THREADED, 0);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        run_relays(MP_HOST_ADVERSARIAL, seed);
    }
}

/* ---- memory that is touched when it must not be ---- */

TEST(freeing_what_queued_work_uses_is_a_breach) {
    int found = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        const mp_addr x = get(&b);
        clear(&b, x);
        CHECK_OK(queue_affine(&b, 1, x, x, 1, 7));
        give(&b, x);
        if (mp__host_device_breach(b.device) != NULL) { /* it had not run yet */
            check_adversary_breach(&b, seed, "test_affine, queued on stream 2, still uses");
            found++;
        }
        close_bench(&b);
    }
    CHECK(found > SEEDS / 4);
}

TEST(work_on_freed_memory_is_a_breach) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        const mp_addr x = get(&b), y = get(&b);
        give(&b, x);
        CHECK_OK(queue_affine(&b, 0, y, x, 1, 7));
        check_adversary_breach(&b, seed, "test_affine, queued on stream 1, refers to freed memory");
        give(&b, y);
        close_bench(&b);
    }
}

TEST(copies_and_fills_of_freed_memory_are_a_breach) {
    bench b = open_bench(MP_HOST_ADVERSARIAL, 1);
    const mp_addr x = get(&b), y = get(&b);
    give(&b, x);
    CHECK_FAILS(b.ops->copy(b.device, b.streams[0], y, x, BYTES), INVALID_ARGUMENT, "freed memory");
    CHECK_FAILS(b.ops->fill(b.device, NULL, x, 0, 1, BYTES), INVALID_ARGUMENT, "freed memory");
    check_adversary_breach(&b, 1, "the source of a copy");
    give(&b, y);
    close_bench(&b);
}

TEST(writing_into_freed_memory_is_a_breach) {
    for (int when = 0; when < 2; when++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, 5);
        const mp_addr x = get(&b);
        give(&b, x);
        ((volatile char *)x)[100] = 1; /* still there: it waits in quarantine */
        if (when == 0) {
            check_adversary_breach(&b, 5, "written into freed memory");
        } else { /* or when it leaves the quarantine, which holds half of the device's memory */
            mp_addr large = 0;
            CHECK_OK(b.ops->alloc(b.device, (size_t)10 << 20, &large));
            b.ops->free(b.device, large, (size_t)10 << 20);
            CHECK_STR_HAS(mp__host_device_breach(b.device), "freed memory");
        }
        close_bench(&b);
    }
}

TEST(writing_behind_an_allocation_is_a_breach) {
    bench b = open_bench(MP_HOST_ADVERSARIAL, 5);
    const mp_addr x = get(&b);
    ((volatile char *)x)[BYTES + 3] = 1;
    give(&b, x);
    check_adversary_breach(&b, 5, "behind the end of an allocation");
    close_bench(&b);
}

TEST(freeing_twice_is_a_breach) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        bench b = open_bench(mode, 1);
        const mp_addr x = get(&b), y = get(&b);
        give(&b, x);
        give(&b, x);
        check_breach(&b, mode == MP_HOST_ADVERSARIAL ? "freed already" : "not an allocation");
        give(&b, y);
        close_bench(&b);
    }
}

TEST(freeing_with_another_size_is_a_breach) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        bench b = open_bench(mode, 1);
        const mp_addr x = get(&b);
        b.ops->free(b.device, x, BYTES / 2);
        check_breach(&b, "not an allocation of that size");
        b.ops->free_pinned(b.device, x, BYTES);
        give(&b, x);
        close_bench(&b);
    }
}

TEST(using_stream_memory_on_another_stream_shows) {
    int found = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        mp_addr x = 0;
        CHECK_OK(b.ops->mempool_alloc(b.device, b.mempool, b.streams[0], BYTES, &x));
        CHECK_OK(queue_affine(&b, 1, x, x, 0, 7)); /* comes after nothing */
        (void)b.ops->stream_synchronize(b.device, b.streams[1]);
        if (mp__host_device_breach(b.device) != NULL) {
            check_adversary_breach(&b, seed, "mempool_alloc has not been reached");
            found++;
        }
        CHECK_OK(b.ops->free_async(b.device, b.streams[0], x, BYTES));
        close_bench(&b);
    }
    CHECK(found > 0);
}

TEST(parts_given_back_to_a_pool_are_watched) {
    bench b = open_bench(MP_HOST_ADVERSARIAL, 3);
    const mp_addr x = get(&b), y = get(&b);
    clear(&b, x);
    clear(&b, y);
    b.ops->note(b.device, x, BYTES, false);
    b.ops->note(b.device, x, BYTES, true);
    CHECK_OK(queue_affine(&b, 0, x, y, 1, 7));
    b.ops->note(b.device, x, BYTES, false); /* queued before: allowed */
    CHECK_OK(b.ops->synchronize(b.device));
    CHECK_OK(queue_affine(&b, 0, y, x, 1, 7));
    check_adversary_breach(&b, 3, "given back to the pool");
    give(&b, x);
    give(&b, y);
    close_bench(&b);
}

TEST(fresh_memory_is_poisoned) {
    bench b = open_bench(MP_HOST_ADVERSARIAL, 3);
    const mp_addr x = get(&b);
    float values[COUNT];
    CHECK_OK(b.ops->copy(b.device, NULL, (mp_addr)values, x, sizeof values));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(values[i] != values[i]);
    }
    give(&b, x);
    close_bench(&b);
}

/* ---- lanes ---- */

static void skip_barrier(const void *args) {
    (void)args;
    if (k_lane.thread.x != 3) {
        k_host_barrier();
    }
}

static const mp_kernel_image skipping = {.name = "skips", .host = skip_barrier, .lanes = true};

TEST(a_missed_barrier_is_a_breach) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed);
        mp_kernel *kernel = NULL;
        const char none = 0;
        CHECK_OK(b.ops->kernel_load(b.device, &skipping, &kernel));
        CHECK_OK(b.ops->launch(b.device, b.streams[0], kernel, (mp_grid){.blocks = 2, .lanes = 8},
                               &none, sizeof none));
        check_adversary_breach(&b, seed, "kernel skips on stream 1: a lane has missed a barrier");
        b.ops->kernel_unload(b.device, kernel);
        close_bench(&b);
    }
}

typedef struct order_args {
    uint32_t *order;
    uint32_t *next;
} order_args;

static void note_order(const void *packed) {
    const order_args *a = packed;
    const uint32_t lane = k_lane.thread.x + k_lane.block.x * k_lane.block_dim.x;
    a->order[(*a->next)++] = lane;
    k_host_barrier();
    a->order[(*a->next)++] = lane;
}

static const mp_kernel_image ordering = {.name = "notes", .host = note_order, .lanes = true};

TEST(lanes_run_in_an_order_drawn_from_the_seed) {
    enum { BLOCKS = 3, LANES = 16, NOTES = BLOCKS * LANES * 2 };
    uint32_t orders[SEEDS][NOTES];
    int shuffled = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        bench b = open_bench(MP_HOST_ADVERSARIAL, seed + 1);
        mp_kernel *kernel = NULL;
        uint32_t next = 0, seen[BLOCKS * LANES] = {0};
        const order_args args = {.order = orders[seed], .next = &next};
        CHECK_OK(b.ops->kernel_load(b.device, &ordering, &kernel));
        CHECK_OK(b.ops->launch(b.device, b.streams[0], kernel,
                               (mp_grid){.blocks = BLOCKS, .lanes = LANES}, &args, sizeof args));
        CHECK_OK(b.ops->synchronize(b.device));
        CHECK_EQ_INT(next, NOTES);
        for (size_t i = 0; i < NOTES; i++) { /* each lane once before and once after the barrier */
            const uint32_t lane = orders[seed][i];
            CHECK(lane < BLOCKS * LANES);
            CHECK_EQ_INT(seen[lane]++, i / LANES % 2);
        }
        shuffled += memcmp(orders[seed], orders[0], sizeof orders[0]) != 0;
        b.ops->kernel_unload(b.device, kernel);
        close_bench(&b);
    }
    CHECK(shuffled >= SEEDS - 2);
}

/* ---- limits and wrong use ---- */

TEST(out_of_memory_says_the_sizes) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        bench b = open_bench(mode, 1); /* with 16 MiB */
        const size_t size = (size_t)12 << 20;
        mp_addr x = 0, y = 0;
        CHECK_OK(b.ops->alloc(b.device, size, &x));
        CHECK_FAILS(b.ops->alloc(b.device, size, &y), OUT_OF_MEMORY,
                    "12582912 bytes requested on emulated device 0, where 12582912 of 16777216");
        CHECK_FAILS(b.ops->mempool_alloc(b.device, b.mempool, b.streams[0], size, &y),
                    OUT_OF_MEMORY, "in use");
        CHECK_OK(b.ops->reserve(b.device, (size_t)8 << 20, &y));
        CHECK_FAILS(b.ops->map(b.device, y, (size_t)8 << 20), OUT_OF_MEMORY, "in use");
        b.ops->unreserve(b.device, y, (size_t)8 << 20);
        /* What a stream is still to free counts as free for that stream. */
        CHECK_OK(b.ops->free_async(b.device, b.streams[0], x, size));
        CHECK_OK(b.ops->mempool_alloc(b.device, b.mempool, b.streams[0], size, &x));
        CHECK_OK(b.ops->free_async(b.device, b.streams[0], x, size));
        CHECK_OK(b.ops->synchronize(b.device));
        close_bench(&b);
    }
}

TEST(wrong_ranges_are_refused) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        bench b = open_bench(mode, 1);
        const mp_addr x = get(&b), y = get(&b);
        char local[64] = {0};
        CHECK_FAILS(b.ops->copy(b.device, NULL, x, y, BYTES + 1), INVALID_ARGUMENT,
                    "larger than the allocation");
        CHECK_FAILS(b.ops->copy(b.device, b.streams[0], x + 8, x, 64), INVALID_ARGUMENT, "overlap");
        CHECK_FAILS(b.ops->copy(b.device, NULL, x, 0, 64), INVALID_ARGUMENT,
                    "not allocated memory");
        CHECK_FAILS(b.ops->fill(b.device, NULL, x, 0, 3, 4), INVALID_ARGUMENT, "width");
        CHECK_FAILS(b.ops->fill(b.device, NULL, x + 1, 0, 4, 4), INVALID_ARGUMENT, "divide");
        CHECK_FAILS(b.ops->fill(b.device, NULL, x, 0, 4, BYTES), INVALID_ARGUMENT, "larger");
        CHECK_FAILS(b.ops->fill(b.device, NULL, (mp_addr)local, 0, 1, 64), INVALID_ARGUMENT,
                    "neither device memory nor pinned");
        CHECK_FAILS(b.ops->map(b.device, x, 4096), INVALID_ARGUMENT, "granule");
        CHECK_OK(b.ops->synchronize(b.device));
        give(&b, x);
        give(&b, y);
        close_bench(&b);
    }
}

TEST(wrong_launches_are_refused) {
    bench b = open_bench(MP_HOST_EAGER, 1);
    const affine_args args = {.count = 0};
    const mp_grid grids[] = {{.blocks = 0, .lanes = 1},
                             {.blocks = 1, .lanes = 0},
                             {.blocks = 1, .lanes = 2048},
                             {.blocks = 1, .lanes = 1, .shared_bytes = 1 << 20},
                             {.blocks = 2, .lanes = 1, .meets = 2}};
    for (size_t i = 0; i < MP_COUNT_OF(grids); i++) {
        CHECK_FAILS(b.ops->launch(b.device, b.streams[0], b.affine, grids[i], &args, sizeof args),
                    INVALID_ARGUMENT, "launch of test_affine");
    }
    const mp_kernel_image gpu_only = {.name = "gpu_only"};
    mp_kernel *kernel = NULL;
    CHECK_FAILS(b.ops->kernel_load(b.device, &gpu_only, &kernel), UNSUPPORTED, "gpu_only");
    close_bench(&b);
}

TEST(wrong_captures_are_refused) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        bench b = open_bench(mode, 1);
        mp_graph_exec *graph = NULL, *other = NULL;
        mp_event *outside = NULL, *inside = NULL;
        mp_addr x = get(&b), y = 0;
        char local[64] = {0};
        bool idle = false;
        CHECK_OK(b.ops->event_create(b.device, false, &outside));
        CHECK_OK(b.ops->event_create(b.device, false, &inside));
        CHECK_OK(b.ops->event_record(b.device, outside, b.streams[1]));
        CHECK_FAILS(b.ops->capture_end(b.device, b.streams[0], &graph), INVALID_ARGUMENT, "begun");
        CHECK_OK(b.ops->capture_begin(b.device, b.streams[0]));
        CHECK_FAILS(b.ops->capture_begin(b.device, b.streams[0]), INVALID_ARGUMENT, "already");
        CHECK_FAILS(b.ops->stream_synchronize(b.device, b.streams[0]), INVALID_ARGUMENT,
                    "being captured");
        CHECK_FAILS(b.ops->stream_query(b.device, b.streams[0], &idle), INVALID_ARGUMENT,
                    "being captured");
        CHECK_FAILS(b.ops->synchronize(b.device), INVALID_ARGUMENT, "being captured");
        CHECK_FAILS(b.ops->fill(b.device, b.streams[0], x, 0, 4, 4), DEVICE, "broken the capture");
        CHECK_FAILS(b.ops->capture_end(b.device, b.streams[0], &graph), DEVICE, "broken");
        CHECK_OK(b.ops->capture_begin(b.device, b.streams[0]));
        CHECK_FAILS(b.ops->copy(b.device, NULL, x, (mp_addr)local, 64), INVALID_ARGUMENT,
                    "captures");
        CHECK_FAILS(b.ops->copy(b.device, b.streams[0], x, (mp_addr)local, 64), INVALID_ARGUMENT,
                    "not pinned");
        CHECK_FAILS(b.ops->mempool_alloc(b.device, b.mempool, b.streams[0], 64, &y), UNSUPPORTED,
                    "captured");
        CHECK_FAILS(b.ops->event_wait(b.device, outside, b.streams[0]), INVALID_ARGUMENT,
                    "outside of the capture");
        CHECK_OK(b.ops->event_record(b.device, inside, b.streams[0]));
        CHECK_OK(b.ops->capture_end(b.device, b.streams[0], &graph));
        CHECK_FAILS(b.ops->event_synchronize(b.device, inside), INVALID_ARGUMENT, "capture");
        CHECK_FAILS(b.ops->event_wait(b.device, inside, b.streams[1]), INVALID_ARGUMENT, "ended");
        CHECK_OK(b.ops->capture_begin(b.device, b.streams[0]));
        CHECK_FAILS(b.ops->graph_launch(b.device, graph, b.streams[0]), UNSUPPORTED, "captured");
        CHECK_OK(b.ops->capture_end(b.device, b.streams[0], &other));
        b.ops->graph_destroy(b.device, graph);
        b.ops->graph_destroy(b.device, other);
        b.ops->event_destroy(b.device, outside);
        b.ops->event_destroy(b.device, inside);
        give(&b, x);
        close_bench(&b);
    }
}

TEST(a_stream_may_go_while_it_is_captured) {
    bench b = open_bench(MP_HOST_ADVERSARIAL, 1);
    mp_stream *stream = NULL;
    mp_addr x = get(&b);
    CHECK_OK(b.ops->stream_create(b.device, &stream));
    CHECK_OK(b.ops->capture_begin(b.device, stream));
    CHECK_OK(b.ops->fill(b.device, stream, x, 0, 4, 4));
    b.ops->stream_destroy(b.device, stream);
    CHECK_OK(b.ops->synchronize(b.device)); /* no capture is left on this thread */
    give(&b, x);
    close_bench(&b);
}

TEST(what_is_left_is_counted) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        bench b = open_bench(mode, 1);
        mp_event *event = NULL;
        mp_graph_exec *graph = NULL;
        mp_addr x = get(&b), pinned = 0, base = 0;
        const size_t granule = b.ops->granule(b.device);
        CHECK_OK(b.ops->alloc_pinned(b.device, 100, &pinned));
        CHECK_OK(b.ops->reserve(b.device, 2 * granule, &base));
        CHECK_OK(b.ops->map(b.device, base, granule));
        CHECK_OK(b.ops->event_create(b.device, false, &event));
        CHECK_OK(b.ops->capture_begin(b.device, b.streams[0]));
        CHECK_OK(b.ops->fill(b.device, b.streams[0], x, 0, 4, 4));
        CHECK_OK(b.ops->capture_end(b.device, b.streams[0], &graph));
        CHECK_OK(queue_affine(&b, 0, x, x, 1, 7));
        /* 2 allocations, 1 reservation, 1 mapping, event, graph, 2 streams, kernel, mempool */
        CHECK_EQ_INT(mp__host_device_destroy(b.device), 10);
    }
}

TEST(emulated_devices_reach_each_other) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        bench a = open_bench(mode, 1), b = open_bench(mode, 2);
        const mp_addr x = get(&a), y = get(&b);
        clear(&a, x);
        CHECK_OK(b.ops->peer_enable(b.device, a.device));
        CHECK_OK(queue_affine(&a, 0, x, x, 1, 9));
        CHECK_OK(a.ops->stream_synchronize(a.device, a.streams[0]));
        CHECK_OK(b.ops->copy(b.device, b.streams[0], y, x, BYTES));
        CHECK_OK(b.ops->stream_synchronize(b.device, b.streams[0]));
        CHECK_EQ_INT(last_value(&b, y), 9);
        CHECK_FAILS(b.ops->copy(b.device, NULL, y, x, BYTES + 8), INVALID_ARGUMENT, "larger");
        give(&a, x);
        give(&b, y);
        close_bench(&a);
        close_bench(&b);
    }
}

/* ---- faults ---- */

typedef struct held { /* what many_calls has got so far */
    mp_stream *stream;
    mp_event *event;
    mp_graph_exec *graph;
    mp_math *math;
    mp_addr x, pinned, base;
    mp_mempool *mempool;
    mp_addr y;
} held;

static mp_status many_calls(const bench *b, held *h) {
    mp_device *device = b->device;
    const mp_gemm gemm = {.type = MP_F32,
                          .m = 4,
                          .n = 4,
                          .k = 4,
                          .lda = 4,
                          .ldb = 4,
                          .ldc = 4,
                          .batch = 1,
                          .alpha = 1.0F};
    MP_TRY(b->ops->stream_create(device, &h->stream));
    MP_TRY(b->ops->event_create(device, false, &h->event));
    MP_TRY(b->ops->alloc(device, BYTES, &h->x));
    MP_TRY(b->ops->alloc_pinned(device, BYTES, &h->pinned));
    MP_TRY(b->ops->fill(device, h->stream, h->x, 0, 4, BYTES / 4));
    MP_TRY(b->ops->copy(device, h->stream, h->pinned, h->x, BYTES));
    MP_TRY(b->ops->event_record(device, h->event, h->stream));
    MP_TRY(b->ops->event_wait(device, h->event, b->streams[0]));
    MP_TRY(queue_affine(b, 0, h->x, h->x, 1, 1));
    MP_TRY(b->ops->gemm_prepare(device, &gemm, &h->math));
    MP_TRY(b->ops->capture_begin(device, h->stream));
    MP_TRY(b->ops->capture_end(device, h->stream, &h->graph));
    MP_TRY(b->ops->graph_launch(device, h->graph, h->stream));
    MP_TRY(b->ops->reserve(device, 2 * GRANULE, &h->base));
    MP_TRY(b->ops->map(device, h->base, GRANULE));
    MP_TRY(b->ops->remap(device, h->base + GRANULE, h->base, GRANULE));
    MP_TRY(b->ops->mempool_create(device, 0, &h->mempool));
    MP_TRY(b->ops->mempool_alloc(device, h->mempool, h->stream, BYTES, &h->y));
    MP_TRY(b->ops->free_async(device, h->stream, h->y, BYTES));
    h->y = 0;
    MP_TRY(b->ops->mempool_trim(device, h->mempool, 0));
    return b->ops->synchronize(device);
}

static void release(const bench *b, const held *h) {
    mp_device *device = b->device;
    CHECK_OK(b->ops->stream_synchronize(device, b->streams[0]));
    if (h->y != 0) {
        CHECK_OK(b->ops->free_async(device, b->streams[0], h->y, BYTES));
    }
    if (h->mempool != NULL) {
        b->ops->mempool_destroy(device, h->mempool);
    }
    if (h->base != 0) {
        for (int i = 0; i < 2; i++) {
            (void)b->ops->unmap(device, h->base + (mp_addr)i * GRANULE, GRANULE); /* one of them */
        }
        b->ops->unreserve(device, h->base, 2 * GRANULE);
    }
    if (h->stream != NULL) {
        b->ops->stream_destroy(device, h->stream);
    }
    if (h->math != NULL) {
        b->ops->math_release(device, h->math);
    }
    if (h->graph != NULL) {
        b->ops->graph_destroy(device, h->graph);
    }
    if (h->event != NULL) {
        b->ops->event_destroy(device, h->event);
    }
    if (h->pinned != 0) {
        b->ops->free_pinned(device, h->pinned, BYTES);
    }
    if (h->x != 0) {
        b->ops->free(device, h->x, BYTES);
    }
}

/* Returns whether the row of calls ended before the nth one that may fail. */
static bool fail_nth(int mode, uint64_t nth) {
    bench b = open_bench(mode, nth);
    held h = {.stream = NULL};
    CHECK(!mp__host_device_fail(b.device, nth, MP_OUT_OF_MEMORY));
    const mp_status status = many_calls(&b, &h);
    if (status != MP_OK) {
        CHECK_EQ_INT(status, MP_OUT_OF_MEMORY);
        CHECK_STR_HAS(mp_error_message(), "because a test asked for it");
    }
    CHECK(mp__host_device_fail(b.device, 0, MP_OK) == (status == MP_OK));
    release(&b, &h);
    close_bench(&b);
    return status == MP_OK;
}

TEST(the_nth_call_fails_once) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        uint64_t nth = 1;
        while (!fail_nth(mode, nth)) {
            nth++;
        }
        CHECK_EQ_INT(nth, 22); /* each of the 21 calls has failed once */
    }
}

TEST(a_fault_can_be_disarmed) {
    bench b = open_bench(MP_HOST_EAGER, 1);
    mp_addr x = 0;
    CHECK(!mp__host_device_fail(b.device, 1, MP_DEVICE));
    CHECK(mp__host_device_fail(b.device, 0, MP_OK));
    x = get(&b);
    give(&b, x);
    close_bench(&b);
}

/* ---- settings ---- */

static void check_setting(const char *name, const char *value, mp_status expected,
                          const char *words) {
    mp_device *device = NULL;
    (void)setenv(name, value, 1);
    CHECK_EQ_INT(mp__host_device_get(0, &device), expected);
    if (expected != MP_OK) {
        CHECK_STR_HAS(mp_error_message(), words);
    }
    (void)unsetenv(name);
}

TEST(wrong_settings_are_explained) {
    NEEDS_OWN_PROCESS();
    mp_device *device = NULL;
    (void)unsetenv("MILLPOND_HOST");
    check_setting("MILLPOND_HOST", "lazy", MP_INVALID_ARGUMENT, "eager, threaded, adversarial");
    check_setting("MILLPOND_HOST", "adversarial:x", MP_INVALID_ARGUMENT, "seed");
    check_setting("MILLPOND_HOST_MEMORY", "much", MP_INVALID_ARGUMENT, "\"much\"");
    check_setting("MILLPOND_HOST_DEVICES", "9", MP_INVALID_ARGUMENT, "from 1 to 8");
    CHECK_FAILS(mp__host_device_get(1, &device), INVALID_ARGUMENT, "device 1 requested");
    (void)setenv("MILLPOND_HOST_MEMORY", "3M", 1);
    check_setting("MILLPOND_HOST", "Adversarial:77", MP_OK, "");
    CHECK_OK(mp_device_get(MP_DEVICE_HOST, 0, &device));
    CHECK_EQ_INT(device->info.memory_bytes, 3 << 20);
    CHECK_EQ_INT(device->info.kind, MP_DEVICE_HOST);
    (void)setenv("MILLPOND_HOST_DEVICES", "2", 1);
    CHECK_EQ_INT(mp_device_count(MP_DEVICE_HOST, NULL), 2);
    CHECK_OK(mp__host_device_get(1, &device));
    CHECK_EQ_INT(device->ordinal, 1);
}
