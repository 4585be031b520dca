/* inspect.c - what an arena looks like: its layout, and single blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/inspect.h"

#include "pool/arena/gather_idle.h"
#include "pool/arena/order.h"
#include "pool/arena/usage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the layout ---- */

static mp_block_state block_state_of(const chunk *c, bool for_graph) {
    switch (chunk_state_of(c)) {
    case CHUNK_FREE:
        return for_graph ? MP_BLOCK_KEPT : MP_BLOCK_FREE;
    case CHUNK_KEPT:
        return MP_BLOCK_KEPT;
    case CHUNK_WAITING:
    case CHUNK_MOVING:
        return MP_BLOCK_WAITING;
    case CHUNK_UNMAPPED:
        return MP_BLOCK_UNMAPPED;
    case CHUNK_LENT:
    case CHUNK_RESERVED:
    case CHUNK_UNUSED:
        break;
    }
    return MP_BLOCK_LENT;
}

/* Blocks whose stream was destroyed count as allocated without one. */
static void *stream_of(const arena *a, const chunk *c) {
    const stream_heap *heap = stream_heap_of(a, c);
    return heap->gone ? MP_NO_STREAM : heap->native;
}

static mp_layout_block block_of(const arena *a, const chunk *c) {
    const stream_heap *heap = stream_heap_of(a, c);
    const mp_block_state state = block_state_of(c, stream_heap_is_graphs(heap));
    mp_layout_block block = {.addr = chunk_addr(c),
                             .size = chunk_bytes(c),
                             .stream = MP_NO_STREAM,
                             .state = (uint8_t)state};
    if (state == MP_BLOCK_LENT) {
        block.requested = c->requested;
        block.client = c->client;
        block.label = chunk_label(c);
    }
    if (state != MP_BLOCK_UNMAPPED) {
        block.stream = stream_of(a, c);
    }
    return block;
}

/* A region of the layout while it is made, with the first of its chunks. */
typedef struct part {
    mp_layout_region region;
    const chunk *first;
} part;

static int by_address(const void *left, const void *right) {
    const mp_addr l = ((const part *)left)->region.addr;
    const mp_addr r = ((const part *)right)->region.addr;
    return l < r ? -1 : l > r;
}

/* Reserved blocks, and those that wait to be given back, are regions of one chunk each. */
static size_t list_alone(const chunk *list, part *parts, size_t count) {
    for (const chunk *c = list; c != NULL; c = c->link) {
        parts[count++] =
            (part){{.addr = chunk_addr(c), .size = chunk_bytes(c), .reserved = true}, c};
    }
    return count;
}

static size_t list_parts(const arena *a, part *parts) {
    size_t count = 0;
    for (size_t i = 0; i < a->region_count; i++) {
        const region *r = &a->regions[i];
        parts[count++] =
            (part){{.addr = r->addr, .size = r->size, .expandable = r->expandable}, r->first};
    }
    count = list_alone(a->reserved, parts, count);
    count = list_alone(a->retired, parts, count);
    qsort(parts, count, sizeof *parts, by_address);
    return count;
}

static size_t count_parts(const arena *a) {
    size_t count = a->region_count;
    for (const chunk *c = a->reserved; c != NULL; c = c->link) {
        count++;
    }
    for (const chunk *c = a->retired; c != NULL; c = c->link) {
        count++;
    }
    return count;
}

static size_t count_chunks(const part *parts, size_t count) {
    size_t chunks = 0;
    for (size_t i = 0; i < count; i++) {
        for (const chunk *c = parts[i].first; c != NULL; c = c->next) {
            chunks++;
        }
    }
    return chunks;
}

static void fill_layout(const arena *a, const part *parts, size_t count, mp_layout *out) {
    for (size_t i = 0; i < count; i++) {
        mp_layout_region *r = &out->regions[i];
        *r = parts[i].region;
        r->first_block = out->block_count;
        for (const chunk *c = parts[i].first; c != NULL; c = c->next) {
            out->blocks[out->block_count++] = block_of(a, c);
        }
        r->block_count = out->block_count - r->first_block;
    }
    out->region_count = count;
}

static mp_status make_layout(const arena *a, mp_layout *out) {
    part *parts = calloc(count_parts(a) + 1, sizeof *parts);
    if (parts == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of regions");
    }
    const size_t count = list_parts(a, parts);
    const size_t chunks = count_chunks(parts, count);
    out->regions = calloc(count + 1, sizeof *out->regions);
    out->blocks = calloc(chunks + 1, sizeof *out->blocks);
    mp_status status = MP_OK;
    if (out->regions == NULL || out->blocks == NULL) {
        mp__layout_free(out);
        status =
            MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of %zu chunks", chunks);
    } else {
        fill_layout(a, parts, count, out);
    }
    free(parts);
    return status;
}

mp_status mp__arena_layout(arena *a, mp_layout *out) {
    mp_layout fresh = {.device = a->device, .memory = a->source.memory};
    arena_lock(a);
    mp__order_poll(a);
    mp__arena_gather_idle(a); /* memory that any stream may use is shown as such */
    mp__stream_heaps_lock(a);
    mp__usage_stats_locked(a, &fresh.stats);
    const mp_status status = make_layout(a, &fresh);
    mp__stream_heaps_unlock(a);
    fresh.client_count = a->client_count;
    memcpy(fresh.clients, a->clients, sizeof fresh.clients);
    arena_unlock(a);
    MP_TRY(status);
    *out = fresh;
    return MP_OK;
}

/* ---- one block ---- */

static const chunk *chunk_around(const arena *a, mp_addr addr) {
    const region *r = mp__region_of(a, addr);
    const chunk *c = r != NULL ? r->first : a->reserved;
    while (c != NULL && addr - chunk_addr(c) >= chunk_bytes(c)) {
        c = r != NULL ? c->next : c->link;
    }
    return c;
}

static void describe(const arena *a, const chunk *c, mp_block_info *out) {
    const region *r = mp__region_of(a, chunk_addr(c));
    *out = (mp_block_info){.addr = chunk_addr(c) + a->border,
                           .size = chunk_bytes(c) - 2 * a->border,
                           .requested = c->requested,
                           .region = r != NULL ? r->addr : chunk_addr(c),
                           .region_size = r != NULL ? r->size : chunk_bytes(c),
                           .stream = stream_of(a, c)};
    memcpy(out->client, a->clients[c->client], sizeof out->client);
}

mp_status mp__arena_find(arena *a, mp_addr addr, mp_block_info *out) {
    arena_lock(a);
    mp__stream_heaps_lock(a);
    const chunk *c = mp__address_find(&a->addresses, addr - a->border);
    c = c != NULL ? c : chunk_around(a, addr);
    const bool lent =
        c != NULL && (chunk_state_of(c) == CHUNK_LENT || chunk_state_of(c) == CHUNK_RESERVED);
    if (lent) {
        describe(a, c, out);
    }
    mp__stream_heaps_unlock(a);
    arena_unlock(a);
    return lent ? MP_OK
                : MP_FAIL(NOT_FOUND, "no allocated block of the pool of %s contains 0x%" PRIxPTR,
                          a->device->info.name, addr);
}
