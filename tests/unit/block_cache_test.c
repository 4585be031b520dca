/* block_cache_test.c - the cache of blocks against a simple model: what is lent never overlaps, and
 * a block goes to another stream only after its own was settled.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/block_cache.h"

#include "base/log.h"
#include "device/host/host_device.h"
#include "unit/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { BLOCKS = 64, STREAMS = 3, STEPS = 600 };

/* An address that the cache has lent at least once. */
typedef struct record {
    mp_addr addr;
    size_t size;
    int stream; /* the last user; 0 is the host and what has been settled */
    bool lent;
} record;

typedef struct model {
    mp_block_cache *cache;
    mp_stream *streams[STREAMS + 1]; /* [0] is NULL */
    record records[BLOCKS * 8];
    size_t count;
    size_t lent[BLOCKS]; /* indices of records */
    size_t lent_count;
    uint64_t random;
} model;

static size_t pick(model *m, size_t below) {
    return (size_t)(test_random(&m->random) % below);
}

static record *record_of(model *m, mp_addr addr) {
    for (size_t i = 0; i < m->count; i++) {
        if (m->records[i].addr == addr) {
            return &m->records[i];
        }
    }
    CHECK(m->count < MP_COUNT_OF(m->records));
    m->records[m->count] = (record){.addr = addr};
    return &m->records[m->count++];
}

static void lend(model *m) {
    const size_t size = pick(m, 8) == 0 ? pick(m, 100000) : pick(m, 3000);
    const int stream = (int)pick(m, STREAMS + 1);
    mp_addr addr = 0;
    CHECK_OK(mp_block_cache_alloc(m->cache, size, m->streams[stream], &addr));
    CHECK_EQ_INT(addr % MP_ALIGNMENT, 0);
    for (size_t i = 0; i < m->lent_count; i++) {
        const record *other = &m->records[m->lent[i]];
        CHECK(addr + size <= other->addr || other->addr + other->size <= addr);
    }
    record *r = record_of(m, addr);
    CHECK(!r->lent);
    CHECK(r->stream == 0 || r->stream == stream);
    *r = (record){.addr = addr, .size = size, .stream = stream, .lent = true};
    m->lent[m->lent_count++] = (size_t)(r - m->records);
}

static void give_back(model *m) {
    const size_t at = pick(m, m->lent_count);
    record *r = &m->records[m->lent[at]];
    mp_block_cache_free(m->cache, r->addr);
    r->lent = false;
    m->lent[at] = m->lent[--m->lent_count];
}

static void settle(model *m) {
    const int stream = 1 + (int)pick(m, STREAMS);
    mp_block_cache_settle(m->cache, m->streams[stream]);
    for (size_t i = 0; i < m->count; i++) {
        m->records[i].stream = m->records[i].stream == stream ? 0 : m->records[i].stream;
    }
}

static void shrink(model *m) {
    CHECK_OK(mp_block_cache_shrink(m->cache));
    const mp_block_cache_stats stats = mp_block_cache_get_stats(m->cache);
    CHECK_EQ_INT(stats.total, stats.in_use);
    for (size_t i = 0; i < m->count; i++) { /* a fresh block may come at any address */
        m->records[i].stream = m->records[i].lent ? m->records[i].stream : 0;
    }
}

static void step(model *m) {
    const size_t choice = pick(m, 100);
    if (choice == 0) {
        shrink(m);
    } else if (choice < 6) {
        settle(m);
    } else if (m->lent_count == 0 || (choice < 55 && m->lent_count < BLOCKS)) {
        lend(m);
    } else {
        give_back(m);
    }
    size_t in_use = 0;
    for (size_t i = 0; i < m->lent_count; i++) {
        in_use += m->records[m->lent[i]].size;
    }
    const mp_block_cache_stats stats = mp_block_cache_get_stats(m->cache);
    CHECK(stats.in_use >= in_use && stats.in_use <= stats.in_use_max);
    CHECK(stats.in_use <= stats.total);
    /* A class is at most an eighth too large, the smallest is 512. */
    CHECK(stats.in_use <= in_use + in_use / 8 + m->lent_count * 512);
}

