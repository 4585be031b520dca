/* sample_args.h - arguments of the kernels that read an image between its pixels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SAMPLE_ARGS_H
#define MP_KERNEL_SAMPLE_ARGS_H

#include "kernel/core/index_args.h"

/* ---- resizing ----
 * A table says for every output coordinate of every resized axis which inputs it is made of, and
 * with what weights. One small kernel writes the tables, once for all plans; another walks the
 * output and reads them, so coordinates are computed once for an axis and not for an element. */

enum { K_RESIZE_PARTS = 2 * K_RANK_MAX + 1 };

/* How an output coordinate becomes an input coordinate. */
enum {
    K_HALF_PIXEL,
    K_HALF_PIXEL_SYMMETRIC,
    K_PYTORCH_HALF_PIXEL,
    K_ALIGN_CORNERS,
    K_ASYMMETRIC,
    K_CROP_AND_RESIZE,
    K_HALF_PIXEL_FOR_NEAREST,
};

/* Which neighbour is the nearest. */
enum { K_ROUND_PREFER_FLOOR, K_ROUND_PREFER_CEIL, K_FLOOR, K_CEIL, K_TRUNCATE_OR_CEIL };

typedef struct mp_resize_axis {
    int32_t in, out;
    int32_t table;           /* its first entry; entries of the axes follow each other */
    int32_t window;          /* weights of an entry, of smoothing tables */
    float scale, start, end; /* start and end of the region to crop, as shares of the input */
    float support;           /* of smoothing tables: how far inputs matter, in inputs */
    int64_t weights;         /* of smoothing tables: its first weight */
} mp_resize_axis;

/* Neighbouring outputs that a lane makes, of elements of `size` bytes. */
#define K_RESIZE_RUN(size) ((size) <= 4 ? 4 : 2)
/* Each axis begins at a multiple of so many entries, and has so many: runs are read at once. */
enum { K_RESIZE_ENTRIES = 4 };

/* Entry e of the tables of nearest, linear and cubic: K_TAPS indices from index[e * K_TAPS], as
 * many weights, and whether it is a coordinate outside that is to be extrapolated. Entries behind
 * the last of an axis, and outside, name inputs, too. Of smoothing tables: index[2 e] is the first
 * input
 * (-1: outside), index[2 e + 1] how many there are. */
typedef struct mp_resize_table_args {
    int32_t *index;
    float *weight;
    int32_t *outside; /* an entry each, where extrapolate is set; not of smoothing tables */
    int64_t count;    /* entries */
    int32_t axes;
    int32_t transform, nearest;
    int32_t exclude_outside, extrapolate;
    int32_t cubic;       /* smoothing: by a cubic filter instead of a triangle */
    int32_t fixed_point; /* smoothing: weights are whole numbers, 2^22 for 1 */
    float cubic_a;
    mp_resize_axis axis[K_RANK_MAX];
} mp_resize_table_args;

/* The output as dimensions that alternate: kept, resized, kept, ..., resized, kept. Kept ones are
 * walked with `stride`, resized ones by their table. A line is what lies together: the last kept
 * dimension, or, where that is 1, the last resized one. */
typedef struct mp_resize_args {
    const void *x;
    void *out;
    const int32_t *index;
    const float *weight;
    const int32_t *outside; /* where extrapolate is set */
    int64_t count;          /* of runs */
    int64_t line, runs;     /* of a line: its elements; the runs that cover it */
    int64_t out_line;       /* elements of out from one line to the next */
    k_divider by_runs;
    int32_t packed; /* runs are whole and aligned, those that are read of a kept line, too */
    int32_t wide;   /* x or out has 2^31 elements or more: dividers are not used */
    int32_t axes;   /* resized */
    int32_t extrapolate;
    int64_t dim[K_RESIZE_PARTS], stride[K_RESIZE_PARTS];
    k_divider divider[K_RESIZE_PARTS];
    int32_t table[K_RANK_MAX];
    uint64_t outside_bits; /* what extrapolation gives, as those of an element */
    float outside_value;
    int32_t unused;
} mp_resize_args;

/* One smoothing pass: out[i][j][k] = the sum over the inputs n of j of weight * x[i][n][k]. */
typedef struct mp_resize_pass_args {
    const void *x;
    void *out;
    const int32_t *index;
    const float *weight;
    int64_t count, inner; /* of out; of k */
    int32_t in, length;   /* of n; of j */
    int32_t window;
    float outside_value;
    k_divider by_inner, by_length;
    int32_t wide; /* count is 2^31 or more: dividers are not used */
    int32_t unused;
} mp_resize_pass_args;

/* ---- grids ---- */

/* theta is [batches][dims][dims + 1], out is [batches][depth][height][width][dims]. */
typedef struct mp_affine_grid_args {
    const void *theta;
    void *out;
    int64_t count;   /* of points, each with `dims` coordinates */
    int64_t size[3]; /* width, height, depth; depth is 1 where there are two dimensions */
    int32_t dims;    /* 2 or 3 */
    int32_t align_corners;
} mp_affine_grid_args;

enum { K_SAMPLE_DIMS = 3 };

typedef enum k_sample_padding {
    K_SAMPLE_ZEROS,
    K_SAMPLE_BORDER,
    K_SAMPLE_REFLECTION,
} k_sample_padding;

/* Channels that a lane samples at a point: a group. */
enum { K_SAMPLE_EACH = 4 };

/* Dimensions are those of ONNX, the one that the grid names last in front: in[0] is depth, or 1
 * where there are two. */
typedef struct mp_grid_sample_args {
    const void *x, *grid; /* grid is [batch][points][dims], x last-dimension-first */
    void *out;
    int64_t count;  /* of images, groups and points */
    int64_t points; /* of out, in a channel of an image */
    int64_t channels, groups;
    int64_t batch_stride, channel_stride, point_stride; /* of x */
    int64_t in[K_SAMPLE_DIMS];
    int32_t dims; /* 2 or 3 */
    int32_t padding;
    int32_t align_corners;
    int32_t channels_last;        /* of out: groups are its inner dimension, and not points */
    k_divider by_inner, by_outer; /* of those two */
    int32_t wide;                 /* count is 2^31 or more: dividers are not used */
    int32_t unused;
} mp_grid_sample_args;

#endif
