/* factory.c - the factory that ONNX Runtime gets for a registration: it offers devices, makes
 * providers, allocators and streams.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/context/compatibility.h"
#include "ep/placement/brought.h"
#include "ep/session/plugin.h"
#include "ep/stream/run_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mp_factory *from(const OrtEpFactory *self) {
    return (mp_factory *)(uintptr_t)self;
}

static const char *get_name(const OrtEpFactory *self) {
    return from(self)->name->provider;
}

static const char *get_vendor(const OrtEpFactory *self) {
    (void)self;
    return MP_EP_VENDOR;
}

static uint32_t get_vendor_id(const OrtEpFactory *self) {
    (void)self;
    return MP_VENDOR_ID;
}

static const char *get_version(const OrtEpFactory *self) {
    (void)self;
    return MILLPOND_VERSION;
}

/* ---- devices ---- */

static void describe(const mp_factory *factory, const mp_unit *unit, OrtKeyValuePairs *metadata,
                     OrtKeyValuePairs *options) {
    const mp_device_info *info = &unit->device->info;
    char number[32];
    (void)snprintf(number, sizeof number, "%d", unit->device->ordinal);
    ORT->AddKeyValuePair(metadata, "cuda_device_id", number);
    ORT->AddKeyValuePair(options, "device_id", number);
    ORT->AddKeyValuePair(metadata, "cuda_device_name", info->name);
    (void)snprintf(number, sizeof number, "%d.%d", info->arch / 10, info->arch % 10);
    ORT->AddKeyValuePair(metadata, "cuda_compute_capability", number);
    ORT->AddKeyValuePair(metadata, "emulated", info->kind == MP_DEVICE_HOST ? "1" : "0");
    ORT->AddKeyValuePair(metadata, "device_reason", factory->device_reason);
    ORT->AddKeyValuePair(metadata, "driver", info->driver);
    (void)snprintf(number, sizeof number, "%zu", info->memory_bytes);
    ORT->AddKeyValuePair(metadata, "memory_bytes", number);
}

static OrtStatus *offer(OrtEpFactory *self, const mp_unit *unit, OrtEpDevice **out) {
    OrtKeyValuePairs *metadata = NULL;
    OrtKeyValuePairs *options = NULL;
    ORT->CreateKeyValuePairs(&metadata);
    ORT->CreateKeyValuePairs(&options);
    describe(from(self), unit, metadata, options);
    OrtEpDevice *device = NULL;
    OrtStatus *status = ORT_EP->CreateEpDevice(self, unit->hardware, metadata, options, &device);
    ORT->ReleaseKeyValuePairs(metadata);
    ORT->ReleaseKeyValuePairs(options);
    if (status == NULL) {
        status = ORT_EP->EpDevice_AddAllocatorInfo(device, unit->memory);
    }
    if (status == NULL) {
        status = ORT_EP->EpDevice_AddAllocatorInfo(device, unit->pinned);
    }
    if (status == NULL) {
        status = ORT_EP->EpDevice_AddAllocatorInfo(device, unit->constant);
    }
    if (status != NULL) {
        if (device != NULL) {
            ORT_EP->ReleaseEpDevice(device);
        }
        return status;
    }
    *out = device;
    return NULL;
}

static OrtStatus *get_supported_devices(OrtEpFactory *self,
                                        const OrtHardwareDevice *const *hardware, size_t count,
                                        OrtEpDevice **devices, size_t devices_max,
                                        size_t *device_count) {
    mp_factory *factory = from(self);
    *device_count = 0;
    (void)pthread_mutex_lock(&factory->lock);
    const mp_status opened = mp__units_open(factory, hardware, count);
    (void)pthread_mutex_unlock(&factory->lock);
    if (opened != MP_OK) {
        MP_LOG(ERROR, "%s", mp_error_message());
        return mp__to_ort(opened);
    }
    size_t made = 0;
    for (int i = 0; i < factory->unit_count && made < devices_max; i++) {
        OrtStatus *status = offer(self, &factory->units[i], &devices[made]);
        if (status != NULL) {
            while (made > 0) {
                ORT_EP->ReleaseEpDevice(devices[--made]);
            }
            return status;
        }
        made++;
    }
    *device_count = made;
    return NULL;
}

/* ---- providers ---- */

