/* pool_try_test.c - requests and frees by the short way alone, and streams that are made to follow
 * each other: what the Python extension asks of a pool beside millpond.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <pthread.h>
#include <stdlib.h>

#define ONE_REGION KIT_OPTIONS("arena.max_mem=1M", "arena.max_dead_bytes_per_chunk=0")

/* What the short way gives, or else the long one; `*is_short` says which. */
static mp_addr alloc_either(kit_pair *s, size_t size, const kit_stream *stream, bool *is_short) {
    mp_addr addr = 0;
    const mp_status status = mp__pool_try_alloc(s->k.pool, size, stream->native, &addr);
    *is_short = status == MP_OK;
    if (status == MP_BUSY) {
        CHECK_OK(mp_pool_alloc(s->k.pool, size, stream->native, &addr));
    }
    CHECK(addr != 0);
    return addr;
}

static bool free_either(kit_pair *s, mp_addr addr) {
    const mp_status status = mp__pool_try_free(s->k.pool, addr);
    if (status == MP_BUSY) {
        CHECK_OK(mp_pool_free(s->k.pool, addr));
    }
    return status == MP_OK;
}

DEVICE_TEST(pool_try_serves_from_the_shelf) {
    kit_pair s;
    bool is_short = false;
    kit_pair_open(&s, device, KIT_OPTIONS("arena.guard=0"));
    const mp_addr first = alloc_either(&s, 5000, &s.a, &is_short);
    CHECK(!is_short); /* the pool had to grow */
    CHECK(free_either(&s, first));
    for (int i = 0; i < 100; i++) {
        CHECK_EQ_INT(alloc_either(&s, 5000, &s.a, &is_short), first);
        CHECK(is_short);
        CHECK_EQ_INT(kit_stats(&s.k).requested, 5000);
        CHECK(free_either(&s, first));
        CHECK_EQ_INT(kit_stats(&s.k).in_use, 0);
    }
    CHECK_EQ_INT(kit_stats(&s.k).allocs, 101);
    CHECK_EQ_INT(kit_stats(&s.k).frees, 101);
    kit_check(&s.k);
    kit_pair_close(&s);
}

/* Random sizes, streams and orders: all figures are those of the same calls the long way, and each
 * block holds what was written to it. */
DEVICE_TEST(pool_try_mixes_with_the_long_way) {
    enum { LIVE = 16, STEPS = 2000 };
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"));
    mp_addr live[LIVE] = {0};
    uint64_t random = test_seed();
    uint64_t requested = 0;
    size_t sizes[LIVE] = {0};
    int shorts = 0;
    for (int step = 0; step < STEPS; step++) {
        const size_t i = (size_t)(test_random(&random) % LIVE);
        if (live[i] != 0) {
            shorts += free_either(&s, live[i]);
            requested -= sizes[i];
            live[i] = 0;
        } else {
            const kit_stream *stream = test_random(&random) % 2 != 0 ? &s.a : &s.b;
            bool is_short = false;
            sizes[i] = (size_t)(test_random(&random) % 8 + 1) * 1000;
            live[i] = alloc_either(&s, sizes[i], stream, &is_short);
            kit_fill(&s.k, stream, live[i], 4, (uint32_t)step);
            kit_read(&s.k, stream, live[i], (uint32_t)step);
            requested += sizes[i];
            shorts += is_short;
        }
        CHECK_EQ_INT(kit_stats(&s.k).requested, requested);
        if (step % 100 == 0) {
            kit_verify(&s.k);
            kit_check(&s.k);
        }
    }
    CHECK(shorts > STEPS / 2);
    for (size_t i = 0; i < LIVE; i++) {
        if (live[i] != 0) {
            (void)free_either(&s, live[i]);
        }
    }
    kit_check(&s.k);
    kit_pair_close(&s);
}

/* ---- threads: the thread sanitizer watches ---- */

enum { THREADS = 4, TURNS = 1500 };

typedef struct worker {
    kit_pair *pair;
    uint64_t random;
    pthread_t thread;
} worker;

