/* mempool_mode.c - hooks, names, trace and sentences around the driver's own pool.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_mode.h"

#include "base/log.h"
#include "pool/arena/arena.h"
#include "pool/arena/capture.h"
#include "pool/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- trace ---- */

/* Allocated blocks are traced after the call, freed ones before it, since the driver may allocate
 * them again at once. What is not an allocated block is not traced. */
static void trace_block(const arena *a, mp_trace_action action, mp_addr addr) {
    mp__mempool_block block;
    mp_pool_stats stats;
    if (mp__trace_on(a->trace) && mp__mempool_find(a->mempool, addr, &block) == MP_OK &&
        block.addr == addr && mp__mempool_stats(a->mempool, &stats) == MP_OK) {
        mp__trace_add(
            a->trace,
            (mp_trace_event){.addr = addr,
                             .size = block.size,
                             .requested = block.requested,
                             .stream = block.stream,
                             .total = stats.total,
                             .action = (uint8_t)action,
                             .client = block.client,
                             .label = block.label,
                             .stack = action == MP_TRACE_ALLOC ? mp__trace_stack(a->trace) : 0});
    }
}

/* ---- allocating ---- */

/* Counts a failure and writes its sentence, which ends with the last one of this thread. */
static mp_status fail(arena *a, size_t size, void *stream, uint8_t client) {
    char why[512];
    mp_pool_stats stats = {.in_use = 0};
    (void)snprintf(why, sizeof why, "%s", mp_error_message());
    mp__mempool_count_failure(a->mempool);
    (void)mp__mempool_stats(a->mempool, &stats); /* zeros where the driver does not answer */
    if (mp__trace_on(a->trace)) {
        mp__trace_add(a->trace, (mp_trace_event){.size = size,
                                                 .requested = size,
                                                 .stream = stream,
                                                 .total = stats.total,
                                                 .action = MP_TRACE_FAIL,
                                                 .client = client,
                                                 .label = mp__label_now(),
                                                 .stack = mp__trace_stack(a->trace)});
    }
    return MP_FAIL(
        OUT_OF_MEMORY,
        "cannot allocate %zu bytes of device memory of device %d (%s) for '%s' from the driver's "
        "pool: %" PRIu64 " of the %" PRIu64 " bytes reserved from the device are in use; %s",
        size, a->device->ordinal, a->device->info.name, a->clients[client], stats.in_use,
        stats.total, why);
}

static mp_status try_request(arena *a, size_t size, void *stream, uint8_t client, bool reserve,
                             mp_addr *out) {
    return reserve ? mp__mempool_reserve(a->mempool, size, client, out)
                   : mp__mempool_alloc(a->mempool, size, stream, client, out);
}

static mp_status request(arena *a, size_t size, void *stream, uint8_t client, bool reserve,
                         mp_addr *out) {
    size_t next_hook = 0;
    mp_status status = try_request(a, size, stream, client, reserve, out);
    while (status == MP_OUT_OF_MEMORY && mp__pressure_run(a, size, &next_hook)) {
        status = try_request(a, size, stream, client, reserve, out);
    }
    if (status == MP_OUT_OF_MEMORY) {
        return fail(a, size, stream, client);
    }
    MP_TRY(status);
    trace_block(a, MP_TRACE_ALLOC, *out);
    return MP_OK;
}

static mp_status alloc(arena *a, size_t size, void *stream, uint8_t client, mp_addr *out) {
    return request(a, size, stream, client, false, out);
}

static mp_status reserve_block(arena *a, size_t size, uint8_t client, mp_addr *out) {
    return request(a, size, MP_NO_STREAM, client, true, out);
}

/* The driver's locks are not ours, so nothing is tried. */
static mp_status refuse_try_free(arena *a, mp_addr addr, void *stream) {
    (void)a, (void)addr, (void)stream;
    return MP_BUSY;
}

static mp_status free_block(arena *a, mp_addr addr, void *stream) {
    trace_block(a, MP_TRACE_FREE, addr);
    return stream == MP_SAME_STREAM ? mp__mempool_free(a->mempool, addr)
                                    : mp__mempool_free_on(a->mempool, addr, stream);
}

