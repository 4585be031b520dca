/* host_queue.c - queues of items, and who runs them.
 *
 * The head of a queue stays in it, marked busy, while it runs: a queue without a head is idle.
 * Threaded: one thread a queue. Adversarial: whoever waits, or queues more, runs some ready head of
 * some queue; which one, and whether any, is drawn from the device's random numbers. Host calls run
 * only for a thread that waits, since a thread that queues may hold a lock the call needs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "device/host/host_work.h"

#include <string.h>

enum {
    QUEUED_MAX = 2000,   /* beyond it queueing runs work, so that memory stays bounded */
    REFUSALS_MAX = 8,    /* "not yet" answers in a row */
    RUN_AT_ONCE_MAX = 4, /* items run while one more is queued */
    MOMENT_NS = 200000
};

/* ---- running one head; under lock, which is let go meanwhile ---- */

static void pop(host_device *host, host_queue *queue) {
    host_item *item = queue->head;
    queue->head = item->next;
    if (queue->head == NULL) {
        queue->tail = NULL;
        queue->refusals = 0;
    }
    host->queued--;
    host->awaiting -= item->kind->is_foreign;
}

static void run_head(host_device *host, host_queue *queue) {
    host_item *item = queue->head;
    queue->busy = true;
    (void)pthread_mutex_unlock(&host->lock);
    if (mp__host_adversarial(host)) {
        mp__host_check_running(host, queue, item, item->loans);
    }
    const bool ended = mp__host_item_run(host, queue, item, NULL);
    (void)pthread_mutex_lock(&host->lock);
    queue->busy = false;
    if (ended) {
        pop(host, queue);
        mp__host_item_free(item);
    }
    (void)pthread_cond_broadcast(&host->progress);
}

/* ---- the adversary's choices; under lock ---- */

static bool can_run(const host_queue *queue, bool host_calls) {
    return queue->head != NULL && !queue->busy && mp__host_item_ready(queue->head) &&
           (host_calls || !queue->head->calls);
}

static host_queue *any_ready(host_device *host, bool host_calls) {
    uint32_t count = 0;
    for (host_queue *queue = host->queues; queue != NULL; queue = queue->next) {
        count += can_run(queue, host_calls);
    }
    if (count == 0) {
        return NULL;
    }
    uint32_t index = mp__host_random(host, count);
    for (host_queue *queue = host->queues; queue != NULL; queue = queue->next) {
        if (can_run(queue, host_calls) && index-- == 0) {
            return queue;
        }
    }
    return NULL;
}

/* The queue whose head must run next for `target` to get on, or NULL while that one is busy. */
static host_queue *needed_by(host_queue *target) {
    host_queue *queue = target;
    while (queue->head != NULL && !mp__host_item_ready(queue->head)) {
        if (queue->head->kind->is_foreign) {
            return NULL; /* who signals is not known */
        }
        queue = queue->head->mark.source;
    }
    return can_run(queue, true) ? queue : NULL;
}

static host_queue *choose(host_device *host, host_queue *target) {
    if (target == NULL) {
        return any_ready(host, true);
    }
    host_queue *needed = needed_by(target);
    if (needed != NULL && mp__host_random(host, 8) < host->laziness) {
        return needed;
    }
    host_queue *other = any_ready(host, false);
    return other != NULL ? other : needed;
}

static void run_some(host_device *host) {
    for (int i = 0; i < RUN_AT_ONCE_MAX; i++) {
        if (host->queued <= QUEUED_MAX && mp__host_random(host, 8) < host->laziness) {
            return;
        }
        host_queue *queue = any_ready(host, false);
        if (queue == NULL) {
            return;
        }
        run_head(host, queue);
    }
}

/* ---- waiting ---- */

/* Until something has run, or for a moment: another process tells nobody when it signals. Under
 * lock. */
static void wait_for_progress(host_device *host) {
    if (host->awaiting == 0) {
        (void)pthread_cond_wait(&host->progress, &host->lock);
    } else {
        mp_clock_wait(&host->progress, &host->lock, MOMENT_NS);
    }
}

static void wait_locked(host_device *host, host_queue *target, host_done *done, const void *what) {
    while (!done(host, what)) {
        host_queue *next = mp__host_adversarial(host) ? choose(host, target) : NULL;
        if (next != NULL) {
            run_head(host, next);
        } else {
            wait_for_progress(host);
        }
    }
}

void mp__host_wait(host_device *host, host_queue *target, host_done *done, const void *what) {
    (void)pthread_mutex_lock(&host->lock);
    wait_locked(host, target, done, what);
    (void)pthread_mutex_unlock(&host->lock);
}

static bool queue_is_empty(const host_device *host, const void *what) {
    (void)host;
    return ((const host_queue *)what)->head == NULL;
}

