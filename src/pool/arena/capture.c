/* capture.c - memory of captured graphs, and streams that come to an end.
 *
 * A captured stream takes a detour over a heap that belongs to the capture: it begins empty, takes
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

/* Under the arena's lock: what the heap keeps goes to heap 0. */
static void empty_heap(arena *a, stream_heap *heap) {
    mp__shelf_clear(a, heap, true);
    mp__order_settle(heap);
    mp__order_collect(a, false);
    mp__arena_gather_idle(a);
}

static mp_status wait_for(arena *a, stream_heap *heap) {
    mp_stream *stream = mp__order_stream(a, heap);
    return stream != NULL ? a->device->ops->stream_synchronize(a->device, stream) : MP_OK;
}

/* Gives away what the heap keeps, whose stream is waited for unless `is_over`. Under the arena's
 * lock. */
static mp_status give_up(arena *a, stream_heap *heap, bool is_over) {
    if (heap->capture != NULL) {
        return MP_FAIL(BUSY, "a stream that is being captured cannot be given up");
    }
    if (!is_over) {
        MP_TRY(wait_for(a, heap));
    }
    mp__stream_heap_end(a, heap);
    empty_heap(a, heap);
    return MP_OK;
}

mp_status mp__arena_stream_gone(arena *a, void *native) {
    void *key = mp__stream_heap_key(a, native);
    if (key == MP_NO_STREAM) {
        return MP_OK;
    }
    arena_lock(a);
    stream_heap *heap = mp__stream_heap_known(a, key);
    mp_status status = heap == NULL ? mp__stream_heap_current(a, key, &heap) : MP_OK;
    if (status == MP_OK && !heap->gone) {
        status = give_up(a, heap, false);
    }
    arena_unlock(a);
    return status;
}

/* Whether no other client ever had memory on the heap, or used some on its stream. */
static bool is_only_of(stream_heap *heap, uint8_t client) {
    const unsigned others = ~(1U << client);
    bool only = (atomic_load_explicit(&heap->guests, memory_order_relaxed) & others) == 0;
    spin_lock(&heap->lock);
    for (unsigned i = 0; i < MP_CLIENTS_MAX && only; i++) {
        only = i == client || heap->clients[i].allocs == 0;
    }
    spin_unlock(&heap->lock);
    return only;
}

mp_status mp__arena_stream_over(arena *a, void *native, uint8_t client) {
    void *key = mp__stream_heap_key(a, native);
    if (key == MP_NO_STREAM) {
        return MP_OK;
    }
    arena_lock(a);
    stream_heap *heap = mp__stream_heap_known(a, key);
    const mp_status status =
        heap != NULL && !heap->gone ? give_up(a, heap, is_only_of(heap, client)) : MP_OK;
    arena_unlock(a);
    return status;
}

mp_status mp__arena_stream_settled(arena *a, void *native) {
    arena_lock(a);
    stream_heap *heap = mp__stream_heap_known(a, mp__stream_heap_key(a, native));
    if (heap != NULL && heap->index != 0) {
        mp__order_settle(heap); /* no walk over chunks: they are compared with it when needed */
    }
    arena_unlock(a);
    return MP_OK;
}

/* The heap of the stream itself, also while it is captured. Under the arena's lock. */
static mp_status own_heap(arena *a, void *native, stream_heap **out) {
    void *key = mp__stream_heap_key(a, native);
    if (key != MP_NO_STREAM) {
        return mp__stream_heap_current(a, key, out);
    }
    *out = stream_heap_at(a, 0);
    return MP_OK;
}

mp_status mp__arena_stream_mark(arena *a, void *native, uint64_t *mark) {
    stream_heap *heap = NULL;
    arena_lock(a);
    const mp_status status = own_heap(a, native, &heap);
    if (status == MP_OK) {
        *mark = mp__order_end_epoch(heap);
    }
    arena_unlock(a);
    return status;
}

