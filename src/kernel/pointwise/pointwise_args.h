/* pointwise_args.h - arguments of the element-wise kernels, of tables and of random numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_POINTWISE_ARGS_H
#define MP_KERNEL_POINTWISE_ARGS_H

#include "kernel/core/index_args.h"

typedef struct mp_pointwise1_args {
    const void *x;
    void *out;
    int64_t count;
    float a, b; /* attributes of the operator */
} mp_pointwise1_args;

typedef struct mp_pointwise2_args {
    const void *x, *y;
    void *out;
    float a, b;
    k_walk walk; /* view 0 is x, view 1 is y */
} mp_pointwise2_args;

/* The exponent y has a type of its own. */
typedef struct mp_pow_args {
    const void *x, *y;
    void *out;
    k_walk walk; /* view 0 is x, view 1 is y */
} mp_pow_args;

typedef struct mp_clip_args {
    const void *x, *low, *high; /* low and high: one element each, or NULL */
    void *out;
    int64_t count;
} mp_clip_args;

enum { K_FOLD_INPUTS = 8 };

/* All of one size. */
typedef struct mp_fold_args {
    const void *in[K_FOLD_INPUTS];
    void *out;
    int64_t count;
    int32_t inputs;  /* 2 to K_FOLD_INPUTS */
    int32_t whole;   /* all begin at multiples of 16 bytes */
    int32_t goes_on; /* input 0 is what others were folded to before */
    int32_t mean_of; /* each input counts one of so many; 0: as it is */
} mp_fold_args;

typedef struct mp_where_args {
    const void *condition, *x, *y;
    void *out;
    k_walk walk; /* views: 0 condition, 1 x, 2 y */
} mp_where_args;

typedef struct mp_range_args {
    void *out;
    int64_t count;
    int64_t start, delta;            /* of integers */
    double start_float, delta_float; /* of floats */
} mp_range_args;

/* Rows of 2 * half elements, of which the result has `half`. */
typedef struct mp_halves {
    int64_t half;
    int64_t count, per_row; /* of the result: packs of 16 bytes, or elements */
    k_divider by_row;       /* unless `wide`: count is 2^31 or more */
    int32_t packed, wide;
} mp_halves;

typedef struct mp_split_gelu_args {
    const void *x, *bias;
    void *out;
    mp_halves halves;
} mp_split_gelu_args;

/* What one half of a row becomes. */
enum { K_GATE_SWISH, K_GATE_GELU, K_GATE_GELU_BY_TANH };

typedef struct mp_gated_halves_args {
    const void *x;
    void *out;
    mp_halves halves;
    int64_t gate_from; /* where the half begins that gates the other: 0, or halves.half */
    int32_t gate;
    float alpha; /* of K_GATE_SWISH */
} mp_gated_halves_args;

/* Complex numbers: pairs of elements, the real part first. */
typedef struct mp_complex_mul_args {
    const void *x, *y;
    void *out;
    k_walk walk;       /* over pairs; view 0 is x, view 1 is y */
    int32_t conjugate; /* the second factor's imaginary part has its sign changed */
    int32_t unused;
} mp_complex_mul_args;

/* ---- tables ---- */

/* How both sides write a key: integers by their bits, without their sign's; floats by their bits,
 * where zeros are alike and all that is not a number is alike. */
enum { K_LABEL_INT64, K_LABEL_INT32, K_LABEL_INT16, K_LABEL_FLOAT, K_LABEL_DOUBLE };

typedef struct mp_label_args {
    const void *x;
    void *out;
    const uint64_t *table; /* `entries` keys, ascending; then their values */
    int64_t count, entries;
    uint64_t fallback;
    int32_t kind; /* of the elements of x */
    int32_t size; /* of a value in bytes: 2, 4 or 8 */
} mp_label_args;

/* ---- random numbers ---- */

/* a + b * a number of [0, 1), or of mean 0 and deviation 1. */
typedef struct mp_random_args {
    void *out;
    uint64_t seed, run;
    int64_t count;
    float a, b;
    int32_t normal;
    int32_t unused;
} mp_random_args;

/* What stays is told as a byte each, as an element of the type of x, or as a bit of words of 32. */
enum { K_MASK_BYTES, K_MASK_TYPED, K_MASK_BITS };

/* out = (x + bias) / (1 - ratio) where a number of [0, 1) is not below ratio, otherwise 0; and
 * residual is added. */
typedef struct mp_dropout_args {
    const void *x;
    const void *bias;     /* NULL, or `bias_count` elements, repeated */
    const void *residual; /* NULL, or as x */
    void *out;
    void *mask; /* may be NULL */
    uint64_t seed, run;
    int64_t count, bias_count;
    float ratio;
    int32_t mask_kind;
} mp_dropout_args;

/* Each row of x is the logarithm of how likely each class is, apart from a factor. */
typedef struct mp_multinomial_args {
    const void *x;
    void *sums; /* 8 bytes for each element of x: how likely it or one before it is */
    void *out;
    uint64_t seed, run;
    int64_t rows, classes, samples;
    int32_t wide; /* out is of int64, not int32 */
    int32_t unused;
} mp_multinomial_args;

#endif
