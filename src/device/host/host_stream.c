/* host_stream.c - streams and events of the emulated device.
 *
 * An event counts: queueing a record takes the next number, running it publishes the number, and a
 * wait is for the number that was the last one when the wait was queued.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_memory.h"
#include "device/host/host_work.h"

#include "base/thread_number.h"

#include <stdlib.h>

/* ---- items ---- */

static bool run_call(host_device *host, host_queue *queue, host_item *item) {
    (void)host;
    (void)queue;
    item->call.fn(item->call.context);
    return true;
}

static const host_item_kind call_kind = {.run = run_call};

static host_object *marked_event(const host_item *item) {
    return &item->mark.event->object;
}

static void reach(host_device *host, mp_event *event, uint64_t generation) {
    (void)pthread_mutex_lock(&host->lock);
    if (event->reached < generation) {
        event->reached = generation;
        if (event->timed) {
            (void)clock_gettime(CLOCK_MONOTONIC, &event->at);
        }
    }
    (void)pthread_mutex_unlock(&host->lock);
}

static bool run_record(host_device *host, host_queue *queue, host_item *item) {
    (void)queue;
    reach(host, item->mark.event, item->mark.generation);
    return true;
}

static const host_item_kind record_kind = {.run = run_record, .object = marked_event};

static bool run_wait(host_device *host, host_queue *queue, host_item *item) {
    (void)host;
    (void)queue;
    (void)item;
    return true; /* that it is its turn is all */
}

static bool wait_is_over(const host_item *item) {
    return item->mark.event->reached >= item->mark.generation;
}

static const host_item_kind wait_kind = {
    .run = run_wait, .is_ready = wait_is_over, .object = marked_event};

/* ---- streams ---- */

static mp_status open_stream(host_device *host, host_queue *queue, bool owned, mp_stream **out) {
    mp_stream *stream = NULL;
    MP_TRY(mp__host_object_create(host, HOST_STREAM, sizeof *stream, &stream));
    stream->queue = queue;
    stream->owned = owned;
    *out = stream;
    return MP_OK;
}

mp_status mp__host_stream_create(mp_device *self, mp_stream **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "stream_create"));
    host_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for the queue of a stream");
    }
    const mp_status status = open_stream(host, queue, true, out);
    if (status != MP_OK) {
        free(queue);
        return status;
    }
    mp__host_queue_open(host, queue, *out);
    return MP_OK;
}

/* ---- wraps ---- */

/* The special handles, as CUDA has them. */
#define LEGACY     ((void *)(uintptr_t)1)
#define PER_THREAD ((void *)(uintptr_t)2)

/* The queue with this native handle; NULL where there is none. */
static host_queue *find_queue(host_device *host, const void *native, uint64_t user) {
    (void)pthread_mutex_lock(&host->lock);
    host_queue *queue = host->queues;
    while (queue != NULL && (queue->native != native || queue->user != user)) {
        queue = queue->next;
    }
    (void)pthread_mutex_unlock(&host->lock);
    return queue;
}

/* The calling thread's default stream, made at its first use. */
static mp_status thread_queue(host_device *host, host_queue **out) {
    const uint64_t user = mp_thread_number();
    *out = find_queue(host, PER_THREAD, user);
    if (*out != NULL) {
        return MP_OK;
    }
    host_queue *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for the default stream of a thread");
    }
    fresh->user = user;
    mp__host_queue_open(host, fresh, PER_THREAD);
    *out = fresh;
    return MP_OK;
}

void mp__host_thread_queues_close(host_device *host) {
    host_queue *next = NULL;
    for (host_queue *queue = host->queues; queue != NULL; queue = next) {
        next = queue->next;
        if (queue->native == PER_THREAD) {
            mp__host_queue_close(queue);
            free(queue);
        }
    }
}

/* The queue of a wrap that is used as a native handle; NULL where it is none. */
static host_queue *queue_of_wrap(host_device *host, const void *native) {
    host_queue *queue = NULL;
    (void)pthread_mutex_lock(&host->lock);
    for (const host_object *object = host->objects.next; object != &host->objects;
         object = object->next) {
        if (object == native && object->kind == HOST_STREAM) {
            queue = ((const mp_stream *)native)->queue;
        }
    }
    (void)pthread_mutex_unlock(&host->lock);
    return queue;
}

