/* sync_stream.c - ONNX Runtime's streams and notifications over the device's streams and events.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/bridge.h"
#include "ep/plugin.h"
#include "pool/pool_handle.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct sync_stream {
    OrtSyncStreamImpl base; /* first */
    mp_unit *unit;
    mp_pool *pool;            /* owned */
    mp_stream *stream;        /* owned */
    void *native;             /* what GetHandle gives: CUstream on a GPU */
    struct sync_stream *next; /* in `all` */
} sync_stream;

typedef struct notification {
    OrtSyncNotificationImpl base; /* first */
    const sync_stream *owner;     /* only to activate; may go before the notification */
    mp_factory *factory;          /* kept */
    mp_device *device;
    mp_pool *pool;   /* owned */
    mp_event *event; /* owned */
    void *native;    /* of the owner */
    uint64_t mark;   /* of the last activation, in the pool's count */
} notification;

/* ---- every stream, by its native handle ----
 * ORT before API 28 shows a kernel only that handle. `generation` moves when a stream goes, which
 * makes the threads' last hits stale. */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static sync_stream *all;
static atomic_uint generation = 1;

static void all_add(sync_stream *s) {
    pthread_mutex_lock(&all_lock);
    s->next = all;
    all = s;
    pthread_mutex_unlock(&all_lock);
}

static void all_remove(const sync_stream *s) {
    pthread_mutex_lock(&all_lock);
    sync_stream **link = &all;
    while (*link != NULL && *link != s) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = s->next;
    }
    atomic_fetch_add(&generation, 1);
    pthread_mutex_unlock(&all_lock);
}

static mp_stream *find_native(const void *native) {
    static _Thread_local struct {
        const void *native;
        mp_stream *stream;
        unsigned generation;
    } last;
    const unsigned now = atomic_load(&generation);
    if (last.generation == now && last.native == native) {
        return last.stream;
    }
    pthread_mutex_lock(&all_lock);
    const sync_stream *s = all;
    while (s != NULL && s->native != native) {
        s = s->next;
    }
    mp_stream *found = s != NULL ? s->stream : NULL;
    if (found != NULL) { /* a stream that is made later may have the handle not found now */
        last.native = native;
        last.stream = found;
        last.generation = now;
    }
    pthread_mutex_unlock(&all_lock);
    return found;
}

/* By the handle, never by the implementation: under IOBinding ORT 1.26 to 1.28 was seen to give an
 * allocator a stream whose implementation pointer is garbage. A handle that is none of ours is only
 * compared, so the block then counts as the host's. */
static mp_stream *find_stream(const OrtSyncStream *stream, void **native) {
    *native = stream != NULL ? ORT->SyncStream_GetHandle((OrtSyncStream *)(uintptr_t)stream) : NULL;
    return *native != NULL ? find_native(*native) : NULL;
}

/* ---- notifications ---- */

static void notification_release(OrtSyncNotificationImpl *self) {
    notification *n = (notification *)self;
    n->device->ops->event_destroy(n->device, n->event);
    mp_pool_close(n->pool);
    mp__factory_drop(n->factory);
    free(n);
}

static OrtStatus *notification_activate(OrtSyncNotificationImpl *self) {
    notification *n = (notification *)self;
    MP_TRY_ORT(mp_pool_stream_mark(n->pool, n->native, &n->mark));
    return mp__to_ort(n->device->ops->event_record(n->device, n->event, n->owner->stream));
}

static OrtStatus *notification_wait_on_device(OrtSyncNotificationImpl *self,
                                              OrtSyncStream *consumer) {
    const notification *n = (const notification *)self;
    void *native = NULL;
    mp_stream *stream = find_stream(consumer, &native);
    if (stream == NULL) { /* it cannot wait on the device, so the host does */
        return mp__to_ort(n->device->ops->event_synchronize(n->device, n->event));
    }
    MP_TRY_ORT(n->device->ops->event_wait(n->device, n->event, stream));
    return mp__to_ort(mp_pool_stream_ordered(n->pool, native, n->native, n->mark));
}

static OrtStatus *notification_wait_on_host(OrtSyncNotificationImpl *self) {
    const notification *n = (const notification *)self;
    return mp__to_ort(n->device->ops->event_synchronize(n->device, n->event));
}

/* ---- streams ---- */

