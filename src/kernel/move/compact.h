/* compact.h - tiles in which elements are counted and picked out, and the runs that a lane reads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_COMPACT_H
#define MP_KERNEL_COMPACT_H

#include "kernel/core/prelude.h"
#include "kernel/move/indexed_args.h"

enum {
    C_RUN = 4,  /* neighbours of a run */
    C_RUNS = 4, /* runs of a lane that are on their way together; so many numbers fit in 64 bits */
    C_RUN_BYTES = C_RUN * sizeof(T) < 16 ? C_RUN * sizeof(T) : 16,
};

typedef struct K_ALIGN(C_RUN_BYTES) c_run {
    T at[C_RUN];
} c_run;

/* The elements of a tile; `*start` is the first one. */
K_FN int64_t k_tile(const mp_compact_args *args, int64_t tile, int64_t *start) {
    *start = tile * args->tile;
    const int64_t left = args->count - *start;
    return left < args->tile ? left : args->tile;
}

/* Where run `r` of this lane begins, of those that all lanes read together from `i` on. */
K_FN int64_t c_place(int64_t i, int32_t r) {
    return i + ((int64_t)r * blockDim.x + threadIdx.x) * C_RUN;
}

/* Bit e: element e of a run is not zero. NaN is not. */
K_FN uint32_t c_found(const c_run *run) {
    uint32_t found = 0;
    K_UNROLL
    for (int e = 0; e < C_RUN; e++) {
        found |= (uint32_t)(T_load(run->at[e]) != (TC)0) << e;
    }
    return found;
}

/* What is found in the lane's runs from `i` on, of a tile of `size` elements at `x`. */
K_FN void c_read(const mp_compact_args *args, const T *x, int64_t size, int64_t i,
                 uint32_t *found) {
    c_run runs[C_RUNS];
    if ((args->flags & K_COMPACT_PACKED) && size - i >= (int64_t)blockDim.x * C_RUN * C_RUNS) {
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
    K_UNROLL
    for (int32_t r = 0; r < C_RUNS; r++) {
        found[r] = c_found(&runs[r]);
    }
}

K_FN uint32_t c_count(uint32_t found) {
    uint32_t count = 0;
    K_UNROLL
    for (int e = 0; e < C_RUN; e++) {
        count += found >> e & 1;
    }
    return count;
}

#endif
