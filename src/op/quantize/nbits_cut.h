/* nbits_cut.h - how nbits_tile.cu cuts a product of some rows with packed weights.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_NBITS_CUT_H
#define MP_OP_NBITS_CUT_H

#include "device/device.h"
#include "kernel/quantize/quantize_args.h"

/* Integers of 4 or 8 bits and rows of `size` bytes an element, 2 or 4; `n` columns, of both halves
 * where one gates the other. */
typedef struct mp_nbits_work {
    int64_t m, n, k;
    int bits, size;
    bool zeros, gated;
} mp_nbits_work;

typedef struct mp_nbits_cut {
    int32_t rows;       /* of a tile, as kernels.txt has them */
    int32_t splits_log; /* 2 to the power of it blocks share the sums of a tile */
    uint32_t blocks;
    k_nbits_shared shared;
} mp_nbits_cut;

/* False where another way is better, or the device cannot. */
bool mp_nbits_cut_for(const mp_device_info *info, const mp_nbits_work *work, mp_nbits_cut *out);

#endif
