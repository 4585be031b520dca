/* arena.c - lending and taking back chunks: the short way over a shelf, the long way over the bins.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * `addresses` holds exactly the chunks that are lent, on a shelf, or reserved. */
#include "pool/arena.h"

#include "base/log.h"
#include "base/nvtx.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- chunks; under the arena's lock ---- */

chunk *mp__chunk_split(arena *a, chunk *c, uint32_t units) {
    assert(units < c->units);
    chunk *rest = mp__chunk_take(&a->chunks);
    atomic_store_explicit(&rest->addr, chunk_addr(c) + (size_t)units * UNIT, memory_order_relaxed);
    rest->units = c->units - units;
    rest->epoch = c->epoch;
    chunk_set_lane(rest, chunk_lane(c));
    chunk_set_state(rest, chunk_state_of(c));
    rest->prev = c;
    rest->next = c->next;
    if (rest->next != NULL) {
        rest->next->prev = rest;
    }
    c->next = rest;
    c->units = units;
    return rest;
}

void mp__chunk_join(arena *a, chunk *left, chunk *right) {
    left->units += right->units;
    left->next = right->next;
    if (right->next != NULL) {
        right->next->prev = left;
    }
    mp__chunk_put(&a->chunks, right);
}

static bool joins(const chunk *c, const chunk *neighbour) {
    return neighbour != NULL && chunk_state_of(neighbour) == CHUNK_FREE &&
           chunk_lane(neighbour) == chunk_lane(c);
}

void mp__chunk_bin(arena *a, chunk *c) {
    lane *l = lane_of(a, c);
    if (l->gone) {
        l = lane_at(a, 0);
        chunk_set_lane(c, 0);
    }
    if (l->index == 0) {
        c->epoch = 0;
    }
    l->binned = c->epoch > l->binned ? c->epoch : l->binned;
    if (joins(c, c->prev)) {
        chunk *left = c->prev;
        mp__bins_remove(&l->bins, left);
        left->epoch = c->epoch > left->epoch ? c->epoch : left->epoch;
        mp__chunk_join(a, left, c);
        c = left;
    }
    if (joins(c, c->next)) {
        chunk *right = c->next;
        mp__bins_remove(&l->bins, right);
        c->epoch = right->epoch > c->epoch ? right->epoch : c->epoch;
        mp__chunk_join(a, c, right);
    }
    chunk_set_state(c, CHUNK_FREE);
    mp__bins_add(&l->bins, c);
}

void mp__chunk_release(arena *a, chunk *c) {
    mp__address_remove(&a->addresses, c);
    mp__chunk_bin(a, c);
}

bool mp__chunk_is_idle(const arena *a, const chunk *c) {
    return chunk_lane(c) == 0 || c->epoch <= lane_of(a, c)->reached;
}

/* ---- gathering ---- */

static void gather_lane(arena *a, lane *l) {
    for (int class = mp__bins_next(&l->bins, -1); class >= 0;
         class = mp__bins_next(&l->bins, class)) {
        for (chunk *c = l->bins.head[class], *next = NULL; c != NULL; c = next) {
            next = c->link;
            if (c->epoch <= l->reached) {
                mp__bins_remove(&l->bins, c);
                chunk_set_lane(c, 0);
                mp__chunk_bin(a, c);
            }
        }
    }
}

void mp__arena_gather_idle(arena *a) {
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        if (l->bins.count > 0 && (!l->is_capture || l->gone)) {
            gather_lane(a, l);
        }
    }
}

void mp__arena_gather(arena *a) {
    for (size_t i = 0; i < lane_count_of(a); i++) {
        mp__shelf_clear(a, lane_at(a, (unsigned)i), true);
    }
    mp__order_poll(a);
    mp__arena_gather_idle(a);
}

/* Chunks freed during a capture that are no part of the arena. */
static void bury(arena *a) {
    for (chunk *c = a->buried, *next = NULL; c != NULL; c = next) {
        next = c->link;
        mp__source_free(&a->source, chunk_addr(c), chunk_bytes(c));
        mp__region_give(a, chunk_bytes(c));
        mp__chunk_put(&a->chunks, c);
    }
    a->buried = NULL;
}

