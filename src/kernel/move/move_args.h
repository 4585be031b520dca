/* move_args.h - arguments of the kernels that move or make elements by where they lie.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOVE_ARGS_H
#define MP_KERNEL_MOVE_ARGS_H

#include "kernel/core/index_args.h"

/* A run: the elements that a lane copies at once where it writes in order. */
#define K_COPY_RUN(bytes) ((bytes) < 2 ? 8 : 16 / (bytes))

enum { K_LONG_ROWS = 1, K_SHORT_ROWS };

typedef struct mp_strided_copy_args {
    const void *x; /* already at the first element to read */
    void *out;
    int64_t count;
    int32_t in_order; /* element i of the layout is element i of out */
    int32_t in_runs;  /* that and not wide: whether rows have a run at least; 0 for neither */
    k_layout layout;  /* view 0 reads x, view 1 writes out */
} mp_strided_copy_args;

/* out[r][t][i] = x[r * step + i], t below `times`. A lane writes K_REPEAT_EACH of them, a group. */
enum { K_REPEAT_EACH = 4 };

typedef struct mp_repeat_args {
    const void *x; /* already at the first element to read */
    void *out;
    int64_t count; /* of r, of groups and of i; less than 2^31 */
    int64_t length, times, step;
    int64_t groups; /* of `times` */
    k_divider by_length, by_groups;
} mp_repeat_args;

/* A lane transposes a square of this many elements a side; its lines have 16 bytes at most. */
#define K_SQUARE_SIDE(bytes) ((bytes) < 4 ? 4 : 16 / (bytes))

/* out[o][c][r] = x[o][r][c]: columns are neighbours in x, rows are neighbours in out. */
typedef struct mp_transpose_args {
    const void *x;
    void *out;
    int64_t rows, columns;
    int64_t row_stride;    /* of x, in elements */
    int64_t column_stride; /* of out */
    int64_t count;         /* of tiles */
    int32_t across, down;  /* a tile has 2^down rows of 2^across squares */
    k_layout tiles;        /* not wide; view 0: x, view 1: out, view 2: its row, 3: its column */
} mp_transpose_args;

#define K_DEINTERLEAVE_PACK(bytes) (16 / (bytes))

/* All strides are multiples of a pack, and so is what is walked along the innermost dimension. */
typedef struct mp_deinterleave_args {
    const void *x;
    void *out;
    int64_t count;  /* of packs of each plane */
    int64_t plane;  /* from one to the next */
    k_layout packs; /* not wide; view 0: x, view 1: out, its first plane */
} mp_deinterleave_args;

#define K_BOX_PACK(bytes) (16 / (bytes))
/* Elements between those that a warp's lanes, each of them a line of 128 bytes further, would find
 * in one bank of shared memory. */
#define K_BOX_LINE(bytes) (128 / (bytes))
#define K_BOX_GAP(bytes)  ((bytes) < 4 ? 4 / (bytes) : 1)

/* Boxes of as many elements each, read in the order of x and written in that of out. */
typedef struct mp_box_copy_args {
    const void *x;
    void *out;
    int64_t boxes;
    uint32_t size;       /* elements of a box */
    int32_t reads_packs; /* of neighbours in x, all aligned */
    int32_t writes_packs;
    k_layout box;   /* not wide, like the others; view 0: x, view 1: out */
    k_layout read;  /* of one; view 0: x */
    k_layout write; /* of one; view 0: its place among those read, view 1: out */
} mp_box_copy_args;

/* At most 4 KiB of arguments reach a kernel. */
enum { K_PARTS_MAX = 32 };

/* Numbers are of elements of the kernel's type. */
typedef struct k_part {
    void *data;    /* rows of `width`, `pitch` apart; NULL: an output that nobody wants */
    int64_t start; /* of its first element in the walk over all parts */
    int64_t width; /* 1 or more */
    int64_t pitch;
    int64_t column; /* where its rows lie in those of the whole */
    k_divider divider;
} k_part;

typedef struct mp_concat_split_args {
    void *whole;
    int64_t width; /* of a row of the whole */
    int64_t count; /* of all parts */
    int32_t parts;
    int32_t stride;   /* the search's first: the highest power of two below `parts`, or 0 */
    int32_t is_split; /* from the whole to the parts; otherwise from them to it */
    int32_t wide;     /* 2^31 elements or more: dividers are not used */
    k_part part[K_PARTS_MAX];
} mp_concat_split_args;

