/* later.c - see later.h. All but the count of work is under one lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/later.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 4, STAYS_NS = 100000000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_run = PTHREAD_COND_INITIALIZER;
static pthread_cond_t has_work; /* by mp_clock_wait */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static mp_later *first; /* queued or running, in the order in which they came */
static atomic_size_t count;
static size_t waiting; /* threads that have nothing to do */
static bool is_ending;

/* A thread that has no more work is joined, not detached: after its last line it still frees what
 * libraries keep for each thread, and those must be there until then. */
typedef struct place {
    pthread_t thread;
    enum { PLACE_FREE, PLACE_RUNS, PLACE_ENDED } state;
} place;
static place places[THREADS_MAX];

/* ---- the list; with the lock held ---- */

static mp_later *next_queued(void) {
    mp_later *at = first;
    while (at != NULL && at->state != MP_LATER_QUEUED) {
        at = at->next;
    }
    return at;
}

static size_t queued_count(void) {
    size_t queued = 0;
    for (const mp_later *at = first; at != NULL; at = at->next) {
        queued += at->state == MP_LATER_QUEUED;
    }
    return queued;
}

static void append(mp_later *work) {
    mp_later **end = &first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = work;
    work->next = NULL;
    work->state = MP_LATER_QUEUED;
    atomic_fetch_add(&count, 1);
}

static void take_out(mp_later *work) {
    mp_later **link = &first;
    while (*link != work) {
        link = &(*link)->next;
    }
    *link = work->next;
    work->state = MP_LATER_IDLE;
    atomic_fetch_sub(&count, 1);
    (void)pthread_cond_broadcast(&has_run);
}

/* ---- threads ---- */

/* With the lock held, as the next one: a thread that stays for a moment need not be started again
 * for work that comes every other millisecond. */
static bool wait_for_work(void) {
    const int64_t end = mp_clock_ns() + STAYS_NS;
    int64_t now = mp_clock_ns();
    waiting++;
    while (next_queued() == NULL && !is_ending && now < end) {
        mp_clock_wait(&has_work, &lock, end - now);
        now = mp_clock_ns();
    }
    waiting--;
    return next_queued() != NULL;
}

static void run_queued(void) {
    for (mp_later *work = next_queued(); work != NULL; work = next_queued()) {
        work->state = MP_LATER_RUNS;
        (void)pthread_mutex_unlock(&lock);
        work->run(work);
        (void)pthread_mutex_lock(&lock);
        take_out(work);
    }
}

static void *run_all(void *context) {
    place *own = context;
    (void)pthread_mutex_lock(&lock);
    do {
        run_queued();
    } while (wait_for_work());
    own->state = PLACE_ENDED;
    (void)pthread_cond_broadcast(&has_run);
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

/* The rest is with the lock held, which a thread that has ended does not want again. */

static void join_ended(void) {
    for (size_t i = 0; i < THREADS_MAX; i++) {
        if (places[i].state == PLACE_ENDED) {
            (void)pthread_join(places[i].thread, NULL);
            places[i].state = PLACE_FREE;
        }
    }
}

static size_t thread_count(void) {
    size_t running = 0;
    for (size_t i = 0; i < THREADS_MAX; i++) {
        running += places[i].state == PLACE_RUNS;
    }
    return running;
}

/* Signals go to the threads of the host program. */
static void start_thread(void) {
    sigset_t every, before;
    place *own = places;
    join_ended();
    while (own->state != PLACE_FREE) { /* fewer than THREADS_MAX run */
        own++;
    }
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    if (pthread_create(&own->thread, NULL, run_all, own) == 0) {
        own->state = PLACE_RUNS;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- the end of the process, and its children ---- */

static void end_all(void) {
    (void)pthread_mutex_lock(&lock);
    is_ending = true;
    for (mp_later *work = next_queued(); work != NULL; work = next_queued()) {
        take_out(work);
    }
    (void)pthread_cond_broadcast(&has_work);
    while (thread_count() > 0) {
        (void)pthread_cond_wait(&has_run, &lock);
    }
    join_ended();
    (void)pthread_mutex_unlock(&lock);
}

static void before_fork(void) {
    (void)pthread_mutex_lock(&lock);
}

static void after_fork(void) {
    (void)pthread_mutex_unlock(&lock);
}

/* The threads, and those who wait for them, are the parent's. */
static void in_child(void) {
    has_run = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    mp_clock_cond_init(&has_work);
    waiting = 0;
    while (first != NULL) {
        take_out(first);
    }
    for (size_t i = 0; i < THREADS_MAX; i++) {
        places[i].state = PLACE_FREE;
    }
    (void)pthread_mutex_unlock(&lock);
}

/* glibc's: exit() runs what the main thread has here before all else. */
/* NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming) */
extern int __cxa_thread_atexit_impl(void (*fn)(void *), void *context, void *library)
    __attribute__((weak));
extern void *__dso_handle;
/* NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming) */

static void end_main(void *unused) {
    (void)unused;
    end_all();
}

void mp_later_guard_end(void) {
    static atomic_flag guarded = ATOMIC_FLAG_INIT;
    if (syscall(SYS_gettid) == getpid() && __cxa_thread_atexit_impl != NULL &&
        !atomic_flag_test_and_set(&guarded)) {
        (void)__cxa_thread_atexit_impl(end_main, NULL, &__dso_handle);
    }
}

static void prepare(void) {
    mp_clock_cond_init(&has_work);
    (void)pthread_atfork(before_fork, after_fork, in_child);
    (void)atexit(end_all);
}

void mp_later_loaded(void) {
    (void)atexit(end_all); /* which does nothing the second time */
}

/* ---- the interface ---- */

bool mp_later_add(mp_later *work) {
    const size_t most = MP_MIN(mp_worker_count(), (size_t)THREADS_MAX);
    (void)pthread_once(&once, prepare);
    mp_later_guard_end();
    (void)pthread_mutex_lock(&lock);
    const bool is_free = !is_ending && work->state == MP_LATER_IDLE;
    if (is_free && waiting <= queued_count() && thread_count() < most) {
        start_thread();
    }
    const bool taken = is_free && thread_count() > 0;
    if (taken) {
        append(work);
        (void)pthread_cond_signal(&has_work);
    }
    (void)pthread_mutex_unlock(&lock);
    return taken;
}

void mp_later_wait(mp_later *work) {
    (void)pthread_mutex_lock(&lock);
    while (work->state != MP_LATER_IDLE) {
        (void)pthread_cond_wait(&has_run, &lock);
    }
    (void)pthread_mutex_unlock(&lock);
}

void mp_later_drop(mp_later *work) {
    (void)pthread_mutex_lock(&lock);
    if (work->state == MP_LATER_QUEUED) {
        take_out(work);
    }
    while (work->state != MP_LATER_IDLE) {
        (void)pthread_cond_wait(&has_run, &lock);
    }
    (void)pthread_mutex_unlock(&lock);
}

/* With the lock held. */
static bool has(const void *owner) {
    const mp_later *at = first;
    while (at != NULL && at->owner != owner) {
        at = at->next;
    }
    return at != NULL;
}

bool mp_later_has(const void *owner) {
    if (atomic_load_explicit(&count, memory_order_acquire) == 0) {
        return false;
    }
    (void)pthread_mutex_lock(&lock);
    const bool found = has(owner);
    (void)pthread_mutex_unlock(&lock);
    return found;
}

void mp_later_settle(const void *owner) {
    (void)pthread_mutex_lock(&lock);
    while (has(owner)) {
        (void)pthread_cond_wait(&has_run, &lock);
    }
    (void)pthread_mutex_unlock(&lock);
}
