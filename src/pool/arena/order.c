/* order.c - when memory that one stream has freed may serve another.
 *
 * Each heap counts epochs. A chunk freed on it is marked with the present one. Recording an event
 * ends an epoch: once the event is reached, everything marked with that epoch or an earlier one is
 * free for all; a stream that waits for the event may use it at once. So one event serves all frees
 * before it, and none is recorded while each stream lives from its own memory.
 *
 * A block with further streams that use it waits, when freed, until their epochs of that moment
 * have passed, in the same way.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/order.h"

#include "base/log.h"
#include "pool/arena/coalesce.h"
#include "pool/arena/gather_idle.h"
#include "pool/arena/wait.h"

#include <stdlib.h>

struct use {
    use *next;
    unsigned heap, life; /* of the stream: a heap may become another's */
    uint64_t epoch;      /* of that heap; set when the block is freed */
};

enum { WAITING_MAX = 64 }; /* blocks that wait before they are looked at */

/* ---- streams and events ---- */

mp_stream *mp__order_stream(arena *a, stream_heap *heap) {
    if (heap->index == 0 || heap->is_capture || heap->gone || stream_heap_is_left_behind(heap)) {
        return NULL;
    }
    if (heap->stream == NULL) {
        if (a->device->ops->stream_wrap(a->device, heap->native, &heap->stream) != MP_OK) {
            heap->stream = NULL;
        }
    }
    return heap->stream;
}

/* The stream, if events may be put into it: a capture would take them up. */
static mp_stream *usable_stream(arena *a, stream_heap *heap) {
    mp_stream *stream = heap->capture == NULL ? mp__order_stream(a, heap) : NULL;
    bool captured = true;
    if (stream == NULL || a->device->ops->capture_active(a->device, stream, &captured) != MP_OK ||
        captured) {
        return NULL;
    }
    return stream;
}

static mp_status get_event(arena *a, mp_event **out) {
    if (a->spare_event_count > 0) {
        *out = a->spare_events[--a->spare_event_count];
        return MP_OK;
    }
    return a->device->ops->event_create(a->device, false, out);
}

static void put_event(arena *a, mp_event *event) {
    if (a->spare_event_count < MP_COUNT_OF(a->spare_events)) {
        a->spare_events[a->spare_event_count++] = event;
    } else {
        a->device->ops->event_destroy(a->device, event);
    }
}

static void drop_first(arena *a, stream_heap *heap) {
    put_event(a, heap->events[0].event);
    heap->event_count--;
    for (size_t i = 0; i < heap->event_count; i++) {
        heap->events[i] = heap->events[i + 1];
    }
}

static void poll_heap(arena *a, stream_heap *heap) {
    bool reached = true;
    while (heap->event_count > 0 &&
           a->device->ops->event_query(a->device, heap->events[0].event, &reached) == MP_OK &&
           reached) {
        heap->reached = MP_MAX(heap->events[0].epoch, heap->reached);
        drop_first(a, heap);
    }
}

void mp__order_poll(arena *a) {
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        poll_heap(a, stream_heap_at(a, (unsigned)i));
    }
}

uint64_t mp__order_end_epoch(stream_heap *heap) {
    spin_lock(&heap->lock);
    const uint64_t epoch = heap->epoch++;
    spin_unlock(&heap->lock);
    return epoch;
}

static uint64_t epoch_of(stream_heap *heap) {
    spin_lock(&heap->lock);
    const uint64_t epoch = heap->epoch;
    spin_unlock(&heap->lock);
    return epoch;
}

void mp__order_settle(stream_heap *heap) {
    heap->reached = mp__order_end_epoch(heap);
}

static bool stream_is_idle(arena *a, mp_stream *stream) {
    bool idle = false;
    return a->device->ops->stream_query(a->device, stream, &idle) == MP_OK && idle;
}

/* An event of `heap` that covers `epoch`, recorded now where there is none. NULL: it cannot be. */
static const stream_heap_event *event_for(arena *a, stream_heap *heap, uint64_t epoch) {
    for (size_t i = 0; i < heap->event_count; i++) {
        if (heap->events[i].epoch >= epoch) {
            return &heap->events[i];
        }
    }
    mp_stream *stream = usable_stream(a, heap);
    stream_heap_event fresh = {.event = NULL};
    if (stream == NULL || get_event(a, &fresh.event) != MP_OK) {
        return NULL;
    }
    if (heap->event_count == HEAP_EVENTS_MAX) {
        drop_first(a, heap); /* the others cover what it did */
    }
    fresh.epoch = mp__order_end_epoch(heap);
    if (a->device->ops->event_record(a->device, fresh.event, stream) != MP_OK) {
        MP_LOG(WARNING, "the pool cannot record an event: %s", mp_error_message());
        put_event(a, fresh.event);
        return NULL;
    }
    a->counts.events++;
    heap->events[heap->event_count] = fresh;
    return &heap->events[heap->event_count++];
}

