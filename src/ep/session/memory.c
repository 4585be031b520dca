/* memory.c - the pools that the provider allocates from, and the options they are opened with.
 *
 * Every allocator, stream and session has a handle of its own on the pool of its device, so the
 * pool goes when the last of them does, and a shared allocator that is replaced before there is a
 * session takes the old pool with it.
 *
 * What ONNX Runtime's environment says is beneath what a session or an allocator says, and nobody
 * is told that a pool is set up otherwise: later openers have not asked for it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"
#include "ep/session/pool_later.h"
#include "pool/pool_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CLIENT        "onnxruntime"
#define FAMILY_PREFIX "ep.cuda."
#define ARENA         "arena."

/* Behind which an option of the pool may stand, by who says it; of several the last one wins. */
typedef struct places {
    const char *prefix[2]; /* NULL for none */
} places;

static const places of_allocator = {{""}};

static places of_session(const mp_unit *unit) {
    return (places){{FAMILY_PREFIX, unit->factory->name->option_prefix}};
}

static places of_environment(const mp_unit *unit) {
    return (places){{unit->factory->name->environment_prefix}};
}

/* What ONNX Runtime's CUDA provider calls them. */
static const struct {
    const char *theirs, *ours;
} names[] = {
    {"gpu_mem_limit", ARENA "max_mem"},
    {"arena_extend_strategy", ARENA "extend_strategy"},
};

const char *mp__memory_option(const char *name) {
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        if (strcasecmp(name, names[i].theirs) == 0) {
            return names[i].ours;
        }
    }
    return strncasecmp(name, ARENA, strlen(ARENA)) == 0 ? name : NULL;
}

/* ---- options as texts ---- */

static void free_texts(char **texts) {
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        free(texts[i]);
    }
    free(texts);
}

/* The name of the option that a key sets, or NULL. */
static const char *option_of(const char *key, const char *prefix) {
    const size_t size = strlen(prefix);
    return strncasecmp(key, prefix, size) == 0 ? mp__memory_option(key + size) : NULL;
}

static mp_status make_text(const char *name, const char *value, char **out) {
    const size_t size = strlen(name) + strlen(value) + 2;
    *out = malloc(size);
    if (*out == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an option of %zu bytes",
                       size);
    }
    (void)snprintf(*out, size, "%s=%s", name, value);
    return MP_OK;
}

/* Adds to `texts`, which has room, what `pairs` say behind `prefix`. */
static mp_status add_texts(const OrtKeyValuePairs *pairs, const char *prefix, char **texts,
                           size_t *made) {
    const char *const *keys = NULL;
    const char *const *values = NULL;
    size_t count = 0;
    ORT->GetKeyValuePairs(pairs, &keys, &values, &count);
    for (size_t i = 0; i < count; i++) {
        const char *name = option_of(keys[i], prefix);
        if (name != NULL) {
            MP_TRY(make_text(name, values[i], &texts[*made]));
            (*made)++;
        }
    }
    return MP_OK;
}

/* Gives: `*out`, ended by NULL, until free_texts. `pairs`: NULL for none. */
static mp_status make_texts(const OrtKeyValuePairs *pairs, places where, char ***out) {
    const char *const *unused = NULL;
    size_t count = 0;
    size_t made = 0;
    if (pairs != NULL) {
        ORT->GetKeyValuePairs(pairs, &unused, &unused, &count);
    }
    char **texts = calloc(MP_COUNT_OF(where.prefix) * count + 1, sizeof(char *));
    if (texts == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %zu options", count);
    }
    mp_status status = MP_OK;
    for (size_t i = 0; pairs != NULL && i < MP_COUNT_OF(where.prefix) && status == MP_OK; i++) {
        status = where.prefix[i] != NULL ? add_texts(pairs, where.prefix[i], texts, &made) : MP_OK;
    }
    if (status != MP_OK) {
        free_texts(texts);
        return status;
    }
    *out = texts;
    return MP_OK;
}

