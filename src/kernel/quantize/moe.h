/* moe.h - tiles of routes that one expert serves.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOE_H
#define MP_KERNEL_MOE_H

#include "kernel/quantize/moe_between.h"
#include "kernel/quantize/nbits.h"
#include "kernel/rows/sort_args.h"

typedef struct m_tile {
    int64_t expert;
    const k_pair *routes;
    int64_t count; /* of them; 0 where there is no such tile */
} m_tile;

/* Tile number `tile` of `size` routes. */
K_FN m_tile m_tile_at(const mp_moe_product_args *args, int64_t tile, int64_t size) {
    const int64_t *tiles = (const int64_t *)args->tiles, *first = (const int64_t *)args->first;
    m_tile out = {0, 0, 0};
    if (tile >= tiles[args->experts]) {
        return out;
    }
    int64_t low = 0,
            high = args->experts - 1; /* the last expert whose tiles begin here or before */
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (tiles[middle] <= tile) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const int64_t at = first[low] + (tile - tiles[low]) * size;
    const int64_t left = first[low + 1] - at;
    out.expert = low;
    out.routes = (const k_pair *)args->sorted + at;
    out.count = left < size ? left : size;
    return out;
}

/* The row of A that route number `r` of a tile has. */
K_FN const T *m_row(const mp_moe_product_args *args, const m_tile *t, int64_t r) {
    return (const T *)args->a + t->routes[r].index / args->share * args->w.k;
}

typedef struct K_ALIGN(2 * sizeof(T)) m_pair {
    T at[2];
} m_pair;

/* Columns `column` and `column` + 1 of the result of route `route` to an expert, from their sums;
 * the second may not be there. */
K_FN void m_put_at(const mp_moe_product_args *args, int64_t expert, int64_t route, int64_t column,
                   float first, float second) {
    const int64_t n = args->w.n, at = route * n + column;
    const int both = column + 1 < n, kind = args->between.kind;
    T *out = (T *)args->out;
    m_pair pair;
    if (args->bias != 0) {
        const T *bias = (const T *)args->bias + expert * n + column;
        first += T_load(bias[0]);
        second += T_load(bias[both]);
    }
    if (kind == K_MOE_SWIGLU) {
        out[at / 2] = T_store(m_swiglu(&args->between, first, second));
        return;
    }
    pair.at[0] = T_store(m_active(kind, first));
    pair.at[1] = T_store(m_active(kind, second));
    if (args->even) {
        *(m_pair *)(void *)(out + at) = pair;
        return;
    }
    out[at] = pair.at[0];
    if (both) {
        out[at + 1] = pair.at[1];
    }
}

/* The same of route number `r` of a tile. */
K_FN void m_put(const mp_moe_product_args *args, const m_tile *t, int64_t r, int64_t column,
                float first, float second) {
    m_put_at(args, t->expert, t->routes[r].index, column, first, second);
}

#endif