static mp_status record_use(arena *a, mp_addr addr, void *stream) {
    return mp__mempool_record_use(a->mempool, addr, stream);
}

static mp_status record_end(arena *a, mp_addr addr, void *stream) {
    return mp__mempool_record_end(a->mempool, addr, stream);
}

/* ---- order and captures: the driver's pool keeps its own order ---- */

static mp_status stream_settled(arena *a, void *stream) {
    (void)a, (void)stream;
    return MP_OK;
}

static mp_status stream_gone(arena *a, void *stream) {
    return mp__mempool_stream_gone(a->mempool, stream);
}

static mp_status stream_over(arena *a, void *stream, uint8_t client) {
    return mp__mempool_stream_over(a->mempool, stream, client);
}

static mp_status stream_mark(arena *a, void *producer, uint64_t *mark) {
    (void)a, (void)producer;
    *mark = 0;
    return MP_OK;
}

static mp_status stream_ordered(arena *a, void *consumer, void *producer, uint64_t mark) {
    (void)a, (void)consumer, (void)producer, (void)mark;
    return MP_OK;
}

static mp_status wait(arena *a) {
    return mp__mempool_wait(a->mempool);
}

static mp_status refuse_capture(arena *a, void *stream, mp_capture **capture) {
    (void)a, (void)stream, (void)capture;
    return MP_FAIL(UNSUPPORTED, "the driver's own pool cannot keep memory for a graph; open the "
                                "pool without arena.use_cuda_mempool to capture");
}

static mp_status shrink(arena *a, size_t *released) {
    return mp__mempool_shrink(a->mempool, released);
}

/* ---- looking at it ---- */

static mp_status find(arena *a, mp_addr addr, mp_block_info *out) {
    mp__mempool_block block;
    MP_TRY(mp__mempool_find(a->mempool, addr, &block));
    *out = (mp_block_info){.addr = block.addr,
                           .size = block.size,
                           .requested = block.requested,
                           .region = block.addr,
                           .stream = block.stream};
    memcpy(out->client, a->clients[block.client], sizeof out->client);
    return MP_OK;
}

static void get_clients(arena *a, mp_share *out, size_t capacity, size_t *count) {
    arena_lock(a);
    *count = a->client_count;
    for (size_t i = 0; i < a->client_count && i < capacity; i++) {
        out[i] = mp__mempool_client_share(a->mempool, (uint8_t)i);
        memcpy(out[i].name, a->clients[i], sizeof out[i].name);
    }
    arena_unlock(a);
}

typedef struct block_page {
    const arena *a;
    const dump_writer *w;
    dump_table table;
    dump_list list;
} block_page;

static void count_block(void *context, const mp__mempool_block *block, bool lent) {
    block_page *page = context;
    if (lent) {
        mp__dump_count_lent(&page->table, block->size, block->requested);
    } else {
        mp__dump_count_free(&page->table, block->size);
    }
}

static void put_block(void *context, const mp__mempool_block *block, bool lent) {
    block_page *page = context;
    mp__dump_put_chunk(page->w, &page->list,
                       &(dump_chunk){.addr = block->addr,
                                     .size = block->size,
                                     .requested = block->requested,
                                     .client = lent ? page->a->clients[block->client] : NULL,
                                     .state = "freed, still waiting for a stream"});
}

/* What the driver keeps beyond these blocks it alone knows. */
static void put_blocks(const arena *a, const dump_writer *w) {
    block_page page = {.a = a, .w = w};
    mp__mempool_look(a->mempool, count_block, &page);
    mp__dump_put_table(w, &page.table);
    mp__mempool_look(a->mempool, put_block, &page);
    mp__dump_end_chunks(w, &page.list);
}

