/* pool_registry_test.c - one pool for each memory of each device: who shares, who does not, and
 * what happens when they come and go.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static mp_pool *open_named(const char *device, mp_memory memory, const char *client) {
    mp_pool *pool = NULL;
    CHECK_OK(mp_pool_open(device, memory, client, NULL, &pool));
    CHECK(pool != NULL);
    return pool;
}

static uint64_t total_of(mp_pool *pool) {
    mp_pool_stats stats = {0};
    CHECK_OK(mp_pool_get_stats(pool, &stats, sizeof stats));
    return stats.total;
}

TEST(pool_registry_shares_one_pool) {
    mp_pool *ours = open_named("host:0", MP_MEMORY_DEVICE, "ours");
    mp_pool *theirs = open_named("host:0", MP_MEMORY_DEVICE, "theirs");
    CHECK(ours != theirs);
    mp_addr block = 0, again = 0;
    mp_block_info info = {0};
    CHECK_OK(mp_pool_alloc(ours, 1000, MP_NO_STREAM, &block));
    CHECK(total_of(ours) > 0);
    CHECK_EQ_INT(total_of(theirs), total_of(ours));
    CHECK_OK(mp_pool_find(theirs, block + 999, &info));
    CHECK_EQ_INT(info.addr, block);
    CHECK(strcmp(info.client, "ours") == 0);
    CHECK_OK(mp_pool_free(theirs, block)); /* through the other handle */
    CHECK_OK(mp_pool_alloc(theirs, 1000, MP_NO_STREAM, &again));
    CHECK_EQ_INT(again, block);
    CHECK_OK(mp_pool_find(ours, again, &info));
    CHECK(strcmp(info.client, "theirs") == 0);
    mp_pool_close(ours);
    CHECK_OK(mp_pool_find(theirs, again, &info));
    CHECK_OK(mp_pool_free(theirs, again));
    mp_pool_close(theirs);
    mp_pool_close(NULL);
}

TEST(pool_registry_keeps_memories_and_devices_apart) {
    NEEDS_OWN_PROCESS();
    CHECK(setenv("MILLPOND_HOST_DEVICES", "2", 1) == 0);
    mp_pool *pools[] = {
        open_named("host:0", MP_MEMORY_DEVICE, "a"),
        open_named("host:0", MP_MEMORY_PINNED, "a"),
        open_named("host:1", MP_MEMORY_DEVICE, "a"),
        open_named("host:1", MP_MEMORY_PINNED, "a"),
    };
    mp_addr blocks[4];
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQ_INT(total_of(pools[i]), 0);
        CHECK_OK(mp_pool_alloc(pools[i], 1000, MP_NO_STREAM, &blocks[i]));
        mp_block_info info;
        for (size_t j = 0; j < i; j++) {
            CHECK(mp_pool_find(pools[j], blocks[i], &info) == MP_NOT_FOUND);
            CHECK_FAILS(mp_pool_free(pools[j], blocks[i]), INVALID_ARGUMENT, "allocated");
        }
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(mp_pool_free(pools[i], blocks[i]));
        mp_pool_close(pools[i]);
    }
}

