/* moe_args.h - arguments of mixtures of experts. Each row of the input takes k routes, each to an
 * expert; a route's number is row * k + j.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOE_ARGS_H
#define MP_KERNEL_MOE_ARGS_H

#include "kernel/quantize/quantize_args.h"

enum {
    K_MOE_LANES = 256,
    K_MOE_PLACE_LANES = 1024,
    K_MOE_TILE = 64,       /* routes and columns of a tile of the product of many */
    K_MOE_DEPTH = 16,      /* of a tile's parts along k */
    K_MOE_FEW = 4,         /* routes of a tile of the product of few */
    K_MOE_FEW_LANES = 256, /* of the kernels that sort no routes */

    /* By tensor cores: */
    K_MOE_SOME = 32, /* routes of a tile ... */
    K_MOE_MANY = 128,
    K_MOE_COLUMNS = 128, /* ... and its columns */
    K_MOE_LINE = 128,    /* bytes that a stage has of each */
};
/* Stages, so many that two blocks have room, and the bytes that a block's shared memory holds. Of
 * packed weights a stage has at most 8 bits each; behind the ring lie two stages of others. */
#define K_MOE_AHEAD(rows)        ((rows) > K_MOE_SOME ? 3 : 5)
#define K_MOE_PACKED_AHEAD(rows) ((rows) > K_MOE_SOME ? 3 : 6)
#define K_MOE_PACKED             (K_MOE_COLUMNS * K_MOE_LINE / 2)
#define K_MOE_HELD(rows, packed)                                                \
    ((packed) ? K_MOE_PACKED_AHEAD(rows) * ((rows)*K_MOE_LINE + K_MOE_PACKED) + \
                    2 * K_MOE_COLUMNS * K_MOE_LINE                              \
              : K_MOE_AHEAD(rows) * ((rows) + K_MOE_COLUMNS) * K_MOE_LINE)

/* Of moe_some.cu: lanes; of a stage the bytes of routes and all of them, 64 of each column's
 * weights; stages, so many that two blocks have room; and the bytes that a block holds. */
#define K_MOE_SOME_LANES       128
#define K_MOE_SOME_A(bits)     (K_MOE_SOME * 64 * 8 / (bits)*2)
#define K_MOE_SOME_STAGE(bits) (K_MOE_SOME_A(bits) + K_MOE_COLUMNS * 64)
#define K_MOE_SOME_AHEAD(bits) ((bits) == 4 ? 6 : 8)
#define K_MOE_SOME_HELD(bits)  (K_MOE_SOME_AHEAD(bits) * K_MOE_SOME_STAGE(bits))

/* Of moe_wgmma.cu: lanes, columns of a tile, elements along k of a chunk, chunks in its ring and on
 * their way, columns whose sums a group has in shared memory at a time and the floats from route to
 * route of them, and the bytes that a block holds: the ring, packed chunks, sums, and which tile.
 */
#define K_MOE_WGMMA_LANES   384
#define K_MOE_WGMMA_COLUMNS 192
#define K_MOE_WGMMA_DEPTH   64
#define K_MOE_WGMMA_STAGES  4
#define K_MOE_WGMMA_AHEAD   (K_MOE_WGMMA_STAGES - 2)
#define K_MOE_WGMMA_PART    48
#define K_MOE_WGMMA_PITCH   (K_MOE_WGMMA_PART + 8)
#define K_MOE_WGMMA_STAGE   ((K_MOE_MANY + K_MOE_WGMMA_COLUMNS) * K_MOE_LINE)
#define K_MOE_WGMMA_PACKED(bits) \
    ((K_MOE_WGMMA_AHEAD + 1) * K_MOE_WGMMA_COLUMNS * K_MOE_WGMMA_DEPTH * (bits) / 8)
#define K_MOE_WGMMA_SUMS (K_MOE_MANY * K_MOE_WGMMA_PITCH * 4)
#define K_MOE_WGMMA_ITEM 32
#define K_MOE_WGMMA_HELD(bits)                                                        \
    (K_MOE_WGMMA_STAGES * (K_MOE_WGMMA_STAGE + K_MOE_WGMMA_ITEM) + K_MOE_WGMMA_SUMS + \
     K_MOE_WGMMA_PACKED(bits))

#define K_MOE_ALIGN 1024 /* of the ring; its place may cost as many bytes more, less one */

/* What is done between the products of an expert. */
enum {
    K_MOE_RELU,
    K_MOE_GELU, /* as tanh approximates it */
    K_MOE_SILU,
    K_MOE_IDENTITY,
    K_MOE_SWIGLU,
};

