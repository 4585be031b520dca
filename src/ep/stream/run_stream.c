/* run_stream.c - the list of streams that sessions run on.
 *
 * ONNX Runtime before API 28 shows a kernel only a stream's native handle, so streams are found by
 * that. `generation` moves when a stream goes, which makes the threads' last hits stale.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/stream/run_stream.h"

#include "base/log.h"
#include "base/thread_number.h"
#include "pool/pool_handle.h"

#include <stdatomic.h>
#include <stdlib.h>

#define LEGACY ((void *)(uintptr_t)1) /* as CUDA has it; NULL would say that there is no stream */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static mp_run_stream *all;
/* Held from the look whether anybody else has a user's stream until the pool knows that it went:
 * several sessions may have it. Taken before `all_lock`. */
static pthread_mutex_t wrap_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint generation = 1;

/* ---- making ---- */

static mp_status open_stream(mp_run_stream *s, void *native) {
    mp_device *device = s->unit->device;
    MP_TRY(s->is_wrap ? device->ops->stream_wrap(device, native, &s->stream)
                      : device->ops->stream_create(device, &s->stream));
    s->native = device->ops->stream_native(device, s->stream);
    if (s->native == NULL) {
        s->native = LEGACY;
    }
    return MP_OK;
}

/* Whether it is one of the streams that a session with graphs has for each thread. */
static bool is_of_thread(const mp_provider *owner) {
    return owner != NULL && owner->options.enable_cuda_graph &&
           !owner->options.use_ep_level_unified_stream;
}

static mp_status make(mp_unit *unit, mp_pool *pool, const mp_provider *owner, bool is_wrap,
                      void *native, mp_run_stream **out) {
    mp_run_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        mp_pool_close(pool);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a stream");
    }
    *s = (mp_run_stream){.unit = unit,
                         .pool = pool,
                         .owner = owner,
                         .is_wrap = is_wrap,
                         .thread = is_of_thread(owner) ? mp_thread_number() : 0,
                         .references = 1};
    const mp_status status = open_stream(s, native);
    if (status != MP_OK) {
        mp_pool_close(pool);
        free(s);
        return status;
    }
    mp__factory_keep(unit->factory);
    pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_lock(&all_lock);
    s->next = all;
    all = s;
    (void)pthread_mutex_unlock(&all_lock);
    *out = s;
    return MP_OK;
}

mp_status mp__run_stream_create(mp_unit *unit, mp_pool *pool, const mp_provider *owner,
                                mp_run_stream **out) {
    return make(unit, pool, owner, false, NULL, out);
}

mp_status mp__run_stream_wrap(mp_unit *unit, mp_pool *pool, const mp_provider *owner, void *native,
                              mp_run_stream **out) {
    (void)pthread_mutex_lock(&wrap_lock);
    const mp_status status = make(unit, pool, owner, true, native, out);
    (void)pthread_mutex_unlock(&wrap_lock);
    return status;
}

/* ---- references ---- */

void mp__run_stream_keep(mp_run_stream *stream) {
    (void)pthread_mutex_lock(&all_lock);
    stream->references++;
    (void)pthread_mutex_unlock(&all_lock);
}

static const mp_run_stream *other_with(const void *native, const mp_unit *unit) {
    const mp_run_stream *s = all;
    while (s != NULL && (s->native != native || s->unit->device != unit->device)) {
        s = s->next;
    }
    return s;
}

/* Takes one reference away, and with the last one the stream out of the list.
 * `*alone`: nobody else goes by its handle. */
static bool take_off(mp_run_stream *stream, bool *alone) {
    (void)pthread_mutex_lock(&all_lock);
    const bool last = --stream->references == 0;
    if (last) {
        mp_run_stream **link = &all;
        while (*link != stream) {
            link = &(*link)->next;
        }
        *link = stream->next;
        atomic_fetch_add(&generation, 1);
    }
    *alone = other_with(stream->native, stream->unit) == NULL;
    (void)pthread_mutex_unlock(&all_lock);
    return last;
}

/* A stream of the user's may be gone before the session, at the end of a process above all, and the
 * driver does not survive each question about one. So it is asked only where the end of our work is
 * not known. */
