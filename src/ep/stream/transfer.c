/* transfer.c - copies of tensors between host and device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/shortage.h"
#include "ep/abi/bridge.h"
#include "ep/capture/session_graph.h"
#include "ep/session/plugin.h"
#include "ep/stream/run_stream.h"
#include "pool/pool_handle.h"

enum { CONDITION_NAMED = 31 }; /* the first runtime that copies a Loop's condition on a stream */

static mp_factory *factory_of(OrtDataTransferImpl *self) {
    return MP_CONTAINER_OF(self, mp_factory, transfer);
}

static bool is_ours(const OrtMemoryDevice *device) {
    return ORT_EP->MemoryDevice_GetDeviceType(device) == OrtMemoryInfoDeviceType_GPU &&
           ORT_EP->MemoryDevice_GetVendorId(device) == MP_VENDOR_ID;
}

static bool is_host(const OrtMemoryDevice *device) {
    return ORT_EP->MemoryDevice_GetDeviceType(device) == OrtMemoryInfoDeviceType_CPU;
}

static bool can_copy(const OrtDataTransferImpl *self, const OrtMemoryDevice *source,
                     const OrtMemoryDevice *target) {
    (void)self;
    return (is_ours(source) && (is_ours(target) || is_host(target))) ||
           (is_host(source) && is_ours(target));
}

/* The device that does the copy: the stream's, which `*out` is at first if there is one, or one
 * whose memory is read or written. */
static mp_status device_of(mp_factory *factory, const OrtMemoryDevice *source,
                           const OrtMemoryDevice *target, mp_device **out) {
    mp_unit *from_unit = mp__unit_of(factory, source);
    mp_unit *to_unit = mp__unit_of(factory, target);
    mp_unit *unit = from_unit != NULL ? from_unit : to_unit;
    if (unit == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "neither side of the copy is memory of %s",
                       factory->name->provider);
    }
    if (from_unit != NULL && to_unit != NULL && from_unit != to_unit) {
        mp__peers_connect(from_unit->device, to_unit->device);
    }
    *out = *out != NULL ? *out : unit->device;
    return MP_OK;
}

/* `device`: of the stream; NULL without one, and where there is only one in question. */
static mp_status copy_value(mp_factory *factory, const OrtValue *source, OrtValue *target,
                            mp_stream *stream, mp_device *device) {
    size_t size = 0;
    size_t room = 0;
    MP_TRY(mp__from_ort(ORT->GetTensorSizeInBytes(source, &size)));
    MP_TRY(mp__from_ort(ORT->GetTensorSizeInBytes(target, &room)));
    if (size != room) {
        return MP_FAIL(INVALID_ARGUMENT, "a tensor of %zu bytes cannot be copied to one of %zu",
                       size, room);
    }
    const void *from = NULL;
    void *to = NULL;
    MP_TRY(mp__from_ort(ORT->GetTensorData(source, &from)));
    MP_TRY(mp__from_ort(ORT->GetTensorMutableData(target, &to)));
    if (size == 0 || from == to) {
        return MP_OK;
    }
    if (from == NULL || to == NULL) { /* where an allocator had none to give */
        const char *why = mp_shortage_here();
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for a tensor of %zu bytes%s%s", size,
                       why[0] != '\0' ? ": " : "", why);
    }
    MP_TRY(device_of(factory, ORT_EP->Value_GetMemoryDevice(source),
                     ORT_EP->Value_GetMemoryDevice(target), &device));
    return device->ops->copy(device, stream, (mp_addr)to, (mp_addr)from, size);
}

mp_status mp__copy_value(mp_factory *factory, const OrtValue *source, OrtValue *target,
                         mp_stream *stream) {
    return copy_value(factory, source, target, stream, NULL);
}

/* ONNX Runtime takes memory for some copies without naming a stream: those of values that go into
 * and out of the bodies of control flow. The pool would allocate it again, to any stream, once it
 * is given back, though this stream may still have to write or read it. */
static void keep_for_stream(const OrtSyncStream *stream, const OrtValue *value) {
    mp_pool *pool = mp__pool_of_stream(stream);
    const void *data = NULL;
    if (pool != NULL && is_ours(ORT_EP->Value_GetMemoryDevice(value)) &&
        mp__from_ort(ORT->GetTensorData(value, &data)) == MP_OK && data != NULL) {
        (void)mp_pool_record_use(pool, (mp_addr)data, mp__native_of(stream)); /* or not its own */
    }
}

/* A graph cannot hold copies from and to memory of the host: that memory may be gone when it runs.
 * Others are recorded with the rest of the run. */
static mp_status fit_into_graph(const OrtValue *source, const OrtValue *target,
                                mp_stream **stream) {
    if (is_host(ORT_EP->Value_GetMemoryDevice(source)) ||
        is_host(ORT_EP->Value_GetMemoryDevice(target))) {
        return mp__run_unfit("it copies values between the host and the device; bind values of the "
                             "device (io_binding)");
    }
    const mp_run *recorded = mp__recorded_run();
    *stream = recorded != NULL ? recorded->into->stream : *stream;
    return MP_OK;
}

/* Loop before ONNX Runtime 1.27 copies its results within the device without naming the stream that
 * they are made on, which is the one that this thread works with, and before 1.31 so its condition
 * to the host. Who reads a value while a stream of his own is at work is not kept waiting for that.
 */
static mp_status wait_for_maker(const OrtValue *source, const OrtValue *target) {
    const mp_run_stream *last = mp__run_stream_last();
    const bool stays = is_ours(ORT_EP->Value_GetMemoryDevice(target));
    const bool may_be_condition =
        mp_the_plugin.runtime < CONDITION_NAMED && (last == NULL || !last->is_wrap);
    return is_ours(ORT_EP->Value_GetMemoryDevice(source)) && (stays || may_be_condition)
               ? mp__run_stream_wait_last()
               : MP_OK;
}

static mp_device *device_of_stream(const OrtSyncStream *stream) {
    const mp_pool *pool = mp__pool_of_stream(stream);
    return pool != NULL ? mp__pool_device(pool) : NULL;
}

static OrtStatus *copy_tensors(OrtDataTransferImpl *self, const OrtValue **sources,
                               OrtValue **targets, OrtSyncStream **streams, size_t count) {
    for (size_t i = 0; i < count; i++) {
        mp_stream *stream = streams != NULL ? mp__stream_of(streams[i]) : NULL;
        if (stream != NULL) {
            keep_for_stream(streams[i], sources[i]);
            keep_for_stream(streams[i], targets[i]);
        } else {
            MP_TRY_ORT(wait_for_maker(sources[i], targets[i]));
        }
        MP_TRY_ORT(fit_into_graph(sources[i], targets[i], &stream));
        mp_device *device = streams != NULL ? device_of_stream(streams[i]) : NULL;
        MP_TRY_ORT(copy_value(factory_of(self), sources[i], targets[i], stream, device));
    }
    return NULL;
}

static void release(OrtDataTransferImpl *self) {
    mp__factory_drop(factory_of(self)); /* of which it is a part */
}

void mp__transfer_init(OrtDataTransferImpl *transfer) {
    *transfer = (OrtDataTransferImpl){
        .ort_version_supported = mp_the_plugin.version,
        .Release = release,
        .CanCopy = can_copy,
        .CopyTensors = copy_tensors,
    };
}
