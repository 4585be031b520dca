/* spectrum_args.h - arguments of the kernels of Fourier transforms.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SPECTRUM_ARGS_H
#define MP_KERNEL_SPECTRUM_ARGS_H

#include "kernel/types.h"

/* Where the rows of a side lie, in elements of `parts` numbers each: element t of row r is at
 * (r / minor_rows) * major + (r % minor_rows) * minor + t * step. */
typedef struct mp_spectrum_side {
    int64_t major, minor, step;
    int32_t parts; /* 1: real, 2: complex */
    int32_t unused;
} mp_spectrum_side;

/* Transforms of length n of `rows` rows. */
typedef struct mp_spectrum_args {
    const void *x, *window, *turns; /* window: NULL or `have` numbers; turns: as of turns.cu */
    void *out;
    int64_t rows, minor_rows;
    int64_t n, have, made; /* elements of x beyond `have` are 0; of out the first `made` are kept */
    mp_spectrum_side from, to;
    int32_t inverse;
    int32_t hermitian;  /* x is the first half of a spectrum whose other half mirrors it */
    int32_t n_bits;     /* fft.cu: n is 1 << n_bits, */
    int32_t group_bits; /* and 1 << group_bits rows are transformed together */
} mp_spectrum_args;

/* out[k] = (cos, -sin) of k / n turns */
typedef struct mp_turns_args {
    void *out;
    int64_t n;
} mp_turns_args;

/* A matrix of have * x_parts rows and made * out_parts columns. */
typedef struct mp_dft_matrix_args {
    const void *window, *turns;
    void *out;
    int64_t n, have, made;
    int32_t x_parts, out_parts, inverse, hermitian;
} mp_dft_matrix_args;

#endif
