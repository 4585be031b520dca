/* pool_mempool_mode_test.c - a pool over the driver's own stream-ordered pool.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#define MEMPOOL "arena.use_cuda_mempool=1"

enum { BLOCK = 64 << 10 };

DEVICE_TEST(pool_mempool_mode_orders_by_streams) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL));
    for (uint32_t tag = 1; tag < 40; tag++) {
        const kit_stream *stream = tag % 3 == 0 ? &s.b : &s.a;
        const mp_addr block = kit_alloc(&s.k, BLOCK, stream);
        kit_fill(&s.k, stream, block, BLOCK, tag);
        kit_read(&s.k, stream, block, tag);
        kit_free(&s.k, block);
    }
    const mp_addr block = kit_alloc(&s.k, BLOCK, &s.a);
    kit_fill(&s.k, &s.a, block, BLOCK, 7);
    kit_order(&s.k, &s.a, &s.b);
    kit_read(&s.k, &s.b, block, 7);
    CHECK_OK(mp_pool_free_on(s.k.pool, block, s.b.native));
    kit_pair_close(&s);
}

DEVICE_TEST(pool_mempool_mode_waits_for_declared_uses) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL));
    for (uint32_t tag = 1; tag < 20; tag++) {
        const mp_addr block = kit_alloc(&s.k, BLOCK, &s.a);
        kit_fill(&s.k, &s.a, block, BLOCK, tag);
        kit_order(&s.k, &s.a, &s.b);
        CHECK_OK(mp_pool_record_use(s.k.pool, block, s.b.native));
        kit_read(&s.k, &s.b, block, tag);
        kit_free(&s.k, block);
    }
    kit_pair_close(&s);
}

DEVICE_TEST(pool_mempool_mode_counts) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL));
    const mp_addr block = kit_alloc(&s.k, 1000, &s.a), other = kit_alloc(&s.k, 3000, NULL);
    mp_addr reserved = 0;
    CHECK_OK(mp_pool_reserve(s.k.pool, 5000, &reserved));
    mp_pool_stats stats = kit_stats(&s.k);
    CHECK_EQ_INT(stats.requested, 9000);
    CHECK(stats.in_use >= 9000);
    CHECK(stats.total >= stats.in_use);
    CHECK_EQ_INT(stats.allocs, 3);
    CHECK_EQ_INT(stats.reserves, 1);
    CHECK_EQ_INT(stats.alloc_size_max, 5000);
    CHECK(stats.in_use_max >= stats.in_use);
    kit_free(&s.k, block);
    kit_free(&s.k, other);
    kit_free(&s.k, reserved);
    stats = kit_stats(&s.k);
    CHECK_EQ_INT(stats.in_use, 0);
    CHECK_EQ_INT(stats.frees, 3);
    kit_pair_close(&s);
}

DEVICE_TEST(pool_mempool_mode_refuses_foreign_addresses) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL));
    const mp_addr block = kit_alloc(&s.k, 1000, &s.a);
    int nothing = 0;
    CHECK_FAILS(mp_pool_free(s.k.pool, block + 256), INVALID_ARGUMENT, "0x");
    CHECK_FAILS(mp_pool_free(s.k.pool, (mp_addr)&nothing), INVALID_ARGUMENT, "0x");
    kit_free(&s.k, block);
    CHECK_FAILS(mp_pool_free(s.k.pool, block), INVALID_ARGUMENT, "0x");
    mp_addr out = 1;
    CHECK(mp_pool_alloc(s.k.pool, SIZE_MAX, s.a.native, &out) == MP_OUT_OF_MEMORY);
    CHECK(mp_pool_alloc(s.k.pool, SIZE_MAX / 2, s.a.native, &out) == MP_OUT_OF_MEMORY);
    CHECK_EQ_INT(out, 1);
    kit_pair_close(&s);
}

/* What the threshold keeps is given back by shrink, but for what is to be kept then. */
DEVICE_TEST(pool_mempool_mode_shrinks_by_trimming) {
    static const struct {
        const char *keep;
        size_t bytes;
    } cases[] = {{"arena.cuda_mempool_bytes_to_keep_on_shrink=0", 0},
                 {"arena.cuda_mempool_bytes_to_keep_on_shrink=128M", KIT_MIB(128)}};
    for (size_t i = 0; i < MP_COUNT_OF(cases); i++) {
        kit_pair s;
        kit_pair_open(
            &s, device,
            KIT_OPTIONS(MEMPOOL, "arena.cuda_mempool_release_threshold=64M", cases[i].keep));
        for (int n = 0; n < 4; n++) {
            kit_free(&s.k, kit_alloc(&s.k, KIT_MIB(4), &s.a));
        }
        kit_verify(&s.k);
        const uint64_t total = kit_stats(&s.k).total;
        CHECK(total >= KIT_MIB(4)); /* below the threshold, so it was kept */
        size_t released = 0;
        CHECK_OK(mp_pool_shrink(s.k.pool, &released));
        if (cases[i].bytes == 0) {
            CHECK_EQ_INT(kit_stats(&s.k).total, 0);
            CHECK_EQ_INT(released, total);
        } else {
            CHECK_EQ_INT(kit_stats(&s.k).total, total);
            CHECK_EQ_INT(released, 0);
            s.k.unchecked = true; /* what the driver keeps is in no region of ours */
        }
        kit_pair_close(&s);
    }
}

