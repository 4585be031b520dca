/* pool_thread_test.c - eight threads that do all that a pool offers, at the same time. The thread
 * sanitizer watches; what must hold of any order is checked here.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, STEPS = 400, POSTS = 64, LIVE = 12 };

/* A block that waits for another thread to free it. */
typedef struct post {
    _Atomic(mp_addr) blocks[POSTS];
} post;

typedef struct crowd {
    mp_device *device;
    mp_pool *pool;
    post post;
    const char *path; /* traces are written there */
} crowd;

typedef struct worker {
    crowd *crowd;
    kit_stream stream;
    uint64_t random;
    pthread_t thread;
} worker;

static size_t pick(worker *w, size_t below) {
    return (size_t)(test_random(&w->random) % below);
}

static size_t pick_size(worker *w) {
    static const size_t most[] = {256, 4096, 65536, 300000};
    return 1 + pick(w, most[pick(w, 4)]);
}

/* Writes the block on the stream it was allocated on. */
static void work_on(worker *w, mp_addr block, size_t size) {
    const mp_device_ops *ops = w->crowd->device->ops;
    CHECK_OK(ops->fill(w->crowd->device, w->stream.queue, block, (uint32_t)pick(w, 1000), 1, size));
}

/* Leaves a block for whoever comes by, and frees the one that lay there. */
static void exchange(worker *w, mp_addr block) {
    const mp_addr other = atomic_exchange(&w->crowd->post.blocks[pick(w, POSTS)], block);
    CHECK_OK(mp_pool_free(w->crowd->pool, other));
}

static void lend_and_give_back(worker *w, mp_addr live[LIVE]) {
    const size_t at = pick(w, LIVE), size = pick_size(w);
    if (live[at] != 0) {
        if (pick(w, 3) == 0) {
            exchange(w, live[at]);
        } else {
            CHECK_OK(mp_pool_free(w->crowd->pool, live[at]));
        }
        live[at] = 0;
        return;
    }
    const mp_status status = mp_pool_alloc(w->crowd->pool, size, w->stream.native, &live[at]);
    CHECK(status == MP_OK || status == MP_OUT_OF_MEMORY);
    if (status == MP_OK) {
        work_on(w, live[at], size);
    }
}

/* ---- what is done only now and then ---- */

static void look(worker *w) {
    mp_pool_stats stats;
    mp_share shares[16];
    size_t count = 0;
    CHECK_OK(mp_pool_get_stats(w->crowd->pool, &stats, sizeof stats));
    CHECK(stats.in_use <= stats.total && stats.requested <= stats.in_use);
    CHECK(stats.in_use <= stats.in_use_max && stats.total <= stats.total_max);
    CHECK(stats.in_use_max <= stats.total_max);
    CHECK_OK(mp_pool_get_clients(w->crowd->pool, shares, 16, &count));
    CHECK_OK(mp_pool_get_streams(w->crowd->pool, shares, 16, &count));
}

static void check_layout(worker *w) {
    kit k = {.pool = w->crowd->pool};
    kit_check(&k);
}

static void count_text(void *context, const char *text, size_t size) {
    (void)text;
    *(size_t *)context += size;
}

static void dump(worker *w) {
    size_t size = 0;
    CHECK_OK(mp_pool_dump(w->crowd->pool, count_text, &size));
    CHECK(size > 0);
}

static void shrink(worker *w) {
    CHECK_OK(mp_pool_shrink(w->crowd->pool, NULL));
}

static void open_another(worker *w) {
    mp_pool *another = NULL;
    mp_addr block = 0;
    CHECK_OK(mp__pool_open_on(w->crowd->device, MP_MEMORY_DEVICE, "another", NULL, &another));
    if (mp_pool_alloc(another, 1000, w->stream.native, &block) == MP_OK) {
        CHECK_OK(mp_pool_free(w->crowd->pool, block));
    }
    mp_pool_close(another);
}

static void trace(worker *w) {
    CHECK_OK(mp_pool_trace(w->crowd->pool, pick(w, 2) * 256));
}

static void write_trace(worker *w) {
    const mp_trace_format format = (mp_trace_format)pick(w, 3);
    CHECK_OK(mp_pool_trace_write(w->crowd->pool, format, w->crowd->path));
}

static bool no_help(void *context, size_t size) {
    (void)context, (void)size;
    return false;
}

