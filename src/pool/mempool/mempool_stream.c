/* mempool_stream.c - the streams that a pool in mempool mode has allocated memory on.
 *
 * A native handle is wrapped once and kept until mp__mempool_stream_gone. The handle of a thread's
 * own default stream means another stream to each thread, so each thread has a record of its own
 * for it, and nobody else can queue anything there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_private.h"

#include "base/thread_number.h"

#include <stdlib.h>

/* The special handles, as CUDA has them. */
#define LEGACY     ((void *)(uintptr_t)1)
#define PER_THREAD ((void *)(uintptr_t)2)

bool mp__mempool_is_foreign(const mempool_stream *stream) {
    return stream->thread != 0 && stream->thread != mp_thread_number();
}

/* ---- finding ---- */

static mempool_stream *find(mp__mempool *pool, const void *native, uint64_t thread) {
    mempool_stream *stream = &pool->own;
    while (stream != NULL && (stream->native != native || stream->thread != thread)) {
        stream = stream->next;
    }
    return stream;
}

static mempool_stream *look_up(mp__mempool *pool, void *native) {
    return find(pool, native == LEGACY ? NULL : native,
                native == PER_THREAD ? mp_thread_number() : 0);
}

mp_status mp__mempool_stream_of(mp__mempool *pool, void *native, mempool_stream **out) {
    mempool_stream *stream = look_up(pool, native);
    if (stream != NULL) {
        *out = stream;
        return MP_OK;
    }
    if (native == PER_THREAD && pool->device->info.kind == MP_DEVICE_CUDA) {
        /* seen to hang in driver 580 when such a thread ends with blocks of a pool allocated */
        return MP_FAIL(UNSUPPORTED,
                       "the driver's own pool cannot allocate on a thread's default stream "
                       "(handle 2); create a stream, or open the pool without "
                       "arena.use_cuda_mempool");
    }
    stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a stream");
    }
    const mp_status status = pool->device->ops->stream_wrap(pool->device, native, &stream->wrap);
    if (status != MP_OK) {
        free(stream);
        return status;
    }
    stream->native = native == LEGACY ? NULL : native;
    stream->thread = native == PER_THREAD ? mp_thread_number() : 0;
    stream->share.stream = stream->native;
    stream->next = pool->own.next;
    pool->own.next = stream;
    *out = stream;
    return MP_OK;
}

