/* follow.c - one stream made to wait for another, for callers that pass memory on between
 * libraries.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_handle.h"
#include "pool/stream_order.h"

static mp_status refuse_captured(mp_device *device, mp_stream *stream) {
    bool captured = false;
    MP_TRY(device->ops->capture_active(device, stream, &captured));
    return captured ? MP_FAIL(UNSUPPORTED, "a stream that is being captured cannot be made to wait "
                                           "for work outside of its capture, nor the other way")
                    : MP_OK;
}

static mp_status wait_for(mp_device *device, mp_stream *consumer, mp_stream *producer) {
    MP_TRY(refuse_captured(device, consumer));
    return mp__streams_order(device, producer, consumer);
}

static mp_status follow(mp_pool *pool, void *consumer, void *producer, mp_stream *from) {
    mp_device *device = mp__pool_device(pool);
    mp_stream *to = NULL;
    uint64_t mark = 0;
    MP_TRY(refuse_captured(device, from));
    if (consumer == MP_NO_STREAM) {
        return device->ops->stream_synchronize(device, from);
    }
    MP_TRY(device->ops->stream_wrap(device, consumer, &to));
    mp_status status = mp_pool_stream_mark(pool, producer, &mark);
    if (status == MP_OK) {
        status = wait_for(device, to, from);
    }
    if (status == MP_OK) {
        status = mp_pool_stream_ordered(pool, consumer, producer, mark);
    }
    device->ops->stream_destroy(device, to); /* the wrap only */
    return status;
}

mp_status mp__pool_follow(mp_pool *pool, void *consumer, void *producer) {
    mp_device *device = mp__pool_device(pool);
    mp_stream *from = NULL;
    if (producer == MP_NO_STREAM || producer == consumer) {
        return MP_OK;
    }
    MP_TRY(device->ops->stream_wrap(device, producer, &from));
    const mp_status status = follow(pool, consumer, producer, from);
    device->ops->stream_destroy(device, from);
    return status;
}
