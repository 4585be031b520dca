/* graph_thread_test.c - captured graphs of many threads, and ends of threads and sessions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/graph_rig.h"

#include <pthread.h>

enum { THREADS = 4 };

typedef struct worker {
    pthread_t thread;
    rig_session *sessions[2];
    pthread_barrier_t *gate;
    uint32_t number;
    int turns;
} worker;

static void start(worker *workers, void *(*work)(void *)) {
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        CHECK_EQ_INT(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
}

static void join(const worker *workers) {
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_join(workers[i].thread, NULL), 0);
    }
}

static void *run_both(void *context) {
    const worker *w = context;
    rig_binding b[2];
    bool launched = false;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rig_bind(&b[i], w->sessions[i]));
    }
    for (int i = 0; i < w->turns; i++) {
        const char *const ids[] = {"0", "1", "-1"};
        launched |= rig_run_is_launch(&b[i % 2], ids[i % 3], w->number * 1000 + (uint32_t)i);
    }
    CHECK(launched);
    rig_unbind(&b[0]);
    rig_unbind(&b[1]);
    return NULL;
}

/* Threads end with their graphs, and give back all that was set apart. */
DEVICE_TEST(graphs_of_many_threads) {
    rig_session s[2];
    worker workers[THREADS];
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=1"));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rig_open(&s[i], device, NULL, &rig_wishes));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.sessions = {&s[0], &s[1]}, .turns = 24};
    }
    for (int round = 0; round < 2; round++) {
        start(workers, run_both);
        join(workers);
        CHECK(s[0].provider.thread_records == NULL && s[1].provider.thread_records == NULL);
        CHECK_EQ_INT(kit_stats(&k).in_use, 0);
    }
    rig_close(&s[0]);
    rig_close(&s[1]);
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK_EQ_INT(kit_stats(&k).total, 0);
    kit_close(&k);
}

static void *run_around_an_end(void *context) {
    const worker *w = context;
    rig_binding gone;
    rig_binding kept;
    CHECK_OK(rig_bind(&gone, w->sessions[0]));
    CHECK_OK(rig_bind(&kept, w->sessions[1]));
    CHECK(!rig_run_is_launch(&gone, NULL, w->number));
    CHECK(!rig_run_is_launch(&kept, NULL, w->number));
    CHECK(rig_run_is_launch(&gone, NULL, w->number + 1));
    rig_unbind(&gone);
    (void)pthread_barrier_wait(w->gate); /* the session ends */
    (void)pthread_barrier_wait(w->gate);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(rig_run_is_launch(&kept, NULL, i));
    }
    rig_unbind(&kept);
    return NULL;
}

DEVICE_TEST(session_ends_with_graphs_of_other_threads) {
    rig_session s[2];
    worker workers[THREADS];
    pthread_barrier_t gate;
    CHECK_EQ_INT(pthread_barrier_init(&gate, NULL, THREADS + 1), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rig_open(&s[i], device, NULL, &rig_wishes));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.sessions = {&s[0], &s[1]}, .gate = &gate};
    }
    start(workers, run_around_an_end);
    (void)pthread_barrier_wait(&gate);
    rig_close(&s[0]);
    (void)pthread_barrier_wait(&gate);
    join(workers);
    rig_close(&s[1]);
    CHECK_EQ_INT(pthread_barrier_destroy(&gate), 0);
}

/* While another thread releases graphs, a run may find its own gone, and says so. */
static void *run_while_released(void *context) {
    const worker *w = context;
    rig_binding b;
    CHECK_OK(rig_bind(&b, w->sessions[0]));
    for (uint32_t i = 0; i < 30; i++) {
        CHECK_OK(rig_set(b.s, b.x, i));
        const mp_status status = rig_run(&b, NULL);
        if (status == MP_OK) {
            CHECK_OK(rig_is(b.s, b.y, i));
        } else {
            CHECK(strstr(mp_error_message(), "run again") != NULL);
        }
    }
    rig_unbind(&b);
    return NULL;
}

DEVICE_TEST(graphs_are_released_while_others_run) {
    rig_session s;
    worker workers[THREADS];
    CHECK_OK(rig_open(&s, device, NULL, &rig_wishes));
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.sessions = {&s, &s}};
    }
    start(workers, run_while_released);
    for (int i = 0; i < 40; i++) {
        rig_release_graph(&s, 0);
        CHECK_OK(mp__from_ort(s.provider.base.Sync(&s.provider.base)));
    }
    join(workers);
    rig_close(&s);
}
