/* signal_args.h - arguments of the kernels of Fourier transforms, windows and mel weights.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SIGNAL_ARGS_H
#define MP_KERNEL_SIGNAL_ARGS_H

#include "kernel/core/index_args.h"

enum {
    K_FFT_ODD_MAX = 16,    /* odd factors of a length in shared memory, and one more */
    K_FFT_LANES_MAX = 1024 /* of a block */
};

/* Where the rows of a side lie, in elements of `parts` numbers each: element t of row r is at
 * (r / minor_rows) * major + (r % minor_rows) * minor + t * step. */
typedef struct mp_spectrum_side {
    int64_t major, minor, step;
    int32_t parts;   /* 1: real, 2: complex */
    int32_t aligned; /* complex numbers, or pairs, are read and written whole */
} mp_spectrum_side;

/* What a block keeps of each of its rows, before the points in shared memory. */
typedef struct mp_fft_row {
    int64_t from, to; /* of the row of the tensor, in elements */
    int64_t part;     /* element t of the pass is t * strands + part of the row */
    int64_t base;     /* part without what is less than `done` */
} mp_fft_row;

/* Real numbers two by two as complex ones, so that a row of them is half as long: those of x, or
 * those that are made. */
enum { K_FFT_PAIRS_NONE, K_FFT_PAIRS_IN, K_FFT_PAIRS_OUT };

/* What the numbers of a tensor are: of the type that is computed in, or narrower than float. */
enum { K_FFT_WIDE, K_FFT_F16, K_FFT_BF16 };

/* One pass of a transform of rows. A row of `strands` * `length` elements takes passes whose
 * lengths have that product; `done` is that of the passes before. With one pass strands and done
 * are 1. */
typedef struct mp_spectrum_args {
    const void *x;
    const void *window; /* NULL, or `have` real factors of x */
    const void *roots;  /* as roots.cu makes them: of `length`; */
    const void *fine;   /* of the row, 1 << fine_bits of them; NULL in the last pass */
    const void *coarse; /* of the row, each (1 << fine_bits)-th */
    const void *weight_in, *weight_out; /* NULL, or complex factors */
    const void *turns;                  /* with pairs: the first n / 2 roots of n */
    void *out;
    int64_t rows, minor_rows; /* of the tensor */
    int64_t n, have, made; /* elements of x from n or `have` on are 0; the first `made` are kept */
    int64_t strands, done;
    int64_t real_length; /* not 0: the first element is real, and the one at half this length */
    mp_spectrum_side from, to;
    double scale;
    int32_t hermitian; /* x is the first half of a spectrum of n whose other half mirrors it */
    int32_t conjugate_in, conjugate_out;
    int32_t by_strand; /* the strands of a row lie side by side, otherwise the minor rows */
    int32_t length;    /* odd << n_bits */
    int32_t n_bits;
    int32_t group_bits; /* 1 << group_bits rows are transformed together */
    int32_t fine_bits;
    int32_t pairs;                 /* K_FFT_PAIRS_...: the row is of n / 2 pairs; takes one pass */
    int32_t narrow_in, narrow_out; /* of x and window, and of out: K_FFT_WIDE, ... */
    k_divider by_length, by_odd;
    uint8_t odd_factors[K_FFT_ODD_MAX]; /* ends with 0 */
} mp_spectrum_args;

/* ---- rows whose length is a power of two (fft_power.cu) ---- */

enum {
    K_FFT_EACH_BITS = 4, /* a lane holds 1 << EACH_BITS elements of a row of 1 << bits; */
    K_FFT_BITS_MIN = 5,
    K_FFT_BITS_MAX = 13,
    K_FFT_BLOCK_LANES = 128, /* of several rows together, at most */
    K_FFT_TABLES = 4,        /* of roots: one a step but for the first */
    K_FFT_ACROSS_MAX = 11,   /* bits of rows across others: 4 or more of them make a block */
    K_FFT_GAP = 16           /* elements in shared memory, then room for one */
};

/* A row takes a step of 1 << FIRST_BITS branches, some of 1 << EACH_BITS and one of 1 << LAST_BITS.
 * The one next to a spectrum of pairs has half of EACH at most: so a lane has two columns. */
