/* capture.c - memory of captured graphs, and streams that come to an end.
 *
 * A captured stream takes a detour over a lane that belongs to the capture: it begins empty, takes
 * only memory that is idle for all, and keeps what it has taken until the capture is released,
 * because every run of the graph uses it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/capture.h"

#include "pool/arena/gather_idle.h"
#include "pool/arena/order.h"
#include "pool/arena/shelf.h"
#include "pool/pool_handle.h"

#include <stdlib.h>

/* ---- streams that end ---- */

/* Under the arena's lock: what the lane keeps goes to lane 0. */
static void empty_lane(arena *a, lane *l) {
    mp__shelf_clear(a, l, true);
    mp__order_settle(l);
    mp__order_collect(a, false);
    mp__arena_gather_idle(a);
}

/* Waits for the stream, and gives away what it keeps. Under the arena's lock. */
static mp_status give_up(arena *a, lane *l) {
    if (l->capture != NULL) {
        return MP_FAIL(BUSY, "a stream that is being captured cannot be given up");
    }
    mp_stream *stream = mp__order_stream(a, l);
    if (stream != NULL) {
        MP_TRY(a->device->ops->stream_synchronize(a->device, stream));
    }
    mp__lane_end(a, l);
    empty_lane(a, l);
    return MP_OK;
}

mp_status mp__arena_stream_gone(arena *a, void *native) {
    void *key = mp__lane_key(a, native);
    if (key == MP_NO_STREAM) {
        return MP_OK;
    }
    arena_lock(a);
    lane *l = mp__lane_known(a, key);
    mp_status status = l == NULL ? mp__lane_current(a, key, &l) : MP_OK;
    if (status == MP_OK && !l->gone) {
        status = give_up(a, l);
    }
    arena_unlock(a);
    return status;
}

mp_status mp__arena_stream_settled(arena *a, void *native) {
    arena_lock(a);
    lane *l = mp__lane_known(a, mp__lane_key(a, native));
    if (l != NULL && l->index != 0) {
        mp__order_settle(l); /* no walk over chunks: they are compared with it when needed */
    }
    arena_unlock(a);
    return MP_OK;
}

/* The lane of the stream itself, also while it is captured. Under the arena's lock. */
static mp_status own_lane(arena *a, void *native, lane **out) {
    void *key = mp__lane_key(a, native);
    if (key != MP_NO_STREAM) {
        return mp__lane_current(a, key, out);
    }
    *out = lane_at(a, 0);
    return MP_OK;
}

mp_status mp__arena_stream_mark(arena *a, void *native, uint64_t *mark) {
    lane *l = NULL;
    arena_lock(a);
    const mp_status status = own_lane(a, native, &l);
    if (status == MP_OK) {
        *mark = mp__order_end_epoch(l);
    }
    arena_unlock(a);
    return status;
}

static mp_status order(arena *a, void *consumer, void *producer, uint64_t mark) {
    lane *to = NULL;
    lane *from = NULL;
    MP_TRY(own_lane(a, consumer, &to));
    MP_TRY(own_lane(a, producer, &from));
    if (to->index == 0 || from->index == 0 || to == from) {
        return MP_OK;
    }
    spin_lock(&from->lock);
    const bool known = mark < from->epoch;
    spin_unlock(&from->lock);
    return known ? mp__order_see(to, from, mark)
                 : MP_FAIL(INVALID_ARGUMENT, "mark %llu was never given for that stream",
                           (unsigned long long)mark);
}

mp_status mp__arena_stream_ordered(arena *a, void *consumer, void *producer, uint64_t mark) {
    arena_lock(a);
    const mp_status status = order(a, consumer, producer, mark);
    arena_unlock(a);
    return status;
}

/* ---- captures; under the arena's lock ---- */

static mp_status new_capture(arena *a, mp_capture **out) {
    mp_capture *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a capture");
    }
    fresh->owner = a;
    fresh->next = a->captures;
    a->captures = fresh;
    *out = fresh;
    return MP_OK;
}

static mp_status add_lane(arena *a, mp_capture *capture, void *stream, lane **out) {
    const size_t count = capture->lane_count + 1;
    lane **lanes = realloc(capture->lanes, count * sizeof(lane *));
    capture->lanes = lanes != NULL ? lanes : capture->lanes;
    void **streams = realloc(capture->streams, count * sizeof(void *));
    capture->streams = streams != NULL ? streams : capture->streams;
    if (lanes == NULL || streams == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a captured stream");
    }
    lane *l = NULL;
    MP_TRY(mp__lane_add(a, &l));
    spin_lock(&l->lock);
    l->is_capture = true;
    l->key = l; /* found by no stream */
    l->native = stream;
    spin_unlock(&l->lock);
    lanes[count - 1] = l;
    streams[count - 1] = stream;
    capture->lane_count = count;
    *out = l;
    return MP_OK;
}

