/* pool_option_test.c - the words that pools are set up with: what is taken, what is refused and
 * how.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <stdio.h>
#include <stdlib.h>

static mp_status try_options(const char *const *options) {
    mp_pool *pool = NULL;
    const mp_status status = mp_pool_open("host", MP_MEMORY_DEVICE, "test", options, &pool);
    CHECK((pool != NULL) == (status == MP_OK));
    mp_pool_close(pool);
    return status;
}

TEST(pool_option_takes_every_key) {
    static const char *const good[] = {
        "arena.extend_strategy=0",
        "arena.extend_strategy=1",
        "arena.initial_chunk_size_bytes=1048576",
        "arena.initial_chunk_size_bytes=64k",
        "arena.initial_chunk_size_bytes=1",
        "arena.max_dead_bytes_per_chunk=134217728",
        "arena.max_dead_bytes_per_chunk=0",
        "arena.initial_growth_chunk_size_bytes=2M",
        "arena.max_power_of_two_extend_bytes=1G",
        "arena.max_mem=4294967296",
        "arena.max_mem=0",
        "arena.max_mem=18446744073709551615",
        "arena.use_cuda_mempool=0",
        "arena.use_cuda_mempool=1",
        "arena.cuda_mempool_release_threshold=1M",
        "arena.cuda_mempool_bytes_to_keep_on_shrink=1M",
        "arena.expandable=1",
        "arena.expandable=0",
        "arena.ipc=1",
        "arena.guard=1",
        "arena.check=1",
    };
    for (size_t i = 0; i < MP_COUNT_OF(good); i++) {
        CHECK_OK(try_options(KIT_OPTIONS(good[i])));
    }
    CHECK_OK(
        try_options(KIT_OPTIONS("arena.max_mem=1M", "arena.max_mem=2M"))); /* the last counts */
}