#define K_FFT_REST(bits)          ((bits) % K_FFT_EACH_BITS)
#define K_FFT_IS_CUT(bits, pairs) ((pairs) != K_FFT_PAIRS_NONE && K_FFT_REST(bits) == 0)
#define K_FFT_FIRST_BITS(bits, pairs)                   \
    (K_FFT_IS_CUT(bits, pairs)    ? K_FFT_EACH_BITS / 2 \
     : (pairs) == K_FFT_PAIRS_OUT ? K_FFT_REST(bits)    \
                                  : K_FFT_EACH_BITS)
#define K_FFT_LAST_BITS(bits, pairs)                                                               \
    (K_FFT_IS_CUT(bits, pairs)                             ? K_FFT_EACH_BITS - K_FFT_EACH_BITS / 2 \
     : (pairs) == K_FFT_PAIRS_OUT || K_FFT_REST(bits) == 0 ? K_FFT_EACH_BITS                       \
                                                           : K_FFT_REST(bits))
/* Elements that a row takes in shared memory. */
#define K_FFT_ROW(bits) ((1 << (bits)) + (1 << (bits)) / K_FFT_GAP)
/* Rows whose neighbours lie side by side make blocks of 1 << ACROSS_BITS: what they have of an
 * element is a line of memory, or half of one or a sector where a block has no room for more. */
#define K_FFT_ACROSS_BITS(bits) ((bits) <= 8 ? 4 : (bits) <= 10 ? 3 : 2)

/* Rows of complex numbers, or of pairs of real ones. Their elements lie side by side, or a step
 * apart, across the other rows. All that counts elements counts those. */
typedef struct mp_fft_power_args {
    const void *x;
    const void *window;              /* NULL, or pairs of real factors */
    const void *roots[K_FFT_TABLES]; /* of what a step makes, as roots.cu has them in columns */
    const void *turns;               /* with pairs: the first N roots of 2 N */
    void *out;
    int64_t from_major, from_minor, to_major, to_minor; /* as in mp_spectrum_side */
    int32_t from_step, to_step;                         /* of rows across others */
    double scale;                                       /* of an inverse transform */
    int32_t rows;
    uint32_t minor_rows;
    k_divider by_minor;
    int32_t have;       /* elements of a row of x; further ones are 0 */
    int32_t group_bits; /* of rows that are not across others */
    int32_t inverse;
    int32_t whole; /* the mirrored half of the spectrum of real numbers is written, too */
    int32_t narrow_in, narrow_out; /* of x and window, and of out: K_FFT_WIDE or K_FFT_F16 */
} mp_fft_power_args;

/* out[k] = (cos, -sin) of k * step / n turns. With `chirp`, of d * d / n turns where d is the
 * distance from k to 0 or to `count`, and 0 where that is n / 2 or more. With columns the
 * product of k's row and column stands for k. */
typedef struct mp_roots_args {
    void *out;
    int64_t n, count, step;
    int64_t columns;        /* or 0 */
    int32_t chirp, inverse; /* the other way round */
} mp_roots_args;

/* out[i] = a0 - a1 cos(2 pi i / period) + a2 cos(4 pi i / period) */
typedef struct mp_cosine_window_args {
    void *out;
    int64_t count, period; /* period is at least 1 */
    double a0, a1, a2;
    int32_t type; /* of out, as ONNX numbers them */
    int32_t unused;
} mp_cosine_window_args;

typedef struct mp_mel_args {
    const int64_t *edge; /* bands + 2 bins, ascending: a band lies between those beside its own */
    void *out;           /* [bins][bands] */
    int64_t bins, bands;
    int32_t type; /* of out, as ONNX numbers them */
    int32_t unused;
} mp_mel_args;

/* The cheapest way through a matrix from its first element to its last. */
typedef struct mp_time_warp_args {
    const float *cost; /* [rows][columns] */
    float *best;       /* [3][rows]: what it costs to get to each element of a diagonal */
    int8_t *from;      /* [rows][columns]: K_WARP_... */
    int32_t *path;     /* [2][rows + columns]: rows and columns, at the ends */
    int64_t *length;   /* of the path */
    int64_t rows, columns;
} mp_time_warp_args;

/* From which neighbour an element is reached. */
enum { K_WARP_BOTH, K_WARP_ROW, K_WARP_COLUMN };

#endif