/* Those of the environment. */
static mp_status make_environment_texts(const mp_unit *unit, char ***out) {
    OrtKeyValuePairs *entries = NULL;
    if (mp__from_ort(ORT_EP->GetEnvConfigEntries(&entries)) != MP_OK) {
        MP_LOG(WARNING, "the environment's options cannot be read: %s", mp_error_message());
        return make_texts(NULL, of_environment(unit), out);
    }
    const mp_status status = make_texts(entries, of_environment(unit), out);
    ORT->ReleaseKeyValuePairs(entries);
    return status;
}

static bool has_text(char *const *texts, const char *text) {
    while (*texts != NULL && strcmp(*texts, text) != 0) {
        texts++;
    }
    return *texts != NULL;
}

/* Drops those that are in `base`, too. */
static void drop_known(char **texts, char *const *base) {
    size_t kept = 0;
    for (size_t i = 0; texts[i] != NULL; i++) {
        if (has_text(base, texts[i])) {
            free(texts[i]);
        } else {
            texts[kept++] = texts[i];
        }
    }
    texts[kept] = NULL;
}

typedef struct wishes {
    char **base;  /* owned; the environment's */
    char **texts; /* owned; one's own */
} wishes;

static void wishes_free(const wishes *w) {
    free_texts(w->base);
    free_texts(w->texts);
}

/* Gives: `*out`, until wishes_free. */
static mp_status wishes_read(const mp_unit *unit, const OrtKeyValuePairs *pairs, places where,
                             wishes *out) {
    *out = (wishes){NULL, NULL};
    MP_TRY(make_environment_texts(unit, &out->base));
    const mp_status status = make_texts(pairs, where, &out->texts);
    if (status != MP_OK) {
        wishes_free(out);
    }
    return status;
}

/* Newer versions of ONNX Runtime may pass what the environment says as if it were an allocator's
 * own, so what both say is the environment's. */
static mp_status wishes_of_allocator(const mp_unit *unit, const OrtKeyValuePairs *pairs,
                                     wishes *out) {
    MP_TRY(wishes_read(unit, pairs, of_allocator, out));
    drop_known(out->texts, out->base);
    return MP_OK;
}

/* ---- pools ---- */

static mp_status open_pool(const mp_unit *unit, mp_memory memory, const wishes *w, mp_pool **out) {
    MP_TRY(mp__pool_open_over(unit->device, memory, CLIENT, (const char *const *)w->base,
                              (const char *const *)w->texts, out));
    mp__pool_later_join(unit, memory, *out);
    return MP_OK;
}

mp_status mp__memory_open(const mp_unit *unit, mp_memory memory, const OrtKeyValuePairs *pairs,
                          mp_pool **out) {
    wishes w;
    MP_TRY(wishes_of_allocator(unit, pairs, &w));
    const mp_status status = open_pool(unit, memory, &w, out);
    wishes_free(&w);
    return status;
}

mp_status mp__memory_check(const mp_unit *unit, const OrtKeyValuePairs *pairs, bool *asks) {
    wishes w;
    MP_TRY(wishes_of_allocator(unit, pairs, &w));
    *asks = w.texts[0] != NULL;
    const mp_status status =
        mp__pool_options_check((const char *const *)w.base, (const char *const *)w.texts);
    wishes_free(&w);
    return status;
}

/* ---- memory of functions named by addresses ---- */

typedef struct functions {
    struct functions *next;
    void *(*alloc)(size_t size);
    void (*free)(void *memory);
    void (*empty_cache)(void);
} functions;

static void *call_alloc(void *context, size_t size) {
    return ((const functions *)context)->alloc(size);
}

static void call_free(void *context, void *memory, size_t size) {
    (void)size;
    ((const functions *)context)->free(memory);
}

static void call_empty_cache(void *context) {
    ((const functions *)context)->empty_cache();
}

/* One record for each set of functions, kept for good: sessions with the same set share a pool,
 * and blocks may outlive their session. */
