/* arena_option.c - the table of an arena's options. SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena_option.h"

#include "base/option.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TEXT_MAX = 256 };

static const char *const strategies[] = {"0", "1", "kNextPowerOfTwo", "kSameAsRequested", NULL};
static const char *const externals[] = {"regions", "direct", NULL};

#define WORD(field, list)                                                                          \
    {                                                                                              \
        .name = "arena." #field, .kind = MP_OPTION_WORD, .offset = offsetof(arena_options, field), \
        .words = (list)                                                                            \
    }
#define OPTION(field, option_kind)                                \
    {                                                             \
        .name = "arena." #field, .kind = MP_OPTION_##option_kind, \
        .offset = offsetof(arena_options, field)                  \
    }

static const mp_option table[] = {
    WORD(extend_strategy, strategies),
    OPTION(initial_chunk_size_bytes, SIZE),
    OPTION(max_dead_bytes_per_chunk, SIZE),
    OPTION(initial_growth_chunk_size_bytes, SIZE),
    OPTION(max_power_of_two_extend_bytes, SIZE),
    OPTION(max_mem, SIZE),
    OPTION(use_cuda_mempool, BOOL),
    OPTION(cuda_mempool_release_threshold, SIZE),
    OPTION(cuda_mempool_bytes_to_keep_on_shrink, SIZE),
    OPTION(expandable, BOOL),
    OPTION(ipc, BOOL),
    OPTION(guard, BOOL),
    OPTION(poison, BOOL),
    OPTION(stream_cache_bytes, SIZE),
    WORD(external, externals),
};

static_assert(MP_COUNT_OF(table) <= 32, "a set of keys has 32 bits");

static const arena_options defaults = {
    .extend_strategy = EXTEND_POWER_OF_TWO,
    .initial_chunk_size_bytes = (size_t)1 << 20,
    .max_dead_bytes_per_chunk = (size_t)128 << 20,
    .initial_growth_chunk_size_bytes = (size_t)2 << 20,
    .max_power_of_two_extend_bytes = (size_t)1 << 30,
    .max_mem = SIZE_MAX,
    .stream_cache_bytes = (size_t)64 << 20,
};

/* The key that `word` without "arena." is most like. */
static const char *nearest_to(const char *word) {
    char key[TEXT_MAX];
    (void)snprintf(key, sizeof key, "arena.%.200s", word);
    return mp_option_nearest(table, MP_COUNT_OF(table), key);
}

static mp_status set_one(arena_options *out, const char *key, const char *value) {
    if (strncasecmp(key, "arena.", strlen("arena.")) != 0) {
        const char *nearest = nearest_to(key);
        return MP_FAIL(INVALID_ARGUMENT, "there is no option '%s'%s%s%s", key,
                       nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                       nearest != NULL ? "'?" : "");
    }
    MP_TRY(mp_option_set(table, MP_COUNT_OF(table), out, key, value));
    if (strcasecmp(key, "arena.extend_strategy") == 0) {
        out->extend_strategy %= 2; /* given by number or by name */
    }
    if (strcasecmp(key, "arena.max_dead_bytes_per_chunk") == 0) {
        out->dead_bytes_given = true;
    }
    return MP_OK;
}

/* One "key=value" of `size` characters. */
static mp_status set_text(arena_options *out, const char *text, size_t size) {
    char copy[TEXT_MAX];
    if (size >= sizeof copy) {
        return MP_FAIL(INVALID_ARGUMENT, "a pool option of %zu characters is too long", size);
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    char *equals = strchr(copy, '=');
    if (equals == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "the pool option '%s' has no value; write key=value",
                       copy);
    }
    *equals = '\0';
    return set_one(out, copy, equals + 1);
}

static mp_status set_environment(arena_options *out) {
    const char *text = getenv("MILLPOND_POOL");
    while (text != NULL && *text != '\0') {
        const size_t size = strcspn(text, ",");
        if (size > 0 && set_text(out, text, size) != MP_OK) {
            return MP_FAIL(INVALID_ARGUMENT, "MILLPOND_POOL: %s", mp_error_message());
        }
        text += size + (text[size] == ',');
    }
    return MP_OK;
}

static mp_status check(arena_options *o) {
    if (o->initial_chunk_size_bytes == 0 || o->initial_growth_chunk_size_bytes == 0 ||
        o->max_power_of_two_extend_bytes == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "arena.initial_chunk_size_bytes, "
                                         "arena.initial_growth_chunk_size_bytes and "
                                         "arena.max_power_of_two_extend_bytes must not be 0");
    }
    if (o->expandable && o->ipc) {
        return MP_FAIL(INVALID_ARGUMENT, "arena.expandable and arena.ipc exclude each other: the "
                                         "driver cannot share mapped pages that way");
    }
    if (o->use_cuda_mempool && o->ipc) {
        return MP_FAIL(INVALID_ARGUMENT, "arena.use_cuda_mempool and arena.ipc exclude each other: "
                                         "the driver cannot share memory of its pools that way");
    }
    if (o->max_mem == 0) {
        o->max_mem = SIZE_MAX;
    }
    if (o->expandable && !o->dead_bytes_given) {
        o->max_dead_bytes_per_chunk = 1; /* what is left of a chunk is always worth keeping */
    }
    return MP_OK;
}

mp_status mp__arena_options_read(const char *const *texts, arena_options *out) {
    arena_options fresh = defaults;
    MP_TRY(set_environment(&fresh));
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        MP_TRY(set_text(&fresh, texts[i], strlen(texts[i])));
    }
    MP_TRY(check(&fresh));
    *out = fresh;
    return MP_OK;
}

const char *mp__arena_options_differ(const arena_options *left, const arena_options *right,
                                     uint32_t *known) {
    static const size_t sizes[] = {[MP_OPTION_BOOL] = sizeof(bool),
                                   [MP_OPTION_INT] = sizeof(int64_t),
                                   [MP_OPTION_SIZE] = sizeof(size_t),
                                   [MP_OPTION_WORD] = sizeof(int)};
    for (size_t i = 0; i < MP_COUNT_OF(table); i++) {
        if ((*known >> i & 1) == 0 &&
            memcmp((const char *)left + table[i].offset, (const char *)right + table[i].offset,
                   sizes[table[i].kind]) != 0) {
            *known |= (uint32_t)1 << i;
            return table[i].name;
        }
    }
    return NULL;
}
