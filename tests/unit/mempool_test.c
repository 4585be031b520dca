/* mempool_test.c - a pool in mempool mode: order, figures, streams that end, faults, threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "device/host/host_device.h"
#include "pool/mempool/mempool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { KIB = 1 << 10, MIB = 1 << 20, BLOCK = 64 * KIB, CLIENT = 1 };

/* ---- short words ---- */

typedef struct bench {
    mp_device *device;
    const mp_device_ops *ops;
    mp__mempool *pool;
    mp_stream *a, *b;
} bench;

static mp_stream *open_stream(mp_device *device) {
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    return stream;
}

static bench open_bench(mp_device *device, size_t threshold, size_t keep) {
    bench x = {.device = device, .ops = device->ops};
    const mp__mempool_options options = {
        .max_mem = SIZE_MAX, .release_threshold = threshold, .bytes_to_keep_on_shrink = keep};
    const mp_status status = mp__mempool_create(device, &options, &x.pool);
    if (status == MP_UNSUPPORTED && device->info.kind == MP_DEVICE_CUDA) {
        SKIP("%s", mp_error_message());
    }
    CHECK_OK(status);
    x.a = open_stream(device);
    x.b = open_stream(device);
    return x;
}

static void close_bench(bench *x) {
    mp__mempool_destroy(x->pool);
    x->ops->stream_destroy(x->device, x->a);
    x->ops->stream_destroy(x->device, x->b);
}

static void *native_of(const bench *x, mp_stream *stream) {
    return x->ops->stream_native(x->device, stream);
}

static mp_addr lend(const bench *x, size_t size, mp_stream *stream) {
    mp_addr addr = 0;
    CHECK_OK(mp__mempool_alloc(x->pool, size, native_of(x, stream), CLIENT, &addr));
    CHECK(addr != 0 && addr % MP_ALIGNMENT == 0);
    return addr;
}

static void fill(const bench *x, mp_stream *stream, mp_addr addr, uint32_t value) {
    CHECK_OK(x->ops->fill(x->device, stream, addr, value, 4, BLOCK / 4));
}

/* Queues a copy of a block's last word. */
static void read_last(const bench *x, mp_stream *stream, mp_addr target, mp_addr block) {
    CHECK_OK(x->ops->copy(x->device, stream, target, block + BLOCK - 4, 4));
}

/* Lets `second` wait for all that `first` has queued. */
static void order(const bench *x, mp_stream *first, mp_stream *second) {
    mp_event *event = NULL;
    CHECK_OK(x->ops->event_create(x->device, false, &event));
    CHECK_OK(x->ops->event_record(x->device, event, first));
    CHECK_OK(x->ops->event_wait(x->device, event, second));
    x->ops->event_destroy(x->device, event);
}

static mp_pool_stats stats_of(const bench *x) {
    mp_pool_stats stats = {0};
    CHECK_OK(mp__mempool_stats(x->pool, &stats));
    CHECK(stats.total >= stats.in_use && stats.total_max >= stats.total);
    CHECK(stats.in_use >= stats.requested && stats.in_use_max >= stats.in_use);
    return stats;
}

static size_t free_bytes(mp_device *device) {
    size_t left = 0, total = 0;
    CHECK_OK(device->ops->memory_info(device, &left, &total));
    return left;
}

/* ---- order ---- */

DEVICE_TEST(mempool_blocks_follow_their_stream) {
    enum { ROUNDS = 40 };
    bench x = open_bench(device, 64 * MIB, 0);
    mp_addr results = 0;
    CHECK_OK(x.ops->alloc_pinned(device, ROUNDS * 4, &results));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        mp_stream *stream = i % 3 == 0 ? x.b : x.a;
        const mp_addr block = lend(&x, BLOCK, stream);
        fill(&x, stream, block, i + 1);
        read_last(&x, stream, results + 4 * (mp_addr)i, block);
        CHECK_OK(mp__mempool_free(x.pool, block)); /* the work above is still queued */
    }
    CHECK_OK(x.ops->synchronize(device));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        CHECK_EQ_INT(((const uint32_t *)results)[i], i + 1);
    }
    CHECK_EQ_INT(stats_of(&x).in_use, 0);
    x.ops->free_pinned(device, results, ROUNDS * 4);
    close_bench(&x);
}

