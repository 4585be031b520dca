/* arena_check.c - the invariants of an arena, which hold whenever its lock and those of its heaps
 * are free:
 *
 *   - regions lie one after the other; the chunks of each tile it, and free neighbours of one heap
 *     are one chunk
 *   - the map of addresses has the chunks that are allocated, on a shelf or on their way, no others
 *   - shelves, bins, holes and the list of waiting chunks have what the regions have of that state
 *   - what lies outside of regions is reserved, or on its way there or back
 *   - what is in use, kept, free, waiting and on its way makes what is reserved from the device
 *   - a heap's bytes in use are those of its allocated chunks, and within its allowance; the
 *     allowances together are what is assigned, and within the peak
 *
 * Every list is walked no further than its count, or than what is reserved, so that a list that
 * bites its tail is a breach.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/arena_check.h"

#include "base/log.h"
#include "pool/arena/arena.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { WHY_MAX = 384 };

typedef struct amount {
    uint64_t count, bytes;
} amount;

/* What the regions have of one heap. */
typedef struct heap_sums {
    amount used, kept, free;
} heap_sums;

typedef struct check {
    const arena *a;
    heap_sums *heaps; /* owned; by index */
    size_t heap_count;
    amount waiting, moving, holes;
    uint64_t reserved; /* bytes that were counted, but for holes */
    size_t addresses;  /* chunks that the map must have */
    char why[WHY_MAX]; /* the first breach */
} check;

/* Returns false, so that a check can return it. */
static bool MP_PRINTF(2, 3) wrong(check *k, const char *format, ...) {
    va_list args;
    va_start(args, format);
    /* clang-tidy 14 forgets va_start in a function that it inlines. */
    (void)vsnprintf(k->why, WHY_MAX, format, args); // NOLINT(clang-analyzer-valist.Uninitialized)
    va_end(args);
    return false;
}

static const char *state_name(const chunk *c) {
    static const char *const names[] = {
        [CHUNK_UNUSED] = "unused",     [CHUNK_LENT] = "allocated",
        [CHUNK_KEPT] = "on a shelf",   [CHUNK_MOVING] = "on its way",
        [CHUNK_FREE] = "free",         [CHUNK_WAITING] = "waiting for a stream",
        [CHUNK_UNMAPPED] = "unmapped", [CHUNK_RESERVED] = "reserved",
    };
    const unsigned state = chunk_state_of(c);
    return state < MP_COUNT_OF(names) ? names[state] : "in no state";
}

static void add(amount *to, const chunk *c) {
    to->count++;
    to->bytes += chunk_bytes(c);
}

/* ---- chunks ---- */

/* The sum that a chunk is part of. */
static amount *sum_of(check *k, const chunk *c) {
    heap_sums *own = &k->heaps[chunk_heap(c)];
    switch (chunk_state_of(c)) {
    case CHUNK_LENT:
    case CHUNK_RESERVED:
        return &own->used;
    case CHUNK_KEPT:
        return &own->kept;
    case CHUNK_FREE:
        return &own->free;
    case CHUNK_WAITING:
        return &k->waiting;
    case CHUNK_UNMAPPED:
        return &k->holes;
    default:
        return &k->moving;
    }
}

static bool belongs_in_map(const chunk *c) {
    const chunk_state state = chunk_state_of(c);
    return state == CHUNK_LENT || state == CHUNK_KEPT || state == CHUNK_MOVING ||
           state == CHUNK_RESERVED;
}

/* Adds a chunk of a region, or a reserved one, to the sums. */
static bool count_chunk(check *k, const chunk *c, bool in_map) {
    const bool found = mp__address_find(&k->a->addresses, chunk_addr(c)) == c;
    if (chunk_heap(c) >= k->heap_count) {
        return wrong(k, "chunk 0x%" PRIxPTR " of %zu bytes is of heap %u, of %zu", chunk_addr(c),
                     chunk_bytes(c), chunk_heap(c), k->heap_count);
    }
    if (found != in_map) {
        return wrong(k,
                     "chunk 0x%" PRIxPTR " of %zu bytes, which is %s, is %s the map of addresses",
                     chunk_addr(c), chunk_bytes(c), state_name(c), found ? "in" : "not in");
    }
    add(sum_of(k, c), c);
    k->addresses += found;
    k->reserved += chunk_state_of(c) != CHUNK_UNMAPPED ? chunk_bytes(c) : 0;
    return k->reserved <= arena_total(k->a) ||
           wrong(k, "%zu bytes are reserved from the device, and chunks make at least %" PRIu64,
                 arena_total(k->a), k->reserved);
}