static OrtStatus *create_ep(OrtEpFactory *self, const OrtHardwareDevice *const *hardware,
                            const OrtKeyValuePairs *const *metadata, size_t count,
                            const OrtSessionOptions *session, const OrtLogger *logger,
                            OrtEp **out) {
    (void)metadata;
    (void)logger;
    *out = NULL;
    if (count != 1) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT,
                                  "a session of %s runs on one device, not on %zu; give it one of "
                                  "those that get_ep_devices() lists",
                                  from(self)->name->provider, count));
    }
    mp_unit *unit = hardware != NULL ? mp__unit_with(from(self), hardware[0]) : NULL;
    if (unit == NULL) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT, "the device given is not one of %s",
                                  from(self)->name->provider));
    }
    return mp__provider_create(from(self), unit, session, out);
}

static void release_ep(OrtEpFactory *self, OrtEp *ep) {
    (void)self;
    mp__provider_release((mp_provider *)ep);
}

/* ---- memory and streams ---- */

static OrtStatus *create_allocator(OrtEpFactory *self, const OrtMemoryInfo *info,
                                   const OrtKeyValuePairs *options, OrtAllocator **out) {
    *out = NULL;
    mp_unit *unit = mp__unit_of(from(self), ORT_EP->MemoryInfo_GetMemoryDevice(info));
    if (unit == NULL) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT, "no device of %s has the requested memory",
                                  from(self)->name->provider));
    }
    const bool pinned =
        ORT->MemoryInfoGetDeviceMemType(info) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
    mp_pool *pool = NULL;
    bool asks = false;
    MP_TRY_ORT(mp__memory_check(unit, options, &asks));
    if (asks) { /* else whoever needs the pool first says what it is like */
        MP_TRY_ORT(
            mp__memory_open(unit, pinned ? MP_MEMORY_PINNED : MP_MEMORY_DEVICE, options, &pool));
    }
    return mp__allocator_create(unit, info, pool, out);
}

static void release_allocator(OrtEpFactory *self, OrtAllocator *allocator) {
    (void)self;
    mp__allocator_release(allocator);
}

static OrtStatus *create_data_transfer(OrtEpFactory *self, OrtDataTransferImpl **out) {
    mp__factory_keep(from(self));
    *out = &from(self)->transfer;
    return NULL;
}

static bool is_stream_aware(const OrtEpFactory *self) {
    (void)self;
    return true;
}

static OrtStatus *create_sync_stream(OrtEpFactory *self, const OrtMemoryDevice *memory,
                                     const OrtKeyValuePairs *options, OrtSyncStreamImpl **out) {
    (void)options;
    *out = NULL;
    mp_unit *unit = mp__unit_of(from(self), memory);
    if (unit == NULL) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT, "no device of %s has the requested memory",
                                  from(self)->name->provider));
    }
    mp_pool *pool = NULL;
    mp_run_stream *stream = NULL;
    MP_TRY_ORT(mp__memory_open(unit, MP_MEMORY_DEVICE, NULL, &pool));
    MP_TRY_ORT(mp__run_stream_create(unit, pool, NULL, &stream));
    return mp__sync_stream_create(stream, out);
}

/* ---- life ---- */

mp_status mp__factory_create(const char *registration, mp_factory **out) {
    mp_factory *factory = calloc(1, sizeof *factory);
    if (factory == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to register '%s'",
                       registration != NULL ? registration : "");
    }
    factory->base = (OrtEpFactory){
        .ort_version_supported = mp_the_plugin.version,
        .GetName = get_name,
        .GetVendor = get_vendor,
        .GetVendorId = get_vendor_id,
        .GetVersion = get_version,
        .GetSupportedDevices = get_supported_devices,
        .CreateEp = create_ep,
        .ReleaseEp = release_ep,
        .CreateAllocator = create_allocator,
        .ReleaseAllocator = release_allocator,
        .CreateDataTransfer = create_data_transfer,
        .IsStreamAware = is_stream_aware,
        .CreateSyncStreamForDevice = create_sync_stream,
        .GetHardwareDeviceIncompatibilityDetails = mp__incompatibility,
        .CreateExternalResourceImporterForDevice = mp__external_create,
        .GetNumCustomOpDomains = mp__brought_count,
        .GetCustomOpDomains = mp__brought_domains,
    };
    mp__compatibility_install_factory(&factory->base);
    factory->name = mp__ep_name_of(registration);
    factory->references = 1;
    pthread_mutex_init(&factory->lock, NULL);
    mp__transfer_init(&factory->transfer);
    *out = factory;
    return MP_OK;
}