TEST(pool_option_refuses_what_it_cannot_use) {
    static const struct {
        const char *option, *sentence; /* a part that the sentence must have */
    } bad[] = {
        {"arena.extend_strategy=2", "arena.extend_strategy"},
        {"arena.extend_strategy=", "arena.extend_strategy"},
        {"arena.extend_strategy=-1", "arena.extend_strategy"},
        {"arena.max_mem=-1", "arena.max_mem"},
        {"arena.max_mem=lots", "lots"},
        {"arena.max_mem=1 M", "arena.max_mem"},
        {"arena.max_mem=99999999999999999999", "arena.max_mem"},
        {"arena.max_mem=17179869184G", "arena.max_mem"},
        {"arena.initial_chunk_size_bytes=-5", "arena.initial_chunk_size_bytes"},
        {"arena.max_dead_bytes_per_chunk=1.5", "arena.max_dead_bytes_per_chunk"},
        {"arena.initial_growth_chunk_size_bytes=x", "arena.initial_growth_chunk_size_bytes"},
        {"arena.max_power_of_two_extend_bytes=-1", "arena.max_power_of_two_extend_bytes"},
        {"arena.use_cuda_mempool=2", "arena.use_cuda_mempool"},
        {"arena.use_cuda_mempool=yes", "arena.use_cuda_mempool"},
        {"arena.cuda_mempool_release_threshold=-1", "arena.cuda_mempool_release_threshold"},
        {"arena.cuda_mempool_bytes_to_keep_on_shrink=-1", "arena.cuda_mempool_bytes_to_keep"},
        {"arena.expandable=maybe", "arena.expandable"},
        {"arena.max_men=1", "arena.max_mem"}, /* what was meant */
        {"max_mem=1", "max_mem"},
        {"arena.max_mem", "arena.max_mem"},
        {"=1", ""},
        {"", ""},
        {"=", ""},
        {"nothing.like.any.of.them=1", "nothing.like.any.of.them"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(bad); i++) {
        CHECK_FAILS(try_options(KIT_OPTIONS(bad[i].option)), INVALID_ARGUMENT, bad[i].sentence);
    }
    CHECK_OK(try_options(NULL)); /* what failed left nothing behind */
}

/* That all keys begin alike makes none of them a neighbour. */
TEST(pool_option_that_is_like_no_other_has_no_neighbour) {
    static const char *const odd[] = {"foo=1", "arena.foo=1", "arena.=1"};
    for (size_t i = 0; i < MP_COUNT_OF(odd); i++) {
        CHECK_FAILS(try_options(KIT_OPTIONS(odd[i])), INVALID_ARGUMENT, "there is no option");
        CHECK(strstr(mp_error_message(), "did you mean") == NULL);
    }
    CHECK_FAILS(try_options(KIT_OPTIONS("max_men=1")), INVALID_ARGUMENT, "mean 'arena.max_mem'?");
    CHECK_FAILS(try_options(KIT_OPTIONS("arena.ipd=1")), INVALID_ARGUMENT, "mean 'arena.ipc'?");
}

/* Addresses of other processes' use and pages mapped on demand exclude each other. */
TEST(pool_option_refuses_contradictions) {
    CHECK_FAILS(try_options(KIT_OPTIONS("arena.expandable=1", "arena.ipc=1")), INVALID_ARGUMENT,
                "arena.ipc");
    CHECK_FAILS(try_options(KIT_OPTIONS("arena.use_cuda_mempool=1", "arena.ipc=1")),
                INVALID_ARGUMENT, "arena.ipc");
}

static uint64_t limit_with(const char *environment, const char *const *options) {
    mp_pool *pool = NULL;
    mp_pool_stats stats;
    CHECK(setenv("MILLPOND_POOL", environment, 1) == 0);
    CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test", options, &pool));
    CHECK_OK(mp_pool_get_stats(pool, &stats, sizeof stats));
    mp_pool_close(pool);
    return stats.limit;
}

TEST(pool_option_reads_the_environment) {
    NEEDS_OWN_PROCESS();
    CHECK_EQ_INT(limit_with("arena.max_mem=5M", NULL), KIT_MIB(5));
    CHECK_EQ_INT(limit_with("arena.extend_strategy=1,arena.max_mem=6M", NULL), KIT_MIB(6));
    CHECK_EQ_INT(limit_with("arena.max_mem=7M", KIT_OPTIONS("arena.max_mem=3M")), KIT_MIB(3));
    CHECK(limit_with("", NULL) == UINT64_MAX);
    static const char *const bad[] = {"arena.max_mem", "arena.max_mem=x", "what=1",
                                      "arena.max_mem=1M,what=1"};
    for (size_t i = 0; i < MP_COUNT_OF(bad); i++) {
        CHECK(setenv("MILLPOND_POOL", bad[i], 1) == 0);
        CHECK_FAILS(try_options(NULL), INVALID_ARGUMENT, "MILLPOND_POOL");
    }
}

TEST(pool_option_without_a_limit) {
    mp_pool *pool = NULL;
    mp_pool_stats stats;
    CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test", KIT_OPTIONS("arena.max_mem=0"), &pool));
    CHECK_OK(mp_pool_get_stats(pool, &stats, sizeof stats));
    CHECK(stats.limit == UINT64_MAX);
    mp_pool_close(pool);
}

/* Absurd sizes are no reason to fail where less will do. */
TEST(pool_option_backs_off_from_absurd_sizes) {
    static const char *const options[] = {
        "arena.initial_chunk_size_bytes=18446744073709551615",
        "arena.initial_chunk_size_bytes=8388608G",
        "arena.initial_chunk_size_bytes=1",
        "arena.max_power_of_two_extend_bytes=18446744073709551615",
        "arena.max_power_of_two_extend_bytes=1",
        "arena.max_dead_bytes_per_chunk=18446744073709551615",
    };
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = KIT_MIB(16)};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    for (size_t i = 0; i < MP_COUNT_OF(options); i++) {
        kit k;
        kit_open(&k, device, KIT_OPTIONS(options[i]));
        const mp_addr a = kit_alloc(&k, 1000, NULL), b = kit_alloc(&k, KIT_MIB(2), NULL);
        CHECK(a != b);
        kit_free(&k, a);
        kit_free(&k, b);
        kit_close(&k);
    }
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

/* A later opener is told of every key that it wanted otherwise, and of each value only once. */
TEST(pool_option_that_comes_too_late_warns_once) {
    mp_pool *first = NULL;
    mp_pool *later = NULL;
    CHECK_OK(
        mp_pool_open("host", MP_MEMORY_DEVICE, "test", KIT_OPTIONS("arena.max_mem=64M"), &first));
    for (int turn = 0; turn < 3; turn++) {
        kit_log_keep();
        CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test",
                              KIT_OPTIONS("arena.max_mem=32M", "arena.initial_chunk_size_bytes=4M"),
                              &later));
        CHECK(kit_log_has("arena.initial_chunk_size_bytes=1048576, which stays, not 4194304") ==
              (turn == 0));
        mp_pool_close(later);
        kit_log_end();
    }
    kit_log_keep();
    CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test",
                          KIT_OPTIONS("arena.max_mem=64M", "arena.poison=1"), &later));
    CHECK(kit_log_has("arena.poison=0, which stays, not 1"));
    mp_pool_close(later);
    CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test",
                          KIT_OPTIONS("arena.max_mem=64M", "arena.poison=1"), &later));
    CHECK(!kit_log_has("stays"));
    mp_pool_close(later);
    /* another value of a key that was told */
    CHECK_OK(
        mp_pool_open("host", MP_MEMORY_DEVICE, "test", KIT_OPTIONS("arena.max_mem=0"), &later));
    CHECK(kit_log_has("arena.max_mem=67108864, which stays, not 0"));
    kit_log_end();
    mp_pool_close(later);
    mp_pool_close(first);
}

