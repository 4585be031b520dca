/* row_args.h - arguments of the kernels that sum, scale or mark rows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROW_ARGS_H
#define MP_KERNEL_ROW_ARGS_H

#include "kernel/core/index_args.h"

/* Rows of `columns` elements, `inner` apart: element c of row (o, i) is x[(o * columns + c) * inner
 * + i]. */
typedef struct mp_softmax_args {
    const void *x;
    const void *bias; /* added to row r before: its row r / bias_share % bias_rows */
    void *out;
    int64_t rows, columns, inner;
    int64_t bias_share, bias_rows;
    int32_t width;  /* lanes that share a row; of softmax_apart, rows that share a block */
    int32_t packed; /* rows are packs of 16 aligned bytes */
} mp_softmax_args;

enum { K_SOFTMAX_SHORT_KEPT = 8 };   /* elements that a lane of softmax_short.cu keeps */
enum { K_SOFTMAX_LANES_MAX = 1024 }; /* of a block of softmax.cu */

/* Rows as in mp_softmax_args. */
typedef struct mp_lp_norm_args {
    const void *x;
    void *out;
    int64_t rows, columns, inner;
    int32_t p;     /* 1 or 2 */
    int32_t width; /* lanes that share a row */
    float least;   /* what is divided by where the norm is less */
    int32_t stays; /* a row of zeros does; else it becomes NaN, unless `least` is more */
} mp_lp_norm_args;

/* What sum_infinite.cu says: a byte for each piece of a tensor, 1 where it has an infinite element.
 * And between which numbers, of either sign, the tensor is to be kept: `most[1]` where a byte is 1,
 * else `most[0]`. */
enum { K_FOUND_PIECES = 128, K_FOUND_LANES = 512 };

/* sum = x + more, of `count` elements. */
typedef struct mp_sum_infinite_args {
    const void *x, *more; /* more: NULL, or as x */
    void *sum;            /* NULL where there is no more */
    void *found;          /* K_FOUND_PIECES bytes */
    int64_t count, piece; /* elements; of each piece, a multiple of 16 bytes */
    int32_t packed;       /* all three begin at multiples of 16 bytes */
    int32_t unused;
} mp_sum_infinite_args;

/* out = x, kept between those numbers. */
typedef struct mp_keep_within_args {
    const void *x, *found;
    void *out;
    int64_t count;
    float most[2];
} mp_keep_within_args;

/* out = (v - mean(v)) / (sqrt(variance(v) + epsilon) + floor) * scale + bias for each contiguous
 * row, where v = x + skip + add, or x + skip * add. Pointers other than x and out may be NULL. */
typedef struct mp_norm_args {
    const void *x;
    const void *skip;  /* rows as of x, `skip_rows` of them, repeated */
    const void *add;   /* one row, or one for each */
    const void *found; /* of norm_short.cu alone: v is kept between `most` */
    const void *scale, *bias;
    void *out, *sum;      /* sum gets v */
    void *mean, *inverse; /* one for each row, of float */
    int64_t rows, columns, skip_rows;
    int64_t add_step; /* from one row of `add` to the next, in elements; 0: it has one */
    int64_t groups, per_row, inner; /* element c of row r has the scale (r % groups) * per_row + c /
                                     * inner; per_row of 0: the scale c */
    k_divider by_inner;             /* or by 2^30, if that is less */
    float epsilon, floor, most[2];
    int32_t centred;    /* 0: the mean counts as 0 */
    int32_t wide_stats; /* mean and inverse are of double */
    int32_t width;      /* lanes that share a row */
    int32_t scales;     /* of norm_short.cu alone: `add` is not added, but times skip */
} mp_norm_args;

/* Packs of 16 bytes of a row that a lane of norm_short.cu keeps, and lanes of a block. */
enum { K_NORM_SHORT_PACKS = 3, K_NORM_SHORT_LANES = 512 };

/* Elements of a row that a lane of norm_loose.cu keeps, and lanes of a block. */
enum { K_NORM_LOOSE_KEPT = 16, K_NORM_LOOSE_LANES = 1024 };

/* Rows of fewer than 2^30 columns, in pieces: MOMENTS, then APPLY. */
enum { K_NORM_MOMENTS, K_NORM_APPLY };
enum { K_NORM_PIECES_LANES = 256 };

typedef struct mp_norm_pieces_args {
    mp_norm_args row;      /* `skip`, `add`, `sum` and `width` are not used */
    void *partial;         /* of each piece its mean and squares: two of what sums are kept in */
    int64_t pieces, piece; /* of a row; columns of each but the last */
    int32_t stage;         /* K_NORM_... */
    int32_t whole;         /* pieces, scales and biases are packs of 16 aligned bytes */
} mp_norm_pieces_args;

/* Rows of three tables that indices name, added. An index that is out of range, which only a broken
 * model has, names the nearest row. */
typedef struct mp_embed_args {
    const int32_t *word_ids, *segment_ids, *position_ids; /* the last two may be NULL: 0, and the
                                                           * place in the sequence */
    const void *words, *segments, *positions;             /* tables; segments may be NULL */
    void *out;
    int64_t count, columns; /* packs of 16 bytes or elements: of the result, of a row */
    int64_t sequence;       /* rows of one */
    int64_t position_rows;  /* position ids, which are repeated */
    int64_t word_count, segment_count, position_count; /* rows of the tables */
    k_divider by_columns;                              /* unless `wide`: count is 2^31 or more */
    int32_t wide;
    int32_t unused;
} mp_embed_args;

