/* cuda_ahead.h - fills the cache for GPUs that are not here; `millpond compile` calls it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_AHEAD_H
#define MP_DEVICE_CUDA_AHEAD_H

#include "device/device.h"

/* How many kernels: each is counted once among the four below `all`. The Python package has the
 * same struct (python/src/millpond/cli/_compile.py). */
typedef struct cuda_ahead_counts {
    int32_t all;
    int32_t ready;    /* came with the package */
    int32_t cached;   /* lay in the cache before */
    int32_t compiled; /* now, and the cache keeps them */
    int32_t failed;
} cuda_ahead_counts;

/* Compiles into the cache, on all cores, what is in the record of kernels (device/kernel_record.h)
 * and what the CUDA device itself brings, unless it is there: a GPU of architecture `arch` with
 * this NVRTC then finds each of them. Gives: `*out`, also where kernels failed. Threads: any.
 * Blocks: yes. Fails: INVALID_ARGUMENT where NVRTC has no machine code for `arch`, and as
 * mp__cuda_build_kept does for the first kernel that failed. */
MP_MUST_CHECK mp_status mp__cuda_ahead(int arch, cuda_ahead_counts *out);

#endif
