/* cuda_device.h - GPUs through the CUDA driver, which is loaded on first need.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_DEVICE_H
#define MP_DEVICE_CUDA_DEVICE_H

#include "device/device.h"

/* How many GPUs the driver shows; 0 with a sentence in `*why` where it cannot be loaded. */
int mp__cuda_device_count(const char **why);
mp_status mp__cuda_device_get(int ordinal, mp_device **out);

#endif