mp_status mp__arena_quiesce(arena *a) {
    if (a->captures_open > 0) {
        return MP_FAIL(BUSY, "the device cannot be waited for while a stream is being captured");
    }
    for (size_t i = 1; i < lane_count_of(a); i++) { /* first: what is freed while the device is
                                                       waited for is in the next epoch */
        lane *l = lane_at(a, (unsigned)i);
        l->ending = mp__order_end_epoch(l);
    }
    MP_TRY(a->device->ops->synchronize(a->device));
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        if (!l->is_capture) {
            l->reached = l->ending;
        }
    }
    mp__order_collect(a, false);
    mp__arena_gather(a);
    bury(a);
    return MP_OK;
}

/* ---- finding a chunk; under the arena's lock ---- */

/* In the lane's own bins and in those that any stream may use. */
static chunk *find_here(const arena *a, const lane *l, uint32_t units) {
    chunk *own = mp__bins_best(&l->bins, units, UINT64_MAX);
    if (l->index == 0) {
        return own;
    }
    chunk *idle = mp__bins_best(&lane_at(a, 0)->bins, units, UINT64_MAX);
    if (own == NULL || (idle != NULL && idle->units < own->units)) {
        return idle;
    }
    return own;
}

static bool has_free(const arena *a, uint32_t units) {
    size_t bytes = 0;
    for (size_t i = 0; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        spin_lock(&l->lock);
        bytes += l->bins.bytes + l->shelf_bytes;
        spin_unlock(&l->lock);
    }
    return bytes >= (size_t)units * UNIT;
}

size_t mp__arena_plenty(const arena *a, size_t bytes) {
    enum { LANE_BYTES = 4 << 20 }; /* what the shelf of a further stream may hold */
    size_t most = bytes;
    for (size_t i = 0; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        spin_lock(&l->lock);
        most += l->in_use;
        spin_unlock(&l->lock);
    }
    most = most > a->peak ? most : (size_t)a->peak;
    const size_t others = lane_count_of(a) > 2 ? lane_count_of(a) - 2 : 0;
    const size_t pieces = mp__expand_wanted(a) ? most / 8 + most / 16 : most;
    return most + pieces + others * LANE_BYTES;
}

/* Takes chunks off shelves: those of other streams only where much has been had for little, since
 * each of them must then go the long way for a while. */
static void gather_for(arena *a, lane *l, size_t bytes) {
    if (arena_total(a) > mp__arena_plenty(a, bytes)) {
        mp__arena_gather(a);
        return;
    }
    mp__shelf_clear(a, l, true);
    mp__order_poll(a);
    mp__arena_gather_idle(a);
}

/* Also of other streams, where nothing has to be waited for. */
static chunk *find_safe(arena *a, lane *l, uint32_t units) {
    chunk *c = find_here(a, l, units);
    return c != NULL ? c : mp__order_find(a, l, units, false);
}

/* What is there already, from the cheapest place to the dearest. */
static chunk *find_anywhere(arena *a, lane *l, uint32_t units) {
    chunk *c = find_safe(a, l, units);
    if (c == NULL && a->waiting != NULL) {
        mp__order_collect(a, false);
        c = find_here(a, l, units);
    }
    if (c == NULL && has_free(a, units)) {
        gather_for(a, l, (size_t)units * UNIT);
        c = find_safe(a, l, units);
        if (c == NULL) {
            mp__order_settle_idle(a);
            mp__arena_gather_idle(a);
            c = find_safe(a, l, units);
        }
    }
    return c;
}

/* When the device has no more: what `l` can have by waiting, on the device or else here. */
static mp_status find_by_waiting(arena *a, lane *l, uint32_t units, chunk **out) {
    mp__arena_gather(a);
    mp__order_collect(a, true);
    *out = find_here(a, l, units);
    if (*out == NULL) {
        *out = mp__order_find(a, l, units, true);
    }
    if (*out == NULL && a->captures_open == 0) {
        MP_TRY(mp__arena_quiesce(a));
        *out = find_here(a, l, units);
    }
    return MP_OK;
}

