/* device_list.c - finds the devices of each kind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include "device/host/host_device.h"

#if MILLPOND_WITH_CUDA
#include "device/cuda/cuda_device.h"
#endif

int mp_device_count(mp_device_kind kind, const char **why) {
    const char *ignored = NULL;
    const char **reason = why != NULL ? why : &ignored;
    *reason = NULL;
    if (kind == MP_DEVICE_HOST) {
        return mp__host_device_count();
    }
#if MILLPOND_WITH_CUDA
    return mp__cuda_device_count(reason);
#else
    *reason = "this build of Millpond has no CUDA backend; build it where a CUDA toolkit is "
              "installed";
    return 0;
#endif
}

mp_status mp_device_get(mp_device_kind kind, int ordinal, mp_device **out) {
    if (kind == MP_DEVICE_HOST) {
        return mp__host_device_get(ordinal, out);
    }
#if MILLPOND_WITH_CUDA
    return mp__cuda_device_get(ordinal, out);
#else
    return MP_FAIL(
        UNSUPPORTED,
        "CUDA device %d requested, but this build of Millpond has no CUDA backend; build "
        "it where a CUDA toolkit is installed",
        ordinal);
#endif
}
