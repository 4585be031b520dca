/* quantize_args.h - arguments of products of 8-bit integers and with weights of a few bits, and of
 * rows picked from a quantised table.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_QUANTIZE_ARGS_H
#define MP_KERNEL_QUANTIZE_ARGS_H

#include "kernel/core/index_args.h"
#include "kernel/pointwise/narrow_args.h"
#include "kernel/rows/before_args.h"

/* ---- 8-bit integers ---- */

enum {
    K_INTEGER_LANES = 256,
    K_INTEGER_SIDE = 4, /* a lane without tensor cores sums this many rows and columns */
};

/* Words of four factors each that a tile of so many rows and columns has along k. */
#define K_INTEGER_DEPTH(tile) ((tile) == 32 ? 32 : 16)

/* Of integer_plain.h: what is summed at a time, and its bytes of shared memory. */
enum {
    K_INTEGER_PLAIN_ROWS = 256,
    K_INTEGER_PLAIN_HIGH = 2,
    K_INTEGER_PLAIN_COLUMNS = 16,
    K_INTEGER_PLAIN_DEPTH = 512,
    K_INTEGER_PLAIN_PITCH = K_INTEGER_PLAIN_DEPTH + 16, /* lines in different parts of a cache */
    K_INTEGER_PLAIN_WORDS =
        (K_INTEGER_PLAIN_ROWS + 5) * K_INTEGER_PLAIN_COLUMNS + K_INTEGER_PLAIN_ROWS +
        (K_INTEGER_PLAIN_COLUMNS + K_INTEGER_PLAIN_HIGH) * K_INTEGER_PLAIN_PITCH / 2,
};

/* What becomes of the sums. */
enum {
    K_INTEGER_I32,
    K_INTEGER_F32,  /* times the scales, plus a bias in float for each column */
    K_INTEGER_F16,  /* the same */
    K_INTEGER_BYTE, /* plus an int32 bias for each row, times the scales, rounded, kept in range */
};

/* One value for all, or for each row (of A) or column (of B), again for each matrix or not. */
typedef struct k_integer_side {
    const void *zero, *scale; /* NULL: 0; unused */
    int64_t zero_step, zero_batch;
    int64_t scale_step, scale_batch;
    uint32_t flip; /* 0x80808080 where elements are uint8, which turns them into int8 less 128 */
    int32_t words; /* words of four elements of a row that can be read at once: 0, 1 or 4 */
} k_integer_side;

/* Where the element of a matrix B lies that an image becomes: rows are channels and places in the
 * window, columns are places of the window. Three dimensions, the first ones of one where there are
 * fewer; rows, columns and positions with padding are below 2^31. */
typedef struct k_integer_window {
    int32_t in[3], kernel[3], out[3], stride[3], dilation[3], pad[3];
    k_divider by_kernel[3], by_out[3];
    int64_t channels, channel; /* of a group; elements of one */
} k_integer_window;

/* out[m,n] of each matrix of `batch` (view 0: A, view 1: B, counted in matrices). */
typedef struct mp_integer_args {
    const void *a, *b, *bias, *out_scale, *out_zero;
    void *out;
    int64_t m, n, k;
    int64_t tiles, tiles_down, tiles_across;
    int64_t bias_batch;
    int32_t kind;
    int32_t scale_type;     /* K_SCALE_... */
    uint32_t out_flip;      /* of K_INTEGER_BYTE: 0x80 where the result is uint8 */
    int32_t pairs;          /* two neighbours in a row of the result can be written at once */
    k_integer_side side[2]; /* of A, of B */
    k_layout batch;
    k_integer_window window;
} mp_integer_args;

/* ---- weights of 2, 4 or 8 bits in blocks that share a scale ---- */

enum {
    K_NBITS_PIECE = 8,   /* weights that a lane reads at once; a divisor of every block */
    K_NBITS_COLUMNS = 2, /* columns of the result that a group of lanes works on together */
    K_NBITS_ROWS = 4,    /* rows that one reading of the weights serves */
    K_NBITS_CHUNK = 32,  /* weights of a block that a lane of nbits_few.cu reads at once */
    K_NBITS_LANES = 256, /* of a block of that */
    K_NBITS_TABLES = 32, /* of codes in shared memory: a bank has one for each lane of a warp */
};
#define K_NBITS_FEW_TABLES (16 * K_NBITS_TABLES * 4) /* bytes of tables, of codes of 4 bits */
/* Chunks of a column that a lane has on their way at once. */
#define K_NBITS_FEW_AHEAD(bits, rows) (((bits) == 8 ? 2 : 4) / ((rows) == 1 ? 1 : 2))

