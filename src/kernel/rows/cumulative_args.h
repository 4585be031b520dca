/* cumulative_args.h - arguments of cumulative.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SCAN_ARGS_H
#define MP_KERNEL_SCAN_ARGS_H

#include "kernel/core/types.h"

enum { K_SCAN_LANES, K_SCAN_TOTALS, K_SCAN_CARRIES, K_SCAN_WRITE };

/* Rows as in mp_softmax_args, in `pieces` parts of `piece` columns, counted in the direction of the
 * scan. */
typedef struct mp_scan_args {
    const void *x;
    void *out;
    void *carries; /* 8 bytes for each piece: its total, then what lies before it; NULL for 1 */
    int64_t rows, columns, inner, pieces, piece;
    int32_t stage;                       /* K_SCAN_... */
    int32_t product, exclusive, reverse; /* 0 or 1 */
} mp_scan_args;

#endif
