/* cuda_profile.h - the functions that CUPTI calls, for a test that plays CUPTI.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_PROFILE_H
#define MP_DEVICE_CUDA_PROFILE_H

#include "device/cuda/cuda_pti.h"

pti_callback mp__cuda_profile_callback;
pti_buffer_give mp__cuda_profile_give;
pti_buffer_take mp__cuda_profile_take;

#endif
