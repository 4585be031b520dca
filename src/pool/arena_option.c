/* arena_option.c - the table of an arena's options.
 * SPDX-License-Identifier: Apache-2.0 */
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
    OPTION(check, BOOL),
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

/* The key that `word` without "arena." is most like; what all keys begin with makes none of them
 * more like it. */
static const char *nearest_to(const char *word) {
    mp_option names[MP_COUNT_OF(table)];
    for (size_t i = 0; i < MP_COUNT_OF(table); i++) {
        names[i] = table[i];
        names[i].name += strlen("arena.");
    }
    const char *nearest = mp_option_nearest(names, MP_COUNT_OF(table), word);
    return nearest != NULL ? nearest - strlen("arena.") : NULL;
}

static uint32_t key_bit(const char *key) {
    for (size_t i = 0; i < MP_COUNT_OF(table); i++) {
        if (strcasecmp(table[i].name, key) == 0) {
            return (uint32_t)1 << i;
        }
    }
    return 0;
}

static mp_status set_one(arena_options *out, const char *key, const char *value) {
    const bool prefixed = strncasecmp(key, "arena.", strlen("arena.")) == 0;
    if (!prefixed || key_bit(key) == 0) {
        const char *nearest = nearest_to(prefixed ? key + strlen("arena.") : key);
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
    out->given |= key_bit(key);
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

static mp_status set_texts(arena_options *out, const char *const *texts) {
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        MP_TRY(set_text(out, texts[i], strlen(texts[i])));
    }
    return MP_OK;
}

mp_status mp__arena_options_read(const char *const *base, const char *const *texts,
                                 arena_options *out) {
    arena_options fresh = defaults;
    MP_TRY(set_environment(&fresh));
    MP_TRY(set_texts(&fresh, base));
    fresh.given = 0;
    MP_TRY(set_texts(&fresh, texts));
    MP_TRY(check(&fresh));
    *out = fresh;
    return MP_OK;
}

void mp__arena_options_print_limit(const arena_options *options, char text[32]) {
    if (options->max_mem == SIZE_MAX) {
        (void)snprintf(text, 32, "none");
    } else {
        (void)snprintf(text, 32, "%zu", options->max_mem);
    }
}

/* ---- two openers ---- */

static uint64_t value_of(const arena_options *options, const mp_option *row) {
    const char *field = (const char *)options + row->offset;
    switch (row->kind) {
    case MP_OPTION_BOOL:
        return *(const bool *)field;
    case MP_OPTION_WORD:
        return (uint64_t) * (const int *)field;
    default:
        return *(const size_t *)field;
    }
}

static bool was_told(const arena_told *told, size_t key, uint64_t value) {
    for (size_t i = 0; i < told->count && i < ARENA_TOLD_MAX; i++) {
        if (told->list[i].key == key && told->list[i].value == value) {
            return true;
        }
    }
    return false;
}

/* As one would write it. */
static void print(const arena_options *options, const mp_option *row, char text[32]) {
    if (row->offset == offsetof(arena_options, max_mem) && options->max_mem == SIZE_MAX) {
        (void)snprintf(text, 32, "0");
        return;
    }
    mp_option_print(row, options, text, 32);
}

bool mp__arena_options_differ(const arena_options *kept, const arena_options *wanted,
                              arena_told *told, arena_difference *out) {
    for (size_t i = 0; i < MP_COUNT_OF(table); i++) {
        const uint64_t value = value_of(wanted, &table[i]);
        if ((wanted->given >> i & 1) == 0 || value == value_of(kept, &table[i]) ||
            was_told(told, i, value)) {
            continue;
        }
        told->list[told->count % ARENA_TOLD_MAX].key = i;
        told->list[told->count % ARENA_TOLD_MAX].value = value;
        told->count++;
        out->key = table[i].name;
        print(kept, &table[i], out->kept);
        print(wanted, &table[i], out->wanted);
        return true;
    }
    return false;
}