/* A free waits for the work of every declared stream; free_on waits for its stream alone. */
DEVICE_TEST(mempool_blocks_are_used_on_further_streams) {
    enum { ROUNDS = 20 };
    bench x = open_bench(device, 64 * MIB, 0);
    mp_addr results = 0;
    CHECK_OK(x.ops->alloc_pinned(device, ROUNDS * 4, &results));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const mp_addr block = lend(&x, BLOCK, x.a);
        fill(&x, x.a, block, i + 1);
        order(&x, x.a, x.b);
        read_last(&x, x.b, results + 4 * (mp_addr)i, block);
        if (i % 2 == 0) {
            CHECK_OK(mp__mempool_record_use(x.pool, block, native_of(&x, x.b)));
            CHECK_OK(mp__mempool_record_use(x.pool, block, native_of(&x, x.b)));
            CHECK_OK(mp__mempool_record_use(x.pool, block, native_of(&x, x.a)));
            CHECK_OK(mp__mempool_free(x.pool, block));
        } else {
            CHECK_OK(mp__mempool_free_on(x.pool, block, native_of(&x, x.b)));
        }
    }
    CHECK_OK(x.ops->synchronize(device));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        CHECK_EQ_INT(((const uint32_t *)results)[i], i + 1);
    }
    const mp_pool_stats stats = stats_of(&x);
    CHECK_EQ_INT(stats.events, ROUNDS); /* half of the rounds: before the use, and at the free */
    CHECK_EQ_INT(stats.waits, ROUNDS);
    CHECK_EQ_INT(stats.frees, ROUNDS);
    x.ops->free_pinned(device, results, ROUNDS * 4);
    close_bench(&x);
}

/* Memory without a stream serves any stream at once, without an order. */
DEVICE_TEST(mempool_blocks_without_a_stream_are_ready) {
    bench x = open_bench(device, 0, 0);
    for (int i = 0; i < 4; i++) {
        mp_addr block = 0;
        CHECK_OK(mp__mempool_alloc(x.pool, BLOCK, MP_NO_STREAM, 0, &block));
        fill(&x, i % 2 == 0 ? x.a : x.b, block, 5);
        CHECK_OK(x.ops->synchronize(device));
        CHECK_OK(mp__mempool_free(x.pool, block));
    }
    close_bench(&x);
}

DEVICE_TEST(mempool_lends_on_default_streams) {
    bench x = open_bench(device, 0, 0);
    const bool on_gpu = device->info.kind == MP_DEVICE_CUDA;
    mp_addr refused = 0;
    if (on_gpu) {
        CHECK_FAILS(mp__mempool_alloc(x.pool, BLOCK, (void *)2, 0, &refused), UNSUPPORTED,
                    "handle 2");
    }
    for (uintptr_t native = 0; native <= (on_gpu ? 1U : 2U); native++) {
        mp_stream *wrap = NULL;
        mp_addr block = 0;
        uint32_t word = 0;
        CHECK_OK(mp__mempool_alloc(x.pool, BLOCK, (void *)native, 0, &block));
        CHECK_OK(x.ops->stream_wrap(device, (void *)native, &wrap));
        fill(&x, wrap, block, 9);
        CHECK_OK(x.ops->stream_synchronize(device, wrap));
        read_last(&x, NULL, (mp_addr)&word, block);
        CHECK_EQ_INT(word, 9);
        CHECK_OK(mp__mempool_free(x.pool, block));
        x.ops->stream_destroy(device, wrap);
    }
    mp_share shares[8];
    CHECK_EQ_INT(mp__mempool_stream_shares(x.pool, shares, MP_COUNT_OF(shares)),
                 on_gpu ? 1 : 2); /* 0 is 1 */
    close_bench(&x);
}

typedef struct borrower {
    const bench *x;
    mp_addr block;
} borrower;

static void *borrow_on_own_default_stream(void *context) {
    borrower *own = context;
    const bench *x = own->x;
    mp_stream *wrap = NULL;
    CHECK_OK(mp__mempool_alloc(x->pool, BLOCK, (void *)2, 0, &own->block));
    CHECK_OK(x->ops->stream_wrap(x->device, (void *)2, &wrap));
    fill(x, wrap, own->block, 1);
    x->ops->stream_destroy(x->device, wrap);
    return NULL;
}