void mp__order_settle_idle(arena *a) {
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        if (heap->bins.count == 0) {
            continue;
        }
        poll_heap(a, heap);
        mp_stream *stream = heap->binned > heap->reached ? usable_stream(a, heap) : NULL;
        if (stream == NULL) {
            continue;
        }
        /* First: what is freed meanwhile is in the next one. */
        const uint64_t epoch = mp__order_end_epoch(heap);
        if (stream_is_idle(a, stream)) {
            heap->reached = epoch;
        } else {
            (void)event_for(a, heap, heap->binned);
        }
    }
}

bool mp__order_settle_kept(arena *a, const stream_heap *asking, bool only_unused) {
    bool any = false;
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        spin_lock(&heap->lock);
        const bool kept = heap->shelf_count > 0 && (heap->in_use == 0 || !only_unused);
        spin_unlock(&heap->lock);
        mp_stream *stream = kept && heap != asking ? usable_stream(a, heap) : NULL;
        if (stream == NULL) {
            continue;
        }
        const uint64_t epoch = mp__order_end_epoch(heap);
        if (stream_is_idle(a, stream)) {
            heap->reached = epoch;
            any = true;
        }
    }
    return any;
}

/* ---- what a stream has waited for ---- */

mp_status mp__order_see(stream_heap *heap, const stream_heap *other, uint64_t epoch) {
    if (other->index >= heap->seen_count) {
        const size_t count = (size_t)other->index + 16;
        uint64_t *seen = realloc(heap->seen, count * sizeof *seen);
        if (seen == NULL) {
            return MP_FAIL(OUT_OF_MEMORY,
                           "cannot allocate host memory for the order of %zu streams", count);
        }
        for (size_t i = heap->seen_count; i < count; i++) {
            seen[i] = 0;
        }
        heap->seen = seen;
        heap->seen_count = count;
    }
    heap->seen[other->index] = MP_MAX(epoch, heap->seen[other->index]);
    return MP_OK;
}

uint64_t mp__order_seen(const stream_heap *heap, const stream_heap *other) {
    const uint64_t seen = other->index < heap->seen_count ? heap->seen[other->index] : 0;
    return seen > other->reached ? seen : other->reached;
}

bool mp__order_wait(arena *a, stream_heap *heap, stream_heap *other, uint64_t epoch) {
    if (epoch <= mp__order_seen(heap, other)) {
        return true;
    }
    mp_stream *stream = usable_stream(a, heap);
    const stream_heap_event *event = stream != NULL ? event_for(a, other, epoch) : NULL;
    if (event == NULL || a->device->ops->event_wait(a->device, event->event, stream) != MP_OK) {
        return false;
    }
    a->counts.waits++;
    (void)mp__order_see(heap, other, event->epoch); /* not knowing it costs another wait only */
    return true;
}

mp_status mp__order_reach(arena *a, stream_heap *heap, uint64_t epoch) {
    const stream_heap_event *event = event_for(a, heap, epoch);
    if (event == NULL && stream_heap_is_left_behind(heap)) {
        return mp__arena_quiesce(a); /* the default stream of another thread is out of reach */
    }
    if (event == NULL) {
        return MP_FAIL(BUSY, "the memory waits for work of another stream that takes no event now, "
                             "such as one that is being captured; allocate it before that "
                             "stream's capture begins, or on the stream that uses it");
    }
    MP_TRY(a->device->ops->event_synchronize(a->device, event->event));
    poll_heap(a, heap);
    return MP_OK;
}

void mp__order_cover(arena *a, stream_heap *heap) {
    (void)event_for(a, heap, epoch_of(heap));
}

/* ---- chunks of other streams ---- */

/* Whether the free memory of `other` may be used by others at all. */
static bool lends(const stream_heap *heap, const stream_heap *other) {
    return other != heap && other->bins.count > 0 && !stream_heap_is_graphs(other);
}

static chunk *better(chunk *best, chunk *c) {
    return c != NULL && (best == NULL || c->units < best->units) ? c : best;
}

