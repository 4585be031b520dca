/* kernel_batch.h - kernels that are asked for while a program is planned are made ready together.
 *
 * The first run of a program may want dozens of kernels that are compiled or read from disk. Within
 * a batch a kernel is only opened when it is asked for; what the plans need of it is where it is.
 * At the end all are made ready, on all cores.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_KERNEL_BATCH_H
#define MP_OP_KERNEL_BATCH_H

#include "device/device.h"

typedef struct mp_kernel_batch {
    mp_device *device;             /* borrowed */
    struct mp_kernel_batch *outer; /* that was open before */
    mp_kernel **kernels;           /* owned */
    size_t count, capacity;
} mp_kernel_batch;

/* What this thread asks for on `device` is left to the end of the batch. Borrows: `batch`, until it
 * is closed by the same thread; batches nest. */
void mp_kernel_batch_open(mp_kernel_batch *batch, mp_device *device);

/* Nothing that was planned within may run before this was MP_OK.
 * Blocks: while kernels are compiled. Fails: as kernel_ready. */
mp_status mp_kernel_batch_close(mp_kernel_batch *batch);

/* Makes ready what this thread has asked for on `device` so far, for work that is queued while a
 * batch is open. Blocks: while kernels are compiled. Fails: as kernel_ready. */
mp_status mp_kernel_batch_settle(const mp_device *device);

/* Makes an opened kernel ready, now or when the batch of this thread closes. */
mp_status mp_kernel_batch_add(mp_device *device, mp_kernel *kernel);

#endif
