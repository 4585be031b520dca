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

/* What one lane moves at once: 16 bytes of x on a GPU; a CPU's compiler vectorises by itself. */
#if K_HOST
enum { P_WIDTH = 1 };
#else
enum { P_WIDTH = sizeof(T) < 16 ? 16 / sizeof(T) : 1 };
#endif
typedef struct K_ALIGN(sizeof(T) * P_WIDTH) p_in {
    T lane[P_WIDTH];
} p_in;
typedef struct K_ALIGN(sizeof(P_OUT) * P_WIDTH) p_out {
    P_OUT lane[P_WIDTH];
} p_out;

#endif
