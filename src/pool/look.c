/* look.c - what an arena looks like: as text, as a layout, and as the sentence of a failed request.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/arena.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- free memory at a glance; under the arena's lock ---- */

typedef struct free_view {
    size_t bytes, count, largest;
} free_view;

static void see(free_view *view, size_t bytes) {
    view->bytes += bytes;
    view->count++;
    view->largest = bytes > view->largest ? bytes : view->largest;
}

/* Chunks of bins, and those on shelves and those that wait, of all streams. */
static free_view view_free(arena *a) {
    free_view view = {0, 0, 0};
    for (size_t i = 0; i < a->region_count; i++) {
        for (const chunk *c = a->regions[i].first; c != NULL; c = c->next) {
            const chunk_state state = chunk_state_of(c);
            if (state == CHUNK_FREE || state == CHUNK_KEPT || state == CHUNK_WAITING) {
                see(&view, chunk_bytes(c));
            }
        }
    }
    return view;
}

static unsigned fragmentation_of(const free_view *view) {
    return view->bytes == 0 ? 0
                            : (unsigned)(100 - (100 * (double)view->largest) / (double)view->bytes);
}

/* ---- the dump ---- */

typedef struct writer {
    mp_write_fn *write;
    void *context;
} writer;

static void MP_PRINTF(2, 3) put(const writer *w, const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (size > 0) {
        w->write(w->context, line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
    }
}

static void put_clients(arena *a, const writer *w) {
    mp_share shares[MP_CLIENTS_MAX];
    size_t count = 0;
    mp__usage_clients(a, shares, MP_COUNT_OF(shares), &count);
    for (size_t i = 0; i < count; i++) {
        put(w, "client %-31s %14" PRIu64 " bytes in %" PRIu64 " blocks\n", shares[i].name,
            shares[i].in_use, shares[i].blocks);
    }
}

/* Bins of all lanes together, by powers of two of 256 bytes, as they were first described. */
static void put_bins(arena *a, const writer *w) {
    enum { POWERS = 33 };
    struct {
        size_t free_count, free_bytes, lent_count, lent_bytes;
    } rows[POWERS];
    memset(rows, 0, sizeof rows);
    for (size_t i = 0; i < a->region_count; i++) {
        for (const chunk *c = a->regions[i].first; c != NULL; c = c->next) {
            const int power = 31 - __builtin_clz(c->units);
            const chunk_state state = chunk_state_of(c);
            if (state == CHUNK_UNMAPPED) {
                continue;
            }
            if (state == CHUNK_LENT) {
                rows[power].lent_count++;
                rows[power].lent_bytes += chunk_bytes(c);
            } else {
                rows[power].free_count++;
                rows[power].free_bytes += chunk_bytes(c);
            }
        }
    }
    for (int power = 0; power < POWERS; power++) {
        if (rows[power].free_count + rows[power].lent_count > 0) {
            put(w, "bin %14zu bytes: %zu lent (%zu bytes), %zu free (%zu bytes)\n",
                (size_t)UNIT << power, rows[power].lent_count, rows[power].lent_bytes,
                rows[power].free_count, rows[power].free_bytes);
        }
    }
}

static void put_regions(const arena *a, const writer *w) {
    enum { SHOWN = 64 };
    for (size_t i = 0; i < a->region_count && i < SHOWN; i++) {
        const region *r = &a->regions[i];
        free_view view = {0, 0, 0};
        size_t chunks = 0;
        for (const chunk *c = r->first; c != NULL; c = c->next, chunks++) {
            const chunk_state state = chunk_state_of(c);
            if (state != CHUNK_LENT && state != CHUNK_UNMAPPED) {
                see(&view, chunk_bytes(c));
            }
        }
        put(w, "region 0x%" PRIxPTR ": %zu bytes%s, %zu chunks, %zu bytes free, the largest %zu\n",
            r->addr, r->size, r->expandable ? " of addresses" : "", chunks, view.bytes,
            view.largest);
    }
    if (a->region_count > SHOWN) {
        put(w, "and %zu more regions\n", a->region_count - SHOWN);
    }
}

void mp__arena_dump(arena *a, mp_write_fn *write, void *context) {
    const writer w = {write, context};
    mp_pool_stats stats;
    mp__usage_stats(a, &stats);
    put(&w, "pool of %s memory, device %d (%s)\n",
        a->source.memory == MP_MEMORY_PINNED ? "pinned" : "device", a->device->ordinal,
        a->device->info.name);
    put(&w,
        "in use %" PRIu64 " bytes (asked for %" PRIu64 ", most ever %" PRIu64 ") of %" PRIu64
        " had from the device (most ever %" PRIu64 ")\n",
        stats.in_use, stats.requested, stats.in_use_max, stats.total, stats.total_max);
    put(&w,
        "%" PRIu64 " requests, %" PRIu64 " frees, %" PRIu64 " extensions, %" PRIu64
        " given back, %" PRIu64 " failures\n",
        stats.allocs, stats.frees, stats.extensions, stats.shrinkages, stats.failures);
    put_clients(a, &w);
    (void)pthread_mutex_lock(&a->lock);
    mp__lanes_lock(a); /* what is lent or on a shelf must not change meanwhile */
    const free_view view = view_free(a);
    put(&w, "free %zu bytes in %zu chunks, the largest %zu, fragmentation %u %%\n", view.bytes,
        view.count, view.largest, fragmentation_of(&view));
    put_bins(a, &w);
    put_regions(a, &w);
    mp__lanes_unlock(a);
    (void)pthread_mutex_unlock(&a->lock);
}

/* ---- out of memory ---- */

typedef struct text {
    char bytes[6000];
    size_t size;
} text;

static void append(void *context, const char *piece, size_t size) {
    text *t = context;
    const size_t room = sizeof t->bytes - 1 - t->size;
    size = size < room ? size : room;
    memcpy(t->bytes + t->size, piece, size);
    t->size += size;
    t->bytes[t->size] = '\0';
}

static void log_dump(arena *a) {
    if (!mp_log_enabled(MP_LOG_INFO)) {
        return;
    }
    text *t = calloc(1, sizeof *t);
    if (t != NULL) {
        mp__arena_dump(a, append, t);
        for (char *line = t->bytes, *end = NULL; *line != '\0'; line = end + 1) {
            end = strchr(line, '\n');
            if (end == NULL) {
                break;
            }
            *end = '\0';
            MP_LOG(INFO, "%s", line);
        }
        free(t);
    }
}

/* "ort 512, torch 256" */
static void name_holders(arena *a, char *out, size_t size) {
    mp_share shares[MP_CLIENTS_MAX];
    size_t count = 0;
    size_t used = 0;
    mp__usage_clients(a, shares, MP_COUNT_OF(shares), &count);
    out[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        const int wrote = snprintf(out + used, size - used, "%s%s %" PRIu64, i > 0 ? ", " : "",
                                   shares[i].name, shares[i].in_use);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

mp_status mp__arena_fail(arena *a, size_t size, uint8_t client, const char *why) {
    char holders[256];
    mp_pool_stats stats;
    (void)pthread_mutex_lock(&a->lock);
    a->counts.failures++;
    mp__lanes_lock(a);
    const free_view view = view_free(a);
    mp__lanes_unlock(a);
    (void)pthread_mutex_unlock(&a->lock);
    mp__usage_stats(a, &stats);
    name_holders(a, holders, sizeof holders);
    if (mp__trace_on(a->trace)) {
        mp__trace_add(a->trace, (mp_trace_event){.size = size,
                                                 .requested = size,
                                                 .stream = MP_NO_STREAM,
                                                 .total = arena_total(a),
                                                 .action = MP_TRACE_FAIL,
                                                 .client = client});
    }
    log_dump(a);
    return MP_FAIL(OUT_OF_MEMORY,
                   "no %zu bytes of %s memory of device %d (%s) for '%s': %" PRIu64 " of %" PRIu64
                   " bytes had are in use (%s), %zu are free in %zu chunks, the largest of %zu "
                   "bytes; %s",
                   size, a->source.memory == MP_MEMORY_PINNED ? "pinned" : "device",
                   a->device->ordinal, a->device->info.name, a->clients[client], stats.in_use,
                   stats.total, holders, view.bytes, view.count, view.largest, why);
}

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

/* Blocks whose stream was destroyed count as lent without one. */
static void *stream_of(const arena *a, const chunk *c) {
    const lane *l = lane_of(a, c);
    return l->gone ? MP_NO_STREAM : l->native;
}

static mp_layout_block block_of(const arena *a, const chunk *c) {
    const lane *l = lane_of(a, c);
    const mp_block_state state = block_state_of(c, l->is_capture && !l->gone);
    mp_layout_block block = {.addr = chunk_addr(c),
                             .size = chunk_bytes(c),
                             .stream = MP_NO_STREAM,
                             .state = (uint8_t)state};
    if (state == MP_BLOCK_LENT) {
        block.requested = c->requested;
        block.client = c->client;
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
    count = list_alone(a->buried, parts, count);
    qsort(parts, count, sizeof *parts, by_address);
    return count;
}

static size_t count_parts(const arena *a) {
    size_t count = a->region_count;
    for (const chunk *c = a->reserved; c != NULL; c = c->link) {
        count++;
    }
    for (const chunk *c = a->buried; c != NULL; c = c->link) {
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
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for a list of regions");
    }
    const size_t count = list_parts(a, parts);
    const size_t chunks = count_chunks(parts, count);
    out->regions = calloc(count + 1, sizeof *out->regions);
    out->blocks = calloc(chunks + 1, sizeof *out->blocks);
    mp_status status = MP_OK;
    if (out->regions == NULL || out->blocks == NULL) {
        mp__layout_free(out);
        status = MP_FAIL(OUT_OF_MEMORY, "no host memory for a list of %zu chunks", chunks);
    } else {
        fill_layout(a, parts, count, out);
    }
    free(parts);
    return status;
}

mp_status mp__arena_layout(arena *a, mp_layout *out) {
    mp_layout fresh = {.device = a->device, .memory = a->source.memory};
    (void)pthread_mutex_lock(&a->lock);
    mp__order_poll(a);
    mp__arena_gather_idle(a); /* memory that any stream may use is shown as such */
    mp__lanes_lock(a);
    mp__usage_stats_locked(a, &fresh.stats);
    const mp_status status = make_layout(a, &fresh);
    mp__lanes_unlock(a);
    fresh.client_count = a->client_count;
    memcpy(fresh.clients, a->clients, sizeof fresh.clients);
    (void)pthread_mutex_unlock(&a->lock);
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
    (void)pthread_mutex_lock(&a->lock);
    mp__lanes_lock(a);
    const chunk *c = mp__address_find(&a->addresses, addr - a->border);
    c = c != NULL ? c : chunk_around(a, addr);
    const bool lent =
        c != NULL && (chunk_state_of(c) == CHUNK_LENT || chunk_state_of(c) == CHUNK_RESERVED);
    if (lent) {
        describe(a, c, out);
    }
    mp__lanes_unlock(a);
    (void)pthread_mutex_unlock(&a->lock);
    return lent ? MP_OK
                : MP_FAIL(NOT_FOUND, "no lent block of the pool of %s is around 0x%" PRIxPTR,
                          a->device->info.name, addr);
}
