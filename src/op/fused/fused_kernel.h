/* fused_kernel.h - the kernels of expressions, each made once a device.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUSED_KERNEL_H
#define MP_OP_FUSED_KERNEL_H

#include "op/fused/fused_program.h"

typedef struct mp_fused_kernel {
    const mp_kernel *kernel;
    const mp_fused_program *program; /* NULL on a GPU */
    mp_addr stand_in; /* table of the kernel that may stand in for it; 0: none does */
} mp_fused_kernel;

/* The kernel of the expression on `device`, whatever its numbers are; made on first use. Gives:
 * `*out`, borrowed until mp_fused_kernel_drop. Threads: any. Blocks: while it compiles, unless
 * another stands in for it meanwhile (MILLPOND_STAND_IN=off: none does).
 * Fails: as kernel_load, OUT_OF_MEMORY (host). Within a batch (op/core/kernel_batch.h) it is ready
 * at its end, or has its stand-in. */
mp_status mp_fused_kernel_get(mp_device *device, const mp_expression *e, const mp_reading *readings,
                              mp_fused_kernel *out);

/* The name of such a kernel, without "mp_k_"; NULL for another. Borrowed until
 * mp_fused_kernel_drop.
 */
const char *mp_fused_kernel_name(const mp_device *device, const mp_kernel *kernel);

/* Unloads the fused kernels of `device`; mp_kernel_cache_drop calls it. */
void mp_fused_kernel_drop(mp_device *device);

#endif
