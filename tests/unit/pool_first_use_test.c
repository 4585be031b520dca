/* pool_first_use_test.c - the first use of a block on another stream than it was allocated on: the
 * memory may still be in use by work that was queued before the block was allocated.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"
#include "unit/test_log.h"

#include "base/log.h"

/* Everything in these pools is one region of 1 MiB, so that blocks must be allocated again. */
#define ONE_REGION KIT_OPTIONS("arena.max_mem=1M", "arena.max_dead_bytes_per_chunk=0")
#define MEMPOOL    KIT_OPTIONS("arena.use_cuda_mempool=1")

enum { ROUNDS = 20 };

/* Work on a block that is found in memory: what it leaves is read after it was queued. */
static void work(kit *k, const kit_stream *stream, mp_addr block, uint32_t tag) {
    kit_fill(k, stream, block, KIT_MIB(1), tag);
    kit_read(k, stream, block, tag);
    kit_read(k, stream, block + KIT_MIB(1) - sizeof tag, tag);
}

/* All of the pool is used on `user`, allocated on `lender`; `declare` says so before. */
static void pass_on(kit *k, const kit_stream *lender, const kit_stream *user, uint32_t tag,
                    bool declare) {
    const mp_addr block = kit_alloc(k, KIT_MIB(1), lender);
    if (declare) {
        CHECK_OK(mp_pool_record_use(k->pool, block, user->native));
    }
    work(k, user, block, tag);
    kit_free(k, block);
}

/* The allocating stream's own earlier work, which a block freed there is allocated again before. */
DEVICE_TEST(first_use_comes_after_earlier_work_of_the_lending_stream) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 3 * ROUNDS; tag += 3) {
        pass_on(&s.k, &s.a, &s.a, tag, false);
        pass_on(&s.k, &s.a, &s.b, tag + 1, true);
        pass_on(&s.k, &s.a, &s.c, tag + 2, true);
    }
    kit_trio_close(&s);
}

/* Another stream's earlier work, which the allocating stream was made to wait for. */
DEVICE_TEST(first_use_comes_after_what_the_lending_stream_waits_for) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 2 * ROUNDS; tag += 2) {
        pass_on(&s.k, &s.a, &s.a, tag, false);
        pass_on(&s.k, &s.b, &s.c, tag + 1, true);
    }
    kit_trio_close(&s);
}

/* From the legacy default stream to one that does not take part in its order, and back. */
DEVICE_TEST(first_use_goes_to_and_fro_between_default_and_own_streams) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    kit_stream legacy = {.native = NULL};
    CHECK_OK(device->ops->stream_wrap(device, NULL, &legacy.queue));
    for (uint32_t tag = 1; tag < 3 * ROUNDS; tag += 3) {
        pass_on(&s.k, &s.a, &s.a, tag, false);
        pass_on(&s.k, &legacy, &s.b, tag + 1, true);
        pass_on(&s.k, &s.a, &legacy, tag + 2, true);
    }
    kit_verify(&s.k);
    device->ops->stream_destroy(device, legacy.queue);
    kit_trio_close(&s);
}

/* Without a stream any may use the block at once, declared or not. */
DEVICE_TEST(first_use_of_a_block_without_a_stream_is_ready) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 2 * ROUNDS; tag += 2) {
        pass_on(&s.k, &s.a, &s.a, tag, false);
        const mp_addr block = kit_alloc(&s.k, KIT_MIB(1), NULL);
        work(&s.k, tag % 4 == 1 ? &s.b : &s.c, block, tag + 1);
        kit_verify(&s.k); /* freed without a stream: nothing uses it any more */
        kit_free(&s.k, block);
    }
    kit_trio_close(&s);
}

/* Nobody waits where nothing has to be waited for. */
DEVICE_TEST(first_use_of_idle_memory_waits_for_nothing) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    pass_on(&s.k, &s.a, &s.b, 1, true);
    CHECK_EQ_INT(kit_stats(&s.k).waits, 0); /* fresh memory */
    kit_verify(&s.k);
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.b.native));
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.a.native));
    const uint64_t waits = kit_stats(&s.k).waits;
    pass_on(&s.k, &s.a, &s.b, 2, true);
    CHECK_EQ_INT(kit_stats(&s.k).waits, waits);
    kit_trio_close(&s);
}

