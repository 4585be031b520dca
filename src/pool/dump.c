/* dump.c - an arena as text: the whole page, and the sentence of a request that found no memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/dump.h"

#include "base/log.h"
#include "pool/arena/usage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

void mp__dump_clients(const dump_writer *w, const mp_share *shares, size_t count) {
    for (size_t i = 0; i < count; i++) {
        mp__dump_put(w, "client %-31s %14" PRIu64 " bytes in %" PRIu64 " blocks\n", shares[i].name,
                     shares[i].in_use, shares[i].blocks);
    }
}

static void put_clients(arena *a, const dump_writer *w) {
    mp_share shares[MP_CLIENTS_MAX];
    size_t count = 0;
    mp__usage_clients(a, shares, MP_COUNT_OF(shares), &count);
    mp__dump_clients(w, shares, count);
}

/* ---- free memory at a glance; under the arena's lock ---- */

typedef struct free_view {
    size_t bytes, count, largest;
} free_view;

static void see(free_view *view, size_t bytes) {
    view->bytes += bytes;
    view->count++;
    view->largest = MP_MAX(bytes, view->largest);
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

/* Chunks of all heaps together, and blocks outside of regions. */
static void put_table(const arena *a, const dump_writer *w) {
    dump_table table;
    memset(&table, 0, sizeof table);
    for (size_t i = 0; i < a->region_count; i++) {
        for (const chunk *c = a->regions[i].first; c != NULL; c = c->next) {
            const chunk_state state = chunk_state_of(c);
            if (state == CHUNK_LENT) {
                mp__dump_count_lent(&table, chunk_bytes(c), c->requested);
            } else if (state != CHUNK_UNMAPPED) {
                mp__dump_count_free(&table, chunk_bytes(c));
            }
        }
    }
    for (const chunk *c = a->reserved; c != NULL; c = c->link) {
        mp__dump_count_lent(&table, chunk_bytes(c), c->requested);
    }
    mp__dump_put_table(w, &table);
}

static const char *name_state(chunk_state state) {
    switch (state) {
    case CHUNK_KEPT:
        return "free, kept for its size";
    case CHUNK_WAITING:
    case CHUNK_MOVING:
        return "freed, still waiting for a stream";
    case CHUNK_UNMAPPED:
        return "of addresses without memory";
    case CHUNK_FREE:
    case CHUNK_LENT:
    case CHUNK_RESERVED:
    case CHUNK_UNUSED:
        break;
    }
    return "free";
}

static void put_chunk(const arena *a, const dump_writer *w, dump_list *list, const chunk *c) {
    const chunk_state state = chunk_state_of(c);
    const bool lent = state == CHUNK_LENT || state == CHUNK_RESERVED;
    mp__dump_put_chunk(w, list,
                       &(dump_chunk){.addr = chunk_addr(c),
                                     .size = chunk_bytes(c),
                                     .requested = c->requested,
                                     .client = lent ? a->clients[c->client] : NULL,
                                     .state = name_state(state)});
}

static void put_chunks(const arena *a, const dump_writer *w) {
    dump_list list = {0};
    for (size_t i = 0; i < a->region_count; i++) {
        for (const chunk *c = a->regions[i].first; c != NULL; c = c->next) {
            put_chunk(a, w, &list, c);
        }
    }
    for (const chunk *c = a->reserved; c != NULL; c = c->link) {
        put_chunk(a, w, &list, c);
    }
    mp__dump_end_chunks(w, &list);
}

static void put_regions(const arena *a, const dump_writer *w) {
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
        mp__dump_put(
            w, "region 0x%" PRIxPTR ": %zu bytes%s, %zu chunks, %zu bytes free, the largest %zu\n",
            r->addr, r->size, r->expandable ? " of addresses" : "", chunks, view.bytes,
            view.largest);
    }
    if (a->region_count > SHOWN) {
        mp__dump_put(w, "and %zu more regions\n", a->region_count - SHOWN);
    }
}