static mp_status close_wrap(mp_run_stream *s, bool alone) {
    MP_TRY(mp__run_stream_finish(s));
    return alone ? mp__pool_stream_over(s->pool, s->native) : MP_OK;
}

static void report_closing(const mp_run_stream *s) {
    if (s->is_wrap) {
        MP_LOG(INFO, "a stream of another library is gone before the session that used it: %s",
               mp_error_message());
    } else {
        MP_LOG(ERROR, "a stream is closed on a device that reports: %s", mp_error_message());
    }
}

/* Whether it was the last reference. */
static bool give_up(mp_run_stream *s) {
    bool alone = true;
    if (!take_off(s, &alone)) {
        return false;
    }
    if ((s->is_wrap ? close_wrap(s, alone) : mp_pool_stream_gone(s->pool, s->native)) != MP_OK) {
        report_closing(s);
    }
    return true;
}

static void destroy(mp_run_stream *s) {
    mp_device *device = s->unit->device;
    mp_factory *factory = s->unit->factory;
    mp_pool_close(s->pool);
    if (s->end != NULL) {
        device->ops->event_destroy(device, s->end);
    }
    device->ops->stream_destroy(device, s->stream); /* waits for a stream of our own */
    pthread_mutex_destroy(&s->lock);
    free(s);
    mp__factory_drop(factory);
}

void mp__run_stream_drop(mp_run_stream *stream) {
    if (stream == NULL) {
        return;
    }
    const bool is_wrap = stream->is_wrap;
    if (is_wrap) {
        (void)pthread_mutex_lock(&wrap_lock);
    }
    const bool last = give_up(stream);
    if (is_wrap) {
        (void)pthread_mutex_unlock(&wrap_lock);
    }
    if (last) {
        destroy(stream);
    }
}

/* ---- finding ---- */

static mp_run_stream *look_up(const void *native, const mp_provider *owner) {
    mp_run_stream *found = NULL;
    for (mp_run_stream *s = all; s != NULL; s = s->next) {
        if (s->native == native && (found == NULL || s->owner == owner)) {
            found = s;
        }
    }
    return found;
}

/* What this thread found last. */
static _Thread_local struct {
    const void *native;
    const mp_provider *owner;
    mp_run_stream *stream;
    unsigned generation;
} last;

mp_run_stream *mp__run_stream_last(void) {
    return last.generation == atomic_load(&generation) ? last.stream : NULL;
}

mp_run_stream *mp__run_stream_find(const void *native, const mp_provider *owner) {
    const unsigned now = atomic_load(&generation);
    if (last.generation == now && last.native == native && last.owner == owner) {
        return last.stream;
    }
    (void)pthread_mutex_lock(&all_lock);
    mp_run_stream *found = look_up(native, owner);
    if (found != NULL) { /* a stream that is made later may have the handle not found now */
        last.native = native;
        last.owner = owner;
        last.stream = found;
        last.generation = now;
    }
    (void)pthread_mutex_unlock(&all_lock);
    return found;
}

/* ---- using ---- */

mp_stream *mp__run_stream_use(mp_run_stream *stream) {
    (void)atomic_fetch_add_explicit(&stream->uses, 1, memory_order_relaxed);
    return stream->stream;
}

bool mp__run_stream_is_used(const mp_run_stream *stream) {
    return atomic_load_explicit(&stream->uses, memory_order_relaxed) !=
           atomic_load_explicit(&stream->ended, memory_order_relaxed);
}

/* ---- waiting ---- */

static unsigned uses_of(const mp_run_stream *s) {
    return atomic_load_explicit(&s->uses, memory_order_relaxed);
}

/* Under the stream's lock, as the next one. */
static mp_status wait_locked(mp_run_stream *s) {
    mp_device *device = s->unit->device;
    const unsigned uses = uses_of(s);
    MP_TRY(s->captured ? MP_OK : device->ops->stream_synchronize(device, s->stream));
    if (!s->captured) {
        s->marked = uses;
        s->is_marked = false;
    }
    return MP_OK;
}

mp_status mp__run_stream_wait(mp_run_stream *stream) {
    (void)pthread_mutex_lock(&stream->lock);
    const mp_status status = wait_locked(stream);
    (void)pthread_mutex_unlock(&stream->lock);
    return status;
}