TEST(pool_registry_names_the_device_that_is_missing) {
    mp_pool *pool = NULL;
    static const struct {
        const char *device;
        mp_status status;
    } cases[] = {
        {"host:9", MP_NOT_FOUND},          {"cuda:99", MP_NOT_FOUND},
        {"host:", MP_INVALID_ARGUMENT},    {"host:-1", MP_INVALID_ARGUMENT},
        {"host:0x0", MP_INVALID_ARGUMENT}, {"host:99999999999", MP_INVALID_ARGUMENT},
        {"gpu", MP_INVALID_ARGUMENT},      {"", MP_INVALID_ARGUMENT},
        {"host0", MP_INVALID_ARGUMENT},    {"host:0 ", MP_INVALID_ARGUMENT},
        {"tpu:0", MP_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < MP_COUNT_OF(cases); i++) {
        const mp_status status =
            mp_pool_open(cases[i].device, MP_MEMORY_DEVICE, "test", NULL, &pool);
        if (status != cases[i].status) {
            test_fail(__FILE__, __LINE__, "\"%s\": %s", cases[i].device, mp_status_name(status));
        }
        CHECK_STR_HAS(mp_error_message(), cases[i].device);
        CHECK(pool == NULL);
    }
}

TEST(pool_registry_finds_a_device_by_itself) {
    static const char *const names[] = {NULL, "auto", "host", "host:0"};
    NEEDS_OWN_PROCESS();
    CHECK(setenv("MILLPOND_DEVICE", "host", 1) == 0);
    mp_pool *first = open_named("host:0", MP_MEMORY_DEVICE, "first");
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(first, 1, MP_NO_STREAM, &block));
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        mp_pool *pool = open_named(names[i], MP_MEMORY_DEVICE, "same");
        mp_block_info info;
        CHECK_OK(mp_pool_find(pool, block, &info));
        mp_pool_close(pool);
    }
    CHECK_OK(mp_pool_free(first, block));
    mp_pool_close(first);
}

TEST(pool_registry_wants_names_of_clients) {
    mp_pool *pool = NULL;
    CHECK_FAILS(mp_pool_open("host", MP_MEMORY_DEVICE, NULL, NULL, &pool), INVALID_ARGUMENT,
                "client");
    CHECK_FAILS(
        mp_pool_open("host", MP_MEMORY_DEVICE, "12345678901234567890123456789012", NULL, &pool),
        INVALID_ARGUMENT, "31");
    CHECK_FAILS(mp_pool_open("host", MP_MEMORY_DEVICE, "a", NULL, NULL), INVALID_ARGUMENT, "");
    CHECK_FAILS(mp_pool_open("host", (mp_memory)7, "a", NULL, &pool), INVALID_ARGUMENT, "memory");
    CHECK(pool == NULL);
    pool = open_named("host", MP_MEMORY_DEVICE, "1234567890123456789012345678901");
    mp_pool_close(pool);
}

/* ---- options of later openers ---- */

static mp_pool *open_with(const char *const *options) {
    mp_pool *pool = NULL;
    CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test", options, &pool));
    return pool;
}

TEST(pool_registry_warns_of_options_that_come_too_late) {
    mp_pool *pools[5];
    pools[0] = open_with(KIT_OPTIONS("arena.max_mem=8M"));
    kit_log_keep();
    pools[1] = open_with(NULL); /* asks for nothing */
    CHECK(!kit_log_has("arena"));
    pools[2] = open_with(KIT_OPTIONS("arena.max_mem=8388608"));
    CHECK(!kit_log_has("arena"));
    pools[3] = open_with(KIT_OPTIONS("arena.max_mem=9M"));
    CHECK(kit_log_has("arena.max_mem"));
    pools[4] = open_with(KIT_OPTIONS("arena.max_mem=8M", "arena.extend_strategy=1"));
    CHECK(kit_log_has("arena.extend_strategy"));
    kit_log_end();
    for (int i = 0; i < 5; i++) {
        mp_pool_stats stats;
        CHECK_OK(mp_pool_get_stats(pools[i], &stats, sizeof stats));
        CHECK_EQ_INT(stats.limit, KIT_MIB(8));
        mp_pool_close(pools[i]);
    }
}

/* When the last has gone, the next one's options count. */
TEST(pool_registry_opens_anew_after_the_last_handle) {
    mp_pool *pool = open_with(KIT_OPTIONS("arena.max_mem=8M"));
    mp_pool_close(pool);
    kit_log_keep();
    pool = open_with(KIT_OPTIONS("arena.max_mem=9M"));
    CHECK(!kit_log_has("arena"));
    kit_log_end();
    mp_pool_stats stats;
    CHECK_OK(mp_pool_get_stats(pool, &stats, sizeof stats));
    CHECK_EQ_INT(stats.limit, KIT_MIB(9));
    mp_pool_close(pool);
}

