/* pool_registry.c - who shares which arena.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_registry.h"

#include "base/log.h"
#include "pool/arena/arena.h"
#include "pool/pool_handle.h"
#include "pool/pool_mode.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static arena *all;

static bool is_same(const source *left, const source *right) {
    const mp_external *l = &left->external;
    const mp_external *r = &right->external;
    if (left->device != right->device || left->memory != right->memory ||
        left->is_external != right->is_external) {
        return false;
    }
    return !left->is_external ||
           (l->context == r->context && l->alloc == r->alloc && l->free == r->free &&
            l->empty_cache == r->empty_cache && l->info == r->info && l->ipc == r->ipc);
}

static void unlink_arena(const arena *a) {
    arena **link = &all;
    while (*link != a) {
        link = &(*link)->next;
    }
    *link = a->next;
}

/* Once for each key and value: callers that open a pool often would see it often. */
static void warn_of_differences(arena *a, const arena_options *options) {
    arena_difference found;
    while (mp__arena_options_differ(&a->options, options, &a->told, &found)) {
        MP_LOG(WARNING,
               "the pool of %s memory of device %d is in use already with %s=%s, which stays, not "
               "%s; set it where the pool is opened first, or in MILLPOND_POOL",
               source_memory_name(&a->source), a->device->ordinal, found.key, found.kept,
               found.wanted);
    }
}

static mp_status make(const source *from, const arena_options *options, arena **out) {
    arena *fresh = NULL;
    MP_TRY(mp__arena_create(from, options, &fresh));
    const mp_status status = mp__mode_choose(fresh);
    if (status != MP_OK) {
        mp__arena_destroy(fresh);
        return status;
    }
    fresh->mode->report_options(fresh);
    *out = fresh;
    return MP_OK;
}

static bool is_used(arena *a) {
    mp_pool_stats stats;
    return a->mode->get_stats(a, &stats) == MP_OK && stats.in_use > 0;
}

/* One without handles, kept only for blocks that were still allocated and are freed by now. */
static bool is_left_over(arena *a) {
    return a->references == 0 && !is_used(a);
}

mp_status mp__registry_get(const source *from, const arena_options *options, arena **out) {
    (void)pthread_mutex_lock(&lock);
    arena *a = all;
    while (a != NULL && !is_same(&a->source, from)) {
        a = a->next;
    }
    if (a != NULL && is_left_over(a)) {
        unlink_arena(a);
        a->mode->destroy(a);
        a = NULL;
    }
    mp_status status = MP_OK;
    if (a == NULL) {
        status = make(from, options, &a);
        if (status == MP_OK) {
            a->next = all;
            all = a;
        }
    } else {
        warn_of_differences(a, options);
    }
    if (status == MP_OK) {
        a->references++;
        *out = a;
    }
    (void)pthread_mutex_unlock(&lock);
    return status;
}

void mp__registry_keep(arena *a) {
    (void)pthread_mutex_lock(&lock);
    a->references++;
    (void)pthread_mutex_unlock(&lock);
}

void mp__registry_release(arena *a) {
    (void)pthread_mutex_lock(&lock);
    if (--a->references == 0) {
        if (is_used(a)) {
            MP_LOG(WARNING,
                   "a pool of device %d is closed while blocks of it are allocated; they stay "
                   "until they are freed",
                   a->device->ordinal);
        } else {
            unlink_arena(a);
            a->mode->destroy(a);
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

/* ---- waiting ---- */

/* The default stream cannot be asked for while a stream is captured that it would wait for. */
static mp_status wait_for_default(mp_device *device) {
    mp_stream *stream = NULL;
    bool captured = true;
    MP_TRY(device->ops->stream_wrap(device, NULL, &stream));
    mp_status status = MP_OK;
    if (device->ops->capture_active(device, stream, &captured) == MP_OK && !captured) {
        status = device->ops->stream_synchronize(device, stream);
    }
    device->ops->stream_destroy(device, stream); /* the wrap only */
    return status;
}

/* The device's first arena after `before` (NULL: of all) that has a handle, kept. */
static arena *keep_next(const arena *before, const mp_device *device) {
    (void)pthread_mutex_lock(&lock);
    arena *a = before != NULL ? before->next : all;
    while (a != NULL && (a->device != device || a->references == 0)) {
        a = a->next;
    }
    if (a != NULL) {
        a->references++;
    }
    (void)pthread_mutex_unlock(&lock);
    return a;
}

mp_status mp__pools_wait(mp_device *device) {
    mp_status status = wait_for_default(device);
    arena *a = keep_next(NULL, device);
    while (a != NULL) {
        const mp_status one = a->mode->wait(a);
        status = status == MP_OK ? one : status;
        arena *next = keep_next(a, device);
        mp__registry_release(a);
        a = next;
    }
    return status;
}

/* ---- looking ---- */

size_t mp__registry_list(registry_entry *out, size_t capacity) {
    size_t count = 0;
    (void)pthread_mutex_lock(&lock);
    for (arena *a = all; a != NULL; a = a->next) {
        if (is_left_over(a)) {
            continue;
        }
        if (count < capacity) {
            out[count] = (registry_entry){.kind = a->device->info.kind,
                                          .ordinal = a->device->ordinal,
                                          .memory = a->source.memory,
                                          .is_external = a->source.is_external};
        }
        count++;
    }
    (void)pthread_mutex_unlock(&lock);
    return count;
}
