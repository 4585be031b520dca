/* compact.h - the tiles that elements are counted and picked out in.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_COMPACT_H
#define MP_KERNEL_COMPACT_H

#include "kernel/core/prelude.h"
#include "kernel/move/indexed_args.h"

/* The elements of a tile; `*start` is the first one. */
K_FN int64_t k_tile(const mp_compact_args *args, int64_t tile, int64_t *start) {
    *start = tile * args->tile;
    const int64_t left = args->count - *start;
    return left < args->tile ? left : args->tile;
}

#endif