void mp__arena_dump(arena *a, mp_write_fn *write, void *context) {
    const dump_writer w = {write, context};
    mp_pool_stats stats;
    mp__usage_stats(a, &stats);
    mp__dump_put(&w, "pool of %s memory, device %d (%s)\n", source_memory_name(&a->source),
                 a->device->ordinal, a->device->info.name);
    mp__dump_put(&w,
                 "in use %" PRIu64 " bytes (requested %" PRIu64 ", peak %" PRIu64 ") of %" PRIu64
                 " reserved from the device (peak %" PRIu64 ")\n",
                 stats.in_use, stats.requested, stats.in_use_max, stats.total, stats.total_max);
    mp__dump_put(&w,
                 "%" PRIu64 " requests, %" PRIu64 " frees, %" PRIu64 " extensions, %" PRIu64
                 " returned, %" PRIu64 " failures\n",
                 stats.allocs, stats.frees, stats.extensions, stats.shrinkages, stats.failures);
    put_clients(a, &w);
    arena_lock(a);
    mp__stream_heaps_lock(a); /* what is allocated or on a shelf must not change meanwhile */
    const free_view view = view_free(a);
    mp__dump_put(&w, "free %zu bytes in %zu chunks, the largest %zu, fragmentation %u %%\n",
                 view.bytes, view.count, view.largest, fragmentation_of(&view));
    put_table(a, &w);
    put_regions(a, &w);
    put_chunks(a, &w);
    mp__stream_heaps_unlock(a);
    arena_unlock(a);
}

/* ---- out of memory ---- */

typedef struct text {
    char bytes[24000];
    size_t size;
} text;

static void append(void *context, const char *piece, size_t size) {
    text *t = context;
    const size_t room = sizeof t->bytes - 1 - t->size;
    size = MP_MIN(size, room);
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

/* "; the device has 100 of 200 bytes left", where it can be asked. */
static void name_rest(const arena *a, char *out, size_t size) {
    size_t left = 0;
    size_t all = 0;
    out[0] = '\0';
    if (mp__source_info(&a->source, &left, &all)) {
        (void)snprintf(out, size, "; the device has %zu of %zu bytes left", left, all);
    }
}

mp_status mp__arena_fail(arena *a, size_t size, uint8_t client, const char *why) {
    char holders[256];
    char rest[96];
    char reason[512];
    mp_pool_stats stats;
    (void)snprintf(reason, sizeof reason, "%s", why != NULL ? why : mp_error_message());
    arena_lock(a);
    a->counts.failures++;
    mp__stream_heaps_lock(a);
    const free_view view = view_free(a);
    mp__stream_heaps_unlock(a);
    arena_unlock(a);
    mp__usage_stats(a, &stats);
    name_holders(a, holders, sizeof holders);
    name_rest(a, rest, sizeof rest);
    if (mp__trace_on(a->trace)) {
        mp__trace_add(a->trace, (mp_trace_event){.size = size,
                                                 .requested = size,
                                                 .stream = MP_NO_STREAM,
                                                 .total = arena_total(a),
                                                 .action = MP_TRACE_FAIL,
                                                 .client = client,
                                                 .label = mp__label_now(),
                                                 .stack = mp__trace_stack(a->trace)});
    }
    log_dump(a);
    return MP_FAIL(OUT_OF_MEMORY,
                   "cannot allocate %zu bytes of %s memory of device %d (%s) for '%s': %" PRIu64
                   " of the %" PRIu64 " bytes reserved from the device are in use (%s), %zu are "
                   "free in %zu chunk%s, the largest of %zu bytes; %s%s",
                   size, source_memory_name(&a->source), a->device->ordinal, a->device->info.name,
                   a->clients[client], stats.in_use, stats.total, holders, view.bytes, view.count,
                   view.count == 1 ? "" : "s", view.largest, reason, rest);
}
