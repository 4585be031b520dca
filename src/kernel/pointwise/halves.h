/* halves.h - rows of which both halves make the result: where elements lie, and packs of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_HALVES_H
#define MP_KERNEL_HALVES_H

#include "kernel/core/index.h"
#include "kernel/pointwise/pointwise_args.h"

enum { PACK = 16 / sizeof(T) };
typedef struct K_ALIGN(16) h_pack {
    T at[PACK];
} h_pack;

/* The first element of pack `i`, or element `i`, of the result: in x, whose other half is `half`
 * elements on, in a row, and in the result. */
typedef struct h_place {
    int64_t in, column, out;
} h_place;

K_FN h_place h_at(const mp_halves *halves, int64_t i) {
    const int64_t row =
        halves->wide ? i / halves->per_row : (int64_t)k_divide((uint32_t)i, halves->by_row);
    h_place place;
    place.column = (i - row * halves->per_row) * (halves->packed ? PACK : 1);
    place.in = row * 2 * halves->half + place.column;
    place.out = row * halves->half + place.column;
    return place;
}

#endif