static void hook(worker *w) {
    CHECK_OK(mp_pool_add_hook(w->crowd->pool, no_help, w));
    mp_addr block = 0;
    CHECK(mp_pool_alloc(w->crowd->pool, (size_t)1 << 45, w->stream.native, &block) ==
          MP_OUT_OF_MEMORY);
    CHECK_OK(mp_pool_remove_hook(w->crowd->pool, no_help, w));
}

static void settle(worker *w) {
    CHECK_OK(w->crowd->device->ops->stream_synchronize(w->crowd->device, w->stream.queue));
    CHECK_OK(mp_pool_stream_settled(w->crowd->pool, w->stream.native));
}

static void reserve(worker *w) {
    mp_addr block = 0;
    const mp_status status = mp_pool_reserve(w->crowd->pool, 100000, &block);
    CHECK(status == MP_OK || status == MP_OUT_OF_MEMORY);
    CHECK_OK(mp_pool_free(w->crowd->pool, block));
}

/* Several threads' work is ordered on the way, as a program with two streams would. */
static void use_elsewhere(worker *w) {
    mp_device *device = w->crowd->device;
    mp_stream *side = NULL;
    mp_event *event = NULL;
    mp_addr block = 0;
    if (mp_pool_alloc(w->crowd->pool, 5000, w->stream.native, &block) != MP_OK) {
        return;
    }
    work_on(w, block, 5000);
    CHECK_OK(device->ops->stream_create(device, &side));
    CHECK_OK(device->ops->event_create(device, false, &event));
    CHECK_OK(device->ops->event_record(device, event, w->stream.queue));
    CHECK_OK(device->ops->event_wait(device, event, side));
    void *native = device->ops->stream_native(device, side);
    CHECK_OK(mp_pool_record_use(w->crowd->pool, block, native));
    CHECK_OK(device->ops->fill(device, side, block, 1, 1, 5000));
    CHECK_OK(mp_pool_free(w->crowd->pool, block));
    CHECK_OK(mp_pool_stream_gone(w->crowd->pool, native));
    device->ops->event_destroy(device, event);
    device->ops->stream_destroy(device, side);
}

static void mistake(worker *w) {
    int nothing = 0;
    CHECK(mp_pool_free(w->crowd->pool, (mp_addr)&nothing) == MP_INVALID_ARGUMENT);
    mp_block_info info;
    CHECK(mp_pool_find(w->crowd->pool, (mp_addr)&nothing, &info) == MP_NOT_FOUND);
}

typedef void deed(worker *w);

static deed *const deeds[] = {look,        check_layout, dump,   shrink,  open_another,  trace,
                              write_trace, hook,         settle, reserve, use_elsewhere, mistake};

static void *work(void *context) {
    worker *w = context;
    mp_addr live[LIVE] = {0};
    for (int i = 0; i < STEPS; i++) {
        if (pick(w, 16) == 0) {
            deeds[pick(w, MP_COUNT_OF(deeds))](w);
        } else {
            lend_and_give_back(w, live);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        CHECK_OK(mp_pool_free(w->crowd->pool, live[i]));
    }
    return NULL;
}

/* ---- the crowd ---- */

static void run_crowd(mp_device *device, const char *const *options, bool own_streams) {
    char folder[] = "/tmp/millpond-test-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/trace", folder);
    kit k;
    kit_open(&k, device, options);
    crowd c = {.device = device, .pool = k.pool, .path = path};
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.crowd = &c, .random = test_seed() * 100 + (uint64_t)i};
        workers[i].stream = own_streams || i == 0 ? kit_stream_open(&k) : workers[0].stream;
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
    }
    for (int i = 0; i < POSTS; i++) {
        kit_free(&k, c.post.blocks[i]);
    }
    CHECK_EQ_INT(kit_stats(&k).in_use, 0);
    for (int i = 0; i < (own_streams ? THREADS : 1); i++) {
        kit_stream_close(&k, &workers[i].stream);
    }
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK_EQ_INT(kit_stats(&k).total, 0);
    kit_close(&k);
    (void)unlink(path);
    CHECK(rmdir(folder) == 0);
}

DEVICE_TEST(pool_thread_crowd_on_own_streams) {
    run_crowd(device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"), true);
}

DEVICE_TEST(pool_thread_crowd_on_one_stream) {
    run_crowd(device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"), false);
}

DEVICE_TEST(pool_thread_crowd_in_little_memory) {
    run_crowd(device, KIT_OPTIONS("arena.max_mem=4M", "arena.max_dead_bytes_per_chunk=0"), true);
}

DEVICE_TEST(pool_thread_crowd_in_expandable_regions) {
    run_crowd(device, KIT_OPTIONS("arena.expandable=1", "arena.max_mem=16M"), true);
}
