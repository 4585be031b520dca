/* mempool_mode.c - hooks, names, trace and sentences around the driver's own pool.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_mode.h"

#include "base/log.h"
#include "pool/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

mp_status mp__mempool_mode_enter(arena *a) {
    const arena_options *given = &a->options;
    if (!given->use_cuda_mempool || a->source.memory != MP_MEMORY_DEVICE || a->source.is_external) {
        return MP_OK;
    }
    const mp__mempool_options options = {.release_threshold = given->cuda_mempool_release_threshold,
                                         .bytes_to_keep_on_shrink =
                                             given->cuda_mempool_bytes_to_keep_on_shrink,
                                         .max_mem = given->max_mem};
    const mp_status status = mp__mempool_create(a->device, &options, &a->mempool);
    if (status != MP_UNSUPPORTED) {
        return status;
    }
    MP_LOG(WARNING, "arena.use_cuda_mempool: %s; the pool uses its own arena instead",
           mp_error_message());
    return MP_OK;
}

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

mp_status mp__mempool_mode_alloc(arena *a, size_t size, void *stream, uint8_t client,
                                 mp_addr *out) {
    return request(a, size, stream, client, false, out);
}

mp_status mp__mempool_mode_reserve(arena *a, size_t size, uint8_t client, mp_addr *out) {
    return request(a, size, MP_NO_STREAM, client, true, out);
}

mp_status mp__mempool_mode_free(arena *a, mp_addr addr, void *stream) {
    trace_block(a, MP_TRACE_FREE, addr);
    return stream == MP_SAME_STREAM ? mp__mempool_free(a->mempool, addr)
                                    : mp__mempool_free_on(a->mempool, addr, stream);
}

/* ---- looking at it ---- */

mp_status mp__mempool_mode_find(arena *a, mp_addr addr, mp_block_info *out) {
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

void mp__mempool_mode_clients(arena *a, mp_share *out, size_t capacity, size_t *count) {
    (void)pthread_mutex_lock(&a->lock);
    *count = a->client_count;
    for (size_t i = 0; i < a->client_count && i < capacity; i++) {
        out[i] = mp__mempool_client_share(a->mempool, (uint8_t)i);
        memcpy(out[i].name, a->clients[i], sizeof out[i].name);
    }
    (void)pthread_mutex_unlock(&a->lock);
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

mp_status mp__mempool_mode_dump(arena *a, mp_write_fn *write, void *context) {
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
    mp__mempool_mode_clients(a, shares, MP_COUNT_OF(shares), &count);
    mp__dump_clients(&w, shares, count);
    put_blocks(a, &w);
    return MP_OK;
}

mp_status mp__mempool_mode_layout(arena *a, mp_layout *out) {
    MP_TRY(mp__mempool_layout(a->mempool, out));
    (void)pthread_mutex_lock(&a->lock);
    out->client_count = a->client_count;
    memcpy(out->clients, a->clients, sizeof out->clients);
    (void)pthread_mutex_unlock(&a->lock);
    return MP_OK;
}