mp_status mp__mempool_hold(mp__mempool *pool, void *native, mempool_stream **out) {
    (void)pthread_mutex_lock(&pool->lock);
    const mp_status status = mp__mempool_stream_of(pool, native, out);
    if (status == MP_OK) {
        (*out)->users++;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

void mp__mempool_unhold(mp__mempool *pool, mempool_stream *stream) {
    (void)pthread_mutex_lock(&pool->lock);
    stream->users--;
    (void)pthread_cond_broadcast(&pool->idle);
    (void)pthread_mutex_unlock(&pool->lock);
}

/* ---- waiting ---- */

/* Holds all streams that this thread can reach. Gives: `*out`, to be freed; NULL for none. */
static mp_status hold_all(mp__mempool *pool, mempool_stream ***out, size_t *count) {
    size_t capacity = 0;
    *count = 0;
    (void)pthread_mutex_lock(&pool->lock);
    for (const mempool_stream *stream = &pool->own; stream != NULL; stream = stream->next) {
        capacity++;
    }
    mempool_stream **held = malloc(capacity * sizeof(mempool_stream *));
    for (mempool_stream *stream = &pool->own; stream != NULL && held != NULL;
         stream = stream->next) {
        if (!mp__mempool_is_foreign(stream)) {
            stream->users++;
            held[(*count)++] = stream;
        }
    }
    (void)pthread_mutex_unlock(&pool->lock);
    *out = held;
    return held != NULL ? MP_OK
                        : MP_FAIL(OUT_OF_MEMORY,
                                  "cannot allocate host memory to wait for %zu streams", capacity);
}

mp_status mp__mempool_is_captured(mp__mempool *pool, const mempool_stream *stream, bool *captured) {
    const mp_status status =
        pool->device->ops->capture_active(pool->device, stream->wrap, captured);
    if (status == MP_UNSUPPORTED) { /* the default stream beside a capture that it would join */
        *captured = true;
        return MP_OK;
    }
    return status;
}

static mp_status wait_for(mp__mempool *pool, const mempool_stream *stream) {
    bool captured = true;
    MP_TRY(mp__mempool_is_captured(pool, stream, &captured));
    return captured ? MP_OK : pool->device->ops->stream_synchronize(pool->device, stream->wrap);
}

mp_status mp__mempool_wait(mp__mempool *pool) {
    mempool_stream **held = NULL;
    size_t count = 0;
    MP_TRY(hold_all(pool, &held, &count));
    mp_status status = MP_OK;
    for (size_t i = 0; i < count; i++) {
        const mp_status one = wait_for(pool, held[i]);
        status = status == MP_OK ? one : status;
        mp__mempool_unhold(pool, held[i]);
    }
    free(held);
    return status;
}

/* ---- a stream goes ---- */

typedef struct leaver {
    mp__mempool *pool;
    mempool_stream *stream;
} leaver;

/* The stream's work has ended, so nothing need be ordered after it any more. */
static void leave(void *context, mempool_block *block, bool lent) {
    const leaver *gone = context;
    mempool_stream *own = &gone->pool->own;
    if (block->stream == gone->stream) {
        block->stream = own;
        own->share.blocks += lent ? 1 : 0;
        own->share.in_use += lent ? block->size : 0;
        own->share.requested += lent ? block->requested : 0;
    }
    if (block->free_on == gone->stream) {
        block->free_on = own;
    }
    for (mempool_use **link = &block->uses; *link != NULL;) {
        mempool_use *use = *link;
        if (use->stream == gone->stream) {
            *link = use->next;
            free(use);
        } else {
            link = &use->next;
        }
    }
}

/* Takes the stream off the list. Returns whether it was there. Under the lock. */
static bool take_off(mp__mempool *pool, const mempool_stream *stream) {
    mempool_stream *before = &pool->own;
    while (before->next != NULL && before->next != stream) {
        before = before->next;
    }
    if (before->next == NULL) {
        return false;
    }
    before->next = stream->next;
    return true;
}

/* Takes apart a stream that the caller holds, once nobody else does. */
static void take_apart(mp__mempool *pool, mempool_stream *stream) {
    leaver gone = {.pool = pool, .stream = stream};
    (void)pthread_mutex_lock(&pool->lock);
    const bool mine = take_off(pool, stream); /* another thread may be here, too */
    if (mine) {
        mp__mempool_each(pool, leave, &gone);
        while (stream->users > 1) {
            (void)pthread_cond_wait(&pool->idle, &pool->lock);
        }
        /* A free that was under way may have failed and put its block back. */
        mp__mempool_each(pool, leave, &gone);
    } else {
        stream->users--;
        (void)pthread_cond_broadcast(&pool->idle);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    if (mine) {
        pool->device->ops->stream_destroy(pool->device, stream->wrap);
        free(stream);
    }
}

/* Holds the record of a stream that goes; NULL: nothing of this pool was ever on it. */
static mempool_stream *hold_going(mp__mempool *pool, void *stream) {
    (void)pthread_mutex_lock(&pool->lock);
    mempool_stream *going = look_up(pool, stream);
    if (going == &pool->own) {
        going = NULL;
    }
    if (going != NULL) {
        going->users++;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return going;
}

static mp_status give_up(mp__mempool *pool, mempool_stream *going, bool is_over) {
    const mp_status status =
        is_over ? MP_OK : pool->device->ops->stream_synchronize(pool->device, going->wrap);
    if (status != MP_OK) {
        mp__mempool_unhold(pool, going);
        return status;
    }
    take_apart(pool, going);
    mp__mempool_collect(pool);
    return MP_OK;
}

mp_status mp__mempool_stream_gone(mp__mempool *pool, void *stream) {
    mempool_stream *going = hold_going(pool, stream);
    return going != NULL ? give_up(pool, going, false) : MP_OK;
}

typedef struct stranger {
    const mempool_stream *stream;
    uint8_t client;
    bool found;
} stranger;

static void look_for_stranger(void *context, mempool_block *block, bool lent) {
    stranger *s = context;
    (void)lent;
    bool is_there = block->stream == s->stream || block->free_on == s->stream;
    for (const mempool_use *use = block->uses; use != NULL && !is_there; use = use->next) {
        is_there = use->stream == s->stream;
    }
    s->found = s->found || (is_there && block->client != s->client);
}

/* Blocks that are freed already were freed in the stream's order, by the driver. */
mp_status mp__mempool_stream_over(mp__mempool *pool, void *stream, uint8_t client) {
    mempool_stream *going = hold_going(pool, stream);
    if (going == NULL) {
        return MP_OK;
    }
    stranger other = {.stream = going, .client = client};
    (void)pthread_mutex_lock(&pool->lock);
    mp__mempool_each(pool, look_for_stranger, &other);
    (void)pthread_mutex_unlock(&pool->lock);
    return give_up(pool, going, !other.found);
}
