/* cuda_ready.h - kernels that were compiled before the package was installed, so that a first run
 * waits for no compiler.
 *
 * They lie in one file for each architecture, sm_90.kernels, in the folder `kernels` beside this
 * library, in `millpond/kernels` there (/usr/lib has other libraries), or in the one that
 * MILLPOND_KERNELS names ("off": nowhere). tools/ready_kernels.py writes the files. A file
 * holds, in the order of bytes of this machine: a ready_header, its entries in the order of
 * their keys, and what they point at: fatbins, which the driver unpacks. As these end up as code
 * on a GPU, only files are read that nobody else can have written (mp_dynlib_trusts). A kernel
 * that is in no file is compiled; nothing here can fail.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_READY_H
#define MP_DEVICE_CUDA_READY_H

#include "device/cuda/cuda_cache.h"
#include "device/device.h"

#define READY_MAGIC "MPREADY1"

typedef struct ready_header {
    char magic[8];
    uint32_t arch;               /* 90 for compute capability 9.0 */
    uint32_t count;              /* of entries */
    uint8_t sum[MP_SHA256_SIZE]; /* of the entries */
} ready_header;

typedef struct ready_entry {
    uint8_t key[MP_SHA256_SIZE]; /* mp__cuda_ready_key of the kernel */
    uint8_t sum[MP_SHA256_SIZE]; /* of its code */
    uint64_t offset, size;       /* of its code in the file */
} ready_entry;

/* Code for `arch`, or for an earlier one of the same major version, which runs there, too.
 * Gives: `*out`, until its data is freed. Threads: any. Blocks: reads a file. */
bool mp__cuda_ready_load(const mp_kernel_image *image, int arch, cuda_blob *out);

#endif