/* How x has the two halves of SwiGLU. */
enum { K_MOE_APART, K_MOE_PAIRS, K_MOE_HALVES };

/* activation(x); of K_MOE_SWIGLU g sigmoid(alpha g) (l + beta), with g and l kept within `limit`.
 */
typedef struct k_moe_between {
    int32_t kind, halves;
    float alpha, beta, limit;
} k_moe_between;

/* What rows take their k experts by. */
typedef struct k_moe_scores {
    const void *scores; /* [rows][experts] */
    const void *mix;    /* NULL: weights come from the scores; otherwise these are they */
    int32_t experts, k;
    int32_t normalize, sparse;
} k_moe_scores;

/* pairs[route] = (expert, route); weight[route] is how much of its result counts. */
typedef struct mp_moe_route_args {
    k_moe_scores from;
    void *pairs, *weight;
    int64_t rows;
} mp_moe_route_args;

/* Packed integers of all experts, whose rows have no gaps between them: n columns of an expert,
 * each of `chunks` of K_NBITS_CHUNK along k. */
typedef struct k_moe_few {
    const void *weight, *scale; /* scale: [experts][n][blocks] */
    const void *zero, *bias;    /* NULL for none; a zero point is `middle` then */
    int64_t n, zero_row;        /* zero_row: bytes of a column's zero points, or of an expert's */
    int32_t chunks, blocks, block_shift, middle;
    int32_t zero_across; /* a zero point for each column, not for each block of one */
    int32_t unused;
} k_moe_few;

/* Sums that a group of lanes makes at once in the first one of those, so few that what is loaded
 * for the next chunk has registers, too. */
#define K_MOE_FEW_SUMS(bits, size) ((bits) * (size) > 8 ? 2 : 4)

/* The two kernels of a few rows. First, out[route][c] = what comes between, of column c * stride of
 * `first` and, where it is gated, column c * stride + apart of `other`, times x[route / k]. Then
 * out[row][c] = the sum over the row's routes of column c of `first` times x[route], by their
 * weights. */
typedef struct mp_moe_few_args {
    k_moe_scores from;
    const void *x;
    void *out;
    k_moe_few first, other;
    int32_t rows, columns; /* columns: of the result */
    int32_t stride, apart;
    k_moe_between between;
    int32_t unused;
} mp_moe_few_args;

/* first[e]: the first pair of expert e; tiles[e]: tiles of all experts before it. One more than
 * there are experts of both. */
typedef struct mp_moe_tiles_args {
    const void *sorted;
    void *first, *tiles;
    int64_t routes, experts;
    int64_t tile;
} mp_moe_tiles_args;

/* The same of pairs that are not sorted, which it does first: sorted = pairs in the order of their
 * experts; routes of one expert keep theirs. For some of both. */
typedef struct mp_moe_place_args {
    const void *pairs;
    void *sorted, *first, *tiles;
    int64_t routes, experts;
    int64_t tile;
} mp_moe_place_args;

/* out[route][n] = a[route / share][k] . the weights of its expert, plus the bias of that; then what
 * comes between, of K_MOE_SWIGLU only K_MOE_PAIRS, which makes half as many columns. With several
 * parts, by tensor cores: out[part][route][n] are floats, the sums of a part of k each, and nothing
 * else is done. */
typedef struct mp_moe_product_args {
    const void *a, *bias;
    const void *sorted, *first, *tiles;
    void *out;
    int64_t share;
    int64_t experts;
    int64_t tiles_max, tiles_across; /* as many as there may be; of columns */
    k_nbits w;
    k_moe_between between;
    int32_t even; /* two columns of out can be written at once */
    int64_t parts, routes;
} mp_moe_product_args;

/* out = what comes between of x, times `gate` where there is one. */
typedef struct mp_moe_activate_args {
    const void *x, *gate; /* gate: NULL for none; l of K_MOE_APART */
    void *out;
    int64_t count, columns; /* of out */
    k_moe_between between;
    int32_t unused;
} mp_moe_activate_args;

/* out[row] = the sum of x[route] * weight[route] over its k routes. With several parts x[part]
 * [route] are floats, whose sum and the bias of the route's expert are a route's. */
enum { K_MOE_COMBINED = 4 }; /* columns of a lane */

typedef struct mp_moe_combine_args {
    const void *x, *weight;
    const void *pairs, *bias; /* with parts: as they were routed; bias: NULL for none */
    void *out;
    int64_t count, columns, routes;
    int32_t k, parts;
    int32_t packed; /* columns are whole fours, and all begin at multiples of 16 bytes */
    int32_t unused;
} mp_moe_combine_args;

#endif
