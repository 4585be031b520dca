/* kernel_batch.c - see kernel_batch.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/kernel_batch.h"

#include "base/clock.h"
#include "base/growing.h"
#include "base/log.h"
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

/* Whoever waits for a first result is told what for, once a process. */
static void note_wait(const mp_kernel_batch *batch, int64_t ms) {
    enum { LONG_MS = 1000 };
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (ms > LONG_MS && !atomic_flag_test_and_set(&told)) {
        MP_LOG(WARNING,
               "to compile or load %zu kernels took %.1f s; compiled ones are kept for the next "
               "process (see `millpond cache`)",
               batch->count, (double)ms / 1000);
    }
}

static mp_status make_all_ready(const mp_kernel_batch *batch) {
    making m = {.batch = batch};
    const int64_t began = mp_clock_ms();
    mp_worker_run(batch->count, 1, make_ready, &m);
    note_wait(batch, mp_clock_ms() - began);
    return atomic_load(&m.failed) ? make_ready_here(batch) : MP_OK;
}

mp_status mp_kernel_batch_settle(const mp_device *device) {
    for (mp_kernel_batch *batch = current; batch != NULL; batch = batch->outer) {
        if (batch->device == device) {
            MP_TRY(make_all_ready(batch));
            batch->count = 0;
        }
    }
    return MP_OK;
}

mp_status mp_kernel_batch_close(mp_kernel_batch *batch) {
    current = batch->outer;
    const mp_status status = make_all_ready(batch);
    free(batch->kernels);
    return status;
}
