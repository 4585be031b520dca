/* nbits_chain_args.h - arguments of nbits_chain.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_CHAIN_ARGS_H
#define MP_KERNEL_NBITS_CHAIN_ARGS_H

#include "kernel/quantize/quantize_args.h"

enum {
    K_CHAIN_LINKS = 4,    /* at most */
    K_CHAIN_COLUMNS = 16, /* of a tile */
    K_CHAIN_CHUNKS = 8,   /* of a stage */
    K_CHAIN_WARPS = 16,   /* at most */
    K_CHAIN_LANES = 32 * K_CHAIN_WARPS,
    K_CHAIN_NORM_LANES = 512, /* that have four elements each of a row with a norm, at most */
    K_CHAIN_PACKS = 32,       /* of the row, for each stage of a column */
    K_CHAIN_BOXES = 64,       /* bytes of what counts the bytes that arrive, ... */
    K_CHAIN_HEAD = 192,       /* ... with a sum of each warp behind */
    K_CHAIN_SCALES = 256,     /* bytes of scales of a stage */
};
/* Stages that a warp has on their way, and their bytes: weights and scales. */
#define K_CHAIN_AHEAD(bits) ((bits) == 8 ? 3 : 7)
#define K_CHAIN_STAGE(bits) \
    (K_CHAIN_COLUMNS * K_CHAIN_CHUNKS * K_NBITS_CHUNK * (bits) / 8 + K_CHAIN_SCALES)

/* How far what lies in memory for a stage is from what does for another one, in bytes. */
typedef struct k_chain_pitch {
    int32_t column; /* from one to the next */
    int32_t stage;  /* of a column, from one to the next */
    int32_t apart;  /* from a row of the left operand to that eight behind it */
    int32_t next;   /* from one tile of a warp to its next one */
} k_chain_pitch;

/* A row times packed integers, rows of weights[n][k] in blocks of 2 to the power of chunks_log
 * chunks, an even number of blocks a column. */
typedef struct k_chain_link {
    const void *weight, *scale, *bias; /* bias may be NULL */
    const void *norm; /* the scale of the row's norm; NULL: the row is what the link before made */
    void *sum;        /* gets what was normalised; may be NULL */
    int32_t n, k;
    int32_t chunks, chunks_log; /* of a column */
    int32_t middle;             /* the zero point of all blocks */
    int32_t gated, gate;        /* as in mp_nbits_args */
    float alpha, epsilon, mean; /* mean: 1 / k */
    int32_t made;               /* elements of the result: n, or half of it */
    int32_t each, apart; /* columns from tile to tile, and from a row to that eight behind it */
    int32_t stages, by_stages; /* of a column; 2^16 by that, rounded up */
    int32_t tiles;             /* of columns of the weights */
    int32_t next_tiles;        /* from one tile of a warp to its next one */
    int32_t norm_at;           /* where the norm's scale lies in shared memory */
    k_chain_pitch weights, scales;
} k_chain_link;

/* A row through one product after the other: out = what the last one makes. The first norm is that
 * of the row and `skip`, every other one that of the row and the sum before. */
typedef struct mp_nbits_chain_args {
    const void *a, *skip; /* skip may be NULL */
    void *out;
    int32_t links, blocks_log; /* 2 to the power of it blocks are the cluster */
    int32_t row, sums;         /* where they lie in shared memory */
    int32_t given[2];
    int32_t width; /* of what norms are taken of; 0: there is none */
    k_chain_link link[K_CHAIN_LINKS];
} mp_nbits_chain_args;

#endif