static void run_model(mp_device *device, bool pinned) {
    model *m = calloc(1, sizeof *m);
    CHECK(m != NULL);
    m->random = test_seed();
    CHECK_OK(mp_block_cache_create(device, pinned, &m->cache));
    for (int i = 1; i <= STREAMS; i++) {
        CHECK_OK(device->ops->stream_create(device, &m->streams[i]));
    }
    for (int i = 0; i < STEPS && m->count + 1 < MP_COUNT_OF(m->records); i++) {
        step(m);
    }
    for (int i = 1; i <= STREAMS; i++) {
        device->ops->stream_destroy(device, m->streams[i]);
    }
    mp_block_cache_destroy(m->cache); /* with blocks still lent */
    free(m);
}

DEVICE_TEST(block_cache_follows_its_rules) {
    run_model(device, false);
}

DEVICE_TEST(block_cache_of_pinned_memory_follows_its_rules) {
    run_model(device, true);
}

DEVICE_TEST(block_cache_lends_again_in_stream_order) {
    mp_block_cache *cache = NULL;
    mp_stream *streams[2] = {NULL, NULL};
    mp_addr first = 0;
    mp_addr again = 0;
    mp_addr other = 0;
    CHECK_OK(mp_block_cache_create(device, false, &cache));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(device->ops->stream_create(device, &streams[i]));
    }
    CHECK_OK(mp_block_cache_alloc(cache, 1000, streams[0], &first));
    CHECK_OK(device->ops->fill(device, streams[0], first, 1, 1, 1000));
    mp_block_cache_free(cache, first);
    CHECK_OK(mp_block_cache_alloc(cache, 1000, streams[1], &other));
    CHECK(other != first);
    CHECK_OK(mp_block_cache_alloc(cache, 990, streams[0], &again));
    CHECK(again == first);
    CHECK_OK(device->ops->fill(device, streams[0], again, 2, 1, 990));
    mp_block_cache_free(cache, again);
    CHECK_OK(device->ops->stream_synchronize(device, streams[0]));
    mp_block_cache_settle(cache, streams[0]);
    CHECK_OK(mp_block_cache_alloc(cache, 1000, NULL, &again));
    CHECK(again == first);
    mp_block_cache_destroy(cache);
    for (int i = 0; i < 2; i++) {
        device->ops->stream_destroy(device, streams[i]);
    }
}

/* ---- limits ---- */

static mp_device *small_device(size_t bytes) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = bytes};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    return device;
}

TEST(block_cache_gives_kept_blocks_back_before_it_fails) {
    mp_device *device = small_device(1 << 20);
    mp_block_cache *cache = NULL;
    mp_addr addr[4] = {0};
    CHECK_OK(mp_block_cache_create(device, false, &cache));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(mp_block_cache_alloc(cache, 200 << 10, NULL, &addr[i]));
    }
    for (int i = 0; i < 3; i++) {
        mp_block_cache_free(cache, addr[i]);
    }
    CHECK_OK(
        mp_block_cache_alloc(cache, 700 << 10, NULL, &addr[0])); /* no kept block is so large */
    CHECK_EQ_INT(mp_block_cache_get_stats(cache).total, mp_block_cache_get_stats(cache).in_use);
    CHECK_FAILS(mp_block_cache_alloc(cache, 700 << 10, NULL, &addr[1]), OUT_OF_MEMORY, "");
    mp_block_cache_free(cache, addr[0]);
    CHECK_OK(mp_block_cache_alloc(cache, 600 << 10, NULL, &addr[1]));
    mp_block_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(block_cache_refuses_what_no_machine_has) {
    mp_device *device = small_device(1 << 20);
    mp_block_cache *cache = NULL;
    mp_addr addr = 0;
    CHECK_OK(mp_block_cache_create(device, false, &cache));
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4, SIZE_MAX / 4 + 1,
                            (size_t)1 << 62};
    for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
        CHECK_FAILS(mp_block_cache_alloc(cache, sizes[i], NULL, &addr), OUT_OF_MEMORY, "");
    }
    CHECK_OK(mp_block_cache_alloc(cache, 0, NULL, &addr));
    CHECK(addr != 0);
    mp_block_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

static atomic_int complaints;

