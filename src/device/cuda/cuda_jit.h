/* cuda_jit.h - kernel text to code for one GPU architecture, through NVRTC and the cache.
 *
 * Nothing here needs a driver or a GPU, so that every kernel can be compiled for every
 * architecture on any machine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_JIT_H
#define MP_DEVICE_CUDA_JIT_H

#include "device/cuda/cuda_cache.h"
#include "device/device.h"

enum { CUDA_ARCHS_MAX = 128 };

/* Compiles, past the cache. `arch` is 90 for compute capability 9.0; where NVRTC does not know it
 * yet, the result is PTX for the newest architecture it knows, which the driver translates.
 * Gives: `*out`, until its data is freed. Threads: any. Blocks: yes.
 * Fails: NOT_FOUND (no NVRTC), UNSUPPORTED (GPU too old), INVALID_ARGUMENT with the first error. */
MP_MUST_CHECK mp_status mp__cuda_compile(const mp_kernel_image *image, int arch, cuda_blob *out);

/* As mp__cuda_compile, but from the cache where it is there. */
MP_MUST_CHECK mp_status mp__cuda_build(const mp_kernel_image *image, int arch, cuda_blob *out);

/* As mp__cuda_build, for later processes. Gives: `*found`, whether the cache had it already.
 * Fails: as mp__cuda_build, and INTERNAL where the cache does not keep it. */
MP_MUST_CHECK mp_status mp__cuda_build_kept(const mp_kernel_image *image, int arch, bool *found);

/* Whether mp__cuda_build would find it in the cache. Loads NVRTC, whose version decides. Threads:
 * any. Blocks: reads a file. */
bool mp__cuda_is_cached(const mp_kernel_image *image, int arch);

/* By what a kernel is known that was compiled for `arch` before the package was installed; see
 * cuda_ready.h. Needs no compiler. Fails: OUT_OF_MEMORY. */
MP_MUST_CHECK mp_status mp__cuda_ready_key(const mp_kernel_image *image, int arch,
                                           uint8_t key[MP_SHA256_SIZE]);

/* As mp__cuda_compile, but machine code for `arch` itself with the kernel's name in it, or nothing.
 * Fails: as mp__cuda_compile, and UNSUPPORTED where NVRTC does not know `arch`. */
MP_MUST_CHECK mp_status mp__cuda_compile_native(const mp_kernel_image *image, int arch,
                                                cuda_blob *out);

/* The kernels that the CUDA device itself brings (cuda_glue.c). */
const mp_kernel_image *mp__cuda_own_images(size_t *count);

/* Fails where NVRTC cannot be loaded, with the remedy. */
MP_MUST_CHECK mp_status mp__cuda_compiler_version(int *major, int *minor);

/* The architectures that NVRTC makes machine code for. Fails: as mp__cuda_compiler_version. */
MP_MUST_CHECK mp_status mp__cuda_compiler_archs(int archs[CUDA_ARCHS_MAX], int *count);

#endif
