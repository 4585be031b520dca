/* mempool_use.c - further streams that use a block of a pool in mempool mode.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_private.h"

#include <stdlib.h>

static bool is_known(const mempool_block *block, const mempool_stream *stream) {
    bool known = block->stream == stream || stream->native == MP_NO_STREAM;
    for (const mempool_use *use = block->uses; use != NULL && !known; use = use->next) {
        known = use->stream == stream;
    }
    return known;
}

/* `*from`, `*to`: streams that the caller must order, both held; NULL where nothing is to be done.
 * Under the lock. */
static mp_status add_use(mp__mempool *pool, mp_addr addr, void *native, mempool_stream **from,
                         mempool_stream **to) {
    mempool_block *block = mp__mempool_get(pool, addr);
    mempool_stream *stream = NULL;
    if (block == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "0x%zx is not a lent block of this pool", (size_t)addr);
    }
    MP_TRY(mp__mempool_stream_of(pool, native, &stream));
    if (is_known(block, stream)) {
        return MP_OK;
    }
    mempool_use *use = malloc(sizeof *use);
    if (use == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory to note that a further stream uses a block");
    }
    *use = (mempool_use){.next = block->uses, .stream = stream};
    block->uses = use;
    if (block->stream != &pool->own) { /* else the memory was waited for when it was lent */
        *from = block->stream;
        *to = stream;
        block->stream->users++;
        stream->users++;
    }
    return MP_OK;
}

static mp_status order(const mp__mempool *pool, const mempool_stream *from,
                       const mempool_stream *to, bool by_waiting) {
    const mp_device_ops *ops = pool->device->ops;
    mp_event *event = NULL;
    MP_TRY(ops->event_create(pool->device, false, &event));
    mp_status status = ops->event_record(pool->device, event, from->wrap);
    if (status == MP_OK) {
        status = by_waiting ? ops->event_synchronize(pool->device, event)
                            : ops->event_wait(pool->device, event, to->wrap);
    }
    ops->event_destroy(pool->device, event);
    return status;
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
    return order(pool, from, to, to_captured && !from_captured);
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
    pool->stats.events += begins && status == MP_OK;
    pool->stats.waits += begins && status == MP_OK;
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