static bool all_are_empty(const host_device *host, const void *what) {
    (void)what;
    return host->queued == 0;
}

void mp__host_drain(host_device *host, host_queue *queue) {
    mp__host_wait(host, queue, queue != NULL ? queue_is_empty : all_are_empty, queue);
}

void mp__host_nudge(host_device *host, host_queue *queue) {
    if (!mp__host_adversarial(host)) {
        return;
    }
    (void)pthread_mutex_lock(&host->lock);
    if (queue->refusals++ < REFUSALS_MAX) {
        run_some(host);
    } else {
        wait_locked(host, queue, queue_is_empty, queue);
    }
    (void)pthread_mutex_unlock(&host->lock);
}

/* ---- threads of the threaded mode ---- */

static void *queue_main(void *context) {
    host_queue *queue = context;
    host_device *host = queue->host;
    (void)pthread_mutex_lock(&host->lock);
    for (;;) {
        if (queue->head == NULL) {
            if (queue->stopping) {
                break;
            }
            (void)pthread_cond_wait(&queue->wake, &host->lock);
        } else if (!mp__host_item_ready(queue->head)) {
            wait_for_progress(host);
        } else {
            run_head(host, queue);
        }
    }
    (void)pthread_mutex_unlock(&host->lock);
    return NULL;
}

static mp_status start_thread(host_queue *queue) {
    if (queue->has_thread) {
        return MP_OK;
    }
    const int fault = pthread_create(&queue->thread, NULL, queue_main, queue);
    if (fault != 0) {
        return MP_FAIL(DEVICE, "cannot start a thread for stream %u of the emulated device: %s",
                       queue->number, strerror(fault));
    }
    queue->has_thread = true;
    return MP_OK;
}

/* ---- queueing ---- */

static void append(host_device *host, host_queue *queue, host_item *item) {
    if (queue->tail == NULL) {
        queue->head = item;
    } else {
        queue->tail->next = item;
    }
    queue->tail = item;
    host->queued++;
    host->awaiting += item->kind->is_foreign;
    /* A waiting thread may have found nothing to run. */
    (void)pthread_cond_broadcast(&host->progress);
}

static mp_status enqueue_locked(host_device *host, host_queue *queue, host_item *item) {
    if (!mp__host_adversarial(host)) {
        MP_TRY(start_thread(queue));
        append(host, queue, item);
        (void)pthread_cond_signal(&queue->wake);
        return MP_OK;
    }
    mp__host_check_queued(host, queue, item);
    append(host, queue, item);
    run_some(host);
    return MP_OK;
}

mp_status mp__host_enqueue(host_device *host, host_queue *queue, host_item *item) {
    if (mp__host_profiled(host)) {
        mp__host_profile_mark(item);
    }
    if (queue->capture != NULL) {
        return mp__host_capture_add(host, queue, item);
    }
    if (host->config.mode == MP_HOST_EAGER) {
        (void)mp__host_item_run(host, queue, item, NULL);
        return MP_OK;
    }
    host_item *copy = mp__host_item_clone(item);
    if (copy == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate memory to queue work with %zu bytes of arguments",
                       item->bytes_size);
    }
    (void)pthread_mutex_lock(&host->lock);
    const mp_status status = enqueue_locked(host, queue, copy);
    (void)pthread_mutex_unlock(&host->lock);
    if (status != MP_OK) {
        mp__host_item_free(copy);
    }
    return status;
}

/* ---- lives of queues ---- */

void mp__host_queue_open(host_device *host, host_queue *queue, void *native) {
    static atomic_uint_fast64_t ids;
    (void)pthread_cond_init(&queue->wake, NULL);
    queue->host = host;
    queue->native = native;
    queue->id = atomic_fetch_add(&ids, 1) + 1;
    (void)pthread_mutex_lock(&host->lock);
    queue->number = host->queue_count++;
    queue->next = host->queues;
    host->queues = queue;
    (void)pthread_mutex_unlock(&host->lock);
}

void mp__host_queue_close(host_queue *queue) {
    host_device *host = queue->host;
    (void)pthread_mutex_lock(&host->lock);
    wait_locked(host, queue, queue_is_empty, queue);
    mp__host_capture_abandon(queue);
    queue->stopping = true;
    (void)pthread_cond_signal(&queue->wake);
    (void)pthread_mutex_unlock(&host->lock);
    if (queue->has_thread) {
        (void)pthread_join(queue->thread, NULL);
    }
    (void)pthread_mutex_lock(&host->lock);
    host_queue **link = &host->queues;
    while (*link != queue) {
        link = &(*link)->next;
    }
    *link = queue->next;
    (void)pthread_mutex_unlock(&host->lock);
    mp__host_nodes_free(&queue->after);
    (void)pthread_cond_destroy(&queue->wake);
}
