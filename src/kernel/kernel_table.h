/* kernel_table.h - every kernel instance, sorted by name; generated from kernels.txt.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_KERNEL_TABLE_H
#define MP_KERNEL_KERNEL_TABLE_H

#include "device/device.h"

extern const mp_kernel_image mp__kernel_images[]; /* names start with "mp_k_" */
extern const int mp__kernel_image_count;

#endif
