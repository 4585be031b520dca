/* incompatibility.c - why a piece of hardware is not one of ours, for the user who wants to know.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <stdio.h>

/* What is wrong, as ONNX Runtime counts it, and one sentence. */
typedef struct finding {
    uint32_t reasons; /* of OrtDeviceEpIncompatibilityReason */
    char text[MP_REASON_MAX + 128];
} finding;

static bool is_nvidia_gpu(const OrtHardwareDevice *hardware) {
    return ORT->HardwareDevice_Type(hardware) == OrtHardwareDeviceType_GPU &&
           ORT->HardwareDevice_VendorId(hardware) == MP_VENDOR_ID;
}

static void say(finding *f, uint32_t reasons, const char *format, const char *detail) {
    f->reasons = reasons;
    (void)snprintf(f->text, sizeof f->text, format, detail);
}

/* Nothing of NVIDIA's can be used: what is missing. */
static void look_at_driver(finding *f) {
    mp_device *ignored = NULL;
    switch (mp_device_get(MP_DEVICE_CUDA, 0, &ignored)) {
    case MP_OK:
        break; /* it has come meanwhile */
    case MP_NOT_FOUND:
        say(f, OrtDeviceEpIncompatibility_MISSING_DEPENDENCY, "%s", mp_error_message());
        break;
    default:
        say(f, OrtDeviceEpIncompatibility_DRIVER_INCOMPATIBLE, "%s", mp_error_message());
    }
}

/* The driver shows GPUs, but this one is not among the devices that are offered. */
static void look_at_gpus(int count, finding *f) {
    for (int i = 0; i < count; i++) {
        mp_device *device = NULL;
        if (mp_device_get(MP_DEVICE_CUDA, i, &device) != MP_OK) {
            say(f, OrtDeviceEpIncompatibility_DEVICE_INCOMPATIBLE, "%s", mp_error_message());
            return;
        }
    }
    say(f, OrtDeviceEpIncompatibility_DEVICE_INCOMPATIBLE,
        count > MP_UNITS_MAX
            ? "ONNX Runtime takes 8 devices of one provider, and there are more%s"
            : "NVIDIA's driver does not show this GPU; check nvidia-smi and the variable "
              "CUDA_VISIBLE_DEVICES%s",
        "");
}

/* Asks the driver, whatever MILLPOND_DEVICE says. */
static void look_at_gpu(const mp_factory *factory, finding *f) {
    const int count = mp_device_count(MP_DEVICE_CUDA, NULL);
    if (count == 0) {
        look_at_driver(f);
    } else if (factory->unit_count > 0 && factory->units[0].device->info.kind == MP_DEVICE_HOST) {
        say(f, (uint32_t)OrtDeviceEpIncompatibility_UNKNOWN,
            "the GPU could be used, but the emulated device is in its place, since %s",
            factory->device_reason);
    } else {
        look_at_gpus(count, f);
    }
}

static void find_out(mp_factory *factory, const OrtHardwareDevice *hardware, finding *f) {
    *f = (finding){.reasons = OrtDeviceEpIncompatibility_NONE};
    if (mp__unit_with(factory, hardware) != NULL) {
        return;
    }
    if (!is_nvidia_gpu(hardware)) {
        say(f, OrtDeviceEpIncompatibility_DEVICE_INCOMPATIBLE,
            "%s runs on GPUs of NVIDIA, and this device is another; get_ep_devices() lists what it "
            "can use",
            factory->name->provider);
        return;
    }
    look_at_gpu(factory, f);
}

OrtStatus *mp__incompatibility(OrtEpFactory *self, const OrtHardwareDevice *hardware,
                               OrtDeviceEpIncompatibilityDetails *details) {
    mp_factory *factory = (mp_factory *)self;
    finding found;
    (void)pthread_mutex_lock(&factory->lock);
    find_out(factory, hardware, &found);
    (void)pthread_mutex_unlock(&factory->lock);
    return ORT_EP->DeviceEpIncompatibilityDetails_SetDetails(
        details, found.reasons, 0, found.reasons != 0 ? found.text : NULL);
}