chunk *mp__order_find(arena *a, stream_heap *heap, uint32_t units, bool wait) {
    chunk *best = NULL;
    for (size_t i = 1; i < stream_heap_count_of(a); i++) {
        stream_heap *other = stream_heap_at(a, (unsigned)i);
        if (lends(heap, other)) {
            poll_heap(a, other);
            best = better(best, mp__bins_best(&other->bins, units,
                                              wait ? UINT64_MAX : mp__order_seen(heap, other)));
        }
    }
    if (best != NULL && wait && !mp__order_wait(a, heap, stream_heap_of(a, best), best->epoch)) {
        return NULL;
    }
    return best;
}

/* ---- further streams of a block ---- */

mp_status mp__use_add(chunk *c, const stream_heap *other) {
    for (const use *u = c->uses; u != NULL; u = u->next) {
        if (u->heap == other->index && u->life == other->life) {
            return MP_OK;
        }
    }
    use *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a stream's use");
    }
    *fresh = (use){.next = c->uses, .heap = other->index, .life = other->life};
    c->uses = fresh;
    return MP_OK;
}

void mp__uses_free(use *uses) {
    for (use *next = NULL; uses != NULL; uses = next) {
        next = uses->next;
        free(uses);
    }
}

mp_status mp__uses_wait(arena *a, const chunk *c) {
    for (const use *u = c->uses; u != NULL; u = u->next) {
        stream_heap *heap = stream_heap_at(a, u->heap);
        if (u->life == heap->life) {
            MP_TRY(mp__stream_heap_wait(a, heap));
        }
    }
    return MP_OK;
}

/* Forgets the uses of streams that have come to an end since. */
static void drop_ended(const arena *a, chunk *c) {
    use **link = &c->uses;
    while (*link != NULL) {
        use *u = *link;
        if (u->life == stream_heap_at(a, u->heap)->life) {
            link = &u->next;
        } else {
            *link = u->next;
            free(u);
        }
    }
}

void mp__order_wait_for_uses(arena *a, chunk *c) {
    drop_ended(a, c);
    for (use *u = c->uses; u != NULL; u = u->next) {
        u->epoch = epoch_of(stream_heap_at(a, u->heap));
    }
    chunk_set_state(c, CHUNK_WAITING);
    c->requested = epoch_of(stream_heap_of(a, c)); /* kept there until the chunk is free */
    c->back = NULL;
    c->link = a->waiting;
    a->waiting = c;
    if (++a->waiting_count >= WAITING_MAX) {
        mp__order_collect(a, false);
    }
}

/* Whether the chunk's own stream comes after the use, or everything does. */
static bool use_is_over(arena *a, stream_heap *own, const use *u, bool wait) {
    stream_heap *other = stream_heap_at(a, u->heap);
    poll_heap(a, other);
    if (u->epoch <= mp__order_seen(own, other)) {
        return true;
    }
    if (wait) {
        return mp__order_wait(a, own, other, u->epoch);
    }
    (void)event_for(a, other, u->epoch); /* so that a later look finds it reached */
    return false;
}

static bool uses_are_over(arena *a, const chunk *c, bool wait) {
    bool over = true;
    for (const use *u = c->uses; u != NULL; u = u->next) {
        over = use_is_over(a, stream_heap_of(a, c), u, wait) && over;
    }
    return over;
}

/* The epoch of its own heap that the chunk is safe after: that of its free, unless its stream had
 * to be made to wait since. */
static uint64_t epoch_after(const arena *a, const chunk *c) {
    for (const use *u = c->uses; u != NULL; u = u->next) {
        if (u->epoch > stream_heap_at(a, u->heap)->reached) {
            return epoch_of(stream_heap_of(a, c));
        }
    }
    return c->requested;
}

void mp__order_collect(arena *a, bool wait) {
    chunk **link = &a->waiting;
    while (*link != NULL) {
        chunk *c = *link;
        if (!uses_are_over(a, c, wait)) {
            link = &c->link;
            continue;
        }
        *link = c->link;
        c->link = NULL;
        a->waiting_count--;
        const uint64_t epoch = epoch_after(a, c);
        mp__uses_free(c->uses);
        c->epoch = epoch;
        mp__chunk_bin(a, c);
    }
}

void mp__order_close(arena *a) {
    for (chunk *c = a->waiting; c != NULL; c = c->link) {
        mp__uses_free(c->uses);
    }
    for (size_t i = 0; i < stream_heap_count_of(a); i++) {
        stream_heap *heap = stream_heap_at(a, (unsigned)i);
        while (heap->event_count > 0) {
            drop_first(a, heap);
        }
    }
    while (a->spare_event_count > 0) {
        a->device->ops->event_destroy(a->device, a->spare_events[--a->spare_event_count]);
    }
}
