/* pool_stream_test.c - memory that passes from one stream to another: at once on its own stream, on
 * others only when that is safe. The work queued here fills and reads blocks, so memory that was
 * allocated too early shows in what is read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

/* Everything in these pools is one region of 1 MiB, so that blocks must be allocated again. */
#define ONE_REGION KIT_OPTIONS("arena.max_mem=1M", "arena.max_dead_bytes_per_chunk=0")

enum { BLOCK = 64 << 10 };

/* Allocates all of the pool on a stream, fills and reads it there, and gives it back. */
static mp_addr use_all(kit *k, const kit_stream *stream, uint32_t tag) {
    const mp_addr block = kit_alloc(k, KIT_MIB(1), stream);
    kit_fill(k, stream, block, KIT_MIB(1), tag);
    kit_read(k, stream, block, tag);
    kit_read(k, stream, block + KIT_MIB(1) - sizeof tag, tag);
    kit_free(k, block);
    return block;
}

DEVICE_TEST(pool_stream_lends_again_at_once_on_the_same_stream) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    const mp_addr first = use_all(&s.k, &s.a, 1);
    const mp_pool_stats before = kit_stats(&s.k);
    for (uint32_t tag = 2; tag < 30; tag++) {
        CHECK_EQ_INT(use_all(&s.k, &s.a, tag), first);
    }
    const mp_pool_stats after = kit_stats(&s.k);
    CHECK_EQ_INT(after.events, before.events);
    CHECK_EQ_INT(after.waits, before.waits);
    CHECK_EQ_INT(after.extensions, 1);
    kit_trio_close(&s);
}

DEVICE_TEST(pool_stream_lends_to_others_in_order) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    const kit_stream *streams[] = {&s.a, &s.b, &s.c};
    uint64_t random = test_seed();
    for (uint32_t tag = 1; tag <= 40; tag++) {
        (void)use_all(&s.k, streams[test_random(&random) % 3], tag);
    }
    kit_trio_close(&s);
}

/* Blocks of many sizes on three streams at the same time. */
DEVICE_TEST(pool_stream_mixes_streams_in_one_region) {
    enum { LIVE = 12, STEPS = 300 };
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    const kit_stream *streams[] = {&s.a, &s.b, &s.c};
    struct {
        mp_addr addr;
        size_t size;
        const kit_stream *stream;
    } live[LIVE] = {{0}};
    uint64_t random = test_seed();
    for (uint32_t tag = 1; tag <= STEPS; tag++) {
        const size_t at = test_random(&random) % LIVE;
        if (live[at].addr != 0) {
            kit_free(&s.k, live[at].addr);
        }
        live[at].size = 4 + test_random(&random) % BLOCK / 4 * 4;
        live[at].stream = streams[test_random(&random) % 3];
        live[at].addr = kit_alloc(&s.k, live[at].size, live[at].stream);
        kit_fill(&s.k, live[at].stream, live[at].addr, live[at].size, tag);
        kit_read(&s.k, live[at].stream, live[at].addr, tag);
        kit_read(&s.k, live[at].stream, live[at].addr + live[at].size - sizeof tag, tag);
    }
    kit_check(&s.k);
    for (int i = 0; i < LIVE; i++) {
        CHECK_OK(mp_pool_free(s.k.pool, live[i].addr));
    }
    kit_trio_close(&s);
}

/* ---- what callers say ---- */

DEVICE_TEST(pool_stream_believes_that_a_stream_is_settled) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    const mp_addr first = use_all(&s.k, &s.a, 1);
    kit_verify(&s.k);
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.a.native));
    const mp_pool_stats before = kit_stats(&s.k);
    CHECK_EQ_INT(use_all(&s.k, &s.b, 2), first);
    CHECK_EQ_INT(kit_stats(&s.k).waits, before.waits);
    kit_trio_close(&s);
}

DEVICE_TEST(pool_stream_believes_an_order_that_was_made) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    const mp_addr first = use_all(&s.k, &s.a, 1);
    uint64_t mark = 0;
    CHECK_OK(mp_pool_stream_mark(s.k.pool, s.a.native, &mark));
    kit_order(&s.k, &s.a, &s.b);
    CHECK_OK(mp_pool_stream_ordered(s.k.pool, s.b.native, s.a.native, mark));
    const mp_pool_stats before = kit_stats(&s.k);
    CHECK_EQ_INT(use_all(&s.k, &s.b, 2), first);
    const mp_pool_stats after = kit_stats(&s.k);
    CHECK_EQ_INT(after.waits, before.waits);
    CHECK_EQ_INT(after.events, before.events);
    kit_trio_close(&s);
}

