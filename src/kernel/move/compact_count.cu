/* compact_count.cu - which elements are not zero, and how many of each tile. NaN is not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/move/compact.h"

enum { C_RUN_BYTES = C_RUN * sizeof(T) < 16 ? C_RUN * sizeof(T) : 16 };

typedef struct K_ALIGN(C_RUN_BYTES) c_run {
    T at[C_RUN];
} c_run;

/* The mask of the lane's runs from `i` on, of a tile of `size` elements at `x`. */
K_FN uint32_t c_read(const mp_compact_args *args, const T *x, int64_t size, int64_t i) {
    c_run runs[C_RUNS];
    if ((args->flags & K_COMPACT_PACKED) && size - i >= (int64_t)blockDim.x * K_COMPACT_EACH) {
        K_UNROLL
        for (int32_t r = 0; r < C_RUNS; r++) {
            runs[r] = *(const c_run *)(const void *)(x + c_place(i, r));
        }
    } else {
        K_UNROLL
        for (int32_t r = 0; r < C_RUNS; r++) {
            const int64_t first = c_place(i, r);
            K_UNROLL
            for (int e = 0; e < C_RUN; e++) {
                runs[r].at[e] = first + e < size ? x[first + e] : T_store(0);
            }
        }
    }
    uint32_t mask = 0;
    K_UNROLL
    for (int32_t r = 0; r < C_RUNS; r++) {
        K_UNROLL
        for (int e = 0; e < C_RUN; e++) {
            mask |= (uint32_t)(T_load(runs[r].at[e]) != (TC)0) << (r * C_RUN + e);
        }
    }
    return mask;
}

K_BLOCK_KERNEL(mp_compact_args, args) {
    for (int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        int64_t start = 0, all = 0;
        const int64_t size = k_tile(&args, tile, &start);
        for (int64_t i = 0; i < size; i += (int64_t)blockDim.x * K_COMPACT_EACH) {
            const uint32_t mask = c_read(&args, (const T *)args.x + start, size, i);
            *c_mask(&args, start + i) = (uint16_t)mask;
            all += c_count(mask);
        }
        all = k_block_sum_i64(all);
        if (threadIdx.x == 0) {
            args.starts[tile] = all;
        }
    }
}