static sync_stream *from(const OrtSyncStreamImpl *self) {
    return (sync_stream *)(uintptr_t)self;
}

static void release(OrtSyncStreamImpl *self) {
    sync_stream *s = from(self);
    mp_device *device = s->unit->device;
    all_remove(s);
    if (mp_pool_stream_gone(s->pool, s->native) != MP_OK) { /* waits for the stream */
        MP_LOG(ERROR, "a stream is closed on a device that reports: %s", mp_error_message());
    }
    mp_pool_close(s->pool);
    device->ops->stream_destroy(device, s->stream);
    mp__factory_drop(s->unit->factory);
    free(s);
}

static void *get_handle(OrtSyncStreamImpl *self) {
    return from(self)->native;
}

static OrtStatus *create_notification(OrtSyncStreamImpl *self, OrtSyncNotificationImpl **out) {
    const sync_stream *s = from(self);
    *out = NULL;
    notification *n = calloc(1, sizeof *n);
    if (n == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "no host memory for a notification"));
    }
    mp_status status = mp__pool_again(s->pool, &n->pool);
    if (status == MP_OK) {
        status = s->unit->device->ops->event_create(s->unit->device, false, &n->event);
    }
    if (status != MP_OK) {
        mp_pool_close(n->pool);
        free(n);
        return mp__to_ort(status);
    }
    mp__factory_keep(s->unit->factory);
    n->factory = s->unit->factory;
    n->device = s->unit->device;
    n->owner = s;
    n->native = s->native;
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

static OrtStatus *flush(OrtSyncStreamImpl *self) {
    const sync_stream *s = from(self);
    mp_device *device = s->unit->device;
    return mp__to_ort(device->ops->stream_synchronize(device, s->stream));
}

static OrtStatus *on_session_run_end(OrtSyncStreamImpl *self) {
    ORT_TRY(flush(self));
    return mp__to_ort(mp_pool_stream_settled(from(self)->pool, from(self)->native));
}

OrtStatus *mp__sync_stream_create(mp_unit *unit, mp_pool *pool, OrtSyncStreamImpl **out) {
    sync_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        mp_pool_close(pool);
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "no host memory for a stream"));
    }
    const mp_status status = unit->device->ops->stream_create(unit->device, &s->stream);
    if (status != MP_OK) {
        mp_pool_close(pool);
        free(s);
        return mp__to_ort(status);
    }
    mp__factory_keep(unit->factory);
    s->unit = unit;
    s->pool = pool;
    s->native = unit->device->ops->stream_native(unit->device, s->stream);
    s->base = (OrtSyncStreamImpl){
        .ort_version_supported = mp_the_plugin.version,
        .Release = release,
        .GetHandle = get_handle,
        .CreateNotification = create_notification,
        .Flush = flush,
        .OnSessionRunEnd = on_session_run_end,
    };
    all_add(s);
    *out = &s->base;
    return NULL;
}

mp_stream *mp__stream_of(const OrtSyncStream *stream) {
    void *native = NULL;
    return find_stream(stream, &native);
}

void *mp__native_of(const OrtSyncStream *stream) {
    void *native = NULL;
    return find_stream(stream, &native) != NULL ? native : MP_NO_STREAM;
}

static mp_status default_stream(mp_provider *provider, mp_stream **out) {
    mp_device *device = provider->unit->device;
    pthread_mutex_lock(&provider->lock);
    mp_status status = MP_OK;
    if (provider->default_stream == NULL) {
        status = device->ops->stream_create(device, &provider->default_stream);
    }
    *out = provider->default_stream;
    pthread_mutex_unlock(&provider->lock);
    return status;
}

mp_status mp__stream_of_context(mp_provider *provider, const OrtKernelContext *context,
                                mp_stream **out, bool *own) {
    void *native = NULL;
    MP_TRY(mp__from_ort(ORT->KernelContext_GetGPUComputeStream(context, &native)));
    *out = native != NULL ? find_native(native) : NULL;
    *own = *out == NULL;
    return *own ? default_stream(provider, out) : MP_OK;
}

mp_status mp__stream_done(const mp_provider *provider, mp_stream *stream, bool own) {
    mp_device *device = provider->unit->device;
    return own ? device->ops->stream_synchronize(device, stream) : MP_OK;
}
