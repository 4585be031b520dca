/* cuda_device.c - finds the GPUs and opens each once.
 *
 * A device works in the GPU's primary context, the one that the CUDA runtime and every other
 * library of the process use, so that addresses and streams can be passed back and forth. It is
 * kept until the process ends: the driver takes contexts down by itself, and at a time of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_device.h"

#include "device/cuda/cuda_private.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const mp_device_ops cuda_ops = {
    .alloc = mp__cuda_alloc,
    .free = mp__cuda_free,
    .alloc_pinned = mp__cuda_alloc_pinned,
    .free_pinned = mp__cuda_free_pinned,
    .memory_info = mp__cuda_memory_info,
    .note = mp__cuda_note,
    .granule = mp__cuda_granule,
    .reserve = mp__cuda_reserve,
    .unreserve = mp__cuda_unreserve,
    .map = mp__cuda_map,
    .unmap = mp__cuda_unmap,
    .remap = mp__cuda_remap,
    .mempool_create = mp__cuda_mempool_create,
    .mempool_destroy = mp__cuda_mempool_destroy,
    .mempool_alloc = mp__cuda_mempool_alloc,
    .free_async = mp__cuda_free_async,
    .mempool_trim = mp__cuda_mempool_trim,
    .mempool_usage = mp__cuda_mempool_usage,
    .mempool_reset_peaks = mp__cuda_mempool_reset_peaks,
    .ipc_export = mp__cuda_ipc_export,
    .ipc_open = mp__cuda_ipc_open,
    .ipc_close = mp__cuda_ipc_close,
    .copy = mp__cuda_copy,
    .fill = mp__cuda_fill,
    .stream_create = mp__cuda_stream_create,
    .stream_wrap = mp__cuda_stream_wrap,
    .stream_destroy = mp__cuda_stream_destroy,
    .stream_native = mp__cuda_stream_native,
    .stream_id = mp__cuda_stream_id,
    .stream_synchronize = mp__cuda_stream_synchronize,
    .stream_query = mp__cuda_stream_query,
    .stream_call = mp__cuda_stream_call,
    .synchronize = mp__cuda_synchronize,
    .event_create = mp__cuda_event_create,
    .event_destroy = mp__cuda_event_destroy,
    .event_record = mp__cuda_event_record,
    .event_wait = mp__cuda_event_wait,
    .event_synchronize = mp__cuda_event_synchronize,
    .event_query = mp__cuda_event_query,
    .event_elapsed = mp__cuda_event_elapsed,
    .capture_begin = mp__cuda_capture_begin,
    .capture_end = mp__cuda_capture_end,
    .capture_active = mp__cuda_capture_active,
    .graph_launch = mp__cuda_graph_launch,
    .graph_destroy = mp__cuda_graph_destroy,
    .branch_prepare = mp__cuda_branch_prepare,
    .branch_begin = mp__cuda_branch_begin,
    .branch_end = mp__cuda_branch_end,
    .kernel_load = mp__cuda_kernel_load,
    .kernel_open = mp__cuda_kernel_open,
    .kernel_ready = mp__cuda_kernel_ready,
    .kernel_ready_later = mp__cuda_kernel_ready_later,
    .kernels_settled = mp__cuda_kernels_settled,
    .kernel_unload = mp__cuda_kernel_unload,
    .launch = mp__cuda_launch,
    .gemm_prepare = mp__cuda_gemm_prepare,
    .conv_prepare = mp__cuda_conv_prepare,
    .collective_prepare = mp__cuda_collective_prepare,
    .collective_peers = mp__cuda_collective_peers,
    .collective_launch = mp__cuda_collective_launch,
    .math_workspace = mp__cuda_math_workspace,
    .math_run = mp__cuda_math_run,
    .math_release = mp__cuda_math_release,
    .peer_enable = mp__cuda_peer_enable,
    .import_open = mp__cuda_import_open,
    .import_close = mp__cuda_import_close,
    .semaphore_open = mp__cuda_semaphore_open,
    .semaphore_close = mp__cuda_semaphore_close,
    .semaphore_signal = mp__cuda_semaphore_signal,
    .semaphore_wait = mp__cuda_semaphore_wait,
    .profile_begin = mp__cuda_profile_begin,
    .profile_flush = mp__cuda_profile_flush,
    .profile_end = mp__cuda_profile_end,
    .profile_clock = mp__cuda_profile_clock,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(cuda_device *) devices[CUDA_DEVICES_MAX];

/* ---- opening ---- */

static int attribute(const cuda_device *device, CUdevice_attribute which) {
    int value = 0;
    return mp__cu.device_attribute(&value, which, device->handle) == CUDA_SUCCESS ? value : 0;
}

/* Every GPU with clusters has them of 8 blocks, unless it is a small part of one; whole ones for
 * data centres have them of 16. */
