/* pool_stream.c - the public functions about streams: the order between them, and their captures.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/handle.h"
#include "pool/pool_argument.h"
#include "pool/pool_handle.h"

/* ---- order ---- */

mp_status mp_pool_stream_settled(mp_pool *pool, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mode->stream_settled(a, stream);
}

mp_status mp_pool_stream_gone(mp_pool *pool, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mode->stream_gone(a, stream);
}

mp_status mp__pool_stream_over(mp_pool *pool, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mode->stream_over(a, stream, pool->client);
}

mp_status mp_pool_stream_mark(mp_pool *pool, void *producer, uint64_t *mark) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(mark != NULL, "mark is NULL");
    return a->mode->stream_mark(a, producer, mark);
}

mp_status mp_pool_stream_ordered(mp_pool *pool, void *consumer, void *producer, uint64_t mark) {
    TAKE_ARENA(a, pool);
    return a->mode->stream_ordered(a, consumer, producer, mark);
}

/* ---- captures ---- */

mp_status mp_pool_capture_begin(mp_pool *pool, void *stream, mp_capture **capture) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(capture != NULL, "capture is NULL");
    return a->mode->capture_begin(a, stream, capture);
}

mp_status mp_pool_capture_end(mp_pool *pool, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mode->capture_end(a, stream);
}

void mp_pool_capture_release(mp_pool *pool, mp_capture *capture) {
    if (pool == NULL || capture == NULL || process_is_forked()) {
        return;
    }
    arena *a = mp__handle_arena(pool);
    const mp_status status =
        a != NULL ? a->mode->capture_release(a, capture) : mp__refuse_handle(pool, __func__);
    if (status != MP_OK) {
        MP_LOG(ERROR, "%s", mp_error_message());
    }
}
