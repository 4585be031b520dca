/* host_math.h - library math of the emulated device, inside.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_MATH_H
#define MP_DEVICE_HOST_MATH_H

#include "device/host/math/host_real.h"
#include "device/math.h"

/* Memory of this thread, aligned to 64, kept until the thread ends and reused by the next call.
 * NULL where there is none. */
void *mp__host_scratch(size_t size);

mp_status mp__host_gemm_run(const mp_gemm *gemm, const mp_addr *operands);

/* `workspace` is what mp__host_conv_workspace asked for. */
mp_status mp__host_conv_run(const mp_conv *conv, const mp_addr *operands, mp_addr workspace);
size_t mp__host_conv_workspace(const mp_conv *conv);

#endif
