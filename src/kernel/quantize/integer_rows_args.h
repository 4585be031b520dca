/* integer_rows_args.h - arguments of products of rows of 8-bit integers, of which those along k lie
 * beside each other on both sides: of matrices whose right one is stored turned, and of images
 * with their channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INTEGER_ROWS_ARGS_H
#define MP_KERNEL_INTEGER_ROWS_ARGS_H

#include "kernel/core/index_args.h"

enum { K_INTEGER_ROWS_CHUNK = 64 /* bytes along k that a warp multiplies at a time */ };

/* Stages that a block has at once. */
#define K_INTEGER_ROWS_AHEAD(rows, split) ((rows) >= 128 ? 4 : (split) >= 4 ? 3 : 4)
/* Bytes of a stage, and of the sums behind it all, whose rows lie a little further apart. */
#define K_INTEGER_ROWS_STAGE(rows, columns, split) \
    (((rows) + (columns)) * (split)*K_INTEGER_ROWS_CHUNK)
#define K_INTEGER_ROWS_PITCH(columns) ((columns) + 8)
#define K_INTEGER_ROWS_SUMS(rows, columns, split) \
    ((split) * (rows)*K_INTEGER_ROWS_PITCH(columns) * 4)
/* Where what is added lies, behind both, and bytes of all. */
#define K_INTEGER_ROWS_OTHER(rows, columns, split)                                        \
    (K_INTEGER_ROWS_STAGE(rows, columns, split) * K_INTEGER_ROWS_AHEAD(rows, split) >     \
             K_INTEGER_ROWS_SUMS(rows, columns, split)                                    \
         ? K_INTEGER_ROWS_STAGE(rows, columns, split) * K_INTEGER_ROWS_AHEAD(rows, split) \
         : K_INTEGER_ROWS_SUMS(rows, columns, split))
#define K_INTEGER_ROWS_SHARED(rows, columns, split) \
    (K_INTEGER_ROWS_OTHER(rows, columns, split) + (rows) * (columns))

/* What becomes of the sums. */
enum {
    K_INTEGER_ROWS_I32,
    K_INTEGER_ROWS_F32,  /* times the scale */
    K_INTEGER_ROWS_BYTE, /* the same, rounded to the nearest, of two the even one, moved by a zero
                          * point and kept in range */
};

/* Where windows lie on an image. Positions with padding are below 2^31, as are elements of an
 * image. */
typedef struct k_byte_window {
    int32_t in[2], kernel[2], stride[2], dilation[2], pad[2];
    int32_t out[2]; /* windows of an image, and of a row of it */
    int32_t channels;
    k_divider by_channels, by_kernel, by_out[2]; /* by_kernel: a row of the window */
    int64_t image;                               /* elements */
} k_byte_window;

/* What a value becomes, over its scale and rounded: at least and at most so much, before the zero
 * point is added. */
typedef struct k_byte_range {
    float least, most;
    int32_t zero;
} k_byte_range;

/* A sum of a value that was a byte, what a product became by the range `between`, and another one,
 * such as that of a byte of another tensor. */
typedef struct k_byte_sum {
    k_byte_range between;
    float between_scale, other_scale;
    float other_zero;     /* as an unsigned byte, plus 2^23 */
    uint32_t flip;        /* makes bytes unsigned: 0x80808080 or 0 */
    float scale, inverse; /* of the result, and 1 by it */
} k_byte_sum;

/* out[row][column] = sum over k of x . w, plus `add` of the column. */
typedef struct mp_integer_rows_args {
    const void *x;       /* rows of k bytes; images [in][in][channels] */
    const void *w;       /* int8: columns of k bytes; filters [kernel][kernel][channels] */
    const int32_t *add;  /* by column; NULL: 0 */
    const float *scale;  /* by column, or one */
    const float *factor; /* one number for all, or NULL */
    const float *row;    /* by column, added behind the scale; or NULL */
    const void *other;   /* bytes of the same shape, which are added, or NULL */
    const uint8_t *zero; /* of x: times `sums` it is taken off; or NULL */
    const int32_t *sums; /* of the columns of w */
    void *out;
    int64_t rows, columns, k;
    uint32_t tiles, tiles_across;
    k_divider by_across;
    int32_t kind;
    int32_t scale_step;
    int32_t constant;    /* w, add and scale are, and may be read before the kernel before has
                          * ended */
    int32_t is_unsigned; /* x is uint8, and so is its zero point */
    uint32_t padding;    /* what x has beyond the image, as four bytes */
    k_byte_range range;  /* of a byte of the result */
    int32_t has_sum;     /* bytes are those of a sum, with `other` or else `row` */
    k_byte_sum both;
    k_byte_window window;
} mp_integer_rows_args;

#endif