/* Fails: OUT_OF_MEMORY, with the sentence of the device or of the limit. */
static mp_status find_or_grow(arena *a, lane *l, uint32_t units, chunk **out) {
    enum { RECORDS = 8 }; /* more than one growth and one split need */
    MP_TRY(mp__chunk_prepare(&a->chunks, RECORDS));
    MP_TRY(mp__address_prepare(&a->addresses, RECORDS));
    *out = find_anywhere(a, l, units);
    if (*out != NULL) {
        return MP_OK;
    }
    mp_status status = mp__region_grow(a, l, units);
    if (status == MP_OUT_OF_MEMORY) {
        MP_TRY(find_by_waiting(a, l, units, out));
        if (*out != NULL) {
            return MP_OK;
        }
        if (mp__region_trim_helps(a, units) && mp__region_trim(a) > 0) {
            status = mp__region_grow(a, l, units); /* what lay in pieces may do in one */
        }
    }
    MP_TRY(status);
    *out = find_here(a, l, units);
    return *out != NULL ? MP_OK : MP_FAIL(INTERNAL, "a region that was just added has no room");
}

/* Takes `c` out of its bin and cuts off what would lie dead. */
static void take(arena *a, chunk *c, uint32_t units) {
    bins *from = &lane_of(a, c)->bins;
    mp__bins_remove(from, c);
    const uint32_t rest = c->units - units;
    if (rest > 0 && (rest >= units || (size_t)rest * UNIT >= a->options.max_dead_bytes_per_chunk)) {
        mp__bins_add(from, mp__chunk_split(a, c, units));
    }
}

static void lend(chunk *c, const lane *l, size_t size, uint8_t client) {
    chunk_set_lane(c, l->index);
    c->requested = size;
    c->client = client;
    c->uses = NULL;
    chunk_set_state(c, CHUNK_MOVING); /* until it is counted */
}

/* ---- pressure ---- */

/* Runs the hooks from `*next` on until one says that it has freed something; `*next` is then the
 * one after it. Hooks run without locks, and none on a thread that runs one already. */
static bool run_hooks(arena *a, size_t size, size_t *next) {
    static _Thread_local bool running;
    bool freed = false;
    if (running) {
        return false;
    }
    running = true;
    (void)pthread_mutex_lock(&a->lock);
    for (; *next < a->hook_count && !freed; ++*next) {
        hook *h = &a->hooks[*next];
        if (h->gone) {
            continue;
        }
        h->running++;
        (void)pthread_mutex_unlock(&a->lock);
        freed = h->fn(h->context, size);
        (void)pthread_mutex_lock(&a->lock);
        h->running--;
        (void)pthread_cond_broadcast(&a->hook_done);
    }
    (void)pthread_mutex_unlock(&a->lock);
    running = false;
    return freed;
}

/* ---- the long way ---- */

enum { WHY_MAX = 512 };

static const char *keep_message(char why[WHY_MAX]) {
    (void)snprintf(why, WHY_MAX, "%s", mp_error_message());
    return why;
}

