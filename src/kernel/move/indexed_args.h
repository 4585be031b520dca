/* indexed_args.h - arguments of the kernels that move elements by indices, and that find indices.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INDEXED_ARGS_H
#define MP_KERNEL_INDEXED_ARGS_H

#include "kernel/core/index_args.h"

/* out[o][j][i] = x[o][indices[j]][i]; a negative index counts from the end. */
typedef struct mp_gather_args {
    const void *x, *indices;
    void *out;
    int64_t count;    /* of out */
    int64_t axis_dim; /* what an index may be at most */
    int64_t inner;    /* of i */
    k_layout layout;  /* of o, j, i; view 0: x at index 0, view 1: indices */
} mp_gather_args;

/* At most 4 KiB of arguments reach a kernel. */
enum { K_TABLES_MAX = 64 };

typedef struct k_table {
    const void *x, *indices;
    int64_t rows;
    int64_t step;   /* from one index to the next */
    int32_t column; /* the first of them */
} k_table;

/* out[l * pitch + first + t * inner + i] = table t[its indices[l * step + column]][i]; a negative
 * index counts from the end. */
typedef struct mp_table_rows_args {
    void *out;
    int64_t count; /* of all elements */
    int64_t inner; /* of a row */
    int64_t pitch, first;
    int32_t tables;
    int32_t wide; /* 2^31 elements or more: dividers are not used */
    k_divider by_inner, by_tables;
    k_table table[K_TABLES_MAX];
} mp_table_rows_args;

/* A walk over elements, each of which names an element of another tensor by an index of `depth`
 * parts: the one at view 0 of the layout plus the sum of part[d] * stride[d]. */
typedef struct k_indexed {
    const void *indices;
    int64_t count;                               /* of the walk */
    int32_t depth;                               /* up to K_RANK_MAX */
    int32_t is_narrow;                           /* the indices are int32, not int64 */
    int64_t dim[K_RANK_MAX], stride[K_RANK_MAX]; /* of the tensor, for each part */
    k_layout layout; /* view 0: the tensor at index 0, view 1: the first part of the index */
} k_indexed;

typedef struct mp_gather_at_args {
    const void *x;
    void *out;
    k_indexed walk; /* over out */
} mp_gather_at_args;

/* out[r][j] = x[r][indices[r * index_step + j]]; a lane picks so many elements of `size` bytes at
 * once. */
#define K_GATHER_PICKED(size) ((size) <= 4 ? 4 : 16 / (size))

typedef struct mp_gather_row_args {
    const void *x, *indices;
    void *out;
    int64_t rows;
    int64_t index_step;  /* 0: one list for all rows */
    int32_t length;      /* of a row of x, all in shared memory */
    int32_t picks;       /* of a row of out */
    int32_t whole_words; /* rows of x are aligned words of 16 bytes */
    int32_t packed;      /* what lanes pick is whole and aligned, and so are its indices */
} mp_gather_row_args;

/* How a scattered element joins what is there. */
enum { K_SCATTER_ADD, K_SCATTER_MUL, K_SCATTER_MAX, K_SCATTER_MIN };

typedef struct mp_scatter_args {
    const void *updates;
    void *out;
    k_indexed walk; /* over updates */
    int32_t how;    /* of scatter_reduce.cu */
    int32_t unused;
} mp_scatter_args;

/* present[..][write[b] + s][..] = update[b][..][s][..] */
typedef struct mp_tensor_scatter_args {
    const void *update, *write; /* write: int64, or NULL for zeros */
    void *out;
    int64_t count;
    int64_t length; /* of the cache along the axis */
    int64_t step;   /* between its elements along the axis */
    int32_t is_circular;
    int32_t unused;
    k_layout layout; /* over update; view 0: out where write is 0, view 1: b, view 2: s */
} mp_tensor_scatter_args;

/* Sequences of `size` tokens that begin at one of the first `places` of each row. */
typedef struct mp_ngram_args {
    const int64_t *ids; /* [batch][length] */
    float *out;         /* [batch][vocabulary] */
    int64_t batch, length, places, vocabulary, size;
} mp_ngram_args;

/* Elements of a tile that a lane looks at together; those of a tile, which a block has once. */
enum { K_COMPACT_EACH = 16, K_COMPACT_LANES = 256, K_COMPACT_SCAN_LANES = 1024 };
enum { K_COMPACT_TILE = K_COMPACT_LANES * K_COMPACT_EACH };
/* What a tile needs: its start, and behind all starts its masks; in shared memory its places. */
enum { K_COMPACT_STARTS = 8, K_COMPACT_MASKS = K_COMPACT_LANES * 2 };
enum { K_COMPACT_PLACES = K_COMPACT_TILE * 2 };

/* The elements in tiles of neighbours, each of which a block goes through in order. */
typedef struct mp_compact_args {
    const void *x;
    uint16_t *masks; /* which elements are found: a number for each K_COMPACT_EACH */
    int64_t *starts; /* of each tile; how many are found in it, then how many before it */
    int64_t *total;
    int64_t *out;
    int64_t count, tiles, tile;
    int64_t found;              /* the total, once it is known */
    int32_t rank;               /* of x; 0: `out` gets positions instead of indices */
    int32_t flags;              /* K_COMPACT_... */
    int64_t stride[K_RANK_MAX]; /* of x, its dimensions in order */
    k_divider by_stride[K_RANK_MAX];
} mp_compact_args;

enum {
    K_COMPACT_PACKED = 1, /* x is aligned for 16 bytes at a time, and so is each tile */
    K_COMPACT_WIDE = 2,   /* x has 2^31 elements or more: dividers are not used */
};

/* out[o][c][i] = values[indices[o][i] == c] */
typedef struct mp_one_hot_args {
    const void *indices, *values;
    void *out;
    int64_t count, depth;
    k_divider by_depth;
    int32_t index_type; /* ONNX's number of an element type */
    int32_t in_rows;    /* there is one i; by_depth is set unless the layout is wide */
    k_layout layout;    /* of o, c, i; view 0: indices, view 1: c */
} mp_one_hot_args;

#endif
