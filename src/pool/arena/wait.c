/* wait.c - the host waits for the streams that an arena knows, and leaves captures alone.
 *
 * Waiting for the device as a whole would break captures, those of other libraries too. So each
 * stream that is not captured gets an event, under the arena's lock, so that it is neither given up
 * nor captured for the pool meanwhile; events are waited for without it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/wait.h"

#include "pool/arena/order.h"

#include <stdlib.h>

/* Whether the heap's stream is being captured, or was destroyed without a word. */
static bool takes_no_event(arena *a, const stream_heap *heap, mp_stream *stream) {
    bool captured = true;
    return heap->capture != NULL ||
           a->device->ops->capture_active(a->device, stream, &captured) != MP_OK || captured;
}

/* An event behind all work of the heap's stream, which takes one. NULL: there is none to wait for.
 */
static mp_status mark(arena *a, mp_stream *stream, mp_event **out) {
    const mp_device_ops *ops = a->device->ops;
    bool idle = false;
    *out = NULL;
    MP_TRY(ops->stream_query(a->device, stream, &idle));
    if (idle) {
        return MP_OK;
    }
    MP_TRY(ops->event_create(a->device, false, out));
    const mp_status status = ops->event_record(a->device, *out, stream);
    if (status != MP_OK) {
        ops->event_destroy(a->device, *out);
        *out = NULL;
    }
    return status;
}

/* Adds an event of each heap that has work to `events`, which has room. */
static mp_status mark_all(arena *a, size_t heap_count, mp_event **events, size_t *count) {
    for (size_t i = 1; i < heap_count; i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        mp_stream *stream = mp__order_stream(a, heap);
        mp_event *event = NULL;
        if (stream != NULL && !takes_no_event(a, heap, stream)) {
            MP_TRY(mark(a, stream, &event));
        }
        if (event != NULL) {
            events[(*count)++] = event;
        }
    }
    return MP_OK;
}

mp_status mp__arena_wait(arena *a) {
    size_t count = 0;
    arena_lock(a);
    const size_t heap_count = stream_heap_count_of(a);
    mp_event **events = malloc((heap_count + 1) * sizeof *events);
    mp_status status = events == NULL ? MP_FAIL(OUT_OF_MEMORY,
                                                "cannot allocate host memory to wait for %zu "
                                                "streams",
                                                heap_count)
                                      : mark_all(a, heap_count, events, &count);
    arena_unlock(a);
    for (size_t i = 0; i < count; i++) {
        const mp_status one = a->device->ops->event_synchronize(a->device, events[i]);
        status = status == MP_OK ? one : status;
        a->device->ops->event_destroy(a->device, events[i]);
    }
    free(events);
    return status;
}

mp_status mp__stream_heap_wait(arena *a, stream_heap *heap) {
    mp_event *event = NULL;
    mp_status status = MP_OK;
    arena_lock(a);
    mp_stream *stream = mp__order_stream(a, heap);
    if (stream == NULL) { /* a graph, or a stream out of reach, unless there is none any more */
        status = heap->index == 0 || heap->gone ? MP_OK : MP_BUSY;
    } else {
        status = takes_no_event(a, heap, stream) ? MP_BUSY : mark(a, stream, &event);
    }
    arena_unlock(a);
    if (event != NULL) {
        status = a->device->ops->event_synchronize(a->device, event);
        a->device->ops->event_destroy(a->device, event);
    }
    return status;
}