static mp_status dump(arena *a, mp_write_fn *write, void *context) {
    const dump_writer w = {write, context};
    mp_pool_stats stats;
    mp_share shares[MP_CLIENTS_MAX];
    size_t count = 0;
    MP_TRY(mp__mempool_stats(a->mempool, &stats));
    mp__dump_put(&w,
                 "the driver's pool, device %d (%s)\nin use %" PRIu64 " bytes (requested %" PRIu64
                 ", peak %" PRIu64 ") of %" PRIu64 " reserved from the device (peak %" PRIu64 ")\n",
                 a->device->ordinal, a->device->info.name, stats.in_use, stats.requested,
                 stats.in_use_max, stats.total, stats.total_max);
    mp__dump_put(
        &w, "%" PRIu64 " requests, %" PRIu64 " frees, %" PRIu64 " returned, %" PRIu64 " failures\n",
        stats.allocs, stats.frees, stats.shrinkages, stats.failures);
    get_clients(a, shares, MP_COUNT_OF(shares), &count);
    mp__dump_clients(&w, shares, count);
    put_blocks(a, &w);
    return MP_OK;
}

static mp_status layout(arena *a, mp_layout *out) {
    MP_TRY(mp__mempool_layout(a->mempool, out));
    arena_lock(a);
    out->client_count = a->client_count;
    memcpy(out->clients, a->clients, sizeof out->clients);
    arena_unlock(a);
    return MP_OK;
}

static mp_status get_stats(arena *a, mp_pool_stats *out) {
    return mp__mempool_stats(a->mempool, out);
}

static void reset_peaks(arena *a) {
    (void)mp__mempool_reset_peaks(a->mempool);
}

static mp_status get_streams(arena *a, mp_share *out, size_t capacity, size_t *count) {
    *count = mp__mempool_stream_shares(a->mempool, out, capacity);
    return MP_OK;
}

/* The driver's record is not ours to look at. */
static mp_status check(arena *a) {
    (void)a;
    return MP_OK;
}

static void report_options(const arena *a) {
    const arena_options *o = &a->options;
    char limit[32];
    mp__arena_options_print_limit(o, limit);
    MP_LOG(INFO,
           "a pool of device memory of device %d (%s) from the driver's own pool: "
           "cuda_mempool_release_threshold %zu, cuda_mempool_bytes_to_keep_on_shrink %zu, "
           "max_mem %s",
           a->device->ordinal, a->device->info.name, o->cuda_mempool_release_threshold,
           o->cuda_mempool_bytes_to_keep_on_shrink, limit);
}

/* ---- life ---- */

static void destroy(arena *a) {
    mp__mempool_destroy(a->mempool);
    mp__arena_destroy(a);
}

/* No capture ever begins, so the arena refuses to end or release one. */
const pool_mode mp__mode_mempool = {
    .alloc = alloc,
    .try_alloc = mp__mode_refuse_try_alloc,
    .free = free_block,
    .try_free = refuse_try_free,
    .reserve = reserve_block,
    .record_use = record_use,
    .record_end = record_end,
    .find = find,
    .stream_settled = stream_settled,
    .stream_gone = stream_gone,
    .stream_over = stream_over,
    .stream_mark = stream_mark,
    .stream_ordered = stream_ordered,
    .wait = wait,
    .capture_begin = refuse_capture,
    .capture_end = mp__arena_capture_end,
    .capture_release = mp__arena_capture_release,
    .shrink = shrink,
    .regions_are_allocations = false,
    .get_stats = get_stats,
    .reset_peaks = reset_peaks,
    .get_clients = get_clients,
    .get_streams = get_streams,
    .dump = dump,
    .layout = layout,
    .check = check,
    .report_options = report_options,
    .destroy = destroy,
};

mp_status mp__mempool_mode_enter(arena *a) {
    const arena_options *given = &a->options;
    const mp__mempool_options options = {.release_threshold = given->cuda_mempool_release_threshold,
                                         .bytes_to_keep_on_shrink =
                                             given->cuda_mempool_bytes_to_keep_on_shrink,
                                         .max_mem = given->max_mem};
    if (given->check) {
        MP_LOG(WARNING,
               "arena.check=1 does nothing with arena.use_cuda_mempool=1: what it looks at "
               "are the lists of an arena, and the driver's pool has its own");
    }
    MP_TRY(mp__mempool_create(a->device, &options, &a->mempool));
    a->mode = &mp__mode_mempool;
    return MP_OK;
}
