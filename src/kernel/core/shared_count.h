/* shared_count.h - counters in shared memory. Sums of integers come out the same in any order.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SHARED_COUNT_H
#define MP_KERNEL_SHARED_COUNT_H

#include "kernel/core/prelude.h"

K_FN void k_shared_add(uint32_t *counter, uint32_t value) {
#if K_HOST
    *counter += value; /* lanes of a block take turns at barriers only */
#else
    atomicAdd(counter, value);
#endif
}

#endif