/* Of nbits_mma.cu, whose first comment says what they are. */
enum {
    K_NBITS_MMA_ROWS = 8, /* of A, at most */
    K_NBITS_MMA_WARPS = 8,
    K_NBITS_MMA_LANES = 256,
    K_NBITS_MMA_FEW = 4,    /* warps where there are no more stages, of 16 columns of integers */
    K_NBITS_MMA_CHUNKS = 8, /* of a stage */
    K_NBITS_MMA_TABLES = 256 * K_NBITS_TABLES * 4, /* bytes: what two codes of 4 bits mean */
};
#define K_NBITS_MMA_COLUMNS(bits, rows) ((bits) == 4 && (rows) == 8 ? 32 : 16)
#define K_NBITS_MMA_PITCH(bits)         /* bytes from column to column of a stage */ \
    ((K_NBITS_MMA_CHUNKS + ((bits) == 2 ? 2 : 1)) * K_NBITS_CHUNK * (bits) / 8)
#define K_NBITS_MMA_STAGE(bits, rows) /* its bytes */ \
    (K_NBITS_MMA_COLUMNS(bits, rows) * K_NBITS_MMA_PITCH(bits))
#define K_NBITS_MMA_AHEAD(bits, rows) ((bits) == 8 || (rows) == 8 ? 2 : 3)

/* Of nbits_stream.cu. */
enum {
    K_NBITS_STREAM_COLUMNS = 16, /* of a tile */
    K_NBITS_STREAM_CHUNKS = 8,   /* of a stage */
    K_NBITS_STREAM_AHEAD = 3,    /* stages that a warp has on their way */
    K_NBITS_STREAM_KEPT = 8,     /* tiles whose sums a block keeps, at most */
    K_NBITS_STREAM_WARPS = 8,    /* at most */
    K_NBITS_STREAM_LANES = 32 * K_NBITS_STREAM_WARPS,
    K_NBITS_STREAM_BLOCKS = 3, /* whose registers a multiprocessor has: two, and some attention */
};
/* Bytes of the row, elements of two bytes and then a sum of each chunk, and of zeros before it. */
#define K_NBITS_STREAM_ROW(k)      ((k)*2 + (k) / K_NBITS_CHUNK * 4)
#define K_NBITS_STREAM_NONE        64
#define K_NBITS_STREAM_STAGE(bits) /* its bytes: of each column weights, scales, zero points */ \
    (K_NBITS_STREAM_COLUMNS * (K_NBITS_STREAM_CHUNKS * (K_NBITS_CHUNK * (bits) / 8 + 2) + (bits)))

/* Of nbits_tile.cu. */
enum {
    K_NBITS_TILE_COLUMNS = 128,
    K_NBITS_TILE_LANES = 128,
    K_NBITS_TILE_CHUNKS = 4, /* of a stage */
    K_NBITS_TILE_SPAN = 16,  /* chunks whose scales and zero points come at once, ... */
    K_NBITS_TILE_ZERO = 32,  /* ... and bytes of zero points of a column, with up to 15 before and
                              * behind; K_NBITS_TILE_SCALE is that of scales */
    K_NBITS_TILE_SPLITS_MAX = 8, /* blocks of a cluster */
};
/* Where an element of A has `size` bytes, 2 or 4: rows of a tile, at most; parts of an element, of
 * two bytes each; bytes of a stage, which are weights and rows of A. */
#define K_NBITS_TILE_SCALE(size) (K_NBITS_TILE_SPAN * (size) + 16)
#define K_NBITS_TILE_ROWS(size)  ((size) == 4 ? 16 : 64)
#define K_NBITS_TILE_PARTS(size) ((size) == 4 ? 3 : 1)
#define K_NBITS_TILE_STAGE(bits, rows, size) \
    (K_NBITS_TILE_CHUNKS * K_NBITS_CHUNK *   \
     (K_NBITS_TILE_COLUMNS * (bits) / 8 + (rows)*2 * K_NBITS_TILE_PARTS(size)))