/* `c` comes after `before`, NULL for the first, in a list both ways. */
static bool leads_back(check *k, const chunk *c, const chunk *back, const chunk *before,
                       const char *list) {
    return back == before ||
           wrong(k,
                 "chunk 0x%" PRIxPTR " of %zu bytes, which is %s, does not lead back to the one "
                 "before it in the %s",
                 chunk_addr(c), chunk_bytes(c), state_name(c), list);
}

/* ---- regions ---- */

static bool is_of_region(const chunk *c, const region *r) {
    switch (chunk_state_of(c)) {
    case CHUNK_UNUSED:
    case CHUNK_RESERVED:
        return false;
    case CHUNK_UNMAPPED:
        return r->expandable;
    default:
        return true;
    }
}

static bool is_unmerged(const chunk *left, const chunk *right) {
    const chunk_state state = chunk_state_of(left);
    return state == chunk_state_of(right) &&
           (state == CHUNK_UNMAPPED ||
            (state == CHUNK_FREE && chunk_heap(left) == chunk_heap(right)));
}

/* `c` comes after `before` in its region, `left` bytes of which are not covered yet. */
static bool follows(check *k, const region *r, const chunk *before, const chunk *c, size_t left) {
    const mp_addr next = r->addr + (r->size - left);
    if (chunk_addr(c) != next || c->units == 0 || chunk_bytes(c) > left) {
        return wrong(k,
                     "region 0x%" PRIxPTR " of %zu bytes is tiled up to 0x%" PRIxPTR
                     ", where a chunk of %zu bytes at 0x%" PRIxPTR " comes next",
                     r->addr, r->size, next, chunk_bytes(c), chunk_addr(c));
    }
    if (!is_of_region(c, r)) {
        return wrong(k, "chunk 0x%" PRIxPTR " of %zu bytes lies in region 0x%" PRIxPTR " and is %s",
                     chunk_addr(c), chunk_bytes(c), r->addr, state_name(c));
    }
    if (!leads_back(k, c, c->prev, before, "region")) {
        return false;
    }
    return before == NULL || !is_unmerged(before, c) ||
           wrong(k,
                 "neighbours 0x%" PRIxPTR " and 0x%" PRIxPTR ", of %zu and %zu bytes, are both %s "
                 "on heap %u and not one",
                 chunk_addr(before), chunk_addr(c), chunk_bytes(before), chunk_bytes(c),
                 state_name(c), chunk_heap(c));
}

static bool region_is_tiled(check *k, const region *r) {
    const chunk *before = NULL;
    size_t left = r->size;
    for (const chunk *c = r->first; c != NULL; before = c, c = c->next) {
        if (!follows(k, r, before, c, left) || !count_chunk(k, c, belongs_in_map(c))) {
            return false;
        }
        left -= chunk_bytes(c);
    }
    return left == 0 || wrong(k, "region 0x%" PRIxPTR " of %zu bytes has chunks for %zu of them",
                              r->addr, r->size, r->size - left);
}

static bool regions_are_sound(check *k) {
    for (size_t i = 0; i < k->a->region_count; i++) {
        const region *r = &k->a->regions[i];
        if (i > 0 && r[-1].addr + r[-1].size > r->addr) {
            return wrong(k,
                         "regions 0x%" PRIxPTR " of %zu bytes and 0x%" PRIxPTR
                         " overlap or are out of order",
                         r[-1].addr, r[-1].size, r->addr);
        }
        if (!region_is_tiled(k, r)) {
            return false;
        }
    }
    return true;
}

/* ---- outside of regions ---- */

static bool alone_is_sound(check *k, const chunk *c, bool in_map) {
    const chunk_state state = chunk_state_of(c);
    if (c->units == 0 || (state != CHUNK_MOVING && (state != CHUNK_RESERVED || !in_map))) {
        return wrong(k, "chunk 0x%" PRIxPTR " of %zu bytes lies outside of regions and is %s",
                     chunk_addr(c), chunk_bytes(c), state_name(c));
    }
    return count_chunk(k, c, in_map);
}

static bool alone_are_sound(check *k) {
    const chunk *before = NULL;
    for (const chunk *c = k->a->reserved; c != NULL; before = c, c = c->link) {
        if (!leads_back(k, c, c->back, before, "list of reserved blocks") ||
            !alone_is_sound(k, c, true)) {
            return false;
        }
    }
    for (const chunk *c = k->a->retired; c != NULL; c = c->link) {
        if (!alone_is_sound(k, c, false)) {
            return false;
        }
    }
    return true;
}

/* ---- lists by class: shelves, bins and holes ---- */

