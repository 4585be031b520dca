/* host_device.c - the emulated devices: their table and their lives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_memory.h"
#include "device/host/host_work.h"

#include "base/clock.h"
#include "base/worker.h"
#include "device/kernel_record.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDED_MULTIPROCESSORS = 128 }; /* about as many as the large GPUs from 2020 on have */

static_assert(offsetof(host_device, base) == 0, "mp__host_from() relies on it");

static mp_status peer_enable(mp_device *self, mp_device *other) {
    MP_TRY(mp__host_call(mp__host_from(self), "peer_enable"));
    if (other->info.kind != MP_DEVICE_HOST) {
        return MP_FAIL(UNSUPPORTED, "an emulated device cannot reach the memory of \"%s\"",
                       other->info.name);
    }
    return MP_OK; /* all emulated memory is memory of this process */
}

static const mp_device_ops host_ops = {
    .alloc = mp__host_alloc,
    .free = mp__host_free,
    .alloc_pinned = mp__host_alloc_pinned,
    .free_pinned = mp__host_free_pinned,
    .memory_info = mp__host_memory_info,
    .note = mp__host_note,
    .granule = mp__host_granule,
    .reserve = mp__host_reserve,
    .unreserve = mp__host_unreserve,
    .map = mp__host_map,
    .unmap = mp__host_unmap,
    .remap = mp__host_remap,
    .mempool_create = mp__host_mempool_create,
    .mempool_destroy = mp__host_mempool_destroy,
    .mempool_alloc = mp__host_mempool_alloc,
    .free_async = mp__host_free_async,
    .mempool_trim = mp__host_mempool_trim,
    .mempool_usage = mp__host_mempool_usage,
    .mempool_reset_peaks = mp__host_mempool_reset_peaks,
    .ipc_export = mp__host_ipc_export,
    .ipc_open = mp__host_ipc_open,
    .ipc_close = mp__host_ipc_close,
    .copy = mp__host_copy,
    .fill = mp__host_fill,
    .stream_create = mp__host_stream_create,
    .stream_wrap = mp__host_stream_wrap,
    .stream_destroy = mp__host_stream_destroy,
    .stream_native = mp__host_stream_native,
    .stream_id = mp__host_stream_id,
    .stream_synchronize = mp__host_stream_synchronize,
    .stream_query = mp__host_stream_query,
    .stream_call = mp__host_stream_call,
    .synchronize = mp__host_synchronize,
    .event_create = mp__host_event_create,
    .event_destroy = mp__host_event_destroy,
    .event_record = mp__host_event_record,
    .event_wait = mp__host_event_wait,
    .event_synchronize = mp__host_event_synchronize,
    .event_query = mp__host_event_query,
    .event_elapsed = mp__host_event_elapsed,
    .capture_begin = mp__host_capture_begin,
    .capture_end = mp__host_capture_end,
    .capture_active = mp__host_capture_active,
    .graph_launch = mp__host_graph_launch,
    .graph_destroy = mp__host_graph_destroy,
    .branch_prepare = mp__host_branch_prepare,
    .branch_begin = mp__host_branch_begin,
    .branch_end = mp__host_branch_end,
    .kernel_load = mp__host_kernel_load,
    .kernel_open = mp__host_kernel_open,
    .kernel_ready = mp__host_kernel_ready,
    .kernel_ready_later = mp__host_kernel_ready_later,
    .kernels_settled = mp__host_kernels_settled,
    .kernel_unload = mp__host_kernel_unload,
    .launch = mp__host_launch,
    .gemm_prepare = mp__host_gemm_prepare,
    .conv_prepare = mp__host_conv_prepare,
    .collective_prepare = mp__host_collective_prepare,
    .collective_peers = mp__host_collective_peers,
    .collective_launch = mp__host_collective_launch,
    .math_workspace = mp__host_math_workspace,
    .math_run = mp__host_math_run,
    .math_release = mp__host_math_release,
    .peer_enable = peer_enable,
    .import_open = mp__host_import_open,
    .import_close = mp__host_import_close,
    .semaphore_open = mp__host_semaphore_open,
    .semaphore_close = mp__host_semaphore_close,
    .semaphore_signal = mp__host_semaphore_signal,
    .semaphore_wait = mp__host_semaphore_wait,
    .profile_begin = mp__host_profile_begin,
    .profile_flush = mp__host_profile_flush,
    .profile_end = mp__host_profile_end,
};

static void fill_info(host_device *host) {
    mp_device_info *info = &host->base.info;
    info->kind = MP_DEVICE_HOST;
    info->compiles = host->config.compile_ms > 0;
    (void)snprintf(info->name, sizeof info->name, "Millpond emulated device");
    (void)snprintf(info->driver, sizeof info->driver, "host");
    info->multiprocessors =
        mp_kernel_record_on() ? RECORDED_MULTIPROCESSORS : (int)mp_worker_count();
    info->warp = 1;
    info->block_lanes_max = HOST_LANES_MAX;
    info->shared_bytes_max = HOST_SHARED_BYTES_MAX;
    info->memory_bytes = host->config.memory_bytes;
    info->notes = mp__host_adversarial(host);
}

static void seed_adversary(host_device *host) {
    static const uint32_t laziness[] = {8, 7, 6, 4, 2, 0};
    host->random = host->config.seed * UINT64_C(0xd1342543de82ef95) + 1;
    host->laziness = laziness[mp__host_random(host, MP_COUNT_OF(laziness))];
    const size_t half = host->config.memory_bytes / 2;
    host->quarantine_max = half < ((size_t)64 << 20) ? half : (size_t)64 << 20;
}

mp_status mp__host_device_create(const mp_host_config *config, mp_device **out) {
    host_device *host = calloc(1, sizeof *host);
    if (host == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate memory for the record of an emulated device");
    }
    host->base.ops = &host_ops;
    host->config = *config;
    host->file = -1;
    host->objects.next = host->objects.prev = &host->objects;
    seed_adversary(host);
    fill_info(host);
    (void)pthread_mutex_init(&host->lock, NULL);
    (void)pthread_mutex_init(&host->memory_lock, NULL);
    (void)pthread_mutex_init(&host->breach_lock, NULL);
    mp_clock_cond_init(&host->progress);
    mp__host_queue_open(host, &host->default_queue, NULL);
    mp__host_link(host);
    *out = &host->base;
    return MP_OK;
}

/* Takes back every object of a kind, or of any kind but streams. Returns how many there were. */
static size_t destroy_objects(host_device *host, bool streams) {
    size_t count = 0;
    host_object *object = host->objects.next;
    while (object != &host->objects) {
        host_object *next = object->next;
        if ((object->kind == HOST_STREAM) == streams) {
            count++;
            if (streams) {
                mp__host_stream_destroy(&host->base, (mp_stream *)(void *)object);
            } else {
                mp__host_object_destroy(host, object);
            }
        }
        object = next;
    }
    return count;
}

size_t mp__host_device_destroy(mp_device *device) {
    host_device *host = mp__host_from(device);
    size_t left = destroy_objects(host, true);
    mp__host_thread_queues_close(host);
    mp__host_queue_close(&host->default_queue);
    left += destroy_objects(host, false);
    left += mp__host_memory_close(host);
    mp__host_unlink(host);
    (void)pthread_cond_destroy(&host->progress);
    (void)pthread_mutex_destroy(&host->breach_lock);
    (void)pthread_mutex_destroy(&host->memory_lock);
    (void)pthread_mutex_destroy(&host->lock);
    free(host);
    return left;
}
