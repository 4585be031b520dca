/* units.c - which devices a factory offers and how ONNX Runtime sees them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"
#include "pool/pool_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- pairing with what ORT found ---- */

static bool is_taken(const mp_factory *factory, const OrtHardwareDevice *hardware) {
    for (int i = 0; i < factory->unit_count; i++) {
        if (factory->units[i].hardware == hardware) {
            return true;
        }
    }
    return false;
}

/* By PCI address; ORT's ordinals follow the operating system, CUDA's do not. */
static const OrtHardwareDevice *find_hardware(const mp_factory *factory, const mp_device *device,
                                              const OrtHardwareDevice *const *hardware,
                                              size_t count) {
    if (device->info.kind != MP_DEVICE_CUDA || device->info.pci_bus_id[0] == '\0') {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (ORT->HardwareDevice_Type(hardware[i]) != OrtHardwareDeviceType_GPU ||
            is_taken(factory, hardware[i])) {
            continue;
        }
        const OrtKeyValuePairs *metadata = ORT->HardwareDevice_Metadata(hardware[i]);
        const char *address = metadata != NULL ? ORT->GetKeyValue(metadata, "pci_bus_id") : NULL;
        if (address != NULL && strcasecmp(address, device->info.pci_bus_id) == 0) {
            return hardware[i];
        }
    }
    return NULL;
}

static void add_text(OrtKeyValuePairs *pairs, const char *key, const char *value) {
    if (value[0] != '\0') {
        ORT->AddKeyValuePair(pairs, key, value);
    }
}

/* The emulated device is no GPU of NVIDIA's. Where nobody asked for it, it is not even listed as a
 * GPU, since ONNX Runtime's policies would prefer it to the CPU provider, which is faster; nor as a
 * CPU, which would have all of them choose it. */
static mp_status create_hardware(const mp_factory *factory, mp_unit *unit) {
    const mp_device_info *info = &unit->device->info;
    const bool emulated = info->kind == MP_DEVICE_HOST;
    const OrtHardwareDeviceType type =
        factory->emulation_unasked ? OrtHardwareDeviceType_NPU : OrtHardwareDeviceType_GPU;
    OrtKeyValuePairs *metadata = NULL;
    ORT->CreateKeyValuePairs(&metadata);
    add_text(metadata, "pci_bus_id", info->pci_bus_id);
    add_text(metadata, "name", info->name);
    if (emulated) {
        add_text(metadata, "is_virtual", "1");
        add_text(metadata, "emulated", "1");
    }
    OrtStatus *status = ORT_EP->CreateHardwareDevice(
        type, emulated ? 0 : MP_VENDOR_ID, (uint32_t)unit->device->ordinal,
        emulated ? MP_EMULATED_VENDOR : MP_EP_VENDOR, metadata, &unit->own_hardware);
    ORT->ReleaseKeyValuePairs(metadata);
    MP_TRY(mp__from_ort(status));
    unit->hardware = unit->own_hardware;
    return MP_OK;
}

static mp_status create_memory_infos(mp_unit *unit) {
    const int32_t id = unit->device->ordinal;
    MP_TRY(mp__from_ort(ORT->CreateMemoryInfo_V2("Cuda", OrtMemoryInfoDeviceType_GPU, MP_VENDOR_ID,
                                                 id, OrtDeviceMemoryType_DEFAULT, 0,
                                                 OrtDeviceAllocator, &unit->memory)));
    MP_TRY(mp__from_ort(ORT->CreateMemoryInfo_V2(
        "CudaPinned", OrtMemoryInfoDeviceType_GPU, MP_VENDOR_ID, id,
        OrtDeviceMemoryType_HOST_ACCESSIBLE, 0, OrtDeviceAllocator, &unit->pinned)));
    MP_TRY(mp__from_ort(ORT->CreateMemoryInfo_V2("Cuda", OrtMemoryInfoDeviceType_GPU, MP_VENDOR_ID,
                                                 id, OrtDeviceMemoryType_DEFAULT, 0,
                                                 OrtReadOnlyAllocator, &unit->constant)));
    unit->memory_device = ORT_EP->MemoryInfo_GetMemoryDevice(unit->memory);
    return MP_OK;
}

static void unit_close(mp_unit *unit) {
    if (unit->memory != NULL) {
        ORT->ReleaseMemoryInfo(unit->memory);
    }
    if (unit->pinned != NULL) {
        ORT->ReleaseMemoryInfo(unit->pinned);
    }
    if (unit->constant != NULL) {
        ORT->ReleaseMemoryInfo(unit->constant);
    }
    if (unit->own_hardware != NULL) {
        ORT_EP->ReleaseHardwareDevice(unit->own_hardware);
    }
    *unit = (mp_unit){.device = NULL};
}

static mp_status unit_open(mp_factory *factory, mp_unit *unit, mp_device *device,
                           const OrtHardwareDevice *const *hardware, size_t count) {
    unit->factory = factory;
    unit->device = device;
    unit->hardware = find_hardware(factory, device, hardware, count);
    if (unit->hardware == NULL) {
        MP_TRY(create_hardware(factory, unit));
    }
    return create_memory_infos(unit);
}

mp_status mp__units_open(mp_factory *factory, const OrtHardwareDevice *const *hardware,
                         size_t count) {
    if (factory->unit_count > 0) {
        return MP_OK; /* ORT may ask again; sessions already use the first answer */
    }
    mp_device_kind kind = MP_DEVICE_HOST;
    int ordinal = 0; /* a session chooses among all of the kind */
    MP_TRY(mp__choose_device(NULL, &kind, &ordinal, factory->device_reason, MP_REASON_MAX));
    factory->emulation_unasked = kind == MP_DEVICE_HOST && !mp__device_is_named();
    if (kind == MP_DEVICE_HOST) {
        MP_LOG(INFO, "the emulated device is used, since %s", factory->device_reason);
    }
    const int devices = mp_device_count(kind, NULL);
    for (int i = 0; i < devices && i < MP_UNITS_MAX; i++) {
        mp_device *device = NULL;
        mp_unit *unit = &factory->units[factory->unit_count];
        mp_status status = mp_device_get(kind, i, &device);
        if (status == MP_OK) {
            status = unit_open(factory, unit, device, hardware, count);
        }
        if (status != MP_OK) {
            unit_close(unit);
            MP_LOG(WARNING, "device %d is left out: %s", i, mp_error_message());
            continue;
        }
        factory->unit_count++;
    }
    return MP_OK;
}

void mp__units_close(mp_factory *factory) {
    for (int i = 0; i < factory->unit_count; i++) {
        unit_close(&factory->units[i]);
    }
    factory->unit_count = 0;
}

mp_unit *mp__unit_with(mp_factory *factory, const OrtHardwareDevice *hardware) {
    for (int i = 0; i < factory->unit_count; i++) {
        if (factory->units[i].hardware == hardware) {
            return &factory->units[i];
        }
    }
    return NULL;
}

mp_unit *mp__unit_of(mp_factory *factory, const OrtMemoryDevice *device) {
    if (ORT_EP->MemoryDevice_GetDeviceType(device) != OrtMemoryInfoDeviceType_GPU ||
        ORT_EP->MemoryDevice_GetVendorId(device) != MP_VENDOR_ID) {
        return NULL;
    }
    const uint32_t id = ORT_EP->MemoryDevice_GetDeviceId(device);
    for (int i = 0; i < factory->unit_count; i++) {
        if ((uint32_t)factory->units[i].device->ordinal == id) {
            return &factory->units[i];
        }
    }
    return NULL;
}