static mp_status alloc_once(arena *a, lane *l, uint32_t units, size_t size, uint8_t client,
                            chunk **out) {
    chunk *c = NULL;
    (void)pthread_mutex_lock(&a->lock);
    const mp_status status = find_or_grow(a, l, units, &c);
    if (status == MP_OK) {
        take(a, c, units);
        lend(c, l, size, client);
        mp__address_add(&a->addresses, c);
        *out = c;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return status;
}

static mp_status alloc_slow(arena *a, lane *l, uint32_t units, size_t size, uint8_t client,
                            chunk **out) {
    size_t next_hook = 0;
    mp_status status = alloc_once(a, l, units, size, client, out);
    while (status == MP_OUT_OF_MEMORY && run_hooks(a, size, &next_hook)) {
        status = alloc_once(a, l, units, size, client, out);
    }
    if (status != MP_OUT_OF_MEMORY) {
        return status;
    }
    char why[WHY_MAX];
    (void)mp__arena_fail(a, size, client, keep_message(why));
    return MP_OUT_OF_MEMORY;
}

/* ---- lending ---- */

/* False: more than any device has. */
static bool units_of(const arena *a, size_t size, uint32_t *out) {
    if (size > UNITS_MAX * UNIT - 2 * a->border) {
        return false;
    }
    *out = (uint32_t)((size + 2 * a->border + UNIT - 1) / UNIT);
    return true;
}

static void count_block(arena *a, lane *l, chunk *c, chunk_state state) {
    spin_lock(&l->lock);
    const bool counted = mp__usage_add_fast(l, c, state);
    spin_unlock(&l->lock);
    if (!counted) {
        mp__usage_add(a, l, c, state);
    }
}

static void trace(const arena *a, const chunk *c, const lane *l, mp_trace_action action) {
    if (mp__trace_on(a->trace)) {
        mp__trace_add(a->trace, (mp_trace_event){.addr = chunk_addr(c), /* as in the layout */
                                                 .size = chunk_bytes(c),
                                                 .requested = c->requested,
                                                 .stream = l->native,
                                                 .total = arena_total(a),
                                                 .action = (uint8_t)action,
                                                 .client = c->client});
    }
}

/* What a lent block wants before its user gets it. */
static mp_addr hand_over(arena *a, lane *l, const chunk *c) {
    trace(a, c, l, MP_TRACE_ALLOC);
    if (a->notes) {
        a->device->ops->note(a->device, chunk_addr(c), chunk_bytes(c), true);
    }
    if (a->border > 0 || a->options.poison) {
        mp__guard_draw(a, l, c);
    }
    return chunk_addr(c) + a->border;
}

mp_status mp__arena_alloc(arena *a, size_t size, void *native, uint8_t client, mp_addr *out) {
    lane *l = NULL;
    uint32_t units = 0;
    size += size == 0;
    if (!units_of(a, size, &units)) {
        return mp__arena_fail(a, size, client, "no device has that much");
    }
    MP_TRY(mp__lane_lock(a, mp__lane_key(a, native), &l));
    bool counted = false;
    chunk *c = units <= SHELF_UNITS_MAX ? mp__shelf_take(l, units) : NULL;
    if (c != NULL) {
        lend(c, l, size, client);
        counted = mp__usage_add_fast(l, c, CHUNK_LENT);
    }
    spin_unlock(&l->lock);
    if (c == NULL) {
        MP_TRY(alloc_slow(a, l, units, size, client, &c));
    }
    if (!counted) {
        count_block(a, l, c, CHUNK_LENT);
    }
    *out = hand_over(a, l, c);
    return MP_OK;
}

/* ---- taking back ---- */

chunk *mp__arena_lock_block(arena *a, mp_addr addr, lane **out) {
    const mp_addr begin = addr - a->border;
    chunk *c = mp__address_find(&a->addresses, begin);
    if (c == NULL) { /* it may have been overlooked while the table changed */
        (void)pthread_mutex_lock(&a->lock);
        c = mp__address_find(&a->addresses, begin);
        (void)pthread_mutex_unlock(&a->lock);
    }
    while (c != NULL && chunk_addr(c) == begin) {
        lane *l = lane_of(a, c);
        spin_lock(&l->lock);
        if (chunk_lane(c) == l->index) {
            const chunk_state state = chunk_state_of(c);
            if (chunk_addr(c) == begin && (state == CHUNK_LENT || state == CHUNK_RESERVED)) {
                *out = l;
                return c;
            }
            c = NULL;
        }
        spin_unlock(&l->lock);
    }
    return NULL;
}

static mp_status refuse(const arena *a, mp_addr addr, const char *what) {
    return MP_FAIL(INVALID_ARGUMENT,
                   "%s of address 0x%" PRIxPTR ", which is not a block lent by the pool of %s: it "
                   "was never lent, is freed already, or lies inside a block",
                   what, addr, a->device->info.name);
}

static void unlink_reserved(arena *a, chunk *c) {
    if (c->back != NULL) {
        c->back->link = c->link;
    } else {
        a->reserved = c->link;
    }
    if (c->link != NULL) {
        c->link->back = c->back;
    }
}

/* The device must not use it any more when it goes. */
static void free_reserved(arena *a, chunk *c) {
    (void)pthread_mutex_lock(&a->lock);
    mp__address_remove(&a->addresses, c);
    unlink_reserved(a, c);
    c->link = a->buried;
    a->buried = c;
    if (a->captures_open == 0 && a->device->ops->synchronize(a->device) == MP_OK) {
        bury(a);
    }
    (void)pthread_mutex_unlock(&a->lock);
}

/* Where a chunk that leaves `from` in the order of `to` belongs: memory that a captured graph uses
 * stays with the graph. Under the arena's lock. */
static lane *heir_of(lane *from, lane *to) {
    if (from->is_capture && !from->gone) {
        return from;
    }
    return to->capture != NULL ? to->capture : to;
}

/* `c` is MOVING: nobody else has it. */
static void free_slow(arena *a, chunk *c, lane *from, lane *to) {
    if (a->border > 0 || a->options.poison) {
        mp__guard_check(a, to, c);
    }
    (void)pthread_mutex_lock(&a->lock);
    lane *heir = heir_of(from, to);
    chunk_set_lane(c, heir->index);
    if (a->notes && (!heir->is_capture || heir->gone)) { /* a graph uses what was freed in it */
        a->device->ops->note(a->device, chunk_addr(c), chunk_bytes(c), false);
    }
    if (c->uses != NULL) {
        mp__address_remove(&a->addresses, c);
        mp__order_wait_for_uses(a, c);
    } else {
        spin_lock(&heir->lock);
        c->epoch = heir->epoch;
        spin_unlock(&heir->lock);
        mp__chunk_release(a, c);
    }
    (void)pthread_mutex_unlock(&a->lock);
}

mp_status mp__arena_free(arena *a, mp_addr addr, void *native) {
    lane *to = NULL;
    lane *l = NULL;
    chunk *c = mp__arena_lock_block(a, addr, &l);
    if (c != NULL && native != MP_SAME_STREAM && (l->detour || l->key != mp__lane_key(a, native))) {
        spin_unlock(&l->lock); /* one lane at a time */
        MP_TRY(mp__lane_now(a, mp__lane_key(a, native), &to));
        c = mp__arena_lock_block(a, addr, &l);
    }
    if (c == NULL) {
        return refuse(a, addr, "free");
    }
    mp__usage_remove(l, c);
    trace(a, c, to != NULL ? to : l, MP_TRACE_FREE);
    const bool is_reserved = chunk_state_of(c) == CHUNK_RESERVED;
    if (!is_reserved && !l->detour && (to == NULL || to == l) && c->uses == NULL &&
        c->units <= SHELF_UNITS_MAX && a->border == 0 && !a->options.poison) {
        if (a->notes && !l->is_capture) {
            a->device->ops->note(a->device, chunk_addr(c), chunk_bytes(c), false);
        }
        const bool full = mp__shelf_put(a, l, c);
        spin_unlock(&l->lock);
        if (full) {
            (void)pthread_mutex_lock(&a->lock);
            mp__shelf_clear(a, l, false);
            (void)pthread_mutex_unlock(&a->lock);
        }
        return MP_OK;
    }
    chunk_set_state(c, CHUNK_MOVING);
    spin_unlock(&l->lock);
    if (is_reserved) {
        free_reserved(a, c);
    } else {
        free_slow(a, c, l, to != NULL ? to : l);
    }
    return MP_OK;
}

mp_status mp__arena_record_use(arena *a, mp_addr addr, void *native) {
    lane *other = NULL;
    lane *l = NULL;
    MP_TRY(mp__lane_now(a, mp__lane_key(a, native), &other));
    chunk *c = mp__arena_lock_block(a, addr, &l);
    if (c == NULL) {
        return refuse(a, addr, "use");
    }
    mp_status status = MP_OK;
    if (other != l && other->index != 0 && chunk_state_of(c) == CHUNK_LENT) {
        status = mp__use_add(c, other);
        trace(a, c, other, MP_TRACE_USE);
    }
    spin_unlock(&l->lock);
    return status;
}

/* ---- outside the arena ---- */

static mp_status reserve(arena *a, uint32_t units, size_t size, uint8_t client, chunk **out) {
    mp_addr addr = 0;
    const size_t bytes = (size_t)units * UNIT;
    MP_TRY(mp__chunk_prepare(&a->chunks, 1));
    MP_TRY(mp__address_prepare(&a->addresses, 1));
    MP_TRY(mp__region_take(a, bytes));
    const mp_status status = mp__source_alloc(&a->source, bytes, &addr);
    if (status != MP_OK) {
        mp__region_give(a, bytes);
        return status;
    }
    chunk *c = mp__chunk_take(&a->chunks);
    atomic_store_explicit(&c->addr, addr, memory_order_relaxed);
    c->units = units;
    lend(c, lane_at(a, 0), size, client);
    mp__address_add(&a->addresses, c);
    c->link = a->reserved;
    if (c->link != NULL) {
        c->link->back = c;
    }
    a->reserved = c;
    a->counts.reserves++;
    *out = c;
    return MP_OK;
}

static mp_status reserve_once(arena *a, uint32_t units, size_t size, uint8_t client, chunk **out) {
    (void)pthread_mutex_lock(&a->lock);
    mp_status status = reserve(a, units, size, client, out);
    if (status == MP_OUT_OF_MEMORY && mp__arena_quiesce(a) == MP_OK && mp__region_trim(a) > 0) {
        status = reserve(a, units, size, client, out);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return status;
}

mp_status mp__arena_reserve(arena *a, size_t size, uint8_t client, mp_addr *out) {
    chunk *c = NULL;
    uint32_t units = 0;
    size += size == 0;
    if (!units_of(a, size, &units)) {
        return mp__arena_fail(a, size, client, "no device has that much");
    }
    size_t next_hook = 0;
    mp_status status = reserve_once(a, units, size, client, &c);
    while (status == MP_OUT_OF_MEMORY && run_hooks(a, size, &next_hook)) {
        status = reserve_once(a, units, size, client, &c);
    }
    if (status == MP_OUT_OF_MEMORY) {
        char why[WHY_MAX];
        return mp__arena_fail(a, size, client, keep_message(why));
    }
    MP_TRY(status);
    count_block(a, lane_at(a, 0), c, CHUNK_RESERVED);
    trace(a, c, lane_at(a, 0), MP_TRACE_ALLOC);
    *out = chunk_addr(c) + a->border;
    return MP_OK;
}

/* ---- giving back ---- */

mp_status mp__arena_shrink(arena *a, size_t *released) {
    mp__nvtx_push("millpond shrink");
    (void)pthread_mutex_lock(&a->lock);
    mp_status status = MP_OK;
    if (a->captures_open == 0) {
        status = mp__arena_quiesce(a);
    } else { /* only what is known to be idle */
        mp__arena_gather(a);
    }
    size_t bytes = 0;
    if (status == MP_OK) {
        bytes = mp__region_trim(a);
        a->next_extension = a->options.initial_growth_chunk_size_bytes;
    }
    (void)pthread_mutex_unlock(&a->lock);
    mp__nvtx_pop();
    if (status == MP_OK && released != NULL) {
        *released = bytes;
    }
    if (status == MP_OK && a->source.is_external && a->source.external.empty_cache != NULL) {
        a->source.external.empty_cache(a->source.external.context);
    }
    return status;
}

/* ---- life ---- */

mp_status mp__arena_create(const source *from, const arena_options *options, arena **out) {
    arena *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for the record of a pool");
    }
    pthread_mutexattr_t kind;
    (void)pthread_mutexattr_init(&kind);
    (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP); /* it is held for long by
                                                                           growth only */
    (void)pthread_mutex_init(&a->lock, &kind);
    (void)pthread_mutexattr_destroy(&kind);
    (void)pthread_cond_init(&a->hook_done, NULL);
    a->device = from->device;
    a->source = *from;
    a->options = *options;
    a->border = options->guard ? UNIT : 0;
    a->notes = from->device->info.notes && !from->is_external;
    a->next_extension = options->initial_chunk_size_bytes;
    lane *none = NULL;
    mp_status status = mp__trace_create(&a->trace);
    if (status == MP_OK) {
        status = mp__lane_add(a, &none);
    }
    if (status != MP_OK) {
        mp__arena_destroy(a);
        return status;
    }
    none->key = none->native = MP_NO_STREAM;
    *out = a;
    return MP_OK;
}

bool mp__arena_is_used(arena *a) {
    mp_pool_stats stats;
    if (a->mempool != NULL) {
        return mp__mempool_stats(a->mempool, &stats) == MP_OK && stats.in_use > 0;
    }
    mp__usage_stats(a, &stats);
    return stats.in_use > 0;
}

void mp__arena_destroy(arena *a) {
    if (lane_count_of(a) > 0) {
        if (a->device->ops->synchronize(a->device) != MP_OK) {
            MP_LOG(WARNING, "a pool is closed on a device that reports: %s", mp_error_message());
        }
        bury(a);
        mp__order_close(a);
        mp__captures_close(a);
        mp__regions_close(a);
    }
    if (a->mempool != NULL) {
        mp__mempool_destroy(a->mempool);
    }
    for (size_t i = 0; i < lane_count_of(a); i++) {
        mp__lane_close(a, lane_at(a, (unsigned)i));
    }
    mp__address_map_close(&a->addresses);
    mp__chunk_store_close(&a->chunks);
    mp__trace_destroy(a->trace);
    (void)pthread_cond_destroy(&a->hook_done);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}