/* The handle 2 means another stream here; the block must not be freed in this one's order. */
DEVICE_TEST(mempool_blocks_of_other_threads_default_streams) {
    if (device->info.kind == MP_DEVICE_CUDA) {
        SKIP("refused on a GPU");
    }
    bench x = open_bench(device, 0, 0);
    for (int i = 0; i < 3; i++) {
        borrower own = {.x = &x};
        pthread_t thread;
        CHECK_EQ_INT(pthread_create(&thread, NULL, borrow_on_own_default_stream, &own), 0);
        CHECK_EQ_INT(pthread_join(thread, NULL), 0);
        CHECK_OK(mp__mempool_free(x.pool, own.block));
    }
    CHECK_EQ_INT(stats_of(&x).in_use, 0);
    close_bench(&x);
}

/* ---- figures ---- */

DEVICE_TEST(mempool_statistics_are_exact) {
    bench x = open_bench(device, 64 * MIB, 0);
    mp_addr first = lend(&x, 1000, x.a), second = lend(&x, 3000, x.b), third = 0, empty = 0;
    CHECK_OK(mp__mempool_reserve(x.pool, 5000, 2, &third));
    CHECK_OK(mp__mempool_alloc(x.pool, 0, MP_NO_STREAM, 2, &empty));
    mp_pool_stats stats = stats_of(&x);
    CHECK(stats.limit == UINT64_MAX);
    CHECK_EQ_INT(stats.requested, 9001);
    CHECK_EQ_INT(stats.in_use, 1024 + 3072 + 5120 + 256);
    CHECK_EQ_INT(stats.allocs, 4);
    CHECK_EQ_INT(stats.reserves, 1);
    CHECK_EQ_INT(stats.alloc_size_max, 5000);
    CHECK_EQ_INT(stats.frees, 0);
    const mp_share one = mp__mempool_client_share(x.pool, 1);
    CHECK_EQ_INT(one.in_use, 4096);
    CHECK_EQ_INT(one.requested, 4000);
    CHECK_EQ_INT(one.blocks, 2);
    CHECK_EQ_INT(one.allocs, 2);
    CHECK_EQ_INT(mp__mempool_client_share(x.pool, 2).requested, 5001);
    CHECK_EQ_INT(mp__mempool_client_share(x.pool, 0).allocs, 0);
    mp_share shares[4] = {{{0}, 0, 0, 0, 0, 0, 0}};
    CHECK_EQ_INT(mp__mempool_stream_shares(x.pool, NULL, 0), 3);
    CHECK_EQ_INT(mp__mempool_stream_shares(x.pool, shares, 4), 3);
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        sum += shares[i].requested;
        CHECK(shares[i].stream != native_of(&x, x.a) || shares[i].requested == 1000);
    }
    CHECK_EQ_INT(sum, 9001);
    CHECK_OK(mp__mempool_free(x.pool, first));
    CHECK_OK(mp__mempool_free(x.pool, second));
    CHECK_OK(mp__mempool_free(x.pool, third));
    CHECK_OK(mp__mempool_free(x.pool, empty));
    stats = stats_of(&x);
    CHECK_EQ_INT(stats.in_use, 0);
    CHECK_EQ_INT(stats.requested, 0);
    CHECK_EQ_INT(stats.frees, 4);
    CHECK_EQ_INT(stats.in_use_max, 1024 + 3072 + 5120 + 256);
    CHECK_OK(mp__mempool_reset_peaks(x.pool));
    CHECK_EQ_INT(stats_of(&x).in_use_max, 0);
    CHECK_EQ_INT(mp__mempool_client_share(x.pool, 1).blocks, 0);
    close_bench(&x);
}

