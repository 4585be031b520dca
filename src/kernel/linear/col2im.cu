/* col2im.cu - an image out of blocks that overlap: each place sums what the blocks have for it, in
 * a fixed order and without atomics.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"

/* The block, of all that follow each other, whose element `tap` lies at a place of the image; -1
 * for none. */
K_FN int64_t block_of(const mp_col2im_args *a, int64_t tap, const int64_t *place) {
    int64_t block = 0, size = 1;
    for (int32_t d = a->rank - 1; d >= 0; d--) {
        const int64_t outer = tap / a->kernel[d];
        const int64_t within = tap - outer * a->kernel[d];
        const int64_t start = place[d] + a->pad[d] - within * a->dilation[d];
        const int64_t step = start / a->stride[d];
        if (start < 0 || step * a->stride[d] != start || step >= a->across[d]) {
            return -1;
        }
        block += step * size;
        size *= a->across[d];
        tap = outer;
    }
    return block;
}

/* Of a line without gaps: the taps that meet at a place are a stride apart, and their blocks
 * neighbours, so that nothing else is looked at. */
K_FN void sum_line(const mp_col2im_args *a, const T *__restrict__ x, T *__restrict__ out,
                   int64_t i) {
    const int64_t line = i / a->image[0], at = i - line * a->image[0] + a->pad[0];
    int64_t block = at / a->stride[0];
    TA sum = 0;
    for (int64_t tap = at - block * a->stride[0]; tap < a->taps; tap += a->stride[0], block--) {
        if (block >= 0 && block < a->across[0]) {
            sum += T_load(x[(line * a->taps + tap) * a->blocks + block]);
        }
    }
    out[i] = T_store((TC)sum);
}

K_KERNEL(mp_col2im_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    const int is_line = args.rank == 1 && args.dilation[0] == 1 && args.pad[0] >= 0;
    K_GRID_LOOP(i, args.count) {
        if (is_line) {
            sum_line(&args, x, out, i);
            continue;
        }
        int64_t place[K_RANK_MAX];
        int64_t rest = i;
        for (int32_t d = args.rank - 1; d >= 0; d--) {
            const int64_t outer = rest / args.image[d];
            place[d] = rest - outer * args.image[d];
            rest = outer;
        }
        TA sum = 0;
        for (int64_t tap = 0; tap < args.taps; tap++) {
            const int64_t block = block_of(&args, tap, place);
            if (block >= 0) {
                sum += T_load(x[(rest * args.taps + tap) * args.blocks + block]);
            }
        }
        out[i] = T_store((TC)sum);
    }
}