/* What was freed after the mark, or is used by a stream that was not ordered, is not covered. */
DEVICE_TEST(pool_stream_keeps_an_order_to_what_it_covers) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 20; tag += 3) {
        uint64_t mark = 0;
        CHECK_OK(mp_pool_stream_mark(s.k.pool, s.a.native, &mark));
        kit_order(&s.k, &s.a, &s.b);
        (void)use_all(&s.k, &s.a, tag);
        CHECK_OK(mp_pool_stream_ordered(s.k.pool, s.b.native, s.a.native, mark));
        (void)use_all(&s.k, &s.b, tag + 1);
        (void)use_all(&s.k, &s.c, tag + 2);
    }
    kit_trio_close(&s);
}

DEVICE_TEST(pool_stream_survives_the_end_of_a_stream) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    kit_stream gone = kit_stream_open(&s.k);
    const mp_addr kept = kit_alloc(&s.k, BLOCK, &gone);
    kit_fill(&s.k, &gone, kept, BLOCK, 7);
    const mp_addr freed = kit_alloc(&s.k, BLOCK, &gone);
    kit_fill(&s.k, &gone, freed, BLOCK, 8);
    kit_free(&s.k, freed);
    CHECK_OK(mp_pool_stream_gone(s.k.pool, gone.native)); /* waits */
    device->ops->stream_destroy(device, gone.queue);

    mp_block_info info = {0};
    CHECK_OK(mp_pool_find(s.k.pool, kept, &info));
    CHECK(info.stream == MP_NO_STREAM);
    kit_read(&s.k, &s.a, kept, 7);
    const mp_addr rest = kit_alloc(&s.k, KIT_MIB(1) - BLOCK, &s.a); /* all but the kept block */
    kit_fill(&s.k, &s.a, rest, KIT_MIB(1) - BLOCK, 9);
    kit_read(&s.k, &s.a, kept, 7);
    kit_verify(&s.k);
    kit_free(&s.k, kept); /* allocated without a stream: nothing uses it any more */
    CHECK_EQ_INT(kit_alloc(&s.k, BLOCK, &s.b), kept);
    kit_free(&s.k, kept);
    kit_free(&s.k, rest);
    CHECK_OK(mp_pool_stream_gone(s.k.pool, s.c.native)); /* of a stream that has nothing */
    kit_trio_close(&s);
}

/* It was destroyed before the pool heard of it, as no other client minds. */
DEVICE_TEST(pool_stream_is_over_after_it_was_destroyed) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    kit_stream gone = kit_stream_open(&s.k);
    const mp_addr kept = kit_alloc(&s.k, BLOCK, &gone);
    kit_fill(&s.k, &gone, kept, BLOCK, 7);
    kit_free(&s.k, kit_alloc(&s.k, BLOCK, &gone));
    CHECK_OK(device->ops->stream_synchronize(device, gone.queue));
    device->ops->stream_destroy(device, gone.queue);
    CHECK_OK(mp__pool_stream_over(s.k.pool, gone.native));
    CHECK_OK(mp__pool_stream_over(s.k.pool, gone.native)); /* it has nothing any more */

    const mp_addr rest = kit_alloc(&s.k, KIT_MIB(1) - BLOCK, &s.a); /* all but the kept block */
    kit_fill(&s.k, &s.a, rest, KIT_MIB(1) - BLOCK, 9);
    kit_read(&s.k, &s.a, kept, 7);
    kit_free(&s.k, kept);
    kit_free(&s.k, rest);
    kit_trio_close(&s);
}

/* Streams come and go; a new one may have the handle of an old one. */
DEVICE_TEST(pool_stream_does_not_take_a_new_stream_for_an_old_one) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 12; tag++) {
        kit_stream one = kit_stream_open(&s.k);
        (void)use_all(&s.k, &one, tag);
        (void)use_all(&s.k, &s.a, 100 + tag);
        kit_stream_close(&s.k, &one);
    }
    kit_trio_close(&s);
}

/* More streams than a pool could keep records of, one after another. */
static void outlast_many_streams(mp_device *device) {
    enum { STREAMS = 6000 };
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag <= STREAMS; tag++) {
        mp_stream *one = NULL;
        mp_addr block = 0;
        CHECK_OK(device->ops->stream_create(device, &one));
        void *native = device->ops->stream_native(device, one);
        CHECK_OK(mp_pool_alloc(s.k.pool, 1000, native, &block));
        CHECK_OK(mp_pool_free(s.k.pool, block));
        CHECK_OK(mp_pool_stream_gone(s.k.pool, native));
        device->ops->stream_destroy(device, one);
    }
    size_t count = 0;
    CHECK_OK(mp_pool_get_streams(s.k.pool, NULL, 0, &count));
    CHECK(count < 16); /* of what is gone, nothing is told */
    kit_trio_close(&s);
}