DEVICE_TEST(mempool_shows_its_blocks) {
    bench x = open_bench(device, 0, 0);
    const mp_addr first = lend(&x, 1000, x.a), second = lend(&x, BLOCK, x.b);
    mp__mempool_block found = {0};
    mp_layout layout = {0};
    CHECK_OK(mp__mempool_find(x.pool, second + BLOCK - 1, &found));
    CHECK_EQ_INT(found.addr, second);
    CHECK_EQ_INT(found.requested, BLOCK);
    CHECK(found.stream == native_of(&x, x.b) && found.client == 1);
    CHECK_FAILS(mp__mempool_find(x.pool, (mp_addr)&found, &found), NOT_FOUND, "no allocated block");
    CHECK_OK(mp__mempool_layout(x.pool, &layout));
    CHECK_EQ_INT(layout.region_count, 2);
    CHECK_EQ_INT(layout.block_count, 2);
    CHECK_EQ_INT(layout.stats.in_use, 1024 + BLOCK);
    CHECK(layout.device == device && layout.blocks[0].addr < layout.blocks[1].addr);
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQ_INT(layout.regions[i].addr, layout.blocks[i].addr);
        CHECK_EQ_INT(layout.regions[i].first_block, i);
        CHECK_EQ_INT(layout.blocks[i].state, MP_BLOCK_LENT);
        CHECK_EQ_INT(layout.blocks[i].requested, layout.blocks[i].addr == first ? 1000 : BLOCK);
    }
    mp__layout_free(&layout);
    CHECK_OK(mp__mempool_free(x.pool, first));
    CHECK_OK(mp__mempool_free(x.pool, second));
    close_bench(&x);
}

DEVICE_TEST(mempool_refuses_what_it_has_not_lent) {
    bench x = open_bench(device, 0, 0);
    const mp_addr block = lend(&x, BLOCK, x.a);
    int other = 0;
    CHECK_OK(mp__mempool_free(x.pool, 0));
    CHECK_FAILS(mp__mempool_free(x.pool, block + 256), INVALID_ARGUMENT, "not an allocated block");
    CHECK_FAILS(mp__mempool_free(x.pool, (mp_addr)&other), INVALID_ARGUMENT, "0x");
    CHECK_FAILS(mp__mempool_record_use(x.pool, block + 1, NULL), INVALID_ARGUMENT,
                "not an allocated");
    CHECK_OK(mp__mempool_free(x.pool, block));
    CHECK_FAILS(mp__mempool_free(x.pool, block), INVALID_ARGUMENT, "freed already");
    CHECK_FAILS(mp__mempool_free_on(x.pool, block, NULL), INVALID_ARGUMENT, "freed already");
    mp_addr untouched = 77;
    CHECK_FAILS(mp__mempool_alloc(x.pool, SIZE_MAX, NULL, 0, &untouched), OUT_OF_MEMORY,
                "bytes requested");
    CHECK_EQ_INT(untouched, 77);
    const mp_pool_stats stats = stats_of(&x);
    CHECK_EQ_INT(stats.frees, 1);
    close_bench(&x);
}

/* ---- giving back ---- */

DEVICE_TEST(mempool_shrinks_to_what_is_kept) {
    static const size_t keeps[] = {0, 256 * MIB};
    for (size_t i = 0; i < MP_COUNT_OF(keeps); i++) {
        bench x = open_bench(device, 128 * MIB, keeps[i]);
        const mp_addr held = lend(&x, BLOCK, x.a);
        for (int n = 0; n < 4; n++) {
            CHECK_OK(mp__mempool_free(x.pool, lend(&x, 4 * MIB, n % 2 == 0 ? x.a : x.b)));
        }
        CHECK_OK(x.ops->synchronize(device));
        const uint64_t total = stats_of(&x).total;
        size_t released = 1;
        CHECK(total >= 4 * MIB);
        CHECK_OK(mp__mempool_free(x.pool, held));
        CHECK_OK(mp__mempool_shrink(x.pool, &released));
        CHECK_EQ_INT(stats_of(&x).total, keeps[i] == 0 ? 0 : total);
        CHECK_EQ_INT(released, keeps[i] == 0 ? total : 0);
        CHECK_EQ_INT(stats_of(&x).shrinkages, keeps[i] == 0 ? 1 : 0);
        close_bench(&x);
    }
}

DEVICE_TEST_ALONE(mempool_returns_what_is_left_at_the_end) {
    const size_t before = free_bytes(device);
    bench x = open_bench(device, 64 * MIB, 64 * MIB);
    for (int i = 0; i < 5; i++) {
        fill(&x, x.a, lend(&x, 8 * MIB, x.a), 1); /* left allocated, in use by queued work */
    }
    close_bench(&x);
    if (device->info.kind == MP_DEVICE_HOST) {
        CHECK_EQ_INT(free_bytes(device), before);
    } else { /* of 40 MiB; the driver may keep some for itself, and others use the GPU too */
        CHECK(free_bytes(device) + 32 * MIB > before);
    }
}

