/* memory.c - the pools that the provider lends from, and the options they are opened with.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every allocator, stream and session has a handle of its own on the pool of its device, so the
 * pool goes when the last of them does, and a shared allocator that is replaced before there is a
 * session takes the old pool with it. */
#include "base/log.h"
#include "ep/bridge.h"
#include "ep/plugin.h"
#include "pool/pool_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CLIENT             "onnxruntime"
#define OWN_PREFIX         "ep.cudapluginexecutionprovider."
#define ENVIRONMENT_PREFIX "ep_factory." MP_EP_NAME "."
#define ARENA              "arena."

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
    if (strncasecmp(key, prefix, size) != 0 || strncasecmp(key + size, ARENA, strlen(ARENA)) != 0) {
        return NULL;
    }
    return key + size;
}

static mp_status make_text(const char *name, const char *value, char **out) {
    const size_t size = strlen(name) + strlen(value) + 2;
    *out = malloc(size);
    if (*out == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for an option of %zu bytes", size);
    }
    (void)snprintf(*out, size, "%s=%s", name, value);
    return MP_OK;
}

/* Gives: `*out`, ended by NULL, until free_texts. */
static mp_status make_texts(const OrtKeyValuePairs *pairs, const char *prefix, char ***out) {
    const char *const *keys = NULL;
    const char *const *values = NULL;
    size_t count = 0;
    if (pairs != NULL) {
        ORT->GetKeyValuePairs(pairs, &keys, &values, &count);
    }
    char **texts = calloc(count + 1, sizeof(char *));
    if (texts == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for %zu options", count);
    }
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = option_of(keys[i], prefix);
        const mp_status status = name != NULL ? make_text(name, values[i], &texts[made]) : MP_OK;
        if (status != MP_OK) {
            free_texts(texts);
            return status;
        }
        made += name != NULL;
    }
    *out = texts;
    return MP_OK;
}

/* Those of the environment. ONNX Runtime passes them on to nobody. */
static mp_status make_environment_texts(char ***out) {
    OrtKeyValuePairs *entries = NULL;
    if (mp__from_ort(ORT_EP->GetEnvConfigEntries(&entries)) != MP_OK) {
        MP_LOG(WARNING, "the environment's options cannot be read: %s", mp_error_message());
        return make_texts(NULL, "", out);
    }
    const mp_status status = make_texts(entries, ENVIRONMENT_PREFIX, out);
    ORT->ReleaseKeyValuePairs(entries);
    return status;
}

/* ---- pools ---- */

mp_status mp__memory_open(const mp_unit *unit, mp_memory memory, const OrtKeyValuePairs *pairs,
                          const char *prefix, mp_pool **out) {
    char **texts = NULL;
    MP_TRY(make_texts(pairs, prefix, &texts));
    if (texts[0] == NULL) { /* who asks for nothing gets what the environment asks for */
        free_texts(texts);
        MP_TRY(make_environment_texts(&texts));
    }
    const mp_status status =
        mp__pool_open_on(unit->device, memory, CLIENT, (const char *const *)texts, out);
    free_texts(texts);
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
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    *out = f;
    return f != NULL ? MP_OK : MP_FAIL(OUT_OF_MEMORY, "no host memory for an external allocator");
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
    return mp__pool_open_external_on(unit->device, CLIENT, &external, direct, out);
}

mp_status mp__memory_open_session(const mp_unit *unit, const OrtSessionOptions *session,
                                  const mp_options *options, mp_pool **out) {
    if (options->gpu_external_alloc != 0) {
        return open_external(unit, options, out);
    }
    OrtKeyValuePairs *pairs = NULL;
    MP_TRY(mp__from_ort(ORT->GetSessionOptionsConfigEntries(session, &pairs)));
    const mp_status status = mp__memory_open(unit, MP_MEMORY_DEVICE, pairs, OWN_PREFIX, out);
    ORT->ReleaseKeyValuePairs(pairs);
    return status;
}