/* Twice declared, or after an order that the caller has made: one wait at most. */
DEVICE_TEST(first_use_is_ordered_once) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    pass_on(&s.k, &s.a, &s.a, 1, false);
    const mp_addr block = kit_alloc(&s.k, KIT_MIB(1), &s.a);
    CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
    const uint64_t waits = kit_stats(&s.k).waits;
    CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
    CHECK_EQ_INT(kit_stats(&s.k).waits, waits);
    work(&s.k, &s.b, block, 2);
    kit_free(&s.k, block);
    kit_trio_close(&s);
}

/* ---- captured streams ---- */

static mp_capture *begin(kit_trio *s, const kit_stream *stream, mp_capture *capture) {
    CHECK_OK(mp_pool_capture_begin(s->k.pool, stream->native, &capture));
    CHECK_OK(s->k.device->ops->capture_begin(s->k.device, stream->queue));
    return capture;
}

static mp_graph_exec *end(kit_trio *s, const kit_stream *stream) {
    mp_graph_exec *graph = NULL;
    CHECK_OK(s->k.device->ops->capture_end(s->k.device, stream->queue, &graph));
    CHECK_OK(mp_pool_capture_end(s->k.pool, stream->native));
    return graph;
}

static void discard(kit_trio *s, mp_graph_exec *graph, mp_capture *capture) {
    s->k.device->ops->graph_destroy(s->k.device, graph);
    mp_pool_capture_release(s->k.pool, capture);
}

/* A block of stream `a`, whose memory that stream still uses. */
static mp_addr open_with_block(kit_trio *s, mp_device *device, const char *const *options) {
    kit_trio_open(s, device, options);
    pass_on(&s->k, &s->a, &s->a, 1, false);
    return kit_alloc(&s->k, KIT_MIB(1), &s->a);
}

/* A captured stream cannot wait for work outside of its capture: the caller does. */
DEVICE_TEST(first_use_by_a_captured_stream_is_waited_for) {
    kit_trio s;
    const mp_addr block = open_with_block(&s, device, ONE_REGION);
    mp_capture *capture = begin(&s, &s.b, NULL);
    CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
    kit_fill(&s.k, &s.b, block, KIT_MIB(1), 7);
    mp_graph_exec *graph = end(&s, &s.b);
    CHECK_OK(device->ops->graph_launch(device, graph, s.b.queue));
    kit_read(&s.k, &s.b, block, 7);
    kit_verify(&s.k);
    discard(&s, graph, capture);
    kit_free(&s.k, block);
    kit_trio_close(&s);
}

/* The stream that used the memory before is captured by now: its event was recorded in time. */
DEVICE_TEST(first_use_comes_after_work_of_a_stream_that_is_captured_now) {
    kit_trio s;
    const mp_addr block = open_with_block(&s, device, ONE_REGION);
    mp_capture *capture = begin(&s, &s.a, NULL);
    CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
    work(&s.k, &s.b, block, 2);
    discard(&s, end(&s, &s.a), capture);
    kit_free(&s.k, block);
    kit_trio_close(&s);
}

/* The pool was not told of the capture in time: a clear refusal, the capture goes on, and another
 * attempt after it makes the stream wait. */
static void refuse_and_try_again(mp_device *device, const char *const *options) {
    kit_trio s;
    mp_graph_exec *graph = NULL;
    const mp_addr block = open_with_block(&s, device, options);
    CHECK_OK(device->ops->capture_begin(device, s.a.queue));
    CHECK_FAILS(mp_pool_record_use(s.k.pool, block, s.b.native), BUSY, "is being captured");
    CHECK_OK(device->ops->capture_end(device, s.a.queue, &graph));
    device->ops->graph_destroy(device, graph);
    const uint64_t waits = kit_stats(&s.k).waits;
    CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
    CHECK(kit_stats(&s.k).waits > waits || device->info.kind != MP_DEVICE_HOST);
    work(&s.k, &s.b, block, 2);
    kit_free(&s.k, block);
    kit_trio_close(&s);
}

DEVICE_TEST(first_use_after_a_capture_that_the_pool_does_not_know_of_is_refused) {
    refuse_and_try_again(device, ONE_REGION);
}

DEVICE_TEST(first_use_in_mempool_mode_is_refused_during_a_capture) {
    refuse_and_try_again(device, MEMPOOL);
}