/* ---- streams that end ---- */

DEVICE_TEST(mempool_blocks_outlive_their_stream) {
    bench x = open_bench(device, 0, 0);
    for (uint32_t i = 0; i < 6; i++) {
        mp_stream *gone = open_stream(device);
        const mp_addr block = lend(&x, BLOCK, gone), used = lend(&x, BLOCK, x.a);
        uint32_t words[2] = {0};
        fill(&x, gone, block, i);
        fill(&x, x.a, used, i + 100);
        order(&x, x.a, gone);
        CHECK_OK(mp__mempool_record_use(x.pool, used, native_of(&x, gone)));
        CHECK_OK(mp__mempool_stream_gone(x.pool, native_of(&x, gone)));
        x.ops->stream_destroy(device, gone);
        CHECK_OK(x.ops->synchronize(device));
        read_last(&x, NULL, (mp_addr)&words[0], block);
        read_last(&x, NULL, (mp_addr)&words[1], used);
        CHECK_EQ_INT(words[0], i);
        CHECK_EQ_INT(words[1], i + 100);
        mp__mempool_block found = {0};
        CHECK_OK(mp__mempool_find(x.pool, block, &found));
        CHECK(found.stream == MP_NO_STREAM);
        CHECK_OK(mp__mempool_free(x.pool, block));
        CHECK_OK(mp__mempool_free(x.pool, used));
    }
    CHECK_OK(mp__mempool_stream_gone(x.pool, native_of(&x, x.b))); /* never allocated on */
    CHECK_EQ_INT(stats_of(&x).in_use, 0);
    mp_share shares[4];
    CHECK_EQ_INT(mp__mempool_stream_shares(x.pool, shares, 4), 1);
    CHECK_EQ_INT(shares[0].in_use, 0);
    close_bench(&x);
}

/* Of which the driver would not survive a question. */
DEVICE_TEST(mempool_blocks_outlive_a_stream_that_was_destroyed) {
    bench x = open_bench(device, 0, 0);
    mp_stream *gone = open_stream(device);
    void *native = native_of(&x, gone);
    const mp_addr block = lend(&x, BLOCK, gone);
    uint32_t word = 0;
    fill(&x, gone, block, 5);
    CHECK_OK(x.ops->stream_synchronize(device, gone));
    x.ops->stream_destroy(device, gone);
    CHECK_OK(mp__mempool_stream_over(x.pool, native, CLIENT));
    CHECK_OK(mp__mempool_stream_over(x.pool, native, CLIENT)); /* it has nothing any more */
    read_last(&x, NULL, (mp_addr)&word, block);
    CHECK_EQ_INT(word, 5);
    CHECK_OK(mp__mempool_free(x.pool, block));
    close_bench(&x);
}

/* Whether another client's memory is waited for. */
DEVICE_TEST(mempool_stream_of_two_clients_is_waited_for) {
    bench x = open_bench(device, 0, 0);
    const mp_addr block = lend(&x, BLOCK, x.a), used = lend(&x, BLOCK, x.b);
    uint32_t words[2] = {0};
    CHECK_OK(mp__mempool_record_use(x.pool, used, native_of(&x, x.a)));
    for (uint32_t i = 0; i < 2; i++) {
        fill(&x, x.a, i == 0 ? block : used, i + 7);
        CHECK_OK(mp__mempool_stream_over(x.pool, native_of(&x, x.a), CLIENT + 1));
        read_last(&x, NULL, (mp_addr)&words[i], i == 0 ? block : used);
        CHECK_EQ_INT(words[i], i + 7);
        CHECK_OK(mp__mempool_record_use(x.pool, used, native_of(&x, x.a)));
    }
    CHECK_OK(mp__mempool_free(x.pool, block));
    CHECK_OK(mp__mempool_free(x.pool, used));
    close_bench(&x);
}

/* ---- captures ---- */

