/* sort_args.h - arguments of the kernels that compare elements: the best, the first k, sorting.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SORT_ARGS_H
#define MP_KERNEL_SORT_ARGS_H

#include "kernel/core/types.h"

/* How the bits of an element type are ordered. */
typedef struct k_order {
    uint64_t sign; /* the sign's bit; 0 for unsigned integers */
    uint64_t inf;  /* the bits of +inf; 0 for integers */
    uint64_t all;  /* every bit of the type */
    uint64_t flip; /* `all` for descending order, otherwise 0 */
} k_order;

/* The best element seen: the smallest key, then the smallest `tie`. */
typedef struct k_best {
    uint64_t key, tie;
} k_best;

enum { K_ARGMAX_WHOLE, K_ARGMAX_PIECES, K_ARGMAX_MERGE, K_ARGMAX_LANES, K_ARGMAX_SHORT };

/* Lanes of a block of argmax_rows.cu. */
enum { K_ARGMAX_LANES_MAX = 512 };

/* Rows of `columns` elements, `inner` apart. The pieces of argmax_rows.cu have fewer than 2^31. */
typedef struct mp_argmax_args {
    const void *x;
    int64_t *out;
    k_best *partial; /* `pieces` for each row */
    int64_t rows, columns, inner;
    int64_t pieces, piece; /* how many parts of a row, and columns in each */
    uint64_t last;         /* all ones: of equal elements the last; 0: the first */
    k_order order;
    int32_t stage;    /* K_ARGMAX_... */
    int32_t smallest; /* is the best; as `order` says */
    int32_t width;    /* of argmax_rows.cu: lanes that share a piece */
    int32_t unused;
} mp_argmax_args;

/* ---- the first k of each row, and sorting: an element's key and its place in its row ---- */

typedef struct k_pair {
    uint64_t key;
    int64_t index;
} k_pair;

enum { K_SORT_SHORT = 4096, K_DIGITS = 256 };

/* What a lane of topk_words.cu has, how many lanes a block may have, and the bytes by which its
 * lists are set apart: neighbours then come from different banks of shared memory. */
enum { K_WORDS_EACH = 8, K_WORDS_LANES = K_SORT_SHORT / K_WORDS_EACH, K_WORDS_GAP = 16 };

/* Rows that fit shared memory: sorted by a bitonic network, the first k written. Rows of x are
 * contiguous. */
typedef struct mp_topk_short_args {
    const void *x;
    const k_pair *pairs; /* NULL: the elements of x; otherwise some of them, `columns` a row */
    void *values;        /* NULL where nobody wants them, as the indices */
    int64_t *indices;
    int64_t rows, columns, k;
    int64_t row;    /* elements of x in a row */
    int64_t padded; /* columns, up to a power of two; of topk_words.cu K_WORDS_EACH at least */
    k_order order;
} mp_topk_short_args;

/* The lanes of a block of topk_few.cu, and how many bits a place in a piece has. */
enum { K_TOPK_LANES_MAX = 1024, K_TOPK_PLACE_BITS = 16 };

/* Rows of `columns` elements of x, or of pairs that were found in x, in pieces of `piece`; the
 * first k of each. Rows of x and lists of pairs are contiguous. */
typedef struct mp_topk_few_args {
    const void *x;
    const k_pair *from; /* NULL: x */
    k_pair *to;         /* of each piece k, in order; NULL: results, of rows of one piece */
    void *values;       /* NULL where nobody wants them, as the indices */
    int64_t *indices;
    int64_t rows, columns, k;
    int64_t pieces, piece;
    int64_t row; /* elements of x in a row */
    k_order order;
    int32_t room; /* elements that a list in shared memory may have */
    int32_t bits; /* of a key */
} mp_topk_few_args;

/* Of sorted or selected entries, the values and indices. */
typedef struct mp_topk_emit_args {
    const void *x;
    const void *entries;
    void *values;
    int64_t *indices;
    int64_t count, k, row;
    int32_t words; /* what the entries are: sort_entry.h */
    int32_t unused;
} mp_topk_emit_args;

