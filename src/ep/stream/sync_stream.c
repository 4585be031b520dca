/* sync_stream.c - ONNX Runtime's streams and notifications over the device's streams and events.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/capture/session_graph.h"
#include "ep/session/plugin.h"

#include <stdlib.h>

typedef struct sync_stream {
    OrtSyncStreamImpl base; /* first */
    mp_run_stream *stream;  /* a reference */
    bool is_ended;          /* the run's end has just waited for it */
} sync_stream;

typedef struct notification {
    OrtSyncNotificationImpl base; /* first */
    mp_run_stream *producer;      /* a reference: ORT may release its stream before */
    mp_event *event;              /* owned */
    uint64_t mark;                /* of the last activation, in the pool's count */
} notification;

/* By the handle, never by the implementation: under IOBinding ORT 1.26 to 1.28 was seen to give an
 * allocator a stream whose implementation pointer is garbage. A handle that is none of ours is only
 * compared, so the block then counts as the host's. */
static mp_run_stream *find_stream(const OrtSyncStream *stream) {
    void *native =
        stream != NULL ? ORT->SyncStream_GetHandle((OrtSyncStream *)(uintptr_t)stream) : NULL;
    return native != NULL ? mp__run_stream_find(native, NULL) : NULL;
}

/* ---- notifications ---- */

static const char waits[] = "the host or another stream waits within the run";

static mp_device *device_of(const notification *n) {
    return n->producer->unit->device;
}

static void notification_release(OrtSyncNotificationImpl *self) {
    notification *n = (notification *)self;
    device_of(n)->ops->event_destroy(device_of(n), n->event);
    mp__run_stream_drop(n->producer);
    free(n);
}

static OrtStatus *notification_activate(OrtSyncNotificationImpl *self) {
    notification *n = (notification *)self;
    MP_TRY_ORT(mp__run_unfit(waits));
    MP_TRY_ORT(mp_pool_stream_mark(n->producer->pool, n->producer->native, &n->mark));
    return mp__to_ort(device_of(n)->ops->event_record(device_of(n), n->event, n->producer->stream));
}

static OrtStatus *notification_wait_on_device(OrtSyncNotificationImpl *self,
                                              OrtSyncStream *consumer) {
    const notification *n = (const notification *)self;
    mp_run_stream *waiting = find_stream(consumer);
    MP_TRY_ORT(mp__run_unfit(waits));
    if (waiting == NULL) { /* it cannot wait on the device, so the host does */
        return mp__to_ort(device_of(n)->ops->event_synchronize(device_of(n), n->event));
    }
    MP_TRY_ORT(device_of(n)->ops->event_wait(device_of(n), n->event, mp__run_stream_use(waiting)));
    return mp__to_ort(
        mp_pool_stream_ordered(n->producer->pool, waiting->native, n->producer->native, n->mark));
}

static OrtStatus *notification_wait_on_host(OrtSyncNotificationImpl *self) {
    const notification *n = (const notification *)self;
    MP_TRY_ORT(mp__run_unfit(waits));
    return mp__to_ort(device_of(n)->ops->event_synchronize(device_of(n), n->event));
}

static OrtStatus *create_notification(OrtSyncStreamImpl *self, OrtSyncNotificationImpl **out) {
    mp_run_stream *producer = ((sync_stream *)self)->stream;
    mp_device *device = producer->unit->device;
    *out = NULL;
    notification *n = calloc(1, sizeof *n);
    if (n == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a notification"));
    }
    const mp_status status = device->ops->event_create(device, false, &n->event);
    if (status != MP_OK) {
        free(n);
        return mp__to_ort(status);
    }
    mp__run_stream_keep(producer);
    n->producer = producer;
    n->base = (OrtSyncNotificationImpl){
        .ort_version_supported = mp_the_plugin.version,
        .Release = notification_release,
        .Activate = notification_activate,
        .WaitOnDevice = notification_wait_on_device,
        .WaitOnHost = notification_wait_on_host,
    };
    *out = &n->base;
    return NULL;
}

