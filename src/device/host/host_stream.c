/* host_stream.c - streams and events of the emulated device.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An event counts: queueing a record takes the next number, running it publishes the number, and a
 * wait is for the number that was the last one when the wait was queued. */
#include "device/host/host_internal.h"

#include <stdlib.h>

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
        return MP_FAIL(OUT_OF_MEMORY, "no memory for the queue of a stream");
    }
    const mp_status status = open_stream(host, queue, true, out);
    if (status != MP_OK) {
        free(queue);
        return status;
    }
    mp__host_queue_open(host, queue);
    return MP_OK;
}

mp_status mp__host_stream_wrap(mp_device *self, void *native, mp_stream **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "stream_wrap"));
    if (native == NULL) {
        return open_stream(host, &host->default_queue, false, out);
    }
    (void)pthread_mutex_lock(&host->lock);
    host_queue *queue = host->queues;
    while (queue != NULL && queue != native) {
        queue = queue->next;
    }
    (void)pthread_mutex_unlock(&host->lock);
    if (queue == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "%p is no stream of emulated device %d", native,
                       host->base.ordinal);
    }
    return open_stream(host, queue, false, out);
}

void mp__host_stream_destroy(mp_device *self, mp_stream *stream) {
    if (stream->owned) {
        mp__host_queue_close(stream->queue);
        free(stream->queue);
    } else {
        mp__host_drain(mp__host_from(self), stream->queue);
    }
    mp__host_object_destroy(mp__host_from(self), &stream->object);
}

void *mp__host_stream_native(mp_device *self, mp_stream *stream) {
    host_queue *queue = stream->queue;
    return queue == &mp__host_from(self)->default_queue ? NULL : queue;
}

static mp_status check_outside_capture(const mp_stream *stream, const char *call) {
    if (stream->queue->capture != NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "%s of stream %u, which is being captured", call,
                       stream->queue->number);
    }
    return MP_OK;
}

enum { CHECK_BYTES = 1 << 20 }; /* of freed memory, looked at by every stream_synchronize */

mp_status mp__host_stream_synchronize(mp_device *self, mp_stream *stream) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "stream_synchronize"));
    MP_TRY(check_outside_capture(stream, "stream_synchronize"));
    if (host->config.mode != MP_HOST_EAGER) {
        mp__host_drain(host, stream->queue);
        mp__host_check_freed(host, CHECK_BYTES);
    }
    return mp__host_health(host);
}

mp_status mp__host_stream_query(mp_device *self, mp_stream *stream, bool *idle) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "stream_query"));
    MP_TRY(check_outside_capture(stream, "stream_query"));
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
    host_item item = {.kind = HOST_CALL, .call = {.fn = fn, .context = context}};
    return mp__host_enqueue(host, stream->queue, &item);
}

mp_status mp__host_synchronize(mp_device *self) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "synchronize"));
    MP_TRY(mp__host_not_capturing(host, "synchronize"));
    if (host->config.mode != MP_HOST_EAGER) {
        mp__host_drain(host, NULL);
        mp__host_check_freed(host, SIZE_MAX);
    }
    return mp__host_health(host);
}

/* ---- events ---- */

mp_status mp__host_event_create(mp_device *self, bool timed, mp_event **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "event_create"));
    mp_event *event = NULL;
    MP_TRY(mp__host_object_create(host, HOST_EVENT, sizeof *event, &event));
    event->timed = timed;
    *out = event;
    return MP_OK;
}

void mp__host_event_destroy(mp_device *self, mp_event *event) {
    mp__host_object_destroy(mp__host_from(self), &event->object);
}

void mp__host_event_reach(host_device *host, mp_event *event, uint64_t generation) {
    (void)pthread_mutex_lock(&host->lock);
    if (event->reached < generation) {
        event->reached = generation;
        if (event->timed) {
            (void)clock_gettime(CLOCK_MONOTONIC, &event->at);
        }
    }
    (void)pthread_mutex_unlock(&host->lock);
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
    host_item item = {.kind = HOST_RECORD,
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
        .kind = HOST_WAIT,
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
    const bool captured = event->capture != 0;
    (void)pthread_mutex_unlock(&host->lock);
    if (captured) {
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
