/* moe_place.cu - some pairs in the order of their experts, routes of one expert as they were, where
 * each expert's begin among them, and its tiles among all. One block, whose warps look for the
 * routes of an expert each, or in a part of all; on the emulated device a lane does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/quantize/moe_args.h"
#include "kernel/rows/sort_args.h"

#if K_HOST
enum { GROUP = 1 };

/* Which lanes of a group it holds for. */
K_FN uint32_t which(int holds) {
    return holds != 0;
}

K_FN int count_of(uint32_t lanes) {
    return (int)lanes;
}
#else
enum { GROUP = 32 };

K_FN uint32_t which(int holds) {
    return __ballot_sync(0xffffffffu, holds);
}

K_FN int count_of(uint32_t lanes) {
    return __popc(lanes);
}
#endif

/* Where a group of lanes looks, for which expert: groups that are left over share the routes. */
typedef struct m_search {
    uint32_t expert, part, parts;
} m_search;

/* Search number `number` of `parts` for each expert. */
K_FN m_search m_search_of(uint32_t number, uint32_t parts) {
    m_search search;
    search.expert = number / parts;
    search.part = number - search.expert * parts;
    search.parts = parts;
    return search;
}

/* Counts the routes of an expert in a part of all, and puts their pairs to `to`, where that is not
 * NULL. A pair is made anew, as its place says its route: to load it would be to wait for it at
 * each turn. */
K_FN uint32_t walk(const mp_moe_place_args *args, const uint32_t *of, const m_search *search,
                   k_pair *to) {
    const uint32_t lane = threadIdx.x % GROUP, routes = (uint32_t)args->routes;
    const uint32_t turns = (routes + GROUP - 1) / GROUP;
    const uint32_t end = turns * (search->part + 1) / search->parts * GROUP;
    uint32_t found = 0;
    for (uint32_t first = turns * search->part / search->parts * GROUP; first < end;
         first += GROUP) {
        const uint32_t i = first + lane;
        const int is = i < routes && of[i] == search->expert;
        const uint32_t lanes = which(is);
        if (is && to != 0) {
            k_pair *pair = &to[found + (uint32_t)count_of(lanes & ((1u << lane) - 1))];
            pair->key = search->expert;
            pair->index = i;
        }
        found += (uint32_t)count_of(lanes);
    }
    return found;
}

/* Where the routes of each search begin, in place of how many they are; where each expert's do, and
 * its tiles. */
K_FN void m_begin(const mp_moe_place_args *args, uint32_t parts, uint32_t *count) {
    int64_t *first = (int64_t *)args->first, *tiles = (int64_t *)args->tiles;
    uint32_t before = 0;
    int64_t tiles_before = 0;
    for (uint32_t e = 0; e < (uint32_t)args->experts; e++) {
        const uint32_t begin = before;
        for (uint32_t i = e * parts; i < (e + 1) * parts; i++) {
            const uint32_t own = count[i];
            count[i] = before;
            before += own;
        }
        first[e] = begin;
        tiles[e] = tiles_before;
        tiles_before += (before - begin + args->tile - 1) / args->tile;
    }
    first[args->experts] = before;
    tiles[args->experts] = tiles_before;
}

K_BLOCK_KERNEL_UP_TO(K_MOE_PLACE_LANES, mp_moe_place_args, args) {
    K_SHARED(uint32_t, shared);
    const uint32_t experts = (uint32_t)args.experts, groups = blockDim.x / GROUP;
    const uint32_t parts = groups > experts ? groups / experts : 1, searches = experts * parts;
    uint32_t *count = shared, *of = shared + searches;
    if (blockIdx.x != 0) {
        return;
    }
    K_BLOCK_LOOP(i, args.routes) {
        of[i] = (uint32_t)((const k_pair *)args.pairs)[i].key;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x / GROUP; i < searches; i += groups) {
        const m_search search = m_search_of(i, parts);
        const uint32_t found = walk(&args, of, &search, 0);
        if (threadIdx.x % GROUP == 0) {
            count[i] = found;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        m_begin(&args, parts, count);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x / GROUP; i < searches; i += groups) {
        const m_search search = m_search_of(i, parts);
        walk(&args, of, &search, (k_pair *)args.sorted + count[i]);
    }
}
