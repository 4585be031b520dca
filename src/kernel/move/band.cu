/* band.cu - the part of matrices between two diagonals. Bound by memory; what lies beside the band
 * is not read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/vector.h"
#include "kernel/move/move_args.h"

K_FN int64_t quotient(const mp_band_args *a, int64_t n, int64_t dim, k_divider by) {
    return a->wide ? n / dim : (int64_t)k_divide((uint32_t)n, by);
}

/* Neighbours from element `first` on, column `c` of row `r` of a matrix. */
K_FN k_vector by_elements(const mp_band_args *a, int64_t first, int64_t r, int64_t c) {
    const T *x = (const T *)a->x;
    k_vector made;
    K_UNROLL for (int k = 0; k < K_VECTOR; k++) {
        if (c == a->columns) {
            c = 0;
            r = r + 1 < a->rows ? r + 1 : 0;
        }
        made.lane[k] = 0;
        if (c - r >= a->low && c - r <= a->high && first + k < a->count) {
            made.lane[k] = x != 0 ? x[first + k] : (T)a->one;
        }
        c++;
    }
    return made;
}

K_KERNEL(mp_band_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    T *out = (T *)args.out;
    const int is_aligned = x != 0 && (uint64_t)x % sizeof(k_vector) == 0;
    K_ONE_COPY
    K_GRID_LOOP(i, (args.count + K_VECTOR - 1) / K_VECTOR) {
        const int64_t first = i * K_VECTOR;
        const int64_t row = quotient(&args, first, args.columns, args.by_columns);
        const int64_t c = first - row * args.columns;
        const int64_t r = row - quotient(&args, row, args.rows, args.by_rows) * args.rows;
        const int64_t last = c + K_VECTOR - 1;
        const int in_row = last < args.columns;
        k_vector made;
        if (in_row && (last - r < args.low || c - r > args.high)) {
            K_UNROLL for (int k = 0; k < K_VECTOR; k++) {
                made.lane[k] = 0;
            }
        } else if (in_row && is_aligned && c - r >= args.low && last - r <= args.high) {
            made = *(const k_vector *)(x + first);
        } else {
            made = by_elements(&args, first, r, c);
        }
        k_vector_write(out, first, args.count, made);
    }
}
