/* box_copy.cu - moves elements whose neighbours in the source and in the target lie along
 * dimensions that are short, such as those of a pixel that is taken apart: a block reads a box that
 * is long in runs of either, in the order of the source, and writes it in that of the target.
 *
 *     x: r g b R G B | ..    shared: r g b R G B ..    out: r R .. g G .. b B ..
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

enum { PACK = K_BOX_PACK(sizeof(T)), LINE = K_BOX_LINE(sizeof(T)), GAP = K_BOX_GAP(sizeof(T)) };

typedef struct K_ALIGN(16) pack {
    T at[PACK];
} pack;

/* Where the element of this number lies in shared memory. */
K_FN uint32_t place_of(uint32_t n) {
    return n + n / LINE * GAP;
}

K_FN void read_box(const mp_box_copy_args *a, const T *__restrict__ from, T *shared) {
    if (a->reads_packs) {
        for (uint32_t i = threadIdx.x * PACK; i < a->size; i += blockDim.x * PACK) {
            int64_t at = 0;
            k_offsets_narrow(&a->read, i, 1, &at);
            const pack in = *(const pack *)(from + at);
            K_UNROLL
            for (uint32_t k = 0; k < PACK; k++) {
                shared[place_of(i + k)] = in.at[k];
            }
        }
        return;
    }
    for (uint32_t i = threadIdx.x; i < a->size; i += blockDim.x) {
        int64_t at = 0;
        k_offsets_narrow(&a->read, i, 1, &at);
        shared[place_of(i)] = from[at];
    }
}

/* Packs lie in rows of one or of the two innermost dimensions, one after the other in out. */
K_FN void write_packs(const mp_box_copy_args *a, T *__restrict__ to, const T *shared) {
    const k_layout *layout = &a->write;
    const int32_t inner = layout->rank - 1;
    const uint32_t columns = (uint32_t)layout->dim[inner];
    const uint32_t step = (uint32_t)layout->stride[0][inner];
    const uint32_t next = inner > 0 ? (uint32_t)layout->stride[0][inner - 1] - columns * step : 0;
    for (uint32_t i = threadIdx.x * PACK; i < a->size; i += blockDim.x * PACK) {
        int64_t at[2];
        k_offsets_narrow(layout, i, 2, at);
        uint32_t c = inner > 0 ? i - k_divide(i, layout->divider[inner]) * columns : i;
        uint32_t n = (uint32_t)at[0];
        pack made;
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            made.at[k] = shared[place_of(n)];
            n += step;
            c++;
            if (c == columns) {
                c = 0;
                n += next;
            }
        }
        *(pack *)(to + at[1]) = made;
    }
}

K_FN void write_elements(const mp_box_copy_args *a, T *__restrict__ to, const T *shared) {
    for (uint32_t i = threadIdx.x; i < a->size; i += blockDim.x) {
        int64_t at[2];
        k_offsets_narrow(&a->write, i, 2, at);
        to[at[1]] = shared[place_of((uint32_t)at[0])];
    }
}

K_BLOCK_KERNEL(mp_box_copy_args, args) {
    K_SHARED(T, shared);
    for (uint32_t i = blockIdx.x; i < (uint32_t)args.boxes; i += gridDim.x) {
        int64_t at[2];
        k_offsets_narrow(&args.box, i, 2, at);
        read_box(&args, (const T *)args.x + at[0], shared);
        __syncthreads();
        if (args.writes_packs) {
            write_packs(&args, (T *)args.out + at[1], shared);
        } else {
            write_elements(&args, (T *)args.out + at[1], shared);
        }
        __syncthreads();
    }
}
