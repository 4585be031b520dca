/* memory_calls.c - every call that device.h allows while streams are captured; and those of another
 * process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory_calls.h"

#include "test.h"

#include <pthread.h>

enum { MIB = 1 << 20 };

typedef struct caller {
    mp_device *device;
    mp_event *event;
} caller;

static void *call_all(void *context) {
    mp_device *device = ((const caller *)context)->device;
    mp_event *event = ((const caller *)context)->event;
    const mp_device_ops *ops = device->ops;
    const size_t granule = ops->granule(device);
    mp_addr addr = 0;
    size_t left = 0, total = 0;
    bool reached = false;
    CHECK_OK(ops->alloc(device, MIB, &addr));
    ops->free(device, addr, MIB);
    CHECK_OK(ops->alloc_pinned(device, MIB, &addr));
    ops->free_pinned(device, addr, MIB);
    CHECK_OK(ops->memory_info(device, &left, &total));
    if (granule > 0) {
        CHECK_OK(ops->reserve(device, 2 * granule, &addr));
        CHECK_OK(ops->map(device, addr, granule));
        CHECK_OK(ops->remap(device, addr + granule, addr, granule));
        CHECK_OK(ops->unmap(device, addr + granule, granule));
        ops->unreserve(device, addr, 2 * granule);
    }
    mp_event *fresh = NULL;
    mp_stream *stream = NULL;
    mp_mempool *mempool = NULL;
    mp_mempool_usage usage = {0};
    uint64_t id = 0;
    CHECK_OK(ops->event_query(device, event, &reached));
    CHECK_OK(ops->event_synchronize(device, event));
    CHECK_OK(ops->event_create(device, false, &fresh));
    CHECK_OK(ops->stream_create(device, &stream));
    CHECK_OK(ops->stream_id(device, stream, &id));
    CHECK_OK(ops->event_record(device, fresh, stream));
    CHECK_OK(ops->stream_query(device, stream, &reached));
    CHECK_OK(ops->stream_synchronize(device, stream));
    const mp_status status = ops->mempool_create(device, 0, &mempool);
    CHECK(status == MP_OK || status == MP_UNSUPPORTED);
    if (status == MP_OK) {
        CHECK_OK(ops->mempool_alloc(device, mempool, stream, MIB, &addr));
        CHECK_OK(ops->free_async(device, stream, addr, MIB));
        CHECK_OK(ops->stream_synchronize(device, stream));
        CHECK_OK(ops->mempool_trim(device, mempool, 0));
        CHECK_OK(ops->mempool_usage(device, mempool, &usage));
        ops->mempool_destroy(device, mempool);
    }
    ops->event_destroy(device, fresh);
    ops->stream_destroy(device, stream);
    return NULL;
}

void test_memory_calls(mp_device *device, mp_event *event) {
    caller own = {.device = device, .event = event};
    pthread_t thread;
    (void)call_all(&own);
    CHECK_EQ_INT(pthread_create(&thread, NULL, call_all, &own), 0);
    CHECK_EQ_INT(pthread_join(thread, NULL), 0);
}

int test_use_shared(mp_device *device, const unsigned char *handle, mp_addr *opened) {
    uint32_t word = 0;
    size_t size = 0;
    if (device->ops->ipc_open(device, handle, opened, &size) != MP_OK || size < MIB) {
        return 1;
    }
    const mp_addr last = *opened + MIB - sizeof word;
    if (device->ops->copy(device, NULL, (mp_addr)&word, last, sizeof word) != MP_OK || word != 11) {
        return 2;
    }
    if (device->ops->fill(device, NULL, *opened, 12, sizeof word, MIB / sizeof word) != MP_OK) {
        return 3;
    }
    return device->ops->ipc_close(device, *opened) == MP_OK ? 0 : 4;
}