static void *work(void *context) {
    worker *w = context;
    kit_pair *s = w->pair;
    for (int turn = 0; turn < TURNS; turn++) {
        const kit_stream *stream = test_random(&w->random) % 2 != 0 ? &s->a : &s->b;
        bool is_short = false;
        const mp_addr block =
            alloc_either(s, 1 + test_random(&w->random) % 9000, stream, &is_short);
        const mp_addr other = alloc_either(s, 1000, stream, &is_short);
        CHECK(block != other);
        if (test_random(&w->random) % 2 != 0) {
            (void)free_either(s, block);
        } else {
            CHECK_OK(mp_pool_free(s->k.pool, block));
        }
        (void)free_either(s, other);
    }
    return NULL;
}

DEVICE_TEST(pool_try_by_threads) {
    kit_pair s;
    worker workers[THREADS];
    kit_pair_open(&s, device, KIT_OPTIONS("arena.stream_cache_bytes=64K"));
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.pair = &s, .random = test_seed() + (uint64_t)i};
        CHECK_EQ_INT(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_join(workers[i].thread, NULL), 0);
    }
    CHECK_EQ_INT(kit_stats(&s.k).allocs, 2 * THREADS * TURNS);
    CHECK_EQ_INT(kit_stats(&s.k).in_use, 0);
    kit_check(&s.k);
    kit_pair_close(&s);
}

DEVICE_TEST(pool_try_leaves_the_rest_alone) {
    kit_pair s;
    mp_addr addr = 77;
    kit_pair_open(&s, device, NULL);
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "kit", NULL, &s.k.pool));
    CHECK_EQ_INT(mp__pool_try_alloc(s.k.pool, 5000, s.a.native, &addr), MP_BUSY);
    CHECK_EQ_INT(mp__pool_try_alloc(s.k.pool, SIZE_MAX, s.a.native, &addr), MP_BUSY);
    CHECK_EQ_INT(addr, 77);
    CHECK_EQ_INT(mp__pool_try_free(s.k.pool, 4096), MP_BUSY);
    addr = kit_alloc(&s.k, KIT_MIB(3), &s.a);
    CHECK_EQ_INT(mp__pool_try_free(s.k.pool, addr), MP_BUSY); /* no shelf takes it */
    kit_free(&s.k, addr);
    addr = kit_alloc(&s.k, 5000, &s.a);
    CHECK_EQ_INT(mp__pool_try_free(s.k.pool, addr + 256), MP_BUSY);
    CHECK_EQ_INT(mp__pool_try_free_on(s.k.pool, addr, s.b.native), MP_BUSY); /* another order */
    CHECK_OK(mp_pool_record_use(s.k.pool, addr, s.b.native));
    CHECK_EQ_INT(mp__pool_try_free(s.k.pool, addr), MP_BUSY); /* it has to wait for that use */
    kit_free(&s.k, addr);
    addr = kit_alloc(&s.k, 5000, &s.a);
    CHECK_OK(mp__pool_try_free_on(s.k.pool, addr, s.a.native));
    CHECK_EQ_INT(mp__pool_try_free(s.k.pool, addr), MP_BUSY); /* it is freed */
    CHECK_OK(mp_pool_reserve(s.k.pool, 5000, &addr));
    CHECK_EQ_INT(mp__pool_try_free(s.k.pool, addr), MP_BUSY);
    kit_free(&s.k, addr);
    kit_pair_close(&s);
}

DEVICE_TEST(pool_try_is_not_for_guarded_blocks) {
    kit_pair s;
    mp_addr addr = 0;
    kit_pair_open(&s, device, KIT_OPTIONS("arena.guard=1"));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(mp__pool_try_alloc(s.k.pool, 5000, s.a.native, &addr), MP_BUSY);
        addr = kit_alloc(&s.k, 5000, &s.a);
        CHECK_EQ_INT(mp__pool_try_free(s.k.pool, addr), MP_BUSY);
        kit_free(&s.k, addr);
    }
    kit_pair_close(&s);
}