static mp_status find_functions(const mp_options *options, functions **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static functions *all;
    const functions wanted = {
        .alloc = (void *(*)(size_t))(uintptr_t)options->gpu_external_alloc,
        .free = (void (*)(void *))(uintptr_t)options->gpu_external_free,
        .empty_cache = (void (*)(void))(uintptr_t)options->gpu_external_empty_cache,
    };
    (void)pthread_mutex_lock(&lock);
    functions *f = all;
    while (f != NULL && (f->alloc != wanted.alloc || f->free != wanted.free ||
                         f->empty_cache != wanted.empty_cache)) {
        f = f->next;
    }
    if (f == NULL) {
        f = malloc(sizeof *f);
        if (f != NULL) {
            *f = wanted;
            f->next = all;
            all = f;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    *out = f;
    return f != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an external allocator");
}

/* Memory that the pool cannot allocate is told of now: what a session's allocator says in a run
 * does not reach its user. That there is none may be another matter by then. */
static mp_status try_external(mp_pool *pool) {
    mp_addr addr = 0;
    const mp_status status = mp_pool_alloc(pool, 1, MP_NO_STREAM, &addr);
    return status == MP_OK ? mp_pool_free(pool, addr) : status == MP_OUT_OF_MEMORY ? MP_OK : status;
}

static mp_status open_external(const mp_unit *unit, const mp_options *options, mp_pool **out) {
    static const char *const direct[] = {"arena.external=direct", NULL};
    functions *f = NULL;
    MP_TRY(find_functions(options, &f));
    const mp_external external = {
        .context = f,
        .alloc = call_alloc,
        .free = call_free,
        .empty_cache = f->empty_cache != NULL ? call_empty_cache : NULL,
    };
    MP_TRY(mp__pool_open_external_on(unit->device, CLIENT, &external, direct, out));
    return try_external(*out);
}

/* A key without a prefix may be meant for anybody, so it is not taken. */
static void warn_of_bare(const OrtKeyValuePairs *pairs) {
    const char *const *keys = NULL;
    const char *const *values = NULL;
    size_t count = 0;
    ORT->GetKeyValuePairs(pairs, &keys, &values, &count);
    for (size_t i = 0; i < count; i++) {
        const char *name = option_of(keys[i], "");
        if (name != NULL) {
            MP_LOG(WARNING, "the session's entry '%s' is ignored; write " FAMILY_PREFIX "%s",
                   keys[i], name);
        }
    }
}

static mp_status open_both(const mp_unit *unit, const wishes *w, mp_pool **memory,
                           mp_pool **pinned) {
    MP_TRY(open_pool(unit, MP_MEMORY_DEVICE, w, memory));
    return open_pool(unit, MP_MEMORY_PINNED, w, pinned);
}

/* Whether the pool is as the session asks; one that was open before may differ. */
static mp_status check_pool(const mp_pool *pool, const wishes *w) {
    return mp__pool_options_agree(pool, (const char *const *)w->base,
                                  (const char *const *)w->texts);
}

static mp_status open_ours(const mp_unit *unit, const OrtSessionOptions *session, bool strict,
                           mp_pool **memory, mp_pool **pinned) {
    OrtKeyValuePairs *pairs = NULL;
    wishes w;
    MP_TRY(mp__from_ort(ORT->GetSessionOptionsConfigEntries(session, &pairs)));
    mp_status status = wishes_read(unit, pairs, of_session(unit), &w);
    if (status == MP_OK) {
        warn_of_bare(pairs);
        status = open_both(unit, &w, memory, pinned);
        status = status == MP_OK && strict ? check_pool(*memory, &w) : status;
        wishes_free(&w);
    }
    ORT->ReleaseKeyValuePairs(pairs);
    return status;
}

mp_status mp__memory_open_session(const mp_unit *unit, const OrtSessionOptions *session,
                                  const mp_options *options, mp_pool **memory, mp_pool **pinned) {
    if (options->gpu_external_alloc == 0) {
        return open_ours(unit, session, options->strict, memory, pinned);
    }
    MP_TRY(open_external(unit, options, memory));
    return mp__memory_open(unit, MP_MEMORY_PINNED, NULL, pinned);
}