DEVICE_TEST(mempool_leaves_captures_alone) {
    bench x = open_bench(device, 0, 0);
    const mp_addr block = lend(&x, BLOCK, x.a), used = lend(&x, BLOCK, x.b);
    const mp_addr target = lend(&x, BLOCK, x.b);
    mp_addr more = 0;
    mp_graph_exec *graph = NULL;
    mp_layout layout = {0};
    CHECK_OK(mp__mempool_record_use(x.pool, used, native_of(&x, x.a)));
    CHECK_OK(x.ops->synchronize(device));
    CHECK_OK(x.ops->capture_begin(device, x.a));
    fill(&x, x.a, target, 6);
    CHECK_FAILS(mp__mempool_alloc(x.pool, BLOCK, native_of(&x, x.a), 0, &more), UNSUPPORTED,
                "captured");
    CHECK_OK(mp__mempool_free(x.pool, block)); /* later */
    CHECK_OK(mp__mempool_free(x.pool, used));  /* later, too: the capture may use it */
    CHECK_FAILS(mp__mempool_free(x.pool, block), INVALID_ARGUMENT, "freed already");
    CHECK_OK(mp__mempool_free(x.pool, lend(&x, BLOCK, x.b)));
    CHECK_OK(mp__mempool_alloc(x.pool, BLOCK, MP_NO_STREAM, 0, &more));
    CHECK_OK(mp__mempool_free(x.pool, more));
    CHECK_OK(mp__mempool_shrink(x.pool, NULL));
    CHECK_OK(mp__mempool_layout(x.pool, &layout));
    CHECK_EQ_INT(layout.block_count, 3);
    CHECK_EQ_INT(layout.stats.in_use, BLOCK);
    mp__layout_free(&layout);
    CHECK_OK(x.ops->capture_end(device, x.a, &graph));
    CHECK_OK(mp__mempool_free(x.pool, lend(&x, BLOCK, x.a)));
    CHECK_OK(mp__mempool_layout(x.pool, &layout));
    CHECK_EQ_INT(layout.block_count, 1); /* the waiting ones are gone */
    mp__layout_free(&layout);
    CHECK_OK(x.ops->graph_launch(device, graph, x.a));
    CHECK_OK(x.ops->stream_synchronize(device, x.a));
    CHECK_OK(mp__mempool_free(x.pool, target));
    x.ops->graph_destroy(device, graph);
    close_bench(&x);
}

/* ---- the emulated device: what it lacks, what fails ---- */

