/* pointwise.h - what the kernels of pointwise.def share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_POINTWISE_H
#define MP_KERNEL_POINTWISE_H

#include "kernel/core/prelude.h"
#include "kernel/pointwise/functions.h"

#if K_OUT_BOOL
typedef k_bool P_OUT;
#define P_STORE(value) k_store_bool(value)
#else
typedef T P_OUT;
#define P_STORE(value) T_store(value)
#endif

#endif