/* So many are the same to every seed and every device. */
TEST(pool_stream_outlasts_many_streams) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        const mp_host_config config = {
            .mode = (unsigned)mode, .seed = test_seed(), .memory_bytes = KIT_MIB(64)};
        mp_device *device = NULL;
        CHECK_OK(mp__host_device_create(&config, &device));
        outlast_many_streams(device);
        CHECK_OK(device->ops->synchronize(device)); /* says so when there was a breach */
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
}

/* ---- uses on further streams ---- */

DEVICE_TEST(pool_stream_waits_for_declared_uses) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 30; tag++) {
        const mp_addr block = kit_alloc(&s.k, KIT_MIB(1), &s.a);
        kit_fill(&s.k, &s.a, block, KIT_MIB(1), tag);
        kit_order(&s.k, &s.a, &s.b);
        CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
        kit_read(&s.k, &s.b, block, tag);
        if (tag % 2 == 0) {
            kit_order(&s.k, &s.a, &s.c);
            CHECK_OK(mp_pool_record_use(s.k.pool, block, s.c.native));
            CHECK_OK(mp_pool_record_use(s.k.pool, block, s.c.native)); /* twice is once */
            kit_read(&s.k, &s.c, block + KIT_KIB(512), tag);
        }
        CHECK_OK(mp_pool_record_use(s.k.pool, block, s.a.native)); /* its own: nothing new */
        kit_free(&s.k, block);
    }
    kit_trio_close(&s);
}

DEVICE_TEST(pool_stream_shows_blocks_that_wait_for_a_use) {
    kit_trio s;
    kit_trio_open(&s, device, KIT_OPTIONS("arena.initial_chunk_size_bytes=1M"));
    const mp_addr block = kit_alloc(&s.k, BLOCK, &s.a);
    kit_order(&s.k, &s.a, &s.b);
    CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
    kit_read(&s.k, &s.b, block, 0);
    s.k.read_count = 0; /* whatever it finds */
    kit_free(&s.k, block);
    CHECK_EQ_INT(kit_stats(&s.k).in_use, 0);
    mp_layout layout = kit_layout(&s.k);
    const layout_sums sums = layout_add_up(&layout);
    CHECK_EQ_INT(sums.free + sums.waiting, KIT_MIB(1));
    mp__layout_free(&layout);
    kit_verify(&s.k);
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.b.native));
    CHECK_OK(mp_pool_shrink(s.k.pool, NULL));
    CHECK_EQ_INT(kit_stats(&s.k).total, 0);
    kit_trio_close(&s);
}

/* The declared stream goes away before the block is freed, or between free and the next use. */
DEVICE_TEST(pool_stream_forgets_declared_uses_of_streams_that_are_gone) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (int when = 0; when < 2; when++) {
        kit_stream gone = kit_stream_open(&s.k);
        const mp_addr block = kit_alloc(&s.k, KIT_MIB(1), &s.a);
        kit_fill(&s.k, &s.a, block, KIT_MIB(1), 5);
        kit_order(&s.k, &s.a, &gone);
        CHECK_OK(mp_pool_record_use(s.k.pool, block, gone.native));
        kit_read(&s.k, &gone, block, 5);
        if (when == 0) {
            kit_stream_close(&s.k, &gone);
            kit_free(&s.k, block);
        } else {
            kit_free(&s.k, block);
            kit_stream_close(&s.k, &gone);
        }
        (void)use_all(&s.k, &s.c, 6);
    }
    kit_trio_close(&s);
}

DEVICE_TEST(pool_stream_frees_in_the_order_of_another) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 30; tag += 3) {
        const mp_addr block = kit_alloc(&s.k, KIT_MIB(1), &s.a);
        kit_fill(&s.k, &s.a, block, KIT_MIB(1), tag);
        kit_order(&s.k, &s.a, &s.b);
        kit_read(&s.k, &s.b, block, tag);
        CHECK_OK(mp_pool_free_on(s.k.pool, block, s.b.native));
        const uint64_t waits = kit_stats(&s.k).waits;
        CHECK_EQ_INT(use_all(&s.k, &s.b, tag + 1), block); /* at once */
        CHECK_EQ_INT(kit_stats(&s.k).waits, waits);
        (void)use_all(&s.k, &s.a, tag + 2);
    }
    kit_trio_close(&s);
}

/* ---- without a stream ---- */

