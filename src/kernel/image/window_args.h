/* window_args.h - arguments of the kernels that look at windows and boxes of an image.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_WINDOW_ARGS_H
#define MP_KERNEL_WINDOW_ARGS_H

#include "kernel/core/index_args.h"

enum { K_POOL_DIMS = 3 };

/* Windows over [planes][in[0]][in[1]][in[2]], or with channels last over
 * [batch][in[0]][in[1]][in[2]][channels]; dimensions that the tensor lacks are 1, in front.
 * Every coordinate, padding included, is below 2^30. */
typedef struct mp_pool_args {
    const void *x;
    void *out;
    int64_t *indices;           /* of the maxima; NULL where nobody asks */
    int64_t count;              /* of out */
    int64_t plane;              /* elements of x in a plane */
    int64_t channels;           /* used where they are last, as these: */
    int64_t x_pitch, out_pitch; /* elements from one pixel to the next; of out at least channels */
    int32_t wide;               /* count, or packs of it, is 2^31 or more: dividers are not used */
    int32_t packed;        /* channels are last, and packs of 16 aligned bytes, which are counted */
    int32_t column_major;  /* the order in which indices number a plane */
    int32_t include_pad;   /* an average counts padding */
    float power;           /* of lp */
    int32_t lines;         /* planes are one line, and so are windows and results */
    k_divider by_channels; /* or by the packs of them */
    k_divider divider[K_POOL_DIMS]; /* by out[] */
    int32_t out_dim[K_POOL_DIMS], in[K_POOL_DIMS], kernel[K_POOL_DIMS], stride[K_POOL_DIMS];
    int32_t dilation[K_POOL_DIMS], pad_begin[K_POOL_DIMS], pad_end[K_POOL_DIMS];
} mp_pool_args;

typedef struct mp_unpool_args {
    const void *x;
    const int64_t *indices; /* of each element of x: where in out */
    void *out;              /* filled with zeros */
    int64_t count;          /* of x */
    int64_t out_count;
} mp_unpool_args;

/* A box may lie anywhere: its bins are sampled at this many points along a side at most. */
enum { K_ROI_SAMPLES_MAX = 4096 };
enum { K_ROI_PLANES = 8 }; /* channels of a lane of roi_align.cu */

/* x is [batches][channels][in_h][in_w], out is [regions][channels][out_h][out_w]. */
typedef struct mp_roi_space {
    int64_t count; /* of out */
    int64_t batches, channels, in_h, in_w, out_h, out_w;
} mp_roi_space;

typedef struct mp_roi_align_args {
    const void *x, *rois; /* rois: x1, y1, x2, y2 of each region */
    const int64_t *batch; /* of each region */
    void *out;
    mp_roi_space space;
    int64_t count;  /* of items: regions, pieces, bins */
    int64_t pieces; /* of the channels, K_ROI_PLANES each, the last what is left */
    k_divider by_out_w, by_out_h, by_pieces;
    float scale;
    int32_t samples;    /* along a side of a bin; 0: as many as it has pixels */
    int32_t half_pixel; /* pixels have their centres at halves */
    int32_t largest;    /* of the samples, instead of their mean */
    int32_t wide;       /* 2^31 items or more: dividers are not used */
    int32_t unused;
} mp_roi_align_args;

typedef struct mp_roi_pool_args {
    const void *x, *rois; /* rois: batch, x1, y1, x2, y2 of each region */
    void *out;
    mp_roi_space space;
    float scale;
    int32_t unused;
} mp_roi_pool_args;

/* Boxes whose overlaps are bits of one word. */
enum { K_NMS_WORD = 64 };

/* boxes is [batches][count][4], scores is [batches][classes][count]. A list is what is selected of
 * one class of one image. */
typedef struct mp_nms_args {
    const float *boxes, *scores;
    uint8_t *gone;   /* of each list and box: suppressed or selected */
    int32_t *picked; /* `most` of each list, in order */
    int64_t *starts; /* of each list; how many are selected, later how many lie before it */
    int64_t *out;    /* batch, class, box of each that is selected */
    int32_t *order;  /* of each list, the best first; -1: may not be selected */
    float *sorted;   /* in that order: the lower corner and the higher */
    uint64_t *bits;  /* of each list and of `rows` boxes in that order, from the one of number
                      * `first` on, `words`: which behind it overlap it */
    uint64_t *taken; /* `words` of each list: which boxes have been taken out, in that order */
    int64_t lists, classes, count, words;
    int64_t first, rows;
    int64_t most;  /* of a list */
    int64_t found; /* of all, once it is known */
    float overlap, threshold;
    int32_t centred;       /* boxes are x, y of the centre, width, height; otherwise two corners */
    int32_t has_threshold; /* scores must be larger than it */
} mp_nms_args;

#endif