/* Memory of a graph that passes from one of its streams to another. */
DEVICE_TEST(first_use_within_a_graph_is_an_edge_of_it) {
    kit_trio s;
    kit_trio_open(&s, device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"));
    const mp_device_ops *ops = device->ops;
    mp_addr results = 0;
    CHECK_OK(ops->alloc_pinned(device, KIT_KIB(4), &results));
    mp_capture *capture = begin(&s, &s.a, NULL);
    CHECK_OK(mp_pool_capture_begin(s.k.pool, s.b.native, &capture));
    kit_order(&s.k, &s.a, &s.b); /* from here on both are captured */
    const mp_addr first = kit_alloc(&s.k, KIT_MIB(1), &s.a);
    kit_fill(&s.k, &s.a, first, KIT_MIB(1), 5);
    CHECK_OK(ops->copy(device, s.a.queue, results, first + KIT_MIB(1) - 4, 4));
    kit_free(&s.k, first);
    const mp_addr second = kit_alloc(&s.k, KIT_MIB(1), &s.a);
    CHECK_EQ_INT(second, first);
    CHECK_OK(mp_pool_record_use(s.k.pool, second, s.b.native));
    kit_fill(&s.k, &s.b, second, KIT_MIB(1), 6);
    CHECK_OK(ops->copy(device, s.b.queue, results + 4, second, 4));
    kit_order(&s.k, &s.b, &s.a);
    kit_free(&s.k, second);
    CHECK_OK(mp_pool_capture_end(s.k.pool, s.b.native));
    mp_graph_exec *graph = end(&s, &s.a);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t *found = (uint32_t *)results;
        found[0] = found[1] = 0;
        CHECK_OK(ops->graph_launch(device, graph, s.a.queue));
        CHECK_OK(ops->stream_synchronize(device, s.a.queue));
        CHECK_EQ_INT(found[0], 5);
        CHECK_EQ_INT(found[1], 6);
    }
    discard(&s, graph, capture);
    ops->free_pinned(device, results, KIT_KIB(4));
    kit_trio_close(&s);
}

/* ---- the driver's own pool ---- */

DEVICE_TEST(first_use_in_mempool_mode_comes_after_the_allocation) {
    kit_trio s;
    kit_trio_open(&s, device, MEMPOOL);
    for (uint32_t tag = 1; tag < 2 * ROUNDS; tag += 2) {
        pass_on(&s.k, &s.a, &s.a, tag, false);
        pass_on(&s.k, &s.a, &s.b, tag + 1, true);
    }
    kit_trio_close(&s);
}

/* ---- what the adversary sees ---- */

/* Whether an adversarial device has found a use that was not declared. */
static bool is_caught(uint64_t seed, bool declare) {
    const mp_host_config config = {
        .mode = MP_HOST_ADVERSARIAL, .seed = seed, .memory_bytes = KIT_MIB(16)};
    mp_device *device = NULL;
    mp_pool *pool = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "kit", ONE_REGION, &pool));
    kit k = {.device = device, .pool = pool};
    kit_stream a = {0}, b = {0};
    CHECK_OK(device->ops->stream_create(device, &a.queue));
    CHECK_OK(device->ops->stream_create(device, &b.queue));
    a.native = device->ops->stream_native(device, a.queue);
    b.native = device->ops->stream_native(device, b.queue);
    mp_addr block = kit_alloc(&k, KIT_MIB(1), &a);
    kit_fill(&k, &a, block, KIT_MIB(1), 1);
    kit_free(&k, block);
    block = kit_alloc(&k, KIT_MIB(1), &a);
    if (declare) {
        CHECK_OK(mp_pool_record_use(pool, block, b.native));
    }
    kit_fill(&k, &b, block, KIT_MIB(1), 2);
    (void)device->ops->synchronize(device);
    const char *breach = mp__host_device_breach(device);
    const bool caught = breach != NULL;
    if (caught) {
        CHECK_STR_HAS(breach, "allocated again in between");
        CHECK_STR_HAS(breach, "stream 2 has used its memory");
    }
    (void)mp_pool_free(pool, block);
    mp_pool_close(pool);
    device->ops->stream_destroy(device, a.queue);
    device->ops->stream_destroy(device, b.queue);
    (void)mp__host_device_destroy(device);
    return caught;
}

TEST(first_use_that_nobody_ordered_is_a_breach) {
    int caught = 0;
    mp_log_set_sink(no_line, NULL); /* breaches are expected here */
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        caught += is_caught(seed, false);
        CHECK(!is_caught(seed, true));
    }
    CHECK(caught > 0);
    mp_log_set_sink(NULL, NULL);
}
