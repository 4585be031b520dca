/* wait.c - the host waits for the streams that an arena knows, and leaves captures alone.
 *
 * Waiting for the device as a whole would break captures, those of other libraries too. So each
 * stream that is not captured gets an event, under the arena's lock, so that it is neither given up
 * nor captured for the pool meanwhile; events are waited for without it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/arena.h"
#include "pool/mempool/mempool_private.h"

#include <stdlib.h>

/* An event behind all work of the lane's stream. NULL: there is none to wait for. */
static mp_status mark(arena *a, lane *l, mp_event **out) {
    const mp_device_ops *ops = a->device->ops;
    mp_stream *stream = l->capture == NULL ? mp__order_stream(a, l) : NULL;
    bool captured = true;
    bool idle = false;
    *out = NULL;
    if (stream == NULL || ops->capture_active(a->device, stream, &captured) != MP_OK || captured) {
        return MP_OK; /* or it was destroyed without a word */
    }
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

/* Adds an event of each lane that has work to `events`, which has room. */
static mp_status mark_all(arena *a, size_t lane_count, mp_event **events, size_t *count) {
    for (size_t i = 1; i < lane_count; i++) {
        mp_event *event = NULL;
        MP_TRY(mark(a, lane_at(a, (unsigned)i), &event));
        if (event != NULL) {
            events[(*count)++] = event;
        }
    }
    return MP_OK;
}

mp_status mp__arena_wait(arena *a) {
    if (a->mempool != NULL) {
        return mp__mempool_wait(a->mempool);
    }
    size_t count = 0;
    (void)pthread_mutex_lock(&a->lock);
    const size_t lane_count = lane_count_of(a);
    mp_event **events = malloc((lane_count + 1) * sizeof *events);
    mp_status status = events == NULL ? MP_FAIL(OUT_OF_MEMORY,
                                                "cannot allocate host memory to wait for %zu "
                                                "streams",
                                                lane_count)
                                      : mark_all(a, lane_count, events, &count);
    (void)pthread_mutex_unlock(&a->lock);
    for (size_t i = 0; i < count; i++) {
        const mp_status one = a->device->ops->event_synchronize(a->device, events[i]);
        status = status == MP_OK ? one : status;
        a->device->ops->event_destroy(a->device, events[i]);
    }
    free(events);
    return status;
}
