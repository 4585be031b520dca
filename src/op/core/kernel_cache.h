/* kernel_cache.h - kernels loaded on each device, found by name.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_KERNEL_CACHE_H
#define MP_OP_KERNEL_CACHE_H

#include "device/device.h"

/* The kernel instance `name` (without "mp_k_") on `device`, loaded on first use.
 * Gives: a pointer borrowed from the cache. Threads: any. Blocks: while it compiles.
 * Fails: INTERNAL for a name that kernels.txt lacks, or as kernel_load does. Within a batch
 * (kernel_batch.h) it is ready at its end. */
mp_status mp_kernel_cache_get(mp_device *device, const char *name, const mp_kernel **out);

/* The same, not ready yet. */
mp_status mp_kernel_cache_open(mp_device *device, const char *name, mp_kernel **out);

/* The same text compiled for the CPU. Fails: INTERNAL for a name that kernels.txt lacks. */
mp_status mp_kernel_cache_host_entry(const char *name, mp_host_entry **out);

/* The name of a kernel of the cache, without "mp_k_"; NULL for another. Looks at all of them.
 * Static storage. */
const char *mp_kernel_cache_name(const mp_device *device, const mp_kernel *kernel);

/* Unloads what was loaded for `device`, and frees its tables (table_cache.h) and fused kernels
 * (op/fused/fused_kernel.h); before a device of a
 * test is destroyed. No other call for that device may be under way. */
void mp_kernel_cache_drop(mp_device *device);

#endif
