/* plugin_reckless.c - an allocator that is wrong on purpose: pool_bench must refuse to time it.
 *
 * It allocates what was freed last to whoever asks next, without regard to streams: the mistake
 * that the check before the cases with several streams looks for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include "base/status.h"
#include "device/device.h"

enum { KEPT = 64, BLOCK_BYTES = 1 << 20 };

static mp_device *device_used;
static void *kept[KEPT];
static size_t kept_count;

int bench_init(const char *text, size_t cap) {
    (void)text;
    (void)cap;
    return mp_device_get(MP_DEVICE_HOST, 0, &device_used) == MP_OK ? 0 : 1;
}

void *bench_alloc(ssize_t size, int device, void *stream) {
    (void)device;
    (void)stream;
    if (size > BLOCK_BYTES) {
        return NULL;
    }
    if (kept_count > 0) {
        return kept[--kept_count];
    }
    mp_addr addr = 0;
    return device_used->ops->alloc(device_used, BLOCK_BYTES, &addr) == MP_OK ? (void *)addr : NULL;
}

void bench_free(void *memory, ssize_t size, int device, void *stream) {
    (void)size;
    (void)device;
    (void)stream;
    if (kept_count < KEPT) {
        kept[kept_count++] = memory;
    }
}