static mp_status order(arena *a, void *consumer, void *producer, uint64_t mark) {
    stream_heap *to = NULL;
    stream_heap *from = NULL;
    MP_TRY(own_heap(a, consumer, &to));
    MP_TRY(own_heap(a, producer, &from));
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

static mp_status add_heap(arena *a, mp_capture *capture, void *stream, stream_heap **out) {
    const size_t count = capture->heap_count + 1;
    stream_heap **heaps = realloc(capture->heaps, count * sizeof(stream_heap *));
    capture->heaps = heaps != NULL ? heaps : capture->heaps;
    void **streams = realloc(capture->streams, count * sizeof(void *));
    capture->streams = streams != NULL ? streams : capture->streams;
    if (heaps == NULL || streams == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a captured stream");
    }
    stream_heap *heap = NULL;
    MP_TRY(mp__stream_heap_add(a, &heap));
    spin_lock(&heap->lock);
    heap->is_capture = true;
    heap->key = heap; /* found by no stream */
    heap->native = stream;
    spin_unlock(&heap->lock);
    heaps[count - 1] = heap;
    streams[count - 1] = stream;
    capture->heap_count = count;
    *out = heap;
    return MP_OK;
}

static mp_status heap_for(arena *a, mp_capture *capture, void *stream, stream_heap **out) {
    for (size_t i = 0; i < capture->heap_count; i++) {
        if (capture->streams[i] == stream) {
            *out = capture->heaps[i];
            return MP_OK;
        }
    }
    return add_heap(a, capture, stream, out);
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
    free(capture->heaps);
    free(capture->streams);
    free(capture);
}

static mp_status begin(arena *a, stream_heap *heap, mp_capture **capture) {
    mp_capture *given = *capture;
    if (heap->capture != NULL) {
        return MP_FAIL(BUSY, "the stream is in a capture already; end that first");
    }
    if (given != NULL && !is_known(a, given)) {
        return MP_FAIL(INVALID_ARGUMENT, "the capture given is not one of this pool");
    }
    if (given == NULL) {
        MP_TRY(new_capture(a, &given));
    }
    stream_heap *to = NULL;
    const mp_status status = heap_for(a, given, heap->native, &to);
    if (status != MP_OK) {
        if (*capture == NULL) {
            forget(a, given);
        }
        return status;
    }
    mp__order_cover(a, heap); /* while it is captured it takes no event */
    spin_lock(&heap->lock);
    heap->capture = to;
    heap->detour = true;
    spin_unlock(&heap->lock);
    a->captures_open++;
    *capture = given;
    return MP_OK;
}

mp_status mp__arena_capture_begin(arena *a, void *native, mp_capture **capture) {
    void *key = mp__stream_heap_key(a, native);
    stream_heap *heap = NULL;
    if (key == MP_NO_STREAM) {
        return MP_FAIL(INVALID_ARGUMENT, "only a stream can be captured, in a pool of device "
                                         "memory");
    }
    arena_lock(a);
    mp_status status = mp__stream_heap_current(a, key, &heap);
    if (status == MP_OK) {
        status = begin(a, heap, capture);
    }
    arena_unlock(a);
    return status;
}

mp_status mp__arena_capture_end(arena *a, void *native) {
    arena_lock(a);
    stream_heap *heap = mp__stream_heap_known(a, mp__stream_heap_key(a, native));
    mp_status status = MP_OK;
    if (heap == NULL || heap->capture == NULL) {
        status = MP_FAIL(INVALID_ARGUMENT, "the stream is not in a capture of this pool");
    } else {
        spin_lock(&heap->lock);
        heap->capture = NULL;
        heap->detour = heap->gone;
        spin_unlock(&heap->lock);
        a->captures_open--;
    }
    arena_unlock(a);
    return status;
}

static bool is_open(const arena *a, const mp_capture *capture) {
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        const stream_heap *used = stream_heap_at(a, (unsigned)i)->capture;
        for (size_t k = 0; used != NULL && k < capture->heap_count; k++) {
            if (capture->heaps[k] == used) {
                return true;
            }
        }
    }
    return false;
}

/* Now that no graph uses it, what is free in the heap is so for the device, too. */
static void note_free(arena *a, const stream_heap *heap) {
    for (int class = mp__bins_next(&heap->bins, -1); class >= 0;
         class = mp__bins_next(&heap->bins, class)) {
        for (const chunk *c = heap->bins.head[class]; c != NULL; c = c->link) {
            a->device->ops->note(a->device, chunk_addr(c), chunk_bytes(c), false);
        }
    }
}

static void release_heap(arena *a, stream_heap *heap) {
    mp__shelf_clear(a, heap, true);
    if (a->notes) {
        note_free(a, heap);
    }
    mp__stream_heap_end(a, heap);
    empty_heap(a, heap);
}

mp_status mp__arena_capture_release(arena *a, mp_capture *capture) {
    arena_lock(a);
    mp_status status = MP_OK;
    if (!is_known(a, capture)) {
        status = MP_FAIL(INVALID_ARGUMENT, "the capture given is not one of this pool");
    } else if (is_open(a, capture)) {
        status = MP_FAIL(BUSY, "a capture cannot be released before it has ended");
    } else {
        for (size_t i = 0; i < capture->heap_count; i++) {
            release_heap(a, capture->heaps[i]);
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
