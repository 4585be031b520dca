/* indexed.h - where an element points that names another by an index from memory. Memory may hold
 * anything: no index leads outside the tensor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INDEXED_H
#define MP_KERNEL_INDEXED_H

#include "kernel/core/index.h"
#include "kernel/move/indexed_args.h"

/* The offset that element `i` of the walk names, parts out of range drawn to the nearest; *valid
 * tells whether none was. Negative parts count from the end. */
K_FN int64_t k_indexed_at(const k_indexed *walk, int64_t i, int *valid) {
    int64_t at[2];
    k_offsets(&walk->layout, i, 2, at);
    int64_t offset = at[0];
    *valid = 1;
    for (int32_t d = 0; d < walk->depth; d++) {
        const int64_t dim = walk->dim[d];
        int64_t part = walk->is_narrow ? ((const int32_t *)walk->indices)[at[1] + d]
                                       : ((const int64_t *)walk->indices)[at[1] + d];
        part = part < 0 ? part + dim : part;
        *valid &= part >= 0 && part < dim;
        part = part < 0 ? 0 : part >= dim ? dim - 1 : part;
        offset += part * walk->stride[d];
    }
    return offset;
}

#endif