DEVICE_TEST(pool_try_is_not_for_memory_of_the_drivers_pool) {
    kit_pair s;
    mp_addr addr = 77;
    kit_pair_open(&s, device, KIT_OPTIONS("arena.use_cuda_mempool=1"));
    kit_free(&s.k, kit_alloc(&s.k, 5000, &s.a));
    CHECK_EQ_INT(mp__pool_try_alloc(s.k.pool, 5000, s.a.native, &addr), MP_BUSY);
    CHECK_EQ_INT(addr, 77);
    addr = kit_alloc(&s.k, 5000, &s.a);
    CHECK_EQ_INT(mp__pool_try_free(s.k.pool, addr), MP_BUSY);
    CHECK_EQ_INT(mp__pool_try_free_on(s.k.pool, addr, s.a.native), MP_BUSY);
    kit_free(&s.k, addr);
    kit_pair_close(&s);
}

DEVICE_TEST(pool_follow_orders_work_and_memory) {
    kit_pair s;
    kit_pair_open(&s, device, ONE_REGION);
    const mp_addr block = kit_alloc(&s.k, KIT_MIB(1), &s.a);
    for (uint32_t tag = 1; tag < 20; tag++) {
        kit_fill(&s.k, &s.a, block, KIT_MIB(1), tag);
        CHECK_OK(mp__pool_follow(s.k.pool, s.b.native, s.a.native));
        kit_read(&s.k, &s.b, block + KIT_MIB(1) - sizeof tag, tag);
        CHECK_OK(mp__pool_follow(s.k.pool, s.a.native, s.b.native));
    }
    kit_free(&s.k, block);
    CHECK_OK(mp__pool_follow(s.k.pool, s.b.native, s.a.native));
    const mp_pool_stats before = kit_stats(&s.k);
    const mp_addr again = kit_alloc(&s.k, KIT_MIB(1), &s.b); /* the pool knows of the order */
    CHECK_EQ_INT(again, block);
    CHECK_EQ_INT(kit_stats(&s.k).waits, before.waits);
    kit_free(&s.k, again);
    kit_pair_close(&s);
}

DEVICE_TEST(pool_follow_by_the_host_waits) {
    kit_pair s;
    mp_addr target = 0;
    kit_pair_open(&s, device, ONE_REGION);
    CHECK_OK(device->ops->alloc_pinned(device, 256, &target));
    const mp_addr block = kit_alloc(&s.k, 256, &s.a);
    for (uint32_t tag = 1; tag < 20; tag++) {
        kit_fill(&s.k, &s.a, block, 256, tag);
        CHECK_OK(device->ops->copy(device, s.a.queue, target, block, sizeof tag));
        CHECK_OK(mp__pool_follow(s.k.pool, MP_NO_STREAM, s.a.native));
        CHECK_EQ_INT(*(const uint32_t *)target, tag);
    }
    CHECK_OK(mp__pool_follow(s.k.pool, s.a.native, MP_NO_STREAM));
    CHECK_OK(mp__pool_follow(s.k.pool, s.a.native, s.a.native));
    kit_free(&s.k, block);
    device->ops->free_pinned(device, target, 256);
    kit_pair_close(&s);
}

DEVICE_TEST(pool_follow_stays_out_of_captures) {
    kit_pair s;
    mp_graph_exec *graph = NULL;
    kit_pair_open(&s, device, ONE_REGION);
    CHECK_OK(device->ops->capture_begin(device, s.a.queue));
    CHECK_EQ_INT(mp__pool_follow(s.k.pool, s.b.native, s.a.native), MP_UNSUPPORTED);
    CHECK_EQ_INT(mp__pool_follow(s.k.pool, s.a.native, s.b.native), MP_UNSUPPORTED);
    CHECK_OK(device->ops->capture_end(device, s.a.queue, &graph));
    device->ops->graph_destroy(device, graph);
    kit_pair_close(&s);
}
