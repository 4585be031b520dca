/* pack.h - some neighbouring elements that one lane makes, so that it divides once for all of them
 * and writes them at once. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PACK_H
#define MP_KERNEL_PACK_H

#include "kernel/core/prelude.h"

enum { K_PACK = sizeof(T) <= 4 ? 4 : sizeof(T) == 8 ? 2 : 1 };
typedef struct K_ALIGN(sizeof(T) * K_PACK) k_pack {
    T lane[K_PACK];
} k_pack;

/* Writes what begins at element `first` of `out`, which has `count`. */
K_FN void k_pack_write(T *out, int64_t first, int64_t count, k_pack made) {
    if ((uint64_t)out % sizeof(k_pack) == 0 && first + K_PACK <= count) {
        *(k_pack *)(out + first) = made;
        return;
    }
    for (int k = 0; k < K_PACK && first + k < count; k++) {
        out[first + k] = made.lane[k];
    }
}

#endif
