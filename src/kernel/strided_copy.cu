/* strided_copy.cu - moves elements between two layouts: slices, expansions, general transpositions.
 * Neighbouring lanes write neighbouring elements. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/index.h"
#include "kernel/movement_args.h"
#include "kernel/pack.h"

/* The offset in x of the row of this number. */
K_FN int64_t row_of(const k_layout *layout, int64_t row) {
    int64_t at = 0;
    for (int32_t d = layout->rank - 2; d > 0; d--) {
        const int64_t outer = layout->wide ? row / layout->dim[d]
                                           : (int64_t)k_divide((uint32_t)row, layout->divider[d]);
        at += (row - outer * layout->dim[d]) * layout->stride[0][d];
        row = outer;
    }
    return layout->rank > 1 ? at + row * layout->stride[0][0] : 0;
}

/* Where out is written from its first element to its last: several elements a lane. */
K_FN void copy_in_order(const mp_strided_copy_args *a) {
    const T *__restrict__ x = (const T *)a->x;
    const k_layout *layout = &a->layout;
    const int32_t inner = layout->rank - 1;
    const int64_t length = layout->dim[inner], step = layout->stride[0][inner];
    const int64_t packs = (a->count + K_PACK - 1) / K_PACK;
    K_GRID_LOOP(i, packs) {
        const int64_t first = i * K_PACK;
        int64_t row = layout->wide ? first / length
                                   : (int64_t)k_divide((uint32_t)first, layout->divider[inner]);
        int64_t c = first - row * length;
        int64_t at = row_of(layout, row);
        k_pack made;
        for (int k = 0; k < K_PACK; k++) {
            if (c == length && first + k < a->count) {
                c = 0;
                at = row_of(layout, ++row);
            }
            made.lane[k] = x[at + (c < length ? c : length - 1) * step];
            c++;
        }
        k_pack_write((T *)a->out, first, a->count, made);
    }
}

K_KERNEL(mp_strided_copy_args, args) {
    if (args.in_order) {
        copy_in_order(&args);
        return;
    }
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        out[at[1]] = x[at[0]];
    }
}
