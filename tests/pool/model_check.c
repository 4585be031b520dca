/* model_check.c - what the pool says of itself, against what the model knows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layout_check.h"
#include "model_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHARES_MAX = 32 };

size_t model_live_after(const model *m, mp_addr addr) {
    size_t low = 0, high = m->live_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (m->live[middle]->addr + m->live[middle]->size <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- sums ---- */

typedef struct pair {
    const char *name;
    uint64_t said, known;
} pair;

static bool compare(model *m, const char *whose, const pair *pairs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].said != pairs[i].known) {
            return model_fail(m, "%s of %s is %" PRIu64 " instead of %" PRIu64, pairs[i].name,
                              whose, pairs[i].said, pairs[i].known);
        }
    }
    return true;
}

static bool check_stats(model *m) {
    mp_pool_stats s = {0};
    if (!model_ok(m, mp_pool_get_stats(m->pools[0], &s, sizeof s), "get_stats")) {
        return false;
    }
    const pair pairs[] = {
        {"in_use", s.in_use, m->in_use},
        {"requested", s.requested, m->requested},
        {"in_use_max", s.in_use_max, m->in_use_max},
        {"alloc_size_max", s.alloc_size_max, m->alloc_size_max},
        {"allocs", s.allocs, m->allocs},
        {"frees", s.frees, m->frees},
        {"reserves", s.reserves, m->reserves},
        /* Whether a request that met a fault ran out of memory is up to the pool. */
        {"failures", s.failures, m->plan->fault > 0 ? s.failures : m->failures},
    };
    if (s.total < s.in_use || s.total > s.total_max) {
        return model_fail(m, "total is %" PRIu64 ", in use %" PRIu64 ", the most %" PRIu64, s.total,
                          s.in_use, s.total_max);
    }
    return compare(m, "the pool", pairs, sizeof pairs / sizeof pairs[0]);
}

/* What the live blocks add up to for a client or a stream. */
static mp_share known_share(const model *m, int client, int stream) {
    mp_share share = {.in_use = 0};
    for (size_t i = 0; i < m->live_count; i++) {
        const model_block *block = m->live[i];
        if ((client < 0 || block->client == client) && (stream < 0 || block->stream == stream)) {
            share.in_use += model_chunk_size(m, block->size);
            share.requested += block->requested;
            share.blocks++;
        }
    }
    return share;
}

static bool compare_shares(model *m, const char *whose, const mp_share *said,
                           const mp_share *known) {
    const pair pairs[] = {
        {"in_use", said->in_use, known->in_use},
        {"requested", said->requested, known->requested},
        {"blocks", said->blocks, known->blocks},
    };
    return compare(m, whose, pairs, sizeof pairs / sizeof pairs[0]);
}

static bool check_clients(model *m) {
    mp_share shares[SHARES_MAX];
    size_t count = 0;
    if (!model_ok(m, mp_pool_get_clients(m->pools[0], shares, SHARES_MAX, &count), "get_clients")) {
        return false;
    }
    for (int client = 0; client < MODEL_CLIENTS; client++) {
        const char name[] = {(char)('a' + client), 0};
        const mp_share known = known_share(m, client, -1);
        mp_share said = {.in_use = 0};
        for (size_t i = 0; i < count; i++) {
            said = strcmp(shares[i].name, name) == 0 ? shares[i] : said;
        }
        if (!compare_shares(m, name, &said, &known)) {
            return false;
        }
        if (!m->reopened[client] && said.allocs != m->client_allocs[client]) {
            return model_fail(m, "client %s has %" PRIu64 " allocs instead of %" PRIu64, name,
                              said.allocs, m->client_allocs[client]);
        }
    }
    return true;
}

