/* helper.c - the helpers, and the list of works that want some.
 *
 * A helper takes the first work of the list, and takes it off once as many have come as it wants.
 * Helpers are detached: they sleep until the process ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/helper.h"

#include "base/macros.h"
#include "base/worker.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool forked;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below, and works' numbers */
static pthread_cond_t work_came = PTHREAD_COND_INITIALIZER;
static pthread_cond_t helper_left = PTHREAD_COND_INITIALIZER;
static mp_helped *first;     /* of the list */
static size_t started, busy; /* helpers there are, and those inside a work */

static void mark_forked(void) {
    atomic_store(&forked, true);
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, mark_forked);
}

size_t mp_helper_count(void) {
    (void)pthread_once(&once, watch_forks);
    return atomic_load(&forked) ? 0 : mp_worker_count() / 2;
}

static void *helper_main(void *unused) {
    (void)unused;
    (void)pthread_mutex_lock(&lock);
    for (;;) {
        while (first == NULL) {
            (void)pthread_cond_wait(&work_came, &lock);
        }
        mp_helped *work = first;
        work->inside++;
        first = --work->wanted == 0 ? work->next : first;
        busy++;
        (void)pthread_mutex_unlock(&lock);
        work->join(work->context);
        (void)pthread_mutex_lock(&lock);
        busy--;
        if (--work->inside == 0) {
            (void)pthread_cond_broadcast(&helper_left);
        }
    }
    return NULL;
}

/* With the lock held. A thread that cannot be started is not a failure. */
static void start_helpers(size_t wanted) {
    pthread_attr_t attributes;
    if (started >= wanted || pthread_attr_init(&attributes) != 0) {
        return;
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (; started < wanted; started++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, helper_main, NULL) != 0) {
            break;
        }
    }
    (void)pthread_attr_destroy(&attributes);
}

void mp_helper_ask(mp_helped *work, size_t count) {
    const size_t most = mp_helper_count();
    work->wanted = MP_MIN(count, most);
    work->inside = 0;
    work->listed = work->wanted > 0;
    if (!work->listed) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    mp_helped **end = &first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = work;
    work->next = NULL;
    start_helpers(MP_MIN(busy + work->wanted, most));
    (void)pthread_cond_broadcast(&work_came);
    (void)pthread_mutex_unlock(&lock);
}

void mp_helper_end(mp_helped *work) {
    if (!work->listed) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    for (mp_helped **at = &first; *at != NULL; at = &(*at)->next) {
        if (*at == work) {
            *at = work->next;
            break;
        }
    }
    while (work->inside > 0) {
        (void)pthread_cond_wait(&helper_left, &lock);
    }
    (void)pthread_mutex_unlock(&lock);
}
