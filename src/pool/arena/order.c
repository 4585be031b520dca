/* order.c - when memory that one stream has freed may serve another.
 *
 * Each lane counts epochs. A chunk freed on it is marked with the present one. Recording an event
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
    unsigned lane, life; /* of the stream: a lane may become another's */
    uint64_t epoch;      /* of that lane; set when the block is freed */
};

enum { WAITING_MAX = 64 }; /* blocks that wait before they are looked at */

/* ---- streams and events ---- */

mp_stream *mp__order_stream(arena *a, lane *l) {
    if (l->index == 0 || l->is_capture || l->gone || lane_is_left_behind(l)) {
        return NULL;
    }
    if (l->stream == NULL) {
        if (a->device->ops->stream_wrap(a->device, l->native, &l->stream) != MP_OK) {
            l->stream = NULL;
        }
    }
    return l->stream;
}

/* The stream, if events may be put into it: a capture would take them up. */
static mp_stream *usable_stream(arena *a, lane *l) {
    mp_stream *stream = l->capture == NULL ? mp__order_stream(a, l) : NULL;
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

static void drop_first(arena *a, lane *l) {
    put_event(a, l->events[0].event);
    l->event_count--;
    for (size_t i = 0; i < l->event_count; i++) {
        l->events[i] = l->events[i + 1];
    }
}

static void poll_lane(arena *a, lane *l) {
    bool reached = true;
    while (l->event_count > 0 &&
           a->device->ops->event_query(a->device, l->events[0].event, &reached) == MP_OK &&
           reached) {
        l->reached = l->events[0].epoch > l->reached ? l->events[0].epoch : l->reached;
        drop_first(a, l);
    }
}

void mp__order_poll(arena *a) {
    for (size_t i = 1; i < lane_count_of(a); i++) {
        poll_lane(a, lane_at(a, (unsigned)i));
    }
}

uint64_t mp__order_end_epoch(lane *l) {
    spin_lock(&l->lock);
    const uint64_t epoch = l->epoch++;
    spin_unlock(&l->lock);
    return epoch;
}

static uint64_t epoch_of(lane *l) {
    spin_lock(&l->lock);
    const uint64_t epoch = l->epoch;
    spin_unlock(&l->lock);
    return epoch;
}

void mp__order_settle(lane *l) {
    l->reached = mp__order_end_epoch(l);
}

static bool stream_is_idle(arena *a, mp_stream *stream) {
    bool idle = false;
    return a->device->ops->stream_query(a->device, stream, &idle) == MP_OK && idle;
}

/* An event of `l` that covers `epoch`, recorded now where there is none. NULL: it cannot be. */
static const lane_event *event_for(arena *a, lane *l, uint64_t epoch) {
    for (size_t i = 0; i < l->event_count; i++) {
        if (l->events[i].epoch >= epoch) {
            return &l->events[i];
        }
    }
    mp_stream *stream = usable_stream(a, l);
    lane_event fresh = {.event = NULL};
    if (stream == NULL || get_event(a, &fresh.event) != MP_OK) {
        return NULL;
    }
    if (l->event_count == LANE_EVENTS_MAX) {
        drop_first(a, l); /* the others cover what it did */
    }
    fresh.epoch = mp__order_end_epoch(l);
    if (a->device->ops->event_record(a->device, fresh.event, stream) != MP_OK) {
        MP_LOG(WARNING, "the pool cannot record an event: %s", mp_error_message());
        put_event(a, fresh.event);
        return NULL;
    }
    a->counts.events++;
    l->events[l->event_count] = fresh;
    return &l->events[l->event_count++];
}

void mp__order_settle_idle(arena *a) {
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        if (l->bins.count == 0) {
            continue;
        }
        poll_lane(a, l);
        mp_stream *stream = l->binned > l->reached ? usable_stream(a, l) : NULL;
        if (stream == NULL) {
            continue;
        }
        /* First: what is freed meanwhile is in the next one. */
        const uint64_t epoch = mp__order_end_epoch(l);
        if (stream_is_idle(a, stream)) {
            l->reached = epoch;
        } else {
            (void)event_for(a, l, l->binned);
        }
    }
}

bool mp__order_settle_kept(arena *a, const lane *asking, bool only_unused) {
    bool any = false;
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        spin_lock(&l->lock);
        const bool kept = l->shelf_count > 0 && (l->in_use == 0 || !only_unused);
        spin_unlock(&l->lock);
        mp_stream *stream = kept && l != asking ? usable_stream(a, l) : NULL;
        if (stream == NULL) {
            continue;
        }
        const uint64_t epoch = mp__order_end_epoch(l);
        if (stream_is_idle(a, stream)) {
            l->reached = epoch;
            any = true;
        }
    }
    return any;
}

/* ---- what a stream has waited for ---- */