/* ---- closing ---- */

DEVICE_TEST(pool_registry_takes_all_memory_with_the_last_handle) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=0"));
    kit_stream a = kit_stream_open(&k);
    kit_free(&k, kit_alloc(&k, KIT_MIB(1), &a));
    kit_free(&k, kit_alloc(&k, KIT_MIB(2), NULL));
    CHECK_OK(device->ops->stream_synchronize(device, a.queue));
    kit_close(&k); /* the device counts what is left, at the end of the test */
    device->ops->stream_destroy(device, a.queue);
}

TEST(pool_registry_keeps_lent_blocks_when_all_are_gone) {
    mp_pool *pool = open_with(NULL);
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
    memset((void *)block, 5, 1000);
    mp_pool_close(pool);
    CHECK_EQ_INT(((unsigned char *)block)[999], 5);
    memset((void *)block, 6, 1000);
    pool = open_named("host", MP_MEMORY_DEVICE, "late");
    mp_block_info info = {0};
    CHECK_OK(mp_pool_find(pool, block, &info));
    CHECK_EQ_INT(info.requested, 1000);
    CHECK(strcmp(info.client, "test") == 0);
    CHECK_EQ_INT(((unsigned char *)block)[999], 6);
    CHECK_OK(mp_pool_free(pool, block));
    mp_pool_close(pool);
}

/* ---- shares ---- */

static const mp_share *share_named(const mp_share *shares, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(shares[i].name, name) == 0) {
            return &shares[i];
        }
    }
    test_fail(__FILE__, __LINE__, "no share of \"%s\"", name);
}

DEVICE_TEST(pool_registry_knows_who_holds_what) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"));
    mp_pool *other = NULL, *same = NULL;
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "other", NULL, &other));
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "other", NULL, &same));
    mp_addr theirs = 0, more = 0;
    const mp_addr ours = kit_alloc(&k, 1000, NULL);
    CHECK_OK(mp_pool_alloc(other, 3000, MP_NO_STREAM, &theirs));
    CHECK_OK(mp_pool_alloc(same, 5000, MP_NO_STREAM, &more));
    mp_share shares[8];
    size_t count = 0;
    CHECK_OK(mp_pool_get_clients(k.pool, shares, 8, &count));
    CHECK_EQ_INT(count, 2);
    const mp_share *kit_share = share_named(shares, count, "kit");
    CHECK_EQ_INT(kit_share->in_use, 1024);
    CHECK_EQ_INT(kit_share->requested, 1000);
    CHECK_EQ_INT(kit_share->blocks, 1);
    const mp_share *other_share = share_named(shares, count, "other");
    CHECK_EQ_INT(other_share->in_use, 3072 + 5120);
    CHECK_EQ_INT(other_share->requested, 8000);
    CHECK_EQ_INT(other_share->blocks, 2);
    CHECK_EQ_INT(other_share->allocs, 2);
    count = 0;
    memset(shares, 0, sizeof shares);
    CHECK_OK(mp_pool_get_clients(k.pool, shares, 1, &count)); /* room for one of two */
    CHECK_EQ_INT(count, 2);
    CHECK(shares[1].name[0] == 0 && shares[1].blocks == 0);
    CHECK_OK(mp_pool_get_clients(k.pool, NULL, 0, &count));
    CHECK_EQ_INT(count, 2);
    CHECK_OK(mp_pool_free(k.pool, theirs)); /* freed by another than who asked */
    CHECK_OK(mp_pool_get_clients(k.pool, shares, 8, &count));
    CHECK_EQ_INT(share_named(shares, count, "other")->blocks, 1);
    CHECK_EQ_INT(share_named(shares, count, "other")->allocs, 2);
    CHECK_EQ_INT(share_named(shares, count, "kit")->blocks, 1);
    CHECK_OK(mp_pool_free(k.pool, more));
    kit_free(&k, ours);
    mp_pool_close(other);
    mp_pool_close(same);
    kit_close(&k);
}

