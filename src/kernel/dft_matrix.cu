/* dft_matrix.cu - a Fourier transform as a matrix, with the window in it. A complex number is two
 * rows or two columns: (a + bi)(c + si) = (ac - bs) + (as + bc)i.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/spectrum.h"

K_FN T entry(const mp_dft_matrix_args *args, int64_t t, int32_t in, int64_t k, int32_t out) {
    const s_complex turn = ((const s_complex *)args->turns)[t * k % args->n];
    const T sine = args->inverse ? -turn.im : turn.im;
    T value = in == out ? turn.re : out == 1 ? sine : -sine;
    if (args->hermitian && t != 0 && 2 * t != args->n) {
        value *= 2; /* its mirror adds as much */
    }
    if (args->inverse) {
        value /= (T)args->n;
    }
    return args->window != 0 ? value * ((const T *)args->window)[t] : value;
}

K_KERNEL(mp_dft_matrix_args, args) {
    const int64_t width = args.made * args.out_parts;
    K_GRID_LOOP(i, args.have * args.x_parts * width) {
        const int64_t row = i / width;
        const int64_t column = i - row * width;
        const int64_t t = row / args.x_parts, k = column / args.out_parts;
        ((T *)args.out)[i] = entry(&args, t, (int32_t)(row - t * args.x_parts), k,
                                   (int32_t)(column - k * args.out_parts));
    }
}