TEST(mempool_mode_needs_the_drivers_pools) {
    const mp_host_config config = {.memory_bytes = 64 * MIB, .no_mempools = true};
    const mp__mempool_options options = {.max_mem = SIZE_MAX};
    mp_device *device = NULL;
    mp__mempool *pool = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    CHECK_FAILS(mp__mempool_create(device, &options, &pool), UNSUPPORTED, "use the arena");
    CHECK(pool == NULL);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

static void fill_all_memory(mp_device *device) {
    const size_t most = device->info.memory_bytes / 4 * 3;
    bench x = open_bench(device, SIZE_MAX, 0);
    for (int i = 0; i < 4; i++) {
        mp_stream *stream = i % 2 == 0 ? x.a : x.b;
        const mp_addr block = lend(&x, most, stream);
        fill(&x, stream, block, 1);
        CHECK_OK(mp__mempool_free(x.pool, block));
    }
    const mp_addr block = lend(&x, most, x.a);
    mp_addr more = 0;
    CHECK_FAILS(mp__mempool_alloc(x.pool, most, native_of(&x, x.b), 0, &more), OUT_OF_MEMORY, "");
    CHECK_OK(mp__mempool_free(x.pool, block));
    close_bench(&x);
}

/* What another stream is still to free is waited for before a request fails. */
TEST(mempool_waits_before_it_runs_out) {
    for (uint64_t seed = 0; seed < 12; seed++) {
        const mp_host_config config = {.mode = seed < MP_HOST_ADVERSARIAL ? (unsigned)seed
                                                                          : MP_HOST_ADVERSARIAL,
                                       .seed = seed,
                                       .memory_bytes = MIB};
        mp_device *device = NULL;
        CHECK_OK(mp__host_device_create(&config, &device));
        fill_all_memory(device);
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
}

/* Everything the pool can do, over and over; stops at the first failure. */
static mp_status many_calls(bench *x, mp_addr blocks[4]) {
    void *a = native_of(x, x->a), *b = native_of(x, x->b);
    MP_TRY(mp__mempool_alloc(x->pool, BLOCK, a, 0, &blocks[0]));
    MP_TRY(mp__mempool_alloc(x->pool, BLOCK, b, 1, &blocks[1]));
    MP_TRY(mp__mempool_alloc(x->pool, BLOCK, MP_NO_STREAM, 1, &blocks[2]));
    MP_TRY(mp__mempool_reserve(x->pool, BLOCK, 1, &blocks[3]));
    MP_TRY(mp__mempool_record_use(x->pool, blocks[0], b));
    MP_TRY(mp__mempool_free(x->pool, blocks[0]));
    blocks[0] = 0;
    MP_TRY(mp__mempool_free_on(x->pool, blocks[1], NULL));
    blocks[1] = 0;
    MP_TRY(mp__mempool_free(x->pool, blocks[3]));
    blocks[3] = 0;
    MP_TRY(mp__mempool_stream_gone(x->pool, b));
    return mp__mempool_shrink(x->pool, NULL);
}

/* Returns whether no call failed. */
static bool fail_nth(mp_device *device, uint64_t nth, mp_status fault) {
    bench x = open_bench(device, 0, 0);
    const size_t before = free_bytes(device);
    mp_addr blocks[4] = {0};
    (void)mp__host_device_fail(device, nth, fault);
    const mp_status status = many_calls(&x, blocks);
    const bool waiting = mp__host_device_fail(device, 0, MP_OK);
    uint64_t count = 0;
    for (size_t i = 0; i < 4; i++) {
        mp__mempool_block found = {0};
        count += blocks[i] != 0;
        if (blocks[i] != 0) { /* a block that could not be freed is allocated as before */
            CHECK_OK(mp__mempool_find(x.pool, blocks[i], &found));
        }
    }
    CHECK_EQ_INT(stats_of(&x).in_use, count * BLOCK);
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(mp__mempool_free(x.pool, blocks[i]));
    }
    CHECK_OK(mp__mempool_shrink(x.pool, NULL));
    CHECK_EQ_INT(stats_of(&x).total, 0);
    CHECK_EQ_INT(free_bytes(device), before);
    close_bench(&x);
    CHECK(status == MP_OK || !waiting);
    return waiting;
}

DEVICE_TEST(mempool_loses_nothing_when_a_call_fails) {
    static const mp_status faults[] = {MP_DEVICE, MP_OUT_OF_MEMORY};
    if (device->info.kind != MP_DEVICE_HOST) {
        SKIP("a GPU's calls cannot be made to fail");
    }
    for (size_t i = 0; i < MP_COUNT_OF(faults); i++) {
        uint64_t nth = 1;
        while (!fail_nth(device, nth, faults[i])) {
            nth++;
        }
        CHECK(nth > 20);
    }
}

/* Also creating may fail anywhere, and leaves nothing behind. */
DEVICE_TEST(mempool_may_fail_to_open) {
    const mp__mempool_options options = {.max_mem = SIZE_MAX};
    if (device->info.kind != MP_DEVICE_HOST) {
        SKIP("a GPU's calls cannot be made to fail");
    }
    mp__mempool *pool = NULL;
    uint64_t nth = 1;
    for (;; nth++) {
        (void)mp__host_device_fail(device, nth, MP_OUT_OF_MEMORY);
        const mp_status status = mp__mempool_create(device, &options, &pool);
        if (mp__host_device_fail(device, 0, MP_OK)) { /* fewer calls than that */
            CHECK_OK(status);
            break;
        }
        CHECK(status == MP_OUT_OF_MEMORY && pool == NULL);
        CHECK_STR_HAS(mp_error_message(), "test");
    }
    CHECK(nth > 2);
    mp__mempool_destroy(pool);
}

/* ---- threads ---- */

enum { THREADS = 8, SLOTS = 16, STEPS = 120 };

typedef struct parcel { /* a block on its way to another thread */
    mp_addr block;
    mp_event *ready;
    uint32_t value;
} parcel;

typedef struct crowd {
    bench *x;
    pthread_mutex_t lock;
    parcel slots[SLOTS]; /* under lock */
    atomic_uint_fast64_t sent;
} crowd;

typedef struct worker {
    crowd *all;
    uint64_t random;
    mp_stream *stream;
    mp_addr word; /* pinned */
} worker;

static void send(worker *me, uint32_t value) {
    const bench *x = me->all->x;
    parcel mine = {.block = lend(x, BLOCK, me->stream), .value = value};
    CHECK_OK(x->ops->event_create(x->device, false, &mine.ready));
    fill(x, me->stream, mine.block, value);
    CHECK_OK(x->ops->event_record(x->device, mine.ready, me->stream));
    (void)pthread_mutex_lock(&me->all->lock);
    parcel *slot = &me->all->slots[test_random(&me->random) % SLOTS];
    const parcel displaced = *slot;
    *slot = mine;
    (void)pthread_mutex_unlock(&me->all->lock);
    atomic_fetch_add(&me->all->sent, 1);
    if (displaced.block != 0) { /* nobody took it: freed in the order of another thread's stream */
        CHECK_OK(mp__mempool_free(x->pool, displaced.block));
        x->ops->event_destroy(x->device, displaced.ready);
    }
}

static void receive(worker *me) {
    const bench *x = me->all->x;
    (void)pthread_mutex_lock(&me->all->lock);
    parcel *slot = &me->all->slots[test_random(&me->random) % SLOTS];
    const parcel got = *slot;
    *slot = (parcel){0};
    (void)pthread_mutex_unlock(&me->all->lock);
    if (got.block == 0) {
        return;
    }
    void *native = native_of(x, me->stream);
    CHECK_OK(x->ops->event_wait(x->device, got.ready, me->stream));
    read_last(x, me->stream, me->word, got.block);
    if (test_random(&me->random) % 2 == 0) {
        CHECK_OK(mp__mempool_record_use(x->pool, got.block, native));
        CHECK_OK(mp__mempool_free(x->pool, got.block));
    } else {
        CHECK_OK(mp__mempool_free_on(x->pool, got.block, native));
    }
    CHECK_OK(x->ops->stream_synchronize(x->device, me->stream));
    CHECK_EQ_INT(*(const uint32_t *)me->word, got.value);
    x->ops->event_destroy(x->device, got.ready);
}

static void change_stream(worker *me) {
    const bench *x = me->all->x;
    CHECK_OK(mp__mempool_stream_gone(x->pool, native_of(x, me->stream)));
    x->ops->stream_destroy(x->device, me->stream);
    me->stream = open_stream(x->device);
}

static void *work(void *context) {
    worker *me = context;
    const bench *x = me->all->x;
    CHECK_OK(x->ops->alloc_pinned(x->device, 64, &me->word));
    me->stream = open_stream(x->device);
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint64_t what = test_random(&me->random) % 64;
        if (what < 30) {
            send(me, (uint32_t)test_random(&me->random));
        } else if (what < 60) {
            receive(me);
        } else if (what < 61) {
            CHECK_OK(mp__mempool_shrink(x->pool, NULL));
        } else if (what < 62) {
            (void)stats_of(x);
        } else {
            change_stream(me); /* others may be freeing its blocks right now */
        }
    }
    CHECK_OK(x->ops->stream_synchronize(x->device, me->stream));
    x->ops->free_pinned(x->device, me->word, 64);
    return NULL;
}

DEVICE_TEST(mempool_serves_eight_threads) {
    bench x = open_bench(device, 8 * MIB, 0);
    crowd all = {.x = &x};
    pthread_t threads[THREADS];
    worker workers[THREADS];
    (void)pthread_mutex_init(&all.lock, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.all = &all, .random = test_seed() * 97 + i};
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (all.slots[i].block != 0) {
            CHECK_OK(mp__mempool_free(x.pool, all.slots[i].block));
            x.ops->event_destroy(device, all.slots[i].ready);
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        change_stream(&workers[i]);
        x.ops->stream_destroy(device, workers[i].stream);
    }
    const mp_pool_stats stats = stats_of(&x);
    CHECK_EQ_INT(stats.in_use, 0);
    CHECK_EQ_INT(stats.frees, stats.allocs);
    CHECK_EQ_INT(stats.allocs, atomic_load(&all.sent));
    (void)pthread_mutex_destroy(&all.lock);
    close_bench(&x);
}