/* Stages of the ring: with one more, a span would take the place of one that is still read. */
#define K_NBITS_TILE_AHEAD(bits, rows, size) \
    ((bits) == 8 || (rows) == 64 ? 3 : (rows) == 32 || (size) == 4 ? 4 : 5)

/* What a weight's bits are. */
enum {
    K_NBITS_INTEGER, /* (q - zero) * scale */
    K_NBITS_CODE,    /* values[q] * scale */
    K_NBITS_PLAIN,   /* no bits: an element of A's type */
};

/* Matrices of n columns, of each a row of k weights: `blocks` blocks of `block`, of which the last
 * may go beyond k. Zero points are packed like the weights, one row of `zero_row` bytes a column,
 * or of A's type. A matrix has `side_rows` rows of scales, of which each serves `side` columns, and
 * a factor. */
typedef struct k_nbits {
    const void *weight, *scale, *zero, *group;
    const void *values; /* of K_NBITS_CODE: floats */
    const void *factor; /* floats, one a matrix; NULL for none */
    int64_t n, k, blocks, block;
    int64_t weight_row, zero_row; /* bytes */
    int64_t side, side_rows;
    int32_t bits, block_shift; /* block == 1 << block_shift; -1 for other blocks */
    int32_t middle;            /* the zero point where none is given */
    int32_t zero_packed;
    int32_t aligned;     /* rows of weights, of A and of the result can be read in pieces */
    int32_t swapped;     /* the first of two weights is in the high half of its byte */
    int32_t scale_type;  /* K_SCALE_... */
    int32_t zero_across; /* a row of zero points for each matrix, with one for each column */
} k_nbits;

/* Where what lies in shared memory, in bytes from its start, where the stages are. */
typedef struct k_nbits_shared {
    int32_t bytes;                   /* in all */
    int32_t stages;                  /* that a warp has at once */
    int32_t scale, zero, row;        /* row: of A, where the kernel makes it */
    int32_t scale_pitch, zero_pitch; /* from column to column */
    int32_t sums; /* of nbits_stream.cu; biases of nbits_tile.cu; tables of nbits_mma.cu */
} k_nbits_shared;

/* out[m][n] = A[m][k] . weights, plus the bias of column n. */
typedef struct mp_nbits_args {
    const void *a, *bias;
    void *out;
    int64_t m;
    k_nbits w;
    int32_t width;         /* lanes that share a column */
    int32_t constant;      /* weights, scales and zero points are, and may be read before the kernel
                            * before has ended */
    k_before before;       /* of kernels that make the row themselves: what of */
    k_nbits_shared shared; /* of nbits_mma.cu, nbits_stream.cu and nbits_tile.cu */
    int32_t gated, gate;   /* the result is an activation of its left half, one of K_GATE_..., times
                            * its right half: of nbits_stream.cu and nbits_tile.cu */
    float alpha;
    int32_t splits_log; /* 2 to the power of it blocks share the sums of a tile: of nbits_tile.cu */
    int32_t parts;      /* of a float that are multiplied, 2 or 3: of nbits_tile.cu */
} mp_nbits_args;

/* Rows of floats, each as K_NBITS_TILE_PARTS(4) rows of bfloat16 behind one another, whose sum it
 * is, or as the first two of them, whose sum is near. A pack is eight elements. */
typedef struct mp_nbits_split_args {
    const float *x;
    void *out;
    int64_t count; /* of packs */
    uint32_t packs;
    int32_t parts;
    k_divider by_packs; /* of a row */
} mp_nbits_split_args;

/* ---- rows of a quantised table ---- */

/* out[o][j][i] = x[o][indices[j]][i] as a float; 0 where an index is out of range. */
typedef struct mp_gather_block_args {
    const void *x, *indices, *scale, *zero; /* zero: NULL for `middle` */
    void *out;
    int64_t count;      /* of what `from` walks over */
    int64_t axis, step; /* slices along the gathered axis, elements from one to the next */
    int64_t block;      /* neighbours along the quantised axis that share a scale */
    int64_t scale_block, zero_block; /* steps in scales and zero points from block to block */
    int32_t grouped; /* each item of `from` is K_GROUP elements that share a scale */
    int32_t middle;
    k_narrow type;
    k_layout from;  /* of the result: in x with index 0 (view 0), in indices (view 1) */
    k_layout place; /* of x: scale (view 0) and zero point (view 1) of the first block of the
                     * quantised axis, place along that axis (view 2) */
} mp_gather_block_args;

#endif