static mp_status queue_of(host_device *host, void *native, host_queue **out) {
    if (native == NULL || native == LEGACY) {
        *out = &host->default_queue;
        return MP_OK;
    }
    if (native == PER_THREAD) {
        return thread_queue(host, out);
    }
    *out = find_queue(host, native, 0);
    if (*out == NULL) {
        *out = queue_of_wrap(host, native);
    }
    return *out != NULL ? MP_OK
                        : MP_FAIL(INVALID_ARGUMENT, "%p is not a stream of emulated device %d",
                                  native, host->base.ordinal);
}

mp_status mp__host_stream_wrap(mp_device *self, void *native, mp_stream **out) {
    host_device *host = mp__host_from(self);
    host_queue *queue = NULL;
    MP_TRY(mp__host_call(host, "stream_wrap"));
    MP_TRY(queue_of(host, native, &queue));
    return open_stream(host, queue, false, out);
}

void mp__host_stream_destroy(mp_device *self, mp_stream *stream) {
    if (stream->owned) {
        mp__host_queue_close(stream->queue);
        free(stream->queue);
    }
    mp__host_object_destroy(mp__host_from(self), &stream->object);
}

void *mp__host_stream_native(mp_device *self, mp_stream *stream) {
    (void)self;
    return stream->queue->native;
}

mp_status mp__host_stream_id(mp_device *self, mp_stream *stream, uint64_t *out) {
    MP_TRY(mp__host_call(mp__host_from(self), "stream_id"));
    *out = stream->queue->id;
    return MP_OK;
}

static mp_status check_outside_capture(host_device *host, const mp_stream *stream,
                                       const char *call) {
    const host_capture *capture = stream->queue->capture;
    if (capture != NULL) {
        (void)mp__host_capture_break(host, mp__host_capture_id(capture));
        return MP_FAIL(INVALID_ARGUMENT, "%s of stream %u, which is being captured", call,
                       stream->queue->number);
    }
    return MP_OK;
}

enum { CHECK_BYTES = 1 << 20 }; /* of freed memory, looked at by every stream_synchronize */

mp_status mp__host_stream_synchronize(mp_device *self, mp_stream *stream) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "stream_synchronize"));
    MP_TRY(check_outside_capture(host, stream, "stream_synchronize"));
    if (host->config.mode != MP_HOST_EAGER) {
        mp__host_drain(host, stream->queue);
        mp__host_check_freed(host, CHECK_BYTES);
    }
    mp__host_mempools_settle(host);
    return mp__host_health(host);
}

mp_status mp__host_stream_query(mp_device *self, mp_stream *stream, bool *idle) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "stream_query"));
    MP_TRY(check_outside_capture(host, stream, "stream_query"));
    mp__host_nudge(host, stream->queue);
    (void)pthread_mutex_lock(&host->lock);
    *idle = stream->queue->head == NULL;
    (void)pthread_mutex_unlock(&host->lock);
    return mp__host_health(host);
}

mp_status mp__host_stream_call(mp_device *self, mp_stream *stream, mp_host_call *fn,
                               void *context) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "stream_call"));
    host_item item = {.kind = &call_kind, .calls = true, .call = {.fn = fn, .context = context}};
    return mp__host_enqueue(host, stream->queue, &item);
}

mp_status mp__host_synchronize(mp_device *self) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "synchronize"));
    if (mp__host_capture_break(host, 0)) {
        return MP_FAIL(INVALID_ARGUMENT, "synchronize while a stream is being captured");
    }
    if (host->config.mode != MP_HOST_EAGER) {
        mp__host_drain(host, NULL);
        mp__host_check_freed(host, SIZE_MAX);
    }
    mp__host_mempools_settle(host);
    return mp__host_health(host);
}

/* ---- events ---- */

static void clear_event(host_object *self) {
    mp__host_nodes_free(&((mp_event *)(void *)self)->after);
}

mp_status mp__host_event_create(mp_device *self, bool timed, mp_event **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "event_create"));
    mp_event *event = NULL;
    MP_TRY(mp__host_object_create(host, HOST_EVENT, sizeof *event, &event));
    event->object.clear = clear_event;
    event->timed = timed;
    *out = event;
    return MP_OK;
}

void mp__host_event_destroy(mp_device *self, mp_event *event) {
    mp__host_object_destroy(mp__host_from(self), &event->object);
}

