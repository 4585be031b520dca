/* layout_check.c - whether what a pool says of itself hangs together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layout_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct report {
    char *why;
    size_t size;
} report;

/* Returns false, so that a check can return it. */
__attribute__((format(printf, 2, 3))) static bool wrong(report *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    /* clang-tidy 14 forgets va_start in a function that it inlines. */
    (void)vsnprintf(r->why, r->size, format, args); // NOLINT(clang-analyzer-valist.Uninitialized)
    va_end(args);
    return false;
}

layout_sums layout_add_up(const mp_layout *layout) {
    layout_sums sums = {0};
    for (size_t i = 0; i < layout->block_count; i++) {
        const mp_layout_block *block = &layout->blocks[i];
        switch ((mp_block_state)block->state) {
        case MP_BLOCK_LENT:
            sums.lent += block->size;
            sums.requested += block->requested;
            sums.lent_count++;
            break;
        case MP_BLOCK_FREE:
        case MP_BLOCK_KEPT:
            sums.free += block->size;
            break;
        case MP_BLOCK_WAITING:
            sums.waiting += block->size;
            break;
        case MP_BLOCK_UNMAPPED:
            sums.unmapped += block->size;
            break;
        }
    }
    return sums;
}

const mp_layout_region *layout_region_around(const mp_layout *layout, mp_addr addr) {
    for (size_t i = 0; i < layout->region_count; i++) {
        const mp_layout_region *region = &layout->regions[i];
        if (addr >= region->addr && addr - region->addr < region->size) {
            return region;
        }
    }
    return NULL;
}

static bool block_is_sound(const mp_layout *layout, const mp_layout_block *block, report *r) {
    if (block->size == 0 || block->addr % MP_ALIGNMENT != 0 || block->state > MP_BLOCK_UNMAPPED) {
        return wrong(r, "block 0x%zx has %zu bytes and state %d", (size_t)block->addr, block->size,
                     block->state);
    }
    const bool lent = block->state == MP_BLOCK_LENT;
    if (lent != (block->requested > 0) || block->requested > block->size) {
        return wrong(r, "block 0x%zx of %zu bytes, state %d, was asked for with %zu bytes",
                     (size_t)block->addr, block->size, block->state, block->requested);
    }
    if (lent && block->client >= layout->client_count) {
        return wrong(r, "block 0x%zx is allocated to client %d of %zu", (size_t)block->addr,
                     block->client, layout->client_count);
    }
    return true;
}

static bool should_be_merged(const mp_layout_block *left, const mp_layout_block *right) {
    return left->state == right->state && left->stream == right->stream &&
           left->state == MP_BLOCK_FREE;
}

static bool region_is_tiled(const mp_layout *layout, const mp_layout_region *region, report *r) {
    if (region->size == 0 || region->block_count == 0 ||
        region->first_block > layout->block_count ||
        region->block_count > layout->block_count - region->first_block) {
        return wrong(r, "region 0x%zx of %zu bytes has blocks %zu to %zu of %zu",
                     (size_t)region->addr, region->size, region->first_block,
                     region->first_block + region->block_count, layout->block_count);
    }
    const mp_layout_block *blocks = &layout->blocks[region->first_block];
    mp_addr next = region->addr;
    for (size_t i = 0; i < region->block_count; i++) {
        if (!block_is_sound(layout, &blocks[i], r)) {
            return false;
        }
        if (blocks[i].addr != next) {
            return wrong(r, "block 0x%zx in region 0x%zx is not where the one before ends, 0x%zx",
                         (size_t)blocks[i].addr, (size_t)region->addr, (size_t)next);
        }
        if (i > 0 && should_be_merged(&blocks[i - 1], &blocks[i])) {
            return wrong(r, "free neighbours 0x%zx and 0x%zx of stream %p are not merged",
                         (size_t)blocks[i - 1].addr, (size_t)blocks[i].addr, blocks[i].stream);
        }
        next += blocks[i].size;
    }
    if (next != region->addr + region->size) {
        return wrong(r, "the blocks of region 0x%zx end at 0x%zx, the region at 0x%zx",
                     (size_t)region->addr, (size_t)next, (size_t)(region->addr + region->size));
    }
    return true;
}

static bool regions_are_apart(const mp_layout *layout, report *r) {
    size_t next_block = 0;
    for (size_t i = 0; i < layout->region_count; i++) {
        const mp_layout_region *region = &layout->regions[i];
        if (i > 0 && region->addr < region[-1].addr + region[-1].size) {
            return wrong(r, "regions 0x%zx and 0x%zx overlap", (size_t)region[-1].addr,
                         (size_t)region->addr);
        }
        if (region->first_block != next_block) {
            return wrong(r, "region 0x%zx begins with block %zu instead of %zu",
                         (size_t)region->addr, region->first_block, next_block);
        }
        next_block += region->block_count;
    }
    return next_block == layout->block_count ||
           wrong(r, "%zu of %zu blocks lie in no region", layout->block_count - next_block,
                 layout->block_count);
}

/* A figure of the statistics and what the blocks make of it. */
typedef struct pair {
    const char *name;
    uint64_t said, counted;
} pair;

static bool sums_agree(const mp_layout *layout, report *r) {
    const layout_sums sums = layout_add_up(layout);
    const mp_pool_stats *stats = &layout->stats;
    size_t regions = 0;
    for (size_t i = 0; i < layout->region_count; i++) {
        regions += layout->regions[i].size;
    }
    const pair pairs[] = {
        {"in_use", stats->in_use, sums.lent},
        {"requested", stats->requested, sums.requested},
        {"total", stats->total, regions - sums.unmapped},
        {"allocs - frees", stats->allocs - stats->frees, sums.lent_count},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i].said != pairs[i].counted) {
            return wrong(r, "%s is %" PRIu64 ", the blocks make %" PRIu64, pairs[i].name,
                         pairs[i].said, pairs[i].counted);
        }
    }
    if (stats->in_use_max < stats->in_use || stats->total_max < stats->total ||
        stats->in_use_max > stats->total_max || stats->total > stats->limit) {
        return wrong(r,
                     "in use %" PRIu64 " of at most %" PRIu64 ", had %" PRIu64
                     " of at most %" PRIu64 ", limit %" PRIu64,
                     stats->in_use, stats->in_use_max, stats->total, stats->total_max,
                     stats->limit);
    }
    return true;
}

bool layout_is_sound(const mp_layout *layout, char *why, size_t why_size) {
    report r = {.size = why_size};
    r.why = why;
    if (!regions_are_apart(layout, &r)) {
        return false;
    }
    for (size_t i = 0; i < layout->region_count; i++) {
        if (!region_is_tiled(layout, &layout->regions[i], &r)) {
            return false;
        }
    }
    return sums_agree(layout, &r);
}