/* Only what the opener itself has set is compared: it has not asked for the rest. */
TEST(pool_option_that_is_not_given_does_not_warn) {
    NEEDS_OWN_PROCESS();
    mp_device *device = NULL;
    mp_pool *first = NULL;
    mp_pool *later = NULL;
    CHECK_OK(mp_device_get(MP_DEVICE_HOST, 0, &device));
    CHECK_OK(mp__pool_open_over(device, MP_MEMORY_DEVICE, "test",
                                KIT_OPTIONS("arena.max_mem=8M", "arena.extend_strategy=1"),
                                KIT_OPTIONS("arena.poison=1"), &first));
    CHECK(setenv("MILLPOND_POOL", "arena.guard=1", 1) == 0);
    const char *const *const same[] = {NULL, KIT_OPTIONS("arena.extend_strategy=kSameAsRequested"),
                                       KIT_OPTIONS("arena.poison=1", "arena.max_mem=8388608")};
    const char *const *const bases[] = {NULL, KIT_OPTIONS("arena.max_mem=1G")};
    kit_log_keep();
    for (size_t i = 0; i < MP_COUNT_OF(same) * MP_COUNT_OF(bases); i++) {
        CHECK_OK(mp__pool_open_over(device, MP_MEMORY_DEVICE, "test", bases[i % 2], same[i / 2],
                                    &later));
        mp_pool_close(later);
    }
    CHECK(!kit_log_has("stays"));
    CHECK_OK(mp__pool_open_over(device, MP_MEMORY_DEVICE, "test", NULL,
                                KIT_OPTIONS("arena.max_mem=1G"), &later));
    CHECK(kit_log_has("arena.max_mem=8388608, which stays, not 1073741824"));
    mp_pool_close(later);
    kit_log_end();
    mp_pool_close(first);
}

/* More differences than can be remembered are told, the first of them once more. */
TEST(pool_option_forgets_what_it_told_long_ago) {
    mp_pool *first = NULL;
    mp_pool *later = NULL;
    CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test", NULL, &first));
    for (int i = 0; i < 200; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "arena.max_mem=%d", 1000 + i % 100);
        kit_log_keep();
        CHECK_OK(mp_pool_open("host", MP_MEMORY_DEVICE, "test", KIT_OPTIONS(text), &later));
        CHECK(kit_log_has("arena.max_mem=0, which stays, not 1"));
        kit_log_end();
        mp_pool_close(later);
    }
    mp_pool_close(first);
}
