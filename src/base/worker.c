/* worker.c - the worker threads and the one loop they may be sharing.
 *
 * `owner` is held by the thread whose loop the workers run. A worker joins a loop under `lock`
 * (which counts it in `inside`), takes pieces by an atomic counter, and leaves under `lock` again;
 * the owner returns when its own pieces are out and `inside` is zero, so that a late worker never
 * sees a loop that has ended. Workers are detached: they sleep until the process ends. Loops often
 * follow each other within microseconds, in which a thread is not woken, so both sides look for a
 * moment before they sleep.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/worker.h"

#include "base/log.h"
#include "base/option.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    THREADS_MAX = 256,
    STACK_BYTES = 8 << 20, /* compilers run on them, too */
    LOOKS = 1000,          /* before a thread sleeps: some 20 us, twice what waking one takes */
};

typedef struct loop {
    mp_worker_fn *fn;
    void *context;
    size_t count, piece;
    atomic_size_t next;
} loop;

static pthread_once_t count_once = PTHREAD_ONCE_INIT;
static size_t thread_count = 1;

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_came = PTHREAD_COND_INITIALIZER;
static pthread_cond_t worker_left = PTHREAD_COND_INITIALIZER;
static loop *current; /* under lock; NULL between loops */
/* Changed under lock: the number of loops so far, and workers in `current`. */
static _Atomic uint64_t sequence;
static atomic_size_t inside;
static size_t started; /* under owner */
static atomic_bool forked;

static void mark_forked(void) {
    atomic_store(&forked, true);
}

static size_t online_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    const int count = CPU_COUNT(&set);
    return count > 0 ? (size_t)count : 1;
}

static void choose_count(void) {
    thread_count = online_cpus();
    const char *text = getenv("MILLPOND_HOST_THREADS");
    int64_t asked = 0;
    if (text != NULL && *text != 0) {
        if (mp_parse_int("MILLPOND_HOST_THREADS", text, 1, THREADS_MAX, &asked) == MP_OK) {
            thread_count = (size_t)asked;
        } else {
            MP_LOG(WARNING, "%s; %zu threads are used", mp_error_message(), thread_count);
        }
    }
    if (thread_count > THREADS_MAX) {
        thread_count = THREADS_MAX;
    }
    (void)pthread_atfork(NULL, NULL, mark_forked);
}

size_t mp_worker_count(void) {
    (void)pthread_once(&count_once, choose_count);
    return thread_count;
}

static void take_pieces(loop *shared) {
    for (;;) {
        const size_t begin =
            atomic_fetch_add_explicit(&shared->next, shared->piece, memory_order_relaxed);
        if (begin >= shared->count) {
            return;
        }
        const size_t left = shared->count - begin;
        shared->fn(shared->context, begin, begin + MP_MIN(left, shared->piece));
    }
}

static void look_away(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Without the lock, for a moment. */
static void look_for_work(uint64_t seen) {
    for (int i = 0; i < LOOKS && atomic_load(&sequence) == seen; i++) {
        look_away();
    }
}

static void look_for_end(void) {
    for (int i = 0; i < LOOKS && atomic_load(&inside) > 0; i++) {
        look_away();
    }
}

static void *worker_main(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    for (;;) {
        look_for_work(seen);
        (void)pthread_mutex_lock(&lock);
        while (current == NULL || sequence == seen) {
            (void)pthread_cond_wait(&work_came, &lock);
        }
        seen = sequence;
        loop *shared = current;
        inside++;
        (void)pthread_mutex_unlock(&lock);
        take_pieces(shared);
        (void)pthread_mutex_lock(&lock);
        if (--inside == 0) {
            (void)pthread_cond_signal(&worker_left);
        }
        (void)pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* A thread that cannot be started is not a failure: the loop runs on fewer. */
static void start_workers(size_t wanted) {
    pthread_attr_t attributes;
    if (started >= wanted || pthread_attr_init(&attributes) != 0) {
        return;
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (; started < wanted; started++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, worker_main, NULL) != 0) {
            break;
        }
    }
    (void)pthread_attr_destroy(&attributes);
}

static void run_shared(loop *shared) {
    start_workers(mp_worker_count() - 1);
    (void)pthread_mutex_lock(&lock);
    current = shared;
    sequence++;
    (void)pthread_cond_broadcast(&work_came);
    (void)pthread_mutex_unlock(&lock);
    take_pieces(shared);
    (void)pthread_mutex_lock(&lock);
    current = NULL;
    (void)pthread_mutex_unlock(&lock);
    look_for_end();
    (void)pthread_mutex_lock(&lock);
    while (inside > 0) {
        (void)pthread_cond_wait(&worker_left, &lock);
    }
    (void)pthread_mutex_unlock(&lock);
}

void mp_worker_run(size_t count, size_t piece, mp_worker_fn *fn, void *context) {
    if (count == 0) {
        return;
    }
    loop shared = {.fn = fn, .context = context, .count = count, .piece = piece};
    atomic_init(&shared.next, 0);
    if (count <= piece || mp_worker_count() == 1 || atomic_load(&forked) ||
        pthread_mutex_trylock(&owner) != 0) {
        take_pieces(&shared);
        return;
    }
    run_shared(&shared);
    (void)pthread_mutex_unlock(&owner);
}