/* ---- streams ---- */

static mp_run_stream *stream_of(const OrtSyncStreamImpl *self) {
    return ((const sync_stream *)self)->stream;
}

static void release(OrtSyncStreamImpl *self) {
    mp__run_stream_drop(stream_of(self));
    free(self);
}

static void *get_handle(OrtSyncStreamImpl *self) {
    return stream_of(self)->native;
}

/* Right behind OnSessionRunEnd ONNX Runtime calls Flush, for which nothing is left to wait. That
 * holds once: what others queue by the native handle is not among the uses. */
static OrtStatus *flush(OrtSyncStreamImpl *self) {
    sync_stream *s = (sync_stream *)self;
    const bool has_waited = s->is_ended && !mp__run_stream_is_used(s->stream);
    s->is_ended = false;
    MP_TRY_ORT(mp__run_unfit(waits));
    return has_waited ? NULL : mp__to_ort(mp__run_stream_wait(s->stream));
}

static OrtStatus *on_session_run_end(OrtSyncStreamImpl *self) {
    sync_stream *s = (sync_stream *)self;
    mp_run_stream *stream = s->stream;
    const unsigned uses = atomic_load_explicit(&stream->uses, memory_order_relaxed);
    s->is_ended = false;
    ORT_TRY(flush(self));
    MP_TRY_ORT(mp_pool_stream_settled(stream->pool, stream->native));
    atomic_store_explicit(&stream->ended, uses, memory_order_relaxed);
    s->is_ended = true;
    return NULL;
}

OrtStatus *mp__sync_stream_create(mp_run_stream *stream, OrtSyncStreamImpl **out) {
    sync_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        mp__run_stream_drop(stream);
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a stream"));
    }
    s->stream = stream;
    s->base = (OrtSyncStreamImpl){
        .ort_version_supported = mp_the_plugin.version,
        .Release = release,
        .GetHandle = get_handle,
        .CreateNotification = create_notification,
        .Flush = flush,
        .OnSessionRunEnd = on_session_run_end,
    };
    *out = &s->base;
    return NULL;
}

/* ---- for others ---- */

mp_stream *mp__stream_of(const OrtSyncStream *stream) {
    mp_run_stream *found = find_stream(stream);
    return found != NULL ? mp__run_stream_use(found) : NULL;
}

void *mp__native_of(const OrtSyncStream *stream) {
    const mp_run_stream *found = find_stream(stream);
    return found != NULL ? found->native : MP_NO_STREAM;
}

mp_pool *mp__pool_of_stream(const OrtSyncStream *stream) {
    const mp_run_stream *found = find_stream(stream);
    return found != NULL ? found->pool : NULL;
}

/* The stream of ONNX Runtime for this run, or NULL. */
static mp_run_stream *given_stream(const mp_provider *provider, const void *native) {
    return native != NULL ? mp__run_stream_find(native, provider) : NULL;
}

mp_status mp__stream_of_context(mp_provider *provider, const OrtKernelContext *context,
                                mp_stream **out, bool *own) {
    void *native = NULL;
    mp_run_stream *stream = mp__recorded_into(provider);
    *own = false;
    if (stream == NULL) {
        MP_TRY(mp__from_ort(ORT->KernelContext_GetGPUComputeStream(context, &native)));
        stream = given_stream(provider, native);
    }
    if (stream == NULL) {
        mp_thread_record *record = NULL;
        MP_TRY(mp__thread_record_get(provider, &record));
        MP_TRY(mp__thread_stream(record, &stream));
        *own = true;
    }
    *out = mp__run_stream_use(stream);
    return MP_OK;
}

mp_status mp__stream_done(const mp_provider *provider, mp_stream *stream, bool own) {
    mp_device *device = provider->unit->device;
    return own ? device->ops->stream_synchronize(device, stream) : MP_OK;
}