/* ---- channels that are taken from groups in turns (op/move/shuffle_parts.c) ----
 * Channel o of the result is channel o % groups * (channels / groups) + o / groups of the parts
 * side by side. */

enum { K_SHUFFLE_MAX = 8 }; /* parts, and outputs */

typedef struct k_shuffle_part {
    const void *data;
    int64_t first; /* channel; the next part begins `channels` further */
    int64_t channels;
} k_shuffle_part;

/* Numbers are of what a lane writes at once. */
typedef struct k_shuffle_out {
    void *data;
    int64_t start; /* of its first in the walk over all outputs */
    int64_t width; /* of a row */
    int64_t first; /* channel, or pack of a row, that it begins with */
    k_divider divider;
} k_shuffle_out;

/* Tensors [rows, channels, inner]. */
typedef struct mp_shuffle_parts_args {
    int64_t count; /* of all outputs */
    int64_t inner;
    int64_t groups;
    int64_t size; /* channels of a group */
    int32_t parts, outs;
    int32_t wide; /* 2^31 elements or more: dividers are not used */
    int32_t unused;
    k_divider by_inner, by_groups;
    k_shuffle_part part[K_SHUFFLE_MAX];
    k_shuffle_out out[K_SHUFFLE_MAX];
} mp_shuffle_parts_args;

/* Two groups, each within rows of one part, and channels that are neighbours. A lane reads a pack
 * of each group and writes both as one. */
typedef struct mp_interleave_args {
    const void *even, *odd; /* where the groups begin */
    uint32_t even_stride, odd_stride;
    int64_t count; /* of packs written; less than 2^31 */
    int32_t outs, unused;
    k_shuffle_out out[K_SHUFFLE_MAX];
} mp_interleave_args;

enum { K_PAD_CONSTANT, K_PAD_EDGE, K_PAD_REFLECT, K_PAD_WRAP };

typedef struct mp_pad_args {
    const void *x;     /* at the first element that may be read */
    const void *value; /* of K_PAD_CONSTANT: one element; NULL: the bytes of `bits` */
    void *out;
    int64_t count;
    uint64_t bits;
    int32_t value_size; /* bytes of that element; T is as wide or holds several */
    int32_t mode;
    int32_t rank; /* at least 1 */
    int32_t unused;
    int64_t dim[K_RANK_MAX];       /* of out */
    int64_t size[K_RANK_MAX];      /* of x, of which `before` elements of out come first */
    int64_t before[K_RANK_MAX];    /* 0 or more */
    int64_t stride[K_RANK_MAX];    /* of x; of the last one 1 */
    k_divider divider[K_RANK_MAX]; /* not for the wide kernels */
} mp_pad_args;

/* out = x, or `one` where x is NULL, between the diagonals `low` and `high`; 0 beside them. */
typedef struct mp_band_args {
    const void *x;
    void *out;
    int64_t count;
    int64_t rows, columns; /* of a matrix */
    int64_t low, high;     /* inclusive; diagonal 0 is the main one, those above it are positive */
    uint64_t one;          /* the bytes of an element */
    k_divider by_rows, by_columns;
    int32_t wide; /* count is 2^31 or more: dividers are not used */
    int32_t unused;
} mp_band_args;

enum { K_PIXEL_BYTES = 16 };

/* out[n][i] = x[n][0..channels)[i], and zeros up to K_PIXEL_BYTES */
typedef struct mp_pad_channels_args {
    const void *x;
    void *out;
    int64_t count; /* of pixels */
    int64_t channels;
    int64_t stride;  /* between channels of x */
    k_layout layout; /* of n, i; view 0: channel 0 of x */
} mp_pad_channels_args;

enum { K_ROLLED = 2 }; /* dimensions along which elements move */

/* out[.., a, .., b, ..] = x[.., (a + start[0]) % dim[0], .., (b + start[1]) % dim[1], ..]; of one
 * dimension alone the other is 1. */
typedef struct mp_roll_args {
    const void *x;
    void *out;
    int64_t count;
    int64_t start[K_ROLLED]; /* less than dim */
    int64_t dim[K_ROLLED], stride[K_ROLLED];
    k_layout layout; /* of out; view 0: x but for these dimensions, views behind it: a and b */
} mp_roll_args;

/* The first lengths[b] steps of time are read from the last to the first. */
typedef struct mp_reverse_args {
    const void *x;
    const int64_t *lengths;
    void *out;
    int64_t count;
    int64_t time;    /* steps */
    int64_t stride;  /* between them */
    k_layout layout; /* view 0: b, view 1: the step */
} mp_reverse_args;

#endif
