/* mempool_use.c - further streams that use a block of a pool in mempool mode.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_private.h"
#include "pool/stream_order.h"

#include <stdlib.h>

static mempool_use *find_use(const mempool_block *block, const mempool_stream *stream) {
    mempool_use *use = block->uses;
    while (use != NULL && use->stream != stream) {
        use = use->next;
    }
    return use;
}

static mp_status get_use(mempool_block *block, mempool_stream *stream, mempool_use **out) {
    *out = find_use(block, stream);
    if (*out != NULL) {
        return MP_OK;
    }
    mempool_use *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory to note that a further stream uses a block");
    }
    /* Memory allocated without a stream was waited for then. */
    *fresh = (mempool_use){
        .next = block->uses, .stream = stream, .ordered = block->stream->native == MP_NO_STREAM};
    block->uses = fresh;
    *out = fresh;
    return MP_OK;
}

/* `*from`, `*to`: streams that the caller must order, both held; NULL where nothing is to be done.
 * Under the lock. */
static mp_status add_use(mp__mempool *pool, mp_addr addr, void *native, mempool_stream **from,
                         mempool_stream **to) {
    mempool_block *block = mp__mempool_get(pool, addr);
    mempool_stream *stream = NULL;
    if (block == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "0x%zx is not an allocated block of this pool",
                       (size_t)addr);
    }
    MP_TRY(mp__mempool_stream_of(pool, native, &stream));
    if (block->stream == stream || stream->native == MP_NO_STREAM) {
        return MP_OK;
    }
    mempool_use *use = NULL;
    MP_TRY(get_use(block, stream, &use));
    if (!use->ordered) {
        *from = block->stream;
        *to = stream;
        block->stream->users++;
        stream->users++;
    }
    return MP_OK;
}

/* The driver's memory may be used by work that comes after its allocation. */
static mp_status make_ready(mp__mempool *pool, const mempool_stream *from,
                            const mempool_stream *to) {
    bool from_captured = false;
    bool to_captured = false;
    if (mp__mempool_is_foreign(from)) {
        return pool->device->ops->synchronize(pool->device);
    }
    MP_TRY(mp__mempool_is_captured(pool, from, &from_captured));
    MP_TRY(mp__mempool_is_captured(pool, to, &to_captured));
    if (from_captured && !to_captured) {
        return MP_FAIL(BUSY, "the block was allocated on a stream that is being captured, so no "
                             "other stream can be made to wait for it; allocate it on the stream "
                             "that uses it");
    }
    const bool waits =
        to_captured && !from_captured; /* a graph cannot wait for work outside of it */
    return mp__streams_order(pool->device, from->wrap, waits ? NULL : to->wrap);
}

/* The stream need not be made to wait again. Under the lock. */
static void mark_ordered(mp__mempool *pool, mp_addr addr, const mempool_stream *stream) {
    const mempool_block *block = mp__mempool_get(pool, addr);
    mempool_use *use = block != NULL ? find_use(block, stream) : NULL;
    if (use != NULL) {
        use->ordered = true;
    }
}

static mp_status record_use(mp__mempool *pool, mp_addr addr, void *native, bool begins) {
    mempool_stream *from = NULL;
    mempool_stream *to = NULL;
    (void)pthread_mutex_lock(&pool->lock);
    mp_status status = add_use(pool, addr, native, &from, &to);
    (void)pthread_mutex_unlock(&pool->lock);
    if (from == NULL) {
        return status;
    }
    if (begins) {
        status = make_ready(pool, from, to);
    }
    (void)pthread_mutex_lock(&pool->lock);
    if (begins && status == MP_OK) {
        pool->stats.events++;
        pool->stats.waits++;
        mark_ordered(pool, addr, to);
    }
    from->users--;
    to->users--;
    (void)pthread_cond_broadcast(&pool->idle);
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

mp_status mp__mempool_record_use(mp__mempool *pool, mp_addr addr, void *stream) {
    return record_use(pool, addr, stream, true);
}

mp_status mp__mempool_record_end(mp__mempool *pool, mp_addr addr, void *stream) {
    return record_use(pool, addr, stream, false);
}