typedef struct shelves {
    char name[24];
    chunk *const *heads;
    const uint64_t *filled;
    int class_count;
    chunk_state state;
    bool both_ways;          /* each chunk knows the one before it */
    const stream_heap *heap; /* NULL: of any */
    amount said;             /* what is counted there */
    amount known;            /* what the regions have */
} shelves;

static bool class_is_sound(check *k, const shelves *s, int class, amount *sum) {
    const bool filled = (s->filled[class / 64] >> (class % 64) & 1) != 0;
    if (filled != (s->heads[class] != NULL)) {
        return wrong(k, "class %d of the %s is marked as %s", class, s->name,
                     filled ? "filled, and is empty" : "empty, and has chunks");
    }
    const chunk *before = NULL;
    for (const chunk *c = s->heads[class]; c != NULL && sum->count <= s->said.count;
         before = c, c = c->link) {
        if (chunk_state_of(c) != s->state || class_of(c->units) != class ||
            (s->heap != NULL && chunk_heap(c) != s->heap->index)) {
            return wrong(
                k,
                "class %d of the %s has chunk 0x%" PRIxPTR " of %zu bytes, which is %s on heap %u",
                class, s->name, chunk_addr(c), chunk_bytes(c), state_name(c), chunk_heap(c));
        }
        if (s->both_ways && !leads_back(k, c, c->back, before, s->name)) {
            return false;
        }
        add(sum, c);
    }
    return true;
}

static bool shelves_are_sound(check *k, const shelves *s) {
    amount sum = {.count = 0};
    for (int class = 0; class < s->class_count; class ++) {
        if (!class_is_sound(k, s, class, &sum)) {
            return false;
        }
    }
    const amount *wanted[] = {&s->said, &s->known};
    for (size_t i = 0; i < MP_COUNT_OF(wanted); i++) {
        if (wanted[i]->count != sum.count || wanted[i]->bytes != sum.bytes) {
            return wrong(k,
                         "the %s have %" PRIu64 " chunks of %" PRIu64 " bytes, %s %" PRIu64
                         " of %" PRIu64,
                         s->name, sum.count, sum.bytes,
                         i == 0 ? "and are counted as" : "and the regions have", wanted[i]->count,
                         wanted[i]->bytes);
        }
    }
    return true;
}

static shelves shelf_of(const stream_heap *heap, amount known) {
    shelves s = {.heads = heap->shelf,
                 .filled = heap->shelf_filled,
                 .class_count = SHELF_CLASSES,
                 .state = CHUNK_KEPT,
                 .heap = heap,
                 .said = {heap->shelf_count, heap->shelf_bytes},
                 .known = known};
    (void)snprintf(s.name, sizeof s.name, "shelves of heap %u", heap->index);
    return s;
}

/* `heap` NULL: the holes. */
static shelves bins_of(const bins *b, const stream_heap *heap, amount known) {
    shelves s = {.name = "holes",
                 .heads = b->head,
                 .filled = b->filled,
                 .class_count = CLASS_COUNT,
                 .state = heap != NULL ? CHUNK_FREE : CHUNK_UNMAPPED,
                 .both_ways = true,
                 .heap = heap,
                 .said = {b->count, b->bytes},
                 .known = known};
    if (heap != NULL) {
        (void)snprintf(s.name, sizeof s.name, "bins of heap %u", heap->index);
    }
    return s;
}

static bool waiting_are_sound(check *k) {
    amount sum = {.count = 0};
    for (const chunk *c = k->a->waiting; c != NULL && sum.count <= k->a->waiting_count;
         c = c->link) {
        add(&sum, c);
    }
    return (sum.count == k->a->waiting_count && sum.count == k->waiting.count &&
            sum.bytes == k->waiting.bytes) ||
           wrong(k,
                 "%" PRIu64 " chunks of %" PRIu64 " bytes wait for a stream, %zu are counted, and "
                 "the regions have %" PRIu64 " of %" PRIu64,
                 sum.count, sum.bytes, k->a->waiting_count, k->waiting.count, k->waiting.bytes);
}

/* ---- heaps ---- */

static bool usage_is_sound(check *k, const stream_heap *heap) {
    const amount known = k->heaps[heap->index].used;
    int64_t bytes = 0;
    int64_t blocks = 0;
    for (size_t i = 0; i < MP_CLIENTS_MAX; i++) {
        bytes += heap->clients[i].in_use;
        blocks += heap->clients[i].blocks;
    }
    if (heap->in_use != known.bytes) {
        return wrong(k,
                     "heap %u counts %" PRIu64 " bytes in use, its %" PRIu64 " allocated chunks "
                     "make %" PRIu64,
                     heap->index, heap->in_use, known.count, known.bytes);
    }
    if (bytes != (int64_t)known.bytes || blocks != (int64_t)known.count) {
        return wrong(k,
                     "the clients of heap %u have %" PRId64 " blocks of %" PRId64
                     " bytes, its allocated chunks are %" PRIu64 " of %" PRIu64,
                     heap->index, blocks, bytes, known.count, known.bytes);
    }
    return heap->in_use <= heap->allowance ||
           wrong(k, "heap %u has %" PRIu64 " bytes in use, with an allowance of %" PRIu64,
                 heap->index, heap->in_use, heap->allowance);
}