/* For each row of `columns` numbers where the first 0 is; `columns` if there is none. */
typedef struct mp_mask_index_args {
    const int32_t *mask;
    int32_t *out;
    int64_t rows, columns;
} mp_mask_index_args;

/* A tensor [batch][pixels][channels], whose channels are brought to mean 0 and deviation 1 in
 * groups of neighbours, each over all pixels. Pixels are dealt to blocks in slices, and channels in
 * chunks of as many packs as there are lanes. */
enum { K_GROUP_NORM_PLAIN, K_GROUP_NORM_SWISH, K_GROUP_NORM_RELU };
typedef struct mp_group_norm_args {
    const void *x;
    const void *skip;         /* NULL, or what is added: as x, or [batch][channels] */
    const void *add;          /* NULL, or [channels], added too */
    void *sum;                /* NULL, or gets that sum, which then is what is normalised */
    const void *scale, *bias; /* [channels] */
    void *out;
    float *partial; /* [batch][groups][spans][slices][2]: mean, and squares of what is off it */
    int64_t batch, pixels;
    int64_t slice;            /* pixels, the last slice has what is left */
    int32_t channels, groups; /* below 2^30, as what follows is */
    int32_t each;             /* channels of a group */
    int32_t slices, chunks;
    int32_t spans;         /* chunks that a group may have a part in */
    int32_t across, lines; /* packs of a chunk; pixels that a block takes at once */
    int32_t skip_step;     /* from one pixel of skip to the next, in elements: 0 repeats */
    int32_t activation;    /* a K_GROUP_NORM_ */
    float epsilon;
    k_divider by_each, by_width; /* by channels of a group, and of a chunk */
    k_divider by_chunks, by_slices;
} mp_group_norm_args;

enum { K_GROUP_NORM_LANES = 256, K_GROUP_NORM_BLOCKS = 2 }; /* of a multiprocessor */

enum { K_REDUCE_WHOLE, K_REDUCE_PIECES, K_REDUCE_MERGE };

/* Where what goes into an output lies: in neighbours, at least those of a piece; somewhere; in any
 * way, but the outputs are neighbours; or in short rows of neighbours, one behind the other. */
enum { K_REDUCE_RUNS, K_REDUCE_APART, K_REDUCE_COLUMNS, K_REDUCE_SHORT };

/* Short rows that a block has in shared memory at a time. */
enum { K_REDUCE_SHORT_ROWS = 128 };

/* What is made of the result. */
enum { K_REDUCE_AS_IS, K_REDUCE_MEAN, K_REDUCE_ROOT, K_REDUCE_LOG };

/* Lanes of a block, with registers enough. */
enum { K_REDUCE_LANES_MAX = 512 };

typedef struct mp_reduce_args {
    const void *x;
    void *out;
    void *partial;   /* 8 bytes for each piece of each output */
    int64_t outputs; /* elements of out */
    int64_t reduced; /* elements of x that go into each; may be 0 */
    int64_t pieces;  /* parts that they are reduced in, by launches of their own, */
    int64_t piece;   /* and how many each has */
    int64_t line;    /* of columns: outputs that are neighbours in x, a row of them */
    int32_t stage;   /* K_REDUCE_PIECES, ... */
    int32_t form;    /* K_REDUCE_RUNS, ... */
    int32_t finish;  /* K_REDUCE_MEAN, ... */
    int32_t width;   /* lanes that share a part; of columns: lanes that are side by side */
    int32_t packed;  /* of columns: all packs of 16 bytes lie in a row and are aligned */
    int32_t unused;
    k_layout kept;    /* view 0: where the first element of an output lies in x */
    k_layout dropped; /* view 0: steps from there */
} mp_reduce_args;

enum { K_CUMULATIVE_LANES, K_CUMULATIVE_TOTALS, K_CUMULATIVE_CARRIES, K_CUMULATIVE_WRITE };

/* Lanes of a block of column_sum.cu. */
enum { K_COLUMN_SUM_LANES = 256 };

/* x[outer][rows][line] to out[outer][line]; lines are packs of 16 aligned bytes. Where rows are
 * not, a line is `folds` of them one behind the other, which are added to one another in the end.
 */
typedef struct mp_column_sum_args {
    const void *x;
    void *out;
    void *partial;                 /* [outer][pieces][line], of 8 bytes each */
    int64_t line;                  /* elements */
    int32_t rows, packs;           /* packs: of out */
    int32_t pieces, piece;         /* parts that the rows are summed in, and rows of each */
    int32_t stage, mean;           /* K_REDUCE_PIECES, ...; the sum over `rows` */
    int32_t width, folds;          /* lanes side by side; 1 where lines are whole packs */
    k_divider by_packs, by_pieces; /* packs of a line */
} mp_column_sum_args;

/* Rows as in mp_softmax_args, in `pieces` parts of `piece` columns, counted in the direction of the
 * scan. */
typedef struct mp_cumulative_args {
    const void *x;
    void *out;
    void *carries; /* 8 bytes for each piece: its total, then what lies before it; NULL for 1 */
    int64_t rows, columns, inner, pieces, piece;
    int32_t stage;                       /* K_CUMULATIVE_... */
    int32_t product, exclusive, reverse; /* 0 or 1 */
    int32_t packed, unused;              /* rows and pieces are packs of 16 aligned bytes */
} mp_cumulative_args;

/* Rows as in mp_softmax_args. */
typedef struct mp_one_hot_row_args {
    const int64_t *index; /* of each row */
    void *out;
    int64_t rows, columns, inner;
    uint64_t one; /* its bits */
} mp_one_hot_row_args;

#endif
