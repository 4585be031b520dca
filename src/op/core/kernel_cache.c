/* kernel_cache.c - one slot for each kernel instance and device. A slot is written once, under the
 * lock, and read without it; a device's table stays in the list for good, so that a reader may
 * walk the list while another device is dropped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/kernel_cache.h"

#include "kernel/kernel_table.h"
#include "op/core/kernel_batch.h"
#include "op/core/table_cache.h"
#include "op/fused/fused_kernel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = sizeof "mp_k_" - 1 };

typedef struct device_kernels {
    struct device_kernels *next; /* set before the table is in the list */
    mp_device *_Atomic device;   /* NULL: free for the next device */
    mp_kernel *_Atomic slots[];  /* one an image */
} device_kernels;

static device_kernels *_Atomic first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int by_name(const void *name, const void *image) {
    return strcmp(name, ((const mp_kernel_image *)image)->name + PREFIX);
}

static device_kernels *kernels_find(const mp_device *device) {
    device_kernels *at = atomic_load_explicit(&first, memory_order_acquire);
    while (at != NULL && atomic_load_explicit(&at->device, memory_order_acquire) != device) {
        at = at->next;
    }
    return at;
}

/* With the lock held. */
static mp_status find_or_add(mp_device *device, device_kernels **out) {
    device_kernels *kernels = kernels_find(device);
    if (kernels == NULL) {
        kernels = kernels_find(NULL);
        if (kernels != NULL) {
            atomic_store_explicit(&kernels->device, device, memory_order_release);
        }
    }
    if (kernels == NULL) {
        const size_t count = (size_t)mp__kernel_image_count;
        kernels = calloc(1, sizeof *kernels + count * sizeof kernels->slots[0]);
        if (kernels == NULL) {
            return MP_FAIL(OUT_OF_MEMORY,
                           "cannot allocate host memory for the table of %zu kernels", count);
        }
        atomic_init(&kernels->device, device);
        kernels->next = atomic_load_explicit(&first, memory_order_relaxed);
        atomic_store_explicit(&first, kernels, memory_order_release);
    }
    *out = kernels;
    return MP_OK;
}

static mp_status open_kernel(mp_device *device, const mp_kernel_image *image, mp_kernel **out) {
    device_kernels *kernels = NULL;
    MP_TRY(find_or_add(device, &kernels));
    mp_kernel *_Atomic *slot = &kernels->slots[image - mp__kernel_images];
    mp_kernel *kernel = atomic_load_explicit(slot, memory_order_acquire);
    if (kernel == NULL) {
        MP_TRY(device->ops->kernel_open(device, image, &kernel));
        atomic_store_explicit(slot, kernel, memory_order_release);
    }
    *out = kernel;
    return MP_OK;
}

static mp_status find_image(const char *name, const mp_kernel_image **out) {
    *out = bsearch(name, mp__kernel_images, (size_t)mp__kernel_image_count,
                   sizeof mp__kernel_images[0], by_name);
    return *out != NULL
               ? MP_OK
               : MP_FAIL(INTERNAL, "there is no kernel named '%s'; kernels.txt lacks a row for it",
                         name);
}

mp_status mp_kernel_cache_host_entry(const char *name, mp_host_entry **out) {
    const mp_kernel_image *image = NULL;
    MP_TRY(find_image(name, &image));
    *out = image->host;
    return MP_OK;
}

mp_status mp_kernel_cache_open(mp_device *device, const char *name, mp_kernel **out) {
    const mp_kernel_image *image = NULL;
    MP_TRY(find_image(name, &image));
    device_kernels *kernels = kernels_find(device);
    mp_status status = MP_OK;
    *out = kernels == NULL ? NULL
                           : atomic_load_explicit(&kernels->slots[image - mp__kernel_images],
                                                  memory_order_acquire);
    if (*out == NULL) {
        (void)pthread_mutex_lock(&lock);
        status = open_kernel(device, image, out);
        (void)pthread_mutex_unlock(&lock);
    }
    return status;
}

mp_status mp_kernel_cache_get(mp_device *device, const char *name, const mp_kernel **out) {
    mp_kernel *kernel = NULL;
    MP_TRY(mp_kernel_cache_open(device, name, &kernel));
    *out = kernel;
    return mp_kernel_batch_add(device, kernel);
}

const char *mp_kernel_cache_name(const mp_device *device, const mp_kernel *kernel) {
    const device_kernels *kernels = kernels_find(device);
    for (int i = 0; kernels != NULL && i < mp__kernel_image_count; i++) {
        if (atomic_load_explicit(&kernels->slots[i], memory_order_acquire) == kernel) {
            return mp__kernel_images[i].name + PREFIX;
        }
    }
    return NULL;
}

void mp_kernel_cache_drop(mp_device *device) {
    mp_table_cache_drop(device);
    mp_fused_kernel_drop(device);
    (void)pthread_mutex_lock(&lock);
    device_kernels *kernels = kernels_find(device);
    for (int i = 0; kernels != NULL && i < mp__kernel_image_count; i++) {
        mp_kernel *kernel = atomic_exchange(&kernels->slots[i], NULL);
        if (kernel != NULL) {
            device->ops->kernel_unload(device, kernel);
        }
    }
    if (kernels != NULL) {
        atomic_store(&kernels->device, NULL);
    }
    (void)pthread_mutex_unlock(&lock);
}
