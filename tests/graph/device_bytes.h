/* device_bytes.h - memory of a device with bytes in it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TEST_DEVICE_BYTES_H
#define MP_TEST_DEVICE_BYTES_H

#include "device/device.h"
#include "unit/test.h"

typedef struct memory {
    mp_addr addr;
    size_t size;
} memory;

/* `bytes`: NULL where they do not matter. Gives: until memory_drop. */
static inline memory memory_take(mp_device *device, const void *bytes, size_t size) {
    memory m = {.size = size > 0 ? size : 1};
    CHECK_OK(device->ops->alloc(device, m.size, &m.addr));
    if (bytes != NULL && size > 0) {
        CHECK_OK(device->ops->copy(device, NULL, m.addr, (mp_addr)bytes, size));
    }
    return m;
}

static inline void memory_drop(mp_device *device, memory m) {
    device->ops->free(device, m.addr, m.size);
}

#endif