mp_status mp__host_event_record(mp_device *self, mp_event *event, mp_stream *stream) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "event_record"));
    if (stream->queue->capture != NULL) {
        return mp__host_capture_record(host, stream->queue, event);
    }
    (void)pthread_mutex_lock(&host->lock);
    const uint64_t before = event->recorded;
    host_queue *source = event->source;
    event->recorded = before + 1;
    event->source = stream->queue;
    event->capture = 0;
    (void)pthread_mutex_unlock(&host->lock);
    host_item item = {.kind = &record_kind,
                      .mark = {.event = event, .generation = before + 1, .source = stream->queue}};
    const mp_status status = mp__host_enqueue(host, stream->queue, &item);
    if (status != MP_OK) {
        (void)pthread_mutex_lock(&host->lock);
        event->recorded = before;
        event->source = source;
        (void)pthread_mutex_unlock(&host->lock);
    }
    return status;
}

mp_status mp__host_event_wait(mp_device *self, mp_event *event, mp_stream *stream) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "event_wait"));
    (void)pthread_mutex_lock(&host->lock);
    const bool captured = event->capture != 0 || stream->queue->capture != NULL;
    host_item item = {
        .kind = &wait_kind,
        .mark = {.event = event, .generation = event->recorded, .source = event->source}};
    const bool reached = event->reached >= event->recorded;
    (void)pthread_mutex_unlock(&host->lock);
    if (captured) {
        return mp__host_capture_wait(host, stream->queue, event);
    }
    return reached ? MP_OK : mp__host_enqueue(host, stream->queue, &item);
}

static mp_status check_uncaptured(host_device *host, const mp_event *event, const char *call) {
    (void)pthread_mutex_lock(&host->lock);
    const uint64_t capture = event->capture;
    (void)pthread_mutex_unlock(&host->lock);
    if (capture != 0) {
        (void)mp__host_capture_break(host, capture);
        return MP_FAIL(INVALID_ARGUMENT, "%s of an event that was last recorded in a capture",
                       call);
    }
    return MP_OK;
}

typedef struct awaited {
    const mp_event *event;
    uint64_t generation;
} awaited;

static bool is_reached(const host_device *host, const void *what) {
    (void)host;
    const awaited *mark = what;
    return mark->event->reached >= mark->generation;
}

mp_status mp__host_event_synchronize(mp_device *self, mp_event *event) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "event_synchronize"));
    MP_TRY(check_uncaptured(host, event, "event_synchronize"));
    (void)pthread_mutex_lock(&host->lock);
    const awaited mark = {.event = event, .generation = event->recorded};
    host_queue *source = event->source;
    (void)pthread_mutex_unlock(&host->lock);
    mp__host_wait(host, source, is_reached, &mark);
    mp__host_mempools_settle(host);
    return mp__host_health(host);
}

mp_status mp__host_event_query(mp_device *self, mp_event *event, bool *reached) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "event_query"));
    MP_TRY(check_uncaptured(host, event, "event_query"));
    (void)pthread_mutex_lock(&host->lock);
    const bool there = event->reached >= event->recorded;
    host_queue *source = event->source;
    (void)pthread_mutex_unlock(&host->lock);
    if (!there) {
        mp__host_nudge(host, source);
    }
    (void)pthread_mutex_lock(&host->lock);
    *reached = event->reached >= event->recorded;
    (void)pthread_mutex_unlock(&host->lock);
    return mp__host_health(host);
}

mp_status mp__host_event_elapsed(mp_device *self, mp_event *start, mp_event *end, float *ms) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "event_elapsed"));
    (void)pthread_mutex_lock(&host->lock);
    const bool timed = start->timed && end->timed;
    const bool there = start->reached > 0 && start->reached == start->recorded &&
                       end->reached > 0 && end->reached == end->recorded;
    const struct timespec from = start->at, to = end->at;
    (void)pthread_mutex_unlock(&host->lock);
    if (!timed) {
        return MP_FAIL(INVALID_ARGUMENT, "event_elapsed needs two events created with `timed`");
    }
    if (!there) {
        return MP_FAIL(BUSY, "event_elapsed of events that have not been reached");
    }
    *ms = (float)((double)(to.tv_sec - from.tv_sec) * 1e3 +
                  (double)(to.tv_nsec - from.tv_nsec) / 1e6);
    return MP_OK;
}