static bool heap_is_sound(check *k, const stream_heap *heap) {
    const shelves shelf = shelf_of(heap, k->heaps[heap->index].kept);
    const shelves binned = bins_of(&heap->bins, heap, k->heaps[heap->index].free);
    return usage_is_sound(k, heap) && shelves_are_sound(k, &shelf) && shelves_are_sound(k, &binned);
}

static bool heaps_are_sound(check *k) {
    uint64_t assigned = 0;
    for (size_t i = 0; i < k->heap_count; i++) {
        const stream_heap *heap = stream_heap_at(k->a, (unsigned)i);
        if (!heap_is_sound(k, heap)) {
            return false;
        }
        assigned += heap->allowance;
    }
    return (assigned == k->a->assigned && assigned <= k->a->peak) ||
           wrong(k,
                 "the allowances of %zu heaps make %" PRIu64 " bytes, %" PRIu64
                 " are assigned, and the peak is %" PRIu64,
                 k->heap_count, assigned, k->a->assigned, k->a->peak);
}

/* ---- the whole ---- */

static bool total_is_sound(check *k) {
    const arena *a = k->a;
    amount used = {.count = 0};
    amount kept = {.count = 0};
    amount unused = {.count = 0};
    for (size_t i = 0; i < k->heap_count; i++) {
        used.bytes += k->heaps[i].used.bytes;
        kept.bytes += k->heaps[i].kept.bytes;
        unused.bytes += k->heaps[i].free.bytes;
    }
    if (k->reserved != arena_total(a) || arena_total(a) > a->counts.total_max) {
        return wrong(k,
                     "%zu bytes are reserved from the device (the most was %" PRIu64
                     "), the chunks make %" PRIu64 ": %" PRIu64 " in use, %" PRIu64
                     " on shelves, %" PRIu64 " free, %" PRIu64 " waiting, %" PRIu64 " on their way",
                     arena_total(a), a->counts.total_max, k->reserved, used.bytes, kept.bytes,
                     unused.bytes, k->waiting.bytes, k->moving.bytes);
    }
    return k->addresses == a->addresses.count ||
           wrong(k, "the map of addresses counts %zu, of which %zu are found", a->addresses.count,
                 k->addresses);
}

static bool all_is_sound(check *k) {
    if (!regions_are_sound(k) || !alone_are_sound(k)) {
        return false;
    }
    const shelves holes = bins_of(&k->a->holes, NULL, k->holes);
    return total_is_sound(k) && heaps_are_sound(k) && shelves_are_sound(k, &holes) &&
           waiting_are_sound(k);
}

/* Under the arena's lock: whether all is well, or there is no host memory to find out. */
static bool check_locked(arena *a, char why[WHY_MAX]) {
    check k = {.a = a, .heap_count = stream_heap_count_of(a)};
    k.heaps = calloc(k.heap_count + 1, sizeof *k.heaps);
    if (k.heaps == NULL) {
        return true;
    }
    mp__stream_heaps_lock(a);
    const bool sound = all_is_sound(&k);
    mp__stream_heaps_unlock(a);
    free(k.heaps);
    (void)snprintf(why, WHY_MAX, "%s", k.why);
    return sound;
}

mp_status mp__arena_check(arena *a) {
    char why[WHY_MAX];
    (void)pthread_mutex_lock(&a->lock);
    const bool sound = check_locked(a, why);
    (void)pthread_mutex_unlock(&a->lock);
    return sound ? MP_OK : MP_FAIL(INTERNAL, "%s", why);
}

void mp__arena_unlock_checked(arena *a) {
    char why[WHY_MAX];
    const bool broken = !a->is_unsound && !check_locked(a, why);
    a->is_unsound = a->is_unsound || broken;
    (void)pthread_mutex_unlock(&a->lock);
    if (broken) {
        MP_LOG(ERROR,
               "arena.check: the record of the pool of %s memory of device %d (%s) is not "
               "consistent: %s; report this with what the program did before",
               source_memory_name(&a->source), a->device->ordinal, a->device->info.name, why);
    }
}
