/* kernel_record.h - the kernels that emulated devices were asked for, so that they can be compiled
 * for GPUs that are not here (device/cuda/cuda_ahead.h).
 *
 * Nothing is noted until somebody starts the record, and nothing that is on a hot path asks for it:
 * kernels are loaded while programs are planned.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_KERNEL_RECORD_H
#define MP_DEVICE_KERNEL_RECORD_H

#include "device/device.h"

/* From now on, for good; before the first emulated device is opened, since that then says that it
 * has as many multiprocessors as a large GPU, whatever machine this is: plans choose kernels by
 * them. Threads: any. */
void mp_kernel_record_start(void);

/* Whether images need the text that GPUs compile, also where the emulated device does not. */
bool mp_kernel_record_on(void);

/* Notes the image, if the record was started. Borrows: `image`, until mp_kernel_record_remove.
 * Fails: OUT_OF_MEMORY (host). Threads: any. */
MP_MUST_CHECK mp_status mp_kernel_record_add(const mp_kernel_image *image);

/* Takes back one addition of the image, if there was one. Threads: any. */
void mp_kernel_record_remove(const mp_kernel_image *image);

/* The images, each once, in the order in which they came: at most `most` of them go to `out`.
 * Gives: how many there are. Threads: any. */
size_t mp_kernel_record_list(const mp_kernel_image **out, size_t most);

#endif
