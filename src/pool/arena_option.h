/* arena_option.h - how an arena behaves, and the texts that say so.
 *
 * The keys, their defaults and meanings are listed in docs/memory.md.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ARENA_OPTION_H
#define MP_POOL_ARENA_OPTION_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum extend_strategy { EXTEND_POWER_OF_TWO, EXTEND_AS_REQUESTED } extend_strategy;

typedef enum external_use { EXTERNAL_REGIONS, EXTERNAL_DIRECT } external_use;

typedef struct arena_options {
    int extend_strategy; /* extend_strategy */
    size_t initial_chunk_size_bytes;
    size_t max_dead_bytes_per_chunk;
    size_t initial_growth_chunk_size_bytes;
    size_t max_power_of_two_extend_bytes;
    size_t max_mem; /* SIZE_MAX for no limit */
    bool use_cuda_mempool;
    size_t cuda_mempool_release_threshold;
    size_t cuda_mempool_bytes_to_keep_on_shrink;
    bool expandable;
    bool ipc;
    bool guard, poison;
    bool check; /* after each change under its lock, whether the record is consistent */
    size_t stream_cache_bytes;
    int external; /* external_use: what an external manager is asked for, regions or each block */
    bool dead_bytes_given; /* max_dead_bytes_per_chunk was set, not left at its default */
    uint32_t given;        /* set of keys: those that the opener itself has set */
} arena_options;

/* The defaults, then MILLPOND_POOL, then `base`, then `texts`, which alone are the opener's own
 * ("key=value", NULL ends; NULL for none).
 * Fails: INVALID_ARGUMENT: an unknown key, a value that cannot be read, or two that contradict. */
mp_status mp__arena_options_read(const char *const *base, const char *const *texts,
                                 arena_options *out);

/* max_mem for a reader: its bytes, or "none". */
void mp__arena_options_print_limit(const arena_options *options, char text[32]);

/* What openers of an arena were told that they do not get: keys with the values that they wanted.
 * Where there are too many, the first are forgotten, and would be told again. */
enum { ARENA_TOLD_MAX = 32 };

typedef struct arena_told {
    size_t count; /* ever */
    struct {
        size_t key;
        uint64_t value;
    } list[ARENA_TOLD_MAX];
} arena_told;

typedef struct arena_difference {
    const char *key; /* static storage */
    char kept[32], wanted[32];
} arena_difference;

/* The first key that the opener has given in `wanted` and that differs from `kept`, but for those
 * in `*told`, which gains it. False: there is none. */
bool mp__arena_options_differ(const arena_options *kept, const arena_options *wanted,
                              arena_told *told, arena_difference *out);

#endif