/* Where the search for the k-th key of a row stands. */
typedef struct k_select_state {
    uint64_t prefix; /* of the key, the digits found so far */
    int64_t left;    /* how many elements of that prefix are among the k */
} k_select_state;

enum { K_SELECT_DIGIT, K_SELECT_TALLY, K_SELECT_WRITE };
enum { K_SELECT_LANES = 256 }; /* of a block */

/* Long rows in tiles, one block each. DIGIT counts, among the elements with the prefix found so
 * far, each value of the next digit; TALLY counts the elements before and at the k-th key; WRITE
 * writes the k entries in the order of the row. */
typedef struct mp_select_args {
    const void *x;
    void *entries;
    k_select_state *state; /* of each row */
    int64_t *counts;       /* DIGIT: of each row and digit, 0 before */
    int64_t *below, *same; /* of each row and tile; scanned before WRITE */
    int64_t rows, columns, k, tiles, tile;
    k_order order;
    int32_t shift; /* of the digit within the key */
    int32_t stage;
    int32_t words; /* what the entries are: sort_entry.h */
    int32_t unused;
} mp_select_args;

/* By one block a row: which value of the digit the k-th key has. */
typedef struct mp_select_digit_args {
    k_select_state *state;
    const int64_t *counts; /* of each row and digit */
    int64_t rows, k;
    int32_t shift, first; /* `first`: the state is to be made */
} mp_select_digit_args;

/* `rows` rows of `length` counts become the sums of those before. */
typedef struct mp_scan_counts_args {
    int64_t *counts;
    int64_t *totals; /* of each row the sum of all; NULL where nobody wants it */
    int64_t rows, length;
} mp_scan_counts_args;

/* One digit of a stable radix sort of entries: COUNT, then scan_counts over the tiles of each
 * digit, then MOVE. A tile is K_SORT_LANES runs of neighbours, one for each lane of a block on a
 * GPU. */
enum { K_SORT_COUNT, K_SORT_MOVE };
enum { K_SORT_RUN_BYTES = 64, K_SORT_LANES = 256 };

typedef struct mp_sort_args {
    const void *in;
    void *out;
    int64_t *counts;       /* of each row, digit and tile */
    const int64_t *totals; /* of each row and digit */
    int64_t rows, columns, tiles;
    int32_t shift, stage;
} mp_sort_args;

/* Entries of the elements of x, in its order: where sorting starts. */
typedef struct mp_pairs_args {
    const void *x;
    void *entries;
    int64_t count, columns;
    k_order order;
    int32_t words; /* what the entries are: sort_entry.h */
    int32_t unused;
} mp_pairs_args;

/* ---- equal slices ---- */

enum { K_UNIQUE_STEP, K_UNIQUE_FLAGS };

/* Element j of slice s is x[(j / inner * slices + s) * inner + j % inner]. Slices are compared
 * element by element. STEP is one step of a bitonic network over `padded` pairs, whose indices are
 * slices or, behind the last, -1; FLAGS marks each slice that differs from the one before it. */
typedef struct mp_unique_args {
    const void *x;
    k_pair *pairs;
    uint8_t *flags;
    int64_t slices, length, inner, padded;
    int64_t run, step;
    k_order order;
    int32_t stage;
    int32_t unused;
} mp_unique_args;

enum { K_UNIQUE_START, K_UNIQUE_MARK, K_UNIQUE_WRITE };

/* Group g has the sorted pairs from heads[g] on; its first slice is the index of that pair. */
typedef struct mp_unique_write_args {
    k_pair *pairs;
    const int64_t *heads;
    const int64_t *first; /* the groups' first slices in order; NULL: groups stay sorted */
    uint8_t *marks;       /* MARK: set at each group's first slice */
    int64_t *places;      /* the first slice of each group of the output */
    int64_t *indices, *inverse, *counts; /* may be NULL */
    int64_t slices, groups;
    int32_t stage;
    int32_t unused;
} mp_unique_write_args;

#endif
