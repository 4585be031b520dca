/* kernel_batch.c - see kernel_batch.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/kernel_batch.h"

#include "base/growing.h"
#include "base/worker.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct making {
    const mp_kernel_batch *batch;
    atomic_bool failed;
} making;

static _Thread_local mp_kernel_batch *current;

void mp_kernel_batch_open(mp_kernel_batch *batch, mp_device *device) {
    *batch = (mp_kernel_batch){.device = device, .outer = current};
    current = batch;
}

mp_status mp_kernel_batch_add(mp_device *device, mp_kernel *kernel) {
    mp_kernel_batch *batch = current;
    while (batch != NULL && batch->device != device) {
        batch = batch->outer;
    }
    if (batch == NULL ||
        !mp_grow(&batch->kernels, batch->count + 1, &batch->capacity, sizeof(mp_kernel *))) {
        return device->ops->kernel_ready(device, kernel);
    }
    batch->kernels[batch->count++] = kernel;
    return MP_OK;
}

static void make_ready(void *context, size_t begin, size_t end) {
    making *m = context;
    mp_device *device = m->batch->device;
    for (size_t i = begin; i < end; i++) {
        if (device->ops->kernel_ready(device, m->batch->kernels[i]) != MP_OK) {
            atomic_store(&m->failed, true);
        }
    }
}

/* The sentence of an error belongs to a thread, so what failed on another is tried once more here.
 */
static mp_status make_ready_here(const mp_kernel_batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        MP_TRY(batch->device->ops->kernel_ready(batch->device, batch->kernels[i]));
    }
    return MP_OK;
}

mp_status mp_kernel_batch_close(mp_kernel_batch *batch) {
    making m = {.batch = batch};
    current = batch->outer;
    mp_worker_run(batch->count, 1, make_ready, &m);
    const mp_status status = atomic_load(&m.failed) ? make_ready_here(batch) : MP_OK;
    free(batch->kernels);
    return status;
}
