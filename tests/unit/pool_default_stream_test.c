/* pool_default_stream_test.c - the handles that stand for other streams: 1 for the legacy default
 * stream, and 2 for another one on each thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <pthread.h>
#include <unistd.h>

#define LEGACY     ((void *)(uintptr_t)1)
#define PER_THREAD ((void *)(uintptr_t)2)
/* A pool that can hold one block of SIZE, so that everybody gets the same memory. */
#define ONE_REGION KIT_OPTIONS("arena.max_mem=1M")

enum { SIZE = 1 << 20, THREADS = 24 };

DEVICE_TEST(pool_default_stream_has_two_handles) {
    kit k;
    kit_open(&k, device, ONE_REGION);
    mp_addr first = 0;
    mp_addr second = 0;
    CHECK_OK(mp_pool_alloc(k.pool, SIZE, NULL, &first));
    kit_free(&k, first);
    CHECK_OK(mp_pool_alloc(k.pool, SIZE, LEGACY, &second));
    CHECK(first == second);
    CHECK_OK(mp_pool_free_on(k.pool, second, NULL));
    const mp_pool_stats stats = kit_stats(&k);
    CHECK_EQ_INT(stats.events + stats.waits, 0); /* nothing had to be ordered */
    kit_close(&k);
}

typedef struct turn {
    kit *k;
    uint32_t tag;
    mp_addr kept; /* allocated by this thread and not freed */
    bool keep;
} turn;

/* Works on the thread's own default stream, and ends without waiting for it. */
static void *use_own_stream(void *context) {
    turn *t = context;
    kit *k = t->k;
    const mp_device_ops *ops = k->device->ops;
    kit_stream own = {.native = PER_THREAD};
    CHECK_OK(ops->stream_wrap(k->device, PER_THREAD, &own.queue));
    mp_addr block = 0;
    CHECK_OK(mp_pool_alloc(k->pool, SIZE, PER_THREAD, &block));
    kit_fill(k, &own, block, SIZE, t->tag);
    kit_read(k, &own, block, t->tag);
    if (t->keep) {
        t->kept = block;
    } else {
        CHECK_OK(mp_pool_free_on(k->pool, block, PER_THREAD));
    }
    ops->stream_destroy(k->device, own.queue);
    return NULL;
}

static void run(turn *t) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_own_stream, t) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A thread that begins where another has ended has another default stream, which knows nothing of
 * the work that the first has left. */
DEVICE_TEST(pool_default_stream_of_a_thread_ends_with_it) {
    kit k;
    kit_open(&k, device, ONE_REGION);
    for (uint32_t i = 1; i <= THREADS; i++) {
        run(&(turn){.k = &k, .tag = i});
    }
    kit_verify(&k);
    size_t count = 0;
    CHECK_OK(mp_pool_get_streams(k.pool, NULL, 0, &count));
    CHECK(count <= 3); /* their records are used again */
    kit_close(&k);
}

/* What such a thread has left allocated is freed by others, in no order with any stream of theirs.
 */
DEVICE_TEST(pool_default_stream_may_leave_blocks) {
    kit k;
    kit_open(&k, device, ONE_REGION);
    for (uint32_t i = 1; i <= THREADS; i++) {
        turn t = {.k = &k, .tag = i, .keep = true};
        run(&t);
        if (i % 2 == 0) {
            kit_free(&k, t.kept);
        } else {
            CHECK_OK(
                device->ops->synchronize(device)); /* as one must, to free it in another order */
            CHECK_OK(mp_pool_free_on(k.pool, t.kept, PER_THREAD));
        }
    }
    kit_verify(&k);
    kit_close(&k);
}

/* The same, and then a block in the memory that the work still uses. */
static void *use_own_stream_again(void *context) {
    turn *t = context;
    (void)use_own_stream(t);
    CHECK_OK(mp_pool_alloc(t->k->pool, SIZE, PER_THREAD, &t->kept));
    return NULL;
}

/* Nobody else can make that work be waited for but by waiting for the device. */
DEVICE_TEST(pool_default_stream_may_pass_blocks_on) {
    kit k;
    pthread_t thread;
    kit_open(&k, device, ONE_REGION);
    kit_stream other = kit_stream_open(&k);
    turn t = {.k = &k, .tag = 5};
    CHECK(pthread_create(&thread, NULL, use_own_stream_again, &t) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(mp_pool_record_use(k.pool, t.kept, other.native));
    kit_fill(&k, &other, t.kept, SIZE, 6);
    kit_read(&k, &other, t.kept, 6);
    kit_free(&k, t.kept);
    kit_verify(&k);
    kit_stream_close(&k, &other);
    kit_close(&k);
}

typedef struct meeting {
    kit *k;
    pthread_barrier_t barrier;
    mp_addr blocks[2];
} meeting;

typedef struct guest {
    meeting *at;
    unsigned index;
    pthread_t thread;
} guest;

static void *lend_together(void *context) {
    const guest *g = context;
    meeting *m = g->at;
    CHECK_OK(mp_pool_alloc(m->k->pool, 1000, PER_THREAD, &m->blocks[g->index]));
    (void)pthread_barrier_wait(&m->barrier); /* both are there */
    CHECK_OK(mp_pool_free(m->k->pool, m->blocks[g->index]));
    return NULL;
}

DEVICE_TEST(pool_default_stream_is_another_for_each_thread) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.initial_chunk_size_bytes=1M"));
    meeting m = {.k = &k};
    CHECK(pthread_barrier_init(&m.barrier, NULL, 2) == 0);
    guest guests[2] = {{.at = &m, .index = 0}, {.at = &m, .index = 1}};
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&guests[i].thread, NULL, lend_together, &guests[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(guests[i].thread, NULL) == 0);
    }
    mp_share shares[8];
    size_t count = 0;
    unsigned own = 0;
    CHECK_OK(mp_pool_get_streams(k.pool, shares, MP_COUNT_OF(shares), &count));
    for (size_t i = 0; i < count; i++) {
        own += shares[i].stream == PER_THREAD && shares[i].allocs == 1;
    }
    CHECK_EQ_INT(own, 2);
    (void)pthread_barrier_destroy(&m.barrier);
    kit_close(&k);
}