static mp_status lane_for(arena *a, mp_capture *capture, void *stream, lane **out) {
    for (size_t i = 0; i < capture->lane_count; i++) {
        if (capture->streams[i] == stream) {
            *out = capture->lanes[i];
            return MP_OK;
        }
    }
    return add_lane(a, capture, stream, out);
}

static bool is_known(const arena *a, const mp_capture *capture) {
    const mp_capture *c = a->captures;
    while (c != NULL && c != capture) {
        c = c->next;
    }
    return c != NULL;
}

static void forget(arena *a, mp_capture *capture) {
    mp_capture **link = &a->captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    free(capture->lanes);
    free(capture->streams);
    free(capture);
}

static mp_status begin(arena *a, lane *l, mp_capture **capture) {
    mp_capture *given = *capture;
    if (l->capture != NULL) {
        return MP_FAIL(BUSY, "the stream is in a capture already; end that first");
    }
    if (given != NULL && !is_known(a, given)) {
        return MP_FAIL(INVALID_ARGUMENT, "the capture given is not one of this pool");
    }
    if (given == NULL) {
        MP_TRY(new_capture(a, &given));
    }
    lane *to = NULL;
    const mp_status status = lane_for(a, given, l->native, &to);
    if (status != MP_OK) {
        if (*capture == NULL) {
            forget(a, given);
        }
        return status;
    }
    mp__order_cover(a, l); /* while it is captured it takes no event */
    spin_lock(&l->lock);
    l->capture = to;
    l->detour = true;
    spin_unlock(&l->lock);
    a->captures_open++;
    *capture = given;
    return MP_OK;
}

mp_status mp__arena_capture_begin(arena *a, void *native, mp_capture **capture) {
    void *key = mp__lane_key(a, native);
    lane *l = NULL;
    if (key == MP_NO_STREAM) {
        return MP_FAIL(INVALID_ARGUMENT, "only a stream can be captured, in a pool of device "
                                         "memory");
    }
    arena_lock(a);
    mp_status status = mp__lane_current(a, key, &l);
    if (status == MP_OK) {
        status = begin(a, l, capture);
    }
    arena_unlock(a);
    return status;
}

mp_status mp__arena_capture_end(arena *a, void *native) {
    arena_lock(a);
    lane *l = mp__lane_known(a, mp__lane_key(a, native));
    mp_status status = MP_OK;
    if (l == NULL || l->capture == NULL) {
        status = MP_FAIL(INVALID_ARGUMENT, "the stream is not in a capture of this pool");
    } else {
        spin_lock(&l->lock);
        l->capture = NULL;
        l->detour = l->gone;
        spin_unlock(&l->lock);
        a->captures_open--;
    }
    arena_unlock(a);
    return status;
}

static bool is_open(const arena *a, const mp_capture *capture) {
    for (size_t i = 1; i < lane_count_of(a); i++) {
        const lane *used = lane_at(a, (unsigned)i)->capture;
        for (size_t k = 0; used != NULL && k < capture->lane_count; k++) {
            if (capture->lanes[k] == used) {
                return true;
            }
        }
    }
    return false;
}

/* Now that no graph uses it, what is free in the lane is so for the device, too. */
static void note_free(arena *a, const lane *l) {
    for (int class = mp__bins_next(&l->bins, -1); class >= 0;
         class = mp__bins_next(&l->bins, class)) {
        for (const chunk *c = l->bins.head[class]; c != NULL; c = c->link) {
            a->device->ops->note(a->device, chunk_addr(c), chunk_bytes(c), false);
        }
    }
}

static void release_lane(arena *a, lane *l) {
    mp__shelf_clear(a, l, true);
    if (a->notes) {
        note_free(a, l);
    }
    mp__lane_end(a, l);
    empty_lane(a, l);
}

mp_status mp__arena_capture_release(arena *a, mp_capture *capture) {
    arena_lock(a);
    mp_status status = MP_OK;
    if (!is_known(a, capture)) {
        status = MP_FAIL(INVALID_ARGUMENT, "the capture given is not one of this pool");
    } else if (is_open(a, capture)) {
        status = MP_FAIL(BUSY, "a capture cannot be released before it has ended");
    } else {
        for (size_t i = 0; i < capture->lane_count; i++) {
            release_lane(a, capture->lanes[i]);
        }
        forget(a, capture);
    }
    arena_unlock(a);
    return status;
}

void mp__captures_close(arena *a) {
    while (a->captures != NULL) {
        forget(a, a->captures);
    }
}
