/* transfer.c - copies of tensors between host and device. SPDX-License-Identifier: Apache-2.0 */
#include "ep/bridge.h"
#include "ep/plugin.h"

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

/* The device that does the copy: the one whose memory is read or written. */
static mp_status device_of(mp_factory *factory, const OrtMemoryDevice *source,
                           const OrtMemoryDevice *target, mp_device **out) {
    mp_unit *from_unit = mp__unit_of(factory, source);
    mp_unit *to_unit = mp__unit_of(factory, target);
    mp_unit *unit = from_unit != NULL ? from_unit : to_unit;
    if (unit == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "neither side of the copy is memory of %s", MP_EP_NAME);
    }
    *out = unit->device;
    return MP_OK;
}

mp_status mp__copy_value(mp_factory *factory, const OrtValue *source, OrtValue *target,
                         mp_stream *stream) {
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
    mp_device *device = NULL;
    MP_TRY(device_of(factory, ORT_EP->Value_GetMemoryDevice(source),
                     ORT_EP->Value_GetMemoryDevice(target), &device));
    return device->ops->copy(device, stream, (mp_addr)to, (mp_addr)from, size);
}

static OrtStatus *copy_tensors(OrtDataTransferImpl *self, const OrtValue **sources,
                               OrtValue **targets, OrtSyncStream **streams, size_t count) {
    for (size_t i = 0; i < count; i++) {
        mp_stream *stream = streams != NULL ? mp__stream_of(streams[i]) : NULL;
        MP_TRY_ORT(mp__copy_value(factory_of(self), sources[i], targets[i], stream));
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
