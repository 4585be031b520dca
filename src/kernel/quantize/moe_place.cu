/* moe_place.cu - some pairs in the order of their experts, routes of one expert as they were, where
 * each expert's begin among them, and its tiles among all. One block, whose warps look for the
 * routes of an expert each; on the emulated device a lane does.
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

/* Counts the routes of an expert, and puts their pairs to `to`, where that is not NULL. A pair is
 * made anew, as its place says its route: to load it would be to wait for it at each turn. */
K_FN uint32_t walk(const mp_moe_place_args *args, const uint32_t *of, uint32_t expert, k_pair *to) {
    const uint32_t lane = threadIdx.x % GROUP, routes = (uint32_t)args->routes;
    uint32_t found = 0;
    for (uint32_t first = 0; first < routes; first += GROUP) {
        const uint32_t i = first + lane;
        const int is = i < routes && of[i] == expert;
        const uint32_t lanes = which(is);
        if (is && to != 0) {
            const int before = count_of(lanes & ((1u << lane) - 1));
            k_pair *pair = &to[found + (uint32_t)before];
            pair->key = expert;
            pair->index = i;
        }
        found += (uint32_t)count_of(lanes);
    }
    return found;
}

K_BLOCK_KERNEL_UP_TO(K_MOE_PLACE_LANES, mp_moe_place_args, args) {
    K_SHARED(uint32_t, shared);
    uint32_t *count = shared, *of = shared + args.experts;
    int64_t *first = (int64_t *)args.first, *tiles = (int64_t *)args.tiles;
    const uint32_t experts = (uint32_t)args.experts, groups = blockDim.x / GROUP;
    if (blockIdx.x != 0) {
        return;
    }
    K_BLOCK_LOOP(i, args.routes) {
        of[i] = (uint32_t)((const k_pair *)args.pairs)[i].key;
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x / GROUP; e < experts; e += groups) {
        const uint32_t found = walk(&args, of, e, 0);
        if (threadIdx.x % GROUP == 0) {
            count[e] = found;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int64_t before = 0, tiles_before = 0;
        for (uint32_t e = 0; e < experts; e++) {
            first[e] = before;
            tiles[e] = tiles_before;
            before += count[e];
            tiles_before += (count[e] + args.tile - 1) / args.tile;
        }
        first[experts] = before;
        tiles[experts] = tiles_before;
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x / GROUP; e < experts; e += groups) {
        walk(&args, of, e, (k_pair *)args.sorted + first[e]);
    }
}