static mp_status mark_locked(mp_run_stream *s) {
    mp_device *device = s->unit->device;
    const unsigned uses = uses_of(s);
    if (s->end == NULL) {
        MP_TRY(device->ops->event_create(device, false, &s->end));
    }
    MP_TRY(device->ops->event_record(device, s->end, s->stream));
    s->marked = uses;
    s->is_marked = true;
    return MP_OK;
}

void mp__run_stream_mark(mp_run_stream *stream) {
    (void)pthread_mutex_lock(&stream->lock);
    if (stream->is_wrap && !stream->captured && mark_locked(stream) != MP_OK) {
        MP_LOG(INFO, "the end of a run is not marked: %s", mp_error_message());
    }
    (void)pthread_mutex_unlock(&stream->lock);
}

mp_status mp__run_stream_finish(mp_run_stream *stream) {
    mp_device *device = stream->unit->device;
    mp_status status = MP_OK;
    (void)pthread_mutex_lock(&stream->lock);
    if (!stream->is_wrap || stream->captured || stream->marked != uses_of(stream)) {
        status = wait_locked(stream);
    } else if (stream->is_marked) {
        status = device->ops->event_synchronize(device, stream->end);
    }
    (void)pthread_mutex_unlock(&stream->lock);
    return status;
}

typedef bool choice(const mp_run_stream *stream, const mp_provider *owner);

static bool is_of(const mp_run_stream *stream, const mp_provider *owner) {
    return stream->owner == owner;
}

/* Of a wrap that another session has, the user may destroy the stream as soon as that session is
 * closed; the pool knows such streams, and when they go. */
static bool is_of_device(const mp_run_stream *stream, const mp_provider *owner) {
    return stream->unit->device == owner->unit->device &&
           (!stream->is_wrap || stream->owner == owner);
}

static bool is_not_of_other_launches(const mp_run_stream *stream, const mp_provider *owner) {
    return is_of_device(stream, owner) &&
           (stream->thread == 0 || stream->thread == mp_thread_number());
}

/* The first stream chosen after `before` (NULL: of all), kept. */
static mp_run_stream *keep_next(const mp_run_stream *before, choice *chosen,
                                const mp_provider *owner) {
    (void)pthread_mutex_lock(&all_lock);
    mp_run_stream *s = before != NULL ? before->next : all;
    while (s != NULL && !chosen(s, owner)) {
        s = s->next;
    }
    if (s != NULL) {
        s->references++;
    }
    (void)pthread_mutex_unlock(&all_lock);
    return s;
}

typedef mp_status way(mp_run_stream *stream);

static mp_status each(choice *chosen, const mp_provider *owner, way *waits) {
    mp_status status = MP_OK;
    mp_run_stream *s = keep_next(NULL, chosen, owner);
    while (s != NULL) {
        const mp_status one = waits(s);
        status = status == MP_OK ? one : status;
        mp_run_stream *next = keep_next(s, chosen, owner);
        mp__run_stream_drop(s);
        s = next;
    }
    return status;
}

static mp_status wait_for(choice *chosen, const mp_provider *owner) {
    return each(chosen, owner, mp__run_stream_wait);
}

mp_status mp__run_streams_finish(const mp_provider *owner) {
    return each(is_of, owner, mp__run_stream_finish);
}

mp_status mp__run_streams_wait_device(const mp_provider *owner) {
    MP_TRY(wait_for(is_of_device, owner));
    return mp__pools_wait(owner->unit->device);
}

mp_status mp__run_streams_wait_launch(const mp_provider *owner) {
    return wait_for(is_not_of_other_launches, owner);
}

static bool is_own(const mp_run_stream *stream, const mp_provider *owner) {
    (void)owner;
    return !stream->is_wrap && (stream->thread == 0 || stream->thread == mp_thread_number());
}

mp_status mp__run_stream_wait_last(void) {
    mp_run_stream *found = mp__run_stream_last();
    return found != NULL ? mp__run_stream_wait(found) : wait_for(is_own, NULL);
}

void mp__run_stream_set_captured(mp_run_stream *stream, bool captured) {
    (void)pthread_mutex_lock(&stream->lock);
    stream->captured = captured;
    (void)pthread_mutex_unlock(&stream->lock);
}