static int cluster_blocks_max(const cuda_device *device) {
    enum { WHOLE = 100, SMALL = 32 }; /* multiprocessors */
    const mp_device_info *info = &device->base.info;
    const bool large = info->arch == 90 || info->arch == 100 || info->arch == 103;
    if (attribute(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0 ||
        info->multiprocessors < SMALL) {
        return 0;
    }
    return large && info->multiprocessors >= WHOLE ? 2 * CUDA_CLUSTER_PORTABLE
                                                   : CUDA_CLUSTER_PORTABLE;
}

static void info_fill(cuda_device *device) {
    mp_device_info *info = &device->base.info;
    const int version = mp__cuda_driver_version();
    info->kind = MP_DEVICE_CUDA;
    info->compiles = true;
    if (mp__cu.device_name(info->name, (int)sizeof info->name, device->handle) != CUDA_SUCCESS) {
        (void)snprintf(info->name, sizeof info->name, "CUDA device %d", device->base.ordinal);
    }
    if (mp__cu.device_pci(info->pci_bus_id, (int)sizeof info->pci_bus_id, device->handle) !=
        CUDA_SUCCESS) {
        info->pci_bus_id[0] = '\0';
    }
    for (char *at = info->pci_bus_id; *at != '\0'; at++) {
        *at = (char)tolower((unsigned char)*at);
    }
    (void)snprintf(info->driver, sizeof info->driver, "CUDA %d.%d", version / 1000,
                   version % 1000 / 10);
    info->arch = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                 attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    info->multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    info->warp = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    info->block_lanes_max = (uint32_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    info->shared_bytes_max =
        (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    info->cluster_blocks_max = cluster_blocks_max(device);
    info->grids_meet = attribute(device, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
    (void)mp__cu.device_memory(&info->memory_bytes, device->handle);
}

static size_t granule_of(const cuda_device *device) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->base.ordinal}};
    size_t granule = 0;
    if (attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
        mp__cu.granularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
            CUDA_SUCCESS) {
        return 0;
    }
    return granule;
}

/* In the device's context. */
static mp_status device_fill(cuda_device *device) {
    info_fill(device);
    device->granule = granule_of(device);
    device->has_mempools = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
    const CUresult result = mp__cu.stream_create(&device->copies, CU_STREAM_NON_BLOCKING);
    return result == CUDA_SUCCESS ? MP_OK : mp__cuda_fail(device, result, "cuStreamCreate");
}

static mp_status context_open(cuda_device *device) {
    cuda_scope scope;
    CUresult result = mp__cu.device_get(&device->handle, device->base.ordinal);
    if (result != CUDA_SUCCESS) {
        return mp__cuda_fail(device, result, "cuDeviceGet");
    }
    result = mp__cu.context_retain(&device->context, device->handle);
    if (result != CUDA_SUCCESS) {
        return mp__cuda_fail(device, result, "cuDevicePrimaryCtxRetain");
    }
    mp_status status = mp__cuda_enter(device, &scope);
    if (status == MP_OK) {
        status = device_fill(device);
        mp__cuda_exit(&scope);
    }
    if (status != MP_OK) {
        (void)mp__cu.context_release(device->handle);
    }
    return status;
}

static mp_status device_open(int ordinal, cuda_device **out) {
    cuda_device *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of CUDA device %d", ordinal);
    }
    fresh->base.ops = &cuda_ops;
    fresh->base.ordinal = ordinal;
    const mp_status status = context_open(fresh);
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    (void)pthread_mutex_init(&fresh->lock, NULL);
    (void)pthread_mutex_init(&fresh->staging.lock, NULL);
    (void)pthread_mutex_init(&fresh->kernel_lock, NULL);
    (void)pthread_cond_init(&fresh->kernel_made, NULL);
    (void)pthread_mutex_init(&fresh->blaslt.lock, NULL);
    (void)pthread_mutex_init(&fresh->dnn.lock, NULL);
    *out = fresh;
    return MP_OK;
}

/* ---- finding ---- */

static mp_status count_get(int *out) {
    int count = 0;
    MP_TRY(mp__cuda_need(CUDA_LIB_DRIVER));
    const CUresult result = mp__cu.device_count(&count);
    if (result != CUDA_SUCCESS) {
        return MP_FAIL(DEVICE, "NVIDIA's driver does not report how many GPUs there are (error %d)",
                       (int)result);
    }
    if (count == 0) {
        return MP_FAIL(NOT_FOUND, "NVIDIA's driver shows no GPU; check nvidia-smi and the variable "
                                  "CUDA_VISIBLE_DEVICES");
    }
    *out = MP_MIN(count, CUDA_DEVICES_MAX);
    return MP_OK;
}

int mp__cuda_device_count(const char **why) {
    int count = 0;
    if (count_get(&count) != MP_OK) {
        *why = mp_error_message();
        return 0;
    }
    return count;
}

static mp_status open_once(int ordinal, cuda_device **out) {
    (void)pthread_mutex_lock(&lock);
    mp_status status = MP_OK;
    cuda_device *device = atomic_load(&devices[ordinal]);
    if (device == NULL) {
        status = device_open(ordinal, &device);
        atomic_store(&devices[ordinal], device);
    }
    (void)pthread_mutex_unlock(&lock);
    *out = device;
    return status;
}

mp_status mp__cuda_device_get(int ordinal, mp_device **out) {
    int count = 0;
    MP_TRY(count_get(&count));
    if (ordinal < 0 || ordinal >= count) {
        return MP_FAIL(NOT_FOUND,
                       "CUDA device %d was requested and there %s %d; ordinals start at 0", ordinal,
                       count == 1 ? "is" : "are", count);
    }
    cuda_device *device = atomic_load(&devices[ordinal]);
    if (device == NULL) {
        MP_TRY(open_once(ordinal, &device));
    }
    *out = &device->base;
    return MP_OK;
}