static bool check_streams(model *m) {
    mp_share shares[SHARES_MAX];
    size_t count = 0;
    if (!model_ok(m, mp_pool_get_streams(m->pools[0], shares, SHARES_MAX, &count), "get_streams")) {
        return false;
    }
    if (count > SHARES_MAX) {
        return model_fail(m, "the pool knows %zu streams, of which there are %d", count,
                          MODEL_STREAMS);
    }
    for (int stream = 0; stream < MODEL_STREAMS; stream++) {
        const mp_share known = known_share(m, -1, stream);
        mp_share said = {.in_use = 0};
        for (size_t i = 0; i < count; i++) {
            said = shares[i].stream == m->streams[stream].native ? shares[i] : said;
        }
        char name[24];
        (void)snprintf(name, sizeof name, "stream %d", stream);
        if (!compare_shares(m, name, &said, &known)) {
            return false;
        }
    }
    return true;
}

bool model_check_sums(model *m) {
    return check_stats(m) && check_clients(m) && check_streams(m);
}

/* ---- the layout ---- */

static bool blocks_agree(model *m, const mp_layout *layout) {
    size_t next = 0;
    for (size_t i = 0; i < layout->block_count; i++) {
        const mp_layout_block *said = &layout->blocks[i];
        if (said->state != MP_BLOCK_LENT) {
            continue;
        }
        if (next == m->live_count) {
            return model_fail(m, "block 0x%zx of %zu bytes is allocated to nobody",
                              (size_t)said->addr, said->size);
        }
        const model_block *known = m->live[next++];
        const mp_addr addr = known->addr - m->plan->config->border;
        const size_t size = model_chunk_size(m, known->size);
        if (said->addr != addr || said->size != size || said->requested != known->requested ||
            said->stream != m->streams[known->stream].native ||
            layout->clients[said->client][0] != 'a' + known->client) {
            return model_fail(m,
                              "block 0x%zx, %zu bytes for %zu, stream %p, client %s: it should be "
                              "0x%zx, %zu bytes for %zu, stream %p, client %c",
                              (size_t)said->addr, said->size, said->requested, said->stream,
                              layout->clients[said->client], (size_t)addr, size, known->requested,
                              m->streams[known->stream].native, 'a' + known->client);
        }
    }
    return next == m->live_count || model_fail(m, "block 0x%zx of %zu bytes is missing",
                                               (size_t)m->live[next]->addr, m->live[next]->size);
}

bool model_check_layout(model *m) {
    mp_layout layout = {0};
    char why[256];
    if (!model_ok(m, mp__pool_check(m->pools[0]), "check") ||
        !model_ok(m, mp__pool_layout(m->pools[0], &layout), "layout")) {
        return false;
    }
    const bool sound = layout_is_sound(&layout, why, sizeof why) || model_fail(m, "%s", why);
    const bool well = sound && blocks_agree(m, &layout);
    mp__layout_free(&layout);
    return well;
}

/* The most bytes that lie side by side in one region without being allocated. */
static size_t largest_gap(const mp_layout *layout) {
    size_t most = 0;
    for (size_t i = 0; i < layout->region_count; i++) {
        const mp_layout_region *region = &layout->regions[i];
        size_t gap = 0;
        for (size_t j = 0; j < region->block_count; j++) {
            const mp_layout_block *block = &layout->blocks[region->first_block + j];
            const bool open = block->state != MP_BLOCK_LENT && block->state != MP_BLOCK_UNMAPPED;
            gap = open ? gap + block->size : 0;
            most = gap > most ? gap : most;
        }
    }
    return most;
}

bool model_check_refusal(model *m, size_t size) {
    for (int i = 0; i < MODEL_GRAPHS; i++) {
        if (m->graphs[i].graph != NULL) {
            return true; /* what lies free may be kept for a graph */
        }
    }
    mp_layout layout = {0};
    if (!model_ok(m, mp__pool_layout(m->pools[0], &layout), "layout")) {
        return false;
    }
    const size_t gap = largest_gap(&layout);
    mp__layout_free(&layout);
    const size_t guarded = size + 1024; /* at most, rounded up and with a guard */
    return gap < guarded ||
           model_fail(m, "%zu bytes were refused where %zu side by side are not allocated", size,
                      gap);
}