mp_status mp__order_see(lane *l, const lane *other, uint64_t epoch) {
    if (other->index >= l->seen_count) {
        const size_t count = (size_t)other->index + 16;
        uint64_t *seen = realloc(l->seen, count * sizeof *seen);
        if (seen == NULL) {
            return MP_FAIL(OUT_OF_MEMORY,
                           "cannot allocate host memory for the order of %zu streams", count);
        }
        for (size_t i = l->seen_count; i < count; i++) {
            seen[i] = 0;
        }
        l->seen = seen;
        l->seen_count = count;
    }
    l->seen[other->index] = epoch > l->seen[other->index] ? epoch : l->seen[other->index];
    return MP_OK;
}

uint64_t mp__order_seen(const lane *l, const lane *other) {
    const uint64_t seen = other->index < l->seen_count ? l->seen[other->index] : 0;
    return seen > other->reached ? seen : other->reached;
}

bool mp__order_wait(arena *a, lane *l, lane *other, uint64_t epoch) {
    if (epoch <= mp__order_seen(l, other)) {
        return true;
    }
    mp_stream *stream = usable_stream(a, l);
    const lane_event *event = stream != NULL ? event_for(a, other, epoch) : NULL;
    if (event == NULL || a->device->ops->event_wait(a->device, event->event, stream) != MP_OK) {
        return false;
    }
    a->counts.waits++;
    (void)mp__order_see(l, other, event->epoch); /* not knowing it costs another wait only */
    return true;
}

mp_status mp__order_reach(arena *a, lane *l, uint64_t epoch) {
    const lane_event *event = event_for(a, l, epoch);
    if (event == NULL && lane_is_left_behind(l)) {
        return mp__arena_quiesce(a); /* the default stream of another thread is out of reach */
    }
    if (event == NULL) {
        return MP_FAIL(BUSY, "the memory waits for work of another stream that takes no event now, "
                             "such as one that is being captured; allocate it before that "
                             "stream's capture begins, or on the stream that uses it");
    }
    MP_TRY(a->device->ops->event_synchronize(a->device, event->event));
    poll_lane(a, l);
    return MP_OK;
}

void mp__order_cover(arena *a, lane *l) {
    (void)event_for(a, l, epoch_of(l));
}

/* ---- chunks of other streams ---- */

/* Whether the free memory of `other` may be used by others at all. */
static bool lends(const lane *l, const lane *other) {
    return other != l && other->bins.count > 0 && (!other->is_capture || other->gone);
}

static chunk *better(chunk *best, chunk *c) {
    return c != NULL && (best == NULL || c->units < best->units) ? c : best;
}

chunk *mp__order_find(arena *a, lane *l, uint32_t units, bool wait) {
    chunk *best = NULL;
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *other = lane_at(a, (unsigned)i);
        if (lends(l, other)) {
            poll_lane(a, other);
            best = better(best, mp__bins_best(&other->bins, units,
                                              wait ? UINT64_MAX : mp__order_seen(l, other)));
        }
    }
    if (best != NULL && wait && !mp__order_wait(a, l, lane_of(a, best), best->epoch)) {
        return NULL;
    }
    return best;
}

/* ---- further streams of a block ---- */

mp_status mp__use_add(chunk *c, const lane *other) {
    for (const use *u = c->uses; u != NULL; u = u->next) {
        if (u->lane == other->index && u->life == other->life) {
            return MP_OK;
        }
    }
    use *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a stream's use");
    }
    *fresh = (use){.next = c->uses, .lane = other->index, .life = other->life};
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
        lane *l = lane_at(a, u->lane);
        if (u->life == l->life) {
            MP_TRY(mp__lane_wait(a, l));
        }
    }
    return MP_OK;
}

/* Forgets the uses of streams that have come to an end since. */
static void drop_ended(const arena *a, chunk *c) {
    use **link = &c->uses;
    while (*link != NULL) {
        use *u = *link;
        if (u->life == lane_at(a, u->lane)->life) {
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
        u->epoch = epoch_of(lane_at(a, u->lane));
    }
    chunk_set_state(c, CHUNK_WAITING);
    c->requested = epoch_of(lane_of(a, c)); /* kept there until the chunk is free */
    c->back = NULL;
    c->link = a->waiting;
    a->waiting = c;
    if (++a->waiting_count >= WAITING_MAX) {
        mp__order_collect(a, false);
    }
}

/* Whether the chunk's own stream comes after the use, or everything does. */
static bool use_is_over(arena *a, lane *own, const use *u, bool wait) {
    lane *other = lane_at(a, u->lane);
    poll_lane(a, other);
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
        over = use_is_over(a, lane_of(a, c), u, wait) && over;
    }
    return over;
}

/* The epoch of its own lane that the chunk is safe after: that of its free, unless its stream had
 * to be made to wait since. */
static uint64_t epoch_after(const arena *a, const chunk *c) {
    for (const use *u = c->uses; u != NULL; u = u->next) {
        if (u->epoch > lane_at(a, u->lane)->reached) {
            return epoch_of(lane_of(a, c));
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
    for (size_t i = 0; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        while (l->event_count > 0) {
            drop_first(a, l);
        }
    }
    while (a->spare_event_count > 0) {
        a->device->ops->event_destroy(a->device, a->spare_events[--a->spare_event_count]);
    }
}