DEVICE_TEST(pool_registry_knows_which_stream_holds_what) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"));
    kit_stream a = kit_stream_open(&k);
    const mp_addr on_a = kit_alloc(&k, 1000, &a), none = kit_alloc(&k, 600, NULL);
    mp_share shares[8];
    size_t count = 0;
    CHECK_OK(mp_pool_get_streams(k.pool, shares, 8, &count));
    CHECK(count >= 2 && count <= 8);
    uint64_t in_use = 0, kept = 0, blocks = 0;
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        in_use += shares[i].in_use;
        kept += shares[i].free;
        blocks += shares[i].blocks;
        if (shares[i].stream == a.native) {
            found = true;
            CHECK_EQ_INT(shares[i].in_use, 1024);
            CHECK_EQ_INT(shares[i].requested, 1000);
            CHECK_EQ_INT(shares[i].blocks, 1);
        }
    }
    CHECK(found);
    CHECK_EQ_INT(blocks, 2);
    CHECK_EQ_INT(in_use, 1024 + 768);
    CHECK_EQ_INT(in_use + kept, kit_stats(&k).total);
    kit_free(&k, on_a);
    kit_free(&k, none);
    kit_stream_close(&k, &a);
    kit_close(&k);
}

/* ---- fork ---- */

static bool child_is_refused(mp_pool *pool, mp_addr block) {
    mp_addr out = 0;
    mp_pool *another = NULL;
    mp_pool_stats stats;
    const mp_status statuses[] = {
        mp_pool_alloc(pool, 100, MP_NO_STREAM, &out),
        mp_pool_free(pool, block),
        mp_pool_reserve(pool, 100, &out),
        mp_pool_shrink(pool, NULL),
        mp_pool_get_stats(pool, &stats, sizeof stats),
        mp_pool_open("host", MP_MEMORY_DEVICE, "child", NULL, &another),
    };
    for (size_t i = 0; i < MP_COUNT_OF(statuses); i++) {
        if (statuses[i] != MP_UNSUPPORTED) {
            (void)fprintf(stderr, "call %zu: %s\n", i, mp_status_name(statuses[i]));
            return false;
        }
    }
    mp_pool_close(pool); /* does nothing, and ends */
    return strstr(mp_error_message(), "fork") != NULL;
}

TEST(pool_registry_tells_a_forked_child) {
    mp_pool *pool = open_with(NULL);
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
    const pid_t child = fork();
    if (child == 0) {
        _exit(child_is_refused(pool, block) ? 0 : 1);
    }
    int state = 1;
    CHECK(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state));
    CHECK_EQ_INT(WEXITSTATUS(state), 0);
    CHECK_OK(mp_pool_free(pool, block)); /* the parent goes on */
    mp_pool_close(pool);
}

/* ---- many at once ---- */

static void *open_and_close(void *context) {
    (void)context;
    for (int i = 0; i < 60; i++) {
        mp_pool *pool = open_named("host", i % 4 == 0 ? MP_MEMORY_PINNED : MP_MEMORY_DEVICE, "t");
        mp_addr block = 0;
        CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
        memset((void *)block, i, 1000);
        CHECK_OK(mp_pool_free(pool, block));
        mp_pool_close(pool);
    }
    return NULL;
}

TEST(pool_registry_opens_and_closes_on_many_threads) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_create(&threads[i], NULL, open_and_close, NULL) == 0);
    }
    for (int i = 0; i < 8; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    mp_pool *pool = open_with(NULL);
    CHECK_EQ_INT(total_of(pool), 0); /* the memory went with the last of them */
    mp_pool_close(pool);
}