static void count_lines(void *context, mp_log_level level, const char *file, int line,
                        const char *text) {
    (void)context, (void)file, (void)line;
    complaints += level == MP_LOG_ERROR && strstr(text, "is not lent") != NULL;
}

TEST(block_cache_refuses_a_second_free) {
    mp_device *device = small_device(1 << 20);
    mp_block_cache *cache = NULL;
    mp_addr addr[2] = {0};
    CHECK_OK(mp_block_cache_create(device, false, &cache));
    CHECK_OK(mp_block_cache_alloc(cache, 100, NULL, &addr[0]));
    mp_log_set_sink(count_lines, NULL);
    mp_block_cache_free(cache, 0);
    CHECK_EQ_INT(complaints, 0);
    mp_block_cache_free(cache, addr[0] + 256);
    CHECK_EQ_INT(complaints, 1);
    mp_block_cache_free(cache, addr[0]);
    CHECK_EQ_INT(complaints, 1);
    mp_block_cache_free(cache, addr[0]);
    CHECK_EQ_INT(complaints, 2);
    mp_log_set_sink(NULL, NULL);
    CHECK_EQ_INT(mp_block_cache_get_stats(cache).in_use, 0);
    CHECK_OK(mp_block_cache_alloc(cache, 100, NULL, &addr[0]));
    CHECK_OK(mp_block_cache_alloc(cache, 100, NULL, &addr[1]));
    CHECK(addr[0] != addr[1]);
    mp_block_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(block_cache_finds_thousands_of_blocks) {
    enum { MANY = 3000 };
    static mp_addr addr[MANY];
    mp_device *device = small_device(64 << 20);
    mp_block_cache *cache = NULL;
    CHECK_OK(mp_block_cache_create(device, false, &cache));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            CHECK_OK(mp_block_cache_alloc(cache, 1 + (size_t)i, NULL, &addr[i]));
        }
        for (int i = 0; i < MANY; i++) {
            mp_block_cache_free(cache, addr[(i * 7) % MANY]);
        }
    }
    const mp_block_cache_stats stats = mp_block_cache_get_stats(cache);
    CHECK_EQ_INT(stats.in_use, 0);
    CHECK_EQ_INT(stats.allocs, 2 * MANY);
    CHECK_EQ_INT(stats.device_allocs, MANY);
    CHECK_EQ_INT(stats.request_max, MANY);
    mp_block_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

/* ---- threads ---- */

typedef struct worker {
    pthread_t thread;
    mp_block_cache *cache;
    uint64_t random;
    unsigned char mark;
} worker;

static void *work(void *context) {
    enum { OWN = 8, ROUNDS = 500 };
    worker *w = context;
    unsigned char *block[OWN] = {NULL};
    size_t size[OWN] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        const size_t i = test_random(&w->random) % OWN;
        for (size_t k = 0; block[i] != NULL && k < size[i]; k += 97) {
            CHECK_EQ_INT(block[i][k], w->mark);
        }
        mp_block_cache_free(w->cache, (mp_addr)block[i]);
        mp_addr addr = 0;
        size[i] = test_random(&w->random) % 4000;
        CHECK_OK(mp_block_cache_alloc(w->cache, size[i], NULL, &addr));
        block[i] = (unsigned char *)addr;
        memset(block[i], w->mark, size[i]);
        if (round % 100 == 50) {
            CHECK_OK(mp_block_cache_shrink(w->cache));
        }
        (void)mp_block_cache_get_stats(w->cache);
    }
    for (size_t i = 0; i < OWN; i++) {
        mp_block_cache_free(w->cache, (mp_addr)block[i]);
    }
    return NULL;
}

TEST(block_cache_serves_threads) {
    mp_device *device = small_device(64 << 20);
    mp_block_cache *cache = NULL;
    worker workers[4];
    CHECK_OK(mp_block_cache_create(device, false, &cache));
    for (size_t i = 0; i < MP_COUNT_OF(workers); i++) {
        workers[i] = (worker){.cache = cache, .random = i + 1, .mark = (unsigned char)(i + 1)};
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(workers); i++) {
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
    }
    CHECK_EQ_INT(mp_block_cache_get_stats(cache).in_use, 0);
    mp_block_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