DEVICE_TEST(pool_stream_lends_to_the_host_only_what_is_idle) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    for (uint32_t tag = 1; tag < 20; tag++) {
        (void)use_all(&s.k, &s.a, tag);
        const mp_addr block = kit_alloc(&s.k, KIT_MIB(1), NULL);
        const uint32_t mine = 1000 + tag;
        uint32_t found = 0;
        CHECK_OK(device->ops->copy(device, NULL, block, (mp_addr)&mine, sizeof mine));
        CHECK_OK(device->ops->synchronize(device));
        CHECK_OK(device->ops->copy(device, NULL, (mp_addr)&found, block, sizeof found));
        CHECK_EQ_INT(found, mine);
        kit_free(&s.k, block);
    }
    kit_trio_close(&s);
}

DEVICE_TEST(pool_stream_serves_the_default_stream) {
    kit_trio s;
    kit_trio_open(&s, device, ONE_REGION);
    kit_stream legacy = {.native = NULL};
    CHECK_OK(device->ops->stream_wrap(device, NULL, &legacy.queue));
    for (uint32_t tag = 1; tag < 12; tag += 2) {
        (void)use_all(&s.k, &legacy, tag);
        (void)use_all(&s.k, &s.a, tag + 1);
    }
    kit_verify(&s.k);
    device->ops->stream_destroy(device, legacy.queue);
    kit_trio_close(&s);
}

DEVICE_TEST(pool_stream_has_no_order_in_pinned_memory) {
    kit k;
    kit_open(&k, device, NULL);
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_PINNED, "kit", KIT_OPTIONS("arena.max_mem=1M"),
                              &k.pool));
    kit_stream a = kit_stream_open(&k), b = kit_stream_open(&k);
    const mp_addr block = kit_alloc(&k, KIT_MIB(1), &a);
    memset((void *)block, 3, KIT_MIB(1)); /* it is memory of the host */
    kit_free(&k, block);
    CHECK_EQ_INT(kit_alloc(&k, KIT_MIB(1), &b), block);
    mp_block_info info = {0};
    CHECK_OK(mp_pool_find(k.pool, block, &info));
    CHECK(info.stream == MP_NO_STREAM);
    kit_free(&k, block);
    const mp_pool_stats stats = kit_stats(&k);
    CHECK_EQ_INT(stats.events + stats.waits, 0);
    kit_stream_close(&k, &a);
    kit_stream_close(&k, &b);
    kit_close(&k);
}

/* ---- streams in turn ---- */

/* What each of many streams has freed serves the next, once its work is known to have ended. */
static void check_turns(mp_device *device, bool settle) {
    enum { STREAMS = 16, ROUNDS = 3 };
    kit_stream streams[STREAMS];
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=0"));
    for (size_t i = 0; i < STREAMS; i++) {
        streams[i] = kit_stream_open(&k);
    }
    for (size_t i = 0; i < ROUNDS * STREAMS; i++) {
        const kit_stream *own = &streams[i % STREAMS];
        const mp_addr a = kit_alloc(&k, KIT_KIB(200), own), b = kit_alloc(&k, KIT_KIB(200), own);
        kit_fill(&k, own, a, KIT_KIB(200), (uint32_t)i);
        kit_read(&k, own, a, (uint32_t)i);
        kit_free(&k, a);
        kit_free(&k, b);
        CHECK_OK(device->ops->stream_synchronize(device, own->queue));
        if (settle) {
            CHECK_OK(mp_pool_stream_settled(k.pool, own->native));
        }
    }
    CHECK_EQ_INT(kit_stats(&k).total, KIT_MIB(1));
    for (size_t i = 0; i < STREAMS; i++) {
        kit_stream_close(&k, &streams[i]);
    }
    kit_close(&k);
}

DEVICE_TEST(pool_stream_serves_streams_in_turn_from_each_others_shelves) {
    check_turns(device, true);
}

DEVICE_TEST(pool_stream_finds_out_which_streams_have_nothing_to_do) {
    check_turns(device, false);
}

/* Pieces from the shelves of two streams make one block for a third. */
DEVICE_TEST(pool_stream_joins_what_streams_at_rest_keep) {
    mp_addr blocks[8];
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS("arena.extend_strategy=0"));
    kit_stream third = kit_stream_open(&s.k);
    for (size_t i = 0; i < MP_COUNT_OF(blocks); i++) {
        blocks[i] = kit_alloc(&s.k, KIT_KIB(128), i % 2 == 0 ? &s.a : &s.b);
    }
    for (size_t i = 0; i < MP_COUNT_OF(blocks); i++) {
        kit_free(&s.k, blocks[i]);
    }
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.a.native));
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.b.native));
    kit_free(&s.k, kit_alloc(&s.k, KIT_MIB(1), &third));
    CHECK_EQ_INT(kit_stats(&s.k).total, KIT_MIB(1));
    kit_stream_close(&s.k, &third);
    kit_pair_close(&s);
}
