/* topk_args.h - arguments of the kernels that pick the first k elements of each row, and of those
 * that sort. A pair is an element's key and its place in its row.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_TOPK_ARGS_H
#define MP_KERNEL_TOPK_ARGS_H

#include "kernel/rows/sort_key_args.h"

typedef struct k_pair {
    uint64_t key;
    int64_t index;
} k_pair;

enum { K_SORT_SHORT = 2048, K_DIGITS = 256 };

/* Rows that fit shared memory: sorted by a bitonic network, the first k written. Rows of x are
 * contiguous. */
typedef struct mp_topk_short_args {
    const void *x;
    const k_pair *pairs; /* NULL: the elements of x; otherwise some of them, `columns` a row */
    void *values;        /* NULL where nobody wants them, as the indices */
    int64_t *indices;
    int64_t rows, columns, k;
    int64_t row;    /* elements of x in a row */
    int64_t padded; /* columns, up to a power of two */
    k_order order;
} mp_topk_short_args;

/* Of sorted or selected pairs, the values and indices. */
typedef struct mp_topk_emit_args {
    const void *x;
    const k_pair *pairs;
    void *values;
    int64_t *indices;
    int64_t count, pairs_in_row, k, row;
} mp_topk_emit_args;

/* Where the search for the k-th key of a row stands. */
typedef struct k_select_state {
    uint64_t prefix; /* of the key, the digits found so far */
    int64_t left;    /* how many elements of that prefix are among the k */
} k_select_state;

enum { K_SELECT_DIGIT, K_SELECT_TALLY, K_SELECT_WRITE };

/* Long rows in tiles, one block each. DIGIT counts, among the elements with the prefix found so
 * far, each value of the next digit; TALLY counts the elements before and at the k-th key; WRITE
 * writes the k pairs in the order of the row. */
typedef struct mp_select_args {
    const void *x;
    k_pair *pairs;
    k_select_state *state; /* of each row */
    int64_t *counts;       /* DIGIT: of each row, digit and tile */
    int64_t *below, *same; /* of each row and tile; scanned before WRITE */
    int64_t rows, columns, k, tiles, tile;
    k_order order;
    int32_t shift; /* of the digit within the key */
    int32_t stage;
} mp_select_args;

/* By one block a row: which value of the digit the k-th key has. */
typedef struct mp_select_digit_args {
    k_select_state *state;
    const int64_t *counts;
    int64_t rows, tiles, k;
    int32_t shift, first; /* `first`: the state is to be made */
} mp_select_digit_args;

/* `rows` rows of `length` counts become the sums of those before. */
typedef struct mp_scan_counts_args {
    int64_t *counts;
    int64_t rows, length;
} mp_scan_counts_args;

/* One digit of a stable radix sort of pairs: COUNT, then scan_counts, then MOVE. */
enum { K_SORT_COUNT, K_SORT_MOVE };
enum { K_SORT_TILE = 1024, K_SORT_LANES = 256 };

typedef struct mp_sort_args {
    const k_pair *in;
    k_pair *out;
    int64_t *counts; /* of each row, digit and tile */
    int64_t rows, columns, tiles;
    int32_t shift, stage;
} mp_sort_args;

/* Pairs of the elements of x, in its order: where sorting starts. */
typedef struct mp_pairs_args {
    const void *x;
    k_pair *pairs;
    int64_t count, columns;
    k_order order;
} mp_pairs_args;

#endif