DEVICE_TEST(pool_mempool_mode_survives_the_end_of_a_stream) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL));
    kit_stream gone = kit_stream_open(&s.k);
    const mp_addr block = kit_alloc(&s.k, BLOCK, &gone);
    kit_fill(&s.k, &gone, block, BLOCK, 7);
    kit_stream_close(&s.k, &gone);
    kit_read(&s.k, &s.a, block, 7);
    kit_verify(&s.k);
    kit_free(&s.k, block);
    kit_pair_close(&s);
}

/* A pool that is closed with blocks allocated keeps them, as an arena does. */
DEVICE_TEST(pool_mempool_mode_closes_with_blocks_lent) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL));
    const mp_addr block = kit_alloc(&s.k, BLOCK, &s.a);
    kit_fill(&s.k, &s.a, block, BLOCK, 3);
    mp_pool_close(s.k.pool);
    kit_read(&s.k, &s.a, block, 3);
    kit_verify(&s.k);
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "kit", KIT_OPTIONS(MEMPOOL), &s.k.pool));
    CHECK_EQ_INT(kit_stats(&s.k).in_use, kit_block_size(&s.k, block));
    kit_free(&s.k, block);
    kit_pair_close(&s);
}

DEVICE_TEST(pool_mempool_mode_obeys_its_limit) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL, "arena.max_mem=4M"));
    CHECK_EQ_INT(kit_stats(&s.k).limit, KIT_MIB(4));
    const mp_addr most = kit_alloc(&s.k, KIT_MIB(3), &s.a);
    mp_addr refused = 0;
    CHECK_FAILS(mp_pool_alloc(s.k.pool, KIT_MIB(2), s.a.native, &refused), OUT_OF_MEMORY,
                "arena.max_mem (4194304 bytes)");
    CHECK_FAILS(mp_pool_reserve(s.k.pool, SIZE_MAX / 2, &refused), OUT_OF_MEMORY, "bytes");
    CHECK_EQ_INT(kit_stats(&s.k).failures, 2);
    const mp_addr rest = kit_alloc(&s.k, KIT_MIB(1), &s.b);
    kit_free(&s.k, most);
    const mp_addr again = kit_alloc(&s.k, KIT_MIB(3), &s.b); /* what is freed counts no more */
    kit_free(&s.k, rest);
    kit_free(&s.k, again);
    kit_pair_close(&s);
}

TEST(pool_mempool_mode_obeys_the_limit_of_the_process) {
    NEEDS_OWN_PROCESS();
    mp_pool *pool = NULL;
    mp_addr block = 0, other = 0;
    CHECK_OK(mp_pool_open("host:0", MP_MEMORY_DEVICE, "test", KIT_OPTIONS(MEMPOOL), &pool));
    mp_limit_set(KIT_MIB(4));
    CHECK_OK(mp_pool_alloc(pool, KIT_MIB(3), MP_NO_STREAM, &block));
    CHECK_FAILS(mp_pool_alloc(pool, KIT_MIB(2), MP_NO_STREAM, &other), OUT_OF_MEMORY,
                "MILLPOND_LIMIT");
    CHECK_OK(mp_pool_free(pool, block));
    CHECK_OK(mp_pool_alloc(pool, KIT_MIB(4), MP_NO_STREAM, &block));
    CHECK_OK(mp_pool_free(pool, block));
    mp_limit_set(0);
    mp_pool_close(pool);
}

typedef struct holder {
    mp_pool *pool;
    mp_addr block;
} holder;

static bool let_go(void *context, size_t size) {
    holder *h = context;
    CHECK_EQ_INT(size, KIT_MIB(3));
    const mp_addr block = h->block;
    h->block = 0;
    CHECK_OK(mp_pool_free(h->pool, block));
    return block != 0;
}

DEVICE_TEST(pool_mempool_mode_asks_hooks_before_it_fails) {
    kit_pair s;
    kit_pair_open(&s, device, KIT_OPTIONS(MEMPOOL, "arena.max_mem=4M"));
    holder h = {.pool = s.k.pool, .block = kit_alloc(&s.k, KIT_MIB(2), &s.a)};
    CHECK_OK(mp_pool_add_hook(s.k.pool, let_go, &h));
    const mp_addr block = kit_alloc(&s.k, KIT_MIB(3), &s.b);
    CHECK_EQ_INT(h.block, 0);
    CHECK_EQ_INT(kit_stats(&s.k).failures, 0);
    mp_addr refused = 0;
    CHECK(mp_pool_alloc(s.k.pool, KIT_MIB(3), s.b.native, &refused) == MP_OUT_OF_MEMORY);
    CHECK_OK(mp_pool_remove_hook(s.k.pool, let_go, &h));
    kit_free(&s.k, block);
    kit_pair_close(&s);
}

TEST(pool_mempool_mode_falls_back_to_the_arena) {
    const mp_host_config config = {.memory_bytes = KIT_MIB(16), .no_mempools = true};
    mp_device *device = NULL;
    kit k;
    CHECK_OK(mp__host_device_create(&config, &device));
    kit_log_keep();
    kit_open(&k, device, KIT_OPTIONS(MEMPOOL));
    CHECK(kit_log_has("arena.use_cuda_mempool")); /* a warning */
    kit_log_end();
    kit_stream stream = kit_stream_open(&k);
    const mp_addr block = kit_alloc(&k, 1000, &stream);
    CHECK_EQ_INT(kit_region_size(&k, block), KIT_MIB(1));
    kit_free(&k, block);
    kit_stream_close(&k, &stream);
    kit_close(&k);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
